"""The first five minutes of a new user: runs the steps of the quick start and measures their duration."""

"""Simulated time over recorded usage, and the score of what happened."""

"""Admission of new pods: statistics and cluster gathered, reviews answered."""

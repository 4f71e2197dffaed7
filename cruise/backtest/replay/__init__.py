"""Replays recorded usage in simulated time, and scores the result."""

"""Recorded usage, from trace directories or from Prometheus."""

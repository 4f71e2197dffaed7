"""Passes over the three ports: gather, decide, apply."""

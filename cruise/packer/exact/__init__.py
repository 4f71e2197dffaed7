"""Exact search with CP-SAT, for small problems with rules between pods."""

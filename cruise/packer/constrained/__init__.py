"""Packing pods that are not free of each other: an exact model of all rules, and the same on a few nodes at a time."""

from cruise.packer.constrained.solving import solve_constrained

__all__ = ["solve_constrained"]

"""Packing pods that are not free of each other, by an exact model of all rules."""

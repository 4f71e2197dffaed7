"""Compares the decisions of two checkouts byte for byte, on the same inputs, which are drawn with fixed seeds."""

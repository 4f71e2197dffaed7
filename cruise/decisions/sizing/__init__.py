"""Computes the sizes of the pods of a node from statistics, and the resizes that are written."""

"""Clusters of any size, under any rules: a packing at once, a better one by ejections, and what bounds it."""

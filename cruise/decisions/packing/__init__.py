"""Builds a packing problem from a cluster, and from its solution a plan that is verified, explained and executed."""

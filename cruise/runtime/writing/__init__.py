"""The one way to write to a cluster, and everything that stands before a write."""

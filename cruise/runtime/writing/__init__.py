"""The only way to write to a cluster, and all guards before a write."""

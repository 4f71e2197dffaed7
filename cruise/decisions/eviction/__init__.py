"""Which pods are evicted from a node that cannot hold all of them, and where their replacements can run."""

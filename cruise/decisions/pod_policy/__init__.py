"""Pod policy."""

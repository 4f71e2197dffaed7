"""A simulated cluster with usage and an in-memory store, behind the same ports as the real ones."""

"""A cluster, its usage and a store in memory, behind the same ports as the real ones."""

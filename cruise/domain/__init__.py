"""The domain model: immutable data shared by every layer, without I/O, clock or randomness."""

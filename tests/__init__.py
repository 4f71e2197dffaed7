"""The tests of cruise: each folder mirrors the package of the same name."""

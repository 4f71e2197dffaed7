"""Decoders of each kind of object, from structs to the domain."""

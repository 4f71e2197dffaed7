"""The JSON fields that cruise reads, as msgspec structs."""

"""The fields that cruise reads, as msgspec structs."""

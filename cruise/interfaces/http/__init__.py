"""The HTTP API, metrics and probes."""

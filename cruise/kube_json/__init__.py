"""Conversion between Kubernetes JSON and the domain model; pure, without I/O."""

"""Kubernetes JSON to and from the domain; pure, without I/O."""

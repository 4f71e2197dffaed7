"""Kubernetes: reads from and writes to the API server, without decisions."""

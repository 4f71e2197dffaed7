"""Kubernetes' JSON in and out of the domain: pure, no I/O."""

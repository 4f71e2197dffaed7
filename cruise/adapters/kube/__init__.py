"""Kubernetes: the API server asked and told, with raw answers; nothing is decided here."""

"""Inputs of commands: files, the live cluster, Prometheus, the database."""

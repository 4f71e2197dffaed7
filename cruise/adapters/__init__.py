"""Implementations of the ports: the API server, Prometheus, kubelets, Postgres."""

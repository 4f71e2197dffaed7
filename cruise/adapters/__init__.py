"""The real world behind the ports: Prometheus and Postgres."""

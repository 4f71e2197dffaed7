"""Single requests to the API server: rights, versions, quotas, the Service of Prometheus."""

"""Single questions to the API server: rights, versions, quotas, where Prometheus is."""

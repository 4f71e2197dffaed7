"""A cluster in memory: API server, scheduler, controllers, kubelets."""

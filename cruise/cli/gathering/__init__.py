"""What commands read before they decide: the live cluster, Prometheus, the store."""

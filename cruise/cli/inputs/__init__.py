"""What commands read before they decide: files, the live cluster, Prometheus, the store."""

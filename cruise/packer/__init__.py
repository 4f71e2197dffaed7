"""Which pods should run where, with a proof: whole numbers that know nothing of Kubernetes or of cruise."""

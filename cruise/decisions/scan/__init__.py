"""What a first look at a cluster finds: risk, waste, pending pods."""

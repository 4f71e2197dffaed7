"""The findings of a first scan of a cluster: risks, reclaimable requests, pending pods."""

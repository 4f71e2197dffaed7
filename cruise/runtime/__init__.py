"""The passes over the three ports: read the cluster, decide, write."""

"""The scheduling rules between pods: by class, as counts per domain, and as tables for the kernels."""

"""The scheduler's rules between pods, each once: by class, as counts per domain, and as tables for the kernels."""

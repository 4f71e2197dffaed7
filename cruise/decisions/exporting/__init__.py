"""What workloads' own templates should state, so that the sizes live in Git."""

"""The benchmarks: one module each, run apart, and the clusters and servers that they measure."""

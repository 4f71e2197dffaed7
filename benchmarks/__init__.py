"""The benchmarks, one module each, and the clusters and servers that they measure."""

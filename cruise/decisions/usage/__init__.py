"""Computes statistics from usage samples: bases, peaks, and the workload of each sample."""

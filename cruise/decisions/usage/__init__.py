"""From usage samples to statistics: bases, peaks, and the workload that each sample belongs to."""

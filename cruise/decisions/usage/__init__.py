"""From samples of usage to statistics: bases, peaks, and to which workload each sample belongs."""

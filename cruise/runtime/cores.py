"""The number of cores that this process may use."""

import math
import os
from pathlib import Path

# The CPU limit of a container under cgroup v2: microseconds of CPU time a period, and the period.
CONTAINER_LIMIT = Path("/sys/fs/cgroup/cpu.max")


def count_usable_cores(limit: Path = CONTAINER_LIMIT) -> int:
    """Return the cores that this process may be scheduled on, at most its container's CPU limit."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = limit.read_text().split()
    except (OSError, ValueError):
        # No container, or cgroup v1.
        return cores
    return cores if quota == "max" else max(min(cores, math.ceil(int(quota) / int(period))), 1)

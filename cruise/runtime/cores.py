"""How many cores this process may use."""

import math
import os
from pathlib import Path

# Where a container sees its own limit: the microseconds of a period that it may use of all cores, and the period.
CONTAINER_LIMIT = Path("/sys/fs/cgroup/cpu.max")


def count_usable_cores(limit: Path = CONTAINER_LIMIT) -> int:
    """As many as this process may be scheduled on, and no more than its container's limit comes to."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = limit.read_text().split()
    except (OSError, ValueError):
        # No container, or one of another kind.
        return cores
    return cores if quota == "max" else max(min(cores, math.ceil(int(quota) / int(period))), 1)

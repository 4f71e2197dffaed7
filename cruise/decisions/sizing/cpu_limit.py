"""CPU limits of running pods: kept, raised above the peak, or raised to the node's capacity.

A CPU limit cannot be removed in place. It does not kill, but throttles, and use that is throttled ends at the limit: a
peak close to it does not show what the container would use.
"""

import numpy as np

from cruise.decisions.sizing.pod_columns import ResizablePodColumns
from cruise.domain.arrays import Int64Array

# A limit below this multiple of the peak is raised, to that one: then a slow rise needs few writes.
LEAST_LIMIT_FACTOR = 1.1
RAISED_LIMIT_FACTOR = 1.5


def compute_min_cpu_limits(candidates: ResizablePodColumns, current: Int64Array, peak: Int64Array) -> Int64Array:
    """Return the least that each container's CPU limit may be, 0 if it has and gets none.

    A limit that may be decreased for a LimitRange is not decreased below the peak.
    """
    stays = candidates.keeps_cpu_limit | candidates.raises_cpu_limit | ~candidates.may_shrink
    minimum = np.where(stays, current, np.minimum(current, peak))
    return np.where(current > 0, minimum, np.where(candidates.adds_cpu_limit, peak, 0))


def raise_cpu_limits(current: Int64Array, peak: Int64Array, requests: Int64Array, highest: Int64Array) -> Int64Array:
    """Return limits that are raised where the peak or the request needs it, to at most `highest`; never lowered."""
    least = np.maximum(np.ceil(peak * LEAST_LIMIT_FACTOR).astype(np.int64), requests)
    raised = np.maximum(np.ceil(peak * RAISED_LIMIT_FACTOR).astype(np.int64), requests)
    return np.where(least > current, np.maximum(np.minimum(raised, highest), current), current)

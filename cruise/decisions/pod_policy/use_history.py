"""The use of containers in the last 7 days, by which requests under an HPA may shrink (ADR 0047)."""

from dataclasses import dataclass

import numpy as np

from cruise.domain.arrays import UNBOUNDED, Int64Array, cap_to_bounds
from cruise.domain.resources import ResourceName
from cruise.domain.usage import StatisticColumns

HISTORY_SECONDS = 7 * 86400 - 3600
"""The history that counts as 7 days: the hour in which it began may have begun before the first sample."""


@dataclass(frozen=True, slots=True)
class UsageHistory:
    """The largest use of each container in the last 7 days, UNBOUNDED if unknown, and its base."""

    largest: Int64Array
    base: Int64Array


def get_usage_history(statistics: StatisticColumns, rows: Int64Array, resource: ResourceName) -> UsageHistory:
    """Return the use at `rows`; it is unknown without a history of 7 days."""
    if resource is ResourceName.CPU:
        largest, base = statistics.cpu_7d_max_millicores[rows], statistics.cpu_base_millicores[rows]
        peak = statistics.cpu_peak_millicores[rows]
    else:
        largest = np.maximum(statistics.memory_7d_max_bytes[rows], statistics.oom_memory_bytes[rows])
        base, peak = statistics.memory_base_bytes[rows], statistics.memory_peak_bytes[rows]
    since = statistics.history_since[rows]
    is_known = (since > 0) & (statistics.updated_at[rows] - since >= HISTORY_SECONDS) & (largest > 0)
    return UsageHistory(cap_to_bounds(np.where(is_known, np.maximum(largest, peak), UNBOUNDED)), cap_to_bounds(base))

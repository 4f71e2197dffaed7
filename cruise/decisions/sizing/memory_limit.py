"""The memory limit of a container: a multiple of the largest use seen, within what is safe and what may change.

A limit is not reserved, so a lower one frees nothing, and what comes once a month is in no shorter history: it falls
only on a long history.
"""

import math
from dataclasses import dataclass
from typing import overload

import numpy as np

from cruise.decisions.guidance.container_bounds import ContainerBounds
from cruise.domain.arrays import BoolArray, Int64Array, capped, round_up_whole
from cruise.domain.cluster import Node
from cruise.domain.policy import Policy
from cruise.domain.resources import MEBIBYTE, whole_mebibytes
from cruise.domain.usage import OomRecord, Statistic, StatisticColumns

# Kubernetes 1.34 is the first version whose kubelet lowers, and adds, memory limits in place.
FIRST_KUBELET_LOWERING_MEMORY_LIMITS = (1, 34)


@dataclass(frozen=True, slots=True)
class LimitDemand:
    """What containers need of their memory limits, one entry each, in bytes.

    `wanted` is the multiple of the largest use seen, `safe` the working set now with a margin; `may_fall` tells where
    the history is long enough for a limit to be lowered.
    """

    wanted: Int64Array
    safe: Int64Array
    may_fall: BoolArray


def limit_demand(statistics: StatisticColumns, rows: Int64Array, policy: Policy) -> LimitDemand:
    """Put together what the statistics at `rows` need of memory limits."""
    largest = np.maximum(capped(statistics.memory_7d_max_bytes[rows]), capped(statistics.oom_memory_bytes[rows]))
    return LimitDemand(
        wanted=np.ceil(largest * policy.memory_limit_factor).astype(np.int64),
        safe=np.ceil(capped(statistics.memory_last_bytes[rows]) * policy.working_set_margin).astype(np.int64),
        may_fall=_may_fall(statistics.history_since[rows], statistics.updated_at[rows], policy),
    )


@overload
def _may_fall(history_since: int, updated_at: int, policy: Policy) -> bool: ...
@overload
def _may_fall(history_since: Int64Array, updated_at: Int64Array, policy: Policy) -> BoolArray: ...
def _may_fall(history_since: int | Int64Array, updated_at: int | Int64Array, policy: Policy) -> bool | BoolArray:
    """Tell whether a history is long enough for a limit to be lowered; one of unknown length (0) is."""
    long_enough = updated_at - history_since >= int(policy.memory_limit_history.total_seconds())
    falls: bool | BoolArray = (history_since == 0) | long_enough
    return falls


def memory_limits(
    demand: LimitDemand, current: Int64Array, request: Int64Array, most: Int64Array, lowers: BoolArray
) -> Int64Array:
    """Return the memory limit of each container of a running pod, 0 for none.

    `most` is what the LimitRanges leave, `lowers` tells where the kubelet lowers and adds limits in place.
    """
    stated = current > 0
    safe = np.maximum(demand.safe, request)
    # Where a LimitRange leaves no safe limit the value stays safe, and the pod is held for breaking the range.
    wanted = np.minimum(round_up_whole(np.maximum(demand.wanted, safe), MEBIBYTE), np.maximum(most, safe))
    # The API server would make a limit without a request the request, and that may not grow here.
    wanted = np.where((request > 0) | stated, wanted, 0)
    least = np.where(stated & ~demand.may_fall, np.minimum(current, most), 0)
    # An old kubelet refuses to add a limit as it refuses to lower one.
    kept = np.where(stated, np.maximum(wanted, current), 0)
    return np.where(lowers, np.maximum(wanted, least), kept)


def limit_at_admission(
    statistic: Statistic, request: int, stated: int | None, bounds: ContainerBounds, policy: Policy
) -> int:
    """Return the memory limit that a container is created with beside its `request`."""
    wanted = _wanted(max(statistic.memory_7d_max_bytes, statistic.oom_memory_bytes), policy)
    if stated is not None and not _may_fall(statistic.history_since, statistic.updated_at, policy):
        wanted = max(wanted, stated)
    return _bounded(wanted, request, bounds)


def limit_after_kill(
    record: OomRecord,
    statistic: Statistic | None,
    request: int,
    stated: int | None,
    node: Node | None,
    bounds: ContainerBounds,
    policy: Policy,
) -> int | None:
    """Return the memory limit of a killed container beside its `request`, never lower; None where it has none."""
    seen, working_set = (0, 0) if statistic is None else (statistic.memory_7d_max_bytes, statistic.memory_last_bytes)
    largest = max(record.oom_memory_bytes, seen)
    if stated is None and (not largest or (node is not None and not lowers_memory_limits(node))):
        return None
    safe = whole_mebibytes(math.ceil(working_set * policy.working_set_margin))
    return max(_bounded(max(_wanted(largest, policy), safe), request, bounds), stated or 0)


def _wanted(largest: int, policy: Policy) -> int:
    return whole_mebibytes(math.ceil(largest * policy.memory_limit_factor))


def _bounded(wanted: int, request: int, bounds: ContainerBounds) -> int:
    """Return a limit within what the LimitRanges leave, and never under the request."""
    return max(min(wanted, bounds.whole[5], int(min(request * bounds.ratios[1], wanted))), request)


def lowers_memory_limits(node: Node) -> bool:
    """Tell whether the node's kubelet lowers, and adds, memory limits in place; an unknown one counts as new."""
    return node.kubelet_version is None or node.kubelet_version >= FIRST_KUBELET_LOWERING_MEMORY_LIMITS

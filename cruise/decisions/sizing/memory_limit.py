"""The memory limit of a container: a multiple of the largest use seen, within what is safe and what may change.

A limit is not reserved, so a lower one frees nothing, and what comes once a month is in no shorter history: it falls
only on a long history. Nor does it follow use upwards for ever: a leak is to meet its limit before it meets the node's
end. What only grows has its limit raised no further than the pod template states, and nothing above its ceiling.
"""

import math
from dataclasses import dataclass
from typing import overload

import numpy as np

from cruise.decisions.pod_policy.container_bounds import ContainerBounds
from cruise.domain.cluster import Node
from cruise.domain.policy import Policy
from cruise.domain.resources import (
    MEBIBYTE,
    UNBOUNDED,
    BoolArray,
    Int64Array,
    cap_to_bounds,
    round_up_integers,
    round_up_to_mebibytes,
)
from cruise.domain.usage import OomRecord, Statistic, StatisticColumns

# Kubernetes 1.34 is the first version whose kubelet lowers, and adds, memory limits in place.
FIRST_KUBELET_LOWERING_MEMORY_LIMITS = (1, 34)
BURST_SHARE = 0.8
"""Under which share of the use now its base shows a burst: what grows by a tenth every five minutes is above."""
AFTER_OOM_KILL_FACTOR = 1.5
"""What a limit that was reached is multiplied with at least, within its ceiling."""


@dataclass(frozen=True, slots=True)
class MemoryLimitDemand:
    """What containers need of their memory limits, one entry each, in bytes.

    `wanted` is the multiple of the largest use seen, `safe` the working set now with a margin, and `known` the largest
    known use: the largest seen, what kills have taught, and `safe`. `may_fall` tells where the history is long enough
    for a limit to be lowered, `killed` where a kill has taught something, `rising` where use is at its highest, and
    above its base, `varying` where it is known to go up and down: it was higher, or is in a burst.
    """

    target: Int64Array
    minimum_safe: Int64Array
    known: Int64Array
    may_fall: BoolArray
    was_oom_killed: BoolArray
    is_rising: BoolArray
    is_varying: BoolArray


@dataclass(frozen=True, slots=True)
class MemoryLimitCeilings:
    """How far memory limits may rise, one entry a container, in bytes: in passing, and at all."""

    without_cause: Int64Array
    absolute: Int64Array

    def for_nodes(self, allocatable: Int64Array) -> "MemoryLimitCeilings":
        """Return the same on nodes that have no more than `allocatable`, one entry a container."""
        return MemoryLimitCeilings(np.minimum(self.without_cause, allocatable), np.minimum(self.absolute, allocatable))


def compute_limit_demand(statistics: StatisticColumns, rows: Int64Array, policy: Policy) -> MemoryLimitDemand:
    """Put together what the statistics at `rows` need of memory limits."""
    lesson, largest = (
        cap_to_bounds(statistics.oom_memory_bytes[rows]),
        cap_to_bounds(statistics.memory_7d_max_bytes[rows]),
    )
    last, base = cap_to_bounds(statistics.memory_last_bytes[rows]), cap_to_bounds(statistics.memory_base_bytes[rows])
    seen, safe = np.maximum(largest, lesson), np.ceil(last * policy.working_set_margin).astype(np.int64)
    return MemoryLimitDemand(
        target=np.ceil(seen * policy.memory_limit_factor).astype(np.int64),
        minimum_safe=safe,
        known=round_up_integers(np.maximum(seen, safe), MEBIBYTE),
        may_fall=_may_fall(statistics.history_since[rows], statistics.updated_at[rows], lesson, policy),
        was_oom_killed=lesson > 0,
        is_rising=(last >= largest) & (last > base),
        is_varying=(last > 0) & ((last < largest) | (base < last * BURST_SHARE)),
    )


def compute_limit_ceilings(template: Int64Array, current: Int64Array, policy: Policy) -> MemoryLimitCeilings:
    """Return how far limits of running containers may rise, their nodes apart.

    `template` is what the pod template states, `UNBOUNDED` where it states none, negative where it is not known: such
    a limit does not rise by itself, since what it is now may be what it was raised to.
    """
    most = np.minimum(template * policy.memory_limit_ceiling, UNBOUNDED).astype(np.int64) // MEBIBYTE * MEBIBYTE
    known = template >= 0
    return MemoryLimitCeilings(np.where(known, np.minimum(template, most), current), np.where(known, most, current))


def compute_limit_ceiling(template: int | None, allocatable: int | None, policy: Policy) -> int:
    """Return what one memory limit may rise to.

    `template` is the limit that the pod template states, None where it states none; `allocatable` the memory of the
    node that the pod is bound to, None where it is not bound.
    """
    if not policy.rules.memory_limit_ceiling:
        return UNBOUNDED
    most = UNBOUNDED if template is None else int(template * policy.memory_limit_ceiling) // MEBIBYTE * MEBIBYTE
    return min(most, UNBOUNDED if allocatable is None else allocatable)


def detect_memory_leaks(demand: MemoryLimitDemand, limits: Int64Array) -> BoolArray:
    """Tell for each container whether its use is at its highest and so near a limit that does not rise with it."""
    return demand.is_rising & (limits > 0) & (demand.minimum_safe > limits)


@overload
def _may_fall(history_since: int, updated_at: int, lesson: int, policy: Policy) -> bool: ...
@overload
def _may_fall(history_since: Int64Array, updated_at: Int64Array, lesson: Int64Array, policy: Policy) -> BoolArray: ...
def _may_fall(
    history_since: int | Int64Array, updated_at: int | Int64Array, lesson: int | Int64Array, policy: Policy
) -> bool | BoolArray:
    """Tell whether a history is long enough for a limit to be lowered; one of unknown length (0) counts as none.

    While a kill is remembered it is not: what was used then may be in no sample.
    """
    known = history_since > 0
    falls: bool | BoolArray = (updated_at - history_since) * known >= int(policy.memory_limit_history.total_seconds())
    if not policy.rules.memory_limit_safeguards:
        falls = falls | (history_since == 0)
    return falls & (lesson == 0) if policy.rules.memory_limit_ceiling else falls


@dataclass(frozen=True, slots=True)
class MemoryLimitTerms:
    """What limits of running pods keep to, one entry a container.

    None is lowered below `least`, `adds` tells where a container without a limit gets one, and `keeps` where a limit
    stays unless the request passes it.
    """

    minimum: Int64Array
    adds_missing: BoolArray
    keeps_existing: BoolArray


def compute_memory_limits(
    demand: MemoryLimitDemand,
    current: Int64Array,
    request: Int64Array,
    most: Int64Array,
    lowers: BoolArray,
    ceiling: MemoryLimitCeilings | None = None,
    terms: MemoryLimitTerms | None = None,
) -> Int64Array:
    """Return the memory limit of each container of a running pod, 0 for none.

    `most` is what the LimitRanges leave, `lowers` tells where the kubelet lowers and adds limits in place. Without a
    `ceiling` limits follow use wherever it goes; without `terms` every container gets a limit, and a LimitRange may
    lower it as far as the working set now.
    """
    stated = current > 0
    safe = np.maximum(demand.minimum_safe, request)
    wanted = round_up_integers(np.maximum(demand.target, safe), MEBIBYTE)
    if ceiling is not None:
        has_to = demand.was_oom_killed | demand.is_varying | (request > current)
        highest = np.maximum(np.where(has_to, ceiling.absolute, ceiling.without_cause), current)
        wanted = np.maximum(np.minimum(wanted, highest), request)
    if terms is not None:
        # Where a LimitRange leaves no safe limit the value stays safe, and the pod is held for breaking the range.
        floor = np.where(stated, np.where(lowers, np.minimum(terms.minimum, current), current), terms.minimum)
        limits = np.maximum(np.minimum(wanted, most), np.maximum(floor, request))
        limits = np.where(terms.keeps_existing, np.maximum(current, request), limits)
        # The API server would make a limit without a request the request, and that may not grow here.
        adds = terms.adds_missing & lowers & (request > 0)
        if ceiling is not None:
            # Nor is one added that would be above the node's memory.
            adds &= terms.minimum <= ceiling.absolute
        return np.where(stated, limits, np.where(adds, limits, 0))
    wanted = np.minimum(wanted, np.maximum(most, safe))
    wanted = np.where((request > 0) | stated, wanted, 0)
    least = np.where(stated & ~demand.may_fall, np.minimum(current, most), 0)
    # An old kubelet refuses to add a limit as it refuses to lower one.
    kept = np.where(stated, np.maximum(wanted, current), 0)
    return np.where(lowers, np.maximum(wanted, least), kept)


def compute_min_admission_limit(
    statistic: Statistic, stated: int | None, bounds: ContainerBounds, policy: Policy, ceiling: int, adds: bool
) -> int:
    """Return the least memory limit that a container is created with, 0 where it states and gets none."""
    known = get_largest_known_usage(statistic, policy)
    if stated is None:
        return known if adds and known <= ceiling else 0
    if bounds.keeps_memory_limit:
        return stated
    known = min(known, max(ceiling, stated))
    falls = _may_fall(statistic.history_since, statistic.updated_at, statistic.oom_memory_bytes, policy)
    return known if falls else max(known, stated)


def get_largest_known_usage(statistic: Statistic, policy: Policy) -> int:
    """Return the largest known use: of seven days, what kills have taught, and the working set now with a margin."""
    safe = math.ceil(statistic.memory_last_bytes * policy.working_set_margin)
    return round_up_to_mebibytes(max(statistic.memory_7d_max_bytes, statistic.oom_memory_bytes, safe))


def compute_admission_limit(
    statistic: Statistic,
    request: int,
    stated: int | None,
    bounds: ContainerBounds,
    policy: Policy,
    ceiling: int = UNBOUNDED,
    adds: bool = True,
) -> int | None:
    """Return the memory limit that a container is created with beside its `request`, None for none."""
    wanted = min(_wanted(max(statistic.memory_7d_max_bytes, statistic.oom_memory_bytes), policy), ceiling)
    if stated is not None and not _may_fall(
        statistic.history_since, statistic.updated_at, statistic.oom_memory_bytes, policy
    ):
        wanted = max(wanted, stated)
    if not policy.rules.memory_limit_safeguards:
        return _bounded(wanted, request, bounds)
    if stated is not None and bounds.keeps_memory_limit:
        return max(stated, request)
    least = compute_min_admission_limit(statistic, stated, bounds, policy, ceiling, adds)
    if stated is None and not least:
        return None
    return max(_bounded(wanted, request, bounds), least if stated is None else min(least, stated))


def compute_limit_after_oom_kill(
    record: OomRecord,
    statistic: Statistic | None,
    request: int,
    stated: int | None,
    node: Node | None,
    bounds: ContainerBounds,
    policy: Policy,
    ceiling: int = UNBOUNDED,
) -> int | None:
    """Return the memory limit of a killed container beside its `request`, never lower; None where it has none.

    One that was reached rises, however little use was seen before: what came at once is in no sample.
    """
    seen, working_set = (0, 0) if statistic is None else (statistic.memory_7d_max_bytes, statistic.memory_last_bytes)
    largest = max(record.oom_memory_bytes, seen)
    adds = bounds.adds_memory_limit and largest and (node is None or supports_lowering_memory_limits(node))
    if stated is None and not adds:
        return None
    if stated is not None and bounds.keeps_memory_limit:
        return max(stated, request)
    safe = round_up_to_mebibytes(math.ceil(working_set * policy.working_set_margin))
    reached = (
        round_up_to_mebibytes(math.ceil((record.memory_limit_bytes or 0) * AFTER_OOM_KILL_FACTOR))
        if policy.rules.memory_limit_ceiling
        else 0
    )
    return max(_bounded(min(max(_wanted(largest, policy), safe, reached), ceiling), request, bounds), stated or 0)


def compute_min_limit_after_oom_kill(
    record: OomRecord,
    statistic: Statistic | None,
    stated: int | None,
    bounds: ContainerBounds,
    policy: Policy,
    ceiling: int,
) -> int:
    """Return the memory limit that a killed container needs at least, as far as it may rise; 0 where it stays."""
    if stated is None or bounds.keeps_memory_limit:
        return 0
    known = 0 if statistic is None else get_largest_known_usage(statistic, policy)
    reached = round_up_to_mebibytes(math.ceil((record.memory_limit_bytes or 0) * AFTER_OOM_KILL_FACTOR))
    return max(min(max(known, record.oom_memory_bytes, reached), ceiling), stated)


def _wanted(largest: int, policy: Policy) -> int:
    return round_up_to_mebibytes(math.ceil(largest * policy.memory_limit_factor))


def _bounded(wanted: int, request: int, bounds: ContainerBounds) -> int:
    """Return a limit within what the LimitRanges leave, and never under the request."""
    return max(min(wanted, bounds.whole_unit_bounds[5], int(min(request * bounds.ratios[1], wanted))), request)


def supports_lowering_memory_limits(node: Node) -> bool:
    """Tell whether the node's kubelet lowers, and adds, memory limits in place; an unknown one counts as new."""
    return node.kubelet_version is None or node.kubelet_version >= FIRST_KUBELET_LOWERING_MEMORY_LIMITS

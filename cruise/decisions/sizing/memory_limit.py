"""The memory limit of a container: a multiple of the largest use seen, within what is safe and what may change.

A limit is not reserved, so a lower one frees nothing, and what comes once a month is in no shorter history: it falls
only on a long history. Nor does it follow use upwards for ever: a leak is to meet its limit before it meets the node's
end. What only grows has its limit raised no further than the pod template states, and nothing above its ceiling.
"""

import math
from dataclasses import dataclass
from typing import overload

import numpy as np

from cruise.decisions.guidance.container_bounds import ContainerBounds
from cruise.domain.arrays import UNBOUNDED, BoolArray, Int64Array, capped, round_up_whole
from cruise.domain.cluster import Node
from cruise.domain.policy import Policy
from cruise.domain.resources import MEBIBYTE, whole_mebibytes
from cruise.domain.usage import OomRecord, Statistic, StatisticColumns

# Kubernetes 1.34 is the first version whose kubelet lowers, and adds, memory limits in place.
FIRST_KUBELET_LOWERING_MEMORY_LIMITS = (1, 34)
BURST_BELOW = 0.8
"""Under which share of the use now its base shows a burst: what grows by a tenth every five minutes is above."""
AFTER_KILL = 1.5
"""What a limit that was reached is multiplied with at least, within its ceiling."""


@dataclass(frozen=True, slots=True)
class LimitDemand:
    """What containers need of their memory limits, one entry each, in bytes.

    `wanted` is the multiple of the largest use seen, `safe` the working set now with a margin, and `known` the largest
    known use: the largest seen, what kills have taught, and `safe`. `may_fall` tells where the history is long enough
    for a limit to be lowered, `killed` where a kill has taught something, `rising` where use is at its highest, and
    above its base, `varying` where it is known to go up and down: it was higher, or is in a burst.
    """

    wanted: Int64Array
    safe: Int64Array
    known: Int64Array
    may_fall: BoolArray
    killed: BoolArray
    rising: BoolArray
    varying: BoolArray


@dataclass(frozen=True, slots=True)
class Ceilings:
    """How far memory limits may rise, one entry a container, in bytes: in passing, and at all."""

    in_passing: Int64Array
    at_all: Int64Array

    def on(self, allocatable: Int64Array) -> "Ceilings":
        """Return the same on nodes that have no more than `allocatable`, one entry a container."""
        return Ceilings(np.minimum(self.in_passing, allocatable), np.minimum(self.at_all, allocatable))


def limit_demand(statistics: StatisticColumns, rows: Int64Array, policy: Policy) -> LimitDemand:
    """Put together what the statistics at `rows` need of memory limits."""
    lesson, largest = capped(statistics.oom_memory_bytes[rows]), capped(statistics.memory_7d_max_bytes[rows])
    last, base = capped(statistics.memory_last_bytes[rows]), capped(statistics.memory_base_bytes[rows])
    seen, safe = np.maximum(largest, lesson), np.ceil(last * policy.working_set_margin).astype(np.int64)
    return LimitDemand(
        wanted=np.ceil(seen * policy.memory_limit_factor).astype(np.int64),
        safe=safe,
        known=round_up_whole(np.maximum(seen, safe), MEBIBYTE),
        may_fall=_may_fall(statistics.history_since[rows], statistics.updated_at[rows], lesson, policy),
        killed=lesson > 0,
        rising=(last >= largest) & (last > base),
        varying=(last > 0) & ((last < largest) | (base < last * BURST_BELOW)),
    )


def ceilings(template: Int64Array, current: Int64Array, policy: Policy) -> Ceilings:
    """Return how far limits of running containers may rise, their nodes apart.

    `template` is what the pod template states, `UNBOUNDED` where it states none, negative where it is not known: such
    a limit does not rise by itself, since what it is now may be what it was raised to.
    """
    most = np.minimum(template * policy.memory_limit_ceiling, UNBOUNDED).astype(np.int64) // MEBIBYTE * MEBIBYTE
    known = template >= 0
    return Ceilings(np.where(known, np.minimum(template, most), current), np.where(known, most, current))


def ceiling_of(template: int | None, allocatable: int | None, policy: Policy) -> int:
    """Return what one memory limit may rise to.

    `template` is the limit that the pod template states, None where it states none; `allocatable` the memory of the
    node that the pod is bound to, None where it is not bound.
    """
    if not policy.rules.ceiling:
        return UNBOUNDED
    most = UNBOUNDED if template is None else int(template * policy.memory_limit_ceiling) // MEBIBYTE * MEBIBYTE
    return min(most, UNBOUNDED if allocatable is None else allocatable)


def grows_unchecked(demand: LimitDemand, limits: Int64Array) -> BoolArray:
    """Tell for each container whether its use is at its highest and so near a limit that does not rise with it."""
    return demand.rising & (limits > 0) & (demand.safe > limits)


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
    if not policy.rules.careful_limits:
        falls = falls | (history_since == 0)
    return falls & (lesson == 0) if policy.rules.ceiling else falls


@dataclass(frozen=True, slots=True)
class LimitTerms:
    """What limits of running pods keep to, one entry a container.

    None is lowered below `least`, `adds` tells where a container without a limit gets one, and `keeps` where a limit
    stays unless the request passes it.
    """

    least: Int64Array
    adds: BoolArray
    keeps: BoolArray


def memory_limits(
    demand: LimitDemand,
    current: Int64Array,
    request: Int64Array,
    most: Int64Array,
    lowers: BoolArray,
    ceiling: Ceilings | None = None,
    terms: LimitTerms | None = None,
) -> Int64Array:
    """Return the memory limit of each container of a running pod, 0 for none.

    `most` is what the LimitRanges leave, `lowers` tells where the kubelet lowers and adds limits in place. Without a
    `ceiling` limits follow use wherever it goes; without `terms` every container gets a limit, and a LimitRange may
    lower it as far as the working set now.
    """
    stated = current > 0
    safe = np.maximum(demand.safe, request)
    wanted = round_up_whole(np.maximum(demand.wanted, safe), MEBIBYTE)
    if ceiling is not None:
        has_to = demand.killed | demand.varying | (request > current)
        highest = np.maximum(np.where(has_to, ceiling.at_all, ceiling.in_passing), current)
        wanted = np.maximum(np.minimum(wanted, highest), request)
    if terms is not None:
        # Where a LimitRange leaves no safe limit the value stays safe, and the pod is held for breaking the range.
        floor = np.where(stated, np.where(lowers, np.minimum(terms.least, current), current), terms.least)
        limits = np.maximum(np.minimum(wanted, most), np.maximum(floor, request))
        limits = np.where(terms.keeps, np.maximum(current, request), limits)
        # The API server would make a limit without a request the request, and that may not grow here.
        adds = terms.adds & lowers & (request > 0)
        if ceiling is not None:
            # Nor is one added that would be above the node's memory.
            adds &= terms.least <= ceiling.at_all
        return np.where(stated, limits, np.where(adds, limits, 0))
    wanted = np.minimum(wanted, np.maximum(most, safe))
    wanted = np.where((request > 0) | stated, wanted, 0)
    least = np.where(stated & ~demand.may_fall, np.minimum(current, most), 0)
    # An old kubelet refuses to add a limit as it refuses to lower one.
    kept = np.where(stated, np.maximum(wanted, current), 0)
    return np.where(lowers, np.maximum(wanted, least), kept)


def least_limit_at_admission(
    statistic: Statistic, stated: int | None, bounds: ContainerBounds, policy: Policy, ceiling: int, adds: bool
) -> int:
    """Return the least memory limit that a container is created with, 0 where it states and gets none."""
    known = known_use(statistic, policy)
    if stated is None:
        return known if adds and known <= ceiling else 0
    if bounds.keeps_memory_limit:
        return stated
    known = min(known, max(ceiling, stated))
    falls = _may_fall(statistic.history_since, statistic.updated_at, statistic.oom_memory_bytes, policy)
    return known if falls else max(known, stated)


def known_use(statistic: Statistic, policy: Policy) -> int:
    """Return the largest known use: of seven days, what kills have taught, and the working set now with a margin."""
    safe = math.ceil(statistic.memory_last_bytes * policy.working_set_margin)
    return whole_mebibytes(max(statistic.memory_7d_max_bytes, statistic.oom_memory_bytes, safe))


def limit_at_admission(
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
    if not policy.rules.careful_limits:
        return _bounded(wanted, request, bounds)
    if stated is not None and bounds.keeps_memory_limit:
        return max(stated, request)
    least = least_limit_at_admission(statistic, stated, bounds, policy, ceiling, adds)
    if stated is None and not least:
        return None
    return max(_bounded(wanted, request, bounds), least if stated is None else min(least, stated))


def limit_after_kill(
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
    adds = bounds.adds_memory_limit and largest and (node is None or lowers_memory_limits(node))
    if stated is None and not adds:
        return None
    if stated is not None and bounds.keeps_memory_limit:
        return max(stated, request)
    safe = whole_mebibytes(math.ceil(working_set * policy.working_set_margin))
    reached = whole_mebibytes(math.ceil((record.memory_limit_bytes or 0) * AFTER_KILL)) if policy.rules.ceiling else 0
    return max(_bounded(min(max(_wanted(largest, policy), safe, reached), ceiling), request, bounds), stated or 0)


def least_after_kill(
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
    known = 0 if statistic is None else known_use(statistic, policy)
    reached = whole_mebibytes(math.ceil((record.memory_limit_bytes or 0) * AFTER_KILL))
    return max(min(max(known, record.oom_memory_bytes, reached), ceiling), stated)


def _wanted(largest: int, policy: Policy) -> int:
    return whole_mebibytes(math.ceil(largest * policy.memory_limit_factor))


def _bounded(wanted: int, request: int, bounds: ContainerBounds) -> int:
    """Return a limit within what the LimitRanges leave, and never under the request."""
    return max(min(wanted, bounds.whole[5], int(min(request * bounds.ratios[1], wanted))), request)


def lowers_memory_limits(node: Node) -> bool:
    """Tell whether the node's kubelet lowers, and adds, memory limits in place; an unknown one counts as new."""
    return node.kubelet_version is None or node.kubelet_version >= FIRST_KUBELET_LOWERING_MEMORY_LIMITS

"""Memory limits: a multiple of the largest use seen, within what is safe and what may change (ADR 0010).

A limit is not reserved, so lowering one frees nothing, and a monthly peak is in no shorter history: a limit falls only
on a long history. It does not follow use upwards forever either: a leak must reach its limit before the node runs out
of memory. If use only grows, the limit rises at most to what the pod template states; no limit exceeds its ceiling.
"""

import math
from dataclasses import dataclass
from typing import overload

import numpy as np

from cruise.decisions.pod_policy.container_bounds import ContainerBounds
from cruise.domain.arrays import UNBOUNDED, BoolArray, Int64Array, cap_against_overflow, round_up_integers
from cruise.domain.cluster import Node
from cruise.domain.policy import Policy
from cruise.domain.resources import MEBIBYTE, round_up_to_mebibytes
from cruise.domain.usage import OomRecord, Statistic, StatisticColumns

# Kubernetes 1.34 is the first version whose kubelet lowers, and adds, memory limits in place.
FIRST_KUBELET_LOWERING_MEMORY_LIMITS = (1, 34)
BURST_SHARE = 0.8
"""A base below this share of the present use shows a burst; use that grows by a tenth every five minutes is above."""
AFTER_OOM_KILL_FACTOR = 1.5
"""The least factor, within the ceiling, for a limit that was reached."""


@dataclass(frozen=True, slots=True)
class MemoryLimitDemand:
    """What containers need of their memory limits in bytes, one entry each.

    `target` is the multiple of the largest use seen, `minimum_safe` the present working set with a margin, `known` the
    largest of the use seen, the OOM memory and `minimum_safe`. `may_fall`: whether the history is long enough to
    lower the limit, `is_rising` whether use is at its highest and above its base, `is_varying` whether it is known to
    go up and down: it was higher before, or is in a burst.
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
    """How far memory limits may rise, in bytes, one entry per container: without a specific cause, and at most."""

    without_cause: Int64Array
    absolute: Int64Array

    def cap_to_nodes(self, allocatable: Int64Array) -> "MemoryLimitCeilings":
        """Return the same ceilings, at most each container's `allocatable` memory of its node."""
        return MemoryLimitCeilings(np.minimum(self.without_cause, allocatable), np.minimum(self.absolute, allocatable))


def compute_limit_demand(statistics: StatisticColumns, rows: Int64Array, policy: Policy) -> MemoryLimitDemand:
    """Compute from the statistics at `rows` what memory limits need."""
    oom_memory, largest = (
        cap_against_overflow(statistics.oom_memory_bytes[rows]),
        cap_against_overflow(statistics.memory_7d_max_bytes[rows]),
    )
    last, base = (
        cap_against_overflow(statistics.memory_last_bytes[rows]),
        cap_against_overflow(statistics.memory_base_bytes[rows]),
    )
    seen, safe = np.maximum(largest, oom_memory), np.ceil(last * policy.working_set_margin).astype(np.int64)
    return MemoryLimitDemand(
        target=np.ceil(seen * policy.memory_limit_factor).astype(np.int64),
        minimum_safe=safe,
        known=round_up_integers(np.maximum(seen, safe), MEBIBYTE),
        may_fall=_may_fall(statistics.history_since[rows], statistics.updated_at[rows], oom_memory, policy),
        was_oom_killed=oom_memory > 0,
        is_rising=(last >= largest) & (last > base),
        is_varying=(last > 0) & ((last < largest) | (base < last * BURST_SHARE)),
    )


def compute_limit_ceilings_from_templates(
    template: Int64Array, current: Int64Array, policy: Policy
) -> MemoryLimitCeilings:
    """Return how far limits of running containers may rise, regardless of their nodes.

    `template` is the limit in the pod template, `UNBOUNDED` if it states none, negative if it is unknown: such a limit
    does not rise by itself, since an earlier pass may have raised it already.
    """
    absolute = np.minimum(template * policy.memory_limit_ceiling, UNBOUNDED).astype(np.int64) // MEBIBYTE * MEBIBYTE
    known = template >= 0
    return MemoryLimitCeilings(
        np.where(known, np.minimum(template, absolute), current), np.where(known, absolute, current)
    )


def compute_limit_ceiling(template: int | None, allocatable: int | None, policy: Policy) -> int:
    """Return what one memory limit may rise to.

    `template` is the limit in the pod template, None if it states none; `allocatable` the memory of the pod's node,
    None for a pod without a node.
    """
    if not policy.rules.memory_limit_ceiling:
        return UNBOUNDED
    ceiling = UNBOUNDED if template is None else int(template * policy.memory_limit_ceiling) // MEBIBYTE * MEBIBYTE
    return min(ceiling, UNBOUNDED if allocatable is None else allocatable)


def detect_memory_leaks(demand: MemoryLimitDemand, limits: Int64Array) -> BoolArray:
    """Return for each container whether its use is at its highest and close to a limit that does not rise with it."""
    return demand.is_rising & (limits > 0) & (demand.minimum_safe > limits)


def has_long_history(history_since: Int64Array, updated_at: Int64Array, policy: Policy) -> BoolArray:
    """Return whether each history is long enough to decrease a limit; one of unknown length (0) is not."""
    is_known = history_since > 0
    return np.asarray((updated_at - history_since) * is_known >= int(policy.memory_limit_history.total_seconds()))


@overload
def _may_fall(history_since: int, updated_at: int, oom_memory: int, policy: Policy) -> bool: ...
@overload
def _may_fall(
    history_since: Int64Array, updated_at: Int64Array, oom_memory: Int64Array, policy: Policy
) -> BoolArray: ...
def _may_fall(
    history_since: int | Int64Array, updated_at: int | Int64Array, oom_memory: int | Int64Array, policy: Policy
) -> bool | BoolArray:
    """Return whether a history is long enough to lower a limit; one of unknown length (0) is not.

    Nor is it while an OOM kill is remembered: the use at the kill may be in no sample.
    """
    known = history_since > 0
    falls: bool | BoolArray = (updated_at - history_since) * known >= int(policy.memory_limit_history.total_seconds())
    if not policy.rules.memory_limit_safeguards:
        falls = falls | (history_since == 0)
    return falls & (oom_memory == 0) if policy.rules.memory_limit_ceiling else falls


@dataclass(frozen=True, slots=True)
class MemoryLimitConstraints:
    """What limits of running pods must keep to, one entry per container.

    No limit is lowered below `minimum`; `adds_missing` indicates whether a container without a limit gets one, and
    `keeps_existing` whether a limit stays unless the request exceeds it.
    """

    minimum: Int64Array
    adds_missing: BoolArray
    keeps_existing: BoolArray


def compute_memory_limits(
    demand: MemoryLimitDemand,
    current: Int64Array,
    request: Int64Array,
    limit_range_maximum: Int64Array,
    supports_lowering: BoolArray,
    ceiling: MemoryLimitCeilings | None = None,
    terms: MemoryLimitConstraints | None = None,
) -> Int64Array:
    """Return the memory limit of each container of a running pod, 0 for none.

    `limit_range_maximum` is the most that LimitRanges allow; `supports_lowering`: whether the kubelet lowers and
    adds limits in place. Without a `ceiling` limits follow use without bound; without `terms` every container gets a
    limit, and a LimitRange may lower it to the present working set.
    """
    has_limit = current > 0
    safe = np.maximum(demand.minimum_safe, request)
    wanted = round_up_integers(np.maximum(demand.target, safe), MEBIBYTE)
    if ceiling is not None:
        has_cause = demand.was_oom_killed | demand.is_varying | (request > current)
        highest = np.maximum(np.where(has_cause, ceiling.absolute, ceiling.without_cause), current)
        wanted = np.maximum(np.minimum(wanted, highest), request)
    if terms is not None:
        # If a LimitRange allows no safe limit, the value stays safe and the pod is skipped for violating the range.
        minimum = np.where(
            has_limit, np.where(supports_lowering, np.minimum(terms.minimum, current), current), terms.minimum
        )
        limits = np.maximum(np.minimum(wanted, limit_range_maximum), np.maximum(minimum, request))
        limits = np.where(terms.keeps_existing, np.maximum(current, request), limits)
        # The API server would set the missing request to the limit, and the request may not grow here.
        adds_limit = terms.adds_missing & supports_lowering & (request > 0)
        if ceiling is not None:
            # A limit above the node's memory is not added.
            adds_limit &= terms.minimum <= ceiling.absolute
        return np.where(has_limit, limits, np.where(adds_limit, limits, 0))
    wanted = np.minimum(wanted, np.maximum(limit_range_maximum, safe))
    wanted = np.where((request > 0) | has_limit, wanted, 0)
    minimum_by_history = np.where(has_limit & ~demand.may_fall, np.minimum(current, limit_range_maximum), 0)
    # An old kubelet rejects adding a limit as well as lowering one.
    raised_only = np.where(has_limit, np.maximum(wanted, current), 0)
    return np.where(supports_lowering, np.maximum(wanted, minimum_by_history), raised_only)


def compute_min_admission_limit(
    statistic: Statistic, stated: int | None, bounds: ContainerBounds, policy: Policy, ceiling: int, adds_limit: bool
) -> int:
    """Return the least memory limit that a container is created with, 0 if it states none and gets none."""
    known = get_largest_known_usage(statistic, policy)
    if stated is None:
        known = max(known, bounds.heap.limit_bytes)
        return known if adds_limit and known <= ceiling else 0
    if bounds.keeps_memory_limit:
        return stated
    known = min(known, max(ceiling, stated))
    falls = _may_fall(statistic.history_since, statistic.updated_at, statistic.oom_memory_bytes, policy)
    return max(known if falls else max(known, stated), min(bounds.heap.limit_bytes, stated))


def get_largest_known_usage(statistic: Statistic, policy: Policy) -> int:
    """Return the largest known use: of seven days, the OOM memory, and the present working set with a margin."""
    safe = math.ceil(statistic.memory_last_bytes * policy.working_set_margin)
    return round_up_to_mebibytes(max(statistic.memory_7d_max_bytes, statistic.oom_memory_bytes, safe))


def compute_admission_limit(
    statistic: Statistic,
    request: int,
    stated: int | None,
    bounds: ContainerBounds,
    policy: Policy,
    ceiling: int = UNBOUNDED,
    adds_limit: bool = True,
) -> int | None:
    """Return the memory limit that a container is created with, given its `request`; None for none."""
    wanted = min(_multiply_usage(max(statistic.memory_7d_max_bytes, statistic.oom_memory_bytes), policy), ceiling)
    if stated is not None and not _may_fall(
        statistic.history_since, statistic.updated_at, statistic.oom_memory_bytes, policy
    ):
        wanted = max(wanted, stated)
    if not policy.rules.memory_limit_safeguards:
        return _apply_bounds(wanted, request, bounds)
    if stated is not None and bounds.keeps_memory_limit:
        return max(stated, request)
    minimum = compute_min_admission_limit(statistic, stated, bounds, policy, ceiling, adds_limit)
    if stated is None and not minimum:
        return None
    return max(_apply_bounds(wanted, request, bounds), minimum if stated is None else min(minimum, stated))


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
    """Return the memory limit of a killed container, given its `request`; never lower than before, None if it has none.

    A limit that was reached rises however little use was seen before: a sudden rise is in no sample.
    """
    seen, working_set = (0, 0) if statistic is None else (statistic.memory_7d_max_bytes, statistic.memory_last_bytes)
    largest = max(record.oom_memory_bytes, seen)
    adds_limit = bounds.adds_memory_limit and largest and (node is None or supports_lowering_memory_limits(node))
    if stated is None and not adds_limit:
        return None
    if stated is not None and bounds.keeps_memory_limit:
        return max(stated, request)
    safe = round_up_to_mebibytes(math.ceil(working_set * policy.working_set_margin))
    reached = (
        round_up_to_mebibytes(math.ceil((record.memory_limit_bytes or 0) * AFTER_OOM_KILL_FACTOR))
        if policy.rules.memory_limit_ceiling
        else 0
    )
    return max(
        _apply_bounds(min(max(_multiply_usage(largest, policy), safe, reached), ceiling), request, bounds), stated or 0
    )


def compute_min_limit_after_oom_kill(
    record: OomRecord,
    statistic: Statistic | None,
    stated: int | None,
    bounds: ContainerBounds,
    policy: Policy,
    ceiling: int,
) -> int:
    """Return the least memory limit that a killed container needs, within its ceiling; 0 if the limit stays."""
    if stated is None or bounds.keeps_memory_limit:
        return 0
    known = 0 if statistic is None else get_largest_known_usage(statistic, policy)
    reached = round_up_to_mebibytes(math.ceil((record.memory_limit_bytes or 0) * AFTER_OOM_KILL_FACTOR))
    return max(min(max(known, record.oom_memory_bytes, reached), ceiling), stated)


def _multiply_usage(largest: int, policy: Policy) -> int:
    return round_up_to_mebibytes(math.ceil(largest * policy.memory_limit_factor))


def _apply_bounds(wanted: int, request: int, bounds: ContainerBounds) -> int:
    """Return a limit within what LimitRanges allow, and at least the request."""
    ratio = bounds.ratios[1]
    # A request of 0 that may not grow has no product with an infinite ratio.
    highest = wanted if math.isinf(ratio) else int(min(request * ratio, wanted))
    return max(min(wanted, bounds.whole_unit_bounds[5], highest), request)


def supports_lowering_memory_limits(node: Node) -> bool:
    """Return whether the node's kubelet lowers and adds memory limits in place; an unknown version counts as new."""
    return node.kubelet_version is None or node.kubelet_version >= FIRST_KUBELET_LOWERING_MEMORY_LIMITS

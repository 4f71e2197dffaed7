"""Shows what bounds a request, how limits were computed, and whether a change is large enough to be written."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cruise.decisions.pod_policy.heap_floors import compute_heap_memory, compute_running_heap_floor, get_heap_bound
from cruise.decisions.pod_policy.usable_statistics import get_largest_weekly_usage
from cruise.decisions.sizing.guaranteed import get_guaranteed_usage
from cruise.decisions.sizing.node_sizes import SizingResult, keep_limits
from cruise.domain.annotations import EffectivePolicy
from cruise.domain.arrays import UNBOUNDED
from cruise.domain.autoscalers import LimitRangeItem
from cruise.domain.cluster import Container, QosClass
from cruise.domain.heaps import HeapRuntime
from cruise.domain.policy import Policy, ResizeDirection
from cruise.domain.resources import ResourceName, round_up_to_mebibytes
from cruise.domain.usage import Statistic, StatisticsTable


@dataclass(frozen=True, slots=True)
class BoundStep:
    """One bound of a request and its source; both None without a bound.

    Sources: `floor`, `override`, `hpa`, `limit-range`, `quota`, `memory-limit` (what the limit may rise to),
    `largest-use` (of a Guaranteed pod), `earlier-runs` (the peak of a pod that runs to completion), `heap` (what its
    process may take), `direction`, `cpu-limit` (one that stays), or `submitted` (an override that applies up to the
    submitted request).
    """

    value: int | None
    source: str | None


def build_bound_steps(
    resource: ResourceName,
    bounds: tuple[int, int],
    effective_policy: EffectivePolicy,
    container: str,
    items: Sequence[LimitRangeItem],
    submitted: int | None,
) -> tuple[BoundStep, BoundStep]:
    """Return the bounds and which rule set them; their values are those of the columns.

    `submitted` is the request that the pod was submitted with, None if it does not matter.
    """
    lower, upper = bounds
    own = effective_policy.get_for_container(container)
    override, direction = own.bounds, own.direction
    ranges = [item for item in items if not item.is_for_pod]
    lowest = [item.minimum.get(resource) for item in ranges]
    highest = [item.maximum.get(resource) for item in ranges]
    if lower in lowest:
        low = BoundStep(lower, "limit-range")
    elif lower == override.minimum.get(resource):
        low = BoundStep(lower, "override")
    elif submitted is not None and lower == submitted:
        low = BoundStep(lower, "submitted")
    elif direction is ResizeDirection.GROW:
        low = BoundStep(lower, "direction")
    else:
        low = BoundStep(lower, "floor")
    if upper >= UNBOUNDED:
        high = BoundStep(None, None)
    else:
        is_range = upper in highest or upper in lowest
        is_override = upper == override.maximum.get(resource) or direction is not ResizeDirection.SHRINK
        # Without its own maximum, a CPU request is bounded by a CPU limit that stays.
        is_limit = override.maximum.get(resource) is None and direction is not ResizeDirection.SHRINK
        source = "limit-range" if is_range else "cpu-limit" if is_limit else "override" if is_override else "direction"
        high = BoundStep(upper, source)
    return low, high


@dataclass(frozen=True, slots=True)
class GuaranteedStep:
    """How a request, which is the limit as well, was computed, in millicores or bytes.

    It is increased to `grown` and decreased to `shrunk`, each a margin above the `largest_use`, and stays in between.
    It increases only within its ceiling and the free capacity of the node, and decreases only if the history is long.
    """

    largest_use: int
    growth_margin: float
    grown: int
    shrink_margin: float
    shrunk: int
    has_long_history: bool


def build_guaranteed_steps(
    sized: SizingResult, at: int, statistics: StatisticsTable, policy: Policy
) -> Mapping[ResourceName, GuaranteedStep]:
    """Return the steps of one container by resource, none for a pod of another QoS class."""
    table = sized.columns.table
    if not table.candidates.guaranteed[table.candidates.pod_of_container[at]]:
        return {}
    uses = get_guaranteed_usage(statistics, table.rows[at : at + 1], policy)
    return {
        resource: GuaranteedStep(
            int(use.largest[0]),
            policy.guaranteed_growth_margin,
            int(np.ceil(use.largest[0] * policy.guaranteed_growth_margin)),
            policy.guaranteed_shrink_margin,
            int(np.ceil(use.largest[0] * policy.guaranteed_shrink_margin)),
            bool(use.has_long_history[0]),
        )
        for resource, use in uses.items()
    }


@dataclass(frozen=True, slots=True)
class HeapStep:
    """The bound of a heap and what follows from it, in bytes.

    `source` is the option and its place, or the runtime's default. `memory` is what the process may take, 0 if
    that is unknown. A present request that is larger is not cut below `request_floor`, nor a limit below `limit_floor`:
    None where the limit is unchanged while the process runs.
    """

    runtime: HeapRuntime
    source: str
    is_stated: bool
    memory: int
    request_floor: int
    limit_floor: int | None


def build_heap_step(container: Container, qos: QosClass, policy: Policy) -> HeapStep | None:
    """Return the step of a running container, None without a bound."""
    heap = get_heap_bound(container, policy)
    if heap is None:
        return None
    floor, memory = compute_running_heap_floor(container, qos, policy), compute_heap_memory(heap, container)
    limit = None if floor.limit_bytes >= UNBOUNDED else floor.limit_bytes
    request = min(floor.request_bytes, container.requests.memory_bytes or 0)
    return HeapStep(heap.runtime, heap.source, heap.is_stated, memory, request, limit)


@dataclass(frozen=True, slots=True)
class HpaBoundStep:
    """The bounds of an HPA for one container's request, in millicores or bytes.

    `target_percent` is the lowest target of the metrics that count the container, and `margin` the share below it that
    stays free at the `largest_use` of the last 7 days (None: unknown). With `others_rely_on_it` it does not shrink,
    because another pod needs more than it requests. At the maximum of replicas it may only grow, and with
    `is_restoring` only back to what use needs.
    """

    autoscaler: str
    is_at_minimum: bool
    is_restoring: bool
    target_percent: int
    margin: float
    largest_use: int | None
    others_rely_on_it: bool
    lower: int
    upper: int


def build_hpa_bound_step(
    sized: SizingResult, at: int, resource: ResourceName, statistics: StatisticsTable
) -> HpaBoundStep | None:
    """Return the step of one container, None if no HPA bounds its request."""
    table = sized.columns.table
    pod = table.candidates.pods[int(table.candidates.pod_of_container[at])]
    bounds, found = pod.utilisation_bounds, table.utilisation_bounds.get(resource)
    if bounds is None or found is None or resource not in bounds.metrics:
        return None
    lower, upper = (int(one[at]) for one in found)
    name = pod.sized[at - int(table.candidates.first_container[table.candidates.pod_of_container[at]])].name
    counting = [one for one in bounds.metrics[resource] if one.container in ("", name)]
    if not counting:
        return None
    metric = min(counting, key=lambda one: one.target_percent)
    largest = int(get_largest_weekly_usage(statistics, table.rows[at : at + 1], resource).largest[0])
    return HpaBoundStep(
        autoscaler=bounds.autoscaler,
        is_at_minimum=bounds.is_at_minimum,
        is_restoring=bool(bounds.restoring_only),
        target_percent=metric.target_percent,
        margin=max(0.0, 1 - 100 / (metric.target_percent * metric.peak_factor)),
        largest_use=None if largest >= UNBOUNDED else largest,
        others_rely_on_it=bounds.is_at_minimum and math.isinf(metric.peak_factor),
        lower=lower,
        upper=upper,
    )


@dataclass(frozen=True, slots=True)
class UpdateThresholdStep:
    """Whether a value moves far enough to be written: by the minimum change, and by that share of its present value."""

    before: int
    after: int
    minimum_change: int
    minimum_change_share: float
    exceeds_threshold: bool


@dataclass(frozen=True, slots=True)
class MemoryLimitSteps:
    """From the 7-day maximum to the memory limit, in bytes; 0 for no limit.

    `wanted` is 2 × the larger of 7-day maximum and OOM memory, `minimum_safe` 1.2 × the present working set, `cap` what
    LimitRanges allow and `ceiling` what the limit may rise to now (None: unlimited). `cannot_be_lowered`: the
    kubelet cannot lower limits in place, `unchanged` that a quota counts the limit, `memory_leak_suspected` that use
    only grows towards a limit that does not follow, `adds_missing` that a container without a limit gets one,
    `keeps_existing` that the setting `memory_limits` keeps it, and `has_pod_limit_range` that a LimitRange bounds the
    sum of the pod's limits. The limit is not lowered below `minimum`. A container without a request gets no limit.
    """

    managed: bool
    current: int
    memory_7d_max: int
    oom_memory: int
    wanted: int
    minimum_safe: int
    cap: int | None
    ceiling: int | None
    cannot_be_lowered: bool
    has_short_history: bool
    unchanged: bool
    memory_leak_suspected: bool
    minimum: int
    adds_missing: bool
    keeps_existing: bool
    has_pod_limit_range: bool
    final: int
    update_threshold: UpdateThresholdStep


@dataclass(frozen=True, slots=True)
class CpuLimitSteps:
    """How a CPU limit, which cannot be removed in place, rises to the node's CPU, or is `unchanged` under a quota.

    Settings or the direction may keep it (`keeps_existing`), or let it rise only with the peak (`rises_with_use`).
    """

    managed: bool
    current: int
    node_allocatable: int
    unchanged: bool
    keeps_existing: bool
    rises_with_use: bool
    final: int
    update_threshold: UpdateThresholdStep


def build_memory_limit_steps(sized: SizingResult, at: int, statistic: Statistic) -> MemoryLimitSteps:
    """Return the steps of one container."""
    table = sized.columns.table
    largest_limits = table.candidates.get_max_limit(ResourceName.MEMORY, sized.targets.memory_bytes)
    current, final, cap = (
        int(table.memory_limit[at]),
        int(sized.targets.memory_limit_bytes[at]),
        int(largest_limits[at]),
    )
    return MemoryLimitSteps(
        managed=bool(table.memory.managed[at]),
        current=current,
        memory_7d_max=statistic.memory_7d_max_bytes,
        oom_memory=statistic.oom_memory_bytes,
        wanted=int(table.limit_demand.target[at]),
        minimum_safe=int(table.limit_demand.minimum_safe[at]),
        cap=None if cap >= UNBOUNDED else cap,
        ceiling=_get_ceiling(sized, at),
        cannot_be_lowered=not sized.columns.lowers_memory_limit[at],
        has_short_history=current > 0 and not bool(table.limit_demand.may_fall[at]),
        unchanged=bool(keep_limits(sized.columns, ResourceName.MEMORY)[at]),
        memory_leak_suspected=bool(sized.memory_leak_suspected[at]),
        minimum=0 if table.minimum_limit is None else int(table.minimum_limit[ResourceName.MEMORY][at]),
        adds_missing=bool(table.candidates.adds_limit[ResourceName.MEMORY][at]),
        keeps_existing=bool(table.candidates.keeps_memory_limit[at]),
        has_pod_limit_range=ResourceName.MEMORY
        in table.candidates.pod_ranges.get(int(table.candidates.pod_of_container[at]), {}),
        final=final,
        update_threshold=compare_with_update_threshold(sized, at, ResourceName.MEMORY, current, final),
    )


def _get_ceiling(sized: SizingResult, at: int) -> int | None:
    """Return what keeps a container's memory limit below what it should be, None if nothing does."""
    ceiling, table = sized.columns.memory_limit_ceilings, sized.columns.table
    if ceiling is None:
        return None
    demand, current, request = table.limit_demand, int(table.memory_limit[at]), int(sized.targets.memory_bytes[at])
    wanted = round_up_to_mebibytes(max(int(demand.target[at]), int(demand.minimum_safe[at]), request))
    has_cause = bool(demand.was_oom_killed[at] | demand.is_varying[at]) or request > current
    highest = max(int((ceiling.absolute if has_cause else ceiling.without_cause)[at]), current)
    return highest if highest < wanted else None


def build_cpu_limit_steps(sized: SizingResult, at: int) -> CpuLimitSteps:
    """Return the steps of one container."""
    columns = sized.columns
    current, final = int(columns.table.cpu_limit[at]), int(sized.targets.cpu_limit_millicores[at])
    return CpuLimitSteps(
        managed=bool(columns.table.cpu.managed[at]),
        current=current,
        node_allocatable=columns.nodes[int(columns.node_of_container[at])].allocatable.cpu_millicores,
        unchanged=bool(keep_limits(columns, ResourceName.CPU)[at]),
        keeps_existing=bool(columns.candidates.keeps_cpu_limit[at] or not columns.candidates.may_grow[at]),
        rises_with_use=bool(columns.candidates.raises_cpu_limit[at]),
        final=final,
        update_threshold=compare_with_update_threshold(sized, at, ResourceName.CPU, current, final),
    )


def compare_with_update_threshold(
    sized: SizingResult, at: int, resource: ResourceName, before: int, after: int
) -> UpdateThresholdStep:
    """Return whether a value of one container moves far enough to be written."""
    threshold = sized.columns.candidates.update_threshold
    return UpdateThresholdStep(
        before, after, threshold.minimum.get(resource), threshold.share, threshold.is_exceeded(resource, before, after)
    )

"""Shows how a container's limits were computed, and whether a change is large enough to be written."""

from dataclasses import dataclass

from cruise.decisions.sizing.memory_limit import supports_lowering_memory_limits
from cruise.decisions.sizing.node_sizes import SizingResult, get_node_limit_ceilings, keeps_limit
from cruise.domain.arrays import UNBOUNDED
from cruise.domain.resources import ResourceName, round_up_to_mebibytes
from cruise.domain.usage import Statistic


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
        cannot_be_lowered=not supports_lowering_memory_limits(
            sized.columns.nodes[int(sized.columns.node_of_container[at])]
        ),
        has_short_history=current > 0 and not bool(table.limit_demand.may_fall[at]),
        unchanged=keeps_limit(sized.columns, ResourceName.MEMORY, at),
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
    ceiling, table = get_node_limit_ceilings(sized.columns), sized.columns.table
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
        unchanged=keeps_limit(columns, ResourceName.CPU, at),
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

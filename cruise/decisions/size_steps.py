"""How each number of a container came about: its row of the columns that a node pass decides by."""

from collections.abc import Sequence
from dataclasses import dataclass

from cruise.decisions.pod_policy.eligibility import ResizablePod
from cruise.decisions.sizing.damping import ResizeUrgency
from cruise.decisions.sizing.memory_limit import supports_lowering_memory_limits
from cruise.decisions.sizing.node_sizes import SizingResult, get_node_limit_ceilings, keeps_limit
from cruise.decisions.sizing.recommendation import compute_max_requests
from cruise.decisions.sizing.resizes import SizeDecision
from cruise.domain.actions import ResizeCause
from cruise.domain.annotations import EffectivePolicy
from cruise.domain.cluster import LimitRangeItem
from cruise.domain.resources import UNBOUNDED, ResourceName, round_up_to_mebibytes
from cruise.domain.usage import Statistic, StatisticsTable


@dataclass(frozen=True, slots=True)
class BoundStep:
    """One end of what a request may be, and what set it, None for no bound.

    `floor`, `override`, `limit-range`, `quota`, `memory-limit` (as far as the limit may rise), or `submitted`: an
    override that counts as far as the pod was submitted with.
    """

    value: int | None
    source: str | None


@dataclass(frozen=True, slots=True)
class UpdateThresholdStep:
    """Whether a value moves far enough to be written: by `least` at least, and by `least_share` of what it is now."""

    before: int
    after: int
    minimum_change: int
    minimum_change_share: float
    exceeds_threshold: bool


@dataclass(frozen=True, slots=True)
class ResizeCauseStep:
    """Whether a request is worth a write: its node's pods need `need` together and `have` as much, before any write.

    `band` is the share above `need` in which `have` may stay. `cause` is why this request is to be written, None where
    it stays, and `within_dead_band` that it stays all the same, since nothing of its pod moves far enough. `below`
    tells that its base is above it, `since_long` that this, or else what the node has above its band, has gone on for
    long, and `rested` that the pod's last resize is long past. `init_sum` is what the pod's init containers make
    kube-scheduler count for the pod, now and at its targets alike, 0 where they do not.
    """

    needed_together: int
    requested_together: int
    tolerance: float
    cause: ResizeCause | None
    within_update_threshold: bool
    below: bool
    since_long: bool
    past_cooldown: bool
    init_sum: int


@dataclass(frozen=True, slots=True)
class UserMinimumStep:
    """What annotations of the workload's own ask beyond what it was `submitted` with, and how much is granted of it.

    `yielded` is the part of its base that counts among it, since the pod ranks itself on a node that is crowded.
    `submitted` is None where the pod template is not known.
    """

    requested: int
    granted: int
    submitted: int | None
    released: int


@dataclass(frozen=True, slots=True)
class RequestSteps:
    """From base to request, in millicores or bytes: `base + largest × headroom / total`, rounded, clamped, trimmed.

    `largest` is the headroom that the node's pods share, as far as there is room for what is `needed`, and `total` the
    sum of all headrooms over the pods that stay; with `by_base` no container has any, and `largest × base / total` is
    shared, `total` being the sum of the bases. A container that is `at_peak` gets no more than `peak_with_spare`; the
    others of its node then share `left` by `left_total` in place of `largest` by `total`.
    `clamped` is what rounding, the bounds and, unless it `may_grow`, the ban on growing leave; `trimmed` is
    what was taken back so that the node's sum fits, and `final` the target, with what is granted of the `wish`, None
    where there is none. `written` is what the pass writes, less
    where pods that keep their sizes leave no room to grow, None where it writes nothing; `worth` is why, None where
    every change is written. Where the resource is not managed, `final` is the request as it is.
    """

    managed: bool
    current: int
    base: int
    peak: int
    headroom_factor: float
    headroom: int
    needed: int
    largest: int
    total: int
    by_base: bool
    at_peak: bool
    peak_with_spare: int
    unallocated: int
    unallocated_total: int
    share: float
    rounded: int
    lower: BoundStep
    upper: BoundStep
    clamped: int
    may_grow: bool
    trimmed: int
    user_minimum: UserMinimumStep | None
    final: int
    written: int | None
    resize_cause: ResizeCauseStep | None
    update_threshold: UpdateThresholdStep


@dataclass(frozen=True, slots=True)
class MemoryLimitSteps:
    """From the 7-day maximum to the memory limit, in bytes; 0 where there is no limit.

    `wanted` is 2 × the larger of 7-day maximum and OOM memory, `safe` 1.2 × the working set now, `cap` what the
    LimitRanges leave (None: anything), `ceiling` what the limit may rise to now (None: anything). `kept` tells that the
    kubelet cannot lower limits in place, `young` that the history is too short to lower one, `stays` that a quota
    counts it, `grows` that use only grows, towards a limit that does not follow. `least` is what the limit is not
    lowered below, `adds` tells that a container without a limit gets one, `keeps` that the limit stays by the setting
    `memory_limits`, and `in_sum` that a LimitRange asks something of the sum of the pod's limits. A container that gets
    no request gets no limit either.
    """

    managed: bool
    current: int
    memory_7d_max: int
    oom_memory: int
    wanted: int
    safe: int
    cap: int | None
    ceiling: int | None
    kept: bool
    has_short_history: bool
    unchanged: bool
    grows: bool
    minimum: int
    adds: bool
    keeps_existing: bool
    in_sum: bool
    final: int
    update_threshold: UpdateThresholdStep


@dataclass(frozen=True, slots=True)
class CpuLimitSteps:
    """A CPU limit cannot be removed in place, so it is raised to what the node has; 0 where there is none.

    It `stays` where a quota counts it.
    """

    managed: bool
    current: int
    node_allocatable: int
    unchanged: bool
    final: int
    update_threshold: UpdateThresholdStep


@dataclass(frozen=True, slots=True)
class ContainerSteps:
    """Everything about one container's sizes; `of_workload` tells that the statistic speaks for its whole workload."""

    container: str
    statistic: Statistic
    of_workload: bool
    cpu: RequestSteps
    memory: RequestSteps
    memory_limit: MemoryLimitSteps
    cpu_limit: CpuLimitSteps


def build_size_steps(
    sized: SizingResult, index: int, statistics: StatisticsTable, items: Sequence[LimitRangeItem]
) -> tuple[ContainerSteps, ...]:
    """Return the steps of one pod that stays, container by container; `items` are its namespace's LimitRanges."""
    table = sized.columns.table
    first = int(table.candidates.first_container[index])
    return tuple(
        _container(sized, first + offset, table.candidates.pods[index], container.name, statistics, items)
        for offset, container in enumerate(table.candidates.pods[index].sized)
    )


def _container(
    sized: SizingResult,
    at: int,
    pod: ResizablePod,
    container: str,
    statistics: StatisticsTable,
    items: Sequence[LimitRangeItem],
) -> ContainerSteps:
    statistic = statistics.row(int(sized.columns.table.rows[at]))
    cpu, memory = (
        _request(sized, at, resource, pod, container, items, base)
        for resource, base in zip(
            ResourceName, (statistic.cpu_base_millicores, statistic.memory_base_bytes), strict=True
        )
    )
    return ContainerSteps(
        container=container,
        statistic=statistic,
        of_workload=not statistic.key.pod,
        cpu=cpu,
        memory=memory,
        memory_limit=_memory_limit(sized, at, statistic),
        cpu_limit=_cpu_limit(sized, at),
    )


def _request(
    sized: SizingResult,
    at: int,
    resource: ResourceName,
    pod: ResizablePod,
    container: str,
    items: Sequence[LimitRangeItem],
    base: int,
) -> RequestSteps:
    columns = sized.columns
    demand, shares = columns.table.get_resource(resource), sized.headroom_shares[resource]
    node = int(columns.node_of_container[at])
    current, clamped, final = (
        int(demand.current[at]),
        int(shares.clamped[at]),
        int(sized.targets.get_requests(resource)[at]),
    )
    wish = _wish(sized, at, resource, pod, base)
    lower, upper = _ends(
        resource, int(demand.lower[at]), int(demand.upper[at]), pod.effective_policy, container, items, wish
    )
    if lower.value is not None and lower.value > int(columns.candidates.minimum[resource][at]):
        # What a limit that is not lowered needs beside it.
        lower = BoundStep(lower.value, "limit-range")
    most = int(columns.candidates.maximum[resource][at])
    if upper.value is not None and upper.value < most:
        upper = BoundStep(upper.value, _why_below(sized, at, resource, upper.value))
    return RequestSteps(
        managed=bool(demand.managed[at]),
        current=current,
        base=int(demand.raw_base[at]),
        peak=int(demand.peak[at]),
        headroom_factor=float(columns.candidates.headroom_factor[at]),
        headroom=int(demand.headroom[at]),
        needed=int(sized.node_needs[resource].headroom[node]),
        largest=int(sized.node_needs[resource].shared[node]),
        total=int(shares.total[node]),
        by_base=bool(shares.by_base[node]),
        at_peak=bool(shares.at_peak[at]),
        peak_with_spare=int(demand.peak_with_margin[at]),
        unallocated=int(shares.unallocated[node]),
        unallocated_total=int(shares.unallocated_total[node]),
        share=float(shares.share[at]),
        rounded=int(shares.rounded[at]),
        lower=lower,
        upper=upper,
        clamped=clamped,
        may_grow=bool(sized.fit.may_grow[resource][node]),
        trimmed=clamped + (wish.granted if wish is not None else 0) - final,
        user_minimum=wish,
        final=final,
        written=int(sized.sizes_to_write.get_requests(resource)[at])
        if sized.rightsized[columns.candidates.pod_of_container[at]]
        else None,
        resize_cause=_worth(sized, at, resource),
        update_threshold=_dead_band(sized, at, resource, current, final),
    )


def _why_below(sized: SizingResult, at: int, resource: ResourceName, upper: int) -> str:
    """Return what keeps a request under the bounds that people state: what its limit may rise to, or a quota."""
    table = sized.columns.table
    if resource is ResourceName.MEMORY and table.ceilings is not None:
        if upper >= int(compute_max_requests(table.memory, table.memory_limit, table.ceilings)[at]):
            return "memory-limit"
    return "quota"


def _worth(sized: SizingResult, at: int, resource: ResourceName) -> ResizeCauseStep | None:
    writes, calm = sized.damped_sizes, sized.damping
    if writes is None or calm is None:
        return None
    node, below = int(sized.columns.node_of_container[at]), bool(writes.under_requested[resource][at])
    pod, cause = (
        int(sized.columns.candidates.pod_of_container[at]),
        ResizeUrgency(int(writes.urgency[resource][at])).resize_cause,
    )
    return ResizeCauseStep(
        needed_together=round(float(writes.needed[resource][node])),
        requested_together=round(float(writes.requested[resource][node])),
        tolerance=calm.tolerances[resource],
        cause=cause,
        within_update_threshold=cause is not None and bool(sized.decisions[pod] == SizeDecision.NO_CHANGE_NEEDED),
        below=below,
        since_long=bool(calm.under_requested[resource][at] if below else calm.over_requested[resource][node]),
        past_cooldown=bool(calm.past_cooldown[resource][pod]),
        init_sum=_init_sum(sized, pod, resource),
    )


def _init_sum(sized: SizingResult, pod: int, resource: ResourceName) -> int:
    candidates = sized.columns.candidates
    now, targets = sized.columns.table.get_resource(resource).current, sized.targets.get_requests(resource)
    floor = candidates.init_container_minimums.get_for_pod(resource, pod, targets)
    sums = {candidates.sum_pod(resource, pod, values) for values in (now, targets)}
    return floor if sums == {floor} else 0


def _wish(sized: SizingResult, at: int, resource: ResourceName, pod: ResizablePod, base: int) -> UserMinimumStep | None:
    if not pod.submitted_requests or not sized.user_minimum_grants.requested[resource][at]:
        return None
    columns = sized.columns
    own = pod.submitted_requests[at - int(columns.candidates.first_container[columns.candidates.pod_of_container[at]])]
    return UserMinimumStep(
        requested=int(sized.user_minimum_grants.requested[resource][at]),
        granted=int(sized.user_minimum_grants.granted[resource][at]),
        submitted=None if own is None else own.get(resource),
        released=base - int(columns.table.get_resource(resource).raw_base[at]),
    )


def _memory_limit(sized: SizingResult, at: int, statistic: Statistic) -> MemoryLimitSteps:
    table = sized.columns.table
    most = table.candidates.get_max_limit(ResourceName.MEMORY, sized.targets.memory_bytes)
    current, final, cap = int(table.memory_limit[at]), int(sized.targets.memory_limit_bytes[at]), int(most[at])
    return MemoryLimitSteps(
        managed=bool(table.memory.managed[at]),
        current=current,
        memory_7d_max=statistic.memory_7d_max_bytes,
        oom_memory=statistic.oom_memory_bytes,
        wanted=int(table.limit_demand.target[at]),
        safe=int(table.limit_demand.minimum_safe[at]),
        cap=None if cap >= UNBOUNDED else cap,
        ceiling=_ceiling(sized, at),
        kept=not supports_lowering_memory_limits(sized.columns.nodes[int(sized.columns.node_of_container[at])]),
        has_short_history=current > 0 and not bool(table.limit_demand.may_fall[at]),
        unchanged=keeps_limit(sized.columns, ResourceName.MEMORY, at),
        grows=bool(sized.memory_leak_suspected[at]),
        minimum=0 if table.minimum_limit is None else int(table.minimum_limit[ResourceName.MEMORY][at]),
        adds=bool(table.candidates.adds_limit[ResourceName.MEMORY][at]),
        keeps_existing=bool(table.candidates.keeps_memory_limit[at]),
        in_sum=ResourceName.MEMORY in table.candidates.pod_ranges.get(int(table.candidates.pod_of_container[at]), {}),
        final=final,
        update_threshold=_dead_band(sized, at, ResourceName.MEMORY, current, final),
    )


def _ceiling(sized: SizingResult, at: int) -> int | None:
    """Return what keeps a container's memory limit from what it should be, None where nothing does."""
    ceiling, table = get_node_limit_ceilings(sized.columns), sized.columns.table
    if ceiling is None:
        return None
    demand, current, request = table.limit_demand, int(table.memory_limit[at]), int(sized.targets.memory_bytes[at])
    wanted = round_up_to_mebibytes(max(int(demand.target[at]), int(demand.minimum_safe[at]), request))
    has_to = bool(demand.was_oom_killed[at] | demand.is_varying[at]) or request > current
    highest = max(int((ceiling.absolute if has_to else ceiling.without_cause)[at]), current)
    return highest if highest < wanted else None


def _cpu_limit(sized: SizingResult, at: int) -> CpuLimitSteps:
    columns = sized.columns
    current, final = int(columns.table.cpu_limit[at]), int(sized.targets.cpu_limit_millicores[at])
    return CpuLimitSteps(
        managed=bool(columns.table.cpu.managed[at]),
        current=current,
        node_allocatable=columns.nodes[int(columns.node_of_container[at])].allocatable.cpu_millicores,
        unchanged=keeps_limit(columns, ResourceName.CPU, at),
        final=final,
        update_threshold=_dead_band(sized, at, ResourceName.CPU, current, final),
    )


def _dead_band(sized: SizingResult, at: int, resource: ResourceName, before: int, after: int) -> UpdateThresholdStep:
    band = sized.columns.candidates.update_threshold.for_container(at)
    return UpdateThresholdStep(
        before, after, band.minimum.get(resource), band.share, band.is_exceeded(resource, before, after)
    )


def _ends(
    resource: ResourceName,
    lower: int,
    upper: int,
    guidance: EffectivePolicy,
    container: str,
    items: Sequence[LimitRangeItem],
    wish: UserMinimumStep | None,
) -> tuple[BoundStep, BoundStep]:
    """Return which rule set the bounds that hold; the bounds themselves are the columns'."""
    own = guidance.get_container_bounds(container)
    ranges = [item for item in items if not item.is_for_pod]
    lowest = [item.minimum.get(resource) for item in ranges]
    highest = [item.maximum.get(resource) for item in ranges]
    if lower in lowest:
        low = BoundStep(lower, "limit-range")
    elif lower == own.minimum.get(resource):
        low = BoundStep(lower, "override")
    elif wish is not None and lower == wish.submitted:
        low = BoundStep(lower, "submitted")
    else:
        low = BoundStep(lower, "floor")
    if upper >= UNBOUNDED:
        high = BoundStep(None, None)
    else:
        high = BoundStep(upper, "limit-range" if upper in highest or upper in lowest else "override")
    return low, high

"""Shows how each size of a container was computed, from its row in the columns of a node pass."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cruise.decisions.explanation.bound_steps import (
    BoundStep,
    CpuLimitSteps,
    GuaranteedStep,
    HeapStep,
    HpaBoundStep,
    MemoryLimitSteps,
    UpdateThresholdStep,
    build_bound_steps,
    build_cpu_limit_steps,
    build_guaranteed_steps,
    build_heap_step,
    build_hpa_bound_step,
    build_memory_limit_steps,
    compare_with_update_threshold,
)
from cruise.decisions.pod_policy.resizable_pod import ResizablePod
from cruise.decisions.sizing.damping import ResizeUrgency
from cruise.decisions.sizing.demand import compute_max_requests
from cruise.decisions.sizing.node_sizes import SizingResult
from cruise.decisions.sizing.resizes import SizeDecision
from cruise.domain.actions import ResizeCause
from cruise.domain.autoscalers import LimitRangeItem
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName
from cruise.domain.usage import Statistic, StatisticsTable


@dataclass(frozen=True, slots=True)
class ResizeCauseStep:
    """Why write damping writes a request or not.

    `needed_together` is what the node's pods need, `requested_together` what they request; it may exceed the need by
    the `tolerance`, and be below it by the `shortage_share`. `cause` is None if the request stays;
    `within_update_threshold`: no change of the pod exceeds the update threshold. `is_lasting`: the container
    has been under-requested for long, or else that its node is over-requested and the pod need not wait any longer.
    `init_container_sum` is what the pod's init containers make kube-scheduler count, 0 if they do not determine it.
    """

    needed_together: int
    requested_together: int
    tolerance: float
    shortage_share: float
    cause: ResizeCause | None
    within_update_threshold: bool
    under_requested: bool
    is_lasting: bool
    past_cooldown: bool
    init_container_sum: int


@dataclass(frozen=True, slots=True)
class UserMinimumStep:
    """What the workload's own annotations request beyond the `submitted` request, and what is granted; None is unknown.

    `from_base` is the part of its base that counts here because the pod ranks itself on a node under pressure.
    """

    requested: int
    granted: int
    submitted: int | None
    from_base: int


@dataclass(frozen=True, slots=True)
class RequestSteps:
    """From base to request, in millicores or bytes.

    A container requests `base + shared_headroom × headroom / total`, rounded, clamped and trimmed. `shared_headroom` is
    the part of the node's `needed_headroom` that fits, `total` the sum of the remaining pods' headrooms; with `by_base`
    bases take the place of headrooms. A container that is `at_peak` gets at most `peak_with_margin`; the others share
    `unallocated` by `unallocated_total`. `clamped` is within the bounds and, unless it `may_grow`, the present request;
    `trimmed` was cut for the node's sum; `final` is the target with the granted `user_minimum`, and the present request
    if the resource is not managed. `written` is None if nothing is written, `resize_cause` without write damping, and
    `guaranteed` for a pod of another QoS class; the limit of a Guaranteed pod is its request.
    """

    managed: bool
    current: int
    base: int
    peak: int
    headroom_factor: float
    headroom: int
    needed_headroom: int
    shared_headroom: int
    total: int
    by_base: bool
    at_peak: bool
    peak_with_margin: int
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
    guaranteed: GuaranteedStep | None = None
    utilisation: HpaBoundStep | None = None


@dataclass(frozen=True, slots=True)
class ContainerSteps:
    """How all sizes of one container were computed."""

    container: str
    statistic: Statistic
    is_workload_statistic: bool
    cpu: RequestSteps
    memory: RequestSteps
    memory_limit: MemoryLimitSteps
    cpu_limit: CpuLimitSteps
    heap: HeapStep | None = None


def build_size_steps(
    sized: SizingResult, index: int, statistics: StatisticsTable, items: Sequence[LimitRangeItem], policy: Policy
) -> tuple[ContainerSteps, ...]:
    """Return the steps of one remaining pod by container; `items` are its namespace's LimitRanges."""
    table = sized.columns.table
    first = int(table.candidates.first_container[index])
    return tuple(
        _build_container_steps(sized, first + offset, container.name, statistics, items, policy)
        for offset, container in enumerate(table.candidates.pods[index].sized)
    )


def _build_container_steps(
    sized: SizingResult,
    at: int,
    container: str,
    statistics: StatisticsTable,
    items: Sequence[LimitRangeItem],
    policy: Policy,
) -> ContainerSteps:
    statistic = statistics.get_row(int(sized.columns.table.rows[at]))
    bases = (statistic.cpu_base_millicores, statistic.memory_base_bytes)
    guaranteed = build_guaranteed_steps(sized, at, statistics, policy)
    cpu, memory = (
        _build_request_steps(
            sized,
            at,
            resource,
            container,
            items,
            base,
            guaranteed.get(resource),
            build_hpa_bound_step(sized, at, resource, statistics),
        )
        for resource, base in zip(ResourceName, bases, strict=True)
    )
    pod = sized.columns.candidates.pods[int(sized.columns.candidates.pod_of_container[at])]
    heap = build_heap_step(next(one for one in pod.sized if one.name == container), pod.pod.qos, policy)
    if heap is not None and memory.lower == BoundStep(heap.request_floor, "floor"):
        memory = replace(memory, lower=BoundStep(heap.request_floor, "heap"))
    return ContainerSteps(
        container=container,
        statistic=statistic,
        is_workload_statistic=not statistic.key.pod,
        cpu=cpu,
        memory=memory,
        memory_limit=build_memory_limit_steps(sized, at, statistic),
        cpu_limit=build_cpu_limit_steps(sized, at),
        heap=heap,
    )


def _build_request_steps(
    sized: SizingResult,
    at: int,
    resource: ResourceName,
    container: str,
    items: Sequence[LimitRangeItem],
    base: int,
    guaranteed: GuaranteedStep | None,
    utilisation: HpaBoundStep | None,
) -> RequestSteps:
    columns = sized.columns
    demand, shares = columns.table.get_resource(resource), sized.headroom_shares[resource]
    node, pod = int(columns.node_of_container[at]), columns.candidates.pods[columns.candidates.pod_of_container[at]]
    current, clamped = int(demand.current[at]), int(shares.clamped[at])
    final = int(sized.targets.get_requests(resource)[at])
    user_minimum = _build_user_minimum(sized, at, resource, pod, base)
    submitted = None if user_minimum is None else user_minimum.submitted
    bounds = (int(demand.lower[at]), int(demand.upper[at]))
    lower, upper = build_bound_steps(resource, bounds, pod.effective_policy, container, items, submitted)
    if lower.value is not None and lower.value > int(columns.candidates.minimum[resource][at]):
        lower = BoundStep(lower.value, _find_lower_bound_source(sized, at, resource, lower.value, guaranteed))
    if upper.value is not None and upper.value < int(columns.candidates.maximum[resource][at]):
        upper = BoundStep(upper.value, _find_upper_bound_source(sized, at, resource, upper.value))
    if utilisation is not None:
        lower = BoundStep(lower.value, "hpa") if lower.value == utilisation.lower else lower
        upper = BoundStep(upper.value, "hpa") if upper.value == utilisation.upper else upper
    return RequestSteps(
        managed=bool(demand.managed[at]),
        current=current,
        base=int(demand.raw_base[at]),
        peak=int(demand.peak[at]),
        headroom_factor=float(columns.candidates.headroom_factor[at]),
        headroom=int(demand.headroom[at]),
        needed_headroom=int(sized.node_needs[resource].headroom[node]),
        shared_headroom=int(sized.node_needs[resource].shared[node]),
        total=int(shares.total[node]),
        by_base=bool(shares.by_base[node]),
        at_peak=bool(shares.at_peak[at]),
        peak_with_margin=int(demand.peak_with_margin[at]),
        unallocated=int(shares.unallocated[node]),
        unallocated_total=int(shares.unallocated_total[node]),
        share=float(shares.share[at]),
        rounded=int(shares.rounded[at]),
        lower=lower,
        upper=upper,
        clamped=clamped,
        may_grow=bool(sized.fit.may_grow[resource][node]),
        trimmed=clamped + (user_minimum.granted if user_minimum is not None else 0) - final,
        user_minimum=user_minimum,
        final=final,
        written=int(sized.sizes_to_write.get_requests(resource)[at])
        if sized.rightsized[columns.candidates.pod_of_container[at]]
        else None,
        resize_cause=_build_resize_cause(sized, at, resource),
        update_threshold=compare_with_update_threshold(sized, at, resource, current, final),
        guaranteed=guaranteed,
        utilisation=utilisation,
    )


def _find_lower_bound_source(
    sized: SizingResult, at: int, resource: ResourceName, lower: int, guaranteed: GuaranteedStep | None
) -> str:
    """Return what raised a lower bound above what is configured."""
    candidates, demand = sized.columns.table.candidates, sized.columns.table.get_resource(resource)
    if guaranteed is not None:
        return "largest-use"
    completes = bool(candidates.runs_to_completion[candidates.pod_of_container[at]])
    if completes and lower == min(int(demand.current[at]), int(demand.peak[at])):
        return "earlier-runs"
    # A limit that is not lowered needs this request under a LimitRange's ratio.
    return "limit-range"


def _find_upper_bound_source(sized: SizingResult, at: int, resource: ResourceName, upper: int) -> str:
    """Return what keeps a request below its configured bounds: the ceiling of its limit, or a quota."""
    table = sized.columns.table
    if resource is ResourceName.MEMORY and table.ceilings is not None:
        if upper >= int(compute_max_requests(table.memory, table.memory_limit, table.ceilings)[at]):
            return "memory-limit"
    return "quota"


def _build_resize_cause(sized: SizingResult, at: int, resource: ResourceName) -> ResizeCauseStep | None:
    damped, damping = sized.damped_sizes, sized.damping
    if damped is None or damping is None:
        return None
    node, under_requested = int(sized.columns.node_of_container[at]), bool(damped.under_requested[resource][at])
    pod = int(sized.columns.candidates.pod_of_container[at])
    cause = ResizeUrgency(int(damped.urgency[resource][at])).resize_cause
    lasting = (
        damping.under_requested[resource][at]
        if under_requested
        else damping.flag_due(resource, np.array([pod]), np.array([node]))[0]
    )
    return ResizeCauseStep(
        needed_together=round(float(damped.needed[resource][node])),
        requested_together=round(float(damped.requested[resource][node])),
        tolerance=damping.tolerances[resource],
        shortage_share=damping.shortage_shares[resource],
        cause=cause,
        within_update_threshold=cause is not None and bool(sized.decisions[pod] == SizeDecision.NO_CHANGE_NEEDED),
        under_requested=under_requested,
        is_lasting=bool(lasting),
        past_cooldown=bool(damping.past_cooldown[resource][pod]),
        init_container_sum=_get_init_container_sum(sized, pod, resource),
    )


def _get_init_container_sum(sized: SizingResult, pod: int, resource: ResourceName) -> int:
    candidates = sized.columns.candidates
    current, targets = sized.columns.table.get_resource(resource).current, sized.targets.get_requests(resource)
    floor = candidates.init_container_minimums.get_for_pod(resource, pod, targets)
    sums = {candidates.sum_pod(resource, pod, values) for values in (current, targets)}
    return floor if sums == {floor} else 0


def _build_user_minimum(
    sized: SizingResult, at: int, resource: ResourceName, pod: ResizablePod, base: int
) -> UserMinimumStep | None:
    if not pod.submitted_requests or not sized.user_minimum_grants.requested[resource][at]:
        return None
    candidates, demand = sized.columns.candidates, sized.columns.table.get_resource(resource)
    submitted = pod.submitted_requests[at - int(candidates.first_container[candidates.pod_of_container[at]])]
    return UserMinimumStep(
        requested=int(sized.user_minimum_grants.requested[resource][at]),
        granted=int(sized.user_minimum_grants.granted[resource][at]),
        submitted=None if submitted is None else submitted.get(resource),
        from_base=max(base - max(int(demand.raw_base[at]), int(demand.lower[at])), 0),
    )

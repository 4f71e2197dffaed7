"""Decides the sizes of a plan: what the node pass would write on its nodes, for as few pods as possible."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from cruise.decisions.packing.move_order import PodChanges
from cruise.decisions.packing.problem import BuiltProblem, keeps_current_size
from cruise.decisions.pod_policy.limit_ranges import violates_limit_range
from cruise.decisions.pod_policy.quotas import exceeds_quota
from cruise.decisions.scheduling.placements import PodKey, get_pod_key
from cruise.decisions.sizing.container_sizes import PlannedContainerSize
from cruise.decisions.sizing.node_plans import NodePlan, decide_node_plans
from cruise.decisions.sizing.resizes import build_resize, keep_qos_class, would_change_qos_class
from cruise.domain.actions import ContainerTarget, ReasonCode, ResizePod
from cruise.domain.arrays import UNBOUNDED, Int64Array
from cruise.domain.cluster import ClusterSnapshot, Container, Pod
from cruise.domain.pod_resources import (
    compute_effective_container_requests,
    count_pod_requests,
    get_spec_targets,
    predict_actuated_pod,
    replace_spec_resources,
    reset_kubelet_status,
)
from cruise.domain.resources import NO_RESOURCES, ResourceName, Resources, StatedResources

# A pod that the node pass skips for one of these reasons keeps its size.
_REASONS_TO_KEEP_SIZE = frozenset(
    {
        ReasonCode.LIMIT_RANGE,
        ReasonCode.QOS_CHANGE,
        ReasonCode.RESIZE_REFUSED,
        ReasonCode.RESIZE_DEFERRED,
        ReasonCode.RESIZE_INFEASIBLE,
    }
)


@dataclass(frozen=True, slots=True)
class PlannedPodSize:
    """Sizes for a pod's containers, and the requests that the pod then counts for."""

    targets: tuple[ContainerTarget, ...]
    counted_requests: Resources


class PlannedNodeSizes:
    """The sizes that the node pass would give the pods of one node."""

    def __init__(self, snapshot: ClusterSnapshot, plan: NodePlan) -> None:
        self._snapshot = snapshot
        self._sizes: dict[PodKey, dict[str, PlannedContainerSize]] = {}
        for size in plan.targets:
            self._sizes.setdefault((size.namespace, size.pod), {})[size.container] = size
        self._resizes = {one.key: one for one in plan.resize}
        self._not_resizable = {hold.key for hold in plan.skipped if hold.reason in _REASONS_TO_KEEP_SIZE}

    def get_shrunk(self, pod: Pod) -> PlannedPodSize | None:
        """Return a pod's smaller sizes; None if nothing can be reclaimed from it.

        A pod that is pending on its node keeps its limits.
        """
        key = get_pod_key(pod)
        sizes = self._sizes.get(key)
        if sizes is None or key in self._not_resizable or pod.resize.pending is not None:
            return None
        resize = self._resizes.get(key) if pod.node is not None else None
        targets = tuple(
            ContainerTarget(
                container.name,
                container.role,
                container.requests.cap_at(StatedResources(size.cpu_millicores, size.memory_bytes)),
                # A limit of 0 is none, and stays stated.
                _get_planned_limits(container, resize).with_defaults(container.limits),
            )
            for container in pod.resizable_parts
            if (size := sizes.get(container.name)) is not None
        )
        targets = keep_qos_class(pod, targets)
        after = count_pod_requests(predict_actuated_pod(pod, targets))
        before = count_pod_requests(pod)
        if after == before or not after.fits_in(before) or self._is_rejected(pod, targets):
            return None
        return PlannedPodSize(targets, after)

    def get_created(self, pod: Pod) -> PlannedPodSize | None:
        """Return the sizes of a pod's replacement on this node; None if it keeps the pod's sizes."""
        key = get_pod_key(pod)
        sizes = self._sizes.get(key)
        if sizes is None or key in self._not_resizable:
            return None
        resize = self._resizes.get(key)
        targets = tuple(
            _build_target(container, sizes[container.name], _get_planned_limits(container, resize))
            for container in pod.resizable_parts
            if container.name in sizes
        )
        targets = keep_qos_class(pod, targets)
        quotas = self._snapshot.quotas.get(pod.namespace, ())
        if self._is_rejected(pod, targets) or exceeds_quota(pod, targets, quotas):
            return None
        return PlannedPodSize(targets, count_pod_requests(predict_actuated_pod(pod, targets)))

    def _is_rejected(self, pod: Pod, targets: Sequence[ContainerTarget]) -> bool:
        ranges = self._snapshot.limit_ranges.get(pod.namespace, ())
        is_rejected = would_change_qos_class(pod, targets) or _exceed_pod_level(pod, targets)
        return is_rejected or (bool(ranges) and violates_limit_range(pod, targets, ranges))


def decide_plan_sizes(
    built: BuiltProblem, on_node: Mapping[int, Sequence[int]], arriving: Collection[int]
) -> dict[int, PlannedNodeSizes]:
    """Decide the sizes on nodes, given the pods that are there in the end; all by index."""
    pods: list[Pod] = []
    for node, members in on_node.items():
        name = built.nodes[node].name
        for pod in members:
            original = built.pods[pod]
            planned = _predict_on_node(original, name) if pod in arriving else original
            # A pod that keeps its size is passed as a static pod, whose requests are subtracted first.
            pods.append(replace(planned, is_mirror_pod=True) if keeps_current_size(original, built.usage) else planned)
    nodes = tuple(built.nodes[node] for node in on_node)
    hypothetical = replace(built.snapshot, nodes=nodes, pods=tuple(pods))
    usage = built.usage
    plans = decide_node_plans(
        hypothetical,
        usage.statistics,
        built.policy,
        usage.now,
        paused_workloads=usage.paused_workloads,
        refused=usage.refused,
    )
    by_name = {plan.node: plan for plan in plans}
    return {node: PlannedNodeSizes(built.snapshot, by_name[built.nodes[node].name]) for node in on_node}


def _predict_on_node(pod: Pod, node: str) -> Pod:
    """Return a pod as it runs on its target; a created pod has no reported resources yet."""
    if pod.node is None:
        return replace(pod, node=node, phase="Running")
    return replace(reset_kubelet_status(pod), node=node, resize=pod.resize)


def _exceed_pod_level(pod: Pod, targets: Sequence[ContainerTarget]) -> bool:
    """Return whether a plan's sizes of a pod as a whole do not enclose what its containers state, which they keep."""
    whole = replace_spec_resources(pod, targets).pod_level
    if whole is None:
        return False
    running = compute_effective_container_requests(pod.containers)
    limits = [one.limits.resources for one in pod.containers]
    return any(
        running.get(resource) > (whole.requests.get(resource) or running.get(resource))
        or max(one.get(resource) for one in limits) > (whole.limits.get(resource) or UNBOUNDED)
        for resource in ResourceName
    )


def _get_planned_limits(container: Container, resize: ResizePod | None) -> StatedResources:
    if resize is None:
        return container.limits
    return next((target.limits for target in resize.containers if target.container == container.name), container.limits)


def _build_target(container: Container, size: PlannedContainerSize, limits: StatedResources) -> ContainerTarget:
    cpu_limit, memory_limit = limits.cpu_millicores, limits.memory_bytes
    return ContainerTarget(
        container.name,
        container.role,
        StatedResources(size.cpu_millicores or None, size.memory_bytes or None),
        StatedResources(
            None if cpu_limit is None else max(cpu_limit, size.cpu_millicores),
            None if memory_limit is None else max(memory_limit, size.memory_bytes),
        ),
    )


# With at most so many candidates, all pairs are tried before the greedy choice.

_MAX_CANDIDATES_FOR_PAIRS = 64


class ShrinkCandidate(NamedTuple):
    """A pod, by index, and the resources that can be reclaimed from it."""

    pod: int
    cpu: int
    memory: int


def choose_pods_to_shrink(candidates: Sequence[ShrinkCandidate], cpu: int, memory: int) -> tuple[int, ...] | None:
    """Choose pods from which so much CPU and memory is reclaimable; None if all are not enough.

    If one or two pods are enough, that many are found; of more, none is superfluous.
    """
    if cpu <= 0 and memory <= 0:
        return ()
    useful = [
        candidate
        for candidate in candidates
        if (cpu > 0 and candidate.cpu > 0) or (memory > 0 and candidate.memory > 0)
    ]
    sizes = (1, 2) if len(useful) <= _MAX_CANDIDATES_FOR_PAIRS else (1,)
    for size in sizes:
        for subset in combinations(useful, size):
            if _is_enough(subset, cpu, memory):
                return tuple(candidate.pod for candidate in subset)
    if not _is_enough(useful, cpu, memory):
        return None
    chosen: list[ShrinkCandidate] = []
    while not _is_enough(chosen, cpu, memory):
        lacks_cpu = cpu - sum(candidate.cpu for candidate in chosen)
        lacks_memory = memory - sum(candidate.memory for candidate in chosen)
        best = max(
            useful,
            key=lambda candidate: (
                _get_covered_share(candidate.cpu, lacks_cpu) + _get_covered_share(candidate.memory, lacks_memory)
            ),
        )
        useful.remove(best)
        chosen.append(best)
    for candidate in list(chosen):
        others = [other for other in chosen if other is not candidate]
        if _is_enough(others, cpu, memory):
            chosen = others
    return tuple(sorted(candidate.pod for candidate in chosen))


def _is_enough(candidates: Sequence[ShrinkCandidate], cpu: int, memory: int) -> bool:
    return (
        sum(candidate.cpu for candidate in candidates) >= cpu
        and sum(candidate.memory for candidate in candidates) >= memory
    )


def _get_covered_share(reclaimable: int, missing: int) -> float:
    return min(reclaimable, missing) / missing if missing > 0 else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class PlanSizing:
    """The requests [pod, resource] of pods during a plan, on their present node and on arrival.

    `resizes` are shrinks by pod. `containers` has the sizes of created pods that differ. Rows of `current_requests` are
    exact for the nodes at which pods arrive.
    """

    current_requests: Int64Array
    arrival_requests: Int64Array
    resizes: dict[int, ResizePod] = field(default_factory=dict)
    containers: dict[int, tuple[ContainerTarget, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OverfilledNode:
    """A node that cannot hold what a packing places there; `not_resizable` has the uids of the pods in the way."""

    node: str
    not_resizable: frozenset[str]


def build_unchanged_sizing(built: BuiltProblem) -> PlanSizing:
    """Return the sizing in which all pods keep the size that the problem has."""
    amounts = built.problem.demands[built.problem.pod_class]
    return PlanSizing(amounts, amounts)


def decide_plan_sizing(built: BuiltProblem, changes: PodChanges) -> PlanSizing | OverfilledNode:
    """Size the nodes at which pods arrive like the node pass, and shrink as few pods there as needed."""
    target, arriving = changes.pod_node, frozenset((*changes.placed, *changes.moved))
    on_node: dict[int, list[int]] = {int(target[pod]): [] for pod in sorted(arriving)}
    involved = np.isin(target, list(on_node))
    for pod in np.flatnonzero(involved).tolist():
        on_node[int(target[pod])].append(pod)
    current = built.problem.demands[built.problem.pod_class]
    # A pod that leaves such a node counts there until it is evicted.
    for pod in np.flatnonzero(np.isin(built.problem.pod_node, list(on_node)) | involved).tolist():
        current[pod, :2] = _get_cpu_and_memory(count_pod_requests(built.pods[pod]))
    sizing = PlanSizing(current, current.copy())
    sized = decide_plan_sizes(built, on_node, arriving)
    for node, pods in sorted(on_node.items()):
        unsizable = _size_node(built, sizing, sized[node], node, pods, arriving)
        if unsizable is not None:
            return OverfilledNode(built.nodes[node].name, unsizable)
    return sizing


def _size_node(
    built: BuiltProblem,
    sizing: PlanSizing,
    sized: PlannedNodeSizes,
    node: int,
    pods: Sequence[int],
    arriving: Collection[int],
) -> frozenset[str] | None:
    """Decide which pods are resized on a node; return the pods in the way if the node cannot hold them all."""
    shrinks: dict[int, PlannedPodSize] = {}
    candidates = []
    for pod in pods:
        original = built.pods[pod]
        if pod in arriving and original.node is not None:
            created = sized.get_created(original)
            if created is not None:
                if created.targets != get_spec_targets(original):
                    sizing.containers[pod] = created.targets
                sizing.arrival_requests[pod, :2] = _get_cpu_and_memory(created.counted_requests)
            continue
        shrunk = sized.get_shrunk(original)
        if shrunk is not None:
            shrinks[pod] = shrunk
            candidates.append(
                ShrinkCandidate(pod, *_get_cpu_and_memory(count_pod_requests(original) - shrunk.counted_requests))
            )
    # A node without CPU left still takes a pod that requests none.
    needed = sizing.arrival_requests[[pod for pod in pods if pod in arriving], :2].any(axis=0)
    excess = np.where(needed, sizing.arrival_requests[pods, :2].sum(axis=0) - built.problem.capacities[node, :2], 0)
    chosen = choose_pods_to_shrink(candidates, int(excess[0]), int(excess[1]))
    if chosen is None:
        return _find_pods_in_the_way(built, sizing, [pod for pod in pods if pod not in shrinks])
    for pod in chosen:
        original, shrunk = built.pods[pod], shrinks[pod]
        sizing.current_requests[pod, :2] = sizing.arrival_requests[pod, :2] = _get_cpu_and_memory(
            shrunk.counted_requests
        )
        sizing.resizes[pod] = build_resize(original, shrunk.targets, NO_RESOURCES, ReasonCode.RIGHTSIZED)
    return None


def _find_pods_in_the_way(built: BuiltProblem, sizing: PlanSizing, pods: Sequence[int]) -> frozenset[str]:
    """Return the pods that are larger than the packing assumes."""
    assumed = built.problem.demands[built.problem.pod_class[pods]]
    is_larger = np.asarray((sizing.arrival_requests[pods, :2] > assumed[:, :2]).any(axis=1)).tolist()
    return frozenset(
        built.pods[pod].uid
        for pod, larger in zip(pods, is_larger, strict=True)
        if larger and pod not in sizing.containers
    )


def _get_cpu_and_memory(resources: Resources) -> tuple[int, int]:
    return resources.cpu_millicores, resources.memory_bytes

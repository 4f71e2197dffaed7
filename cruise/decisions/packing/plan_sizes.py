"""The nodes of a plan as they would be with all pods in place: the sizes that the node pass decides there."""

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Container as abc_Container
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
from cruise.decisions.sizing.resizes import would_become_guaranteed
from cruise.domain.actions import ContainerTarget, ReasonCode, ResizePod
from cruise.domain.cluster import ClusterSnapshot, Container, Pod
from cruise.domain.pod_resources import count_pod_requests, get_spec_targets, predict_actuated_pod
from cruise.domain.resources import NO_RESOURCES, Int64Array, Resources, StatedResources

# A pod held for one of these keeps the size that it has.
_KEEPS_ITS_SIZE = frozenset(
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
    """Sizes for a pod's containers, and what it then counts for."""

    targets: tuple[ContainerTarget, ...]
    counted_requests: Resources


class PlannedNodeSizes:
    """What the node pass would give the pods of one node."""

    def __init__(self, snapshot: ClusterSnapshot, plan: NodePlan) -> None:
        self._snapshot = snapshot
        self._sizes: dict[PodKey, dict[str, PlannedContainerSize]] = {}
        for size in plan.targets:
            self._sizes.setdefault((size.namespace, size.pod), {})[size.container] = size
        self._resizes = {one.key: one for one in plan.resize}
        self._kept = {hold.key for hold in plan.skipped if hold.reason in _KEEPS_ITS_SIZE}

    def get_shrunk(self, pod: Pod) -> PlannedPodSize | None:
        """Return a pod with what it may give back; None where that is nothing, or it may not be taken.

        A pod that waits for its node keeps its limits.
        """
        key = get_pod_key(pod)
        sizes = self._sizes.get(key)
        if sizes is None or key in self._kept or pod.resize.pending is not None:
            return None
        resize = self._resizes.get(key) if pod.node is not None else None
        targets = tuple(
            ContainerTarget(
                container.name,
                container.role,
                _smaller(container.requests, sizes[container.name]),
                _limits(container, resize),
            )
            for container in pod.containers
            if container.name in sizes
        )
        counts = count_pod_requests(predict_actuated_pod(pod, targets))
        before = count_pod_requests(pod)
        if counts == before or not counts.fits_in(before) or self._refuses(pod, targets):
            return None
        return PlannedPodSize(targets, counts)

    def get_created(self, pod: Pod) -> PlannedPodSize | None:
        """Return what a pod's replacement asks for on this node; None where that is what the pod asks for now."""
        key = get_pod_key(pod)
        sizes = self._sizes.get(key)
        if sizes is None or key in self._kept:
            return None
        resize = self._resizes.get(key)
        targets = tuple(
            _whole(container, sizes[container.name], _limits(container, resize))
            for container in pod.containers
            if container.name in sizes
        )
        quotas = self._snapshot.quotas.get(pod.namespace, ())
        if self._refuses(pod, targets) or exceeds_quota(pod, targets, quotas):
            return None
        return PlannedPodSize(targets, count_pod_requests(predict_actuated_pod(pod, targets)))

    def _refuses(self, pod: Pod, targets: Sequence[ContainerTarget]) -> bool:
        ranges = self._snapshot.limit_ranges.get(pod.namespace, ())
        return would_become_guaranteed(pod, targets) or (bool(ranges) and violates_limit_range(pod, targets, ranges))


def decide_plan_sizes(
    built: BuiltProblem, on_node: Mapping[int, Sequence[int]], arriving: Collection[int]
) -> dict[int, PlannedNodeSizes]:
    """Decide all sizes on nodes, given the pods there in the end; both by index."""
    pods: list[Pod] = []
    for node, members in on_node.items():
        name = built.nodes[node].name
        for pod in members:
            one = built.pods[pod]
            there = _there(one, name) if pod in arriving else one
            # To the node pass, a pod that keeps its size is like a static pod: its room is taken off first.
            pods.append(replace(there, mirror=True) if keeps_current_size(one, built.usage) else there)
    nodes = tuple(built.nodes[node] for node in on_node)
    hypothetical = replace(built.snapshot, nodes=nodes, pods=tuple(pods))
    usage = built.usage
    plans = decide_node_plans(
        hypothetical, usage.statistics, built.policy, usage.now, stored=usage.stored, refused=usage.refused
    )
    by_name = {plan.node: plan for plan in plans}
    return {node: PlannedNodeSizes(built.snapshot, by_name[built.nodes[node].name]) for node in on_node}


def _there(pod: Pod, node: str) -> Pod:
    """Return a pod as it runs on its target; of one that is created anew nothing is reported yet."""
    if pod.node is None:
        return replace(pod, node=node, phase="Running")
    fresh = tuple(replace(one, allocated=None, actual=None, actual_limits=None) for one in pod.containers)
    return replace(pod, node=node, containers=fresh)


def _smaller(stated: StatedResources, size: PlannedContainerSize) -> StatedResources:
    """Return the smaller of two; what is not stated stays so, since a resize must not change the QoS class."""
    cpu, memory = stated.cpu_millicores, stated.memory_bytes
    return StatedResources(
        None if cpu is None else min(cpu, size.cpu_millicores),
        None if memory is None else min(memory, size.memory_bytes),
    )


def _limits(container: Container, resize: ResizePod | None) -> StatedResources:
    if resize is None:
        return container.limits
    return next((target.limits for target in resize.containers if target.container == container.name), container.limits)


def _whole(container: Container, size: PlannedContainerSize, limits: StatedResources) -> ContainerTarget:
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


# The fewest pods whose shrinking makes the room that is needed.

# With so many candidates all pairs are tried before the greedy choice.
_PAIRS_AMONG = 64


class ShrinkCandidate(NamedTuple):
    """A pod, by index, and what it would give back."""

    pod: int
    cpu: int
    memory: int


def choose_fewest_to_shrink(candidates: Sequence[ShrinkCandidate], cpu: int, memory: int) -> tuple[int, ...] | None:
    """Choose pods that give back so much CPU and memory; None where all of them do not.

    One or two are found if they are enough; beyond that, no one chosen can be spared.
    """
    if cpu <= 0 and memory <= 0:
        return ()
    useful = [one for one in candidates if (cpu > 0 and one.cpu > 0) or (memory > 0 and one.memory > 0)]
    sizes = (1, 2) if len(useful) <= _PAIRS_AMONG else (1,)
    for size in sizes:
        for some in combinations(useful, size):
            if _enough(some, cpu, memory):
                return tuple(one.pod for one in some)
    if not _enough(useful, cpu, memory):
        return None
    chosen: list[ShrinkCandidate] = []
    while not _enough(chosen, cpu, memory):
        lacks_cpu = cpu - sum(one.cpu for one in chosen)
        lacks_memory = memory - sum(one.memory for one in chosen)
        best = max(useful, key=lambda one: _share(one.cpu, lacks_cpu) + _share(one.memory, lacks_memory))
        useful.remove(best)
        chosen.append(best)
    for one in list(chosen):
        others = [other for other in chosen if other is not one]
        if _enough(others, cpu, memory):
            chosen = others
    return tuple(sorted(one.pod for one in chosen))


def _enough(some: Sequence[ShrinkCandidate], cpu: int, memory: int) -> bool:
    return sum(one.cpu for one in some) >= cpu and sum(one.memory for one in some) >= memory


def _share(gives: int, lacks: int) -> float:
    return min(gives, lacks) / lacks if lacks > 0 else 0.0


# What pods ask for once a plan is carried out, and which of them are resized for it: as few as can be.


@dataclass(frozen=True, slots=True, eq=False)
class PlanSizing:
    """`now` and `there` [pod, resource]: what a pod counts for where it is and, once it arrives, on its target.

    `resizes` are shrinks, by pod; `containers` is what pods ask for that are created anew, where that is something
    else. Rows of `now` hold for the nodes at which something arrives.
    """

    current: Int64Array
    on_target: Int64Array
    resizes: dict[int, ResizePod] = field(default_factory=dict)
    containers: dict[int, tuple[ContainerTarget, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeTooSmall:
    """A node that cannot hold what a packing puts there; `unsizable` are the uids of the pods in the way."""

    node: str
    not_resizable: frozenset[str]


def keep_sizes(built: BuiltProblem) -> PlanSizing:
    """Take all pods at the size that the problem has."""
    amounts = built.problem.demands[built.problem.pod_class]
    return PlanSizing(amounts, amounts)


def decide_plan_sizing(built: BuiltProblem, changes: PodChanges) -> PlanSizing | NodeTooSmall:
    """Size the nodes at which something arrives as the node pass would, and shrink there no more pods than needed."""
    target, arriving = changes.pod_node, frozenset((*changes.placed, *changes.moved))
    on_node: dict[int, list[int]] = {int(target[pod]): [] for pod in sorted(arriving)}
    involved = np.isin(target, list(on_node))
    for pod in np.flatnonzero(involved).tolist():
        on_node[int(target[pod])].append(pod)
    now = built.problem.demands[built.problem.pod_class]
    # A pod that leaves such a node counts there until then.
    for pod in np.flatnonzero(np.isin(built.problem.pod_node, list(on_node)) | involved).tolist():
        now[pod, :2] = _amounts(count_pod_requests(built.pods[pod]))
    sizing = PlanSizing(now, now.copy())
    sized = decide_plan_sizes(built, on_node, arriving)
    for node, pods in sorted(on_node.items()):
        unsizable = _size(built, sizing, sized[node], node, pods, arriving)
        if unsizable is not None:
            return NodeTooSmall(built.nodes[node].name, unsizable)
    return sizing


def _size(
    built: BuiltProblem,
    sizing: PlanSizing,
    sized: PlannedNodeSizes,
    node: int,
    pods: Sequence[int],
    arriving: abc_Container[int],
) -> frozenset[str] | None:
    """Decide which pods are resized on a node; return those in the way where it cannot hold them all."""
    shrinks: dict[int, PlannedPodSize] = {}
    candidates = []
    for pod in pods:
        one = built.pods[pod]
        if pod in arriving and one.node is not None:
            anew = sized.get_created(one)
            if anew is not None:
                if anew.targets != get_spec_targets(one):
                    sizing.containers[pod] = anew.targets
                sizing.on_target[pod, :2] = _amounts(anew.counted_requests)
            continue
        smaller = sized.get_shrunk(one)
        if smaller is not None:
            shrinks[pod] = smaller
            candidates.append(ShrinkCandidate(pod, *_amounts(count_pod_requests(one) - smaller.counted_requests)))
    # A node that is over its CPU already still takes a pod that asks for none.
    wanted = sizing.on_target[[pod for pod in pods if pod in arriving], :2].any(axis=0)
    excess = np.where(wanted, sizing.on_target[pods, :2].sum(axis=0) - built.problem.capacities[node, :2], 0)
    chosen = choose_fewest_to_shrink(candidates, int(excess[0]), int(excess[1]))
    if chosen is None:
        return _in_the_way(built, sizing, [pod for pod in pods if pod not in shrinks])
    for pod in chosen:
        one, smaller = built.pods[pod], shrinks[pod]
        sizing.current[pod, :2] = sizing.on_target[pod, :2] = _amounts(smaller.counted_requests)
        sizing.resizes[pod] = ResizePod(
            one.namespace,
            one.name,
            one.uid,
            one.node,
            one.workload,
            smaller.targets,
            NO_RESOURCES,
            ReasonCode.RIGHTSIZED,
        )
    return None


def _in_the_way(built: BuiltProblem, sizing: PlanSizing, pods: Sequence[int]) -> frozenset[str]:
    """Return those of the pods that the packing took to be smaller than they can be made."""
    taken = built.problem.demands[built.problem.pod_class[pods]]
    larger = np.asarray((sizing.on_target[pods, :2] > taken[:, :2]).any(axis=1)).tolist()
    return frozenset(
        built.pods[pod].uid
        for pod, is_larger in zip(pods, larger, strict=True)
        if is_larger and pod not in sizing.containers
    )


def _amounts(counted: Resources) -> tuple[int, int]:
    return counted.cpu_millicores, counted.memory_bytes

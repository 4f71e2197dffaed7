"""The nodes of a plan as they would be with all pods in place: the sizes that the node pass decides there."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from cruise.decisions.guidance.limit_ranges import breaks_limit_range
from cruise.decisions.guidance.quotas import breaks_quota
from cruise.decisions.packing.building.built import Built
from cruise.decisions.packing.building.needs import keeps_its_size
from cruise.decisions.scheduling.board import PodKey, key_of
from cruise.decisions.sizing.container_sizes import ContainerSize
from cruise.decisions.sizing.node_plans import NodePlan, decide_node_plans
from cruise.decisions.sizing.resize import becomes_guaranteed
from cruise.domain.actions import ContainerTarget, Reason, ResizePod
from cruise.domain.cluster import Container, Pod, Snapshot
from cruise.domain.requests import counted_requests
from cruise.domain.resources import Amounts, Resources
from cruise.domain.sizes import sized

# A pod held for one of these keeps the size that it has.
_KEEPS_ITS_SIZE = frozenset(
    {Reason.LIMIT_RANGE, Reason.QOS_CHANGE, Reason.REFUSED, Reason.RESIZE_DEFERRED, Reason.RESIZE_INFEASIBLE}
)


@dataclass(frozen=True, slots=True)
class Sized:
    """Sizes for a pod's containers, and what it then counts for."""

    targets: tuple[ContainerTarget, ...]
    counts: Resources


class SizedNode:
    """What the node pass would give the pods of one node."""

    def __init__(self, snapshot: Snapshot, plan: NodePlan) -> None:
        self._snapshot = snapshot
        self._sizes: dict[PodKey, dict[str, ContainerSize]] = {}
        for size in plan.targets:
            self._sizes.setdefault((size.namespace, size.pod), {})[size.container] = size
        self._resizes = {one.key: one for one in plan.resize}
        self._kept = {hold.key for hold in plan.hold if hold.reason in _KEEPS_ITS_SIZE}

    def shrunk(self, pod: Pod) -> Sized | None:
        """Return a pod with what it may give back; None where that is nothing, or it may not be taken.

        A pod that waits for its node keeps its limits.
        """
        key = key_of(pod)
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
        counts = counted_requests(sized(pod, targets))
        before = counted_requests(pod)
        if counts == before or not counts.fits_in(before) or self._refuses(pod, targets):
            return None
        return Sized(targets, counts)

    def created(self, pod: Pod) -> Sized | None:
        """Return what a pod's replacement asks for on this node; None where that is what the pod asks for now."""
        key = key_of(pod)
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
        if self._refuses(pod, targets) or breaks_quota(pod, targets, quotas):
            return None
        return Sized(targets, counted_requests(sized(pod, targets)))

    def _refuses(self, pod: Pod, targets: Sequence[ContainerTarget]) -> bool:
        ranges = self._snapshot.limit_ranges.get(pod.namespace, ())
        return becomes_guaranteed(pod, targets) or (bool(ranges) and breaks_limit_range(pod, targets, ranges))


def decide_sizes(built: Built, on_node: Mapping[int, Sequence[int]], arriving: Collection[int]) -> dict[int, SizedNode]:
    """Decide all sizes on nodes, given the pods there in the end; both by index."""
    pods: list[Pod] = []
    for node, members in on_node.items():
        name = built.nodes[node].name
        for pod in members:
            one = built.pods[pod]
            there = _there(one, name) if pod in arriving else one
            # To the node pass, a pod that keeps its size is like a static pod: its room is taken off first.
            pods.append(replace(there, mirror=True) if keeps_its_size(one, built.usage) else there)
    nodes = tuple(built.nodes[node] for node in on_node)
    hypothetical = replace(built.snapshot, nodes=nodes, pods=tuple(pods))
    usage = built.usage
    plans = decide_node_plans(
        hypothetical, usage.statistics, built.policy, usage.now, stored=usage.stored, refused=usage.refused
    )
    by_name = {plan.node: plan for plan in plans}
    return {node: SizedNode(built.snapshot, by_name[built.nodes[node].name]) for node in on_node}


def _there(pod: Pod, node: str) -> Pod:
    """Return a pod as it runs on its target; of one that is created anew nothing is reported yet."""
    if pod.node is None:
        return replace(pod, node=node, phase="Running")
    fresh = tuple(replace(one, allocated=None, actual=None, actual_limits=None) for one in pod.containers)
    return replace(pod, node=node, containers=fresh)


def _smaller(stated: Amounts, size: ContainerSize) -> Amounts:
    """Return the smaller of two; what is not stated stays so, since a resize must not change the QoS class."""
    cpu, memory = stated.cpu_millicores, stated.memory_bytes
    return Amounts(
        None if cpu is None else min(cpu, size.cpu_millicores),
        None if memory is None else min(memory, size.memory_bytes),
    )


def _limits(container: Container, resize: ResizePod | None) -> Amounts:
    if resize is None:
        return container.limits
    return next((target.limits for target in resize.containers if target.container == container.name), container.limits)


def _whole(container: Container, size: ContainerSize, limits: Amounts) -> ContainerTarget:
    cpu_limit, memory_limit = limits.cpu_millicores, limits.memory_bytes
    return ContainerTarget(
        container.name,
        container.role,
        Amounts(size.cpu_millicores or None, size.memory_bytes or None),
        Amounts(
            None if cpu_limit is None else max(cpu_limit, size.cpu_millicores),
            None if memory_limit is None else max(memory_limit, size.memory_bytes),
        ),
    )

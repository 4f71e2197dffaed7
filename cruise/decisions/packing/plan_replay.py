"""Replays a plan stage by stage and reports what the API server or kube-scheduler would reject."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain

from cruise.decisions.packing.eviction_rules import EvictionRules
from cruise.decisions.pod_policy.limit_ranges import forbids_resize
from cruise.decisions.pod_policy.quotas import exceeds_quota
from cruise.decisions.scheduling.placements import PodKey, PodPlacements, get_pod_key, is_waiting_for_scheduling
from cruise.decisions.scheduling.pod_affinity import SchedulerFilters
from cruise.domain.actions import ContainerTarget, ResizePod
from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.domain.packing_plan import PackingProposal, PackingSizes, PlannedPlacement, PlannedPreemption, PlanStage
from cruise.domain.pod_resources import count_pod_requests, get_qos_class, predict_actuated_pod, replace_spec_resources
from cruise.domain.resources import NO_RESOURCES, ResourceName, Resources


@dataclass(frozen=True, slots=True)
class BaseAndHeadroom:
    """What a pod needs on its node: `base` always, overhead included, and `headroom` that the pods of a node share."""

    base: Resources
    headroom: Resources


BaseAndHeadroomByPod = Mapping[PodKey, BaseAndHeadroom]


def check_planned_sizes(snapshot: ClusterSnapshot, pod: Pod, targets: Sequence[ContainerTarget]) -> Iterator[str]:
    """Yield what the API server would reject about a pod's sizes, and what cruise does not change."""
    roles = {part.name: part.role for part in pod.resizable_parts}
    for target in targets:
        if roles.get(target.container) is not target.role:
            yield f"has no {target.role} container {target.container}"
        for resource in ResourceName:
            request, limit = target.requests.get(resource), target.limits.get(resource)
            if request is not None and limit is not None and request > limit:
                yield f"would request more {resource} than the limit of container {target.container}"
    if len({target.container for target in targets}) < len(targets):
        yield "has a container sized twice"
    if pod.is_mirror_pod or pod.runs_on_windows:
        yield "cannot be resized"
    if get_qos_class(replace_spec_resources(pod, targets)) is not pod.qos:
        yield "would change its QoS class"
    if forbids_resize(pod, targets, snapshot.limit_ranges.get(pod.namespace, ())):
        yield "would be outside its namespace's LimitRange"
    if exceeds_quota(pod, targets, snapshot.quotas.get(pod.namespace, ())):
        yield "would exceed its namespace's quota"


def find_increased_resources(pod: Pod, targets: Sequence[ContainerTarget]) -> Iterator[str]:
    """Yield the resources that a resize increases: before the evictions there is no capacity for that."""
    before, after = count_pod_requests(pod), count_pod_requests(predict_actuated_pod(pod, targets))
    if after.cpu_millicores > before.cpu_millicores:
        yield f"grows from {before.cpu_millicores} m to {after.cpu_millicores} m"
    if after.memory_bytes > before.memory_bytes:
        yield f"grows from {before.memory_bytes} to {after.memory_bytes} bytes"


def find_removed_requests_and_limits(pod: Pod, targets: Sequence[ContainerTarget]) -> Iterator[str]:
    """Yield the stated values that a resize removes: the API server keeps every stated value."""
    stated = {part.name: part for part in pod.resizable_parts}
    for target in targets:
        container = stated.get(target.container)
        if container is None:
            continue
        for kind, before, after in (
            ("request", container.requests, target.requests),
            ("limit", container.limits, target.limits),
        ):
            for resource in ResourceName:
                if before.get(resource) is not None and after.get(resource) is None:
                    yield f"would lose the {resource} {kind} of container {target.container}"


def find_headroom_shortage(
    placements: PodPlacements, node_name: str, arrived: Sequence[Pod], demands: BaseAndHeadroomByPod
) -> Iterator[str]:
    """Report whether the pods on a node need more of what the arrived pods request than the node has.

    They need the sum of all bases, and the largest headroom once.
    """
    needs = [_get_need(pod, demands) for pod in placements.get_pods_on(node_name)]
    arrived_needs = [_get_need(pod, demands) for pod in arrived]
    base = sum((need.base for need in needs), NO_RESOURCES)
    headroom = reduce(Resources.max_with, (need.headroom for need in needs), NO_RESOURCES)
    requested = sum((need.base + need.headroom for need in arrived_needs), NO_RESOURCES)
    allocatable, needed = placements.nodes[node_name].allocatable, base + headroom
    for resource, unit in ((ResourceName.CPU, "m"), (ResourceName.MEMORY, "bytes")):
        if requested.get(resource) and needed.get(resource) > allocatable.get(resource):
            yield (
                f"node {node_name} offers {allocatable.get(resource)} {unit}, "
                f"bases of {base.get(resource)} {unit} and a headroom of {headroom.get(resource)} {unit} are more"
            )


def _get_need(pod: Pod, demands: BaseAndHeadroomByPod) -> BaseAndHeadroom:
    return demands.get(get_pod_key(pod)) or BaseAndHeadroom(count_pod_requests(pod), NO_RESOURCES)


class PlanReplay:
    """The cluster while a plan is carried out; `objections` collects what would go wrong."""

    def __init__(self, snapshot: ClusterSnapshot, proposal: PackingProposal, eviction_rules: EvictionRules) -> None:
        self.placements = PodPlacements(snapshot)
        self.arrived: dict[PodKey, Pod] = {}
        self.evicted: list[Pod] = []
        self.evicted_by_stage: list[list[Pod]] = []
        self.objections: list[str] = []
        self._snapshot = snapshot
        self._proposal = proposal
        self._eviction_rules = eviction_rules
        self._scheduler = SchedulerFilters(self.placements)
        self._pods = {get_pod_key(pod): pod for pod in snapshot.pods}
        self._preempted_nodes = _find_nodes_freed_by_preemption(proposal)
        pending_priorities = [
            pod.priority
            for pod in snapshot.pods
            if pod.may_preempt
            and is_waiting_for_scheduling(pod)
            and not pod.pod_group
            and eviction_rules.explain_unusable_claims(pod) is None
        ]
        self._highest_pending = max(pending_priorities, default=None)
        self._evicted_moves: dict[PodKey, PlannedPlacement] = {}
        self._evicted_keys: set[PodKey] = set()
        self._resized: set[PodKey] = set()

    def run(self) -> None:
        """Carry out all stages, then check again where pods arrived, with all other pods in place."""
        for number, stage in enumerate(self._proposal.stages, 1):
            before = len(self.evicted)
            self._run_stage(stage, f"stage {number}: ")
            self.evicted_by_stage.append(self.evicted[before:])
        for key, pod in self.arrived.items():
            node_name = self.placements.get_node(key)
            if node_name is not None:
                self.placements.remove(key)
                self._check_filters("in the end: ", pod, node_name)
                self.placements.add(pod, node_name)

    def find_headroom_shortages(self, needs: BaseAndHeadroomByPod) -> Iterator[str]:
        """Yield the nodes that cannot hold what their pods need, of those at which pods arrived."""
        arrived_by_node: dict[str, list[Pod]] = {}
        for key, pod in self.arrived.items():
            node_name = self.placements.get_node(key)
            if node_name is not None:
                arrived_by_node.setdefault(node_name, []).append(pod)
        for node, arrived in arrived_by_node.items():
            yield from find_headroom_shortage(self.placements, node, arrived, needs)

    def _run_stage(self, stage: PlanStage, prefix: str) -> None:
        if not (stage.resizes or stage.evictions or stage.arrivals):
            self.objections.append(f"{prefix}nothing happens")
        for resize in stage.resizes:
            self._resize(resize, prefix)
        for eviction in stage.evictions:
            self._evict(eviction, prefix)
        for arrival in stage.arrivals:
            self._arrive(arrival, prefix)
        for key, move in self._evicted_moves.items():
            self._object(prefix, key, f"leaves {move.source} and does not arrive on {move.target}")
        self._evicted_moves.clear()

    def _resize(self, resize: ResizePod, prefix: str) -> None:
        key = resize.key
        pod = self._find_pod(key, resize.uid, prefix)
        if pod is None:
            return
        self._check_sizes(pod, resize.containers, prefix, "is resized")
        if resize.node != self.placements.get_node(key):
            self._object(prefix, key, f"is resized on {resize.node}, but is on {self.placements.get_node(key)}")
        if pod.is_finished or pod.terminating:
            self._object(prefix, key, "is resized, though it ends")
        if key in self._resized:
            self._object(prefix, key, "is resized twice")
        self._resized.add(key)
        for objection in chain(
            find_removed_requests_and_limits(pod, resize.containers), find_increased_resources(pod, resize.containers)
        ):
            self._object(prefix, key, objection)
        self._pods[key] = predict_actuated_pod(pod, resize.containers)
        node_name = self.placements.get_node(key)
        if node_name is not None:
            self.placements.remove(key)
            self.placements.add(self._pods[key], node_name)

    def _evict(self, eviction: PlannedPlacement | PlannedPreemption, prefix: str) -> None:
        key = eviction.key
        pod = self._find_pod(key, eviction.uid, prefix)
        if pod is None:
            return
        if key in self._evicted_keys:
            self._object(prefix, key, "leaves twice")
            return
        node_name = self.placements.get_node(key)
        if node_name is None or eviction.source != node_name:
            self._object(prefix, key, f"leaves {eviction.source}, but is on {node_name}")
            return
        reason = self._eviction_rules.explain_not_evictable(pod)
        if reason is not None:
            self._object(prefix, key, f"may not be evicted: {reason}")
        self._evicted_keys.add(key)
        self.evicted.append(self.placements.remove(key))
        if isinstance(eviction, PlannedPreemption):
            self._check_preemption(pod, prefix)
        else:
            self._evicted_moves[key] = eviction

    def _check_preemption(self, pod: Pod, prefix: str) -> None:
        highest = self._highest_pending
        has_fixed_sizes = self._proposal.sizes is PackingSizes.FIXED
        if highest is None or pod.priority > highest or (pod.priority == highest and not has_fixed_sizes):
            self._object(
                prefix, get_pod_key(pod), f"of priority {pod.priority} is preempted for pods of at most {highest}"
            )

    def _arrive(self, arrival: PlannedPlacement, prefix: str) -> None:
        key = arrival.key
        pod = self._find_pod(key, arrival.uid, prefix)
        if pod is None:
            return
        if self.placements.get_node(key) is not None:
            self._object(prefix, key, f"arrives on {arrival.target}, but is on {self.placements.get_node(key)}")
            return
        if arrival.source is None and not is_waiting_for_scheduling(pod):
            self._object(prefix, key, "arrives as if it were pending and free to be scheduled")
        if arrival.source is not None and self._evicted_moves.pop(key, None) != arrival:
            self._object(prefix, key, f"arrives from {arrival.source} without having left it for {arrival.target}")
        if arrival.source == arrival.target:
            self._object(prefix, key, "moves to where it is")
        if arrival.containers:
            self._check_sizes(pod, arrival.containers, prefix, "arrives with other sizes")
            pod = predict_actuated_pod(pod, arrival.containers)
        if arrival.target in self._preempted_nodes and not pod.may_preempt:
            self._object(prefix, key, f"never preempts, but gets capacity on {arrival.target} by preemption")
        if arrival.target in self.placements.nodes:
            self._check_filters(prefix, pod, arrival.target)
            self.arrived[key] = pod
            self.placements.add(pod, arrival.target)
        else:
            self._object(prefix, key, f"arrives on {arrival.target}, which does not exist")

    def _check_sizes(self, pod: Pod, targets: Sequence[ContainerTarget], prefix: str, description: str) -> None:
        if self._proposal.sizes is PackingSizes.FIXED:
            self._object(prefix, get_pod_key(pod), f"{description}, though sizes are fixed")
        owner = self._eviction_rules.explain_owned_by_others(pod)
        if owner is not None:
            self._object(prefix, get_pod_key(pod), f"{description}, though {owner}")
        for objection in check_planned_sizes(self._snapshot, pod, targets):
            self._object(prefix, get_pod_key(pod), objection)

    def _check_filters(self, prefix: str, pod: Pod, node_name: str) -> None:
        """Object to every filter that rejects the pod on the node."""
        for rejection in self._scheduler.check(pod, self.placements.nodes[node_name]):
            self._object(prefix, get_pod_key(pod), f"is not let onto {node_name}, which {rejection}")

    def _find_pod(self, key: PodKey, uid: str, prefix: str) -> Pod | None:
        pod = self._pods.get(key)
        if pod is None:
            self._object(prefix, key, "does not exist")
        elif pod.uid != uid:
            self._object(prefix, key, f"has uid {pod.uid}, not {uid}")
        else:
            return pod
        return None

    def _object(self, prefix: str, key: PodKey, objection: str) -> None:
        self.objections.append(f"{prefix}pod {key[0]}/{key[1]} {objection}")


def _find_nodes_freed_by_preemption(proposal: PackingProposal) -> set[str]:
    """Return the nodes from which pods are preempted, and those from which pods move to such a node."""
    evictions = [eviction for stage in proposal.stages for eviction in stage.evictions]
    nodes = {
        preemption.source
        for preemption in (*proposal.preempted, *evictions)
        if isinstance(preemption, PlannedPreemption)
    }
    moves = [
        (eviction.source, eviction.target)
        for eviction in evictions
        if isinstance(eviction, PlannedPlacement) and eviction.source is not None
    ]
    while more := {source for source, target in moves if target in nodes} - nodes:
        nodes |= more
    return nodes

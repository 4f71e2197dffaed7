"""A plan stage by stage, as the API server and kube-scheduler would see it."""

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

# Whether the sizes that a plan asks for may be written, and whether they hold what the pods need.


@dataclass(frozen=True, slots=True)
class PodNeed:
    """What a pod needs on its node: `base` always, overhead included, and `headroom` shared with the pods there."""

    base: Resources
    headroom: Resources


PodNeeds = Mapping[PodKey, PodNeed]


def check_sizes(snapshot: ClusterSnapshot, pod: Pod, targets: Sequence[ContainerTarget]) -> Iterator[str]:
    """Say what the API server would refuse about a pod's sizes, or what cruise leaves alone."""
    roles = {container.name: container.role for container in pod.containers}
    for target in targets:
        if roles.get(target.container) is not target.role:
            yield f"has no {target.role} container {target.container}"
        for one in ResourceName:
            request, limit = target.requests.get(one), target.limits.get(one)
            if request is not None and limit is not None and request > limit:
                yield f"would request more {one} than the limit of container {target.container}"
    if len({target.container for target in targets}) < len(targets):
        yield "has a container sized twice"
    if pod.mirror or pod.windows or pod.pod_requests is not None or pod.pod_limits is not None:
        yield "cannot be resized"
    if get_qos_class(replace_spec_resources(pod, targets)) is not pod.qos:
        yield "would change its QoS class"
    if forbids_resize(pod, targets, snapshot.limit_ranges.get(pod.namespace, ())):
        yield "would be outside its namespace's LimitRange"
    if exceeds_quota(pod, targets, snapshot.quotas.get(pod.namespace, ())):
        yield "would exceed its namespace's quota"


def find_growing_resource(pod: Pod, targets: Sequence[ContainerTarget]) -> Iterator[str]:
    """Say which resource a resize before all evictions grows: there is room for that only afterwards."""
    before, after = count_pod_requests(pod), count_pod_requests(predict_actuated_pod(pod, targets))
    if after.cpu_millicores > before.cpu_millicores:
        yield f"grows from {before.cpu_millicores} m to {after.cpu_millicores} m"
    if after.memory_bytes > before.memory_bytes:
        yield f"grows from {before.memory_bytes} to {after.memory_bytes} bytes"


def find_removed_values(pod: Pod, targets: Sequence[ContainerTarget]) -> Iterator[str]:
    """Say which stated values a resize would take back: the API server keeps whatever was once stated."""
    stated = {container.name: container for container in pod.containers}
    for target in targets:
        container = stated.get(target.container)
        if container is None:
            continue
        for kind, before, after in (
            ("request", container.requests, target.requests),
            ("limit", container.limits, target.limits),
        ):
            for one in ResourceName:
                if before.get(one) is not None and after.get(one) is None:
                    yield f"would lose the {one} {kind} of container {target.container}"


def find_headroom_shortage(
    board: PodPlacements, node_name: str, arrived: Sequence[Pod], demands: PodNeeds
) -> Iterator[str]:
    """Say whether the pods on a node need more than it has of what those that arrived there ask for.

    They need all bases, and the largest headroom once.
    """
    here = [_demand_of(pod, demands) for pod in board.get_pods_on(node_name)]
    new = [_demand_of(pod, demands) for pod in arrived]
    base = sum((demand.base for demand in here), NO_RESOURCES)
    headroom = reduce(Resources.at_least, (demand.headroom for demand in here), NO_RESOURCES)
    wanted = sum((demand.base + demand.headroom for demand in new), NO_RESOURCES)
    room, need = board.nodes[node_name].allocatable, base + headroom
    for one, unit in ((ResourceName.CPU, "m"), (ResourceName.MEMORY, "bytes")):
        if wanted.get(one) and need.get(one) > room.get(one):
            yield (
                f"node {node_name} offers {room.get(one)} {unit}, bases of {base.get(one)} {unit} and a headroom of "
                f"{headroom.get(one)} {unit} are more"
            )


def _demand_of(pod: Pod, demands: PodNeeds) -> PodNeed:
    return demands.get(get_pod_key(pod)) or PodNeed(count_pod_requests(pod), NO_RESOURCES)


class PlanReplay:
    """The cluster while a plan is carried out; `objections` gathers what would go wrong."""

    def __init__(self, snapshot: ClusterSnapshot, proposal: PackingProposal, leaving: EvictionRules) -> None:
        self.placements = PodPlacements(snapshot)
        self.arrived: dict[PodKey, Pod] = {}
        self.evicted: list[Pod] = []
        self.evicted_by_stage: list[list[Pod]] = []
        self.objections: list[str] = []
        self._snapshot = snapshot
        self._proposal = proposal
        self._leaving = leaving
        self._scheduler = SchedulerFilters(self.placements)
        self._pods = {get_pod_key(pod): pod for pod in snapshot.pods}
        self._preempted_nodes = _made_by_preemption(proposal)
        waiting = [
            pod.priority
            for pod in snapshot.pods
            if pod.preemption_allowed
            and is_waiting_for_scheduling(pod)
            and not pod.pod_group
            and leaving.explain_unusable_claims(pod) is None
        ]
        self._highest_waiting = max(waiting, default=None)
        self._out: dict[PodKey, PlannedPlacement] = {}
        self._left: set[PodKey] = set()
        self._resized: set[PodKey] = set()
        self._welcome: list[PodKey] = []
        self._crowded: set[PodKey] = set()

    def run(self) -> None:
        """Carry out all stages, then look at what arrived once more, with everything else in place.

        Of pods that come before any leaves it is enough that they were let in: nothing made room for them. What held
        for them then, no eviction may undo.
        """
        for number, stage in enumerate(self._proposal.stages, 1):
            before = len(self.evicted)
            if stage.evictions and not self.evicted:
                self._crowd()
            self._run(stage, f"stage {number}: ")
            self.evicted_by_stage.append(self.evicted[before:])
        if not self.evicted:
            self._crowd()
        for key, pod in self.arrived.items():
            node_name = self.placements.get_node(key)
            if node_name is not None and key not in self._crowded:
                self.placements.remove(key)
                self._ask_scheduler("in the end: ", pod, node_name)
                self.placements.add(pod, node_name)

    def _crowd(self) -> None:
        """Note the pods that were let in, and would not be again for others that came after them."""
        if self._proposal.sizes is not PackingSizes.FIXED:
            return
        for key in self._welcome:
            pod, node = self.arrived[key], self.placements.nodes[self.placements.get_node(key) or ""]
            self.placements.remove(key)
            if next(self._scheduler.check(pod, node), None) is not None:
                self._crowded.add(key)
            self.placements.add(pod, node.name)

    def find_headroom_shortages(self, demands: PodNeeds) -> Iterator[str]:
        """Say which nodes cannot hold what the pods there need, of those at which some arrived and still are."""
        found: dict[str, list[Pod]] = {}
        for key, pod in self.arrived.items():
            place = self.placements.get_node(key)
            if place is not None:
                found.setdefault(place, []).append(pod)
        for node, arrived in found.items():
            yield from find_headroom_shortage(self.placements, node, arrived, demands)

    def _run(self, stage: PlanStage, where: str) -> None:
        if not (stage.resizes or stage.evictions or stage.arrivals):
            self.objections.append(f"{where}nothing happens")
        for resize in stage.resizes:
            self._resize(resize, where)
        for leave in stage.evictions:
            self._leave(leave, where)
        for arrival in stage.arrivals:
            self._arrive(arrival, where)
        for key, move in self._out.items():
            self._object(where, key, f"leaves {move.source} and does not arrive on {move.target}")
        self._out.clear()

    def _resize(self, resize: ResizePod, where: str) -> None:
        key = resize.key
        pod = self._find(key, resize.uid, where)
        if pod is None:
            return
        self._judge_sizes(pod, resize.containers, where, "is resized")
        if resize.node != self.placements.get_node(key):
            self._object(where, key, f"is resized on {resize.node}, but is on {self.placements.get_node(key)}")
        if pod.is_finished or pod.terminating:
            self._object(where, key, "is resized, though it ends")
        if key in self._resized:
            self._object(where, key, "is resized twice")
        self._resized.add(key)
        for wrong in chain(find_removed_values(pod, resize.containers), find_growing_resource(pod, resize.containers)):
            self._object(where, key, wrong)
        self._pods[key] = predict_actuated_pod(pod, resize.containers)
        place = self.placements.get_node(key)
        if place is not None:
            self.placements.remove(key)
            self.placements.add(self._pods[key], place)

    def _leave(self, leave: PlannedPlacement | PlannedPreemption, where: str) -> None:
        key = leave.key
        pod = self._find(key, leave.uid, where)
        if pod is None:
            return
        if key in self._left:
            self._object(where, key, "leaves twice")
            return
        place = self.placements.get_node(key)
        if place is None or leave.source != place:
            self._object(where, key, f"leaves {leave.source}, but is on {place}")
            return
        why = self._leaving.explain_not_evictable(pod)
        if why is not None:
            self._object(where, key, f"may not be evicted: {why}")
        self._left.add(key)
        self.evicted.append(self.placements.remove(key))
        if isinstance(leave, PlannedPreemption):
            self._judge_preemption(pod, where)
        else:
            self._out[key] = leave

    def _judge_preemption(self, pod: Pod, where: str) -> None:
        highest = self._highest_waiting
        fixed = self._proposal.sizes is PackingSizes.FIXED
        if highest is None or pod.priority > highest or (pod.priority == highest and not fixed):
            self._object(
                where, get_pod_key(pod), f"of priority {pod.priority} is preempted for pods of at most {highest}"
            )

    def _arrive(self, arrival: PlannedPlacement, where: str) -> None:
        key = arrival.key
        pod = self._find(key, arrival.uid, where)
        if pod is None:
            return
        if self.placements.get_node(key) is not None:
            self._object(where, key, f"arrives on {arrival.target}, but is on {self.placements.get_node(key)}")
            return
        if arrival.source is None and not is_waiting_for_scheduling(pod):
            self._object(where, key, "arrives as if it were pending and free to be scheduled")
        if arrival.source is not None and self._out.pop(key, None) != arrival:
            self._object(where, key, f"arrives from {arrival.source} without having left it for {arrival.target}")
        if arrival.source == arrival.target:
            self._object(where, key, "moves to where it is")
        if arrival.containers:
            self._judge_sizes(pod, arrival.containers, where, "arrives with other sizes")
            pod = predict_actuated_pod(pod, arrival.containers)
        if arrival.target in self._preempted_nodes and not pod.preemption_allowed:
            self._object(where, key, f"never preempts, but gets room on {arrival.target} by preemption")
        if arrival.target in self.placements.nodes:
            if self._ask_scheduler(where, pod, arrival.target) and not self.evicted:
                self._welcome.append(key)
            self.arrived[key] = pod
            self.placements.add(pod, arrival.target)
        else:
            self._object(where, key, f"arrives on {arrival.target}, which does not exist")

    def _judge_sizes(self, pod: Pod, targets: Sequence[ContainerTarget], where: str, what: str) -> None:
        if self._proposal.sizes is PackingSizes.FIXED:
            self._object(where, get_pod_key(pod), f"{what}, though sizes are fixed")
        anothers = self._leaving.explain_owned_by_others(pod)
        if anothers is not None:
            self._object(where, get_pod_key(pod), f"{what}, though {anothers}")
        for wrong in check_sizes(self._snapshot, pod, targets):
            self._object(where, get_pod_key(pod), wrong)

    def _ask_scheduler(self, where: str, pod: Pod, node_name: str) -> bool:
        """Object to what refuses the pod there; tell whether nothing does."""
        refusals = list(self._scheduler.check(pod, self.placements.nodes[node_name]))
        for refusal in refusals:
            self._object(where, get_pod_key(pod), f"is not let onto {node_name}, which {refusal}")
        return not refusals

    def _find(self, key: PodKey, uid: str, where: str) -> Pod | None:
        pod = self._pods.get(key)
        if pod is None:
            self._object(where, key, "does not exist")
        elif pod.uid != uid:
            self._object(where, key, f"has uid {pod.uid}, not {uid}")
        else:
            return pod
        return None

    def _object(self, where: str, key: PodKey, what: str) -> None:
        self.objections.append(f"{where}pod {key[0]}/{key[1]} {what}")


def _made_by_preemption(proposal: PackingProposal) -> set[str]:
    """The nodes from which pods are preempted, and those from which pods move to such a one."""
    leaves = [leave for stage in proposal.stages for leave in stage.evictions]
    found = {gone.source for gone in (*proposal.preempted, *leaves) if isinstance(gone, PlannedPreemption)}
    moves = [
        (leave.source, leave.target)
        for leave in leaves
        if isinstance(leave, PlannedPlacement) and leave.source is not None
    ]
    while more := {source for source, target in moves if target in found} - found:
        found |= more
    return found

"""Every pod that counts, sorted into kinds: pods of a kind differ in nothing but what they take and where they run."""

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from cruise.decisions.packing.movability import MovabilityCheck, PodsOnUnknownNodes
from cruise.decisions.packing.node_masks import NOT_EVALUATED, NodeMasks, PlacementObstacle, find_node_obstacles
from cruise.decisions.packing.resources import ATTACH_PREFIX, ExtraResources, NominatedPods
from cruise.decisions.packing.volumes import VolumeIndex, VolumeRequirements
from cruise.decisions.pod_policy.evictability import is_node_bound_pod
from cruise.decisions.scheduling.filters import explain_unsupported_constraints, explain_unsupported_volumes
from cruise.decisions.scheduling.placements import LabelIndex, get_pod_key
from cruise.domain.cluster import DEFAULT_SCHEDULER, ClusterSnapshot, Pod
from cruise.domain.pod_resources import may_be_planned_on_cordoned_node
from cruise.domain.reasons import ReasonDetail, UnplacedPod, UnschedulableCode, UnschedulableReason
from cruise.domain.resources import BoolArray
from cruise.domain.scheduling import (
    LabelRequirement,
    LabelSelector,
    NodeSelectorTerm,
    SchedulingConstraints,
    SelectorOperator,
)

# Pods in groups of equal namespace and labels, so that a selector is evaluated for groups, never for pods.


class LabelGroups:
    """Numbers the distinct pairs of namespace and labels, and finds those that a selector means."""

    def __init__(self) -> None:
        self.groups: list[tuple[str, Mapping[str, str]]] = []
        self._numbers: dict[tuple[str, frozenset[tuple[str, str]]], int] = {}
        self._by_object: dict[tuple[str, int], int] = {}
        self._everywhere: LabelIndex[int] = LabelIndex()
        self._of_namespace: defaultdict[str, LabelIndex[int]] = defaultdict(LabelIndex)

    def get_group_number(self, pod: Pod) -> int:
        """Number a pod's group. The pod's labels must outlive this object: they are known again by identity."""
        by_object = (pod.namespace, id(pod.labels))
        number = self._by_object.get(by_object)
        if number is None:
            labels = frozenset(pod.labels.items())
            number = self._numbers.setdefault((pod.namespace, labels), len(self.groups))
            if number == len(self.groups):
                self.groups.append((pod.namespace, pod.labels))
                self._everywhere.add(labels, number)
                self._of_namespace[pod.namespace].add(labels, number)
            self._by_object[by_object] = number
        return number

    def find_selected(self, selector: LabelSelector, namespace: str | None = None) -> list[int]:
        """Return the groups that a selector selects, of one namespace or (None) of all."""
        index = self._everywhere if namespace is None else self._of_namespace[namespace]
        return [number for number in index.candidates(selector) if selector.matches(self.groups[number][1])]


Labels = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class PodGroup:
    """Pods that no rule tells apart. `pod` stands for all of them.

    `stays` is the detail that forbids their eviction, None where they may go; `covered` tells whether a
    PodDisruptionBudget covers them. They arrive only where nodes have the labels `within`;
    `of_node` tells whether they are there for their nodes' sake.
    """

    pod: Pod
    pending: bool
    immovable_reason: str | None
    weight: int
    requests: VolumeRequirements
    allowed_nodes: Labels = ()
    count_by_node: bool = False
    count: int = 0
    disruption_budgets: bool = False

    @property
    def running(self) -> int:
        """How many of them have a node."""
        return 0 if self.pending else self.count

    @property
    def may_arrive(self) -> bool:
        """Tell whether one of them may come to a node."""
        return self.pending or self.immovable_reason is None


class GroupedPod(NamedTuple):
    """A pod of the problem: its node's index (-1 while pending) and its kind's."""

    pod: Pod
    node: int
    group: int


@dataclass(slots=True)
class PodGroups:
    """All pods of a problem, sorted by namespace and name, their kinds, and the pods left out."""

    labels: LabelGroups = field(default_factory=LabelGroups)
    groups: list[PodGroup] = field(default_factory=list)
    groups_by_label: dict[int, list[int]] = field(default_factory=dict)  # the kinds of each group of labels
    pods: list[GroupedPod] = field(default_factory=list)
    ignored_pods: list[UnplacedPod] = field(default_factory=list)
    without_node: int = 0  # pods on nodes that are not known


def group_pods(
    snapshot: ClusterSnapshot,
    node_index: Mapping[str, int],
    movability: MovabilityCheck,
    within: Callable[[Pod], Labels] | None,
) -> PodGroups:
    """Sort a snapshot's pods; a finished one, and a pending one that is being deleted, count nowhere.

    `within` has the labels of the nodes that a running pod may go to, None where that is any.
    """
    counted = [pod for pod in sorted(snapshot.pods, key=get_pod_key) if not pod.is_finished]
    nowhere = [pod for pod in counted if pod.node is not None and pod.node not in node_index]
    kinds = _PodGrouping(snapshot, movability, within, nowhere)
    for pod in counted:
        kinds.volumes.get_in_use(pod)
    for pod in nowhere:
        kinds.volumes.reserve(pod)
    for pod in counted:
        node = None if pod.node is None else node_index.get(pod.node)
        if node is not None:
            kinds.take(pod, node)
    for pod in counted:
        if pod.node is None and not pod.terminating:
            gone = pod.nominated_node and pod.nominated_node not in node_index
            kinds.take_pending(replace(pod, nominated_node="") if gone else pod)
    kinds.census.pods.sort(key=lambda taken: get_pod_key(taken.pod))
    return kinds.census


def find_shared_volumes(census: PodGroups) -> frozenset[tuple[str, str]]:
    """Return for each driver the volume that the most pods share, if any do: (driver, volume).

    A node attaches it once for all of them. Of one a driver that can be counted; others count for each pod.
    """
    users = Counter[tuple[str, str]]()
    for kind in census.groups:
        for volume in kind.requests.attached:
            users[volume] += kind.count
    most = {driver: volume for (driver, volume), many in sorted(users.items(), key=lambda item: item[1]) if many > 1}
    return frozenset(most.items())


def get_extra_resources(pod: Pod, needs: VolumeRequirements, shared: Container[tuple[str, str]] = ()) -> ExtraResources:
    """Return what a pod takes beside CPU and memory, sorted by resource; what is `shared` is not counted."""
    # For a nominated pod room is kept.
    if has_nominated_node(pod) or not (pod.extended_requests or needs.attached):
        return ()
    attached = Counter(
        ATTACH_PREFIX + driver for driver, volume in needs.attached if (driver, volume) not in shared
    ).items()
    return tuple(sorted([*pod.extended_requests, *attached]))


def has_nominated_node(pod: Pod) -> bool:
    """Tell whether a pod waits for room that is kept for it on a node."""
    return pod.node is None and bool(pod.nominated_node)


class _PodGrouping:
    """Numbers kinds; what is equal by value is known by identity from then on."""

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        movability: MovabilityCheck,
        within: Callable[[Pod], Labels] | None,
        nowhere: Sequence[Pod],
    ) -> None:
        self.census = PodGroups(without_node=len(nowhere))
        self.volumes = VolumeIndex(snapshot.storage_and_namespaces)
        self._surroundings = snapshot.storage_and_namespaces
        self._elsewhere = PodsOnUnknownNodes(nowhere, snapshot.storage_and_namespaces)
        self._keeping_room = NominatedPods(snapshot)
        self._movability = movability
        self._within = within
        self._numbers: dict[tuple[Hashable, ...], int] = {}
        self._by_identity: dict[tuple[Hashable, ...], int] = {}

    def take_pending(self, pod: Pod) -> None:
        """Take a pending pod, or leave it out where no place would help it."""
        unjudged = (
            explain_unsupported_constraints(self._surroundings, pod)
            or self._keeping_room.explain_unsupported(pod)
            or self._elsewhere.explain_unsupported(pod)
        )
        missing = self.volumes.get_for_pod(pod).missing or self.volumes.explain_reserved(pod)
        if unjudged is not None:
            self._leave_out(
                pod,
                f"{NOT_EVALUATED}: {unjudged}",
                UnschedulableReason(UnschedulableCode.NOT_EVALUATED, unsupported=unjudged),
            )
        elif missing is not None:
            self._leave_out(pod, PlacementObstacle.VOLUME.value, missing)
        else:
            self.take(pod, -1)

    def _leave_out(self, pod: Pod, obstacle: str, finding: UnschedulableReason) -> None:
        impossible = finding.code is not UnschedulableCode.NOT_EVALUATED
        self.census.ignored_pods.append(UnplacedPod(pod.namespace, pod.name, (obstacle,), finding, impossible))

    def take(self, pod: Pod, node: int) -> None:
        """Take a pod that counts."""
        within = () if node < 0 or self._within is None else self._within(pod)
        # Decoding shares equal values, so replicas are mostly known by the identities of what they are made of.
        key = (
            pod.namespace,
            id(pod.labels),
            id(pod.annotations),
            id(pod.placement),
            id(pod.constraints),
            pod.extended_requests,
            id(pod.workload),
            pod.owner_kind,
            pod.restart_policy,
            pod.priority,
            pod.preemption_allowed,
            pod.mirror,
            pod.scheduler,
            pod.nominated_node,
            "" if node < 0 else self._movability.explain_immovable(pod),
            within,
        )
        kind = self._by_identity.get(key)
        if kind is None:
            kind = self._by_identity[key] = self._kind_of(pod, node < 0, within)
        self.census.groups[kind].count += 1
        self.census.pods.append(GroupedPod(pod, node, kind))

    def _kind_of(self, pod: Pod, pending: bool, within: Labels) -> int:
        group = self.census.labels.get_group_number(pod)
        stays, weight = self._movability.check(pod, group)
        needs = self.volumes.get_for_arriving_pod(pod) if pending else self.volumes.get_for_pod(pod)
        if not pending and stays is None:
            stays = self._why_not_elsewhere(pod, needs)
        of_node = is_node_bound_pod(pod)
        key = (
            group,
            stays,
            weight,
            pending,
            pod.terminating,
            pod.priority,
            pod.preemption_allowed,
            # Pods of a DaemonSet name their nodes, each its own; a pod that stays goes nowhere else.
            pod.placement if pending or stays is None else None,
            pod.constraints,
            pod.extended_requests,
            pod.workload,
            within,
            of_node,
            pod.nominated_node,
        )
        kind = self._numbers.get(key)
        if kind is None:
            kind = self._numbers[key] = len(self.census.groups)
            self.census.groups_by_label.setdefault(group, []).append(kind)
            self.census.groups.append(PodGroup(pod, pending, stays, weight, needs, within, of_node))
        return kind

    def _why_not_elsewhere(self, pod: Pod, needs: VolumeRequirements) -> str | None:
        if pod.scheduler != DEFAULT_SCHEDULER:
            return ReasonDetail.NOT_EVALUATED.create(f"scheduler {pod.scheduler}")
        unjudged = (
            explain_unsupported_volumes(self._surroundings, pod)
            or self._keeping_room.explain_unsupported(pod)
            or self._elsewhere.explain_unsupported(pod)
        )
        if unjudged is not None:
            return ReasonDetail.NOT_EVALUATED.create(unjudged)
        if needs.missing is not None:
            return ReasonDetail.VOLUME_UNKNOWN.create(needs.missing.claim)
        shared = self.volumes.get_shared(pod)
        return None if shared is None else ReasonDetail.VOLUME_SHARED.create(shared)


# Where each kind of pod may arrive: one mask over the nodes for all kinds that may go to the same ones.


class AllowedNodeMasks:
    """Numbers the distinct masks; number 0 is nowhere, which is also where kinds may arrive that never do."""

    def __init__(self, columns: NodeMasks) -> None:
        self._columns = columns
        self._masks: list[BoolArray] = [np.zeros(columns.count, dtype=np.bool_)]
        self._numbers: dict[bytes, int] = {self._masks[0].tobytes(): 0}
        self._known: dict[Hashable, int] = {}

    def get_mask_number(self, kind: PodGroup) -> int:
        """Number the nodes that a kind may arrive on, pods apart."""
        if not kind.may_arrive:
            return 0
        pod, asks = kind.pod, kind.pod.constraints
        # A pod for which room is kept on a node goes there alone.
        home = pod.nominated_node if kind.pending else ""
        passes = may_be_planned_on_cordoned_node(pod)
        known_by = (pod.placement, asks.affinity, asks.spread, kind.requests.terms, kind.allowed_nodes, home, passes)
        number = self._known.get(known_by)
        if number is None:
            closed = find_node_obstacles(self._columns, pod, kind.requests.terms)
            mask = ~np.logical_or.reduce(list(closed.values()))
            if home:
                mask &= self._columns.match_any_term((_at(home),))
            if kind.allowed_nodes:
                mask &= self._columns.match_affinity(SchedulingConstraints(node_selector=kind.allowed_nodes))
            number = self._numbers.setdefault(mask.tobytes(), len(self._masks))
            if number == len(self._masks):
                self._masks.append(mask)
            self._known[known_by] = number
        return number

    def build_table(self) -> BoolArray:
        """Return sites x nodes."""
        return np.array(self._masks, dtype=np.bool_)


def _at(node: str) -> NodeSelectorTerm:
    return NodeSelectorTerm(fields=(LabelRequirement("metadata.name", SelectorOperator.IN, (node,)),))

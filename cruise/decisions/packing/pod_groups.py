"""Groups the pods of a cluster: pods of a group differ only in the resources they need and the node they run on."""

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
from cruise.domain.arrays import BoolArray
from cruise.domain.cluster import DEFAULT_SCHEDULER, ClusterSnapshot, Pod
from cruise.domain.pod_resources import may_be_planned_on_cordoned_node
from cruise.domain.reasons import ReasonDetailCode, UnplacedPod, UnschedulableCode, UnschedulableReason
from cruise.domain.scheduling import (
    LabelRequirement,
    LabelSelector,
    NodeSelectorTerm,
    SchedulingConstraints,
    SelectorOperator,
)


class LabelGroups:
    """The distinct pairs of namespace and labels, numbered, so that a selector is evaluated once for each pair."""

    def __init__(self) -> None:
        self.groups: list[tuple[str, Mapping[str, str]]] = []
        self._numbers: dict[tuple[str, frozenset[tuple[str, str]]], int] = {}
        self._by_object: dict[tuple[str, int], int] = {}
        self._everywhere: LabelIndex[int] = LabelIndex()
        self._of_namespace: defaultdict[str, LabelIndex[int]] = defaultdict(LabelIndex)

    def get_group_number(self, pod: Pod) -> int:
        """Return the number of a pod's namespace and labels.

        The labels must outlive this object, because it recognizes them by identity.
        """
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
        """Return the numbers of the pairs that a selector matches in a namespace, or in all namespaces (None)."""
        index = self._everywhere if namespace is None else self._of_namespace[namespace]
        return [number for number in index.find_candidates(selector) if selector.matches(self.groups[number][1])]


Labels = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class PodGroup:
    """Pods that no rule distinguishes, represented by `pod`.

    `immovable_reason` is why they must not be evicted, None if they may be. They may arrive only on nodes with the
    labels `allowed_nodes`. `is_node_bound` is true for pods that run for the sake of their node.
    """

    pod: Pod
    pending: bool
    immovable_reason: str | None
    weight: int
    volumes: VolumeRequirements
    allowed_nodes: Labels = ()
    is_node_bound: bool = False
    count: int = 0
    has_disruption_budget: bool = False

    @property
    def running(self) -> int:
        """Return how many of the pods are bound to a node."""
        return 0 if self.pending else self.count

    @property
    def may_arrive(self) -> bool:
        """Return whether a pod of the group may be placed on a node."""
        return self.pending or self.immovable_reason is None


class GroupedPod(NamedTuple):
    """A pod with the index of its node (-1 while it is pending) and of its group."""

    pod: Pod
    node: int
    group: int


@dataclass(slots=True)
class PodGroups:
    """All pods of a problem, sorted by namespace and name, their groups, and the pods that were left out."""

    labels: LabelGroups = field(default_factory=LabelGroups)
    groups: list[PodGroup] = field(default_factory=list)
    groups_by_label: dict[int, list[int]] = field(default_factory=dict)  # by namespace and labels
    pods: list[GroupedPod] = field(default_factory=list)
    ignored_pods: list[UnplacedPod] = field(default_factory=list)
    unknown_node_pod_count: int = 0  # pods on unknown nodes


def group_pods(
    snapshot: ClusterSnapshot,
    node_index: Mapping[str, int],
    movability: MovabilityCheck,
    get_required_labels: Callable[[Pod], Labels],
) -> PodGroups:
    """Group the pods of a snapshot, without finished pods and pending pods that are being deleted.

    `get_required_labels` returns the labels that a running pod's next node must have.
    """
    active = [pod for pod in sorted(snapshot.pods, key=get_pod_key) if not pod.is_finished]
    on_unknown_nodes = [pod for pod in active if pod.node is not None and pod.node not in node_index]
    grouping = _PodGrouping(snapshot, movability, get_required_labels, on_unknown_nodes)
    for pod in active:
        grouping.volumes.add_user(pod)
    for pod in on_unknown_nodes:
        grouping.volumes.reserve(pod)
    for pod in active:
        node = None if pod.node is None else node_index.get(pod.node)
        if node is not None:
            grouping.add(pod, node)
    for pod in active:
        if pod.node is None and not pod.terminating:
            node_is_unknown = pod.nominated_node and pod.nominated_node not in node_index
            grouping.add_pending(replace(pod, nominated_node="") if node_is_unknown else pod)
    grouping.pod_groups.pods.sort(key=lambda grouped: get_pod_key(grouped.pod))
    return grouping.pod_groups


def find_most_shared_volumes(pod_groups: PodGroups) -> frozenset[tuple[str, str]]:
    """Return for each driver the volume that most pods share, as (driver, volume).

    A node attaches a shared volume once for all its pods. The model can express that for one volume of a driver; the
    others are counted for each pod.
    """
    users = Counter[tuple[str, str]]()
    for group in pod_groups.groups:
        for volume in group.volumes.attached:
            users[volume] += group.count
    shared = {
        driver: volume
        for (driver, volume), user_count in sorted(users.items(), key=lambda item: item[1])
        if user_count > 1
    }
    return frozenset(shared.items())


def get_extra_resources(
    pod: Pod, volumes: VolumeRequirements, shared: Container[tuple[str, str]] = ()
) -> ExtraResources:
    """Return what a pod needs besides CPU and memory, sorted by resource, without `shared` volumes."""
    # The capacity for a nominated pod is already subtracted from its node.
    if has_nominated_node(pod) or not (pod.extended_requests or volumes.attached):
        return ()
    attached = Counter(
        ATTACH_PREFIX + driver for driver, volume in volumes.attached if (driver, volume) not in shared
    ).items()
    return tuple(sorted([*pod.extended_requests, *attached]))


def has_nominated_node(pod: Pod) -> bool:
    """Return whether kube-scheduler reserves capacity on a node for this pending pod."""
    return pod.node is None and bool(pod.nominated_node)


class _PodGrouping:
    """Assigns pods to groups; equal values are recognized by identity after their first comparison."""

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        movability: MovabilityCheck,
        get_required_labels: Callable[[Pod], Labels],
        on_unknown_nodes: Sequence[Pod],
    ) -> None:
        self.pod_groups = PodGroups(unknown_node_pod_count=len(on_unknown_nodes))
        self.volumes = VolumeIndex(snapshot.storage_and_namespaces)
        self._storage_and_namespaces = snapshot.storage_and_namespaces
        self._pods_on_unknown_nodes = PodsOnUnknownNodes(on_unknown_nodes, snapshot.storage_and_namespaces)
        self._nominated_pods = NominatedPods(snapshot)
        self._movability = movability
        self._get_required_labels = get_required_labels
        self._numbers: dict[tuple[Hashable, ...], int] = {}
        self._by_identity: dict[tuple[Hashable, ...], int] = {}

    def add_pending(self, pod: Pod) -> None:
        """Add a pending pod, or ignore it if no placement would help."""
        unsupported = (
            explain_unsupported_constraints(self._storage_and_namespaces, pod)
            or self._nominated_pods.explain_unsupported(pod)
            or self._pods_on_unknown_nodes.explain_unsupported(pod)
        )
        missing = self.volumes.get_for_pod(pod).missing or self.volumes.explain_reserved(pod)
        if unsupported is not None:
            self._ignore(
                pod,
                f"{NOT_EVALUATED}: {unsupported}",
                UnschedulableReason(UnschedulableCode.NOT_EVALUATED, unsupported=unsupported),
            )
        elif missing is not None:
            self._ignore(pod, PlacementObstacle.VOLUME.value, missing)
        else:
            self.add(pod, -1)

    def _ignore(self, pod: Pod, obstacle: str, reason: UnschedulableReason) -> None:
        impossible = reason.code is not UnschedulableCode.NOT_EVALUATED
        self.pod_groups.ignored_pods.append(UnplacedPod(pod.namespace, pod.name, (obstacle,), reason, impossible))

    def add(self, pod: Pod, node: int) -> None:
        """Add a pod that is part of the problem."""
        required_labels = () if node < 0 else self._get_required_labels(pod)
        # Decoding shares equal values, so most replicas are recognized by the identity of their parts.
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
            pod.may_preempt,
            pod.is_mirror_pod,
            pod.scheduler,
            pod.nominated_node,
            "" if node < 0 else self._movability.explain_immovable(pod),
            required_labels,
        )
        group = self._by_identity.get(key)
        if group is None:
            group = self._by_identity[key] = self._get_group_number(pod, node < 0, required_labels)
        self.pod_groups.groups[group].count += 1
        self.pod_groups.pods.append(GroupedPod(pod, node, group))

    def _get_group_number(self, pod: Pod, pending: bool, required_labels: Labels) -> int:
        label_number = self.pod_groups.labels.get_group_number(pod)
        immovable_reason, weight = self._movability.check(pod, label_number)
        volumes = self.volumes.get_for_arriving_pod(pod) if pending else self.volumes.get_for_pod(pod)
        if not pending and immovable_reason is None:
            immovable_reason = self._explain_not_placeable(pod, volumes)
        is_node_bound = is_node_bound_pod(pod)
        key = (
            label_number,
            immovable_reason,
            weight,
            pending,
            pod.terminating,
            pod.priority,
            pod.may_preempt,
            # The placement of an immovable pod does not matter; pods of a DaemonSet differ in it.
            pod.placement if pending or immovable_reason is None else None,
            pod.constraints,
            pod.extended_requests,
            pod.workload,
            required_labels,
            is_node_bound,
            pod.nominated_node,
        )
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.pod_groups.groups)
            self.pod_groups.groups_by_label.setdefault(label_number, []).append(number)
            self.pod_groups.groups.append(
                PodGroup(pod, pending, immovable_reason, weight, volumes, required_labels, is_node_bound)
            )
        return number

    def _explain_not_placeable(self, pod: Pod, volumes: VolumeRequirements) -> str | None:
        if pod.scheduler != DEFAULT_SCHEDULER:
            return ReasonDetailCode.NOT_EVALUATED.create(f"scheduler {pod.scheduler}")
        unsupported = (
            explain_unsupported_volumes(self._storage_and_namespaces, pod)
            or self._nominated_pods.explain_unsupported(pod)
            or self._pods_on_unknown_nodes.explain_unsupported(pod)
        )
        if unsupported is not None:
            return ReasonDetailCode.NOT_EVALUATED.create(unsupported)
        if volumes.missing is not None:
            return ReasonDetailCode.VOLUME_UNKNOWN.create(volumes.missing.claim)
        shared_claim = self.volumes.find_shared_claim(pod)
        return None if shared_claim is None else ReasonDetailCode.VOLUME_SHARED.create(shared_claim)


class AllowedNodeMasks:
    """The distinct masks of nodes on which groups may arrive, numbered; number 0 is no node."""

    def __init__(self, node_masks: NodeMasks) -> None:
        self._node_masks = node_masks
        self._masks: list[BoolArray] = [np.zeros(node_masks.count, dtype=np.bool_)]
        self._numbers: dict[bytes, int] = {self._masks[0].tobytes(): 0}
        self._known: dict[Hashable, int] = {}

    def get_mask_number(self, group: PodGroup) -> int:
        """Return the number of the mask of nodes on which a group may arrive, other pods apart."""
        if not group.may_arrive:
            return 0
        pod, constraints = group.pod, group.pod.constraints
        # A nominated pod may only arrive on its nominated node.
        nominated_node = pod.nominated_node if group.pending else ""
        ignores_cordon = may_be_planned_on_cordoned_node(pod)
        key = (
            pod.placement,
            constraints.affinity,
            constraints.spread,
            group.volumes.terms,
            group.allowed_nodes,
            nominated_node,
            ignores_cordon,
            group.pending,
        )
        number = self._known.get(key)
        if number is None:
            obstacles = find_node_obstacles(self._node_masks, pod, group.volumes.terms)
            mask = ~np.logical_or.reduce(list(obstacles.values()))
            if not group.pending:
                mask &= self._node_masks.machines
            if nominated_node:
                mask &= self._node_masks.match_any_term((_match_node_name(nominated_node),))
            if group.allowed_nodes:
                mask &= self._node_masks.match_affinity(SchedulingConstraints(node_selector=group.allowed_nodes))
            number = self._numbers.setdefault(mask.tobytes(), len(self._masks))
            if number == len(self._masks):
                self._masks.append(mask)
            self._known[key] = number
        return number

    def build_table(self) -> BoolArray:
        """Return the masks as an array [mask, node]."""
        return np.array(self._masks, dtype=np.bool_)


def _match_node_name(node: str) -> NodeSelectorTerm:
    return NodeSelectorTerm(fields=(LabelRequirement("metadata.name", SelectorOperator.IN, (node,)),))

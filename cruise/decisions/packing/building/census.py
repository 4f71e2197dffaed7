"""Every pod that counts, sorted into kinds: pods of a kind differ in nothing but what they take and where they run."""

from collections import Counter
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from cruise.decisions.guidance.daemons import belongs_to_node
from cruise.decisions.packing.building.amounts import ATTACH, Extras
from cruise.decisions.packing.building.elsewhere import Elsewhere
from cruise.decisions.packing.building.kept_room import KeptRoom
from cruise.decisions.packing.building.labels import LabelGroups
from cruise.decisions.packing.building.movability import Movability
from cruise.decisions.packing.building.obstacle import NOT_JUDGED, Obstacle
from cruise.decisions.packing.building.volumes import VolumeNeeds, Volumes
from cruise.decisions.scheduling.board import key_of
from cruise.decisions.scheduling.claims import why_not_judged, why_volumes_not_judged
from cruise.domain.cluster import DEFAULT_SCHEDULER, Pod, Snapshot
from cruise.domain.details import Detail
from cruise.domain.unplaced import Finding, Pattern, Unplaced

Labels = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Kind:
    """Pods that no rule tells apart. `pod` stands for all of them.

    `stays` is the detail that forbids their eviction, None where they may go; `covered` tells whether a
    PodDisruptionBudget covers them. They arrive only where nodes have the labels `within`;
    `of_node` tells whether they are there for their nodes' sake.
    """

    pod: Pod
    pending: bool
    stays: str | None
    weight: int
    needs: VolumeNeeds
    within: Labels = ()
    of_node: bool = False
    count: int = 0
    covered: bool = False

    @property
    def running(self) -> int:
        """How many of them have a node."""
        return 0 if self.pending else self.count

    @property
    def arrives(self) -> bool:
        """Tell whether one of them may come to a node."""
        return self.pending or self.stays is None


class Taken(NamedTuple):
    """A pod of the problem: its node's index (-1 while pending) and its kind's."""

    pod: Pod
    node: int
    kind: int


@dataclass(slots=True)
class Census:
    """All pods of a problem, sorted by namespace and name, their kinds, and the pods left out."""

    labels: LabelGroups = field(default_factory=LabelGroups)
    kinds: list[Kind] = field(default_factory=list)
    of_group: dict[int, list[int]] = field(default_factory=dict)  # the kinds of each group of labels
    taken: list[Taken] = field(default_factory=list)
    left_out: list[Unplaced] = field(default_factory=list)
    nowhere: int = 0  # pods on nodes that are not known


def take_census(
    snapshot: Snapshot,
    node_index: Mapping[str, int],
    movability: Movability,
    within: Callable[[Pod], Labels] | None,
) -> Census:
    """Sort a snapshot's pods; a finished one, and a pending one that is being deleted, count nowhere.

    `within` has the labels of the nodes that a running pod may go to, None where that is any.
    """
    counted = [pod for pod in sorted(snapshot.pods, key=key_of) if not pod.terminal]
    nowhere = [pod for pod in counted if pod.node is not None and pod.node not in node_index]
    kinds = _Kinds(snapshot, movability, within, nowhere)
    for pod in counted:
        kinds.volumes.use(pod)
    for pod in nowhere:
        kinds.volumes.hold(pod)
    for pod in counted:
        node = None if pod.node is None else node_index.get(pod.node)
        if node is not None:
            kinds.take(pod, node)
    for pod in counted:
        if pod.node is None and not pod.terminating:
            gone = pod.nominated_node and pod.nominated_node not in node_index
            kinds.take_pending(replace(pod, nominated_node="") if gone else pod)
    kinds.census.taken.sort(key=lambda taken: key_of(taken.pod))
    return kinds.census


def shared_volumes(census: Census) -> frozenset[tuple[str, str]]:
    """Return for each driver the volume that the most pods share, if any do: (driver, volume).

    A node attaches it once for all of them. Of one a driver that can be counted; others count for each pod.
    """
    users = Counter[tuple[str, str]]()
    for kind in census.kinds:
        for volume in kind.needs.attached:
            users[volume] += kind.count
    most = {driver: volume for (driver, volume), many in sorted(users.items(), key=lambda item: item[1]) if many > 1}
    return frozenset(most.items())


def extras_of(pod: Pod, needs: VolumeNeeds, shared: Container[tuple[str, str]] = ()) -> Extras:
    """Return what a pod takes beside CPU and memory, sorted by resource; what is `shared` is not counted."""
    # For a nominated pod room is kept.
    if is_nominated(pod) or not (pod.extended_requests or needs.attached):
        return ()
    attached = Counter(ATTACH + driver for driver, volume in needs.attached if (driver, volume) not in shared).items()
    return tuple(sorted([*pod.extended_requests, *attached]))


def is_nominated(pod: Pod) -> bool:
    """Tell whether a pod waits for room that is kept for it on a node."""
    return pod.node is None and bool(pod.nominated_node)


class _Kinds:
    """Numbers kinds; what is equal by value is known by identity from then on."""

    def __init__(
        self,
        snapshot: Snapshot,
        movability: Movability,
        within: Callable[[Pod], Labels] | None,
        nowhere: Sequence[Pod],
    ) -> None:
        self.census = Census(nowhere=len(nowhere))
        self.volumes = Volumes(snapshot.surroundings)
        self._surroundings = snapshot.surroundings
        self._elsewhere = Elsewhere(nowhere, snapshot.surroundings)
        self._keeping_room = KeptRoom(snapshot)
        self._movability = movability
        self._within = within
        self._numbers: dict[tuple[Hashable, ...], int] = {}
        self._by_identity: dict[tuple[Hashable, ...], int] = {}

    def take_pending(self, pod: Pod) -> None:
        """Take a pending pod, or leave it out where no place would help it."""
        unjudged = (
            why_not_judged(self._surroundings, pod)
            or self._keeping_room.why_not_judged(pod)
            or self._elsewhere.why_not_judged(pod)
        )
        missing = self.volumes.of(pod).missing or self.volumes.why_held(pod)
        if unjudged is not None:
            self._leave_out(pod, f"{NOT_JUDGED}: {unjudged}", Finding(Pattern.NOT_JUDGED, unjudged=unjudged))
        elif missing is not None:
            self._leave_out(pod, Obstacle.VOLUME.value, missing)
        else:
            self.take(pod, -1)

    def _leave_out(self, pod: Pod, obstacle: str, finding: Finding) -> None:
        impossible = finding.pattern is not Pattern.NOT_JUDGED
        self.census.left_out.append(Unplaced(pod.namespace, pod.name, (obstacle,), finding, impossible))

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
            pod.preempts,
            pod.mirror,
            pod.scheduler,
            pod.nominated_node,
            "" if node < 0 else self._movability.own_reason(pod),
            within,
        )
        kind = self._by_identity.get(key)
        if kind is None:
            kind = self._by_identity[key] = self._kind_of(pod, node < 0, within)
        self.census.kinds[kind].count += 1
        self.census.taken.append(Taken(pod, node, kind))

    def _kind_of(self, pod: Pod, pending: bool, within: Labels) -> int:
        group = self.census.labels.number(pod)
        stays, weight = self._movability.of(pod, group)
        needs = self.volumes.of_arrival(pod) if pending else self.volumes.of(pod)
        if not pending and stays is None:
            stays = self._why_not_elsewhere(pod, needs)
        of_node = belongs_to_node(pod)
        key = (
            group,
            stays,
            weight,
            pending,
            pod.terminating,
            pod.priority,
            pod.preempts,
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
            kind = self._numbers[key] = len(self.census.kinds)
            self.census.of_group.setdefault(group, []).append(kind)
            self.census.kinds.append(Kind(pod, pending, stays, weight, needs, within, of_node))
        return kind

    def _why_not_elsewhere(self, pod: Pod, needs: VolumeNeeds) -> str | None:
        if pod.scheduler != DEFAULT_SCHEDULER:
            return Detail.NOT_JUDGED.of(f"scheduler {pod.scheduler}")
        unjudged = (
            why_volumes_not_judged(self._surroundings, pod)
            or self._keeping_room.why_not_judged(pod)
            or self._elsewhere.why_not_judged(pod)
        )
        if unjudged is not None:
            return Detail.NOT_JUDGED.of(unjudged)
        if needs.missing is not None:
            return Detail.VOLUME_UNKNOWN.of(needs.missing.claim)
        shared = self.volumes.shared_by(pod)
        return None if shared is None else Detail.VOLUME_SHARED.of(shared)

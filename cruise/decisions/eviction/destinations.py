"""Where the replacements of evicted pods can go: kube-scheduler's own rules, on the cluster as the pass leaves it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

import numpy as np

from cruise.decisions.eviction.ranking import EvictionDestinations
from cruise.decisions.scheduling.filters import (
    check_node,
    explain_unsupported_constraints,
    explain_unusable_claim,
    iterate_claims,
)
from cruise.decisions.scheduling.placements import PodKey, PodPlacements, get_pod_key, is_waiting_for_scheduling
from cruise.decisions.scheduling.pod_affinity import SchedulerFilters
from cruise.domain.annotations import HOSTNAME
from cruise.domain.cluster import ClusterSnapshot, Node, Pod, WorkloadRef
from cruise.domain.pod_resources import accepts_pod_despite_cordon, count_pod_requests
from cruise.domain.resources import NO_RESOURCES, Int64Array, Resources
from cruise.domain.scheduling import NodeSelectorTerm, get_permanent_taints

# The pod as it would be created anew; None where the API server would refuse it.
ReplacementPrediction = Callable[[Pod], Pod | None]


def _as_it_is(pod: Pod) -> Pod:
    return pod


class PodPredictions(NamedTuple):
    """What becomes of pods: one that is evicted is created `anew`, one that waits for room is `shrunk` meanwhile."""

    replacement: ReplacementPrediction
    shrunk: Callable[[Pod], Pod] = _as_it_is


class SpareCapacity(NamedTuple):
    """What a node could give to more pods: what kube-scheduler counts as free, and what its own pods do not need.

    `at_most` is what may be free there once all that can shrink has shrunk.
    """

    free: Resources
    unneeded: Resources
    limit: Resources = NO_RESOURCES


class _EvictionRecord(NamedTuple):
    """A pod that has left, and the node of its replacement with its need; None for one that a node is added for."""

    source: str
    target: str | None
    need: Resources


@dataclass(frozen=True, slots=True)
class _NodeEvictions:
    destinations: "ReplacementDestinations"
    pods: Sequence[Pod]

    def evict(self, index: int) -> bool:
        return self.destinations.evict(self.pods[index])

    def undo_eviction(self, index: int) -> None:
        self.destinations.undo_eviction(self.pods[index])


class ReplacementDestinations:
    """The places that the evictions of one pass take, one after the other, over all nodes.

    `spare` has the nodes that may take replacements: no more than what kube-scheduler counts as free there, and than
    what the node's own pods leave once they have what they need. What is pending already goes first, and no place is on
    a node that it may come to when others have shrunk. Nothing is looked up before the first pod is to leave.
    """

    def __init__(
        self, snapshot: ClusterSnapshot, prospects: PodPredictions, spare: Mapping[str, SpareCapacity]
    ) -> None:
        self._snapshot = snapshot
        self._prospects = prospects
        self._spare = spare
        self._gone: dict[PodKey, _EvictionRecord] = {}
        self._hopeless: set[tuple[object, ...]] = set()
        self._places: _PassPlacements | None = None

    def for_node(self, pods: Sequence[Pod]) -> EvictionDestinations:
        """Return the exits of one node's pods."""
        return _NodeEvictions(self, pods)

    def get_reserved_capacity(self) -> dict[str, Resources]:
        """Return the room that was given to replacements, by node."""
        found: dict[str, Resources] = {}
        for gone in self._gone.values():
            if gone.target is not None:
                found[gone.target] = found.get(gone.target, NO_RESOURCES) + gone.need
        return found

    def get_replacement_requests(self, pod: Pod) -> Resources:
        """Return what the replacement of a pod that is to leave asks for."""
        return self._gone[get_pod_key(pod)].need

    def evict(self, pod: Pod) -> bool:
        """Take a pod off its node and give its replacement a place; False, and nothing is done, where there is none."""
        # Replicas come back alike. Where a whole cluster is short, they are far too many to try each one.
        kind = (pod.namespace, pod.workload, pod.identity, id(pod.placement), id(pod.constraints))
        if kind in self._hopeless or pod.node is None:
            return False
        fresh = self._prospects.replacement(pod)
        if fresh is None or explain_unsupported_constraints(self._snapshot.storage_and_namespaces, fresh) is not None:
            self._hopeless.add(kind)
            return False
        places = self._places = self._places or _PassPlacements(self._snapshot, self._spare, self._prospects)
        places.remove(pod)
        target = places.put(fresh, beside=pod.node)
        if target is None and not self._may_be_ordered_for(fresh):
            if not places.has_room(pod.node, fresh):
                # Else it is a place for those elsewhere.
                self._hopeless.add(kind)
            places.add(pod, pod.node)
            return False
        self._gone[get_pod_key(pod)] = _EvictionRecord(pod.node, target, count_pod_requests(fresh))
        return True

    def undo_eviction(self, pod: Pod) -> None:
        """Put a pod back onto its node."""
        gone = self._gone.pop(get_pod_key(pod))
        self._hopeless.clear()
        if self._places is not None:
            if gone.target is not None:
                self._places.remove_from(gone.target, pod)
            self._places.add(pod, gone.source)

    def _may_be_ordered_for(self, pod: Pod) -> bool:
        """Tell whether a node will be added for the pod: none larger than those there are can be counted on."""
        if self._snapshot.node_autoscaler is None or self._is_pinned(pod):
            return False
        return self._places is not None and self._places.fits_when_new(pod)

    def _is_pinned(self, pod: Pod) -> bool:
        """Tell whether the pod cannot run on a node that is yet to come, or cannot run at all."""
        surroundings = self._snapshot.storage_and_namespaces
        for name, claim in iterate_claims(surroundings, pod):
            if explain_unusable_claim(pod, name, claim) is not None:
                return True
            if claim is not None and _name_nodes(claim.terms):
                return True
        return _name_nodes(pod.placement.terms) or any(key == HOSTNAME for key, _ in pod.placement.node_selector)


def _name_nodes(terms: Sequence[NodeSelectorTerm] | None) -> bool:
    """Tell whether what has to be met is met by nodes of certain names alone."""
    return bool(terms) and all(
        term.fields or any(one.key == HOSTNAME for one in term.expressions) for term in terms or ()
    )


class _PassPlacements:
    """The board of a pass, with what is free on each node in columns."""

    def __init__(
        self, snapshot: ClusterSnapshot, of_nodes: Mapping[str, SpareCapacity], prospects: PodPredictions
    ) -> None:
        rooms = [of_nodes.get(node.name, SpareCapacity(NO_RESOURCES, NO_RESOURCES)) for node in snapshot.nodes]
        self._board = PodPlacements(snapshot)
        self._scheduler = SchedulerFilters(self._board)
        self._nodes = snapshot.nodes
        self._daemons = _DaemonSetRequests(snapshot.pods, prospects.replacement)
        self._number = {node.name: number for number, node in enumerate(snapshot.nodes)}
        self._whole = np.maximum(_columns([node.allocatable for node in snapshot.nodes]), 1)
        self._free, self._spare = _columns([room.free for room in rooms]), _columns([room.unneeded for room in rooms])
        self._at_most = [room.limit for room in rooms]
        self._waiting = self._put_pending(snapshot, prospects.shrunk)

    def put(self, pod: Pod, *, beside: str | None = None) -> str | None:
        """Bind a pod that waits to the node with the most room that takes it; None where none does.

        One that is nominated for a node goes there or nowhere. One that takes the place of another is not to come back
        to its node, which it is `beside`, nor to take what others need.
        """
        need = count_pod_requests(pod)
        free = self._free if beside is None else self._unneeded
        room = free - (need.cpu_millicores, need.memory_bytes)
        holding = np.flatnonzero((room >= 0).all(axis=1))
        if beside is None and pod.nominated_node in self._number:
            holding = holding[holding == self._number[pod.nominated_node]]
        shares = (room[holding] / self._whole[holding]).min(axis=1)
        for number in holding[np.argsort(-shares, kind="stable")].tolist():
            node: Node = self._nodes[number]
            kept = beside is not None and (
                node.name == beside or any(self._may_come(one, number) for one in self._waiting)
            )
            if (
                not kept
                and accepts_pod_despite_cordon(node, pod)
                and next(self._scheduler.check(pod, node), None) is None
            ):
                self.add(pod, node.name)
                self._take(number, need, 1)
                return node.name
        return None

    def has_room(self, node: str, pod: Pod) -> bool:
        """Tell whether a node has room for the replacement of a pod."""
        need = count_pod_requests(pod)
        return bool((self._unneeded[self._number[node]] >= (need.cpu_millicores, need.memory_bytes)).all())

    @property
    def _unneeded(self) -> Int64Array:
        return np.minimum(self._free, self._spare)

    def fits_when_new(self, pod: Pod) -> bool:
        """Tell whether any node that the pod may run on would hold it beside no other pods than those of DaemonSets."""
        need, placement = count_pod_requests(pod), pod.placement
        return any(
            need.fits_in(node.allocatable)
            and placement.allows_node(node.name, node.labels)
            and placement.tolerates_all(get_permanent_taints(node.taints))
            and need.fits_in(node.allocatable - self._daemons.on(node))
            for node in self._nodes
        )

    def add(self, pod: Pod, node: str) -> None:
        """Put a pod on a node."""
        self._board.add(pod, node)
        self._count(node, count_pod_requests(pod), -1)

    def remove(self, pod: Pod) -> None:
        """Take a pod off its node."""
        if pod.node is not None:
            self._board.remove(get_pod_key(pod))
            self._count(pod.node, count_pod_requests(pod), 1)

    def remove_from(self, node: str, pod: Pod) -> None:
        """Take the replacement of a pod off its node."""
        need = count_pod_requests(self._board.remove(get_pod_key(pod)))
        self._count(node, need, 1)
        self._take(self._number[node], need, -1)

    def _put_pending(self, snapshot: ClusterSnapshot, shrunk: Callable[[Pod], Pod]) -> list[Pod]:
        """Give the pods that wait already the places that they will have; return one of each kind that has none.

        What finds no place as it is may find one once it has shrunk.
        """
        hopeless: dict[tuple[object, ...], Pod] = {}
        for pod in sorted(filter(is_waiting_for_scheduling, snapshot.pods), key=lambda pod: -pod.priority):
            # Replicas share what they are made of: where one finds no place, the others need not be tried.
            kind: tuple[object, ...] = (pod.namespace, id(pod.labels), id(pod.placement), id(pod.constraints))
            kind = (*kind, pod.nominated_node, count_pod_requests(pod))
            if kind not in hopeless and self.put(pod) is None and self.put(small := shrunk(pod)) is None:
                hopeless[kind] = small
        return list(hopeless.values())

    def _may_come(self, pod: Pod, number: int) -> bool:
        """Tell whether a pod that waits may go to a node once its pods have shrunk."""
        fits = count_pod_requests(pod).fits_in(self._at_most[number])
        return fits and next(check_node(self._board, pod, self._nodes[number]), None) is None

    def _count(self, node: str, amount: Resources, step: int) -> None:
        number = self._number.get(node)
        if number is not None:
            self._free[number] += (step * amount.cpu_millicores, step * amount.memory_bytes)

    def _take(self, number: int, amount: Resources, step: int) -> None:
        self._spare[number] -= (step * amount.cpu_millicores, step * amount.memory_bytes)


class _DaemonSetRequests:
    """What the DaemonSets' pods take of each node, or of another like it that is new.

    They count as they are, and as they would be created: what they have now may be less, and grow in this very pass.
    One that is not on a node, though its selector and its tolerations let it, counts there as its largest elsewhere.
    """

    def __init__(self, pods: Sequence[Pod], replacement: ReplacementPrediction) -> None:
        self._replacement = replacement
        self._sets: dict[tuple[str, WorkloadRef | None], dict[str, Pod]] = {}
        for pod in pods:
            if pod.owner_kind == "DaemonSet":
                # Its identity is its node, also while it waits for room there.
                self._sets.setdefault((pod.namespace, pod.workload), {})[pod.identity] = pod
        self._largest: dict[tuple[str, WorkloadRef | None], Resources] = {}
        self._known: dict[str, Resources] = {}

    def on(self, node: Node) -> Resources:
        """Return what all of them take of a node."""
        known = self._known.get(node.name)
        if known is None:
            known = self._known[node.name] = sum((self._of(one, node) for one in self._sets), NO_RESOURCES)
        return known

    def _of(self, key: tuple[str, WorkloadRef | None], node: Node) -> Resources:
        pods = self._sets[key]
        there = pods.get(node.name)
        if there is not None:
            return self._most(there)
        placement = replace(next(iter(pods.values())).placement, terms=None)
        if not (
            placement.allows_node(node.name, node.labels) and placement.tolerates_all(get_permanent_taints(node.taints))
        ):
            return NO_RESOURCES
        if key not in self._largest:
            self._largest[key] = reduce(Resources.at_least, map(self._most, pods.values()))
        return self._largest[key]

    def _most(self, pod: Pod) -> Resources:
        anew = self._replacement(pod)
        return count_pod_requests(pod).at_least(NO_RESOURCES if anew is None else count_pod_requests(anew))


def _columns(amounts: Sequence[Resources]) -> Int64Array:
    return np.array([(one.cpu_millicores, one.memory_bytes) for one in amounts], dtype=np.int64).reshape(-1, 2)

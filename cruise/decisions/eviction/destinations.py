"""Finds nodes for the replacements of evicted pods by kube-scheduler's rules, on the cluster as the pass leaves it."""

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
    get_platform_labels,
    iterate_claims,
    matches_platform_labels,
)
from cruise.decisions.scheduling.placements import PodKey, PodPlacements, get_pod_key, is_waiting_for_scheduling
from cruise.decisions.scheduling.pod_affinity import SchedulerFilters
from cruise.domain.annotations import HOSTNAME
from cruise.domain.arrays import Int64Array
from cruise.domain.cluster import ClusterSnapshot, Node, Pod, WorkloadRef
from cruise.domain.pod_resources import accepts_pod_despite_cordon, count_pod_requests
from cruise.domain.resources import NO_RESOURCES, Resources
from cruise.domain.scheduling import NodeSelectorTerm, get_permanent_taints

# Predicts a pod's replacement as it would be created; None if the API server would reject it.
ReplacementPrediction = Callable[[Pod], Pod | None]


def _keep(pod: Pod) -> Pod:
    return pod


class PodPredictor(NamedTuple):
    """Predicts pods: the replacement of an evicted pod, and a pending pod once it has shrunk."""

    replacement: ReplacementPrediction
    shrunk: Callable[[Pod], Pod] = _keep


class SpareCapacity(NamedTuple):
    """What a node can give to more pods: what kube-scheduler counts as free, and what its own pods do not need.

    `limit` is what may be free once all its pods have shrunk.
    """

    free: Resources
    unneeded: Resources
    limit: Resources = NO_RESOURCES


class _EvictionRecord(NamedTuple):
    """An evicted pod's node, and its replacement's node and requests; `target` is None if a node will be added."""

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
    """The nodes reserved for replacements in one pass, one eviction after the other.

    A replacement gets no more of a node than kube-scheduler counts as free, and than the node's own pods do not need.
    Pending pods are placed first; a node that one of them may get after others have shrunk is not used. Nothing is
    computed before the first eviction.
    """

    def __init__(
        self, snapshot: ClusterSnapshot, predictions: PodPredictor, spare: Mapping[str, SpareCapacity]
    ) -> None:
        self._snapshot = snapshot
        self._predictions = predictions
        self._spare = spare
        self._evicted: dict[PodKey, _EvictionRecord] = {}
        self._without_destination: set[tuple[object, ...]] = set()
        self._placements: _PassPlacements | None = None

    def get_for_node(self, pods: Sequence[Pod]) -> EvictionDestinations:
        """Return the destinations for one node's pods."""
        return _NodeEvictions(self, pods)

    def get_reserved_capacity(self) -> dict[str, Resources]:
        """Return the capacity reserved for replacements, by node."""
        by_node: dict[str, Resources] = {}
        for record in self._evicted.values():
            if record.target is not None:
                by_node[record.target] = by_node.get(record.target, NO_RESOURCES) + record.need
        return by_node

    def get_replacement_requests(self, pod: Pod) -> Resources:
        """Return what the replacement of an evicted pod requests."""
        return self._evicted[get_pod_key(pod)].need

    def evict(self, pod: Pod) -> bool:
        """Remove a pod from its node and reserve a node for its replacement.

        If no node can take it, or kube-scheduler would choose the same node again, at once or when the pod has
        terminated, nothing changes and the result is False.
        """
        # Replicas have equal replacements. If a whole cluster is short, they are too many to try each one.
        kind = (pod.namespace, pod.workload, pod.identity, id(pod.placement), id(pod.constraints))
        if kind in self._without_destination or pod.node is None:
            return False
        replacement = self._predictions.replacement(pod)
        if (
            replacement is None
            or explain_unsupported_constraints(self._snapshot.storage_and_namespaces, replacement) is not None
        ):
            self._without_destination.add(kind)
            return False
        placements = self._placements = self._placements or _PassPlacements(
            self._snapshot, self._spare, self._predictions
        )
        if placements.prefers_node(pod.node, replacement):
            return False
        placements.evict(pod)
        target = placements.schedule(replacement, source=pod.node)
        if target is None:
            will_get_new_node = self._will_get_new_node(replacement, pod.node)
            if not will_get_new_node and not placements.has_capacity(pod.node, replacement):
                # Otherwise the node is a destination for equal pods on other nodes.
                self._without_destination.add(kind)
            # The pod has terminated before a node is added.
            if not will_get_new_node or placements.returns_to_node(pod.node, pod, replacement):
                placements.restore(pod, pod.node)
                return False
        self._evicted[get_pod_key(pod)] = _EvictionRecord(pod.node, target, count_pod_requests(replacement))
        return True

    def undo_eviction(self, pod: Pod) -> None:
        """Return a pod to its node."""
        record = self._evicted.pop(get_pod_key(pod))
        self._without_destination.clear()
        if self._placements is not None:
            if record.target is not None:
                self._placements.remove_from(record.target, pod)
            self._placements.restore(pod, record.source)

    def _will_get_new_node(self, pod: Pod, source: str) -> bool:
        """Return whether a node autoscaler will add a node for the pod; none larger than the known ones is assumed."""
        if self._snapshot.node_autoscaler is None or self._is_pinned(pod):
            return False
        return self._placements is not None and self._placements.fits_when_new(pod, source)

    def _is_pinned(self, pod: Pod) -> bool:
        """Return whether the pod cannot run on an added node, or cannot run at all."""
        storage = self._snapshot.storage_and_namespaces
        for name, claim in iterate_claims(storage, pod):
            if explain_unusable_claim(pod, name, claim) is not None:
                return True
            if claim is not None and _names_nodes(claim.terms):
                return True
        return _names_nodes(pod.placement.terms) or any(key == HOSTNAME for key, _ in pod.placement.node_selector)


def _names_nodes(terms: Sequence[NodeSelectorTerm] | None) -> bool:
    """Return whether only nodes of certain names match the terms."""
    return bool(terms) and all(
        term.fields or any(one.key == HOSTNAME for one in term.expressions) for term in terms or ()
    )


class _PassPlacements:
    """The pod placements of a pass, with the free capacity of each node in columns."""

    def __init__(
        self, snapshot: ClusterSnapshot, spare_by_node: Mapping[str, SpareCapacity], predictions: PodPredictor
    ) -> None:
        capacities = [
            spare_by_node.get(node.name, SpareCapacity(NO_RESOURCES, NO_RESOURCES)) for node in snapshot.nodes
        ]
        self._pod_placements = PodPlacements(snapshot)
        self._scheduler = SchedulerFilters(self._pod_placements)
        self._nodes = snapshot.nodes
        self._daemonsets = _DaemonSetRequests(snapshot.pods, predictions.replacement)
        self._number = {node.name: number for number, node in enumerate(snapshot.nodes)}
        self._whole = np.maximum(_columns([node.allocatable for node in snapshot.nodes]), 1)
        self._free, self._spare = (
            _columns([one.free for one in capacities]),
            _columns([one.unneeded for one in capacities]),
        )
        self._terminating = np.zeros_like(self._free)
        self._limits = [one.limit for one in capacities]
        self._pending = self._put_pending(snapshot, predictions.shrunk)

    def schedule(self, pod: Pod, *, source: str | None = None) -> str | None:
        """Bind a pod to the node with the most free capacity that allows it; return None if there is none.

        A pod with a nominated node is bound there or nowhere. A replacement (with a `source` node) is not bound to that
        node, nor to a virtual one or one of another platform, nor to capacity that pending pods need.
        """
        requests = count_pod_requests(pod)
        free = self._free if source is None else self._unneeded
        remaining = free - (requests.cpu_millicores, requests.memory_bytes)
        candidates = np.flatnonzero((remaining >= 0).all(axis=1))
        if source is None and pod.nominated_node in self._number:
            candidates = candidates[candidates == self._number[pod.nominated_node]]
        platform = self._get_platform(pod, source)
        shares = (remaining[candidates] / self._whole[candidates]).min(axis=1)
        for number in candidates[np.argsort(-shares, kind="stable")].tolist():
            node: Node = self._nodes[number]
            excluded = source is not None and (
                node.name == source
                or node.is_virtual
                or not matches_platform_labels(node, platform)
                or any(self._may_be_scheduled(one, number) for one in self._pending)
            )
            if not excluded and self._passes_filters(node, pod):
                self.add(pod, node.name)
                self._use_spare(number, requests, 1)
                return node.name
        return None

    def prefers_node(self, name: str, pod: Pod) -> bool:
        """Return whether kube-scheduler, which spreads pods by requests, prefers a node for a pod to all others.

        Evicted pods still count on their nodes: replacements are scheduled while they terminate.
        """
        requests, number = count_pod_requests(pod), self._number[name]
        remaining = self._free - self._terminating - (requests.cpu_millicores, requests.memory_bytes)
        if (remaining[number] < 0).any() or not self._passes_filters(self._nodes[number], pod):
            return False
        shares = (remaining / self._whole).mean(axis=1)
        better = np.flatnonzero((remaining >= 0).all(axis=1) & (shares > shares[number])).tolist()
        return not any(self._passes_filters(self._nodes[at], pod) for at in better)

    def returns_to_node(self, name: str, evicted: Pod, pod: Pod) -> bool:
        """Return whether no node passes kube-scheduler's filters for a replacement before its pod has terminated.

        Then the pod's node does. Other evicted pods still count: they may stay for lack of a budget.
        """
        number, (own, requests) = self._number[name], _columns([count_pod_requests(one) for one in (evicted, pod)])
        remaining = self._free - self._terminating - requests
        if (remaining[number] + own < 0).any() or not self._passes_filters(self._nodes[number], pod):
            return False
        feasible_now = np.flatnonzero((remaining >= 0).all(axis=1)).tolist()
        return not any(self._passes_filters(self._nodes[at], pod) for at in feasible_now)

    def _passes_filters(self, node: Node, pod: Pod) -> bool:
        return accepts_pod_despite_cordon(node, pod) and next(self._scheduler.check(pod, node), None) is None

    def has_capacity(self, node: str, pod: Pod) -> bool:
        """Return whether a node has free capacity for the replacement of a pod."""
        requests = count_pod_requests(pod)
        return bool((self._unneeded[self._number[node]] >= (requests.cpu_millicores, requests.memory_bytes)).all())

    @property
    def _unneeded(self) -> Int64Array:
        return np.minimum(self._free, self._spare)

    def _get_platform(self, pod: Pod, source: str | None) -> tuple[tuple[str, str], ...]:
        number = None if source is None else self._number.get(source)
        return () if number is None else get_platform_labels(pod, self._nodes[number])

    def fits_when_new(self, pod: Pod, source: str) -> bool:
        """Return whether a new node like one that the pod may run on would hold it next to DaemonSet pods.

        `source` is the node of the pod that it replaces.
        """
        requests, placement, platform = count_pod_requests(pod), pod.placement, self._get_platform(pod, source)
        return any(
            requests.fits_in(node.allocatable)
            and all(node.allocatable_extended.get(name, 0) >= amount for name, amount in pod.extended_requests)
            and placement.allows_node(node.name, node.labels)
            and placement.tolerates_all(get_permanent_taints(node.taints))
            and matches_platform_labels(node, platform)
            and not node.is_virtual
            and requests.fits_in(node.allocatable - self._daemonsets.get_for_node(node))
            for node in self._nodes
        )

    def add(self, pod: Pod, node: str) -> None:
        """Add a pod to a node."""
        self._pod_placements.add(pod, node)
        self._count(self._free, node, count_pod_requests(pod), -1)

    def evict(self, pod: Pod) -> None:
        """Remove a pod from its node."""
        if pod.node is not None:
            requests = count_pod_requests(self._pod_placements.remove(get_pod_key(pod)))
            self._count(self._free, pod.node, requests, 1)
            self._count(self._terminating, pod.node, requests, 1)

    def restore(self, pod: Pod, node: str) -> None:
        """Return an evicted pod to its node."""
        self.add(pod, node)
        self._count(self._terminating, node, count_pod_requests(pod), -1)

    def remove_from(self, node: str, pod: Pod) -> None:
        """Remove the replacement of a pod from its node."""
        requests = count_pod_requests(self._pod_placements.remove(get_pod_key(pod)))
        self._count(self._free, node, requests, 1)
        self._use_spare(self._number[node], requests, -1)

    def _put_pending(self, snapshot: ClusterSnapshot, shrunk: Callable[[Pod], Pod]) -> list[Pod]:
        """Place the pods that are pending already; return one of each kind that fits nowhere.

        A pod that does not fit as it is may fit once it has shrunk.
        """
        unplaced: dict[tuple[object, ...], Pod] = {}
        for pod in sorted(filter(is_waiting_for_scheduling, snapshot.pods), key=lambda pod: -pod.priority):
            # Replicas share their specs: if one does not fit, the others need not be tried.
            kind: tuple[object, ...] = (pod.namespace, id(pod.labels), id(pod.placement), id(pod.constraints))
            kind = (*kind, pod.nominated_node, count_pod_requests(pod))
            if kind not in unplaced and self.schedule(pod) is None and self.schedule(small := shrunk(pod)) is None:
                unplaced[kind] = small
        return list(unplaced.values())

    def _may_be_scheduled(self, pod: Pod, number: int) -> bool:
        """Return whether a pending pod may be scheduled to a node once its pods have shrunk."""
        fits = count_pod_requests(pod).fits_in(self._limits[number])
        return fits and next(check_node(self._pod_placements, pod, self._nodes[number]), None) is None

    def _count(self, by_node: Int64Array, node: str, amount: Resources, step: int) -> None:
        number = self._number.get(node)
        if number is not None:
            by_node[number] += (step * amount.cpu_millicores, step * amount.memory_bytes)

    def _use_spare(self, number: int, amount: Resources, step: int) -> None:
        self._spare[number] -= (step * amount.cpu_millicores, step * amount.memory_bytes)


class _DaemonSetRequests:
    """What DaemonSets request of each node, or of a new node like it.

    Their pods count with the larger of their present requests and those at creation: they may grow in this pass. A
    DaemonSet without a pod on a node that it could run on counts there with its largest pod.
    """

    def __init__(self, pods: Sequence[Pod], replacement: ReplacementPrediction) -> None:
        self._replacement = replacement
        self._sets: dict[tuple[str, WorkloadRef | None], dict[str, Pod]] = {}
        for pod in pods:
            if pod.owner_kind == "DaemonSet":
                # Its identity is its node, also while it is pending.
                self._sets.setdefault((pod.namespace, pod.workload), {})[pod.identity] = pod
        self._largest: dict[tuple[str, WorkloadRef | None], Resources] = {}
        self._known: dict[str, Resources] = {}

    def get_for_node(self, node: Node) -> Resources:
        """Return what all DaemonSets request of a node."""
        known = self._known.get(node.name)
        if known is None:
            known = self._known[node.name] = sum((self._get_requests(one, node) for one in self._sets), NO_RESOURCES)
        return known

    def _get_requests(self, key: tuple[str, WorkloadRef | None], node: Node) -> Resources:
        pods = self._sets[key]
        there = pods.get(node.name)
        if there is not None:
            return self._get_largest_requests(there)
        placement = replace(next(iter(pods.values())).placement, terms=None)
        if not (
            placement.allows_node(node.name, node.labels) and placement.tolerates_all(get_permanent_taints(node.taints))
        ):
            return NO_RESOURCES
        if key not in self._largest:
            self._largest[key] = reduce(Resources.max_with, map(self._get_largest_requests, pods.values()))
        return self._largest[key]

    def _get_largest_requests(self, pod: Pod) -> Resources:
        replacement = self._replacement(pod)
        return count_pod_requests(pod).max_with(
            NO_RESOURCES if replacement is None else count_pod_requests(replacement)
        )


def _columns(amounts: Sequence[Resources]) -> Int64Array:
    return np.array([(one.cpu_millicores, one.memory_bytes) for one in amounts], dtype=np.int64).reshape(-1, 2)

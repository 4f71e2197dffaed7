"""The room that kube-scheduler keeps on a node for a pod for which it has preempted others there."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from cruise.decisions.packing.building.amounts import ATTACH
from cruise.decisions.scheduling.attachments import attached_for, attached_for_running
from cruise.decisions.scheduling.board import Board, key_of, waits_for_a_node
from cruise.decisions.scheduling.claims import claims_of
from cruise.decisions.scheduling.filters import refuse_by_node
from cruise.decisions.scheduling.scheduler import Scheduler
from cruise.domain.arrays import Int64Array
from cruise.domain.cluster import Node, Pod, Snapshot
from cruise.domain.colocation import UNCONSTRAINED
from cruise.domain.requests import counted_requests


class KeptRoom:
    """Pods with a nominated node: each goes there once what was preempted is gone, and until then nowhere."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._nodes = {node.name: node for node in snapshot.nodes}
        nominated = [pod for pod in snapshot.pods if pod.nominated_node in self._nodes and waits_for_a_node(pod)]
        self._surroundings = snapshot.surroundings
        # One for all that rules do not tell apart.
        self._nominated = list({_seen_by_rules(pod): pod for pod in nominated}.values())
        board = Board(snapshot) if nominated else None
        scheduler = Scheduler(board) if board else None
        self._may_come: dict[tuple[str, str], bool] = {}
        # The highest priority comes first, as it does in the queue.
        for pod in sorted(nominated, key=lambda one: -one.priority):
            assert board is not None and scheduler is not None
            comes = next(scheduler.refuse(pod, self._nodes[pod.nominated_node]), None) is None
            self._may_come[key_of(pod)] = comes
            if comes:
                board.add(pod, pod.nominated_node)

    def may_come(self, pod: Pod) -> bool:
        """Tell whether a pod is nominated for a node whose room for it is free by now."""
        return self._may_come.get(key_of(pod), False)

    def why_not_judged(self, pod: Pod) -> str | None:
        """Say what is not known of a pod until pods have come to the nodes that they are nominated for; None for none.

        That is a nominated pod itself while what it has preempted is still there. Of others it is each to which a
        nominated pod of the same or a higher priority is, or will be, one that their rules speak of.
        """
        if key_of(pod) in self._may_come:
            waits = not self._may_come[key_of(pod)]
            return f"nominated for {pod.nominated_node}, where its room is not free yet" if waits else None
        for one in self._nominated:
            if one.priority >= pod.priority and self._are_tied(pod, one):
                return f"its rules concern {one.namespace}/{one.name}, which is nominated for {one.nominated_node}"
        return None

    def _are_tied(self, pod: Pod, nominated: Pod) -> bool:
        """Tell whether the place of a nominated pod decides where another pod may go."""
        asks, others = pod.constraints, nominated.constraints
        if asks is UNCONSTRAINED and not others.anti_affinity:
            return False
        if pod.namespace == nominated.namespace and (
            set(asks.claims) & set(others.claims) or any(one.counts(nominated.labels) for one in asks.spread)
        ):
            return True
        node = self._nodes[nominated.nominated_node]
        if pod.placement.admits(node.name, node.labels) and any(
            one.collides_with(other) for one in asks.host_ports for other in others.host_ports
        ):
            return True
        return any(
            self._surroundings.mean(term, nominated.namespace, nominated.labels)
            for term in (*asks.affinity, *asks.anti_affinity)
        ) or any(self._surroundings.mean(term, pod.namespace, pod.labels) for term in others.anti_affinity)


def _seen_by_rules(pod: Pod) -> tuple[object, ...]:
    node = pod.nominated_node if pod.constraints.host_ports else ""
    return pod.namespace, frozenset(pod.labels.items()), pod.constraints, pod.priority, node


def may_take_kept_room(snapshot: Snapshot, pods: Iterable[Pod]) -> Iterator[Pod]:
    """Yield the pending pods that may fit where room is kept for a lower priority, from which it is not kept."""
    nodes = {node.name: node for node in snapshot.nodes}
    kept = [
        (one.priority, nodes[one.nominated_node])
        for one in snapshot.pods
        if one.nominated_node in nodes and waits_for_a_node(one)
    ]
    if not kept:
        return
    board = Board(snapshot)
    for pod in pods:
        if pod.node is None and any(
            low < pod.priority
            and counted_requests(pod).fits_in(node.allocatable)
            and not any(refuse_by_node(board, pod, node))
            for low, node in kept
        ):
            yield pod


def without_lower_nominations(snapshot: Snapshot, pods: Sequence[Pod]) -> Snapshot | None:
    """Return the snapshot as it is for `pods`, which wait: for kube-scheduler room is kept from no higher priority.

    Pods lose their nomination where one of `pods` may take the room, which is free already. None where there are none.
    """
    kept_room = KeptRoom(snapshot)
    freed = {
        key_of(one)
        for one in snapshot.pods
        if kept_room.may_come(one) and any(may_take_kept_room(replace(snapshot, pods=(one,)), pods))
    }
    if not freed:
        return None
    changed = (replace(one, nominated_node="") if key_of(one) in freed else one for one in snapshot.pods)
    return replace(snapshot, pods=tuple(changed))


def without_kept_room(
    capacities: Int64Array, snapshot: Snapshot, nodes: Sequence[Node], names: Sequence[str]
) -> Int64Array:
    """Return what nodes have for all other pods; those that room is kept for take nothing of it."""
    place = {node.name: number for number, node in enumerate(nodes)}
    left = capacities.copy()
    for pod in snapshot.pods:
        if pod.nominated_node in place and waits_for_a_node(pod):
            counted = counted_requests(pod)
            amounts = {"cpu": counted.cpu_millicores, "memory": counted.memory_bytes, "pods": 1}
            amounts |= dict(pod.extended_requests) | _attaches(snapshot, pod)
            left[place[pod.nominated_node]] -= [amounts.get(name, 0) for name in names]
    return np.maximum(left, 0)


def _attaches(snapshot: Snapshot, pod: Pod) -> dict[str, int]:
    """Return how many volumes of each driver a nominated pod attaches to its node, beside those of pods there."""
    surroundings = snapshot.surroundings
    volumes = attached_for(claim for _, claim in claims_of(surroundings, pod))
    if volumes:
        for other in snapshot.pods:
            if other.node == pod.nominated_node and not other.terminal:
                volumes -= attached_for_running(surroundings, other)
    return Counter(ATTACH + driver for driver, _ in volumes)

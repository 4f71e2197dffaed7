"""The room that kube-scheduler keeps on a node for a pod for which it has preempted others there."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from cruise.decisions.scheduling.board import Board, key_of, waits_for_a_node
from cruise.decisions.scheduling.filters import refuse_by_node
from cruise.decisions.scheduling.scheduler import Scheduler
from cruise.domain.arrays import Int64Array
from cruise.domain.cluster import Node, Pod, Snapshot
from cruise.domain.requests import counted_requests


class KeptRoom:
    """Pods with a nominated node: each goes there once what was preempted is gone, and until then nowhere."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._nodes = {node.name: node for node in snapshot.nodes}
        nominated = [pod for pod in snapshot.pods if pod.nominated_node in self._nodes and waits_for_a_node(pod)]
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

    def why_not_judged(self, pod: Pod) -> str | None:
        """Say for which node a pod waits where what it has preempted is still there; None for any other pod."""
        waits = self._may_come.get(key_of(pod)) is False
        return f"nominated for {pod.nominated_node}, where its room is not free yet" if waits else None


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


def without_kept_room(
    capacities: Int64Array,
    pods: Iterable[Pod],
    nodes: Sequence[Node],
    names: Sequence[str],
) -> Int64Array:
    """Return what nodes have for all other pods; those that room is kept for take their volumes alone of it."""
    place = {node.name: number for number, node in enumerate(nodes)}
    left = capacities.copy()
    for pod in pods:
        if pod.nominated_node in place and waits_for_a_node(pod):
            counted = counted_requests(pod)
            amounts = {"cpu": counted.cpu_millicores, "memory": counted.memory_bytes, "pods": 1}
            amounts |= dict(pod.extended_requests)
            left[place[pod.nominated_node]] -= [amounts.get(name, 0) for name in names]
    return np.maximum(left, 0)

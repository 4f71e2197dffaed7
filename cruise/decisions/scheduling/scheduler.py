"""Whether kube-scheduler would let a pod onto a node: all of its filters over one board."""

from collections.abc import Iterator
from itertools import chain

from cruise.decisions.scheduling.board import Board, key_of
from cruise.decisions.scheduling.filters import (
    refuse_by_attach_limits,
    refuse_by_node,
    refuse_by_ports,
    refuse_by_room,
    refuse_by_volumes,
)
from cruise.decisions.scheduling.neighbours import Spreads, refuse_by_affinity, refuse_by_anti_affinity
from cruise.domain.cluster import Node, Pod


class Scheduler:
    """All of kube-scheduler's filters over one board."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._spreads = Spreads(board)

    def refuse(self, pod: Pod, node: Node) -> Iterator[str]:
        """Say everything that keeps the pod from the node, as things stand on the board.

        A pod has to pass with the pods that are nominated for the node, and without them: they may still go elsewhere.
        """
        refused = False
        for why in self._refuse(pod, node):
            refused = True
            yield why
        expected = [] if refused else self._board.expected_on(node.name, pod)
        if expected:
            for one in expected:
                self._board.add(one, node.name)
            refusals = list(self._refuse(pod, node))
            for one in expected:
                self._board.remove(key_of(one))
            names = ", ".join(f"{one.namespace}/{one.name}" for one in expected)
            yield from (f"{why}, with {names} nominated for it" for why in refusals)

    def _refuse(self, pod: Pod, node: Node) -> Iterator[str]:
        filters = (
            refuse_by_node,
            refuse_by_room,
            refuse_by_ports,
            refuse_by_volumes,
            refuse_by_attach_limits,
            refuse_by_affinity,
            refuse_by_anti_affinity,
        )
        return chain(*(filter_of(self._board, pod, node) for filter_of in filters), self._spreads.refuse(pod, node))

"""Where the pods that a replay evicts go: `decisions.eviction.destinations` for nodes that are alike, in columns."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from cruise.backtest.policies.replayed_pods import index_of_node
from cruise.decisions.eviction.destinations import Replacement
from cruise.decisions.eviction.ranking import Exits
from cruise.domain.arrays import BoolArray, Int64Array
from cruise.domain.cluster import Pod
from cruise.domain.requests import counted_requests
from cruise.domain.resources import NO_RESOURCES, Resources


class _Gone(NamedTuple):
    source: int
    own: Resources
    target: int | None
    need: Resources


@dataclass(slots=True)
class ReplayedDestinations:
    """The places that the evictions of one pass take; a node is added for what finds none and fits an empty one.

    `free` is what kube-scheduler counts as free on each node, `spare` what the node's pods leave of what they need, a
    row a node with CPU and memory; `places` how many more pods it may hold. All three are changed.
    """

    replacement: Replacement
    node: Resources
    alive: BoolArray
    free: Int64Array
    spare: Int64Array
    places: Int64Array
    _gone: dict[str, _Gone] = field(default_factory=dict)

    def of_node(self, pods: Sequence[Pod]) -> Exits:
        """Return the exits of one node's pods."""
        return _ExitsOfNode(self, pods)

    def promised(self) -> dict[int, Resources]:
        """Return the room that was given to replacements, by node."""
        found: dict[int, Resources] = {}
        for gone in self._gone.values():
            if gone.target is not None:
                found[gone.target] = found.get(gone.target, NO_RESOURCES) + gone.need
        return found

    def leave(self, pod: Pod) -> bool:
        """Take a pod off its node and give its replacement a place; False, and nothing is done, where there is none."""
        fresh = self.replacement(pod)
        if fresh is None or pod.node is None:
            return False
        gone = _Gone(index_of_node(pod.node), counted_requests(pod), None, counted_requests(fresh))
        self._count(gone.source, gone.own, 1)
        target = self._room_for(gone.need, gone.source)
        if target is None and not gone.need.fits_in(self.node):
            self._count(gone.source, gone.own, -1)
            return False
        if target is not None:
            self._count(target, gone.need, -1)
            self.spare[target] -= (gone.need.cpu_millicores, gone.need.memory_bytes)
        self._gone[pod.uid] = gone._replace(target=target)
        return True

    def come_back(self, pod: Pod) -> None:
        """Put a pod back onto its node."""
        gone = self._gone.pop(pod.uid)
        if gone.target is not None:
            self._count(gone.target, gone.need, 1)
            self.spare[gone.target] += (gone.need.cpu_millicores, gone.need.memory_bytes)
        self._count(gone.source, gone.own, -1)

    def _room_for(self, need: Resources, source: int) -> int | None:
        """Return the node with the most room that holds a pod, its own apart; None where none does."""
        room = np.minimum(self.free, self.spare) - (need.cpu_millicores, need.memory_bytes)
        room[source] = -1
        holding = np.flatnonzero((room >= 0).all(axis=1) & self.alive & (self.places > 0))
        if not holding.size:
            return None
        whole = np.maximum((self.node.cpu_millicores, self.node.memory_bytes), 1)
        return int(holding[(room[holding] / whole).min(axis=1).argmax()])

    def _count(self, node: int, amount: Resources, step: int) -> None:
        self.free[node] += (step * amount.cpu_millicores, step * amount.memory_bytes)
        self.places[node] += step


@dataclass(frozen=True, slots=True)
class _ExitsOfNode:
    destinations: ReplayedDestinations
    pods: Sequence[Pod]

    def leave(self, index: int) -> bool:
        return self.destinations.leave(self.pods[index])

    def come_back(self, index: int) -> None:
        self.destinations.come_back(self.pods[index])

"""What is left to do of a plan: the pods that are to arrive and to leave, and where they come from and go."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from cruise.decisions.packing.proposing.matching import Changes
from cruise.decisions.packing.proposing.standing import Standing


class Agenda:
    """Pods by index. `waiting` ones arrive, the most important first; `leaving` those still on their old nodes."""

    def __init__(self, standing: Standing, changes: Changes, priorities: Sequence[int]) -> None:
        self._standing = standing
        self.target: list[int] = changes.pod_node.tolist()
        self.movers = frozenset(changes.moved)
        waiting = [*changes.placed, *changes.moved]
        # Pending ones come before those that run already.
        waiting.sort(key=lambda pod: (-priorities[pod], pod in self.movers, pod))
        self._rank = {pod: rank for rank, pod in enumerate(waiting)}
        self.waiting = dict.fromkeys(waiting)
        self.leaving = dict.fromkeys([*changes.preempted, *changes.moved])
        self.source = {pod: standing.node_of[pod] for pod in self.leaving}
        self._to_node, self._of_class = defaultdict[int, set[int]](set), defaultdict[int, set[int]](set)
        for pod in waiting:
            self._to_node[self.target[pod]].add(pod)
            self._of_class[standing.class_of(pod)].add(pod)
        self._leaving_of_class, self._from_node = defaultdict[int, list[int]](list), defaultdict[int, list[int]](list)
        for pod, node in self.source.items():
            self._leaving_of_class[standing.class_of(pod)].append(pod)
            self._from_node[node].append(pod)

    def settle(self, pod: int) -> None:
        """Strike off a pod that has left, or arrived."""
        self.leaving.pop(pod, None)
        if pod in self.waiting:
            del self.waiting[pod]
            self._to_node[self.target[pod]].discard(pod)
            self._of_class[self._standing.class_of(pod)].discard(pod)

    def in_order(self, pods: Iterable[int]) -> list[int]:
        """Return those of the pods that still wait, the most important first."""
        return sorted(set(pods) & self.waiting.keys(), key=self._rank.__getitem__)

    def let_in_by(self, pods: Iterable[int]) -> set[int]:
        """Return the waiting pods that may be let in now that some pods have changed places."""
        found: set[int] = set()
        for pod in pods:
            found |= self._to_node[self.source.get(pod, -1)]
            for pod_class in self._standing.dependents(self._standing.class_of(pod)):
                found |= self._of_class[pod_class]
        return found

    def leaving_from(self, node: int) -> list[int]:
        """Return the pods that are still to leave a node."""
        self._from_node[node] = [pod for pod in self._from_node[node] if pod in self.leaving]
        return self._from_node[node]

    def leaving_of(self, pod_class: int) -> list[int]:
        """Return the pods of a class that are still to leave their nodes."""
        return [pod for pod in self._leaving_of_class[pod_class] if pod in self.leaving]

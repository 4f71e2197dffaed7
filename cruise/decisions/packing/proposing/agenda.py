"""What is left to do of a plan: the pods that are to arrive and to leave, and where they come from and go."""

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
        self._to_node: dict[int, set[int]] = {}
        self._of_class: dict[int, set[int]] = {}
        for pod in waiting:
            self._to_node.setdefault(self.target[pod], set()).add(pod)
            self._of_class.setdefault(standing.class_of(pod), set()).add(pod)
        self._leaving_of_class: dict[int, list[int]] = {}
        for pod in self.leaving:
            self._leaving_of_class.setdefault(standing.class_of(pod), []).append(pod)
        self._from_node: dict[int, list[int]] = {}
        for pod, node in self.source.items():
            self._from_node.setdefault(node, []).append(pod)

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
            found |= self._to_node.get(self.source.get(pod, -1), set())
            for pod_class in self._standing.dependents(self._standing.class_of(pod)):
                found |= self._of_class.get(pod_class, set())
        return found

    def leaving_from(self, node: int) -> list[int]:
        """Return the pods that are still to leave a node."""
        members = [pod for pod in self._from_node.get(node, ()) if pod in self.leaving]
        self._from_node[node] = members
        return members

    def leaving_of(self, pod_class: int) -> list[int]:
        """Return the pods of a class that are still to leave their nodes."""
        return [pod for pod in self._leaving_of_class.get(pod_class, ()) if pod in self.leaving]

"""In which order a plan's pods leave and arrive: as few as can be are without a node at once."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cruise.decisions.packing.proposing.matching import Changes
from cruise.decisions.packing.proposing.standing import Standing

# How many pods are tried as the start of a knot before the smallest one found is cut.
_STARTS = 32


@dataclass(slots=True)
class Step:
    """Pods, by index, that leave together, and then those that arrive, in order."""

    leaves: list[int] = field(default_factory=list)
    arrivals: list[int] = field(default_factory=list)


class Staging:
    """Works a plan off: whoever can arrive does, so chains of moves go from their tails; then a knot is cut."""

    def __init__(self, standing: Standing, changes: Changes, priorities: Sequence[int]) -> None:
        self._standing = standing
        self._target: list[int] = changes.pod_node.tolist()
        self._movers = frozenset(changes.moved)
        # The most important first, and pending ones before those that run already.
        waiting = [*changes.placed, *changes.moved]
        waiting.sort(key=lambda pod: (-priorities[pod], pod in self._movers, pod))
        self._rank = {pod: rank for rank, pod in enumerate(waiting)}
        self._waiting = dict.fromkeys(waiting)
        self._leaving = dict.fromkeys([*changes.preempted, *changes.moved])
        self._to_node: dict[int, set[int]] = {}
        self._of_class: dict[int, set[int]] = {}
        for pod in waiting:
            self._to_node.setdefault(self._target[pod], set()).add(pod)
            self._of_class.setdefault(standing.class_of(pod), set()).add(pod)
        self._from_node: dict[int, list[int]] = {}
        self._source = {pod: standing.node_of[pod] for pod in self._leaving}
        for pod, node in self._source.items():
            self._from_node.setdefault(node, []).append(pod)
        self._steps: list[Step] = [Step()]

    def steps(self) -> list[Step] | None:
        """Return the steps in order; None where none is found."""
        self._work_off(self._waiting)
        while self._waiting:
            knot = self._smallest_knot() or self._everything()
            if knot is None:
                return None
            self._carry_out(knot)
            self._work_off(self._let_in_by([*knot.leaves, *knot.arrivals]))
        if self._leaving:
            # Nobody waited for these, so they go last.
            self._steps.append(Step(list(self._leaving)))
        return [step for step in self._steps if step.leaves or step.arrivals]

    def _work_off(self, candidates: Iterable[int]) -> None:
        """Let arrive whoever can by itself, and then whom that lets in."""
        while candidates:
            arrived = [pod for pod in self._in_order(candidates) if self._arrives_alone(pod)]
            candidates = self._let_in_by(arrived)

    def _arrives_alone(self, pod: int) -> bool:
        standing, target, source = self._standing, self._target[pod], self._standing.node_of[pod]
        if source >= 0:
            standing.leave(pod)
        if not standing.lets_in(pod, target):
            if source >= 0:
                standing.arrive(pod, source)
            return False
        standing.arrive(pod, target)
        if source >= 0:
            self._steps.append(Step([pod]))
        self._steps[-1].arrivals.append(pod)
        self._settle(pod)
        return True

    def _carry_out(self, knot: Step) -> None:
        for pod in knot.leaves:
            self._standing.leave(pod)
        for pod in knot.arrivals:
            self._standing.arrive(pod, self._target[pod])
        for pod in dict.fromkeys([*knot.leaves, *knot.arrivals]):
            self._settle(pod)
        if knot.leaves:
            self._steps.append(knot)
        else:
            self._steps[-1].arrivals += knot.arrivals

    def _settle(self, pod: int) -> None:
        self._leaving.pop(pod, None)
        if pod in self._waiting:
            del self._waiting[pod]
            self._to_node[self._target[pod]].discard(pod)
            self._of_class[self._standing.class_of(pod)].discard(pod)

    def _in_order(self, pods: Iterable[int]) -> list[int]:
        return sorted(set(pods) & self._waiting.keys(), key=self._rank.__getitem__)

    def _let_in_by(self, pods: Iterable[int]) -> set[int]:
        """Return who waits and may be let in now that some pods have changed places."""
        found: set[int] = set()
        for pod in pods:
            found |= self._to_node.get(self._source.get(pod, -1), set())
            for pod_class in self._standing.neighbours.related(self._standing.class_of(pod)):
                found |= self._of_class.get(pod_class, set())
        return found

    def _smallest_knot(self) -> Step | None:
        best: Step | None = None
        least = (len(self._waiting) + 1, 0)
        for start, _ in zip(self._waiting, range(_STARTS), strict=False):
            knot = self._knot_from(start)
            if knot is None:
                continue
            size = (sum(1 for pod in knot.leaves if pod in self._movers), len(knot.leaves))
            if size < least:
                best, least = knot, size
            if least[0] <= 1:
                break
        return best

    def _knot_from(self, start: int) -> Step | None:
        """Take out whoever is in a pod's way, and in the way of those, until all of them have arrived."""
        standing = self._standing
        knot, homeless = Step(), [start]
        if start in self._movers:
            standing.leave(start)
            knot.leaves.append(start)
        while homeless:
            fits = next((pod for pod in homeless if standing.lets_in(pod, self._target[pod])), None)
            if fits is not None:
                homeless.remove(fits)
                standing.arrive(fits, self._target[fits])
                knot.arrivals.append(fits)
                continue
            in_the_way = next((found for pod in homeless if (found := self._in_the_way_of(pod))), None)
            if in_the_way is None:
                break
            for pod in in_the_way:
                standing.leave(pod)
                knot.leaves.append(pod)
                if pod in self._movers:
                    homeless.append(pod)
        self._undo(knot)
        return None if homeless else knot

    def _everything(self) -> Step | None:
        """Take out all who are to leave at once: what is left is to find an order for those who arrive."""
        knot, homeless = Step(list(self._leaving)), list(self._waiting)
        for pod in knot.leaves:
            self._standing.leave(pod)
        progress = True
        while homeless and progress:
            progress = False
            for pod in list(homeless):
                if self._standing.lets_in(pod, self._target[pod]):
                    self._standing.arrive(pod, self._target[pod])
                    knot.arrivals.append(pod)
                    homeless.remove(pod)
                    progress = True
        self._undo(knot)
        return None if homeless else knot

    def _undo(self, knot: Step) -> None:
        for pod in knot.arrivals:
            self._standing.leave(pod)
        for pod in knot.leaves:
            self._standing.arrive(pod, self._source[pod])

    def _in_the_way_of(self, pod: int) -> list[int]:
        """Return a few pods, none of them needlessly, without which a pod would be let in; none where there are none.

        Those who lose their place come before those who get another one.
        """
        standing, target = self._standing, self._target[pod]
        candidates = [other for other in self._candidates(pod) if standing.node_of[other] == self._source[other]]
        candidates.sort(key=lambda other: (other in self._movers, other))
        for other in candidates:
            standing.leave(other)
            alone = standing.lets_in(pod, target)
            standing.arrive(other, self._source[other])
            if alone:
                return [other]
        out: list[int] = []
        for other in candidates:
            standing.leave(other)
            out.append(other)
            if standing.lets_in(pod, target):
                break
        found = out if standing.lets_in(pod, target) else []
        needed = []
        for other in reversed(out):
            standing.arrive(other, self._source[other])
            if found and not standing.lets_in(pod, target):
                needed.append(other)
                standing.leave(other)
        for other in needed:
            standing.arrive(other, self._source[other])
        return needed[::-1]

    def _candidates(self, pod: int) -> list[int]:
        """Return who is to leave and may be in a pod's way: those on its node, and those its rules speak of."""
        found = [other for other in self._from_node.get(self._target[pod], ()) if other in self._leaving]
        mine = self._standing.class_of(pod)
        if self._standing.neighbours.bind(mine):
            known = set(found)
            related = self._standing.neighbours.related
            found += [
                other
                for other in self._leaving
                if other not in known and mine in related(self._standing.class_of(other))
            ]
        return [other for other in found if other != pod]

"""Knots of a plan: pods none of which can arrive before others have left, cut by taking a few out at once."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from cruise.decisions.packing.move_order import InterimPlacement, MoveQueue

# How many pods are tried as the start of a knot before the smallest one found is cut.
_STARTS = 32


@dataclass(slots=True)
class MoveStep:
    """Pods, by index, that leave together, and then those that arrive, in order."""

    evictions: list[int] = field(default_factory=list)
    arrivals: list[int] = field(default_factory=list)


class MoveCycles:
    """Finds the smallest set of pods that have to be without a node at once for another to arrive."""

    def __init__(self, standing: InterimPlacement, agenda: MoveQueue) -> None:
        self._standing = standing
        self._agenda = agenda
        self._largest = 2

    def find_smallest(self) -> MoveStep | None:
        """Return the smallest knot found, or one no larger than a plan with the others had anyway."""
        found = self._smallest_by(self._cycle_through) or self._smallest_by(self._around)
        if found is not None:
            self._largest = max(self._largest, self._homeless_by(found))
        return found

    def _smallest_by(self, cut: Callable[[int, int], MoveStep | None]) -> MoveStep | None:
        best: MoveStep | None = None
        least = len(self._agenda.to_place) + 1
        for start, _ in zip(self._agenda.to_place, range(_STARTS), strict=False):
            knot = cut(start, least - 1)
            if knot is None:
                continue
            best, least = knot, self._homeless_by(knot)
            if least <= self._largest:
                break
        return best

    def _homeless_by(self, knot: MoveStep) -> int:
        return sum(1 for pod in knot.evictions if pod in self._agenda.to_move)

    def get_all_pods(self) -> MoveStep | None:
        """Take out all pods that are to leave at once: what is left is to find an order for those that arrive."""
        leaves, waiting = list(self._agenda.to_evict), list(self._agenda.to_place)
        found = self._attempt(leaves, waiting)
        if found is not None:
            return found
        # The first of a group may stand where the others cannot follow.
        founders = {(self._standing.get_class(pod), self._agenda.target[pod]): pod for pod in reversed(waiting)}
        for pod, _ in zip(founders.values(), range(_STARTS), strict=False):
            found = self._attempt(leaves, [pod, *(other for other in waiting if other != pod)])
            if found is not None:
                return found
        return None

    def _attempt(self, leaves: list[int], homeless: list[int]) -> MoveStep | None:
        """Return the step in which the homeless arrive once all the leaves are out; None where one cannot."""
        knot = MoveStep(leaves)
        for pod in leaves:
            self._standing.evict(pod)
        while homeless:
            left = [pod for pod in homeless if not self._arrives(pod, knot)]
            if len(left) == len(homeless):
                break
            homeless = left
        self._undo(knot)
        return None if homeless else knot

    def _arrives(self, pod: int, knot: MoveStep) -> bool:
        target = self._agenda.target[pod]
        if not self._standing.accepts(pod, target):
            return False
        self._standing.place(pod, target)
        knot.arrivals.append(pod)
        return True

    def _undo(self, knot: MoveStep) -> None:
        for pod in knot.arrivals:
            self._standing.evict(pod)
        for pod in knot.evictions:
            self._standing.place(pod, self._agenda.source[pod])

    def _cycle_through(self, start: int, most: int) -> MoveStep | None:
        """Exchange a pod with as few others as can be, each of which goes where the next one was."""
        agenda = self._agenda
        if start not in agenda.to_move:
            return None
        home = agenda.source[start]
        came_by: dict[int, int] = {}
        ends = [agenda.target[start]]
        for _ in range(most - 1):
            following = []
            for node in ends:
                for pod in agenda.get_leaving_node(node):
                    target = agenda.target[pod]
                    if pod == start or pod not in agenda.to_move or target in came_by:
                        continue
                    came_by[target] = pod
                    if target == home:
                        cycle = self._way(came_by, start)
                        return self._attempt(cycle, list(cycle))
                    following.append(target)
            ends = following
        return None

    def _way(self, came_by: dict[int, int], start: int) -> list[int]:
        way = [start]
        node = self._agenda.source[start]
        while node != self._agenda.target[start]:
            way.append(came_by[node])
            node = self._agenda.source[came_by[node]]
        return way

    def _around(self, start: int, most: int) -> MoveStep | None:
        """Take out the pods in a pod's way, and in the way of those, until all of them have arrived."""
        standing, movers = self._standing, self._agenda.to_move
        knot, homeless = MoveStep(), [start]
        if start in movers:
            standing.evict(start)
            knot.evictions.append(start)
        while homeless and len(knot.evictions) - len(knot.arrivals) <= most:
            fits = next((pod for pod in homeless if self._arrives(pod, knot)), None)
            if fits is not None:
                homeless.remove(fits)
                continue
            in_the_way = next((found for pod in homeless if (found := self._in_the_way_of(pod))), None)
            if in_the_way is None:
                break
            for pod in in_the_way:
                standing.evict(pod)
                knot.evictions.append(pod)
                if pod in movers:
                    homeless.append(pod)
        self._undo(knot)
        # Some came while others were still there, and those may have been what let them in.
        return None if homeless else self._attempt(knot.evictions, knot.arrivals)

    def _in_the_way_of(self, pod: int) -> list[int]:
        """Return a few pods, none of them needlessly, without which a pod would be let in; none where there are none.

        Those that lose their place come first, then those that can go where they are to.
        """
        candidates = self._candidates(pod)
        candidates.sort(key=lambda other: (other in self._agenda.to_move, other))
        last = None
        for other in candidates:
            helps, finds_room = self._without(other, pod)
            if helps and finds_room:
                return [other]
            if helps and last is None:
                last = other
        return self._several_in_the_way_of(pod, candidates) if last is None else [last]

    def _without(self, other: int, pod: int) -> tuple[bool, bool]:
        """Tell whether a pod would be let in without another one, and whether that one could go where it is to."""
        standing, agenda = self._standing, self._agenda
        standing.evict(other)
        helps = standing.accepts(pod, agenda.target[pod])
        finds_room = helps and (other not in agenda.to_move or standing.accepts(other, agenda.target[other]))
        standing.place(other, agenda.source[other])
        return helps, finds_room

    def _several_in_the_way_of(self, pod: int, candidates: Iterable[int]) -> list[int]:
        standing, target, source = self._standing, self._agenda.target[pod], self._agenda.source
        out: list[int] = []
        for other in candidates:
            standing.evict(other)
            out.append(other)
            if standing.accepts(pod, target):
                break
        found = standing.accepts(pod, target)
        needed = []
        for other in reversed(out):
            standing.place(other, source[other])
            if found and not standing.accepts(pod, target):
                needed.append(other)
                standing.evict(other)
        for other in needed:
            standing.place(other, source[other])
        return needed[::-1]

    def _candidates(self, pod: int) -> list[int]:
        """Return the pods that are still to leave and may be in a pod's way: on its node, or named by its rules."""
        standing, agenda = self._standing, self._agenda
        found = dict.fromkeys(agenda.get_leaving_node(agenda.target[pod]))
        for pod_class in sorted(standing.get_dependencies(standing.get_class(pod))):
            found.update(dict.fromkeys(agenda.get_leaving_class(pod_class)))
        return [other for other in found if other != pod and standing.node_of[other] == agenda.source[other]]


# In which order a plan's pods leave and arrive: as few as can be are without a node at once.


class MoveStaging:
    """Works a plan off: every pod that can arrive does, so chains of moves go from their tails; then a knot is cut."""

    def __init__(self, standing: InterimPlacement, agenda: MoveQueue) -> None:
        self._standing = standing
        self._agenda = agenda
        self._knots = MoveCycles(standing, agenda)
        self._steps: list[MoveStep] = [MoveStep()]

    def build_steps(self) -> list[MoveStep] | None:
        """Return the steps in order; None where none is found."""
        agenda = self._agenda
        self._work_off(agenda.to_place)
        while agenda.to_place:
            knot = self._knots.find_smallest() or self._knots.get_all_pods()
            if knot is None:
                return None
            self._carry_out(knot)
            self._work_off(agenda.get_unblocked_by([*knot.evictions, *knot.arrivals]))
        if agenda.to_evict:
            # No pod waited for these, so they go last.
            self._steps.append(MoveStep(list(agenda.to_evict)))
        return self.start()

    def start(self) -> list[MoveStep]:
        """Return the steps so far: what can be done although no order was found for all."""
        return [step for step in self._steps if step.evictions or step.arrivals]

    def _work_off(self, candidates: Iterable[int]) -> None:
        """Let pods arrive that can by themselves, and then those that this lets in."""
        while candidates:
            arrived = [pod for pod in self._agenda.get_in_order(candidates) if self._arrives_alone(pod)]
            candidates = self._agenda.get_unblocked_by(arrived)

    def _arrives_alone(self, pod: int) -> bool:
        standing, target, source = self._standing, self._agenda.target[pod], self._standing.node_of[pod]
        if source >= 0:
            standing.evict(pod)
        if not standing.accepts(pod, target):
            if source >= 0:
                standing.place(pod, source)
            return False
        standing.place(pod, target)
        if source >= 0:
            self._steps.append(MoveStep([pod]))
        self._steps[-1].arrivals.append(pod)
        self._agenda.complete(pod)
        return True

    def _carry_out(self, knot: MoveStep) -> None:
        for pod in knot.evictions:
            self._standing.evict(pod)
        for pod in knot.arrivals:
            self._standing.place(pod, self._agenda.target[pod])
        for pod in dict.fromkeys([*knot.evictions, *knot.arrivals]):
            self._agenda.complete(pod)
        if knot.evictions:
            self._steps.append(knot)
        else:
            self._steps[-1].arrivals += knot.arrivals

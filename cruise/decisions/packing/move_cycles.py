"""Orders the evictions and arrivals of a plan, and breaks cycles in which each pod needs the place of another."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from cruise.decisions.packing.move_order import InterimPlacement, MoveQueue

# Cycles are searched from so many pods before the smallest one found is broken.
_MAX_STARTS = 32


@dataclass(slots=True)
class MoveStep:
    """Pods, by index, that are evicted together, and then those that arrive, in order."""

    evictions: list[int] = field(default_factory=list)
    arrivals: list[int] = field(default_factory=list)


class MoveCycleBreaker:
    """Finds the fewest pods that must be without a node at the same time so that another pod can arrive."""

    def __init__(self, interim: InterimPlacement, queue: MoveQueue) -> None:
        self._interim = interim
        self._queue = queue
        self._largest_accepted = 2

    def find_smallest(self) -> MoveStep | None:
        """Return the smallest step found, or one that is no larger than a step the plan needs anyway."""
        step = self._find_smallest_by(self._find_cycle) or self._find_smallest_by(self._find_blocking_set)
        if step is not None:
            self._largest_accepted = max(self._largest_accepted, self._count_moved(step))
        return step

    def _find_smallest_by(self, find_step: Callable[[int, int], MoveStep | None]) -> MoveStep | None:
        best: MoveStep | None = None
        least = len(self._queue.to_place) + 1
        for start, _ in zip(self._queue.to_place, range(_MAX_STARTS), strict=False):
            step = find_step(start, least - 1)
            if step is None:
                continue
            best, least = step, self._count_moved(step)
            if least <= self._largest_accepted:
                break
        return best

    def _count_moved(self, step: MoveStep) -> int:
        return sum(1 for pod in step.evictions if pod in self._queue.to_move)

    def get_all_pods(self) -> MoveStep | None:
        """Return the step that evicts all pods that must leave, if the others can then arrive in some order."""
        evictions, arriving = list(self._queue.to_evict), list(self._queue.to_place)
        step = self._attempt(evictions, arriving)
        if step is not None:
            return step
        # The first pod of an affinity group may be on a node where the others cannot follow.
        first_pods = {(self._interim.get_class(pod), self._queue.target[pod]): pod for pod in reversed(arriving)}
        for pod, _ in zip(first_pods.values(), range(_MAX_STARTS), strict=False):
            step = self._attempt(evictions, [pod, *(other for other in arriving if other != pod)])
            if step is not None:
                return step
        return None

    def _attempt(self, evictions: list[int], arriving: list[int]) -> MoveStep | None:
        """Return the step in which all pods arrive after the evictions; None if one cannot."""
        step = MoveStep(evictions)
        for pod in evictions:
            self._interim.evict(pod)
        while arriving:
            remaining = [pod for pod in arriving if not self._try_arrival(pod, step)]
            if len(remaining) == len(arriving):
                break
            arriving = remaining
        self._undo(step)
        return None if arriving else step

    def _try_arrival(self, pod: int, step: MoveStep) -> bool:
        target = self._queue.target[pod]
        if not self._interim.accepts(pod, target):
            return False
        self._interim.place(pod, target)
        step.arrivals.append(pod)
        return True

    def _undo(self, step: MoveStep) -> None:
        for pod in step.arrivals:
            self._interim.evict(pod)
        for pod in step.evictions:
            self._interim.place(pod, self._queue.source[pod])

    def _find_cycle(self, start: int, most: int) -> MoveStep | None:
        """Return the step in which a pod exchanges places with as few others as possible."""
        queue = self._queue
        if start not in queue.to_move:
            return None
        source = queue.source[start]
        pod_to: dict[int, int] = {}
        frontier = [queue.target[start]]
        for _ in range(most - 1):
            next_frontier = []
            for node in frontier:
                for pod in queue.get_pods_leaving_node(node):
                    target = queue.target[pod]
                    if pod == start or pod not in queue.to_move or target in pod_to:
                        continue
                    pod_to[target] = pod
                    if target == source:
                        cycle = self._trace_cycle(pod_to, start)
                        return self._attempt(cycle, list(cycle))
                    next_frontier.append(target)
            frontier = next_frontier
        return None

    def _trace_cycle(self, pod_to: dict[int, int], start: int) -> list[int]:
        cycle = [start]
        node = self._queue.source[start]
        while node != self._queue.target[start]:
            cycle.append(pod_to[node])
            node = self._queue.source[pod_to[node]]
        return cycle

    def _find_blocking_set(self, start: int, most: int) -> MoveStep | None:
        """Return the step that evicts the pods that block a pod, and those that block these, until all have arrived."""
        interim, to_move = self._interim, self._queue.to_move
        step, arriving = MoveStep(), [start]
        if start in to_move:
            interim.evict(start)
            step.evictions.append(start)
        while arriving and len(step.evictions) - len(step.arrivals) <= most:
            accepted = next((pod for pod in arriving if self._try_arrival(pod, step)), None)
            if accepted is not None:
                arriving.remove(accepted)
                continue
            blocking = next((pods for pod in arriving if (pods := self._find_blocking_pods(pod))), None)
            if blocking is None:
                break
            for pod in blocking:
                interim.evict(pod)
                step.evictions.append(pod)
                if pod in to_move:
                    arriving.append(pod)
        self._undo(step)
        # Some arrived while others were still there, and may depend on them.
        return None if arriving else self._attempt(step.evictions, step.arrivals)

    def _find_blocking_pods(self, pod: int) -> list[int]:
        """Return a few pods without which a pod would be accepted, none of them superfluous.

        Pods that lose their place come first, then those that can go to their target.
        """
        candidates = self._list_candidates(pod)
        candidates.sort(key=lambda other: (other in self._queue.to_move, other))
        blocking = None
        for other in candidates:
            helps, can_arrive = self._try_without(other, pod)
            if helps and can_arrive:
                return [other]
            if helps and blocking is None:
                blocking = other
        return self._find_several_blocking_pods(pod, candidates) if blocking is None else [blocking]

    def _try_without(self, other: int, pod: int) -> tuple[bool, bool]:
        """Return whether a pod would be accepted without another, and whether that one could go to its target."""
        interim, queue = self._interim, self._queue
        interim.evict(other)
        helps = interim.accepts(pod, queue.target[pod])
        can_arrive = helps and (other not in queue.to_move or interim.accepts(other, queue.target[other]))
        interim.place(other, queue.source[other])
        return helps, can_arrive

    def _find_several_blocking_pods(self, pod: int, candidates: Iterable[int]) -> list[int]:
        interim, target, source = self._interim, self._queue.target[pod], self._queue.source
        evicted: list[int] = []
        for other in candidates:
            interim.evict(other)
            evicted.append(other)
            if interim.accepts(pod, target):
                break
        is_accepted = interim.accepts(pod, target)
        needed = []
        for other in reversed(evicted):
            interim.place(other, source[other])
            if is_accepted and not interim.accepts(pod, target):
                needed.append(other)
                interim.evict(other)
        for other in needed:
            interim.place(other, source[other])
        return needed[::-1]

    def _list_candidates(self, pod: int) -> list[int]:
        """Return the pods that must still leave and may block a pod: on its node, or named by its rules."""
        interim, queue = self._interim, self._queue
        candidates = dict.fromkeys(queue.get_pods_leaving_node(queue.target[pod]))
        for pod_class in sorted(interim.get_dependencies(interim.get_class(pod))):
            candidates.update(dict.fromkeys(queue.get_pods_of_class_leaving(pod_class)))
        return [other for other in candidates if other != pod and interim.node_of[other] == queue.source[other]]


class MoveStaging:
    """Carries out a plan in steps: every pod that can arrive does, from the ends of chains; then a cycle is broken."""

    def __init__(self, interim: InterimPlacement, queue: MoveQueue) -> None:
        self._interim = interim
        self._queue = queue
        self._cycles = MoveCycleBreaker(interim, queue)
        self._steps: list[MoveStep] = [MoveStep()]

    def build_steps(self) -> list[MoveStep] | None:
        """Return the steps in order; None if no order is found."""
        queue = self._queue
        self._place_accepted(queue.to_place)
        while queue.to_place:
            step = self._cycles.find_smallest() or self._cycles.get_all_pods()
            if step is None:
                return None
            self._carry_out(step)
            self._place_accepted(queue.get_unblocked_by([*step.evictions, *step.arrivals]))
        if queue.to_evict:
            # No pod needs their places, so they are evicted last.
            self._steps.append(MoveStep(list(queue.to_evict)))
        return self.get_steps()

    def get_steps(self) -> list[MoveStep]:
        """Return the steps so far, which can be carried out even if the others have no order."""
        return [step for step in self._steps if step.evictions or step.arrivals]

    def _place_accepted(self, candidates: Iterable[int]) -> None:
        """Place pods that are accepted, and then those that this unblocks."""
        while candidates:
            arrived = [pod for pod in self._queue.get_in_order(candidates) if self._try_move(pod)]
            candidates = self._queue.get_unblocked_by(arrived)

    def _try_move(self, pod: int) -> bool:
        interim, target, source = self._interim, self._queue.target[pod], self._interim.node_of[pod]
        if source >= 0:
            interim.evict(pod)
        if not interim.accepts(pod, target):
            if source >= 0:
                interim.place(pod, source)
            return False
        interim.place(pod, target)
        if source >= 0:
            self._steps.append(MoveStep([pod]))
        self._steps[-1].arrivals.append(pod)
        self._queue.complete(pod)
        return True

    def _carry_out(self, step: MoveStep) -> None:
        for pod in step.evictions:
            self._interim.evict(pod)
        for pod in step.arrivals:
            self._interim.place(pod, self._queue.target[pod])
        for pod in dict.fromkeys([*step.evictions, *step.arrivals]):
            self._queue.complete(pod)
        if step.evictions:
            self._steps.append(step)
        else:
            self._steps[-1].arrivals += step.arrivals

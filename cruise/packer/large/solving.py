"""Large problems: priority after priority by ejections, then small changes that place more or bring pods home."""

from functools import partial

import numpy as np

from cruise.packer.answer import Packing, Report, packing_of
from cruise.packer.arrays import IntArray
from cruise.packer.bounds import counted_bound
from cruise.packer.budget import Meter
from cruise.packer.kernels.ejecting import place_pods
from cruise.packer.kernels.gathering import gather
from cruise.packer.kernels.preempting import bring_home, preempt_for
from cruise.packer.kernels.rearranging import rearrange
from cruise.packer.large.board import ANY_RANK, Board
from cruise.packer.problem import Objective, Problem
from cruise.packer.quick import pending_order

_DEPTHS = (1, 2, 3)
# What fits nowhere may take this share of what is left, so that time remains for all priorities.
_SHARE = 0.5
# Of what is left then smallest first and largest first take turns until both gain nothing.
_FIRST_SHARE, _AGAIN_SHARE, _PATIENCE = 0.5, 0.5, 2
# Of more nodes than this a pod sees some at first, spread evenly, and the others once it fits on none of these.
_SPAN = 1_000
# Of what is left where pods wait after that, for gathering room for them.
_GATHERING_SHARE = 0.5
# Rearranging ends after so many rounds in vain for each pod; the best is reported so many times.
_IDLE, _TURNS = 100, 10


def solve_large(
    problem: Problem, start: IntArray, meter: Meter, report: Report, seed: int = 1, homing: float = 1.0
) -> Packing:
    """Pack by chains of ejections, no worse than what runs now or `start`; memory grows with pods alone.

    What is left of the budget goes into small changes, which place more or bring home what was moved without need:
    the share `homing` of it where all have a place.
    """
    packing = place_large(problem, start, meter, report, seed)
    if meter.over() or _is_best(problem, packing):
        return packing
    with meter.part(homing if (packing.pod_node >= 0).all() else 1.0) as part:
        return Rearranging(problem, packing.pod_node, packing, part, report).run(seed)


def place_large(problem: Problem, start: IntArray, meter: Meter, report: Report, seed: int = 1) -> Packing:
    """Place by chains of ejections, and where nodes gather room for it, no worse than what runs now or `start`.

    First from what runs now, then again and again from the best so far, as long as that gains something: what is
    preempted for a higher priority early finds a place once others have moved.
    """
    packing = packing_of(problem, start, counted_bound(problem))
    # Where not all have room, the small ones leave more of it to others.
    wanted = problem.demands[problem.pod_class].sum(axis=0)
    smallest_first = bool((wanted > problem.capacities.sum(axis=0)).any())
    with meter.part(_FIRST_SHARE) as part:
        search = Ejections(problem, problem.pod_node, packing, part, report, smallest_first=smallest_first)
        packing = search.run()
    vain, smallest_first = 0, not smallest_first
    with meter.part(_AGAIN_SHARE) as part:
        while vain < _PATIENCE and not part.over() and (packing.pod_node < 0).any():
            again = Ejections(problem, packing.pod_node, packing, part, report, smallest_first=smallest_first).run()
            vain = 0 if again is not packing else vain + 1
            packing, smallest_first = again, not smallest_first
    if meter.over() or not (packing.pod_node < 0).any():
        return packing
    with meter.part(_GATHERING_SHARE) as part:
        return Ejections(problem, packing.pod_node, packing, part, report, smallest_first=True).gather(seed)


class Rearranging(Board):
    """Small changes to a packing, one after the other."""

    def run(self, seed: int) -> Packing:
        """Rearrange until nothing can be better, or nothing was for long."""
        problem, random = self.problem, np.array([2 * seed + 1], dtype=np.uint64)
        paper, patience, vain = problem.objective is Objective.PAPER, _IDLE * problem.pod_count, 0
        for turns in range(_TURNS, 0, -1):
            if vain >= patience or self.meter.over() or _is_best(problem, self.packing):
                break
            rounds = partial(rearrange, self.state, problem.weights, paper, random, vain, patience)
            with self.meter.part(1 / turns) as part:
                vain = self.act(part, rounds)
            self.offer()
        return self.packing


def _is_best(problem: Problem, packing: Packing) -> bool:
    return packing.after.key(problem.objective) == packing.bound


class Ejections(Board):
    """Ejections from a beginning on, the largest or the smallest of what waits first."""

    def __init__(
        self,
        problem: Problem,
        begin: IntArray,
        packing: Packing,
        meter: Meter,
        report: Report,
        *,
        smallest_first: bool,
    ) -> None:
        super().__init__(problem, begin, packing, meter, report)
        self.smallest_first = smallest_first
        self._parts = max(problem.node_count // _SPAN, 1)

    def run(self) -> Packing:
        """Place what can be placed, one priority after the other, then bring home what was moved without need."""
        priorities = np.unique(self.problem.priorities)[::-1]
        if self.problem.objective is Objective.OPERATOR:
            # First what needs no eviction, for all; then the fewest evictions, of any priority.
            self.state.rooted[0] = True
            self.place(priorities, ANY_RANK)
            self.state.rooted[0] = False
            for priority in priorities.tolist():
                self.place(np.array([priority]), ANY_RANK)
                self.preempt(priority)
        else:
            # That a pod stays outranks whatever becomes of lower priorities.
            for priority in priorities.tolist():
                self.place(np.array([priority]), 1)
                self.preempt(priority)
                self.place(np.array([priority]), 0)
        self.bring_home()
        return self.packing

    def place(self, priorities: IntArray, below: int) -> None:
        """Place what can be placed of these priorities, by deeper and deeper ejections of what is so far below."""
        # Where only guests may leave and there are none, ejections are in vain.
        hopeless = self.state.rooted[0] and not self.state.guests.any()
        for depth in (0,) if hopeless else _DEPTHS:
            pods = self._waiting(priorities)
            if len(pods) == 0 or self.meter.over():
                return
            with self.meter.part(1.0 if depth <= 1 else _SHARE) as part:
                self._place_in_turns(part, pods, depth, below)
            self.offer()

    def _place_in_turns(self, meter: Meter, pods: IntArray, depth: int, below: int) -> None:
        """Deal the classes to parts of many nodes; what is left sees all nodes."""
        state = self.state
        if self._parts > 1:
            for begin in range(self._parts):
                state.span[:] = begin, self._parts
                mine = pods[self.problem.pod_class[pods] % self._parts == begin]
                self.act(meter, partial(place_pods, state, mine, depth, below))
            state.span[:] = 0, 1
        self.act(meter, partial(place_pods, state, pods, depth, below))

    def gather(self, seed: int) -> Packing:
        """Place what waits, the smallest of the highest priority first, where nodes can gather room for it."""
        random = np.array([2 * seed + 1], dtype=np.uint64)
        below = ANY_RANK if self.problem.objective is Objective.OPERATOR else 0
        for priority in np.unique(self.problem.priorities)[::-1].tolist():
            pods = self._waiting(np.array([priority]))
            if len(pods):
                self.act(self.meter, partial(gather, self.state, pods, below, random))
        self.bring_home()
        return self.packing

    def preempt(self, priority: int) -> None:
        """Place what is left of a priority where lower ones give way."""
        pods = self._waiting(np.array([priority]))
        if len(pods) and self.problem.preemptible[self.problem.priorities < priority].any():
            self.act(self.meter, partial(preempt_for, self.state, pods))
            self.offer()

    def bring_home(self) -> None:
        """Undo moves that nothing depends on, the costliest first."""
        home, classes = self.problem.pod_node, self.problem.pod_class
        came = 1
        while came and not self.meter.over():
            away = np.flatnonzero((home >= 0) & (self.state.at != home))
            cost = self.problem.weights[classes[away]]
            order = away[np.lexsort((away, -cost, -self.problem.priorities[classes[away]]))]
            # What came instead finds another place among some nodes, where there are many.
            self.state.span[1] = self._parts
            came = self.act(self.meter, partial(bring_home, self.state, order))
            self.state.span[1] = 1
        self.offer()

    def _waiting(self, priorities: IntArray) -> IntArray:
        order = np.array(pending_order(self.problem, self.state.at), dtype=np.int64)
        if self.smallest_first:
            order = order[::-1]
            order = order[np.argsort(-self.problem.priorities[self.problem.pod_class[order]], kind="stable")]
        return order[np.isin(self.problem.priorities[self.problem.pod_class[order]], priorities)]

"""Large problems: priority after priority by ejections, then small changes that place more or bring pods home."""

from collections.abc import Callable
from functools import partial

import numpy as np

from cruise.packer.answer import Packing, ReportFunction, build_packing, compute_counting_bound
from cruise.packer.budget import BudgetMeter
from cruise.packer.greedy import order_pending_pods
from cruise.packer.kernels.cluster_state import UNLIMITED, PackedClusterState, link_pods
from cruise.packer.kernels.ejection import place_by_ejection
from cruise.packer.kernels.preemption import place_by_preemption, return_pods_home
from cruise.packer.kernels.rearrangement import rearrange_nodes
from cruise.packer.kernels.room_gathering import place_by_gathering_capacity
from cruise.packer.kernels.rule_counts import CLOSED
from cruise.packer.problem import IntArray, PackingObjective, PackingProblem
from cruise.packer.rules.by_class import RulesByClass, build_rules_by_class
from cruise.packer.rules.kernel_tables import build_kernel_tables
from cruise.packer.rules.preemption import has_undue_profit

# The kernels' board of a problem.

_BUCKETS = 128
_MOST_LINES = 64
_LOG_LENGTH = 4096


def build_cluster_state(problem: PackingProblem, rules: RulesByClass, pod_node: IntArray) -> PackedClusterState:
    """The board of an assignment that obeys every rule."""
    nodes, resources = problem.capacities.shape
    pods, classes = problem.pod_count, problem.class_count
    ranks = np.searchsorted(-np.unique(problem.priorities)[::-1], -problem.priorities).astype(np.int64)
    limit_starts = np.zeros(classes + 1, dtype=np.int64)
    np.cumsum([len(rules.limits.get(c, ())) for c in range(classes)], out=limit_starts[1:])
    limits = np.array([i for c in range(classes) for i in rules.limits.get(c, ())], dtype=np.int64)
    siblings = np.diff(rules.starts)
    wanted = problem.demands[problem.pod_class].sum(axis=0)
    total = np.maximum(problem.capacities.sum(axis=0), 1)
    scarce = np.argsort(-(wanted / total), kind="stable")[:2].astype(np.int64)
    scarce = scarce if resources > 1 else np.zeros(2, dtype=np.int64)
    unit = np.maximum(problem.demands[:, scarce].max(axis=0, initial=1) // (_BUCKETS - 2), 1)
    site_count = problem.allowed_nodes.shape[0]
    line = np.arange(site_count) if site_count <= _MOST_LINES else np.zeros(site_count)
    # What is short weighs most; a resource with much to spare hardly anything.
    shares = 1.0 / np.maximum(total - wanted, total // 100 + 1).astype(np.float64)
    tables = build_kernel_tables(problem, rules)
    most_evicted = problem.rules.max_evicted_by_node
    state = PackedClusterState(
        demands=np.ascontiguousarray(problem.demands),
        headroom=np.ascontiguousarray(problem.headroom),
        ranks=ranks,
        movable=problem.movable & (tables[tables[CLOSED] + np.arange(classes)] == 0),
        preemptible=problem.preemptible,
        preempt=problem.preempt,
        maximum=np.where(problem.max_on_node >= siblings, UNLIMITED, problem.max_on_node).astype(np.int64),
        sites=problem.node_mask_of_class,
        admits=problem.allowed_nodes,
        limit_starts=limit_starts,
        limits=limits,
        remaining_evictions=np.array([limit.allowed for limit in problem.rules.eviction_limits], dtype=np.int64),
        remaining_evictions_on_node=np.full(nodes, UNLIMITED, dtype=np.int64)
        if most_evicted is None
        else most_evicted.copy(),
        pod_class=problem.pod_class,
        home_node=problem.pod_node,
        node=pod_node.copy(),
        first_pod=np.full(nodes, -1, dtype=np.int64),
        next_pod=np.full(pods, -1, dtype=np.int64),
        previous_pod=np.full(pods, -1, dtype=np.int64),
        free=problem.capacities.copy(),
        largest=np.zeros((nodes, resources), dtype=np.int64),
        preempted_count=np.zeros(nodes, dtype=np.int64),
        never_preempts=np.zeros(nodes, dtype=np.int64),
        foreign_pods=np.zeros(nodes, dtype=np.int64),
        dropped=np.zeros(pods, dtype=np.bool_),
        protected_nodes=np.zeros(pods, dtype=np.bool_),
        rooted=np.zeros(1, dtype=np.bool_),
        span=np.array([0, 1], dtype=np.int64),
        shares=shares,
        scarcity=scarce,
        unit=unit.astype(np.int64),
        line=line.astype(np.int64),
        skyline=np.zeros((min(site_count, _MOST_LINES) if site_count <= _MOST_LINES else 1, _BUCKETS), dtype=np.int64),
        log=np.zeros((_LOG_LENGTH, 3), dtype=np.int64),
        logged=np.zeros(1, dtype=np.int64),
        spent=np.zeros(1, dtype=np.int64),
        tables=tables,
    )
    link_pods(state)
    return state


# The kernels' board of a problem, what may be spent on it, and the best packing that it has shown.

# So far below a pod's rank that this excludes none.
ANY_PRIORITY = -(1 << 30)
# What one unit of the kernels' own counting stands for, in units of work: about as many nanoseconds.
_LOOK = 10

Kernel = Callable[[float, float], int]


class ClusterSearch:
    """A search that changes an assignment pod by pod, beginning with `begin`; `packing` is the best known before."""

    def __init__(
        self, problem: PackingProblem, begin: IntArray, packing: Packing, meter: BudgetMeter, report: ReportFunction
    ) -> None:
        self.problem, self.packing, self.meter, self.report = problem, packing, meter, report
        self.state: PackedClusterState = build_cluster_state(problem, build_rules_by_class(problem), begin)

    def run_kernel(self, meter: BudgetMeter, kernel: Kernel) -> int:
        """Run a kernel within what is left of a meter, and spend what it looked at; its answer."""
        spent = self.state.spent
        spent[0] = 0
        done = kernel(meter.deadline_seconds, meter.work_left / _LOOK)
        meter.spend(float(spent[0]) * _LOOK)
        return done

    def offer_best(self) -> None:
        """Take the assignment as it is now for the best where it is, and report it.

        The kernels keep pods that never preempt off nodes that something is preempted from, and know of no chains.
        """
        packing = build_packing(self.problem, self.state.node.copy(), self.packing.bound)
        objective = self.problem.objective
        better = packing.planned.get_key(objective) > self.packing.planned.get_key(objective)
        if better and not has_undue_profit(self.problem, packing.pod_node):
            self.packing = packing
            self.report(packing)


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


def solve_by_ejection(
    problem: PackingProblem,
    start: IntArray,
    meter: BudgetMeter,
    report: ReportFunction,
    seed: int = 1,
    homing: float = 1.0,
) -> Packing:
    """Pack by chains of ejections, no worse than what runs now or `start`; memory grows with pods alone.

    What is left of the budget goes into small changes, which place more or bring home what was moved without need:
    the share `homing` of it where all have a place.
    """
    packing = place_by_ejection_and_gathering(problem, start, meter, report, seed)
    if meter.is_exhausted() or _is_best(problem, packing):
        return packing
    with meter.get_part(homing if (packing.pod_node >= 0).all() else 1.0) as part:
        return RearrangementSearch(problem, packing.pod_node, packing, part, report).run(seed)


def place_by_ejection_and_gathering(
    problem: PackingProblem, start: IntArray, meter: BudgetMeter, report: ReportFunction, seed: int = 1
) -> Packing:
    """Place by chains of ejections, and where nodes gather room for it, no worse than what runs now or `start`.

    First from what runs now, then again and again from the best so far, as long as that gains something: what is
    preempted for a higher priority early finds a place once others have moved.
    """
    packing = build_packing(problem, start, compute_counting_bound(problem))
    # Where not all have room, the small ones leave more of it to others.
    wanted = problem.demands[problem.pod_class].sum(axis=0)
    smallest_first = bool((wanted > problem.capacities.sum(axis=0)).any())
    with meter.get_part(_FIRST_SHARE) as part:
        search = EjectionSearch(problem, problem.pod_node, packing, part, report, smallest_first=smallest_first)
        packing = search.run()
    vain, smallest_first = 0, not smallest_first
    with meter.get_part(_AGAIN_SHARE) as part:
        while vain < _PATIENCE and not part.is_exhausted() and (packing.pod_node < 0).any():
            again = EjectionSearch(
                problem, packing.pod_node, packing, part, report, smallest_first=smallest_first
            ).run()
            vain = 0 if again is not packing else vain + 1
            packing, smallest_first = again, not smallest_first
    if meter.is_exhausted() or not (packing.pod_node < 0).any():
        return packing
    with meter.get_part(_GATHERING_SHARE) as part:
        return EjectionSearch(problem, packing.pod_node, packing, part, report, smallest_first=True).gather(seed)


class RearrangementSearch(ClusterSearch):
    """Small changes to a packing, one after the other."""

    def run(self, seed: int) -> Packing:
        """Rearrange until nothing can be better, or nothing was for long."""
        problem, random = self.problem, np.array([2 * seed + 1], dtype=np.uint64)
        paper, patience, vain = problem.objective is PackingObjective.PAPER, _IDLE * problem.pod_count, 0
        for turns in range(_TURNS, 0, -1):
            if vain >= patience or self.meter.is_exhausted() or _is_best(problem, self.packing):
                break
            rounds = partial(rearrange_nodes, self.state, problem.weights, paper, random, vain, patience)
            with self.meter.get_part(1 / turns) as part:
                vain = self.run_kernel(part, rounds)
            self.offer_best()
        return self.packing


def _is_best(problem: PackingProblem, packing: Packing) -> bool:
    return packing.planned.get_key(problem.objective) == packing.bound


class EjectionSearch(ClusterSearch):
    """Ejections from a beginning on, the largest or the smallest of what waits first."""

    def __init__(
        self,
        problem: PackingProblem,
        begin: IntArray,
        packing: Packing,
        meter: BudgetMeter,
        report: ReportFunction,
        *,
        smallest_first: bool,
    ) -> None:
        super().__init__(problem, begin, packing, meter, report)
        self.smallest_first = smallest_first
        self._parts = max(problem.node_count // _SPAN, 1)

    def run(self) -> Packing:
        """Place what can be placed, one priority after the other, then bring home what was moved without need."""
        priorities = np.unique(self.problem.priorities)[::-1]
        if self.problem.objective is PackingObjective.OPERATOR:
            # First what needs no eviction, for all; then the fewest evictions, of any priority.
            self.state.rooted[0] = True
            self.place(priorities, ANY_PRIORITY)
            self.state.rooted[0] = False
            for priority in priorities.tolist():
                self.place(np.array([priority]), ANY_PRIORITY)
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
        hopeless = self.state.rooted[0] and not self.state.foreign_pods.any()
        for depth in (0,) if hopeless else _DEPTHS:
            pods = self._waiting(priorities)
            if len(pods) == 0 or self.meter.is_exhausted():
                return
            with self.meter.get_part(1.0 if depth <= 1 else _SHARE) as part:
                self._place_in_turns(part, pods, depth, below)
            self.offer_best()

    def _place_in_turns(self, meter: BudgetMeter, pods: IntArray, depth: int, below: int) -> None:
        """Deal the classes to parts of many nodes; what is left sees all nodes."""
        state = self.state
        if self._parts > 1:
            for begin in range(self._parts):
                state.span[:] = begin, self._parts
                mine = pods[self.problem.pod_class[pods] % self._parts == begin]
                self.run_kernel(meter, partial(place_by_ejection, state, mine, depth, below))
            state.span[:] = 0, 1
        self.run_kernel(meter, partial(place_by_ejection, state, pods, depth, below))

    def gather(self, seed: int) -> Packing:
        """Place what waits, the smallest of the highest priority first, where nodes can gather room for it."""
        random = np.array([2 * seed + 1], dtype=np.uint64)
        below = ANY_PRIORITY if self.problem.objective is PackingObjective.OPERATOR else 0
        for priority in np.unique(self.problem.priorities)[::-1].tolist():
            pods = self._waiting(np.array([priority]))
            if len(pods):
                self.run_kernel(self.meter, partial(place_by_gathering_capacity, self.state, pods, below, random))
        self.bring_home()
        return self.packing

    def preempt(self, priority: int) -> None:
        """Place what is left of a priority where lower ones give way."""
        pods = self._waiting(np.array([priority]))
        if len(pods) and self.problem.preemptible[self.problem.priorities < priority].any():
            self.run_kernel(self.meter, partial(place_by_preemption, self.state, pods))
            self.offer_best()

    def bring_home(self) -> None:
        """Undo moves that nothing depends on, the costliest first."""
        home, classes = self.problem.pod_node, self.problem.pod_class
        came = 1
        while came and not self.meter.is_exhausted():
            away = np.flatnonzero((home >= 0) & (self.state.node != home))
            cost = self.problem.weights[classes[away]]
            order = away[np.lexsort((away, -cost, -self.problem.priorities[classes[away]]))]
            # What came instead finds another place among some nodes, where there are many.
            self.state.span[1] = self._parts
            came = self.run_kernel(self.meter, partial(return_pods_home, self.state, order))
            self.state.span[1] = 1
        self.offer_best()

    def _waiting(self, priorities: IntArray) -> IntArray:
        order = np.array(order_pending_pods(self.problem, self.state.node), dtype=np.int64)
        if self.smallest_first:
            order = order[::-1]
            order = order[np.argsort(-self.problem.priorities[self.problem.pod_class[order]], kind="stable")]
        return order[np.isin(self.problem.priorities[self.problem.pod_class[order]], priorities)]

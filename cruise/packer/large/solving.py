"""Packs large problems: by chains of ejections for each priority, then by small changes."""

from collections.abc import Callable
from functools import partial

import numpy as np

from cruise.packer.answer import Packing, ReportFunction, build_packing, compute_counting_bound
from cruise.packer.budget import BudgetMeter
from cruise.packer.greedy import order_pending_pods
from cruise.packer.kernels.capacity_gathering import place_by_gathering_capacity
from cruise.packer.kernels.cluster_state import UNLIMITED, ClusterStateArrays, link_pods
from cruise.packer.kernels.ejection import place_by_ejection
from cruise.packer.kernels.preemption import place_by_preemption, return_pods_home
from cruise.packer.kernels.rearrangement import rearrange_nodes
from cruise.packer.kernels.rule_counts import CLOSED
from cruise.packer.problem import IntArray, PackingObjective, PackingProblem
from cruise.packer.rules.by_class import RulesByClass, build_rules_by_class
from cruise.packer.rules.kernel_tables import build_kernel_tables
from cruise.packer.rules.preemption import violates_preemption_policy

_BUCKETS = 128
_MAX_LINES = 64
_LOG_LENGTH = 4096


def build_cluster_state(problem: PackingProblem, rules: RulesByClass, pod_node: IntArray) -> ClusterStateArrays:
    """Return the state that kernels change, for an assignment that obeys every rule."""
    nodes, resources = problem.capacities.shape
    pods, classes = problem.pod_count, problem.class_count
    ranks = np.searchsorted(-np.unique(problem.priorities)[::-1], -problem.priorities).astype(np.int64)
    limit_starts = np.zeros(classes + 1, dtype=np.int64)
    np.cumsum([len(rules.limits.get(c, ())) for c in range(classes)], out=limit_starts[1:])
    limits = np.array([i for c in range(classes) for i in rules.limits.get(c, ())], dtype=np.int64)
    siblings = np.diff(rules.starts)
    demand = problem.demands[problem.pod_class].sum(axis=0)
    total = np.maximum(problem.capacities.sum(axis=0), 1)
    scarce = np.argsort(-(demand / total), kind="stable")[:2].astype(np.int64)
    scarce = scarce if resources > 1 else np.zeros(2, dtype=np.int64)
    bucket_size = np.maximum(problem.demands[:, scarce].max(axis=0, initial=1) // (_BUCKETS - 2), 1)
    mask_count = problem.allowed_nodes.shape[0]
    line = np.arange(mask_count) if mask_count <= _MAX_LINES else np.zeros(mask_count)
    # A scarce resource has a large weight, one with much to spare hardly any.
    shares = 1.0 / np.maximum(total - demand, total // 100 + 1).astype(np.float64)
    tables = build_kernel_tables(problem, rules)
    most_evicted = problem.rules.max_evicted_by_node
    state = ClusterStateArrays(
        demands=np.ascontiguousarray(problem.demands),
        headroom=np.ascontiguousarray(problem.headroom),
        ranks=ranks,
        movable=problem.movable & (tables[tables[CLOSED] + np.arange(classes)] == 0),
        preemptible=problem.preemptible,
        preempt=problem.preempt,
        maximum=np.where(problem.max_on_node >= siblings, UNLIMITED, problem.max_on_node).astype(np.int64),
        mask_of_class=problem.node_mask_of_class,
        allowed_nodes=problem.allowed_nodes,
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
        unit=bucket_size.astype(np.int64),
        line=line.astype(np.int64),
        skyline=np.zeros((min(mask_count, _MAX_LINES) if mask_count <= _MAX_LINES else 1, _BUCKETS), dtype=np.int64),
        log=np.zeros((_LOG_LENGTH, 3), dtype=np.int64),
        logged=np.zeros(1, dtype=np.int64),
        spent=np.zeros(1, dtype=np.int64),
        tables=tables,
    )
    link_pods(state)
    return state


# Below the rank of every pod, so that this excludes none.

ANY_PRIORITY = -(1 << 30)
# Work units of one step that a kernel counts, about as many nanoseconds.
_STEP = 10

Kernel = Callable[[float, float], int]


class ClusterSearch:
    """A search that changes an assignment pod by pod, from `begin`; `packing` is the best one known."""

    def __init__(
        self, problem: PackingProblem, begin: IntArray, packing: Packing, meter: BudgetMeter, report: ReportFunction
    ) -> None:
        self.problem, self.packing, self.meter, self.report = problem, packing, meter, report
        self.state: ClusterStateArrays = build_cluster_state(problem, build_rules_by_class(problem), begin)

    def run_kernel(self, meter: BudgetMeter, kernel: Kernel) -> int:
        """Run a kernel within the remaining budget, spend its steps and return its result."""
        spent = self.state.spent
        spent[0] = 0
        result = kernel(meter.deadline_seconds, meter.work_left / _STEP)
        meter.spend(float(spent[0]) * _STEP)
        return result

    def offer_best(self) -> None:
        """Use the current assignment if it is better, and report it.

        Kernels place pods that never preempt on no node with preempted pods, but ignore chains of moves.
        """
        packing = build_packing(self.problem, self.state.node.copy(), self.packing.bound)
        objective = self.problem.objective
        is_better = packing.planned.get_key(objective) > self.packing.planned.get_key(objective)
        if is_better and not violates_preemption_policy(self.problem, packing.pod_node):
            self.packing = packing
            self.report(packing)


_DEPTHS = (1, 2, 3)
# Share of the remainder for pods that fit nowhere, so that time remains for all priorities.
_DEEP_SHARE = 0.5
# Share for ejections; the rest is for gathering capacity and small changes.
_EJECTIONS_SHARE = 0.5
# With more nodes than this, a pod is tried on some of them first, spread evenly, and then on all.
_SPAN = 1_000
# Share of the remainder for gathering capacity for pods that are still pending.
_GATHERING_SHARE = 0.5
# Rearranging ends after so many failed rounds per pod; the best is reported so many times.
_MAX_FAILED_ROUNDS_PER_POD, _REPORTS = 100, 10


def solve_by_ejection(
    problem: PackingProblem,
    start: IntArray,
    meter: BudgetMeter,
    report: ReportFunction,
    seed: int = 1,
    undo_share: float = 1.0,
) -> Packing:
    """Pack by chains of ejections, no worse than the present packing or `start`; memory grows linearly with pods.

    The rest of the budget is for small changes that place more or undo moves: the share `undo_share` of it once all are
    placed.
    """
    packing = place_by_ejection_and_gathering(problem, start, meter, report, seed)
    if meter.is_exhausted() or _is_best(problem, packing):
        return packing
    with meter.get_part(undo_share if (packing.pod_node >= 0).all() else 1.0) as part:
        return RearrangementSearch(problem, packing.pod_node, packing, part, report).run(seed)


def place_by_ejection_and_gathering(
    problem: PackingProblem, start: IntArray, meter: BudgetMeter, report: ReportFunction, seed: int = 1
) -> Packing:
    """Place pods by ejections and by gathering capacity, no worse than the present packing or `start`."""
    packing = build_packing(problem, start, compute_counting_bound(problem))
    with meter.get_part(_EJECTIONS_SHARE) as part:
        packing = EjectionSearch(problem, problem.pod_node, packing, part, report).run()
    if meter.is_exhausted() or not (packing.pod_node < 0).any():
        return packing
    with meter.get_part(_GATHERING_SHARE) as part:
        return EjectionSearch(problem, packing.pod_node, packing, part, report).gather(seed)


class RearrangementSearch(ClusterSearch):
    """Makes small changes to a packing, one after the other."""

    def run(self, seed: int) -> Packing:
        """Rearrange until nothing can be better, or too many rounds failed."""
        problem, random = self.problem, np.array([2 * seed + 1], dtype=np.uint64)
        is_paper, max_failed, failed = (
            problem.objective is PackingObjective.PAPER,
            _MAX_FAILED_ROUNDS_PER_POD * problem.pod_count,
            0,
        )
        for reports_left in range(_REPORTS, 0, -1):
            if failed >= max_failed or self.meter.is_exhausted() or _is_best(problem, self.packing):
                break
            kernel = partial(rearrange_nodes, self.state, problem.weights, is_paper, random, failed, max_failed)
            with self.meter.get_part(1 / reports_left) as part:
                failed = self.run_kernel(part, kernel)
            self.offer_best()
        return self.packing


def _is_best(problem: PackingProblem, packing: Packing) -> bool:
    return packing.planned.get_key(problem.objective) == packing.bound


class EjectionSearch(ClusterSearch):
    """Places pods by ejections, the largest first."""

    @property
    def _parts(self) -> int:
        return max(self.problem.node_count // _SPAN, 1)

    def run(self) -> Packing:
        """Place pods of one priority after the other, then undo unneeded moves."""
        priorities = np.unique(self.problem.priorities)[::-1]
        if self.problem.objective is PackingObjective.OPERATOR:
            # First pods of all priorities without evictions; then with the fewest evictions.
            self.state.rooted[0] = True
            self.place(priorities, ANY_PRIORITY)
            self.state.rooted[0] = False
            for priority in priorities.tolist():
                self.place(np.array([priority]), ANY_PRIORITY)
                self.preempt(priority)
        else:
            # A pod that stays is more important than all lower priorities.
            for priority in priorities.tolist():
                self.place(np.array([priority]), 1)
                self.preempt(priority)
                self.place(np.array([priority]), 0)
        self.undo_moves()
        return self.packing

    def place(self, priorities: IntArray, below: int) -> None:
        """Place pods of these priorities by deeper and deeper ejections of pods that are so far below."""
        # If only moved pods may be ejected and there are none, ejections are useless.
        is_useless = self.state.rooted[0] and not self.state.foreign_pods.any()
        for depth in (0,) if is_useless else _DEPTHS:
            pods = self._list_pending(priorities)
            if len(pods) == 0 or self.meter.is_exhausted():
                return
            with self.meter.get_part(1.0 if depth <= 1 else _DEEP_SHARE) as part:
                self._place_by_parts(part, pods, depth, below)
            self.offer_best()

    def _place_by_parts(self, meter: BudgetMeter, pods: IntArray, depth: int, below: int) -> None:
        """Try the classes on parts of the nodes, and the remaining pods on all nodes."""
        state = self.state
        if self._parts > 1:
            for begin in range(self._parts):
                state.span[:] = begin, self._parts
                pods_of_part = pods[self.problem.pod_class[pods] % self._parts == begin]
                self.run_kernel(meter, partial(place_by_ejection, state, pods_of_part, depth, below))
            state.span[:] = 0, 1
        self.run_kernel(meter, partial(place_by_ejection, state, pods, depth, below))

    def gather(self, seed: int) -> Packing:
        """Place pending pods, the smallest of the highest priority first, where nodes can gather capacity for them."""
        random = np.array([2 * seed + 1], dtype=np.uint64)
        below = ANY_PRIORITY if self.problem.objective is PackingObjective.OPERATOR else 0
        for priority in np.unique(self.problem.priorities)[::-1].tolist():
            pods = self._list_pending(np.array([priority]))[::-1]
            if len(pods):
                self.run_kernel(self.meter, partial(place_by_gathering_capacity, self.state, pods, below, random))
        self.undo_moves()
        return self.packing

    def preempt(self, priority: int) -> None:
        """Place the remaining pods of a priority by preempting lower ones."""
        pods = self._list_pending(np.array([priority]))
        if len(pods) and self.problem.preemptible[self.problem.priorities < priority].any():
            self.run_kernel(self.meter, partial(place_by_preemption, self.state, pods))
            self.offer_best()

    def undo_moves(self) -> None:
        """Undo moves that no other pod depends on, the costliest first."""
        original_node, classes = self.problem.pod_node, self.problem.pod_class
        returned = 1
        while returned and not self.meter.is_exhausted():
            moved = np.flatnonzero((original_node >= 0) & (self.state.node != original_node))
            cost = self.problem.weights[classes[moved]]
            order = moved[np.lexsort((moved, -cost, -self.problem.priorities[classes[moved]]))]
            # In a large cluster, a pod that took the place is tried on some nodes only.
            self.state.span[1] = self._parts
            returned = self.run_kernel(self.meter, partial(return_pods_home, self.state, order))
            self.state.span[1] = 1
        self.offer_best()

    def _list_pending(self, priorities: IntArray) -> IntArray:
        order = np.array(order_pending_pods(self.problem, self.state.node), dtype=np.int64)
        return order[np.isin(self.problem.priorities[self.problem.pod_class[order]], priorities)]

"""Calls every kernel once with the types that solves use, so that no solve waits for compilation."""

import math
from dataclasses import replace

import numpy as np

from cruise.packer.answer import ignore_packing
from cruise.packer.budget import BudgetMeter
from cruise.packer.columns.bounds import ObjectiveEntryBound
from cruise.packer.columns.primal_heuristics import AnnealingSearch
from cruise.packer.consolidation import drain_nodes
from cruise.packer.kernels.compilation import read_monotonic_seconds
from cruise.packer.kernels.simplex import create_tableau, invert_basis
from cruise.packer.large.solving import solve_by_ejection
from cruise.packer.problem import (
    EvictionLimit,
    NodePrices,
    PackingObjective,
    PackingProblem,
    PlacementRules,
    SpreadRule,
    count_copies,
)
from cruise.packer.relaxed.bounds import RelaxedBounds

_NODES, _CLASSES, _COPIES, _CAPACITY = 5, 12, 2, 20
_SEED = 3
_MAX_SECONDS = 600.0


def warm_up_kernels() -> None:
    """Compile every kernel, or load it from the cache: about a minute the first time, then a second."""
    warm_up_ejection_kernels()
    warm_up_column_kernels()


def warm_up_ejection_kernels() -> None:
    """Compile or load the kernels of ejections."""
    problem = _build_ejection_problem()
    for objective in (PackingObjective.PAPER, PackingObjective.OPERATOR):
        meter = BudgetMeter(read_monotonic_seconds() + _MAX_SECONDS, math.inf)
        solve_by_ejection(replace(problem, objective=objective), problem.pod_node, meter, ignore_packing)
    RelaxedBounds(problem).compute_min_evicted(
        (1, 3, 1), 9, BudgetMeter(read_monotonic_seconds() + _MAX_SECONDS, math.inf)
    )
    node_prices = NodePrices(np.ones(2, dtype=np.int64), np.ones(4, dtype=np.bool_))
    priced = replace(problem, objective=PackingObjective.CONSOLIDATION, node_prices=node_prices)
    drain_nodes(
        priced, problem.pod_node, BudgetMeter(read_monotonic_seconds() + _MAX_SECONDS, math.inf), _SEED, ignore_packing
    )


def warm_up_column_kernels() -> None:
    """Compile or load the kernels of column generation and annealing."""
    problem, meter = _build_overfull_problem(), BudgetMeter(read_monotonic_seconds() + _MAX_SECONDS, math.inf)
    assignment = count_copies(problem, problem.pod_node)
    AnnealingSearch(problem, _SEED).anneal(assignment, 0, meter)
    domains, everywhere = np.arange(_NODES)[None, :] % 2, np.ones(_NODES, dtype=np.bool_)
    rules_with_spread = PlacementRules(
        domains, spreads=(SpreadRule(0, 0, np.zeros(1, dtype=np.int64), 1, 0, everywhere),)
    )
    for rules in (problem.rules, rules_with_spread):
        bound = ObjectiveEntryBound(replace(problem, rules=rules), assignment, 0, _SEED)
        bound.improve_bound(meter)
        bound.search_whole_patterns(assignment, meter)
        bound.branch(meter)
    # So few pivots never invert a basis.
    none = np.zeros(0, dtype=np.int64)
    invert_basis(create_tableau(np.zeros(0), 0, 0), none, none)


def _build_overfull_problem() -> PackingProblem:
    """Return a cluster that is a little too full, for which each kernel of small parts has work."""
    draws = np.random.default_rng(_SEED)
    pods = _CLASSES * _COPIES
    return PackingProblem(
        resources=("cpu", "memory"),
        capacities=np.full((_NODES, 2), _CAPACITY, dtype=np.int64),
        demands=draws.integers(2, 9, (_CLASSES, 2)),
        headroom=np.zeros((_CLASSES, 2), dtype=np.int64),
        priorities=np.zeros(_CLASSES, dtype=np.int64),
        movable=np.ones(_CLASSES, dtype=np.bool_),
        preemptible=np.ones(_CLASSES, dtype=np.bool_),
        preempt=np.ones(_CLASSES, dtype=np.bool_),
        weights=np.ones(_CLASSES, dtype=np.int64),
        max_on_node=np.full(_CLASSES, _COPIES, dtype=np.int64),
        node_mask_of_class=np.zeros(_CLASSES, dtype=np.int64),
        allowed_nodes=np.ones((1, _NODES), dtype=np.bool_),
        pod_class=np.repeat(np.arange(_CLASSES), _COPIES),
        pod_node=np.full(pods, -1, dtype=np.int64),
        rules=PlacementRules(np.zeros((0, _NODES), dtype=np.int64)),
    )


def _build_ejection_problem() -> PackingProblem:
    """Return two full nodes and pending pods of two priorities, for ejection, preemption and returns."""
    return PackingProblem(
        resources=("cpu", "memory", "pods"),
        capacities=np.array([[10, 10, 9], [10, 10, 9]]),
        demands=np.array([[4, 4, 1], [6, 6, 1], [5, 5, 1], [3, 3, 1]]),
        headroom=np.zeros((4, 3), dtype=np.int64),
        priorities=np.array([1, 1, 0, 2]),
        movable=np.ones(4, dtype=np.bool_),
        preemptible=np.array([False, False, True, False]),
        preempt=np.ones(4, dtype=np.bool_),
        weights=np.ones(4, dtype=np.int64),
        max_on_node=np.full(4, 9, dtype=np.int64),
        node_mask_of_class=np.zeros(4, dtype=np.int64),
        allowed_nodes=np.ones((1, 2), dtype=np.bool_),
        pod_class=np.array([0, 0, 1, 2, 2, 3]),
        pod_node=np.array([0, 1, -1, 0, 1, -1]),
        rules=PlacementRules(
            np.zeros((1, 2), dtype=np.int64), eviction_limits=(EvictionLimit("all", np.array([0, 2]), 3),)
        ),
    )

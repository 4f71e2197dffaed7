"""Calling every kernel once with the types that solves use, so that no solve waits for a compiler."""

import math
from dataclasses import replace

import numpy as np

from cruise.packer.answer import Packing
from cruise.packer.budget import BudgetMeter
from cruise.packer.columns.annealing import AnnealingSearch
from cruise.packer.columns.bounds import EntryBound
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
_MOST_SECONDS = 600.0


def warm_up_kernels() -> None:
    """Compile every kernel, or load it from the cache: a minute the first time, then a second."""
    warm_up_ejection_kernels()
    warm_up_column_kernels()


def warm_up_ejection_kernels() -> None:
    """Do so with the kernels of ejections."""
    problem = _ejections()
    for objective in (PackingObjective.PAPER, PackingObjective.OPERATOR):
        meter = BudgetMeter(read_monotonic_seconds() + _MOST_SECONDS, math.inf)
        solve_by_ejection(replace(problem, objective=objective), problem.pod_node, meter, _ignore)
    RelaxedBounds(problem).compute_min_evicted(
        (1, 3, 1), 9, BudgetMeter(read_monotonic_seconds() + _MOST_SECONDS, math.inf)
    )
    fleet = NodePrices(np.ones(2, dtype=np.int64), np.ones(4, dtype=np.bool_))
    priced = replace(problem, objective=PackingObjective.FLEET, node_prices=fleet)
    drain_nodes(
        priced, problem.pod_node, BudgetMeter(read_monotonic_seconds() + _MOST_SECONDS, math.inf), _SEED, _ignore
    )


def warm_up_column_kernels() -> None:
    """Do so with the kernels of small parts."""
    problem, meter = _overfull(), BudgetMeter(read_monotonic_seconds() + _MOST_SECONDS, math.inf)
    assignment = count_copies(problem, problem.pod_node)
    AnnealingSearch(problem, _SEED).anneal(assignment, 0, meter)
    halves, everywhere = np.arange(_NODES)[None, :] % 2, np.ones(_NODES, dtype=np.bool_)
    even = PlacementRules(halves, spreads=(SpreadRule(0, 0, np.zeros(1, dtype=np.int64), 1, 0, everywhere),))
    for rules in (problem.rules, even):
        question = EntryBound(replace(problem, rules=rules), assignment, 0, _SEED)
        question.improve_bound(meter)
        question.search_whole_patterns(assignment, meter)
        question.branch(meter)
    # What so few pivots never come to.
    none = np.zeros(0, dtype=np.int64)
    invert_basis(create_tableau(np.zeros(0), 0, 0), none, none)


def _overfull() -> PackingProblem:
    """A cluster that is a little too full, about which each kernel of small parts has something to do."""
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


def _ejections() -> PackingProblem:
    """Two full nodes and pods of two priorities that wait: ejection, preemption and coming home are all tried."""
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


def _ignore(packing: Packing) -> None:
    """Leave what the example finds unread."""

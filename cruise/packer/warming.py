"""Calling every kernel once with the types that solves use, so that no solve waits for a compiler."""

import math
from dataclasses import replace

import numpy as np

from cruise.packer.answer import Packing
from cruise.packer.budget import Meter
from cruise.packer.dense.bounding import EntryBound
from cruise.packer.dense.search import Search
from cruise.packer.fleet.emptying import empty_nodes
from cruise.packer.kernels.clock import seconds
from cruise.packer.kernels.simplex import empty_tableau, invert
from cruise.packer.large.solving import solve_large
from cruise.packer.problem import EvictionLimit, Fleet, Objective, Problem, Rules, Spread, copies_of
from cruise.packer.relaxed.bounding import Bounds

_NODES, _CLASSES, _COPIES, _CAPACITY = 5, 12, 2, 20
_SEED = 3
_MOST_SECONDS = 600.0


def warm_up() -> None:
    """Compile every kernel, or load it from the cache: a minute the first time, then a second."""
    warm_up_large()
    warm_up_dense()


def warm_up_large() -> None:
    """Do so with the kernels of ejections."""
    problem = _ejections()
    for objective in (Objective.PAPER, Objective.OPERATOR):
        meter = Meter(seconds() + _MOST_SECONDS, math.inf)
        solve_large(replace(problem, objective=objective), problem.pod_node, meter, _ignore)
    Bounds(problem).least_evicted((1, 3, 1), 9, Meter(seconds() + _MOST_SECONDS, math.inf))
    fleet = Fleet(np.ones(2, dtype=np.int64), np.ones(4, dtype=np.bool_))
    priced = replace(problem, objective=Objective.FLEET, fleet=fleet)
    empty_nodes(priced, problem.pod_node, Meter(seconds() + _MOST_SECONDS, math.inf), _SEED, _ignore)


def warm_up_dense() -> None:
    """Do so with the kernels of small parts."""
    problem, meter = _overfull(), Meter(seconds() + _MOST_SECONDS, math.inf)
    assignment = copies_of(problem, problem.pod_node)
    Search(problem, _SEED).anneal(assignment, 0, meter)
    halves, everywhere = np.arange(_NODES)[None, :] % 2, np.ones(_NODES, dtype=np.bool_)
    even = Rules(halves, spreads=(Spread(0, 0, np.zeros(1, dtype=np.int64), 1, 0, everywhere),))
    for rules in (problem.rules, even):
        question = EntryBound(replace(problem, rules=rules), assignment, 0, _SEED)
        question.bound(meter)
        question.dive(assignment, meter)
        question.branch(meter)
    # What so few pivots never come to.
    none = np.zeros(0, dtype=np.int64)
    invert(empty_tableau(np.zeros(0), 0, 0), none, none)


def _overfull() -> Problem:
    """A cluster that is a little too full, about which each kernel of small parts has something to do."""
    draws = np.random.default_rng(_SEED)
    pods = _CLASSES * _COPIES
    return Problem(
        resources=("cpu", "memory"),
        capacities=np.full((_NODES, 2), _CAPACITY, dtype=np.int64),
        demands=draws.integers(2, 9, (_CLASSES, 2)),
        headroom=np.zeros((_CLASSES, 2), dtype=np.int64),
        priorities=np.zeros(_CLASSES, dtype=np.int64),
        movable=np.ones(_CLASSES, dtype=np.bool_),
        preemptible=np.ones(_CLASSES, dtype=np.bool_),
        preempt=np.ones(_CLASSES, dtype=np.bool_),
        weights=np.ones(_CLASSES, dtype=np.int64),
        most_on_node=np.full(_CLASSES, _COPIES, dtype=np.int64),
        sites=np.zeros(_CLASSES, dtype=np.int64),
        admits=np.ones((1, _NODES), dtype=np.bool_),
        pod_class=np.repeat(np.arange(_CLASSES), _COPIES),
        pod_node=np.full(pods, -1, dtype=np.int64),
        rules=Rules(np.zeros((0, _NODES), dtype=np.int64)),
    )


def _ejections() -> Problem:
    """Two full nodes and pods of two priorities that wait: ejection, preemption and coming home are all tried."""
    return Problem(
        resources=("cpu", "memory", "pods"),
        capacities=np.array([[10, 10, 9], [10, 10, 9]]),
        demands=np.array([[4, 4, 1], [6, 6, 1], [5, 5, 1], [3, 3, 1]]),
        headroom=np.zeros((4, 3), dtype=np.int64),
        priorities=np.array([1, 1, 0, 2]),
        movable=np.ones(4, dtype=np.bool_),
        preemptible=np.array([False, False, True, False]),
        preempt=np.ones(4, dtype=np.bool_),
        weights=np.ones(4, dtype=np.int64),
        most_on_node=np.full(4, 9, dtype=np.int64),
        sites=np.zeros(4, dtype=np.int64),
        admits=np.ones((1, 2), dtype=np.bool_),
        pod_class=np.array([0, 0, 1, 2, 2, 3]),
        pod_node=np.array([0, 1, -1, 0, 1, -1]),
        rules=Rules(np.zeros((1, 2), dtype=np.int64), eviction_limits=(EvictionLimit("all", np.array([0, 2]), 3),)),
    )


def _ignore(packing: Packing) -> None:
    """Leave what the example finds unread."""

"""Calling every kernel once with the types that solves use, so that no solve waits for a compiler."""

import math
from dataclasses import replace

import numpy as np

from cruise.packer.answer import Packing
from cruise.packer.budget import Budget, Meter
from cruise.packer.dense.answering import answer_phase
from cruise.packer.dense.closing import closer_of
from cruise.packer.dense.generation import generation_of
from cruise.packer.dense.greedy import start
from cruise.packer.dense.instance import Instance, plain_instance
from cruise.packer.dense.phase import patterns_of, phase_of
from cruise.packer.dense.residual import residual_of
from cruise.packer.dense.search import search_of
from cruise.packer.dense.solving import solve
from cruise.packer.fleet.emptying import empty_nodes
from cruise.packer.kernels.clock import seconds
from cruise.packer.large.solving import solve_large
from cruise.packer.problem import EvictionLimit, Fleet, Objective, Problem, Rules
from cruise.packer.relaxed.bounding import Bounds

_NODES, _CLASSES, _COPIES, _CAPACITY = 5, 12, 2, 20
_SEED = 3
_WORK_UNITS, _MOST_SECONDS = 1e9, 600.0


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
    """Do so with the kernels of dense problems."""
    instance = _overfull()
    # A deadline, since a budget without one never reads the clock from here.
    deadline = seconds() + _MOST_SECONDS
    solve(instance, Budget(deadline, _WORK_UNITS, _SEED))
    meter, generator = Meter(deadline, _WORK_UNITS), np.random.default_rng(_SEED)
    residual = residual_of(instance)
    state = generator.integers(1, 2**63, 1, dtype=np.uint64)
    search = search_of(residual, 1, state, start(residual))
    phase = phase_of(residual, search.best, 1)
    generation = generation_of(phase, generator)
    generation.take(*patterns_of(phase, search.best))
    generation.generate(phase.answer - 1, meter)
    closer = closer_of(generation, generator)
    listed = closer.enumerate(generation.ceiling, meter)
    if listed is not None:
        closer.decide(listed[0], listed[1], generation.ceiling, 1.0, meter)
    generation.master.repair(phase.answer, meter)
    generation.filler.narrow(phase.running, phase.limits)
    generation.price(generation.duals, phase.counts, phase.group_size, meter)
    answer_phase(search, 0, generator, meter, lambda: None)


def _overfull() -> Instance:
    """A cluster that is a little too full, on which each part of the dense solver has something to do."""
    draws = np.random.default_rng(_SEED)
    demands = draws.integers(2, 9, (_CLASSES, 2))
    running = np.zeros((_CLASSES, _NODES), dtype=np.int64)
    capacities = np.full((_NODES, 2), _CAPACITY, dtype=np.int64)
    free = capacities.copy()
    for c in range(_CLASSES):
        node = int(np.argmax(free.min(axis=1)))
        if (demands[c] <= free[node]).all():
            running[c, node] = 1
            free[node] -= demands[c]
    return plain_instance(
        demands=demands,
        priorities=np.zeros(_CLASSES, dtype=np.int64),
        counts=np.full(_CLASSES, _COPIES, dtype=np.int64),
        movable=np.ones(_CLASSES, dtype=np.bool_),
        running=running,
        most=np.full((_CLASSES, _NODES), _COPIES, dtype=np.int64),
        capacities=capacities,
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

"""Better assignments by solving a few nodes at a time exactly, all others as they are."""

import math

import numpy as np
from ortools.sat.python import cp_model

from cruise.packer.arrays import BoolArray, FloatArray, IntArray
from cruise.packer.budget import Meter
from cruise.packer.constrained.cells import Part
from cruise.packer.constrained.incumbent import Incumbent
from cruise.packer.constrained.layout import headroom_of
from cruise.packer.constrained.model import Model
from cruise.packer.cpsat import EFFORT_UNIT

# How many copies are free to go elsewhere at once: at first, at least, and of those that wait.
_FIRST_LOOSE, _FEWEST_LOOSE, _WAITING_SHARE = 40.0, 8.0, 0.2
_FEWEST_NODES, _MOST_NODES = 4, 20
# By how much copies that have not moved are freed later: a little helps to place more, a lot to move fewer.
_RELUCTANCE = (0.3, 1.0)
_MOST_SECONDS = 0.05
# The share of looks at a problem with priced nodes that are for something else than emptying one.
_AS_BEFORE = 0.3
_LARGEST_OBJECTIVE = 2**52


def improve(incumbent: Incumbent, generator: np.random.Generator, meter: Meter, patience: float) -> None:
    """Solve one neighbourhood after the other until the budget ends, or `patience` of them in a row gain nothing."""
    loose, vain = _FIRST_LOOSE, 0
    while vain < patience and not meter.over() and not incumbent.proved:
        before = incumbent.key
        finished = _improve_on(incumbent, _pick(incumbent, generator, int(loose)), meter)
        loose = loose * 1.1 if finished else max(loose * 0.8, _FEWEST_LOOSE)
        vain = 0 if incumbent.key > before else vain + 1


def _improve_on(incumbent: Incumbent, part: Part, meter: Meter) -> bool:
    """Find the best for a part, and tell whether nothing better is there."""
    deadline = meter.deadline_seconds
    if deadline < math.inf:
        deadline += min(_MOST_SECONDS - meter.remaining_seconds(), 0.0)
    effort = min(meter.work_left, _MOST_SECONDS * EFFORT_UNIT)
    own = Meter(deadline, effort)
    model = Model(incumbent.layout, part)
    model.hint(incumbent.assignment)
    answer = model.maximise(_in_one(model), own)
    meter.spend(max(effort - own.work_left, 0.0) + model.effort)
    if answer.assignment is None:
        return False
    incumbent.offer(answer.assignment, equal_too=True)
    return answer.bound == answer.value


def _in_one(model: Model) -> cp_model.LinearExprT:
    """The entries of the key in one number, the first ones heaviest, as many as one number holds."""
    spans = [entry.most - entry.known + 1 for entry in model.entries]
    kept, product = 0, 1
    while kept < len(spans) and product * spans[kept] <= _LARGEST_OBJECTIVE:
        product *= spans[kept]
        kept += 1
    terms: list[cp_model.LinearExprT] = []
    for entry, span in zip(model.entries[:kept], spans[:kept], strict=True):
        product //= span
        terms.append(product * entry.expression())
    return cp_model.LinearExpr.sum(terms)


def _pick(incumbent: Incumbent, generator: np.random.Generator, loose: int) -> Part:
    """A few nodes, with some of the copies there and some that wait free to go to any of them."""
    layout, assignment = incumbent.layout, incumbent.assignment
    waiting = layout.counts - assignment.sum(axis=1)
    chosen = _some_waiting(layout.problem.priorities, waiting, generator, max(2, int(loose * _WAITING_SHARE)))
    nodes = int(generator.integers(_FEWEST_NODES, _MOST_NODES + 1))
    emptied = _to_empty(incumbent, generator)
    opened = np.argsort(-_likely(incumbent, chosen, generator, emptied), kind="stable")[:nodes]
    there = (assignment - np.minimum(assignment, layout.stuck))[:, opened]
    came = np.maximum(assignment - layout.running, 0)[:, opened]
    cells = np.concatenate([np.repeat(np.arange(there.size), copies.ravel()) for copies in (came, there - came)])
    # A copy that came may go back: that is where evictions can be saved.
    reluctance = _RELUCTANCE[generator.integers(2)]
    late = generator.random(len(cells)) + reluctance * (np.arange(len(cells)) >= came.sum())
    late -= 4.0 * (opened[cells % len(opened)] == emptied)
    picked = cells[np.argsort(late, kind="stable")[:loose]]
    freed = np.bincount(picked, minlength=there.size).reshape(there.shape)
    fixed = assignment.copy()
    fixed[:, opened] -= freed
    mask = np.zeros(layout.problem.node_count, dtype=np.bool_)
    mask[opened] = True
    return Part(fixed, freed.sum(axis=1) + np.where(chosen, waiting, 0), mask)


def _to_empty(incumbent: Incumbent, generator: np.random.Generator) -> int:
    """Pick a node in use with little on it, at most times where nodes have a price; -1 for none."""
    layout, assignment = incumbent.layout, incumbent.assignment
    fleet = layout.problem.fleet
    if fleet is None or generator.random() < _AS_BEFORE:
        return -1
    occupying = assignment[fleet.occupies]
    free = occupying.any(axis=0) & ~layout.stuck[fleet.occupies].any(axis=0) & (fleet.prices > 0)
    if not free.any():
        return -1
    copies = occupying.sum(axis=0) * np.exp(generator.normal(0.0, 0.7, len(free)))
    return int(np.argmin(np.where(free, copies, np.inf)))


def _some_waiting(priorities: IntArray, waiting: IntArray, generator: np.random.Generator, most: int) -> BoolArray:
    """A few of the classes with waiting copies, at times those of the highest priority first."""
    chosen = np.zeros(len(waiting), dtype=np.bool_)
    classes = generator.permutation(np.flatnonzero(waiting))
    if generator.random() < 0.5:
        classes = classes[np.argsort(-priorities[classes], kind="stable")]
    chosen[classes[:most]] = True
    return chosen


def _likely(incumbent: Incumbent, chosen: BoolArray, generator: np.random.Generator, emptied: int) -> FloatArray:
    """Which nodes to open: where a waiting class could go, where evicted copies ran or are, of a domain, or any.

    For a node that is to be emptied (-1: none is) it and those that have room for what is there.
    """
    layout, assignment = incumbent.layout, incumbent.assignment
    topologies = layout.problem.rules.topologies
    nodes = layout.problem.node_count
    likely = generator.random(nodes)
    draw = generator.random()
    if emptied >= 0:
        likely[emptied] += 4.0
        likely += 1.0 * (layout.most[assignment[:, emptied] > 0] > 0).any(axis=0) + _slack(incumbent)
        return likely
    displaced = np.flatnonzero((assignment < layout.running).any(axis=1))
    if draw < 0.6 and chosen.any():
        pod_class = int(generator.choice(np.flatnonzero(chosen)))
        likely += (layout.most[pod_class] > 0) * (1.0 + _slack(incumbent) * generator.random())
    elif draw < 0.85 and len(displaced):
        pod_class = int(generator.choice(displaced))
        likely += 2.0 * (assignment[pod_class] < layout.running[pod_class])
        likely += (assignment[pod_class] > layout.running[pod_class]) + 0.5 * (layout.most[pod_class] > 0)
    elif draw < 0.95 and len(topologies):
        domains = topologies[generator.integers(len(topologies))]
        likely += domains == domains[generator.integers(nodes)]
    return likely


def _slack(incumbent: Incumbent) -> FloatArray:
    """How much of its scarcest resource each node has left, as a share of it."""
    problem = incumbent.layout.problem
    used = incumbent.assignment.T @ problem.demands + headroom_of(problem, incumbent.assignment)
    share = 1.0 - used / np.maximum(problem.capacities, 1)
    return np.asarray(share[:, problem.demands.any(axis=0)].min(axis=1, initial=1.0), dtype=np.float64)

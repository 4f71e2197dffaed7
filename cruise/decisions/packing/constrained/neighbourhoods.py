"""Better assignments by solving a few nodes at a time exactly, all others as they are."""

import math

import numpy as np
from ortools.sat.python import cp_model

from cruise.decisions.packing.budget import Meter
from cruise.decisions.packing.constrained.incumbent import Incumbent
from cruise.decisions.packing.constrained.layout import headroom_of
from cruise.decisions.packing.constrained.model import EFFORT_UNIT, Model
from cruise.decisions.packing.instance import BoolArray, FloatArray, IntArray

_FEWEST_NODES, _FIRST_NODES = 3, 6
_MOST_SECONDS = 0.5
_LARGEST_OBJECTIVE = 2**52


def improve(incumbent: Incumbent, generator: np.random.Generator, meter: Meter, patience: float) -> None:
    """Solve one neighbourhood after the other until the budget ends, or `patience` of them in a row gain nothing."""
    nodes = incumbent.layout.problem.node_count
    size = float(min(_FIRST_NODES, nodes))
    vain = 0
    while vain < patience and not meter.over() and not incumbent.proved:
        before = incumbent.key
        finished = _improve_on(incumbent, _pick(incumbent, generator, int(size)), meter)
        size = min(size * 1.1, nodes) if finished else max(size * 0.8, _FEWEST_NODES)
        vain = 0 if incumbent.key > before else vain + 1


def _improve_on(incumbent: Incumbent, opened: BoolArray, meter: Meter) -> bool:
    """Find the best on some nodes, and tell whether nothing better is there."""
    deadline = meter.deadline_seconds
    if deadline < math.inf:
        deadline += min(_MOST_SECONDS - meter.remaining_seconds(), 0.0)
    effort = min(meter.work_left, _MOST_SECONDS * EFFORT_UNIT)
    part = Meter(deadline, effort)
    model = Model(incumbent.layout, incumbent.assignment, opened)
    model.hint(incumbent.assignment)
    answer = model.maximise(_in_one(model), part)
    meter.spend(max(effort - part.work_left, 0.0) + 1.0)
    if answer.assignment is None:
        return False
    incumbent.offer(answer.assignment, equal_too=True)
    return answer.bound <= answer.value


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
        terms.append(product * (entry.expression() - entry.known))
    return cp_model.LinearExpr.sum(terms)


def _pick(incumbent: Incumbent, generator: np.random.Generator, size: int) -> BoolArray:
    """Some nodes: where a waiting class could go, where evicted copies ran or arrived, of a domain, or any."""
    layout, assignment = incumbent.layout, incumbent.assignment
    nodes = layout.problem.node_count
    likely = generator.random(nodes)
    draw = generator.random()
    waiting = np.flatnonzero(assignment.sum(axis=1) < layout.counts)
    displaced = np.flatnonzero((assignment < layout.running).any(axis=1))
    if draw < 0.6 and len(waiting):
        pod_class = int(_drawn_by_priority(layout.problem.priorities[waiting], waiting, generator))
        likely += (layout.most[pod_class] > 0) * (1.0 + _slack(incumbent) * generator.random())
    elif draw < 0.85 and len(displaced):
        pod_class = int(generator.choice(displaced))
        likely += 2.0 * (assignment[pod_class] < layout.running[pod_class])
        likely += (assignment[pod_class] > layout.running[pod_class]) + 0.5 * (layout.most[pod_class] > 0)
    elif draw < 0.95 and len(layout.problem.rules.topologies):
        domains = layout.problem.rules.topologies[generator.integers(len(layout.problem.rules.topologies))]
        likely += domains == domains[generator.integers(nodes)]
    opened = np.zeros(nodes, dtype=np.bool_)
    opened[np.argsort(-likely, kind="stable")[:size]] = True
    return opened


def _drawn_by_priority(priorities: IntArray, classes: IntArray, generator: np.random.Generator) -> int:
    """One of the classes, the highest priority as likely as all others together."""
    if generator.random() < 0.5:
        classes = classes[priorities == priorities.max()]
    return int(generator.choice(classes))


def _slack(incumbent: Incumbent) -> FloatArray:
    """How much of its scarcest resource each node has left, as a share of it."""
    problem = incumbent.layout.problem
    used = incumbent.assignment.T @ problem.demands + headroom_of(problem, incumbent.assignment)
    share = 1.0 - used / np.maximum(problem.capacities, 1)
    return np.asarray(share[:, problem.demands.any(axis=0)].min(axis=1, initial=1.0), dtype=np.float64)

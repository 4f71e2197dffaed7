"""A plan: how many copies of each class run on each node, what that achieves, and the steps that lead there."""

from dataclasses import dataclass

import numpy as np

from cruise.decisions.packing.instance import Instance, IntArray


@dataclass(frozen=True, slots=True, order=True)
class TierFigures:
    """What a plan achieves for one priority: copies placed, and copies left where they are."""

    priority: int
    placed: int
    stayed: int


# One entry a priority, the highest first: greater is better, compared entry by entry.
Vector = tuple[TierFigures, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """`assignment[class, node]` copies, and the vector that this achieves."""

    assignment: IntArray
    vector: Vector


@dataclass(frozen=True, slots=True)
class Step:
    """Some copies of a class go from a node (None: they were pending) to a node (None: they are preempted)."""

    pod_class: int
    source: int | None
    target: int | None
    copies: int


def vector_of(instance: Instance, assignment: IntArray) -> Vector:
    """The figures of an assignment for each priority, the highest first."""
    placed = assignment.sum(axis=1)
    stayed = np.minimum(assignment, instance.running).sum(axis=1)
    return tuple(
        TierFigures(tier, int(placed[mine].sum()), int(stayed[mine].sum()))
        for tier in instance.tiers()
        for mine in (instance.priorities == tier,)
    )


def plan_of(instance: Instance, assignment: IntArray) -> Plan:
    """The plan that an assignment makes."""
    return Plan(assignment, vector_of(instance, assignment))


def steps_of(instance: Instance, plan: Plan) -> tuple[Step, ...]:
    """The fewest steps from where everything runs now to the plan, sorted by class, then source, then target.

    Copies that leave a node move as long as the class has copies that arrive somewhere; the others are preempted.
    """
    kept = np.minimum(plan.assignment, instance.running)
    leaving, arriving = instance.running - kept, plan.assignment - kept
    steps: list[Step] = []
    for pod_class in np.flatnonzero(leaving.any(axis=1) | arriving.any(axis=1)).tolist():
        sources = [(node, int(leaving[pod_class, node])) for node in np.flatnonzero(leaving[pod_class]).tolist()]
        targets = [(node, int(arriving[pod_class, node])) for node in np.flatnonzero(arriving[pod_class]).tolist()]
        steps += _matched(pod_class, sources, targets)
    return tuple(steps)


def _matched(pod_class: int, sources: list[tuple[int, int]], targets: list[tuple[int, int]]) -> list[Step]:
    steps = []
    while sources and targets:
        (source, leave), (target, arrive) = sources.pop(0), targets.pop(0)
        copies = min(leave, arrive)
        steps.append(Step(pod_class, source, target, copies))
        if leave > copies:
            sources.insert(0, (source, leave - copies))
        if arrive > copies:
            targets.insert(0, (target, arrive - copies))
    steps += [Step(pod_class, source, None, copies) for source, copies in sources]
    steps += [Step(pod_class, None, target, copies) for target, copies in targets]
    return steps

"""A plan: how many copies of each class run on each node, and what that achieves."""

from dataclasses import dataclass

import numpy as np

from cruise.packer.answer import TierFigures
from cruise.packer.arrays import IntArray
from cruise.packer.dense.instance import Instance

# One entry a priority, the highest first: greater is better, compared entry by entry.
Vector = tuple[TierFigures, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """`assignment[class, node]` copies, and the vector that this achieves."""

    assignment: IntArray
    vector: Vector


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

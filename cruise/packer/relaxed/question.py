"""What is asked of a bound: what leaving costs, and which pods must have a place in the plans that it speaks of."""

from dataclasses import dataclass

import numpy as np

from cruise.packer.arrays import BoolArray, IntArray
from cruise.packer.problem import Problem


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """The least cost of plans in which enough has a place.

    A copy of a class that leaves its node costs `cost[class]`, one without a place in the end costs 1 where its class
    is `missed`. Of the classes of row `tier` of `members` at most `spare[tier]` copies are without a place; of all
    others any number.
    """

    cost: IntArray
    missed: BoolArray
    members: BoolArray
    spare: IntArray


def fewest_missing(problem: Problem, placed: tuple[int, ...]) -> Question:
    """How many pods of a priority go without a place at least, where as many of each higher one have one."""
    tiers = np.unique(problem.priorities)[::-1]
    members = tiers[: len(placed), None] == problem.priorities
    return Question(
        cost=np.zeros(problem.class_count, dtype=np.int64),
        missed=problem.priorities == tiers[len(placed)],
        members=members,
        spare=_spare(problem, members, placed),
    )


def least_weight(problem: Problem, placed: tuple[int, ...], weights: IntArray) -> Question:
    """What leaving weighs at least, where as many of each priority, the highest first, have a place."""
    tiers = np.unique(problem.priorities)[::-1]
    members = tiers[: len(placed), None] == problem.priorities
    missed = np.zeros(problem.class_count, dtype=np.bool_)
    return Question(weights, missed, members, _spare(problem, members, placed))


def _spare(problem: Problem, members: BoolArray, placed: tuple[int, ...]) -> IntArray:
    counts = np.bincount(problem.pod_class, minlength=problem.class_count)
    return np.asarray(members @ counts - np.array(placed, dtype=np.int64), dtype=np.int64)

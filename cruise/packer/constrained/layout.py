"""A problem counted by class and node."""

from dataclasses import dataclass, replace

import numpy as np

from cruise.packer.arrays import BoolArray, IntArray
from cruise.packer.constrained.ruling import Ruling, ruling_of
from cruise.packer.problem import Problem, copies_of, loads_of


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The copies of each class, and what may become of them on each node.

    `counts[class]` exist, `running[class, node]` of them now; `stuck` of these stay in every plan. `most[class, node]`
    is how many may arrive beside all that run there, or in their place where copies are `returning`.
    `overfull[node, resource]` tells where more is held than fits.
    """

    problem: Problem
    counts: IntArray
    running: IntArray
    stuck: IntArray
    most: IntArray
    overfull: BoolArray
    ruling: Ruling
    returning: bool = False


def layout_of(problem: Problem) -> Layout:
    """Count a problem's pods."""
    running = copies_of(problem, problem.pod_node)
    stuck = np.where(problem.movable[:, None], 0, running)
    admitted = problem.admits[problem.sites]
    most = np.where(admitted, np.maximum(problem.most_on_node[:, None] - running, 0), 0)
    counts = np.bincount(problem.pod_class, minlength=problem.class_count).astype(np.int64)
    most = np.minimum(most, counts[:, None])
    rules = problem.rules
    for holder, topologies in [(rule.holder, [rule.topology]) for rule in rules.spreads] + [
        (rule.holder, list(rule.topologies)) for rule in rules.attractions
    ]:
        most[holder, (rules.topologies[topologies] < 0).any(axis=0)] = 0
    used, largest = loads_of(problem, problem.pod_node)
    overfull = used + largest > problem.capacities
    taken, kept = loads_of_stuck(problem)
    spare = problem.capacities - taken
    for resource in range(problem.demands.shape[1]):
        demand, headroom = problem.demands[:, resource], problem.headroom[:, resource]
        left = spare[None, :, resource] - np.maximum(kept[None, :, resource], headroom[:, None])
        fit = np.where(demand[:, None] > 0, left // np.maximum(demand[:, None], 1), np.where(left >= 0, most, 0))
        takes = (demand > 0) | (headroom > 0)
        most = np.where(takes[:, None], np.clip(fit, 0, most), most)
    return Layout(problem, counts, running, stuck, most, overfull, ruling_of(rules, problem.class_count))


def with_returns(layout: Layout) -> Layout | None:
    """The layout with copies that leave so that another is the first of a group, and come back; None where none do.

    No assignment expresses that: a copy that left a node and one that came there look like one that stays.
    """
    problem, movable = layout.problem, layout.running - layout.stuck
    back = np.zeros_like(layout.most)
    for rule in problem.rules.attractions:
        counted = (problem.rules.topologies[list(rule.topologies)] >= 0).any(axis=0)
        stays = layout.stuck[rule.targets][:, counted].any()
        if rule.may_be_first and not stays and layout.most[rule.holder].any():
            back[rule.targets] = movable[rule.targets]
    back[~problem.admits[problem.sites]] = 0
    if not back.any():
        return None
    return replace(layout, most=layout.most + back, returning=True)


def loads_of_stuck(problem: Problem) -> tuple[IntArray, IntArray]:
    """For each node and resource the sum of demands of what stays there in every plan, and its largest headroom."""
    return loads_of(problem, np.where(problem.movable[problem.pod_class], -1, problem.pod_node))

"""A problem counted by class and node, and the way back from counts to pods."""

from dataclasses import dataclass, replace

import numpy as np

from cruise.packer.arrays import BoolArray, IntArray
from cruise.packer.constrained.ruling import Ruling, ruling_of
from cruise.packer.problem import Problem, copies_of
from cruise.packer.rules.profiting import fairly_matched


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
    overfull = running.T @ problem.demands + headroom_of(problem, running) > problem.capacities
    spare = problem.capacities - stuck.T @ problem.demands
    kept = headroom_of(problem, stuck)
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


def headroom_of(problem: Problem, assignment: IntArray) -> IntArray:
    """The largest headroom on each of some nodes, by resource."""
    largest = np.zeros((assignment.shape[1], problem.demands.shape[1]), dtype=np.int64)
    for pod_class in np.flatnonzero(problem.headroom.any(axis=1)).tolist():
        here = assignment[pod_class] > 0
        largest[here] = np.maximum(largest[here], problem.headroom[pod_class])
    return largest


def pods_of(layout: Layout, assignment: IntArray) -> IntArray:
    """A node for every pod, such that the counts come out: as many as can stay, and movers before those that waited.

    A pod that leaves a node where a class arrives that may not preempt comes first among the movers.
    """
    problem = layout.problem
    stays = np.minimum(assignment, layout.running)
    arrivals = assignment - stays
    guarded = arrivals[~problem.preempt].sum(axis=0) > 0
    pod_node: IntArray = problem.pod_node.copy()
    order = np.argsort(problem.pod_class, kind="stable")
    firsts = np.searchsorted(problem.pod_class[order], np.arange(problem.class_count + 1))
    for pod_class in np.flatnonzero((assignment != layout.running).sum(axis=1)).tolist():
        mine = order[firsts[pod_class] : firsts[pod_class + 1]]
        sources = problem.pod_node[mine]
        left = stays[pod_class].copy()
        leavers, waiting = [], []
        for pod, source in zip(mine.tolist(), sources.tolist(), strict=True):
            if source < 0:
                waiting.append(pod)
            elif left[source] > 0:
                left[source] -= 1
                pod_node[pod] = source
            else:
                leavers.append(pod)
        leavers.sort(key=lambda pod: (not guarded[problem.pod_node[pod]], pod))
        targets = np.repeat(np.arange(problem.node_count), arrivals[pod_class])
        movers = leavers + waiting
        pod_node[movers] = -1
        pod_node[movers[: len(targets)]] = targets
    return fairly_matched(problem, pod_node)

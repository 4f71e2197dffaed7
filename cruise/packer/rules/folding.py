"""Exclusions by node as what a node holds: at most one of a class, or a resource of which there is one."""

from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np

from cruise.packer.arrays import IntArray
from cruise.packer.problem import Exclusion, Problem

# Each one makes every filling of a node a little dearer to find.
_MOST_RESOURCES = 24


def folded(problem: Problem) -> Problem:
    """The same problem with as few exclusions as can be.

    Where every node is a domain of its own, a class that excludes itself is one of which a node holds one, and classes
    that all exclude each other, as by a host port, share a resource of which each takes the only one.
    """
    problem = _without_spreads(problem)
    rules = problem.rules
    by_node = [each_its_own(row) for row in rules.topologies]
    mine = [rule for rule in rules.exclusions if by_node[rule.topology]]
    if not mine:
        return problem
    apart = _pairs(problem, mine)
    alone = [c for c in range(problem.class_count) if (c, c) in apart]
    most = problem.most_on_node.copy()
    most[alone] = np.minimum(most[alone], 1)
    cliques = _cliques(mine, apart)
    covered = {(c, c) for c in alone}
    covered |= {pair for clique in cliques for pair in combinations_with_replacement(clique, 2)}
    left = [rule for rule in mine if any(_pair(rule.holder, c) not in covered for c in rule.targets.tolist())]
    kept = tuple(rule for rule in rules.exclusions if not by_node[rule.topology] or rule in left)
    shape = (len(cliques), problem.class_count)
    takes = np.array([np.isin(np.arange(shape[1]), clique) for clique in cliques], dtype=np.int64).reshape(shape).T
    return replace(
        problem,
        resources=(*problem.resources, *(f"exclusion of {len(clique)} classes" for clique in cliques)),
        capacities=np.hstack([problem.capacities, np.ones((problem.node_count, len(cliques)), dtype=np.int64)]),
        demands=np.hstack([problem.demands, takes]),
        headroom=np.hstack([problem.headroom, np.zeros_like(takes)]),
        most_on_node=most,
        rules=replace(rules, exclusions=kept),
    )


def _without_spreads(problem: Problem) -> Problem:
    """The same problem, in which a node holds `max_skew` of a class that is spread over more nodes than it has pods.

    Some node then has none of it in any packing.
    """
    pods = np.bincount(problem.pod_class, minlength=problem.class_count)
    most, left = problem.most_on_node.copy(), []
    for rule in problem.rules.spreads:
        c = rule.holder
        sparse = rule.targets.tolist() == [c] and pods[c] < int(rule.eligible.sum())
        counted = bool(rule.eligible[problem.admits[problem.sites[c]]].all())
        if sparse and counted and each_its_own(problem.rules.topologies[rule.topology]):
            most[c] = min(int(most[c]), rule.max_skew)
        else:
            left.append(rule)
    return replace(problem, most_on_node=most, rules=replace(problem.rules, spreads=tuple(left)))


def each_its_own(domains: IntArray) -> bool:
    """Whether every node is a domain of its own."""
    return bool((domains >= 0).all()) and len(np.unique(domains)) == len(domains)


def _pair(one: int, other: int) -> tuple[int, int]:
    return min(one, other), max(one, other)


def _pairs(problem: Problem, exclusions: list[Exclusion]) -> set[tuple[int, int]]:
    """Which classes exclude each other; a class of one pod excludes itself as well."""
    pods = np.bincount(problem.pod_class, minlength=problem.class_count)
    pairs = {(c, c) for c in np.flatnonzero(pods <= 1).tolist()}
    return pairs | {_pair(rule.holder, target) for rule in exclusions for target in rule.targets.tolist()}


def _cliques(exclusions: list[Exclusion], apart: set[tuple[int, int]]) -> list[tuple[int, ...]]:
    """Sets of classes that all exclude each other and themselves, the largest first, none within another."""
    found: list[frozenset[int]] = []
    wholes = {frozenset((rule.holder, *rule.targets.tolist())) for rule in exclusions}
    pairs = {frozenset((rule.holder, target)) for rule in exclusions for target in rule.targets.tolist()}
    for some in sorted(wholes | pairs, key=lambda one: (-len(one), sorted(one))):
        whole = all(pair in apart for pair in combinations_with_replacement(sorted(some), 2))
        if whole and len(some) > 1 and not any(some <= other for other in found):
            found.append(some)
    return [tuple(sorted(some)) for some in found[:_MOST_RESOURCES]]

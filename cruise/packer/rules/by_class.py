"""Exclusions by node as what a node holds: at most one of a class, or a resource of which there is one."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from typing import TypeVar

import numpy as np

from cruise.packer.problem import (
    AttractionRule,
    BoolArray,
    EvictionLimit,
    ExclusionRule,
    IntArray,
    PackingProblem,
    SpreadRule,
    count_copies,
)

# The pods of each class and the rules that touch it, laid out once for a problem.

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class RulesByClass:
    """`order[starts[c]:starts[c + 1]]` are the pods of class c; the dictionaries hold rules with their index, by class.

    `excluded[c]` are the exclusions of class c in either role, each with the classes that it must not meet.
    `counted[c]` are the spreads that count c without holding it, `attracting[c]` the attractions to c whose holder
    may be the first of its targets. A class is `anchored` where pods that arrived may depend on it staying.
    """

    order: IntArray
    starts: IntArray
    excluded: dict[int, list[tuple[int, ExclusionRule, IntArray]]]
    attracted: dict[int, list[tuple[int, AttractionRule]]]
    attracting: dict[int, list[tuple[int, AttractionRule]]]
    spread: dict[int, list[tuple[int, SpreadRule]]]
    counted: dict[int, list[tuple[int, SpreadRule]]]
    limits: dict[int, list[int]]
    anchored: BoolArray

    def get_pods(self, classes: IntArray) -> IntArray:
        """The pods of all these classes."""
        if len(classes) == 1:
            return self.order[self.starts[classes[0]] : self.starts[classes[0] + 1]]
        parts = [self.order[self.starts[c] : self.starts[c + 1]] for c in classes.tolist()]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def build_rules_by_class(problem: PackingProblem) -> RulesByClass:
    """Lay out a problem's pods and rules by class."""
    order = np.argsort(problem.pod_class, kind="stable").astype(np.int64)
    starts = np.zeros(problem.class_count + 1, dtype=np.int64)
    np.cumsum(np.bincount(problem.pod_class, minlength=problem.class_count), out=starts[1:])
    rules = problem.rules
    attractions, spreads = list(enumerate(rules.attractions)), list(enumerate(rules.spreads))
    anchored = np.zeros(problem.class_count, dtype=np.bool_)
    for targets in [rule.targets for rule in rules.attractions] + [rule.targets for rule in rules.spreads]:
        anchored[targets] = True
    return RulesByClass(
        order,
        starts,
        group_by_class(pair for index, rule in enumerate(rules.exclusions) for pair in _both_ways(index, rule)),
        group_by_class((rule.holder, (i, rule)) for i, rule in attractions),
        group_by_class(
            (c, (i, rule)) for i, rule in attractions if rule.allows_first_pod for c in rule.targets.tolist()
        ),
        group_by_class((rule.holder, (i, rule)) for i, rule in spreads),
        group_by_class((c, (i, rule)) for i, rule in spreads for c in rule.targets.tolist() if c != rule.holder),
        group_by_class((c, index) for index, limit in enumerate(rules.eviction_limits) for c in limit.members.tolist()),
        anchored,
    )


def group_by_class(pairs: Iterable[tuple[int, T]]) -> dict[int, list[T]]:
    """Collect what belongs to each class, in order."""
    lists: defaultdict[int, list[T]] = defaultdict(list)
    for c, entry in pairs:
        lists[c].append(entry)
    return dict(lists)


def sum_over_members(limits: Sequence[EvictionLimit], per_class: IntArray) -> IntArray:
    """For each limit the sum over its members of a figure of each class."""
    sizes = np.array([len(limit.members) for limit in limits], dtype=np.int64)
    if sizes.sum() == 0:
        return np.zeros(len(limits), dtype=np.int64)
    owners = np.repeat(np.arange(len(limits)), sizes)
    sums = np.zeros(len(limits), dtype=np.int64)
    np.add.at(sums, owners, per_class[np.concatenate([limit.members for limit in limits])])
    return sums


def _both_ways(index: int, rule: ExclusionRule) -> list[tuple[int, tuple[int, ExclusionRule, IntArray]]]:
    """Each class that an exclusion touches, with those that it must not meet."""
    holder = np.array([rule.holder], dtype=np.int64)
    pairs = [(rule.holder, (index, rule, rule.targets))]
    return pairs + [(c, (index, rule, holder)) for c in rule.targets.tolist() if c != rule.holder]


# Each one makes every filling of a node a little dearer to find.
_MOST_RESOURCES = 24


def fold_exclusions(problem: PackingProblem) -> PackingProblem:
    """The same problem with as few exclusions as can be.

    Where every node is a domain of its own, a class that excludes itself is one of which a node holds one, and classes
    that all exclude each other, as by a host port, share a resource of which each takes the only one.
    """
    problem = _without_spreads(problem)
    rules = problem.rules
    by_node = [is_domain_per_node(row) for row in rules.topologies]
    mine = [rule for rule in rules.exclusions if by_node[rule.topology]]
    if not mine:
        return problem
    apart = _pairs(problem, mine)
    alone = [c for c in range(problem.class_count) if (c, c) in apart]
    most = problem.max_on_node.copy()
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
        max_on_node=most,
        rules=replace(rules, exclusions=kept),
    )


def _without_spreads(problem: PackingProblem) -> PackingProblem:
    """The same problem, in which a node holds `max_skew` of a class that is spread over more nodes than it has pods.

    Some node then has none of it in any packing.
    """
    pods = np.bincount(problem.pod_class, minlength=problem.class_count)
    most, left = problem.max_on_node.copy(), []
    for rule in problem.rules.spreads:
        c = rule.holder
        sparse = rule.targets.tolist() == [c] and pods[c] < int(rule.eligible.sum())
        counted = bool(rule.eligible[problem.allowed_nodes[problem.node_mask_of_class[c]]].all())
        if sparse and counted and is_domain_per_node(problem.rules.topologies[rule.topology]):
            most[c] = min(int(most[c]), rule.max_skew)
        else:
            left.append(rule)
    return replace(problem, max_on_node=most, rules=replace(problem.rules, spreads=tuple(left)))


def is_domain_per_node(domains: IntArray) -> bool:
    """Whether every node is a domain of its own."""
    return bool((domains >= 0).all()) and len(np.unique(domains)) == len(domains)


def _pair(one: int, other: int) -> tuple[int, int]:
    return min(one, other), max(one, other)


def _pairs(problem: PackingProblem, exclusions: list[ExclusionRule]) -> set[tuple[int, int]]:
    """Which classes exclude each other; a class of one pod excludes itself as well."""
    pods = np.bincount(problem.pod_class, minlength=problem.class_count)
    pairs = {(c, c) for c in np.flatnonzero(pods <= 1).tolist()}
    return pairs | {_pair(rule.holder, target) for rule in exclusions for target in rule.targets.tolist()}


def _cliques(exclusions: list[ExclusionRule], apart: set[tuple[int, int]]) -> list[tuple[int, ...]]:
    """Sets of classes that all exclude each other and themselves, the largest first, none within another."""
    found: list[frozenset[int]] = []
    wholes = {frozenset((rule.holder, *rule.targets.tolist())) for rule in exclusions}
    pairs = {frozenset((rule.holder, target)) for rule in exclusions for target in rule.targets.tolist()}
    for some in sorted(wholes | pairs, key=lambda one: (-len(one), sorted(one))):
        whole = all(pair in apart for pair in combinations_with_replacement(sorted(some), 2))
        if whole and len(some) > 1 and not any(some <= other for other in found):
            found.append(some)
    return [tuple(sorted(some)) for some in found[:_MOST_RESOURCES]]


# Where classes may arrive at all, as far as what attracts them says: domains that none of the targets can be in.


def restrict_to_reachable_nodes(problem: PackingProblem) -> PackingProblem:
    """The same problem, in which classes are admitted to fewer nodes where attractions keep them from the others.

    It has the same packings: what is left out has no target in any of them.
    """
    attractions = problem.rules.attractions
    if not attractions:
        return problem
    running = count_copies(problem, problem.pod_node)
    surely = _surely_staying(problem, running)
    # What stays with all its pods arrives nowhere.
    arriving = surely < np.bincount(problem.pod_class, minlength=problem.class_count)
    admits = problem.allowed_nodes[problem.node_mask_of_class] & arriving[:, None]
    while True:
        before = admits.copy()
        for rule in attractions:
            admits[rule.holder] &= _attracted(problem, rule, running, surely, admits)
        if (admits == before).all():
            break
    sites, rows = problem.node_mask_of_class.copy(), [problem.allowed_nodes]
    for c in np.flatnonzero((admits != problem.allowed_nodes[problem.node_mask_of_class]).any(axis=1)).tolist():
        sites[c] = sum(map(len, rows))
        rows.append(admits[c : c + 1])
    return replace(problem, node_mask_of_class=sites, allowed_nodes=np.concatenate(rows))


def _surely_staying(problem: PackingProblem, running: IntArray) -> IntArray:
    """How many copies of each class stay in every plan."""
    ran = running.sum(axis=1)
    leaving = np.where(problem.movable, ran, 0)
    for limit in problem.rules.eviction_limits:
        leaving[limit.members] = np.minimum(leaving[limit.members], limit.allowed)
    return np.asarray(ran - leaving)


def _attracted(
    problem: PackingProblem, rule: AttractionRule, running: IntArray, surely: IntArray, admits: BoolArray
) -> BoolArray:
    """The nodes that have domains, of all the topologies, that some target may be in before a holder arrives."""
    domains = problem.rules.topologies[list(rule.topologies)]
    found = (domains >= 0).all(axis=0)
    others = rule.targets
    if rule.allows_first_pod:
        counted = (domains >= 0).any(axis=0)
        everywhere = not running[np.ix_(rule.targets, ~counted)].any()
        if not (everywhere and surely[rule.targets].any()):
            return np.asarray(found)
        # As none is the first of all, holders alone do not bring each other.
        others = rule.targets[rule.targets != rule.holder]
    there = running[rule.targets].any(axis=0) | admits[others].any(axis=0)
    for row in domains:
        found &= np.isin(row, np.unique(row[there]))
    return np.asarray(found)

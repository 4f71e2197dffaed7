"""Groups pods and rules by class, and simplifies rules that hold on single nodes."""

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
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class RulesByClass:
    """The pods and rules of each class: `order[starts[c]:starts[c + 1]]` are the pods of class c.

    The dictionaries have rules with their index, by class. `excluded[c]` has the exclusions in either role, with the
    classes that c must not meet. `counted[c]` has the spreads that count c without being held by it, `attracting[c]`
    the attractions to c whose holder may be the first of its targets. A class is `anchored` if pods that arrived may
    depend on it.
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
        """Return the pods of all these classes."""
        if len(classes) == 1:
            return self.order[self.starts[classes[0]] : self.starts[classes[0] + 1]]
        parts = [self.order[self.starts[c] : self.starts[c + 1]] for c in classes.tolist()]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def build_rules_by_class(problem: PackingProblem) -> RulesByClass:
    """Group a problem's pods and rules by class."""
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
        group_by_class(pair for index, rule in enumerate(rules.exclusions) for pair in _list_both_roles(index, rule)),
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
    """Return a list for each class, in order."""
    lists: defaultdict[int, list[T]] = defaultdict(list)
    for c, entry in pairs:
        lists[c].append(entry)
    return dict(lists)


def sum_over_members(limits: Sequence[EvictionLimit], per_class: IntArray) -> IntArray:
    """Return for each limit the sum of a figure over its members."""
    sizes = np.array([len(limit.members) for limit in limits], dtype=np.int64)
    if sizes.sum() == 0:
        return np.zeros(len(limits), dtype=np.int64)
    owners = np.repeat(np.arange(len(limits)), sizes)
    sums = np.zeros(len(limits), dtype=np.int64)
    np.add.at(sums, owners, per_class[np.concatenate([limit.members for limit in limits])])
    return sums


def _list_both_roles(index: int, rule: ExclusionRule) -> list[tuple[int, tuple[int, ExclusionRule, IntArray]]]:
    """Return each class that an exclusion is about, with those that it must not meet."""
    holder = np.array([rule.holder], dtype=np.int64)
    pairs = [(rule.holder, (index, rule, rule.targets))]
    return pairs + [(c, (index, rule, holder)) for c in rule.targets.tolist() if c != rule.holder]


# Each extra resource makes pricing a little slower.
_MAX_RESOURCES = 24


def merge_exclusions(problem: PackingProblem) -> PackingProblem:
    """Return the same problem with as few exclusions as possible.

    If every node is a domain, a class that excludes itself has one pod per node, and classes that all exclude each
    other share a resource of which a node has one.
    """
    problem = _fold_spreads(problem)
    rules = problem.rules
    by_node = [is_domain_per_node(row) for row in rules.topologies]
    node_exclusions = [rule for rule in rules.exclusions if by_node[rule.topology]]
    if not node_exclusions:
        return problem
    excluding = _find_excluding_pairs(problem, node_exclusions)
    excluding_themselves = [c for c in range(problem.class_count) if (c, c) in excluding]
    max_on_node = problem.max_on_node.copy()
    max_on_node[excluding_themselves] = np.minimum(max_on_node[excluding_themselves], 1)
    cliques = _find_cliques(node_exclusions, excluding)
    covered = {(c, c) for c in excluding_themselves}
    covered |= {pair for clique in cliques for pair in combinations_with_replacement(clique, 2)}
    remaining = [
        rule
        for rule in node_exclusions
        if any(_sort_pair(rule.holder, c) not in covered for c in rule.targets.tolist())
    ]
    kept = tuple(rule for rule in rules.exclusions if not by_node[rule.topology] or rule in remaining)
    shape = (len(cliques), problem.class_count)
    demands = np.array([np.isin(np.arange(shape[1]), clique) for clique in cliques], dtype=np.int64).reshape(shape).T
    return replace(
        problem,
        resources=(*problem.resources, *(f"exclusion of {len(clique)} classes" for clique in cliques)),
        capacities=np.hstack([problem.capacities, np.ones((problem.node_count, len(cliques)), dtype=np.int64)]),
        demands=np.hstack([problem.demands, demands]),
        headroom=np.hstack([problem.headroom, np.zeros_like(demands)]),
        max_on_node=max_on_node,
        rules=replace(rules, exclusions=kept),
    )


def _fold_spreads(problem: PackingProblem) -> PackingProblem:
    """Express the spread of a class over more nodes than it has pods as at most `max_skew` pods on a node.

    Some node then has no pod of it in any packing.
    """
    pods = np.bincount(problem.pod_class, minlength=problem.class_count)
    max_on_node, remaining = problem.max_on_node.copy(), []
    for rule in problem.rules.spreads:
        c = rule.holder
        is_sparse = rule.targets.tolist() == [c] and pods[c] < int(rule.eligible.sum())
        is_counted = bool(rule.eligible[problem.allowed_nodes[problem.node_mask_of_class[c]]].all())
        if is_sparse and is_counted and is_domain_per_node(problem.rules.topologies[rule.topology]):
            max_on_node[c] = min(int(max_on_node[c]), rule.max_skew)
        else:
            remaining.append(rule)
    return replace(problem, max_on_node=max_on_node, rules=replace(problem.rules, spreads=tuple(remaining)))


def is_domain_per_node(domains: IntArray) -> bool:
    """Return whether every node is a separate domain."""
    return bool((domains >= 0).all()) and len(np.unique(domains)) == len(domains)


def _sort_pair(one: int, other: int) -> tuple[int, int]:
    return min(one, other), max(one, other)


def _find_excluding_pairs(problem: PackingProblem, exclusions: list[ExclusionRule]) -> set[tuple[int, int]]:
    """Return which classes exclude each other; a class of one pod excludes itself as well."""
    pods = np.bincount(problem.pod_class, minlength=problem.class_count)
    pairs = {(c, c) for c in np.flatnonzero(pods <= 1).tolist()}
    return pairs | {_sort_pair(rule.holder, target) for rule in exclusions for target in rule.targets.tolist()}


def _find_cliques(exclusions: list[ExclusionRule], excluding: set[tuple[int, int]]) -> list[tuple[int, ...]]:
    """Return sets of classes that all exclude each other and themselves, the largest first, none within another."""
    cliques: list[frozenset[int]] = []
    complete_sets = {frozenset((rule.holder, *rule.targets.tolist())) for rule in exclusions}
    pairs = {frozenset((rule.holder, target)) for rule in exclusions for target in rule.targets.tolist()}
    for classes in sorted(complete_sets | pairs, key=lambda one: (-len(one), sorted(one))):
        is_clique = all(pair in excluding for pair in combinations_with_replacement(sorted(classes), 2))
        if is_clique and len(classes) > 1 and not any(classes <= other for other in cliques):
            cliques.append(classes)
    return [tuple(sorted(classes)) for classes in cliques[:_MAX_RESOURCES]]

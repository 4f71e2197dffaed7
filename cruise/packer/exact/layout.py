"""Counts the pods of a problem by class and node, and indexes its rules by class and domain."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from cruise.packer.problem import BoolArray, IntArray, PackingProblem, PlacementRules, compute_loads, count_copies
from cruise.packer.rules.by_class import group_by_class


@dataclass(frozen=True, slots=True, eq=False)
class RulesByClassAndDomain:
    """The rules by class, and the nodes by domain of each topology.

    `ranks[class]` is equal for classes whose arrivals may have to wait for each other.
    """

    rules: PlacementRules
    domains: list[dict[int, tuple[int, ...]]]
    exclusions: Mapping[int, list[int]]
    spreads: Mapping[int, list[int]]
    eviction_limits: Mapping[int, list[int]]
    ranks: IntArray


def build_rules_by_class_and_domain(rules: PlacementRules, class_count: int) -> RulesByClassAndDomain:
    """Index rules by the classes that they concern."""
    return RulesByClassAndDomain(
        rules,
        [_group_nodes_by_domain(domains) for domains in rules.topologies],
        group_by_class(
            (c, i) for i, rule in enumerate(rules.exclusions) for c in {rule.holder, *rule.targets.tolist()}
        ),
        group_by_class((c, i) for i, rule in enumerate(rules.spreads) for c in {rule.holder, *rule.targets.tolist()}),
        group_by_class((c, i) for i, limit in enumerate(rules.eviction_limits) for c in set(limit.members.tolist())),
        _compute_ranks(rules, class_count),
    )


def select_rules_of_classes(rules: Mapping[int, list[int]], classes: Iterable[int]) -> list[int]:
    """Return the rules that concern one of the classes, each once, in order."""
    return sorted({rule for pod_class in classes for rule in rules.get(pod_class, ())})


def _compute_ranks(rules: PlacementRules, class_count: int) -> IntArray:
    """Return a common rank for classes whose pods may have to wait for each other, or for themselves."""
    waits: dict[int, set[int]] = {}
    for attraction in rules.attractions:
        targets = set(attraction.targets.tolist())
        waits.setdefault(attraction.holder, set()).update(targets)
        if attraction.holder in targets:
            for target in targets:
                waits.setdefault(target, set()).add(attraction.holder)
    reach = {start: _find_reachable(waits, start) for start in waits}
    ranks = np.arange(class_count, dtype=np.int64)
    for start in sorted(waits):
        for other in sorted(reach[start]):
            if start in reach.get(other, ()):
                ranks[other] = min(ranks[other], ranks[start])
    return ranks


def _find_reachable(waits: dict[int, set[int]], start: int) -> set[int]:
    seen: set[int] = set()
    ahead = [start]
    while ahead:
        for target in waits.get(ahead.pop(), ()):
            if target not in seen:
                seen.add(target)
                ahead.append(target)
    return seen


def _group_nodes_by_domain(domains: IntArray) -> dict[int, tuple[int, ...]]:
    nodes = group_by_class((domain, node) for node, domain in enumerate(domains.tolist()) if domain >= 0)
    return {domain: tuple(members) for domain, members in nodes.items()}


@dataclass(frozen=True, slots=True, eq=False)
class ProblemLayout:
    """The copies of each class, and how many may stay or arrive on each node.

    Of `running[class, node]` copies, `immovable` ones stay in every plan. `maximum[class, node]` copies may arrive in
    addition to the running ones, or instead of them if copies are `returning`. `overfull[node, resource]` marks
    overcommitted nodes.
    """

    problem: PackingProblem
    counts: IntArray
    running: IntArray
    immovable: IntArray
    maximum: IntArray
    overfull: BoolArray
    rules: RulesByClassAndDomain
    returning: bool = False


def build_layout(problem: PackingProblem) -> ProblemLayout:
    """Count the pods of a problem."""
    running = count_copies(problem, problem.pod_node)
    immovable = np.where(problem.movable[:, None], 0, running)
    allowed = problem.allowed_nodes[problem.node_mask_of_class]
    maximum = np.where(allowed, np.maximum(problem.max_on_node[:, None] - running, 0), 0)
    counts = np.bincount(problem.pod_class, minlength=problem.class_count).astype(np.int64)
    maximum = np.minimum(maximum, counts[:, None])
    rules = problem.rules
    for holder, topologies in [(rule.holder, [rule.topology]) for rule in rules.spreads] + [
        (rule.holder, list(rule.topologies)) for rule in rules.attractions
    ]:
        maximum[holder, (rules.topologies[topologies] < 0).any(axis=0)] = 0
    used, largest = compute_loads(problem, problem.pod_node)
    overfull = used + largest > problem.capacities
    immovable_demand, immovable_headroom = compute_immovable_loads(problem)
    spare = problem.capacities - immovable_demand
    for resource in range(problem.demands.shape[1]):
        demand, headroom = problem.demands[:, resource], problem.headroom[:, resource]
        free = spare[None, :, resource] - np.maximum(immovable_headroom[None, :, resource], headroom[:, None])
        fitting = np.where(demand[:, None] > 0, free // np.maximum(demand[:, None], 1), np.where(free >= 0, maximum, 0))
        is_needed = (demand > 0) | (headroom > 0)
        maximum = np.where(is_needed[:, None], np.clip(fitting, 0, maximum), maximum)
    return ProblemLayout(
        problem,
        counts,
        running,
        immovable,
        maximum,
        overfull,
        build_rules_by_class_and_domain(rules, problem.class_count),
    )


def add_returning_copies(layout: ProblemLayout) -> ProblemLayout | None:
    """Return the layout with copies that leave so that another is the first of a group, and return; None without any.

    An assignment cannot express that: a copy that left and one that arrived look like one that stays.
    """
    problem, movable = layout.problem, layout.running - layout.immovable
    returning = np.zeros_like(layout.maximum)
    for rule in problem.rules.attractions:
        counted = (problem.rules.topologies[list(rule.topologies)] >= 0).any(axis=0)
        has_immovable = layout.immovable[rule.targets][:, counted].any()
        if rule.allows_first_pod and not has_immovable and layout.maximum[rule.holder].any():
            returning[rule.targets] = movable[rule.targets]
    returning[~problem.allowed_nodes[problem.node_mask_of_class]] = 0
    if not returning.any():
        return None
    return replace(layout, maximum=layout.maximum + returning, returning=True)


def compute_immovable_loads(problem: PackingProblem) -> tuple[IntArray, IntArray]:
    """Return for each node and resource the demand of immovable pods, and their largest headroom."""
    return compute_loads(problem, np.where(problem.movable[problem.pod_class], -1, problem.pod_node))

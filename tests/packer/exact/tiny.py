"""Tiny random problems with every rule, a check of assignments, and the best one by exhaustive search."""

from itertools import product

import numpy as np

from cruise.packer.answer import compute_figures
from cruise.packer.problem import (
    AttractionRule,
    EvictionLimit,
    ExclusionRule,
    IntArray,
    PackingObjective,
    PackingProblem,
    PlacementRules,
    SpreadRule,
)


def random_problem(seed: int, *, headroom: bool = True, most_pods: int = 6) -> PackingProblem:
    draw = np.random.default_rng(seed)
    nodes, classes = int(draw.integers(1, 4)), int(draw.integers(1, 5))
    pods = int(draw.integers(classes, most_pods + 1)) if classes <= most_pods else most_pods
    pod_class = np.sort(np.concatenate([np.arange(classes), draw.integers(0, classes, pods)])[:pods])
    resources = int(draw.integers(1, 3))
    demands = draw.integers(0, 6, (classes, resources))
    admits = draw.random((classes, nodes)) < 0.8
    zones = draw.integers(-1, 2, nodes) if draw.random() < 0.3 else draw.integers(0, 2, nodes)
    pod_node = np.where(draw.random(pods) < 0.6, draw.integers(0, nodes, pods), -1)
    return PackingProblem(
        resources=tuple(f"resource {r}" for r in range(resources)),
        capacities=draw.integers(3, 14, (nodes, resources)),
        demands=demands,
        headroom=draw.integers(0, 4, (classes, resources)) * (headroom and draw.random() < 0.5),
        priorities=draw.integers(0, 2, classes) * 100,
        movable=draw.random(classes) < 0.8,
        preemptible=draw.random(classes) < 0.7,
        preempt=draw.random(classes) < 0.7,
        weights=draw.integers(1, 4, classes),
        max_on_node=draw.integers(1, 5, classes),
        node_mask_of_class=np.arange(classes),
        allowed_nodes=admits,
        pod_class=pod_class,
        pod_node=pod_node,
        rules=_random_rules(draw, classes, nodes, np.stack([np.arange(nodes), zones])),
        objective=PackingObjective.PAPER if draw.random() < 0.5 else PackingObjective.OPERATOR,
    )


def _random_rules(draw: np.random.Generator, classes: int, nodes: int, topologies: IntArray) -> PlacementRules:
    def some_classes() -> IntArray:
        chosen = np.flatnonzero(draw.random(classes) < 0.5)
        return chosen if len(chosen) else np.array([draw.integers(classes)])

    def a_class() -> int:
        return int(draw.integers(classes))

    def a_topology() -> int:
        return int(draw.integers(2))

    exclusions = tuple(ExclusionRule(a_topology(), a_class(), some_classes()) for _ in range(draw.integers(3)))
    attractions = tuple(
        AttractionRule((0, 1) if draw.random() < 0.2 else (a_topology(),), a_class(), some_classes())
        for _ in range(draw.integers(3))
    )
    spreads = tuple(
        SpreadRule(
            a_topology(),
            a_class(),
            some_classes(),
            int(draw.integers(1, 3)),
            int(draw.integers(1, 4)),
            draw.random(nodes) < 0.9,
        )
        for _ in range(draw.integers(2))
    )
    limits = tuple(EvictionLimit(f"limit {k}", some_classes(), int(draw.integers(3))) for k in range(draw.integers(2)))
    return PlacementRules(topologies, exclusions, attractions, spreads, limits)


def best_key(problem: PackingProblem) -> tuple[int, ...]:
    """The greatest key over every assignment of pods that obeys."""
    nodes = range(-1, problem.node_count)
    choices = [
        [int(node)] if node >= 0 and not problem.movable[c] else list(nodes)
        for c, node in zip(problem.pod_class, problem.pod_node, strict=True)
    ]
    best = compute_figures(problem, problem.pod_node).get_key(problem.objective)
    for chosen in product(*choices):
        pod_node = np.array(chosen, dtype=np.int64)
        key = compute_figures(problem, pod_node).get_key(problem.objective)
        if key > best and check_assignment(problem, pod_node):
            best = key
    return best


def check_assignment(problem: PackingProblem, pod_node: IntArray) -> bool:
    placed = [pod for pod in range(problem.pod_count) if pod_node[pod] >= 0]
    arriving = [pod for pod in placed if pod_node[pod] != problem.pod_node[pod]]
    return (
        _keeps(problem, pod_node)
        and all(_may_be(problem, pod_node, placed, pod) for pod in arriving)
        and all(_keeps_apart(problem, pod_node, placed, arriving, rule) for rule in problem.rules.exclusions)
        and all(_is_even(problem, pod_node, placed, arriving, rule) for rule in problem.rules.spreads)
        and all(_finds_company(problem, pod_node, frozenset(placed) - {pod}, pod) for pod in arriving)
        and _is_grounded(problem, pod_node, frozenset(placed) - frozenset(arriving), frozenset(arriving))
    )


def _keeps(problem: PackingProblem, pod_node: IntArray) -> bool:
    ran = problem.pod_node >= 0
    left = ran & (pod_node != problem.pod_node)
    if (left & ~problem.movable[problem.pod_class]).any():
        return False
    if (ran & (pod_node < 0) & ~problem.preemptible[problem.pod_class]).any():
        return False
    arrives = (pod_node >= 0) & (pod_node != problem.pod_node)
    left_cells = set(zip(problem.pod_class[left].tolist(), problem.pod_node[left].tolist(), strict=True))
    # No pod takes the place of an equal one that leaves: the two are interchangeable.
    if left_cells & set(zip(problem.pod_class[arrives].tolist(), pod_node[arrives].tolist(), strict=True)):
        return False
    return all(
        (left & np.isin(problem.pod_class, limit.members)).sum() <= limit.allowed
        for limit in problem.rules.eviction_limits
    )


def _may_be(problem: PackingProblem, pod_node: IntArray, placed: list[int], pod: int) -> bool:
    c, node = problem.pod_class[pod], pod_node[pod]
    here = [problem.pod_class[other] for other in placed if pod_node[other] == node]
    if not problem.allowed_nodes[problem.node_mask_of_class[c], node] or here.count(c) > problem.max_on_node[c]:
        return False
    if not problem.preempt[c] and int(node) in _made_by_preemption(problem, pod_node):
        return False
    for r in range(len(problem.resources)):
        if problem.demands[c, r] or problem.headroom[c, r]:
            taken = sum(problem.demands[k, r] for k in here) + max(problem.headroom[k, r] for k in here)
            if taken > problem.capacities[node, r]:
                return False
    return True


def _made_by_preemption(problem: PackingProblem, pod_node: IntArray) -> set[int]:
    """Where something is preempted, and where pods come from that go to such a place."""
    homes, places = problem.pod_node.tolist(), pod_node.tolist()
    found = {home for home, place in zip(homes, places, strict=True) if home >= 0 and place < 0}
    for _ in homes:
        found |= {home for home, place in zip(homes, places, strict=True) if 0 <= home != place and place in found}
    return found


def _keeps_apart(
    problem: PackingProblem, pod_node: IntArray, placed: list[int], arriving: list[int], rule: ExclusionRule
) -> bool:
    domains = problem.rules.topologies[rule.topology]
    for one in placed:
        for other in placed:
            if one == other or problem.pod_class[one] != rule.holder or problem.pod_class[other] not in rule.targets:
                continue
            together = domains[pod_node[one]] == domains[pod_node[other]] >= 0
            if together and (one in arriving or other in arriving):
                return False
    return True


def _is_even(
    problem: PackingProblem, pod_node: IntArray, placed: list[int], arriving: list[int], rule: SpreadRule
) -> bool:
    domains = problem.rules.topologies[rule.topology]
    counts = {int(domains[n]): 0 for n in range(problem.node_count) if rule.eligible[n] and domains[n] >= 0}
    for pod in placed:
        node = pod_node[pod]
        if problem.pod_class[pod] in rule.targets and rule.eligible[node] and domains[node] >= 0:
            counts[int(domains[node])] += 1
    least = 0 if len(counts) < rule.min_domains else min(counts.values(), default=0)
    for pod in arriving:
        if problem.pod_class[pod] != rule.holder:
            continue
        node = pod_node[pod]
        if domains[node] < 0:
            return False
        itself = int(rule.holder in rule.targets and not rule.eligible[node])
        if counts.get(int(domains[node]), 0) + itself - least > rule.max_skew:
            return False
    return True


def _is_grounded(problem: PackingProblem, pod_node: IntArray, there: frozenset[int], waiting: frozenset[int]) -> bool:
    """Whether the waiting pods can arrive in some order, each finding what attracts it."""
    if not waiting:
        return True
    if not problem.rules.attractions:
        return True
    return any(
        _finds_company(problem, pod_node, there, pod)
        and _is_grounded(problem, pod_node, there | {pod}, waiting - {pod})
        for pod in sorted(waiting)
    )


def _finds_company(problem: PackingProblem, pod_node: IntArray, there: frozenset[int], pod: int) -> bool:
    for rule in problem.rules.attractions:
        if rule.holder != problem.pod_class[pod]:
            continue
        targets = [other for other in there if problem.pod_class[other] in rule.targets]
        for topology in rule.topologies:
            if problem.rules.topologies[topology][pod_node[pod]] < 0:
                return False
        topologies = [problem.rules.topologies[topology] for topology in rule.topologies]
        in_a_domain = [other for other in targets if any(domains[pod_node[other]] >= 0 for domains in topologies)]
        if rule.holder in rule.targets and not in_a_domain:
            continue
        for topology in rule.topologies:
            domains = problem.rules.topologies[topology]
            if not any(domains[pod_node[other]] == domains[pod_node[pod]] for other in targets):
                return False
    return True

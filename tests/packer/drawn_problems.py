"""Small random problems with every rule, as strategies and from a seed."""

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from cruise.packer.problem import (
    AttractionRule,
    EvictionLimit,
    ExclusionRule,
    NodePrices,
    PackingObjective,
    PackingProblem,
    PlacementRules,
    SpreadRule,
)


def draw_problem(
    seed: int, nodes: int = 5, classes: int = 8, ruled: bool = True, headroom: bool = True
) -> PackingProblem:
    """A cluster that is rather full, where some pods wait and some rules are broken by what runs already."""
    source = np.random.default_rng(seed)
    counts = source.integers(1, 5, classes)
    pod_class = np.repeat(np.arange(classes, dtype=np.int64), counts)
    demands = source.integers(0, 6, (classes, 3)).astype(np.int64)
    demands[:, 2] = 1
    spare = source.integers(0, 4, (classes, 3)).astype(np.int64) * headroom
    spare[:, 2] = 0
    total = demands[pod_class].sum(axis=0)
    capacities = np.tile(np.maximum(total * source.integers(85, 115) // (100 * nodes), 1), (nodes, 1)).astype(np.int64)
    capacities += source.integers(0, 3, capacities.shape)
    capacities[:, 2] += 2
    pod_node = np.where(source.random(len(pod_class)) < 0.8, source.integers(0, nodes, len(pod_class)), -1)
    pod_node = _drop_what_overfills(pod_node, pod_class, demands, spare, capacities, bool(source.random() < 0.9))
    movable = source.random(classes) < 0.8
    objective = PackingObjective.PAPER if source.random() < 0.5 else PackingObjective.OPERATOR
    topologies = np.stack([np.arange(nodes), source.integers(-1, 3, nodes)]).astype(np.int64)
    sites, admits = source.integers(0, 2, classes).astype(np.int64), source.random((2, nodes)) < 0.85
    rules = _draw_rules(source, topologies, classes, nodes) if ruled else PlacementRules(topologies)
    problem = PackingProblem(
        resources=("cpu", "memory", "pods"),
        capacities=capacities,
        demands=demands,
        headroom=spare,
        priorities=source.integers(0, 3, classes).astype(np.int64),
        movable=movable,
        preemptible=movable & (source.random(classes) < 0.7),
        preempt=source.random(classes) < 0.8,
        weights=source.integers(1, 4, classes).astype(np.int64),
        max_on_node=np.where(source.random(classes) < 0.2, 1, 100).astype(np.int64),
        node_mask_of_class=sites,
        allowed_nodes=admits,
        pod_class=pod_class,
        pod_node=pod_node,
        rules=rules,
        objective=objective,
    )
    return counting_where_admitted(problem)


def with_fleet(problem: PackingProblem, seed: int) -> PackingProblem:
    """The problem on nodes twice as large, of one price or of several; some classes belong to their nodes."""
    source = np.random.default_rng(seed)
    prices = source.integers(1, 4, problem.node_count) if seed % 2 else np.ones(problem.node_count)
    node_prices = NodePrices(prices.astype(np.int64), source.random(problem.class_count) < 0.85)
    roomy = replace(problem, capacities=2 * problem.capacities, preempt=np.ones_like(problem.preempt))
    return replace(roomy, objective=PackingObjective.CONSOLIDATION, node_prices=node_prices)


def counting_where_admitted(problem: PackingProblem) -> PackingProblem:
    """The problem with spreads that count every node where their holder may arrive, as those of pods do."""
    spreads = tuple(
        replace(rule, eligible=rule.eligible | problem.allowed_nodes[problem.node_mask_of_class[rule.holder]])
        for rule in problem.rules.spreads
    )
    return replace(problem, rules=replace(problem.rules, spreads=spreads))


def problems(ruled: bool = True) -> st.SearchStrategy[PackingProblem]:
    """Small problems of several shapes."""
    return st.builds(
        draw_problem, st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 9), st.just(ruled), st.booleans()
    )


def _drop_what_overfills(pod_node, pod_class, demands, spare, capacities, strict):
    kept = np.full(len(pod_node), -1, dtype=np.int64)
    sums, largest = np.zeros_like(capacities), np.zeros_like(capacities)
    for pod, node in enumerate(pod_node.tolist()):
        c = pod_class[pod]
        if node < 0:
            continue
        wide = np.maximum(largest[node], spare[c])
        if strict and (sums[node] + demands[c] + wide > capacities[node]).any():
            continue
        kept[pod] = node
        sums[node] += demands[c]
        largest[node] = wide
    return kept


def _draw_rules(source, topologies, classes, nodes):
    def some():
        return np.flatnonzero(source.random(classes) < 0.25).astype(np.int64)

    def one():
        return int(source.integers(0, classes))

    def with_own(holder):
        return np.union1d(some(), [holder]) if source.random() < 0.6 else some()

    def topology():
        return int(source.integers(0, 2))

    exclusions, attractions, spreads, limits = [], [], [], []
    for _ in range(source.integers(0, 3)):
        holder = one()
        exclusions.append(ExclusionRule(topology(), holder, with_own(holder)))
    for _ in range(source.integers(0, 2)):
        holder = one()
        wanted = (topology(),) if source.random() < 0.7 else (0, 1)
        attractions.append(AttractionRule(wanted, holder, with_own(holder)))
    for _ in range(source.integers(0, 2)):
        holder = one()
        skew, least = int(source.integers(1, 3)), int(source.integers(0, 3))
        spreads.append(SpreadRule(topology(), holder, with_own(holder), skew, least, source.random(nodes) < 0.9))
    for index in range(source.integers(0, 3)):
        limits.append(EvictionLimit(f"limit-{index}", some(), int(source.integers(0, 4))))
    most_evicted = source.integers(0, 4, nodes).astype(np.int64) if source.random() < 0.4 else None
    return PlacementRules(
        topologies, tuple(exclusions), tuple(attractions), tuple(spreads), tuple(limits), most_evicted
    )

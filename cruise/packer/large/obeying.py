"""The judge of whole assignments on arrays: what breaks a rule of the problem, in words."""

import numpy as np

from cruise.packer.instance import BoolArray, IntArray
from cruise.packer.large.census import Census, census_of, sums_over
from cruise.packer.problem import Attraction, Exclusion, Problem, Spread


def find_faults(problem: Problem, pod_node: IntArray, census: Census | None = None) -> tuple[str, ...]:
    """Every kind of rule that an assignment breaks; empty for one that may be used."""
    if pod_node.shape != (problem.pod_count,):
        return (f"the assignment has shape {pod_node.shape}",)
    if ((pod_node < -1) | (pod_node >= problem.node_count)).any():
        return ("a pod is on a node that does not exist",)
    census = census or census_of(problem)
    arriving = (pod_node >= 0) & (pod_node != problem.pod_node)
    faults = _keeping_faults(problem, pod_node) + _arrival_faults(problem, pod_node, arriving)
    faults += _capacity_faults(problem, pod_node, arriving)
    if problem.rules.bind:
        faults += _rule_faults(problem, pod_node, arriving, census)
    return tuple(faults)


def _keeping_faults(problem: Problem, pod_node: IntArray) -> list[str]:
    ran = problem.pod_node >= 0
    left = ran & (pod_node != problem.pod_node)
    faults = []
    if (left & ~problem.movable[problem.pod_class]).any():
        faults.append("a pod that may not move left its node")
    if (ran & (pod_node < 0) & ~problem.preemptible[problem.pod_class]).any():
        faults.append("a pod that may not be preempted lost its place")
    gone = np.bincount(problem.pod_class[left], minlength=problem.class_count)
    limits = problem.rules.eviction_limits
    for limit, evicted in zip(limits, sums_over(limits, gone).tolist(), strict=True):
        if evicted > limit.allowed:
            faults.append(f"{limit.name}: {evicted} evicted, {limit.allowed} allowed")
    return faults


def _arrival_faults(problem: Problem, pod_node: IntArray, arriving: BoolArray) -> list[str]:
    classes, nodes = problem.pod_class[arriving], pod_node[arriving]
    faults = []
    if not problem.admits[problem.sites[classes], nodes].all():
        faults.append("a pod arrived where its class is not admitted")
    preempted = np.zeros(problem.node_count, dtype=np.bool_)
    preempted[problem.pod_node[(problem.pod_node >= 0) & (pod_node < 0)]] = True
    if (preempted[nodes] & ~problem.preempt[classes]).any():
        faults.append("a pod that does not preempt arrived where something was preempted")
    strict = np.zeros(problem.class_count, dtype=np.bool_)
    strict[classes] = True
    there = np.flatnonzero((pod_node >= 0) & strict[problem.pod_class])
    cells, copies = np.unique(problem.pod_class[there] * problem.node_count + pod_node[there], return_counts=True)
    reached = np.isin(cells, classes * problem.node_count + nodes)
    if (reached & (copies > problem.most_on_node[cells // problem.node_count])).any():
        faults.append("a node got more of a class than it may hold")
    return faults


def loads_of(problem: Problem, pod_node: IntArray) -> tuple[IntArray, IntArray]:
    """For each node and resource the sum of demands there, and the largest headroom."""
    placed = pod_node >= 0
    nodes, classes = pod_node[placed], problem.pod_class[placed]
    sums, largest = np.zeros_like(problem.capacities), np.zeros_like(problem.capacities)
    for r in range(problem.capacities.shape[1]):
        np.add.at(sums[:, r], nodes, problem.demands[classes, r])
        if problem.headroom[:, r].any():
            np.maximum.at(largest[:, r], nodes, problem.headroom[classes, r])
    return sums, largest


def _capacity_faults(problem: Problem, pod_node: IntArray, arriving: BoolArray) -> list[str]:
    sums, largest = loads_of(problem, pod_node)
    takes = np.zeros(problem.capacities.shape, dtype=np.bool_)
    wants = (problem.demands > 0) | (problem.headroom > 0)
    np.logical_or.at(takes, pod_node[arriving], wants[problem.pod_class[arriving]])
    nodes, columns = np.nonzero(takes & (sums + largest > problem.capacities))
    return [
        f"node {n}: {int(sums[n, r] + largest[n, r])} {problem.resources[r]}, {int(problem.capacities[n, r])} there"
        for n, r in zip(nodes.tolist(), columns.tolist(), strict=True)
    ]


def _rule_faults(problem: Problem, pod_node: IntArray, arriving: BoolArray, census: Census) -> list[str]:
    arrived = np.bincount(problem.pod_class[arriving], minlength=problem.class_count) > 0
    topologies = problem.rules.topologies
    faults: list[str] = []
    for index, rule in enumerate(problem.rules.exclusions):
        touched = arrived[rule.holder] or arrived[rule.targets].any()
        if touched and _share_domain(topologies[rule.topology], rule, pod_node, arriving, census):
            faults.append(f"exclusion {index}: pods share a domain")
    for index, spread in enumerate(problem.rules.spreads):
        if arrived[spread.holder] and not _is_spread(topologies[spread.topology], spread, pod_node, arriving, census):
            faults.append(f"spread {index}: too many in a domain")
    if any(arrived[attraction.holder] for attraction in problem.rules.attractions):
        faults += _grounding_faults(problem, pod_node, arriving, census)
    return faults


def _share_domain(domains: IntArray, rule: Exclusion, pod_node: IntArray, arriving: BoolArray, census: Census) -> bool:
    """Whether a holder and another pod of the targets, one of them arriving, are in one domain."""
    size = int(domains.max(initial=0)) + 1
    holders, targets = census.pods_of(np.array([rule.holder], dtype=np.int64)), census.pods_of(rule.targets)
    holders, targets = holders[pod_node[holders] >= 0], targets[pod_node[targets] >= 0]
    held, aimed = _per_domain(domains[pod_node[holders]], size), _per_domain(domains[pod_node[targets]], size)
    # A holder among its targets does not meet itself.
    itself = int(rule.holder in rule.targets.tolist())
    came = holders[arriving[holders] & (domains[pod_node[holders]] >= 0)]
    met = targets[arriving[targets] & (domains[pod_node[targets]] >= 0)]
    if (aimed[domains[pod_node[came]]] > itself).any():
        return True
    own = np.isin(met, holders).astype(np.int64)
    return bool((held[domains[pod_node[met]]] > own).any())


def _per_domain(domains: IntArray, size: int) -> IntArray:
    return np.bincount(domains[domains >= 0], minlength=size).astype(np.int64)


def _grounding_faults(problem: Problem, pod_node: IntArray, arriving: BoolArray, census: Census) -> list[str]:
    """Whether there is an order in which each pod that arrives finds its targets, or is the first of them.

    Who may be first comes as soon as it can, who needs nobody after those for whom it would be in the way.
    """
    classes = problem.pod_class
    grounded = (pod_node >= 0) & ~arriving
    holders = np.isin(classes, np.array(sorted(census.attracted), dtype=np.int64))
    wanted = np.isin(classes, np.array(sorted(census.attracting), dtype=np.int64))
    grounded |= arriving & ~holders & ~wanted
    late = arriving & ~holders & wanted
    waiting = np.flatnonzero(arriving & holders)
    while len(waiting):
        found = {
            c: _supports(problem, pod_node, grounded, census.attracted[c], census)
            for c in np.unique(classes[waiting]).tolist()
        }
        states = [
            _stands(problem.rules.topologies[:, pod_node[pod]], found[int(classes[pod])]) for pod in waiting.tolist()
        ]
        ready = waiting[[state == "first" for state in states]][:1]
        if len(ready) == 0:
            ready = waiting[[state == "supported" for state in states]]
        if len(ready) == 0 and not late.any():
            return [f"{len(waiting)} pods arrived where none of the targets is that attract them"]
        if len(ready) == 0:
            grounded |= late
            late = np.zeros_like(late)
        grounded[ready] = True
        waiting = waiting[~grounded[waiting]]
    return []


# For each rule of a class: its topologies, the domains that have a target in each, and whether it may be the first.
_Support = list[tuple[tuple[int, ...], list[set[int]], bool]]


def _supports(
    problem: Problem, pod_node: IntArray, grounded: BoolArray, rules: list[Attraction], census: Census
) -> _Support:
    supports: _Support = []
    for rule in rules:
        targets = census.pods_of(rule.targets)
        nodes = pod_node[targets[grounded[targets]]]
        domains = [set(problem.rules.topologies[t, nodes].tolist()) - {-1} for t in rule.topologies]
        supports.append((rule.topologies, domains, rule.holder in rule.targets.tolist() and not any(domains)))
    return supports


def _stands(place: IntArray, supports: _Support) -> str:
    """Tell whether a pod in these domains is `supported`, may come `first`, or is `alone`."""
    first = False
    for topologies, domains, may_start in supports:
        mine = [int(place[t]) for t in topologies]
        if all(domain in has for domain, has in zip(mine, domains, strict=True)):
            continue
        if not may_start or -1 in mine:
            return "alone"
        first = True
    return "first" if first else "supported"


def _is_spread(domains: IntArray, rule: Spread, pod_node: IntArray, arriving: BoolArray, census: Census) -> bool:
    counts, least = spread_counts(domains, rule, pod_node, census)
    holders = census.pods_of(np.array([rule.holder], dtype=np.int64))
    nodes = pod_node[holders[arriving[holders]]]
    if (domains[nodes] < 0).any():
        return False
    # Where a node is not eligible the pod counts for itself alone.
    extra = ~rule.eligible[nodes] & (rule.holder in rule.targets.tolist())
    return bool((counts[domains[nodes]] + extra - least <= rule.max_skew).all())


def spread_counts(domains: IntArray, rule: Spread, pod_node: IntArray, census: Census) -> tuple[IntArray, int]:
    """Targets in each domain, and the least over the eligible ones."""
    size = int(domains.max(initial=0)) + 1
    targets = census.pods_of(rule.targets)
    nodes = pod_node[targets]
    nodes = nodes[nodes >= 0]
    counts = _per_domain(domains[nodes[rule.eligible[nodes]]], size)
    eligible = np.unique(domains[rule.eligible & (domains >= 0)])
    if len(eligible) == 0 or len(eligible) < rule.min_domains:
        return counts, 0
    return counts, int(counts[eligible].min())

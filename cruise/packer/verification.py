"""Verifies an assignment of pods to nodes against every rule of a problem."""

import numpy as np

from cruise.packer.problem import BoolArray, IntArray, PackingProblem, compute_loads
from cruise.packer.rules.by_class import build_rules_by_class, sum_over_members
from cruise.packer.rules.domain_counts import AttractionCheck, ExclusionCheck, RuleCounts, SpreadCheck
from cruise.packer.rules.preemption import LeavingPods, violates_preemption_policy

# So many pods are tried as the first of their affinity group.
_MAX_FIRST_PODS = 50


def find_rule_violations(problem: PackingProblem, pod_node: IntArray) -> tuple[str, ...]:
    """Return every kind of rule that an assignment breaks; empty if it is valid."""
    if pod_node.shape != (problem.pod_count,):
        return (f"the assignment has shape {pod_node.shape}",)
    if ((pod_node < -1) | (pod_node >= problem.node_count)).any():
        return ("a pod is on a node that does not exist",)
    arriving = (pod_node >= 0) & (pod_node != problem.pod_node)
    violations = _find_eviction_violations(problem, pod_node) + _find_arrival_violations(problem, pod_node, arriving)
    violations += _find_capacity_violations(problem, pod_node, arriving)
    if problem.rules.are_binding:
        counts = RuleCounts(problem, build_rules_by_class(problem), pod_node)
        violations += _find_broken_rules(counts, arriving) or _find_missing_order(counts, arriving)
    return tuple(violations)


def _find_eviction_violations(problem: PackingProblem, pod_node: IntArray) -> list[str]:
    was_running = problem.pod_node >= 0
    evicted = was_running & (pod_node != problem.pod_node)
    violations = []
    if (evicted & ~problem.movable[problem.pod_class]).any():
        violations.append("a pod that may not move left its node")
    if (was_running & (pod_node < 0) & ~problem.preemptible[problem.pod_class]).any():
        violations.append("a pod that may not be preempted lost its place")
    evicted_by_class = np.bincount(problem.pod_class[evicted], minlength=problem.class_count)
    limits = problem.rules.eviction_limits
    for limit, count in zip(limits, sum_over_members(limits, evicted_by_class).tolist(), strict=True):
        if count > limit.allowed:
            violations.append(f"{limit.name}: {count} evicted, {limit.allowed} allowed")
    node_limits = problem.rules.max_evicted_by_node
    if node_limits is not None:
        evicted_by_node = np.bincount(problem.pod_node[evicted], minlength=problem.node_count)
        violations += [
            f"node {n}: {evicted_by_node[n]} evicted, {node_limits[n]} allowed"
            for n in np.flatnonzero(evicted_by_node > node_limits).tolist()
        ]
    return violations


def _find_arrival_violations(problem: PackingProblem, pod_node: IntArray, arriving: BoolArray) -> list[str]:
    classes, nodes = problem.pod_class[arriving], pod_node[arriving]
    violations = []
    if not problem.allowed_nodes[problem.node_mask_of_class[classes], nodes].all():
        violations.append("a pod arrived where its class is not allowed")
    if violates_preemption_policy(problem, pod_node):
        violations.append("a pod that does not preempt arrived where a pod was preempted")
    has_arrivals = np.zeros(problem.class_count, dtype=np.bool_)
    has_arrivals[classes] = True
    placed = np.flatnonzero((pod_node >= 0) & has_arrivals[problem.pod_class])
    class_nodes, copies = np.unique(
        problem.pod_class[placed] * problem.node_count + pod_node[placed], return_counts=True
    )
    is_checked = np.isin(class_nodes, classes * problem.node_count + nodes)
    if (is_checked & (copies > problem.max_on_node[class_nodes // problem.node_count])).any():
        violations.append("a node got more of a class than it may hold")
    return violations


def _find_capacity_violations(problem: PackingProblem, pod_node: IntArray, arriving: BoolArray) -> list[str]:
    sums, largest = compute_loads(problem, pod_node)
    is_checked = np.zeros(problem.capacities.shape, dtype=np.bool_)
    needed = (problem.demands > 0) | (problem.headroom > 0)
    np.logical_or.at(is_checked, pod_node[arriving], needed[problem.pod_class[arriving]])
    nodes, columns = np.nonzero(is_checked & (sums + largest > problem.capacities))
    return [
        f"node {n}: {int(sums[n, r] + largest[n, r])} {problem.resources[r]}, {int(problem.capacities[n, r])} there"
        for n, r in zip(nodes.tolist(), columns.tolist(), strict=True)
    ]


def _find_broken_rules(counts: RuleCounts, arriving: BoolArray) -> list[str]:
    """Return every rule that rejects a pod where it arrived, with all other pods in their final place."""
    problem = counts.problem
    pods = np.flatnonzero(arriving)
    class_nodes = problem.pod_class[pods] * problem.node_count + counts.pod_node[pods]
    violations: dict[str, None] = {}
    for pod in pods[np.unique(class_nodes, return_index=True)[1]].tolist():
        checks = counts.get_checks(int(problem.pod_class[pod]))
        if checks:
            node = int(counts.pod_node[pod])
            counts.evict(pod)
            violations |= dict.fromkeys(_describe_violation(rule) for rule in checks if not rule.allows(node))
            counts.place(pod, node)
    return sorted(violations)


def _describe_violation(rule: ExclusionCheck | AttractionCheck | SpreadCheck) -> str:
    match rule:
        case ExclusionCheck():
            return f"exclusion {rule.index}: pods share a domain"
        case AttractionCheck():
            return f"attraction {rule.index}: none of the targets is in the domain"
        case SpreadCheck():
            return f"spread {rule.index}: too many in a domain"


def _find_missing_order(counts: RuleCounts, arriving: BoolArray) -> list[str]:
    """Return a violation if there is no order in which each arriving pod finds its targets, or is the first.

    All evicted pods leave first, or else only after pods that need them have arrived.
    """
    unsupported = _count_unsupported(counts, arriving, None)
    if unsupported and (counts.problem.pod_node >= 0)[counts.pod_node != counts.problem.pod_node].any():
        unsupported = _count_unsupported(counts, arriving, LeavingPods(counts.problem, counts.rules))
    return [f"{unsupported} pods arrived where none of the targets is that attract them"] if unsupported else []


def _count_unsupported(final: RuleCounts, arriving: BoolArray, before: LeavingPods | None) -> int:
    """Return the least number of arriving pods without their targets; `before` has the pods that leave later.

    Pods that may be the first arrive as early as possible, because others would prevent it; pods without attraction
    arrive last. If several may be the first, one after the other is tried.
    """
    problem, rules = final.problem, final.rules
    counts = RuleCounts(problem, rules, final.pod_node)
    holders = np.isin(problem.pod_class, np.array(sorted(rules.attracted), dtype=np.int64))
    targets = np.isin(problem.pod_class, np.array(sorted(rules.attracting), dtype=np.int64))
    target: list[int] = counts.pod_node.tolist()
    unplaced = attracted = np.flatnonzero(arriving & holders).tolist()
    others = np.flatnonzero(arriving & ~holders & targets).tolist()
    if not unplaced:
        return 0
    for pod in (*unplaced, *others):
        counts.evict(pod)
    placed: list[int] = []
    untried: list[tuple[int, int]] = []  # a pod that may be first, after so many arrivals
    unsupported, tries_left = len(unplaced), _MAX_FIRST_PODS
    while unplaced:
        support = {pod: _get_support(counts, pod, target[pod], before) for pod in unplaced}
        first_pods = {(int(problem.pod_class[p]), target[p]): p for p in reversed(unplaced) if support[p] == "first"}
        supported = [pod for pod in unplaced if support[pod] == "supported"]
        # While evicted pods are still there, no pod is the first.
        ready = supported if before is not None and supported else list(first_pods.values())[-1:] or supported
        untried += [(len(placed), pod) for pod in list(first_pods.values())[:-1]]
        if not ready:
            placed_set = set(placed)
            ready = [pod for pod in others if pod not in placed_set]
        if not ready:
            unsupported = min(unsupported, len(unplaced))
            if not untried or not tries_left:
                return unsupported
            tries_left -= 1
            keep_count, first = untried.pop()
            for pod in placed[keep_count:]:
                counts.evict(pod)
            del placed[keep_count:]
            placed_set, ready = set(placed), [first]
            unplaced = [pod for pod in attracted if pod not in placed_set]
        for pod in ready:
            counts.place(pod, target[pod])
        placed += ready
        arrived = set(ready)
        unplaced = [pod for pod in unplaced if pod not in arrived]
    return 0


def _get_support(counts: RuleCounts, pod: int, node: int, before: LeavingPods | None) -> str:
    """Return whether a pod on a node is `supported` by its targets, may be `first`, or is `alone`."""
    checks = [
        rule for rule in counts.get_checks(int(counts.problem.pod_class[pod])) if isinstance(rule, AttractionCheck)
    ]
    if all(rule.supports(node) for rule in checks):
        return "supported"
    if before is not None:
        source = int(counts.problem.pod_node[pod])
        topologies = [
            (check, *pair) for check in checks for pair in zip(check.targets, check.rule.topologies, strict=True)
        ]
        if all(
            counts_now.get_at_node(node) > 0 or before.find_supporting_targets(check.rule, topology, node, source)
            for check, counts_now, topology in topologies
        ):
            return "supported"
    return "first" if all(rule.allows(node) for rule in checks) else "alone"

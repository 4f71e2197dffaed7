"""The judge of whole assignments on arrays: what breaks a rule of the problem, in words."""

import numpy as np

from cruise.packer.problem import BoolArray, IntArray, PackingProblem, compute_loads
from cruise.packer.rules.by_class import build_rules_by_class, sum_over_members
from cruise.packer.rules.domain_counts import AttractionCheck, ExclusionCheck, RuleCounts, SpreadCheck
from cruise.packer.rules.preemption import LeavingPods, has_undue_profit

# Of pods that might come first, where one of them has to.
_MOST_FIRST_PODS = 50


def find_rule_violations(problem: PackingProblem, pod_node: IntArray) -> tuple[str, ...]:
    """Every kind of rule that an assignment breaks; empty for one that may be used."""
    if pod_node.shape != (problem.pod_count,):
        return (f"the assignment has shape {pod_node.shape}",)
    if ((pod_node < -1) | (pod_node >= problem.node_count)).any():
        return ("a pod is on a node that does not exist",)
    arriving = (pod_node >= 0) & (pod_node != problem.pod_node)
    faults = _keeping_faults(problem, pod_node) + _arrival_faults(problem, pod_node, arriving)
    faults += _capacity_faults(problem, pod_node, arriving)
    if problem.rules.are_binding:
        counts = RuleCounts(problem, build_rules_by_class(problem), pod_node)
        faults += _broken_rules(counts, arriving) or _lacking_orders(counts, arriving)
    return tuple(faults)


def _keeping_faults(problem: PackingProblem, pod_node: IntArray) -> list[str]:
    ran = problem.pod_node >= 0
    left = ran & (pod_node != problem.pod_node)
    faults = []
    if (left & ~problem.movable[problem.pod_class]).any():
        faults.append("a pod that may not move left its node")
    if (ran & (pod_node < 0) & ~problem.preemptible[problem.pod_class]).any():
        faults.append("a pod that may not be preempted lost its place")
    gone = np.bincount(problem.pod_class[left], minlength=problem.class_count)
    limits = problem.rules.eviction_limits
    for limit, evicted in zip(limits, sum_over_members(limits, gone).tolist(), strict=True):
        if evicted > limit.allowed:
            faults.append(f"{limit.name}: {evicted} evicted, {limit.allowed} allowed")
    most = problem.rules.max_evicted_by_node
    if most is not None:
        of_node = np.bincount(problem.pod_node[left], minlength=problem.node_count)
        faults += [
            f"node {n}: {of_node[n]} evicted, {most[n]} allowed" for n in np.flatnonzero(of_node > most).tolist()
        ]
    return faults


def _arrival_faults(problem: PackingProblem, pod_node: IntArray, arriving: BoolArray) -> list[str]:
    classes, nodes = problem.pod_class[arriving], pod_node[arriving]
    faults = []
    if not problem.allowed_nodes[problem.node_mask_of_class[classes], nodes].all():
        faults.append("a pod arrived where its class is not admitted")
    if has_undue_profit(problem, pod_node):
        faults.append("a pod that does not preempt arrived where preemption made room")
    strict = np.zeros(problem.class_count, dtype=np.bool_)
    strict[classes] = True
    there = np.flatnonzero((pod_node >= 0) & strict[problem.pod_class])
    cells, copies = np.unique(problem.pod_class[there] * problem.node_count + pod_node[there], return_counts=True)
    reached = np.isin(cells, classes * problem.node_count + nodes)
    if (reached & (copies > problem.max_on_node[cells // problem.node_count])).any():
        faults.append("a node got more of a class than it may hold")
    return faults


def _capacity_faults(problem: PackingProblem, pod_node: IntArray, arriving: BoolArray) -> list[str]:
    sums, largest = compute_loads(problem, pod_node)
    takes = np.zeros(problem.capacities.shape, dtype=np.bool_)
    wants = (problem.demands > 0) | (problem.headroom > 0)
    np.logical_or.at(takes, pod_node[arriving], wants[problem.pod_class[arriving]])
    nodes, columns = np.nonzero(takes & (sums + largest > problem.capacities))
    return [
        f"node {n}: {int(sums[n, r] + largest[n, r])} {problem.resources[r]}, {int(problem.capacities[n, r])} there"
        for n, r in zip(nodes.tolist(), columns.tolist(), strict=True)
    ]


def _broken_rules(counts: RuleCounts, arriving: BoolArray) -> list[str]:
    """Every rule that keeps a pod from where it arrived, with everything else in its final place."""
    problem = counts.problem
    pods = np.flatnonzero(arriving)
    cells = problem.pod_class[pods] * problem.node_count + counts.pod_node[pods]
    faults: dict[str, None] = {}
    for pod in pods[np.unique(cells, return_index=True)[1]].tolist():
        filters = counts.get_checks(int(problem.pod_class[pod]))
        if filters:
            node = int(counts.pod_node[pod])
            counts.evict(pod)
            faults |= dict.fromkeys(_fault(rule) for rule in filters if not rule.allows(node))
            counts.place(pod, node)
    return sorted(faults)


def _fault(rule: ExclusionCheck | AttractionCheck | SpreadCheck) -> str:
    match rule:
        case ExclusionCheck():
            return f"exclusion {rule.index}: pods share a domain"
        case AttractionCheck():
            return f"attraction {rule.index}: none of the targets is in the domain"
        case SpreadCheck():
            return f"spread {rule.index}: too many in a domain"


def _lacking_orders(counts: RuleCounts, arriving: BoolArray) -> list[str]:
    """Whether there is an order in which each pod that arrives finds its targets, or is the first of them.

    All that leave do so first, or else those that they keep company come before.
    """
    alone = _alone(counts, arriving, None)
    if alone and (counts.problem.pod_node >= 0)[counts.pod_node != counts.problem.pod_node].any():
        alone = _alone(counts, arriving, LeavingPods(counts.problem, counts.rules))
    return [f"{alone} pods arrived where none of the targets is that attract them"] if alone else []


def _alone(final: RuleCounts, arriving: BoolArray, before: LeavingPods | None) -> int:
    """How many pods at least find none of their targets, where those that leave are there `before`.

    What may be first comes as soon as it can, since others would be in its way, and what no rule attracts comes last.
    Where several may be first, one after the other is tried.
    """
    problem, rules = final.problem, final.rules
    counts = RuleCounts(problem, rules, final.pod_node)
    holders = np.isin(problem.pod_class, np.array(sorted(rules.attracted), dtype=np.int64))
    wanted = np.isin(problem.pod_class, np.array(sorted(rules.attracting), dtype=np.int64))
    target: list[int] = counts.pod_node.tolist()
    waiting = attracted = np.flatnonzero(arriving & holders).tolist()
    late = np.flatnonzero(arriving & ~holders & wanted).tolist()
    if not waiting:
        return 0
    for pod in (*waiting, *late):
        counts.evict(pod)
    came: list[int] = []
    untried: list[tuple[int, int]] = []  # a pod that may be first, once so many came
    alone, tries = len(waiting), _MOST_FIRST_PODS
    while waiting:
        stands = {pod: _stands(counts, pod, target[pod], before) for pod in waiting}
        firsts = {(int(problem.pod_class[p]), target[p]): p for p in reversed(waiting) if stands[p] == "first"}
        supported = [pod for pod in waiting if stands[pod] == "supported"]
        # Beside those that are yet to leave, no pod is the first.
        ready = supported if before is not None and supported else list(firsts.values())[-1:] or supported
        untried += [(len(came), pod) for pod in list(firsts.values())[:-1]]
        if not ready:
            there = set(came)
            ready = [pod for pod in late if pod not in there]
        if not ready:
            alone = min(alone, len(waiting))
            if not untried or not tries:
                return alone
            tries -= 1
            kept, first = untried.pop()
            for pod in came[kept:]:
                counts.evict(pod)
            del came[kept:]
            there, ready = set(came), [first]
            waiting = [pod for pod in attracted if pod not in there]
        for pod in ready:
            counts.place(pod, target[pod])
        came += ready
        arrived = set(ready)
        waiting = [pod for pod in waiting if pod not in arrived]
    return 0


def _stands(counts: RuleCounts, pod: int, node: int, before: LeavingPods | None) -> str:
    """Tell whether a pod on a node is `supported` by its targets, may come `first`, or is `alone`."""
    company = [
        rule for rule in counts.get_checks(int(counts.problem.pod_class[pod])) if isinstance(rule, AttractionCheck)
    ]
    if all(rule.supports(node) for rule in company):
        return "supported"
    if before is not None:
        home = int(counts.problem.pod_node[pod])
        topologies = [(one, *pair) for one in company for pair in zip(one.targets, one.rule.topologies, strict=True)]
        if all(
            now.get_at_node(node) > 0 or before.find_companions(one.rule, t, node, home) for one, now, t in topologies
        ):
            return "supported"
    return "first" if all(rule.allows(node) for rule in company) else "alone"

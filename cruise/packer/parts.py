"""Parts of a problem that have nothing to do with each other, and what their answers say of the whole."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from cruise.packer.arrays import BoolArray, IntArray
from cruise.packer.problem import Attraction, Exclusion, Fleet, Problem, Rules, Spread
from cruise.packer.rules.by_class import sums_over

R = TypeVar("R", Exclusion, Attraction, Spread)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A part as a problem of its own; `pods` and `nodes` are its pods and nodes in the whole.

    Nodes are in their order, pods node by node: what is looked at together lies together in memory.
    """

    problem: Problem
    pods: IntArray
    nodes: IntArray

    def assignment(self, pod_node: IntArray) -> IntArray:
        """The part of a whole assignment."""
        place = np.full(int(self.nodes.max(initial=0)) + 2, -1, dtype=np.int64)
        place[self.nodes] = np.arange(len(self.nodes))
        return place[pod_node[self.pods]]

    def spread_into(self, whole: IntArray, pod_node: IntArray) -> IntArray:
        """A whole assignment with the part's pods as the part has them."""
        result = whole.copy()
        result[self.pods] = np.where(pod_node >= 0, self.nodes[pod_node], -1)
        return result


def parts_of(problem: Problem) -> tuple[Part, ...]:
    """The parts of a problem, the one with the first node first; a single part where all hangs together.

    Limits that allow every eviction are left out of them.
    """
    active = _active(problem)
    used = np.unique(problem.sites[active])
    if len(used) and problem.admits[used].all(axis=1).any():
        return (_whole(problem),)
    labels = _labels(problem, active)
    groups = np.unique(labels[_node_offset(problem) :])
    if len(groups) <= 1:
        return (_whole(problem),)
    return tuple(_part(problem, labels, active, group) for group in groups.tolist())


def _whole(problem: Problem) -> Part:
    pods = _node_by_node(problem, np.arange(problem.pod_count))
    whole = replace(
        problem, pod_class=problem.pod_class[pods], pod_node=problem.pod_node[pods], rules=_binding(problem)
    )
    return Part(whole, pods, np.arange(problem.node_count))


def _node_by_node(problem: Problem, pods: IntArray) -> IntArray:
    return pods[np.argsort(problem.pod_node[pods], kind="stable")]


def _node_offset(problem: Problem) -> int:
    return problem.class_count + int(problem.admits.shape[0])


def _active(problem: Problem) -> BoolArray:
    """The classes that some decision or rule is about; pods of the others are no more than a load on their node."""
    active = np.zeros(problem.class_count, dtype=np.bool_)
    active[problem.pod_class[problem.pod_node < 0]] = True
    active[problem.pod_class[problem.pod_node >= 0]] |= problem.movable[problem.pod_class[problem.pod_node >= 0]]
    rules = problem.rules
    for holder, targets in _pairs(rules):
        active[holder] = True
        active[targets] = True
    return active


def _pairs(rules: Rules) -> list[tuple[int, IntArray]]:
    """Of each rule between classes its holder and its targets."""
    return [
        *((rule.holder, rule.targets) for rule in rules.exclusions),
        *((rule.holder, rule.targets) for rule in rules.attractions),
        *((rule.holder, rule.targets) for rule in rules.spreads),
    ]


def _labels(problem: Problem, active: BoolArray) -> IntArray:
    """The least member of each one's component, over classes, sites and nodes in this order."""
    first_site, first_node = problem.class_count, _node_offset(problem)
    classes = np.flatnonzero(active)
    sites, admitted = np.nonzero(problem.admits)
    wanted = np.isin(sites, problem.sites[classes])
    running = (problem.pod_node >= 0) & active[problem.pod_class]
    cells = np.unique(problem.pod_class[running] * problem.node_count + problem.pod_node[running])
    edges = [
        np.stack([classes, first_site + problem.sites[classes]]),
        np.stack([first_site + sites[wanted], first_node + admitted[wanted]]),
        np.stack([cells // problem.node_count, first_node + cells % problem.node_count]),
        *_rule_edges(problem, first_node),
    ]
    one, other = np.concatenate(edges, axis=1)
    labels = np.arange(first_node + problem.node_count)
    while True:
        before = labels.copy()
        np.minimum.at(labels, one, labels[other])
        np.minimum.at(labels, other, labels[one])
        labels = labels[labels]
        if (labels == before).all():
            return labels


def _rule_edges(problem: Problem, first_node: int) -> Iterator[IntArray]:
    rules = problem.rules
    for holder, targets in _pairs(rules):
        yield np.stack([np.full(len(targets), holder), targets])
    counted: dict[bytes, IntArray] = {}
    for spread in rules.spreads:
        # A domain without any target is a domain all the same.
        key = np.packbits(spread.eligible).tobytes()
        if key not in counted:
            counted[key] = first_node + np.flatnonzero(spread.eligible)
            yield np.stack([counted[key][:1].repeat(len(counted[key])), counted[key]])
        yield np.stack([np.full(min(len(counted[key]), 1), spread.holder), counted[key][:1]])
    evictable = _evictable(problem)
    for limit in rules.eviction_limits:
        if evictable[limit.members].sum() > limit.allowed:
            members = limit.members[evictable[limit.members] > 0]
            yield np.stack([members[:1].repeat(len(members)), members])


def _part(problem: Problem, labels: IntArray, active: BoolArray, group: int) -> Part:
    nodes = np.flatnonzero(labels[_node_offset(problem) :] == group)
    inside = np.zeros(problem.node_count + 1, dtype=np.bool_)
    inside[nodes] = True
    mine = np.where(active[problem.pod_class], labels[problem.pod_class] == group, inside[problem.pod_node])
    return part_of(problem, _node_by_node(problem, np.flatnonzero(mine)), nodes)


def part_of(problem: Problem, pods: IntArray, nodes: IntArray) -> Part:
    """Some pods on some nodes as a problem of their own; rules are cut down to its classes and nodes."""
    classes = np.unique(problem.pod_class[pods])
    number = np.full(problem.class_count, -1, dtype=np.int64)
    number[classes] = np.arange(len(classes))
    place = np.full(problem.node_count + 1, -1, dtype=np.int64)
    place[nodes] = np.arange(len(nodes))
    part = replace(
        problem,
        capacities=problem.capacities[nodes],
        demands=problem.demands[classes],
        headroom=problem.headroom[classes],
        priorities=problem.priorities[classes],
        movable=problem.movable[classes],
        preemptible=problem.preemptible[classes],
        preempt=problem.preempt[classes],
        weights=problem.weights[classes],
        most_on_node=problem.most_on_node[classes],
        sites=problem.sites[classes],
        admits=np.ascontiguousarray(problem.admits[:, nodes]),
        pod_class=number[problem.pod_class[pods]],
        pod_node=place[problem.pod_node[pods]],
        fleet=None if problem.fleet is None else Fleet(problem.fleet.prices[nodes], problem.fleet.occupies[classes]),
        rules=_cut(problem.rules, number, nodes),
    )
    return Part(replace(part, rules=_binding(part)), pods, nodes)


def _binding(problem: Problem) -> Rules:
    """The rules without the limits that no plan can reach."""
    limits = problem.rules.eviction_limits
    most = sums_over(limits, _evictable(problem)).tolist()
    binding = tuple(limit for limit, pods in zip(limits, most, strict=True) if pods > limit.allowed)
    return replace(problem.rules, eviction_limits=binding, most_evicted=_binding_on_nodes(problem))


def _binding_on_nodes(problem: Problem) -> IntArray | None:
    """The evictions allowed on each node, None where no node has as many pods to evict."""
    most = problem.rules.most_evicted
    if most is None:
        return None
    evictable = (problem.pod_node >= 0) & problem.movable[problem.pod_class]
    there = np.bincount(problem.pod_node[evictable], minlength=problem.node_count)
    return most if (there > most).any() else None


def _evictable(problem: Problem) -> IntArray:
    """How many pods of each class could be evicted."""
    classes = problem.pod_class[problem.pod_node >= 0]
    return np.bincount(classes[problem.movable[classes]], minlength=problem.class_count)


def _cut(rules: Rules, number: IntArray, nodes: IntArray) -> Rules:
    def some(classes: IntArray) -> IntArray:
        inside = number[classes]
        return inside[inside >= 0]

    def mine(of_all: tuple[R, ...]) -> list[R]:
        return [
            replace(rule, holder=int(number[rule.holder]), targets=some(rule.targets))
            for rule in of_all
            if number[rule.holder] >= 0
        ]

    limits = [replace(limit, members=some(limit.members)) for limit in rules.eviction_limits]
    return Rules(
        np.ascontiguousarray(rules.topologies[:, nodes]),
        tuple(rule for rule in mine(rules.exclusions) if len(rule.targets)),
        tuple(mine(rules.attractions)),
        tuple(replace(rule, eligible=rule.eligible[nodes]) for rule in mine(rules.spreads)),
        tuple(limit for limit in limits if len(limit.members)),
        None if rules.most_evicted is None else rules.most_evicted[nodes],
    )

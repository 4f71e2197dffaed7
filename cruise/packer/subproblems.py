"""Splits a problem into independent parts, and combines their packings and bounds."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from cruise.packer.answer import (
    BestKnown,
    Packing,
    PackingNote,
    PackingNoteCode,
    ReportFunction,
    build_packing,
    compute_counting_bound,
    compute_figures,
    compute_min_evictions,
)
from cruise.packer.problem import (
    AttractionRule,
    BoolArray,
    ExclusionRule,
    IntArray,
    NodePrices,
    PackingObjective,
    PackingProblem,
    PlacementRules,
    SpreadRule,
)
from cruise.packer.rules.by_class import sum_over_members
from cruise.packer.verification import find_rule_violations

R = TypeVar("R", ExclusionRule, AttractionRule, SpreadRule)


@dataclass(frozen=True, slots=True, eq=False)
class Subproblem:
    """A part as a separate problem; `pods` and `nodes` are its indices in the whole problem.

    Nodes keep their order; pods are sorted by node, for locality in memory.
    """

    problem: PackingProblem
    pods: IntArray
    nodes: IntArray

    def extract_assignment(self, pod_node: IntArray) -> IntArray:
        """Return the part of a whole assignment."""
        node_in_part = np.full(int(self.nodes.max(initial=0)) + 2, -1, dtype=np.int64)
        node_in_part[self.nodes] = np.arange(len(self.nodes))
        return node_in_part[pod_node[self.pods]]

    def insert_assignment(self, whole: IntArray, pod_node: IntArray) -> IntArray:
        """Return a whole assignment with the pods of this part replaced."""
        result = whole.copy()
        result[self.pods] = np.where(pod_node >= 0, self.nodes[pod_node], -1)
        return result


def split_problem(problem: PackingProblem) -> tuple[Subproblem, ...]:
    """Return the independent parts of a problem, by their first node; a single part if there is only one.

    Eviction limits that allow every eviction are left out.
    """
    active = _find_active_classes(problem)
    used = np.unique(problem.node_mask_of_class[active])
    if len(used) and problem.allowed_nodes[used].all(axis=1).any():
        return (_build_whole(problem),)
    labels = _label_components(problem, active)
    groups = np.unique(labels[_node_offset(problem) :])
    if len(groups) <= 1:
        return (_build_whole(problem),)
    return tuple(_build_part(problem, labels, active, group) for group in groups.tolist())


def _build_whole(problem: PackingProblem) -> Subproblem:
    pods = _sort_by_node(problem, np.arange(problem.pod_count))
    whole = replace(
        problem, pod_class=problem.pod_class[pods], pod_node=problem.pod_node[pods], rules=_get_binding_rules(problem)
    )
    return Subproblem(whole, pods, np.arange(problem.node_count))


def _sort_by_node(problem: PackingProblem, pods: IntArray) -> IntArray:
    return pods[np.argsort(problem.pod_node[pods], kind="stable")]


def _node_offset(problem: PackingProblem) -> int:
    return problem.class_count + int(problem.allowed_nodes.shape[0])


def _find_active_classes(problem: PackingProblem) -> BoolArray:
    """Return the classes that a decision or rule is about; pods of others only load their node."""
    active = np.zeros(problem.class_count, dtype=np.bool_)
    active[problem.pod_class[problem.pod_node < 0]] = True
    active[problem.pod_class[problem.pod_node >= 0]] |= problem.movable[problem.pod_class[problem.pod_node >= 0]]
    rules = problem.rules
    for holder, targets in _list_rule_pairs(rules):
        active[holder] = True
        active[targets] = True
    return active


def _list_rule_pairs(rules: PlacementRules) -> list[tuple[int, IntArray]]:
    """Return the holder and the targets of each rule between classes."""
    return [
        *((rule.holder, rule.targets) for rule in rules.exclusions),
        *((rule.holder, rule.targets) for rule in rules.attractions),
        *((rule.holder, rule.targets) for rule in rules.spreads),
    ]


def _label_components(problem: PackingProblem, active: BoolArray) -> IntArray:
    """Return the least member of each component, over classes, masks and nodes in this order."""
    first_mask, first_node = problem.class_count, _node_offset(problem)
    classes = np.flatnonzero(active)
    masks, nodes = np.nonzero(problem.allowed_nodes)
    is_used = np.isin(masks, problem.node_mask_of_class[classes])
    running = (problem.pod_node >= 0) & active[problem.pod_class]
    class_nodes = np.unique(problem.pod_class[running] * problem.node_count + problem.pod_node[running])
    edges = [
        np.stack([classes, first_mask + problem.node_mask_of_class[classes]]),
        np.stack([first_mask + masks[is_used], first_node + nodes[is_used]]),
        np.stack([class_nodes // problem.node_count, first_node + class_nodes % problem.node_count]),
        *_list_rule_edges(problem, first_node),
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


def _list_rule_edges(problem: PackingProblem, first_node: int) -> Iterator[IntArray]:
    rules = problem.rules
    for holder, targets in _list_rule_pairs(rules):
        yield np.stack([np.full(len(targets), holder), targets])
    counted: dict[bytes, IntArray] = {}
    for spread in rules.spreads:
        # A domain without a target counts as well.
        key = np.packbits(spread.eligible).tobytes()
        if key not in counted:
            counted[key] = first_node + np.flatnonzero(spread.eligible)
            yield np.stack([counted[key][:1].repeat(len(counted[key])), counted[key]])
        yield np.stack([np.full(min(len(counted[key]), 1), spread.holder), counted[key][:1]])
    evictable = _count_evictable(problem)
    for limit in rules.eviction_limits:
        if evictable[limit.members].sum() > limit.allowed:
            members = limit.members[evictable[limit.members] > 0]
            yield np.stack([members[:1].repeat(len(members)), members])


def _build_part(problem: PackingProblem, labels: IntArray, active: BoolArray, group: int) -> Subproblem:
    nodes = np.flatnonzero(labels[_node_offset(problem) :] == group)
    inside = np.zeros(problem.node_count + 1, dtype=np.bool_)
    inside[nodes] = True
    is_in_part = np.where(active[problem.pod_class], labels[problem.pod_class] == group, inside[problem.pod_node])
    return build_subproblem_of_pods(problem, _sort_by_node(problem, np.flatnonzero(is_in_part)), nodes)


def build_subproblem_of_pods(problem: PackingProblem, pods: IntArray, nodes: IntArray) -> Subproblem:
    """Return some pods on some nodes as a problem; rules are restricted to its classes and nodes."""
    classes = np.unique(problem.pod_class[pods])
    number = np.full(problem.class_count, -1, dtype=np.int64)
    number[classes] = np.arange(len(classes))
    node_in_part = np.full(problem.node_count + 1, -1, dtype=np.int64)
    node_in_part[nodes] = np.arange(len(nodes))
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
        max_on_node=problem.max_on_node[classes],
        node_mask_of_class=problem.node_mask_of_class[classes],
        allowed_nodes=np.ascontiguousarray(problem.allowed_nodes[:, nodes]),
        pod_class=number[problem.pod_class[pods]],
        pod_node=node_in_part[problem.pod_node[pods]],
        node_prices=None
        if problem.node_prices is None
        else NodePrices(problem.node_prices.prices[nodes], problem.node_prices.keeps_node_in_use[classes]),
        rules=_restrict_rules(problem.rules, number, nodes),
    )
    return Subproblem(replace(part, rules=_get_binding_rules(part)), pods, nodes)


def _get_binding_rules(problem: PackingProblem) -> PlacementRules:
    """Return the rules without the limits that no plan can reach."""
    limits = problem.rules.eviction_limits
    evictable = sum_over_members(limits, _count_evictable(problem)).tolist()
    binding = tuple(limit for limit, pods in zip(limits, evictable, strict=True) if pods > limit.allowed)
    return replace(problem.rules, eviction_limits=binding, max_evicted_by_node=_get_binding_node_limits(problem))


def _get_binding_node_limits(problem: PackingProblem) -> IntArray | None:
    """Return the evictions allowed on each node; None if no node has more evictable pods."""
    limits = problem.rules.max_evicted_by_node
    if limits is None:
        return None
    evictable = (problem.pod_node >= 0) & problem.movable[problem.pod_class]
    evictable_on_node = np.bincount(problem.pod_node[evictable], minlength=problem.node_count)
    return limits if (evictable_on_node > limits).any() else None


def _count_evictable(problem: PackingProblem) -> IntArray:
    """Return how many pods of each class could be evicted."""
    classes = problem.pod_class[problem.pod_node >= 0]
    return np.bincount(classes[problem.movable[classes]], minlength=problem.class_count)


def _restrict_rules(rules: PlacementRules, number: IntArray, nodes: IntArray) -> PlacementRules:
    def restrict_classes(classes: IntArray) -> IntArray:
        inside = number[classes]
        return inside[inside >= 0]

    def restrict_holders(all_rules: tuple[R, ...]) -> list[R]:
        return [
            replace(rule, holder=int(number[rule.holder]), targets=restrict_classes(rule.targets))
            for rule in all_rules
            if number[rule.holder] >= 0
        ]

    limits = [replace(limit, members=restrict_classes(limit.members)) for limit in rules.eviction_limits]
    return PlacementRules(
        np.ascontiguousarray(rules.topologies[:, nodes]),
        tuple(rule for rule in restrict_holders(rules.exclusions) if len(rule.targets)),
        tuple(restrict_holders(rules.attractions)),
        tuple(replace(rule, eligible=rule.eligible[nodes]) for rule in restrict_holders(rules.spreads)),
        tuple(limit for limit in limits if len(limit.members)),
        None if rules.max_evicted_by_node is None else rules.max_evicted_by_node[nodes],
    )


_OTHER_ORDERS = PackingNote(PackingNoteCode.OTHER_ORDERS)


class SubproblemState:
    """A part of a problem with the best assignment so far and what is proved about it."""

    def __init__(self, part: Subproblem, whole: "CombinedPacking", start: IntArray) -> None:
        self.part, self.problem, self._build_whole = part, part.problem, whole
        self.pod_node = part.extract_assignment(start)
        self.known = BestKnown(self._get_key(self.pod_node), compute_counting_bound(part.problem))
        self.evictions = 0

    @property
    def is_proved(self) -> bool:
        """Return whether no assignment is better."""
        return self.known.is_proved

    def offer_assignment(self, pod_node: IntArray) -> bool:
        """Use an assignment if it obeys every rule and is better; return whether it obeys them."""
        violations = find_rule_violations(self.problem, pod_node)
        if violations:
            self._build_whole.notes = (PackingNote(PackingNoteCode.PACKING_DROPPED, violations[0]),)
            return False
        key = self._get_key(pod_node)
        if key > self.known.key:
            if any(value < before for value, before in zip(key, self.known.key, strict=True)):
                self.evictions = 0
            self.known.set_key(key)
            self.pod_node = pod_node
            self._build_whole.update(self.part, pod_node)
        return True

    def offer_packing(self, packing: Packing) -> None:
        """Offer the assignment of a packing, without its bound."""
        self.offer_assignment(packing.pod_node)

    def update_bound(self, packing: Packing) -> None:
        """Offer the assignment of a packing with its proved bound."""
        if self.offer_assignment(packing.pod_node):
            if _OTHER_ORDERS in packing.notes:
                self._build_whole.notes = tuple(dict.fromkeys((*self._build_whole.notes, _OTHER_ORDERS)))
            self.apply_bound(self._get_key(packing.pod_node), packing.bound)

    def update_relaxed_bound(self, packing: Packing) -> None:
        """Apply a packing of the part without its rules, whose assignment may break them."""
        if not find_rule_violations(self.problem, packing.pod_node):
            self.offer_assignment(packing.pod_node)
        self.apply_bound(packing.planned.get_key(self.problem.objective), packing.bound)

    def apply_bound(self, key: tuple[int, ...], bound: tuple[int, ...]) -> None:
        """Apply a bound that was proved for a key."""
        if self.known.update_bound(key, bound):
            self._build_whole.report_packing()

    def count_eviction(self, pods: int) -> None:
        """Record how many pods every plan evicts that places as many of each priority."""
        if pods > self.evictions:
            self.evictions = pods
            self._build_whole.report_packing()

    def prove_evictions_needed(self, without_evictions: Packing) -> None:
        """Apply a proof that fewer pods are placed without evictions."""
        problem, key = self.problem, self.known.key
        for value, their_value, bound in zip(
            key[:-1], without_evictions.planned.get_key(problem.objective), without_evictions.bound, strict=False
        ):
            if bound < value:
                running = problem.pod_class[problem.pod_node >= 0]
                min_weight = int(problem.weights[running[problem.movable[running]]].min(initial=np.iinfo(np.int64).max))
                self._bound_last_entry(-min_weight)
                return
            if not value == their_value == bound:
                return

    def count_evictions(self) -> None:
        """If all pods are placed, apply the least eviction weight that this needs."""
        if self.problem.objective is PackingObjective.OPERATOR and sum(self.known.key[:-1]) == self.problem.pod_count:
            self._bound_last_entry(-compute_min_evictions(self.problem))

    def _bound_last_entry(self, bound: int) -> None:
        key = self.known.key
        self.apply_bound(key, (*self.known.bound[:-1], max(bound, key[-1])))

    def _get_key(self, pod_node: IntArray) -> tuple[int, ...]:
        return compute_figures(self.problem, pod_node).get_key(self.problem.objective)


class CombinedPacking:
    """The best assignment of all pods so far, from independent parts."""

    def __init__(
        self, problem: PackingProblem, parts: tuple[Subproblem, ...], start: IntArray, report: ReportFunction
    ) -> None:
        self.problem, self.report = problem, report
        self.notes: tuple[PackingNote, ...] = ()
        self.pieces = [SubproblemState(part, self, start) for part in parts]
        self.counted = compute_counting_bound(problem)
        self._weighs_evictions = problem.objective is not PackingObjective.PAPER
        self.pod_node = start
        self.packing = build_packing(problem, start, self._compute_bound())

    def update(self, part: Subproblem, pod_node: IntArray) -> None:
        """Use a better assignment of a part."""
        self.pod_node = part.insert_assignment(self.pod_node, pod_node)
        self.report_packing()

    def report_packing(self) -> None:
        """Report a better assignment or bound."""
        packing = build_packing(self.problem, self.pod_node, self._compute_bound(), self.notes)
        min_evicted = max(self._compute_min_evicted(), packing.min_evicted)
        self.packing = replace(packing, needs_evictions=self._are_evictions_needed(), min_evicted=min_evicted)
        self.report(self.packing)

    def _compute_min_evicted(self) -> int:
        """Return the sum over parts, if no part can place more pods."""
        entries_per_priority = 2 if self.problem.objective is PackingObjective.PAPER else 1
        is_maximal = True
        for piece in self.pieces:
            count = entries_per_priority * len(np.unique(piece.problem.priorities))
            is_maximal &= (
                piece.known.key[:count:entries_per_priority] == piece.known.upper_bounds[:count:entries_per_priority]
            )
        return sum(piece.evictions for piece in self.pieces) if is_maximal or len(self.pieces) == 1 else 0

    def _are_evictions_needed(self) -> bool:
        """Return whether each part that evicts has proved that it must, which the whole bound may not show."""
        evicting = [one.known for one in self.pieces if self._weighs_evictions and one.known.key[-1] < 0]
        return bool(evicting) and all(one.bound[-1] < 0 for one in evicting)

    def _compute_bound(self) -> tuple[int, ...]:
        """Return the sum of the parts' bounds; after an entry that several parts leave open, their upper bounds."""
        is_paper = self.problem.objective is PackingObjective.PAPER
        rows = {int(priority): row for row, priority in enumerate(np.unique(self.problem.priorities)[::-1])}
        entries_per_priority = 2 if is_paper else 1
        others = range(entries_per_priority * len(rows), len(self.counted))
        bounds, upper_bounds = np.zeros(len(self.counted), np.int64), np.zeros(len(self.counted), np.int64)
        reached = np.zeros(len(self.counted), np.int64)
        for piece in self.pieces:
            known, priorities = piece.known, np.unique(piece.problem.priorities)[::-1].tolist()
            entries = [
                entries_per_priority * rows[priority] + k
                for priority in priorities
                for k in range(entries_per_priority)
            ]
            entries += others
            np.add.at(bounds, entries, known.bound)
            np.add.at(upper_bounds, entries, known.upper_bounds)
            np.add.at(reached, entries, known.key)
        bound, is_tight = [], True
        for entry in range(len(self.counted)):
            limit = int(bounds[entry] if is_tight else upper_bounds[entry])
            bound.append(min(limit, self.counted[entry]))
            # One of several parts may be worse in this entry and better in later ones.
            is_tight = is_tight and (len(self.pieces) == 1 or bounds[entry] == reached[entry])
        return tuple(bound)

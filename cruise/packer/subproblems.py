"""Parts of a problem that have nothing to do with each other, and what their answers say of the whole."""

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
    """A part as a problem of its own; `pods` and `nodes` are its pods and nodes in the whole.

    Nodes are in their order, pods node by node: what is looked at together lies together in memory.
    """

    problem: PackingProblem
    pods: IntArray
    nodes: IntArray

    def assignment(self, pod_node: IntArray) -> IntArray:
        """The part of a whole assignment."""
        place = np.full(int(self.nodes.max(initial=0)) + 2, -1, dtype=np.int64)
        place[self.nodes] = np.arange(len(self.nodes))
        return place[pod_node[self.pods]]

    def write_into(self, whole: IntArray, pod_node: IntArray) -> IntArray:
        """A whole assignment with the part's pods as the part has them."""
        result = whole.copy()
        result[self.pods] = np.where(pod_node >= 0, self.nodes[pod_node], -1)
        return result


def split_problem(problem: PackingProblem) -> tuple[Subproblem, ...]:
    """The parts of a problem, the one with the first node first; a single part where all hangs together.

    Limits that allow every eviction are left out of them.
    """
    active = _active(problem)
    used = np.unique(problem.node_mask_of_class[active])
    if len(used) and problem.allowed_nodes[used].all(axis=1).any():
        return (_whole(problem),)
    labels = _labels(problem, active)
    groups = np.unique(labels[_node_offset(problem) :])
    if len(groups) <= 1:
        return (_whole(problem),)
    return tuple(_part(problem, labels, active, group) for group in groups.tolist())


def _whole(problem: PackingProblem) -> Subproblem:
    pods = _node_by_node(problem, np.arange(problem.pod_count))
    whole = replace(
        problem, pod_class=problem.pod_class[pods], pod_node=problem.pod_node[pods], rules=_binding(problem)
    )
    return Subproblem(whole, pods, np.arange(problem.node_count))


def _node_by_node(problem: PackingProblem, pods: IntArray) -> IntArray:
    return pods[np.argsort(problem.pod_node[pods], kind="stable")]


def _node_offset(problem: PackingProblem) -> int:
    return problem.class_count + int(problem.allowed_nodes.shape[0])


def _active(problem: PackingProblem) -> BoolArray:
    """The classes that some decision or rule is about; pods of the others are no more than a load on their node."""
    active = np.zeros(problem.class_count, dtype=np.bool_)
    active[problem.pod_class[problem.pod_node < 0]] = True
    active[problem.pod_class[problem.pod_node >= 0]] |= problem.movable[problem.pod_class[problem.pod_node >= 0]]
    rules = problem.rules
    for holder, targets in _pairs(rules):
        active[holder] = True
        active[targets] = True
    return active


def _pairs(rules: PlacementRules) -> list[tuple[int, IntArray]]:
    """Of each rule between classes its holder and its targets."""
    return [
        *((rule.holder, rule.targets) for rule in rules.exclusions),
        *((rule.holder, rule.targets) for rule in rules.attractions),
        *((rule.holder, rule.targets) for rule in rules.spreads),
    ]


def _labels(problem: PackingProblem, active: BoolArray) -> IntArray:
    """The least member of each one's component, over classes, sites and nodes in this order."""
    first_site, first_node = problem.class_count, _node_offset(problem)
    classes = np.flatnonzero(active)
    sites, admitted = np.nonzero(problem.allowed_nodes)
    wanted = np.isin(sites, problem.node_mask_of_class[classes])
    running = (problem.pod_node >= 0) & active[problem.pod_class]
    cells = np.unique(problem.pod_class[running] * problem.node_count + problem.pod_node[running])
    edges = [
        np.stack([classes, first_site + problem.node_mask_of_class[classes]]),
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


def _rule_edges(problem: PackingProblem, first_node: int) -> Iterator[IntArray]:
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


def _part(problem: PackingProblem, labels: IntArray, active: BoolArray, group: int) -> Subproblem:
    nodes = np.flatnonzero(labels[_node_offset(problem) :] == group)
    inside = np.zeros(problem.node_count + 1, dtype=np.bool_)
    inside[nodes] = True
    mine = np.where(active[problem.pod_class], labels[problem.pod_class] == group, inside[problem.pod_node])
    return build_subproblem_of_pods(problem, _node_by_node(problem, np.flatnonzero(mine)), nodes)


def build_subproblem_of_pods(problem: PackingProblem, pods: IntArray, nodes: IntArray) -> Subproblem:
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
        max_on_node=problem.max_on_node[classes],
        node_mask_of_class=problem.node_mask_of_class[classes],
        allowed_nodes=np.ascontiguousarray(problem.allowed_nodes[:, nodes]),
        pod_class=number[problem.pod_class[pods]],
        pod_node=place[problem.pod_node[pods]],
        node_prices=None
        if problem.node_prices is None
        else NodePrices(problem.node_prices.prices[nodes], problem.node_prices.keeps_node_in_use[classes]),
        rules=_cut(problem.rules, number, nodes),
    )
    return Subproblem(replace(part, rules=_binding(part)), pods, nodes)


def _binding(problem: PackingProblem) -> PlacementRules:
    """The rules without the limits that no plan can reach."""
    limits = problem.rules.eviction_limits
    most = sum_over_members(limits, _evictable(problem)).tolist()
    binding = tuple(limit for limit, pods in zip(limits, most, strict=True) if pods > limit.allowed)
    return replace(problem.rules, eviction_limits=binding, max_evicted_by_node=_binding_on_nodes(problem))


def _binding_on_nodes(problem: PackingProblem) -> IntArray | None:
    """The evictions allowed on each node, None where no node has as many pods to evict."""
    most = problem.rules.max_evicted_by_node
    if most is None:
        return None
    evictable = (problem.pod_node >= 0) & problem.movable[problem.pod_class]
    there = np.bincount(problem.pod_node[evictable], minlength=problem.node_count)
    return most if (there > most).any() else None


def _evictable(problem: PackingProblem) -> IntArray:
    """How many pods of each class could be evicted."""
    classes = problem.pod_class[problem.pod_node >= 0]
    return np.bincount(classes[problem.movable[classes]], minlength=problem.class_count)


def _cut(rules: PlacementRules, number: IntArray, nodes: IntArray) -> PlacementRules:
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
    return PlacementRules(
        np.ascontiguousarray(rules.topologies[:, nodes]),
        tuple(rule for rule in mine(rules.exclusions) if len(rule.targets)),
        tuple(mine(rules.attractions)),
        tuple(replace(rule, eligible=rule.eligible[nodes]) for rule in mine(rules.spreads)),
        tuple(limit for limit in limits if len(limit.members)),
        None if rules.max_evicted_by_node is None else rules.max_evicted_by_node[nodes],
    )


# The best answer for the whole of a problem, put together from its parts' answers and judged before anyone sees it.

_OTHER_ORDERS = PackingNote(PackingNoteCode.OTHER_ORDERS)


class SubproblemState:
    """A part of a problem with the best assignment of its pods so far, and what it has proved."""

    def __init__(self, part: Subproblem, whole: "CombinedPacking", start: IntArray) -> None:
        self.part, self.problem, self._whole = part, part.problem, whole
        self.pod_node = part.assignment(start)
        self.known = BestKnown(self._key_of(self.pod_node), compute_counting_bound(part.problem))
        self.evictions = 0

    @property
    def is_proved(self) -> bool:
        """Whether nothing is better."""
        return self.known.is_proved

    def offer_assignment(self, pod_node: IntArray) -> bool:
        """Take an assignment over if it obeys every rule and is better; tell whether it obeys them."""
        faults = find_rule_violations(self.problem, pod_node)
        if faults:
            self._whole.notes = (PackingNote(PackingNoteCode.PACKING_DROPPED, faults[0]),)
            return False
        key = self._key_of(pod_node)
        if key > self.known.key:
            if any(value < before for value, before in zip(key, self.known.key, strict=True)):
                self.evictions = 0
            self.known.set_key(key)
            self.pod_node = pod_node
            self._whole.update(self.part, pod_node)
        return True

    def set_assignment(self, packing: Packing) -> None:
        """Take an answer's assignment over, and none of its bound."""
        self.offer_assignment(packing.pod_node)

    def update_bound(self, packing: Packing) -> None:
        """Take an answer's assignment over, and the bound that was proved beside it."""
        if self.offer_assignment(packing.pod_node):
            if _OTHER_ORDERS in packing.notes:
                self._whole.notes = tuple(dict.fromkeys((*self._whole.notes, _OTHER_ORDERS)))
            self.bound(self._key_of(packing.pod_node), packing.bound)

    def update_relaxed_bound(self, packing: Packing) -> None:
        """Learn from an answer to the part without its rules, which may break them."""
        if not find_rule_violations(self.problem, packing.pod_node):
            self.offer_assignment(packing.pod_node)
        self.bound(packing.planned.get_key(self.problem.objective), packing.bound)

    def bound(self, key: tuple[int, ...], bound: tuple[int, ...]) -> None:
        """Take a bound over that was proved beside an assignment of this key."""
        if self.known.update_bound(key, bound):
            self._whole.report_packing()

    def count_eviction(self, pods: int) -> None:
        """Take over how many pods every plan evicts that places as many of each priority."""
        if pods > self.evictions:
            self.evictions = pods
            self._whole.report_packing()

    def prove_no_rescue(self, rooted: Packing) -> None:
        """Take over what a solve with nothing movable proved: that as much is not placed without an eviction."""
        problem, mine = self.problem, self.known.key
        for value, theirs, bound in zip(
            mine[:-1], rooted.planned.get_key(problem.objective), rooted.bound, strict=False
        ):
            if bound < value:
                running = problem.pod_class[problem.pod_node >= 0]
                least = int(problem.weights[running[problem.movable[running]]].min(initial=np.iinfo(np.int64).max))
                self._bound_last(-least)
                return
            if not value == theirs == bound:
                return

    def count_evictions(self) -> None:
        """Where all pods have a place, take over how little weight that can cost at least."""
        if self.problem.objective is PackingObjective.OPERATOR and sum(self.known.key[:-1]) == self.problem.pod_count:
            self._bound_last(-compute_min_evictions(self.problem))

    def _bound_last(self, bound: int) -> None:
        key = self.known.key
        self.bound(key, (*self.known.bound[:-1], max(bound, key[-1])))

    def _key_of(self, pod_node: IntArray) -> tuple[int, ...]:
        return compute_figures(self.problem, pod_node).get_key(self.problem.objective)


class CombinedPacking:
    """The best assignment of all pods so far, in pieces that have nothing to do with each other."""

    def __init__(
        self, problem: PackingProblem, parts: tuple[Subproblem, ...], start: IntArray, report: ReportFunction
    ) -> None:
        self.problem, self.report = problem, report
        self.notes: tuple[PackingNote, ...] = ()
        self.pieces = [SubproblemState(part, self, start) for part in parts]
        self.counted = compute_counting_bound(problem)
        self._weighs_evictions = problem.objective is not PackingObjective.PAPER
        self.pod_node = start
        self.packing = build_packing(problem, start, self._bound())

    def update(self, part: Subproblem, pod_node: IntArray) -> None:
        """Take a better assignment of a part over."""
        self.pod_node = part.write_into(self.pod_node, pod_node)
        self.report_packing()

    def report_packing(self) -> None:
        """Report what is better by now, the assignment or what is known of it."""
        packing = build_packing(self.problem, self.pod_node, self._bound(), self.notes)
        least_evicted = max(self._least_evicted(), packing.least_evicted)
        self.packing = replace(packing, needs_evictions=self._needs_evictions(), least_evicted=least_evicted)
        self.report(self.packing)

    def _least_evicted(self) -> int:
        """The sum over parts: a plan that places as many in all does so in each where none can place more."""
        each = 2 if self.problem.objective is PackingObjective.PAPER else 1
        full = True
        for piece in self.pieces:
            count = each * len(np.unique(piece.problem.priorities))
            full &= piece.known.key[:count:each] == piece.known.upper_bounds[:count:each]
        return sum(piece.evictions for piece in self.pieces) if full or len(self.pieces) == 1 else 0

    def _needs_evictions(self) -> bool:
        """Whether each part that evicts has proved that it has to: the whole's bound may not show it."""
        evicting = [one.known for one in self.pieces if self._weighs_evictions and one.known.key[-1] < 0]
        return bool(evicting) and all(one.bound[-1] < 0 for one in evicting)

    def _bound(self) -> tuple[int, ...]:
        """The sum of the parts' bounds; where one of several leaves an entry open, behind it what there is at most."""
        paper = self.problem.objective is PackingObjective.PAPER
        rows = {int(priority): row for row, priority in enumerate(np.unique(self.problem.priorities)[::-1])}
        each = 2 if paper else 1
        others = range(each * len(rows), len(self.counted))
        sure, most = np.zeros(len(self.counted), np.int64), np.zeros(len(self.counted), np.int64)
        reached = np.zeros(len(self.counted), np.int64)
        for piece in self.pieces:
            known, tiers = piece.known, np.unique(piece.problem.priorities)[::-1].tolist()
            entries = [each * rows[tier] + k for tier in tiers for k in range(each)]
            entries += others
            np.add.at(sure, entries, known.bound)
            np.add.at(most, entries, known.upper_bounds)
            np.add.at(reached, entries, known.key)
        bound, tight = [], True
        for entry in range(len(self.counted)):
            limit = int(sure[entry] if tight else most[entry])
            bound.append(min(limit, self.counted[entry]))
            # Of several parts one may be worse in this entry, and better in those behind.
            tight = tight and (len(self.pieces) == 1 or sure[entry] == reached[entry])
        return tuple(bound)

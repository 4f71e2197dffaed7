"""Formulates one entry of the key as a linear program: how many pods are placed, or stay, given earlier entries."""

from dataclasses import dataclass, replace

import numpy as np

from cruise.packer.columns.instance import ResidualInstance
from cruise.packer.columns.pod_rules import NO_POD_RULES, PodRuleRows
from cruise.packer.kernels.knapsack_items import KnapsackItems, create_knapsack_items
from cruise.packer.problem import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class PrioritySubproblem:
    """The classes and groups of equal nodes that matter for an entry, and what an answer must reach.

    The first rows are classes: `required` ones are placed whole, the others up to their count variable. Then follow the
    sums: `sum_members[k, class]` marks the classes whose placed (or, with `sum_stays`, staying) copies add up to at
    least `sum_minimum[k]`. `counted[class]` marks classes whose placed copies are worth 1, `fixed_copies[class]` is the
    worth of a staying one. `counted_classes` is what the best known plan achieves, `ceiling` what no plan exceeds. On a
    node of a group the largest `headroom` (no rows without any) is reserved, at least `floor`. Last, `row_share[row,
    group, class]` of all copies add up to at least `row_minimum`.
    """

    classes: IntArray
    demands: IntArray
    headroom: IntArray
    counts: IntArray
    required: BoolArray
    counted: BoolArray
    fixed_copies: IntArray
    staying_copies: BoolArray
    sum_members: BoolArray
    sum_stays: BoolArray
    sum_minimum: IntArray
    node_group: IntArray
    group_size: IntArray
    free_capacity: IntArray
    floor: IntArray
    limits: IntArray
    running: IntArray
    counted_classes: int
    ceiling: int
    row_share: FloatArray
    row_minimum: FloatArray

    @property
    def unit(self) -> float:
        """Return the largest worth of a copy."""
        return float(max(self.fixed_copies.max(initial=1), 1))

    def compute_value(self, placed: IntArray, stayed: IntArray) -> int:
        """Return what an answer achieves, from its placed and staying copies of each class."""
        return int(placed[self.counted].sum() + stayed @ self.fixed_copies)


def build_subproblem(
    residual: ResidualInstance, assignment: IntArray, entry: int, pod_rules: PodRuleRows = NO_POD_RULES
) -> PrioritySubproblem:
    """Return the subproblem of an entry, given a plan whose entries before are kept, with rules between pods.

    Of lower priorities it has classes that attract others, and classes that must stay for an eviction limit.
    """
    entries = residual.entries
    placeable = _add_attracting_classes(
        residual, (residual.tiers <= entries.priority_level[entry]) | (residual.minimum > 0), pod_rules
    )
    classes = np.flatnonzero(placeable | _find_limited_classes(residual, pod_rules))
    placed = assignment[classes].sum(axis=1)
    stayed = np.minimum(assignment, residual.running)[classes].sum(axis=1)
    demand = _SubproblemDemand(residual, classes, placed)
    for earlier_entry in range(entry):
        if entries.stays[earlier_entry]:
            is_member = entries.stay_entry[classes] == earlier_entry
            demand.keep_stays(is_member, int(stayed[is_member].sum()))
        else:
            demand.keep_places(entries.place_entry[classes] == earlier_entry)
    counted = (entries.place_entry[classes] == entry) & ~demand.must
    stay_worth = np.where(entries.stay_entry[classes] == entry, entries.weight[classes], 0)
    demand.place_least()
    for members, allowed in pod_rules.limits:
        is_member = members[residual.origin[classes]]
        demand.keep_stays(is_member, int(residual.running[classes[is_member]].sum()) - allowed)
    may_stay = (demand.staying | (stay_worth > 0)) & residual.running[classes].any(axis=1)
    counts, running = residual.counts[classes], np.where(may_stay[:, None], residual.running[classes], 0)
    running_everywhere = residual.running[classes]
    limits = np.where(
        placeable[classes, None], residual.limits[classes], np.minimum(running_everywhere, residual.limits[classes])
    )
    row_share, row_least = _build_rows(residual, classes, pod_rules)
    node_group, first_node = _group_nodes(residual, limits, running, row_share)
    if pod_rules.required:
        # Branching on affinity is about single nodes among equal ones.
        node_group = first_node = np.arange(len(residual.free_capacity))
    max_staying = np.minimum(residual.running, residual.limits)[classes].sum(axis=1)
    return PrioritySubproblem(
        classes=classes,
        demands=np.ascontiguousarray(residual.demands[classes]),
        headroom=np.ascontiguousarray(residual.headroom[classes] if len(residual.headroom) else residual.headroom),
        counts=counts,
        required=demand.must,
        counted=counted,
        fixed_copies=stay_worth,
        staying_copies=may_stay,
        sum_members=np.array([need[0] for need in demand.needs], dtype=np.bool_).reshape(
            len(demand.needs), len(classes)
        ),
        sum_stays=np.array([need[1] for need in demand.needs], dtype=np.bool_),
        sum_minimum=np.array([need[2] for need in demand.needs], dtype=np.int64),
        node_group=node_group,
        group_size=np.bincount(node_group, minlength=len(first_node)).astype(np.int64),
        free_capacity=np.ascontiguousarray(residual.free_capacity[first_node]),
        floor=np.ascontiguousarray(residual.floor[first_node]),
        limits=np.ascontiguousarray(limits[:, first_node].T),
        running=np.ascontiguousarray(running[:, first_node].T),
        counted_classes=int(placed[counted].sum() + stayed @ stay_worth),
        ceiling=int(counts[counted].sum() + np.minimum(max_staying, counts) @ stay_worth),
        row_share=np.ascontiguousarray(row_share[:, first_node]),
        row_minimum=row_least,
    )


def add_rows(subproblem: PrioritySubproblem, residual: ResidualInstance, pod_rules: PodRuleRows) -> PrioritySubproblem:
    """Return the subproblem with more rows that treat the nodes of each group alike; itself without a new one."""
    share, least = _build_rows(residual, subproblem.classes, pod_rules)
    _, first = np.unique(subproblem.node_group, return_index=True)
    is_group_wise = (share == share[:, first][:, subproblem.node_group]).all(axis=(1, 2))
    share, least = share[is_group_wise][:, first], least[is_group_wise]
    is_new = [
        not ((subproblem.row_share == one).all(axis=(1, 2)) & (subproblem.row_minimum >= most)).any()
        for one, most in zip(share, least, strict=True)
    ]
    if not any(is_new):
        return subproblem
    return replace(
        subproblem,
        row_share=np.concatenate([subproblem.row_share, share[is_new]]),
        row_minimum=np.concatenate([subproblem.row_minimum, least[is_new]]),
    )


def _add_attracting_classes(residual: ResidualInstance, some: BoolArray, pod_rules: PodRuleRows) -> BoolArray:
    """Return some classes and those that attract them."""
    marked = np.zeros(residual.instance.class_count, dtype=np.bool_)
    marked[residual.origin] = some
    return pod_rules.get_attracting(marked)[residual.origin]


def _find_limited_classes(residual: ResidualInstance, pod_rules: PodRuleRows) -> BoolArray:
    """Return the classes of which some copies must stay for an eviction limit."""
    running = residual.running.sum(axis=1)
    limited = np.zeros(len(running), dtype=np.bool_)
    for members, allowed in pod_rules.limits:
        is_member = members[residual.origin] & (running > 0)
        if running[is_member].sum() > allowed:
            limited |= is_member
    return limited


def _build_rows(residual: ResidualInstance, classes: IntArray, pod_rules: PodRuleRows) -> tuple[FloatArray, FloatArray]:
    share, least = pod_rules.build_rows(residual.origin[classes], len(residual.free_capacity))
    # Fixed copies count in a row as well, but are no variables.
    return share, least - np.einsum("rnc,cn->r", share, residual.fixed[residual.origin[classes]])


class _SubproblemDemand:
    """What an answer must reach: classes that are placed whole, and sums of copies."""

    def __init__(self, residual: ResidualInstance, classes: IntArray, placed: IntArray) -> None:
        self.minimum, self.counts, self.placed = residual.minimum[classes], residual.counts[classes], placed
        self.must = (self.minimum > 0) & (self.minimum == self.counts)
        self.staying = np.zeros(len(classes), dtype=np.bool_)
        self.needs: list[tuple[BoolArray, bool, int]] = []

    def keep_places(self, mine: BoolArray) -> None:
        """Require as many placed copies of these classes as now."""
        optional = mine & ~self.must
        if self.placed[optional].sum() == self.counts[optional].sum():
            self.must |= mine
        else:
            self.needs.append((optional, False, int(self.placed[optional].sum())))

    def keep_stays(self, mine: BoolArray, least: int) -> None:
        """Require so many staying copies of these classes."""
        if least > 0:
            self.needs.append((mine, True, least))
            self.staying |= mine

    def place_least(self) -> None:
        """Require the minimum of each class, unless it is placed whole."""
        for c in np.flatnonzero((self.minimum > 0) & ~self.must).tolist():
            self.needs.append((np.arange(len(self.minimum)) == c, False, int(self.minimum[c])))


def _group_nodes(
    residual: ResidualInstance, limits: IntArray, running: IntArray, share: FloatArray
) -> tuple[IntArray, IntArray]:
    """Return the group of equal nodes of each node, and the first node of each group."""
    seen: dict[bytes, int] = {}
    group = np.zeros(len(residual.free_capacity), dtype=np.int64)
    first: list[int] = []
    columns = np.concatenate([residual.free_capacity, residual.floor, limits.T, running.T], axis=1)
    for node in range(len(residual.free_capacity)):
        key = columns[node].tobytes() + share[:, node].tobytes()
        if key not in seen:
            seen[key] = len(first)
            first.append(node)
        group[node] = seen[key]
    return group, np.array(first, dtype=np.int64)


def get_patterns(subproblem: PrioritySubproblem, assignment: IntArray) -> tuple[IntArray, IntArray]:
    """Return the distinct (group, copies by class) of the nodes of a residual assignment."""
    patterns = assignment[subproblem.classes].T
    keyed = np.concatenate([subproblem.node_group[:, None], patterns], axis=1)
    unique = np.unique(keyed, axis=0)
    return unique[:, 0].copy(), np.ascontiguousarray(unique[:, 1:])


def spread_patterns(
    subproblem: PrioritySubproblem, groups: IntArray, patterns: IntArray, residual: ResidualInstance
) -> IntArray:
    """Return a residual assignment from one pattern per node, without surplus copies.

    Surplus copies are dropped first where they would have to move to.
    """
    assignment = np.zeros_like(residual.running)
    runs = residual.running[subproblem.classes].T
    for group in np.unique(groups).tolist():
        mine = patterns[groups == group]
        nodes = np.flatnonzero(subproblem.node_group == group)
        assignment[
            np.ix_(
                subproblem.classes,
                nodes[_match_patterns_to_nodes(mine, runs[nodes], residual.compute_value[subproblem.classes])],
            )
        ] = mine.T
    for c in np.flatnonzero(assignment.sum(axis=1) > residual.counts).tolist():
        surplus = int(assignment[c].sum() - residual.counts[c])
        for stays in (False, True):
            for node in np.flatnonzero(assignment[c]).tolist():
                spare = int(assignment[c, node] if stays else max(assignment[c, node] - residual.running[c, node], 0))
                drop = min(surplus, spare)
                assignment[c, node] -= drop
                surplus -= drop
    return assignment


def _match_patterns_to_nodes(patterns: IntArray, runs: IntArray, worth: FloatArray) -> IntArray:
    """Return a node for each pattern, so that many running copies stay: the best pairs first."""
    staying = np.array([np.minimum(pattern, runs) @ worth for pattern in patterns])
    chosen = np.zeros(len(patterns), dtype=np.int64)
    for _ in patterns:
        pattern, node = divmod(int(np.argmax(staying)), len(runs))
        chosen[pattern] = node
        staying[pattern, :] = staying[:, node] = -1.0
    return chosen


def compute_copy_prices(subproblem: PrioritySubproblem, duals: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the value of a copy of each class in each group at some duals, and the extra value if it stays."""
    classes, pod_rules = len(subproblem.classes), len(subproblem.classes) + len(subproblem.sum_minimum)
    bonus = subproblem.fixed_copies.astype(np.float64)
    for need in np.flatnonzero(subproblem.sum_stays).tolist():
        bonus += subproblem.sum_members[need] * duals[classes + need]
    rows = duals[pod_rules : pod_rules + len(subproblem.row_minimum)]
    return duals[:classes] + np.tensordot(rows, subproblem.row_share, 1), np.where(
        subproblem.staying_copies, bonus, 0.0
    )


def build_subproblem_items(subproblem: PrioritySubproblem, patterns: int) -> KnapsackItems:
    """Return the knapsack items of the groups, with space for some patterns."""
    free, floor, limits, running = (
        part.copy() for part in (subproblem.free_capacity, subproblem.floor, subproblem.limits, subproblem.running)
    )
    return create_knapsack_items(subproblem.demands, subproblem.headroom, free, floor, limits, running, patterns)


# The relaxed right-hand sides allow fractions of this size where all is whole.
_WHOLE = 1e-2
# Copies without a price are branched on last.
_LEAST_PRICE = 1e-3


def split_groups_into_nodes(subproblem: PrioritySubproblem) -> PrioritySubproblem:
    """Return the same subproblem with each node as a group, in the order of the groups."""
    spread = np.repeat(np.arange(len(subproblem.group_size)), subproblem.group_size)
    return replace(
        subproblem,
        node_group=np.argsort(np.argsort(subproblem.node_group, kind="stable"), kind="stable"),
        group_size=np.ones(len(spread), dtype=np.int64),
        free_capacity=subproblem.free_capacity[spread],
        floor=subproblem.floor[spread],
        limits=subproblem.limits[spread],
        running=subproblem.running[spread],
        row_share=subproblem.row_share[:, spread],
    )


def choose_branching(
    groups: IntArray, amounts: FloatArray, patterns: IntArray, prices: FloatArray
) -> tuple[int, int, int] | None:
    """Return a group, a class and a number of copies to branch on; None if all is certain.

    The uncertain one with the highest price is chosen. `amounts[k]` is how much a group uses of a pattern.
    """
    means = np.zeros(prices.shape)
    np.add.at(means, groups, amounts[:, None] * patterns)
    least = np.floor(means + _WHOLE).astype(np.int64) + 1
    part = np.minimum(means - least + 1.0, least - means)
    if part.max(initial=0.0) <= _WHOLE:
        more = patterns >= least[groups]
        above, below = np.zeros_like(means), np.zeros_like(means)
        np.add.at(above, groups, amounts[:, None] * more)
        np.add.at(below, groups, amounts[:, None] * ~more)
        part = np.minimum(above, below)
    # What is worth most first: of two that are as uncertain it decides about more.
    weight = np.where(part > _WHOLE, part * (_LEAST_PRICE + np.maximum(prices, 0.0)), 0.0)
    if not weight.any():
        return None
    group, c = divmod(int(np.argmax(weight)), part.shape[1])
    return group, c, int(least[group, c])


def meets_demands_and_target(subproblem: PrioritySubproblem, groups: IntArray, patterns: IntArray, target: int) -> bool:
    """Return whether one pattern per node meets every demand and the target, in whole numbers."""
    placed = np.minimum(patterns.sum(axis=0), subproblem.counts)
    stayed = np.minimum(patterns, subproblem.running[groups]).sum(axis=0)
    if (np.bincount(groups, minlength=len(subproblem.group_size)) > subproblem.group_size).any():
        return False
    if (placed < subproblem.counts)[subproblem.required].any():
        return False
    for need in range(len(subproblem.sum_minimum)):
        figures = stayed if subproblem.sum_stays[need] else placed
        if figures[subproblem.sum_members[need]].sum() < subproblem.sum_minimum[need]:
            return False
    return subproblem.compute_value(placed, stayed) >= target

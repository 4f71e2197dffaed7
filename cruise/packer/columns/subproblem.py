"""One question about one priority, in rows: how many copies can be placed, or left in place, given the tiers above."""

from dataclasses import dataclass, replace

import numpy as np

from cruise.packer.columns.instance import ResidualInstance
from cruise.packer.columns.pod_rules import NO_POD_RULES, PodRuleRows
from cruise.packer.kernels.knapsack_items import KnapsackItems, create_knapsack_items
from cruise.packer.problem import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class PrioritySubproblem:
    """The classes and groups of equal nodes that matter to the question, and what an answer must not fall below.

    The first rows are the classes: `must` ones are placed whole, the others as far as their count variable goes.
    Then come the demands: `need_members[need, class]` marks whose placed (or, where `need_stays`, staying)
    copies add up to at least `need_least`. `counted[class]` tells whether a placed copy is worth 1, `kept[class]` what
    a staying one is worth. `answer` is what the best plan known achieves, `ceiling` what no plan can surpass.
    On a node of a group the largest `headroom` (no rows where there is none) is kept, at least `floor`. Last, for each
    `row` between nodes `row_share[row, group, class]` of all copies add up to at least `row_least`.
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
    row_least: FloatArray

    @property
    def unit(self) -> float:
        """The most that one copy is worth."""
        return float(max(self.fixed_copies.max(initial=1), 1))

    def compute_value(self, placed: IntArray, stayed: IntArray) -> int:
        """What an answer achieves, from its placed and its staying copies of each class."""
        return int(placed[self.counted].sum() + stayed @ self.fixed_copies)


def build_subproblem(
    residual: ResidualInstance, assignment: IntArray, entry: int, between: PodRuleRows = NO_POD_RULES
) -> PrioritySubproblem:
    """The question about an entry of the vector, given a plan whose entries before are kept; `between` pods as well.

    Of a tier below it has what attracts others, and what has to stay for an eviction limit.
    """
    entries = residual.entries
    whole = _attracting(residual, (residual.tiers <= entries.priority_level[entry]) | (residual.minimum > 0), between)
    classes = np.flatnonzero(whole | _staying(residual, between))
    placed = assignment[classes].sum(axis=1)
    stayed = np.minimum(assignment, residual.running)[classes].sum(axis=1)
    demand = _SubproblemDemand(residual, classes, placed)
    for before in range(entry):
        if entries.stays[before]:
            mine = entries.stay_entry[classes] == before
            demand.keep_stays(mine, int(stayed[mine].sum()))
        else:
            demand.keep_places(entries.place_entry[classes] == before)
    counted = (entries.place_entry[classes] == entry) & ~demand.must
    kept = np.where(entries.stay_entry[classes] == entry, entries.weight[classes], 0)
    demand.place_least()
    for members, allowed in between.limits:
        mine = members[residual.origin[classes]]
        demand.keep_stays(mine, int(residual.running[classes[mine]].sum()) - allowed)
    loyal = (demand.staying | (kept > 0)) & residual.running[classes].any(axis=1)
    counts, running = residual.counts[classes], np.where(loyal[:, None], residual.running[classes], 0)
    ran = residual.running[classes]
    limits = np.where(whole[classes, None], residual.limits[classes], np.minimum(ran, residual.limits[classes]))
    share, least = _shares(residual, classes, between)
    node_group, first = _grouped(residual, limits, running, share)
    if between.required:
        # What parts the question about company speaks of some nodes among equal ones.
        node_group = first = np.arange(len(residual.free_capacity))
    possible = np.minimum(residual.running, residual.limits)[classes].sum(axis=1)
    return PrioritySubproblem(
        classes=classes,
        demands=np.ascontiguousarray(residual.demands[classes]),
        headroom=np.ascontiguousarray(residual.headroom[classes] if len(residual.headroom) else residual.headroom),
        counts=counts,
        required=demand.must,
        counted=counted,
        fixed_copies=kept,
        staying_copies=loyal,
        sum_members=np.array([need[0] for need in demand.needs], dtype=np.bool_).reshape(
            len(demand.needs), len(classes)
        ),
        sum_stays=np.array([need[1] for need in demand.needs], dtype=np.bool_),
        sum_minimum=np.array([need[2] for need in demand.needs], dtype=np.int64),
        node_group=node_group,
        group_size=np.bincount(node_group, minlength=len(first)).astype(np.int64),
        free_capacity=np.ascontiguousarray(residual.free_capacity[first]),
        floor=np.ascontiguousarray(residual.floor[first]),
        limits=np.ascontiguousarray(limits[:, first].T),
        running=np.ascontiguousarray(running[:, first].T),
        counted_classes=int(placed[counted].sum() + stayed @ kept),
        ceiling=int(counts[counted].sum() + np.minimum(possible, counts) @ kept),
        row_share=np.ascontiguousarray(share[:, first]),
        row_least=least,
    )


def add_rows(phase: PrioritySubproblem, residual: ResidualInstance, between: PodRuleRows) -> PrioritySubproblem:
    """The same question with more rows, of those that count the nodes of each group alike; itself without a new one."""
    share, least = _shares(residual, phase.classes, between)
    _, first = np.unique(phase.node_group, return_index=True)
    alike = (share == share[:, first][:, phase.node_group]).all(axis=(1, 2))
    share, least = share[alike][:, first], least[alike]
    fresh = [
        not ((phase.row_share == one).all(axis=(1, 2)) & (phase.row_least >= most)).any()
        for one, most in zip(share, least, strict=True)
    ]
    if not any(fresh):
        return phase
    return replace(
        phase,
        row_share=np.concatenate([phase.row_share, share[fresh]]),
        row_least=np.concatenate([phase.row_least, least[fresh]]),
    )


def _attracting(residual: ResidualInstance, some: BoolArray, between: PodRuleRows) -> BoolArray:
    """Some classes, and those that attract them."""
    marked = np.zeros(residual.instance.class_count, dtype=np.bool_)
    marked[residual.origin] = some
    return between.get_attracting(marked)[residual.origin]


def _staying(residual: ResidualInstance, between: PodRuleRows) -> BoolArray:
    """The classes of which some copies have to stay for an eviction limit."""
    running = residual.running.sum(axis=1)
    found = np.zeros(len(running), dtype=np.bool_)
    for members, allowed in between.limits:
        mine = members[residual.origin] & (running > 0)
        if running[mine].sum() > allowed:
            found |= mine
    return found


def _shares(residual: ResidualInstance, classes: IntArray, between: PodRuleRows) -> tuple[FloatArray, FloatArray]:
    share, least = between.rows(residual.origin[classes], len(residual.free_capacity))
    # What is nailed counts in a row as well, but is no variable.
    return share, least - np.einsum("rnc,cn->r", share, residual.fixed[residual.origin[classes]])


class _SubproblemDemand:
    """What an answer must not fall below: classes that are placed whole, and sums of copies."""

    def __init__(self, residual: ResidualInstance, classes: IntArray, placed: IntArray) -> None:
        self.minimum, self.counts, self.placed = residual.minimum[classes], residual.counts[classes], placed
        self.must = (self.minimum > 0) & (self.minimum == self.counts)
        self.staying = np.zeros(len(classes), dtype=np.bool_)
        self.needs: list[tuple[BoolArray, bool, int]] = []

    def keep_places(self, mine: BoolArray) -> None:
        """Some classes have as many copies placed as now."""
        optional = mine & ~self.must
        if self.placed[optional].sum() == self.counts[optional].sum():
            self.must |= mine
        else:
            self.needs.append((optional, False, int(self.placed[optional].sum())))

    def keep_stays(self, mine: BoolArray, least: int) -> None:
        """Some classes have so many copies staying."""
        if least > 0:
            self.needs.append((mine, True, least))
            self.staying |= mine

    def place_least(self) -> None:
        """Each class has its least copies placed, unless it is placed whole anyway."""
        for c in np.flatnonzero((self.minimum > 0) & ~self.must).tolist():
            self.needs.append((np.arange(len(self.minimum)) == c, False, int(self.minimum[c])))


def _grouped(
    residual: ResidualInstance, limits: IntArray, running: IntArray, share: FloatArray
) -> tuple[IntArray, IntArray]:
    """Each node's group of nodes that nothing tells apart, and the first node of every group."""
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


def get_patterns(phase: PrioritySubproblem, assignment: IntArray) -> tuple[IntArray, IntArray]:
    """The group and the copies by class of each node's filling in a residual assignment, equal ones once."""
    fillings = assignment[phase.classes].T
    keyed = np.concatenate([phase.node_group[:, None], fillings], axis=1)
    unique = np.unique(keyed, axis=0)
    return unique[:, 0].copy(), np.ascontiguousarray(unique[:, 1:])


def spread_patterns(
    phase: PrioritySubproblem, groups: IntArray, fillings: IntArray, residual: ResidualInstance
) -> IntArray:
    """A residual assignment from one filling a node (of its group, the other nodes stay empty), without surplus.

    Surplus copies are dropped from where they would have to move to, before those that stay.
    """
    assignment = np.zeros_like(residual.running)
    runs = residual.running[phase.classes].T
    for group in np.unique(groups).tolist():
        mine = fillings[groups == group]
        nodes = np.flatnonzero(phase.node_group == group)
        assignment[np.ix_(phase.classes, nodes[_matched(mine, runs[nodes], residual.compute_value[phase.classes])])] = (
            mine.T
        )
    for c in np.flatnonzero(assignment.sum(axis=1) > residual.counts).tolist():
        surplus = int(assignment[c].sum() - residual.counts[c])
        for stays in (False, True):
            for node in np.flatnonzero(assignment[c]).tolist():
                spare = int(assignment[c, node] if stays else max(assignment[c, node] - residual.running[c, node], 0))
                drop = min(surplus, spare)
                assignment[c, node] -= drop
                surplus -= drop
    return assignment


def _matched(fillings: IntArray, runs: IntArray, worth: FloatArray) -> IntArray:
    """A node for each filling, such that much of what runs there stays: the best pairs first."""
    staying = np.array([np.minimum(filling, runs) @ worth for filling in fillings])
    chosen = np.zeros(len(fillings), dtype=np.int64)
    for _ in fillings:
        filling, node = divmod(int(np.argmax(staying)), len(runs))
        chosen[filling] = node
        staying[filling, :] = staying[:, node] = -1.0
    return chosen


def compute_copy_prices(phase: PrioritySubproblem, duals: FloatArray) -> tuple[FloatArray, FloatArray]:
    """What a copy of each class is worth in each group at some duals, and what it is worth more where it stays."""
    classes, between = len(phase.classes), len(phase.classes) + len(phase.sum_minimum)
    bonus = phase.fixed_copies.astype(np.float64)
    for need in np.flatnonzero(phase.sum_stays).tolist():
        bonus += phase.sum_members[need] * duals[classes + need]
    rows = duals[between : between + len(phase.row_least)]
    return duals[:classes] + np.tensordot(rows, phase.row_share, 1), np.where(phase.staying_copies, bonus, 0.0)


def create_items(phase: PrioritySubproblem, patterns: int) -> KnapsackItems:
    """A shelf for the phase's groups with space for some patterns."""
    room, floor, limits, running = (
        part.copy() for part in (phase.free_capacity, phase.floor, phase.limits, phase.running)
    )
    return create_knapsack_items(phase.demands, phase.headroom, room, floor, limits, running, patterns)


# What a question leaves uncertain that a tree may branch on, and whether fillings are an answer to it.

# The relaxed right-hand sides let fractions of this size in where everything is whole.
_WHOLE = 1e-2
# What nothing asks for is split as well, after all that something does.
_LEAST_PRICE = 1e-3


def split_groups_into_nodes(phase: PrioritySubproblem) -> PrioritySubproblem:
    """The same question with each node as a group, in the order of the groups."""
    spread = np.repeat(np.arange(len(phase.group_size)), phase.group_size)
    return replace(
        phase,
        node_group=np.argsort(np.argsort(phase.node_group, kind="stable"), kind="stable"),
        group_size=np.ones(len(spread), dtype=np.int64),
        free_capacity=phase.free_capacity[spread],
        floor=phase.floor[spread],
        limits=phase.limits[spread],
        running=phase.running[spread],
        row_share=phase.row_share[:, spread],
    )


def choose_branching(
    groups: IntArray, amounts: FloatArray, fillings: IntArray, prices: FloatArray
) -> tuple[int, int, int] | None:
    """A group, a class and so many of its copies that the group may have or not; None where all is certain.

    Of the uncertain ones the dearest, at `prices[group, class]`. `amounts[k]` tells how much a group uses of a filling.
    """
    means = np.zeros(prices.shape)
    np.add.at(means, groups, amounts[:, None] * fillings)
    least = np.floor(means + _WHOLE).astype(np.int64) + 1
    part = np.minimum(means - least + 1.0, least - means)
    if part.max(initial=0.0) <= _WHOLE:
        more = fillings >= least[groups]
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


def reaches_target(phase: PrioritySubproblem, groups: IntArray, fillings: IntArray, target: int) -> bool:
    """Tell whether one filling a node meets every demand and the target, in whole numbers."""
    placed = np.minimum(fillings.sum(axis=0), phase.counts)
    stayed = np.minimum(fillings, phase.running[groups]).sum(axis=0)
    if (np.bincount(groups, minlength=len(phase.group_size)) > phase.group_size).any():
        return False
    if (placed < phase.counts)[phase.required].any():
        return False
    for need in range(len(phase.sum_minimum)):
        figures = stayed if phase.sum_stays[need] else placed
        if figures[phase.sum_members[need]].sum() < phase.sum_minimum[need]:
            return False
    return phase.compute_value(placed, stayed) >= target

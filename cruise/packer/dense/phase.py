"""One question about one priority, in rows: how many copies can be placed, or left in place, given the tiers above."""

from dataclasses import dataclass, replace

import numpy as np

from cruise.packer.arrays import BoolArray, FloatArray, IntArray
from cruise.packer.dense.between import FREE, Between
from cruise.packer.dense.residual import Residual
from cruise.packer.kernels.shelf import Shelf, shelf_of


@dataclass(frozen=True, slots=True, eq=False)
class Phase:
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
    must: BoolArray
    counted: BoolArray
    kept: IntArray
    loyal: BoolArray
    need_members: BoolArray
    need_stays: BoolArray
    need_least: IntArray
    node_group: IntArray
    group_size: IntArray
    room: IntArray
    floor: IntArray
    limits: IntArray
    running: IntArray
    answer: int
    ceiling: int
    row_share: FloatArray
    row_least: FloatArray

    @property
    def unit(self) -> float:
        """The most that one copy is worth."""
        return float(max(self.kept.max(initial=1), 1))

    def value(self, placed: IntArray, stayed: IntArray) -> int:
        """What an answer achieves, from its placed and its staying copies of each class."""
        return int(placed[self.counted].sum() + stayed @ self.kept)


def phase_of(residual: Residual, assignment: IntArray, entry: int, between: Between = FREE) -> Phase:
    """The question about an entry of the vector, given a plan whose entries before are kept; `between` pods as well.

    Of a tier below it has what attracts others, and what has to stay for an eviction limit.
    """
    entries = residual.entries
    whole = _attracting(residual, (residual.tiers <= entries.tier[entry]) | (residual.least > 0), between)
    classes = np.flatnonzero(whole | _staying(residual, between))
    placed = assignment[classes].sum(axis=1)
    stayed = np.minimum(assignment, residual.running)[classes].sum(axis=1)
    demand = _Demand(residual, classes, placed)
    for before in range(entry):
        if entries.stays[before]:
            mine = entries.stay[classes] == before
            demand.keep_stays(mine, int(stayed[mine].sum()))
        else:
            demand.keep_places(entries.place[classes] == before)
    counted = (entries.place[classes] == entry) & ~demand.must
    kept = np.where(entries.stay[classes] == entry, entries.weight[classes], 0)
    demand.place_least()
    for members, allowed in between.limits:
        mine = members[residual.origin[classes]]
        demand.keep_stays(mine, int(residual.running[classes[mine]].sum()) - allowed)
    loyal = (demand.loyal | (kept > 0)) & residual.running[classes].any(axis=1)
    counts, running = residual.counts[classes], np.where(loyal[:, None], residual.running[classes], 0)
    ran = residual.running[classes]
    limits = np.where(whole[classes, None], residual.limits[classes], np.minimum(ran, residual.limits[classes]))
    share, least = _shares(residual, classes, between)
    node_group, first = _grouped(residual, limits, running, share)
    if between.wanted:
        # What parts the question about company speaks of some nodes among equal ones.
        node_group = first = np.arange(len(residual.room))
    possible = np.minimum(residual.running, residual.limits)[classes].sum(axis=1)
    return Phase(
        classes=classes,
        demands=np.ascontiguousarray(residual.demands[classes]),
        headroom=np.ascontiguousarray(residual.headroom[classes] if len(residual.headroom) else residual.headroom),
        counts=counts,
        must=demand.must,
        counted=counted,
        kept=kept,
        loyal=loyal,
        need_members=np.array([need[0] for need in demand.needs], dtype=np.bool_).reshape(
            len(demand.needs), len(classes)
        ),
        need_stays=np.array([need[1] for need in demand.needs], dtype=np.bool_),
        need_least=np.array([need[2] for need in demand.needs], dtype=np.int64),
        node_group=node_group,
        group_size=np.bincount(node_group, minlength=len(first)).astype(np.int64),
        room=np.ascontiguousarray(residual.room[first]),
        floor=np.ascontiguousarray(residual.floor[first]),
        limits=np.ascontiguousarray(limits[:, first].T),
        running=np.ascontiguousarray(running[:, first].T),
        answer=int(placed[counted].sum() + stayed @ kept),
        ceiling=int(counts[counted].sum() + np.minimum(possible, counts) @ kept),
        row_share=np.ascontiguousarray(share[:, first]),
        row_least=least,
    )


def beside(phase: Phase, residual: Residual, between: Between) -> Phase:
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


def _attracting(residual: Residual, some: BoolArray, between: Between) -> BoolArray:
    """Some classes, and those that attract them."""
    marked = np.zeros(residual.instance.class_count, dtype=np.bool_)
    marked[residual.origin] = some
    return between.attracting(marked)[residual.origin]


def _staying(residual: Residual, between: Between) -> BoolArray:
    """The classes of which some copies have to stay for an eviction limit."""
    running = residual.running.sum(axis=1)
    found = np.zeros(len(running), dtype=np.bool_)
    for members, allowed in between.limits:
        mine = members[residual.origin] & (running > 0)
        if running[mine].sum() > allowed:
            found |= mine
    return found


def _shares(residual: Residual, classes: IntArray, between: Between) -> tuple[FloatArray, FloatArray]:
    share, least = between.rows(residual.origin[classes], len(residual.room))
    # What is nailed counts in a row as well, but is no variable.
    return share, least - np.einsum("rnc,cn->r", share, residual.nailed[residual.origin[classes]])


class _Demand:
    """What an answer must not fall below: classes that are placed whole, and sums of copies."""

    def __init__(self, residual: Residual, classes: IntArray, placed: IntArray) -> None:
        self.least, self.counts, self.placed = residual.least[classes], residual.counts[classes], placed
        self.must = (self.least > 0) & (self.least == self.counts)
        self.loyal = np.zeros(len(classes), dtype=np.bool_)
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
            self.loyal |= mine

    def place_least(self) -> None:
        """Each class has its least copies placed, unless it is placed whole anyway."""
        for c in np.flatnonzero((self.least > 0) & ~self.must).tolist():
            self.needs.append((np.arange(len(self.least)) == c, False, int(self.least[c])))


def _grouped(residual: Residual, limits: IntArray, running: IntArray, share: FloatArray) -> tuple[IntArray, IntArray]:
    """Each node's group of nodes that nothing tells apart, and the first node of every group."""
    seen: dict[bytes, int] = {}
    group = np.zeros(len(residual.room), dtype=np.int64)
    first: list[int] = []
    columns = np.concatenate([residual.room, residual.floor, limits.T, running.T], axis=1)
    for node in range(len(residual.room)):
        key = columns[node].tobytes() + share[:, node].tobytes()
        if key not in seen:
            seen[key] = len(first)
            first.append(node)
        group[node] = seen[key]
    return group, np.array(first, dtype=np.int64)


def patterns_of(phase: Phase, assignment: IntArray) -> tuple[IntArray, IntArray]:
    """The group and the copies by class of each node's filling in a residual assignment, equal ones once."""
    fillings = assignment[phase.classes].T
    keyed = np.concatenate([phase.node_group[:, None], fillings], axis=1)
    unique = np.unique(keyed, axis=0)
    return unique[:, 0].copy(), np.ascontiguousarray(unique[:, 1:])


def spread(phase: Phase, groups: IntArray, fillings: IntArray, residual: Residual) -> IntArray:
    """A residual assignment from one filling a node (of its group, the other nodes stay empty), without surplus.

    Surplus copies are dropped from where they would have to move to, before those that stay.
    """
    assignment = np.zeros_like(residual.running)
    runs = residual.running[phase.classes].T
    for group in np.unique(groups).tolist():
        mine = fillings[groups == group]
        nodes = np.flatnonzero(phase.node_group == group)
        assignment[np.ix_(phase.classes, nodes[_matched(mine, runs[nodes], residual.worth[phase.classes])])] = mine.T
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


def prices_of(phase: Phase, duals: FloatArray) -> tuple[FloatArray, FloatArray]:
    """What a copy of each class is worth in each group at some duals, and what it is worth more where it stays."""
    classes, between = len(phase.classes), len(phase.classes) + len(phase.need_least)
    bonus = phase.kept.astype(np.float64)
    for need in np.flatnonzero(phase.need_stays).tolist():
        bonus += phase.need_members[need] * duals[classes + need]
    rows = duals[between : between + len(phase.row_least)]
    return duals[:classes] + np.tensordot(rows, phase.row_share, 1), np.where(phase.loyal, bonus, 0.0)


def shelf_for(phase: Phase, patterns: int) -> Shelf:
    """A shelf for the phase's groups with space for some patterns."""
    room, floor, limits, running = (part.copy() for part in (phase.room, phase.floor, phase.limits, phase.running))
    return shelf_of(phase.demands, phase.headroom, room, floor, limits, running, patterns)

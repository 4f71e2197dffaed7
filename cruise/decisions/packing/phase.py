"""One question about one priority, in rows: how many copies can be placed, or left in place, given the tiers above."""

from dataclasses import dataclass

import numpy as np

from cruise.decisions.packing.instance import BoolArray, FloatArray, IntArray
from cruise.decisions.packing.residual import Residual


@dataclass(frozen=True, slots=True, eq=False)
class Phase:
    """The classes and groups of equal nodes that matter to the question, and what an answer must not fall below.

    The first rows are the classes: `must` ones are placed whole, the others as far as their count variable goes.
    Then come the demands on tiers: `need_members[need, class]` marks whose placed (or, where `need_stays`, staying)
    copies add up to at least `need_least`. `counted[class]` and `kept[class]` tell whether a placed copy, or a
    staying one, is worth 1. `answer` is what the best plan known achieves, `ceiling` what no plan can surpass.
    """

    classes: IntArray
    demands: IntArray
    counts: IntArray
    must: BoolArray
    counted: BoolArray
    kept: BoolArray
    loyal: BoolArray
    need_members: BoolArray
    need_stays: BoolArray
    need_least: IntArray
    node_group: IntArray
    group_size: IntArray
    room: IntArray
    limits: IntArray
    running: IntArray
    answer: int
    ceiling: int

    def value(self, placed: IntArray, stayed: IntArray) -> int:
        """What an answer achieves, from its placed and its staying copies of each class."""
        return int(placed[self.counted].sum() + stayed[self.kept].sum())


def phase_of(residual: Residual, assignment: IntArray, tier: int, stays: bool) -> Phase:
    """The question about a tier, given a plan whose figures for what comes before are kept.

    `stays` asks for the most copies left in place, at no fewer placed; else for the most copies placed.
    """
    classes = np.flatnonzero(residual.tiers <= tier)
    tiers, counts = residual.tiers[classes], residual.counts[classes]
    placed = assignment[classes].sum(axis=1)
    stayed = np.minimum(assignment, residual.running)[classes].sum(axis=1)
    must = np.zeros(len(classes), dtype=np.bool_)
    needs: list[tuple[BoolArray, bool, int]] = []
    loyal = np.zeros(len(classes), dtype=np.bool_)
    for above in range(tier + 1):
        mine = tiers == above
        optional = mine & ~must
        if above < tier or stays:
            if placed[optional].sum() == counts[optional].sum():
                must |= mine
            else:
                needs.append((optional, False, int(placed[optional].sum())))
        if above < tier and stayed[mine].sum() > 0:
            needs.append((mine, True, int(stayed[mine].sum())))
            loyal |= mine
    target = tiers == tier
    loyal |= target & stays
    loyal &= residual.running[classes].any(axis=1)
    counted, kept = target & ~must & (not stays), target & stays
    running = np.where(loyal[:, None], residual.running[classes], 0)
    limits = residual.limits[classes]
    node_group, first = _grouped(residual.room, limits, running)
    possible = np.minimum(residual.running, residual.limits)[classes].sum(axis=1)
    return Phase(
        classes=classes,
        demands=np.ascontiguousarray(residual.demands[classes]),
        counts=counts,
        must=must,
        counted=counted,
        kept=kept,
        loyal=loyal,
        need_members=np.array([need[0] for need in needs], dtype=np.bool_).reshape(len(needs), len(classes)),
        need_stays=np.array([need[1] for need in needs], dtype=np.bool_),
        need_least=np.array([need[2] for need in needs], dtype=np.int64),
        node_group=node_group,
        group_size=np.bincount(node_group, minlength=len(first)).astype(np.int64),
        room=np.ascontiguousarray(residual.room[first]),
        limits=np.ascontiguousarray(limits[:, first].T),
        running=np.ascontiguousarray(running[:, first].T),
        answer=int(placed[counted].sum() + stayed[kept].sum()),
        ceiling=int(counts[counted].sum() + np.minimum(possible, counts)[kept].sum()),
    )


def _grouped(room: IntArray, limits: IntArray, running: IntArray) -> tuple[IntArray, IntArray]:
    """Each node's group of nodes that nothing tells apart, and the first node of every group."""
    seen: dict[bytes, int] = {}
    group = np.zeros(len(room), dtype=np.int64)
    first: list[int] = []
    for node in range(len(room)):
        key = room[node].tobytes() + limits[:, node].tobytes() + running[:, node].tobytes()
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
    """A residual assignment from one filling a node (any nodes of the groups, the others empty), without surplus.

    Surplus copies are dropped from where they would have to move to, before those that stay.
    """
    assignment = np.zeros_like(residual.running)
    nodes = {group: np.flatnonzero(phase.node_group == group).tolist() for group in range(len(phase.group_size))}
    for group, filling in zip(groups.tolist(), fillings, strict=True):
        assignment[phase.classes, nodes[group].pop(0)] = filling
    for c in np.flatnonzero(assignment.sum(axis=1) > residual.counts).tolist():
        surplus = int(assignment[c].sum() - residual.counts[c])
        for stays in (False, True):
            for node in np.flatnonzero(assignment[c]).tolist():
                spare = int(assignment[c, node] if stays else max(assignment[c, node] - residual.running[c, node], 0))
                drop = min(surplus, spare)
                assignment[c, node] -= drop
                surplus -= drop
    return assignment


def prices_of(phase: Phase, duals: FloatArray) -> tuple[FloatArray, FloatArray]:
    """What a copy of each class is worth at some duals of the rows, and what it is worth more where it stays."""
    classes = len(phase.classes)
    bonus = phase.kept.astype(np.float64)
    for need in np.flatnonzero(phase.need_stays).tolist():
        bonus += phase.need_members[need] * duals[classes + need]
    return duals[:classes].copy(), np.where(phase.loyal, bonus, 0.0)

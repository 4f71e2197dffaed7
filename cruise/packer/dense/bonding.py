"""The rules between pods as tables that annealing counts with; what its packings break is for the judge to find."""

from collections import defaultdict

import numpy as np

from cruise.packer.arrays import FloatArray, IntArray
from cruise.packer.dense.residual import TIER_RATIO, Residual
from cruise.packer.kernels.bonds import APART, BOND_TABLES, COMPANY, EVEN, FOUNDED, STAYS
from cruise.packer.problem import Problem

# What one pod too many costs, in copies placed of the highest tier among those that a rule is about.
_PENALTY = 1.5


def bonds_of(problem: Problem, residual: Residual) -> IntArray:
    """The tables for a placement of a residual without any copy; what is nailed counts already."""
    rules, bonds = problem.rules, _Bonds(problem, residual)
    everywhere = np.zeros(problem.node_count, dtype=np.int64)
    for limit in rules.eviction_limits:
        ran = int(bonds.running[limit.members].sum())
        bonds.add(STAYS, everywhere, [], limit.members.tolist(), ran - limit.allowed)
    for exclusion in rules.exclusions:
        row, targets = rules.topologies[exclusion.topology], exclusion.targets.tolist()
        others = [c for c in targets if c != exclusion.holder]
        bonds.add(APART, row, [exclusion.holder], targets, len(targets) - len(others))
        bonds.add(APART, row, others, [exclusion.holder], 0)
    for spread in rules.spreads:
        row = np.where(spread.eligible, rules.topologies[spread.topology], -1)
        whole = len(np.unique(row[row >= 0])) >= spread.min_domains
        bonds.add(EVEN if whole else APART, row, [spread.holder], spread.targets.tolist(), spread.max_skew)
    for attraction in rules.attractions:
        for topology in attraction.topologies:
            kind = FOUNDED if attraction.may_be_first else COMPANY
            bonds.add(kind, rules.topologies[topology], [attraction.holder], attraction.targets.tolist(), 0)
    return bonds.tables()


class _Bonds:
    """Bonds as they come, with their counts side by side."""

    def __init__(self, problem: Problem, residual: Residual) -> None:
        self.nailed, self.running = residual.nailed, residual.instance.running
        self.place = np.full(problem.class_count, -1, dtype=np.int64)
        self.place[residual.origin] = np.arange(len(residual.origin))
        below = (len(residual.instance.tiers()) - 1 - residual.tiers).astype(np.float64)
        self.worth: FloatArray = np.power(TIER_RATIO, below)
        self.of_class: defaultdict[int, list[int]] = defaultdict(list)
        # Of each: its kind, where its counts begin, how many domains, what the kind makes of it, its weight, its row.
        self.bonds: list[tuple[int, int, int, int, int, int]] = []
        self.rows: dict[bytes, int] = {}
        self.counts: list[int] = []

    def add(self, kind: int, row: IntArray, holders: list[int], targets: list[int], most: int) -> None:
        """A bond of some holders to targets, over the domains that nodes have in a row."""
        mine = [(int(self.place[c]), 1 * (c in holders) + 2 * (c in targets)) for c in {*holders, *targets}]
        mine = sorted((c, role) for c, role in mine if c >= 0)
        if not mine:
            return
        found = np.unique(row[row >= 0])
        named = np.where(row >= 0, np.searchsorted(found, row), -1)
        there = self.nailed[targets].sum(axis=0)
        fixed = np.bincount(named[named >= 0], weights=there[named >= 0], minlength=len(found)).astype(np.int64)
        for c, role in mine:
            self.of_class[c].append(4 * len(self.bonds) + role)
        weight = int(1000 * _PENALTY * max(self.worth[c] for c, _ in mine))
        number = self.rows.setdefault(named.tobytes(), len(self.rows))
        self.bonds.append((kind, len(self.counts), len(found), most, weight, number))
        self.counts += [*(0,) * len(found), *fixed.tolist()]

    def tables(self) -> IntArray:
        """All of it in one array; empty without a bond."""
        if not self.of_class:
            return np.zeros(0, dtype=np.int64)
        listed = [self.of_class.get(c, []) for c in range(len(self.worth))]
        kind, first, domains, most, weight, number = np.array(self.bonds, dtype=np.int64).T
        rows = np.concatenate([np.frombuffer(row, dtype=np.int64) for row in self.rows])
        entries = np.array([entry for one in listed for entry in one], dtype=np.int64)
        starts = np.cumsum([0, *map(len, listed)])
        parts = [starts, entries, kind, first, domains, most, weight, np.zeros_like(kind), number]
        offsets = BOND_TABLES + np.cumsum([0, *map(len, parts)])
        # Counts come behind the tables, then the rows: both are pointed at.
        first += offsets[-1]
        number *= len(rows) // len(self.rows)
        number += offsets[-1] + len(self.counts)
        head = np.array([0, *offsets[:-1].tolist()], dtype=np.int64)
        return np.concatenate([head, *parts, np.array(self.counts, dtype=np.int64), rows])

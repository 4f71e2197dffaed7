"""The rules between pods as tables that annealing counts with; what its packings break is for the judge to find."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from cruise.packer.columns.instance import PRIORITY_RATIO, ResidualInstance
from cruise.packer.columns.subproblem import PrioritySubproblem
from cruise.packer.kernels.placement import APART, COMPANY, EVEN, FOUNDED, RULE_ENERGY_TABLES, STAYS
from cruise.packer.problem import BoolArray, FloatArray, IntArray, PackingProblem
from cruise.packer.rules.by_class import is_domain_per_node

# What one pod too many costs, in copies placed of the highest tier among those that a rule is about.
_PENALTY = 1.5


def build_rule_energies(problem: PackingProblem, residual: ResidualInstance) -> IntArray:
    """The tables for a placement of a residual without any copy; what is nailed counts already."""
    rules, bonds = problem.rules, _RuleEnergies(problem, residual)
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
            kind = FOUNDED if attraction.allows_first_pod else COMPANY
            bonds.add(kind, rules.topologies[topology], [attraction.holder], attraction.targets.tolist(), 0)
    return bonds.tables()


class _RuleEnergies:
    """Bonds as they come, with their counts side by side."""

    def __init__(self, problem: PackingProblem, residual: ResidualInstance) -> None:
        self.fixed, self.running = residual.fixed, residual.instance.running
        self.place = np.full(problem.class_count, -1, dtype=np.int64)
        self.place[residual.origin] = np.arange(len(residual.origin))
        below = (len(residual.instance.count_priority_levels()) - 1 - residual.tiers).astype(np.float64)
        self.worth: FloatArray = np.power(PRIORITY_RATIO, below)
        self.by_class: defaultdict[int, list[int]] = defaultdict(list)
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
        there = self.fixed[targets].sum(axis=0)
        fixed = np.bincount(named[named >= 0], weights=there[named >= 0], minlength=len(found)).astype(np.int64)
        for c, role in mine:
            self.by_class[c].append(4 * len(self.bonds) + role)
        weight = int(1000 * _PENALTY * max(self.worth[c] for c, _ in mine))
        number = self.rows.setdefault(named.tobytes(), len(self.rows))
        self.bonds.append((kind, len(self.counts), len(found), most, weight, number))
        self.counts += [*(0,) * len(found), *fixed.tolist()]

    def tables(self) -> IntArray:
        """All of it in one array; empty without a bond."""
        if not self.by_class:
            return np.zeros(0, dtype=np.int64)
        listed = [self.by_class.get(c, []) for c in range(len(self.worth))]
        kind, first, domains, most, weight, number = np.array(self.bonds, dtype=np.int64).T
        rows = np.concatenate([np.frombuffer(row, dtype=np.int64) for row in self.rows])
        entries = np.array([entry for one in listed for entry in one], dtype=np.int64)
        starts = np.cumsum([0, *map(len, listed)])
        parts = [starts, entries, kind, first, domains, most, weight, np.zeros_like(kind), number]
        offsets = RULE_ENERGY_TABLES + np.cumsum([0, *map(len, parts)])
        # Counts come behind the tables, then the rows: both are pointed at.
        first += offsets[-1]
        number *= len(rows) // len(self.rows)
        number += offsets[-1] + len(self.counts)
        head = np.array([0, *offsets[:-1].tolist()], dtype=np.int64)
        return np.concatenate([head, *parts, np.array(self.counts, dtype=np.int64), rows])


# Fillings of nodes without the copies that may not arrive there alone: attractions by node, said of one node.


@dataclass(frozen=True, slots=True, eq=False)
class NodeAffinityRules:
    """Of `holder[k]` a node of a group has `alone[k, group]` copies where it has none of the `targets[k, class]`."""

    holder: IntArray
    targets: BoolArray
    max_alone: IntArray

    def find_unaccompanied(self, group: int, filling: IntArray) -> int:
        """The first rule that a filling breaks, -1 for none."""
        many = filling[self.holder] > self.max_alone[:, group]
        broken = np.flatnonzero(many & ~(self.targets & (filling > 0)).any(axis=1))
        return int(broken[0]) if len(broken) else -1

    def add_companions(self, group: int, least: IntArray) -> None:
        """Let the least that a group has include the company that it needs, where only one class can be that."""
        for _ in self.holder:
            rule = self.find_unaccompanied(group, least)
            if rule < 0 or self.targets[rule].sum() != 1:
                return
            least[self.targets[rule]] = 1


NO_NODE_AFFINITY_RULES = NodeAffinityRules(
    np.zeros(0, dtype=np.int64), np.zeros((0, 0), dtype=np.bool_), np.zeros((0, 0), dtype=np.int64)
)


def build_node_affinity_rules(
    problem: PackingProblem, residual: ResidualInstance, phase: PrioritySubproblem
) -> NodeAffinityRules:
    """What attractions by node ask of a phase's fillings, where all their targets are among its classes."""
    classes, rules = residual.origin[phase.classes], problem.rules
    rows = []
    for rule in rules.attractions:
        mine = np.flatnonzero(classes == rule.holder)
        elsewhere = np.setdiff1d(np.intersect1d(rule.targets, residual.origin), classes)
        by_node = any(is_domain_per_node(rules.topologies[topology]) for topology in rule.topologies)
        if len(mine) and by_node and not rule.allows_first_pod and not len(elsewhere):
            ran = residual.running[phase.classes[mine[0]]]
            # Beside what cannot move any number may be.
            alone = np.where(residual.fixed[rule.targets].any(axis=0), np.iinfo(np.int64).max, ran)
            most = np.zeros(len(phase.group_size), dtype=np.int64)
            np.maximum.at(most, phase.node_group, alone)
            rows.append((int(mine[0]), np.isin(classes, rule.targets), most))
    return NodeAffinityRules(
        np.array([holder for holder, _, _ in rows], dtype=np.int64),
        np.array([targets for _, targets, _ in rows], dtype=np.bool_).reshape(len(rows), len(classes)),
        np.array([most for _, _, most in rows], dtype=np.int64).reshape(len(rows), len(phase.group_size)),
    )

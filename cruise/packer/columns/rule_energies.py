"""Expresses the rules between pods as energies, which annealing minimises."""

from collections import defaultdict

import numpy as np

from cruise.packer.columns.instance import PRIORITY_RATIO, ResidualInstance
from cruise.packer.kernels.placement import AFFINITY, MAX_TARGETS, RULE_ENERGY_TABLES, SELF_AFFINITY, SKEW, STAYING
from cruise.packer.problem import FloatArray, IntArray, PackingProblem

# The cost of one pod too many, in placed pods of the highest priority that a rule is about.
_PENALTY = 1.5


def build_rule_energies(problem: PackingProblem, residual: ResidualInstance) -> IntArray:
    """Return the rule tables for an empty placement of a residual instance; fixed pods count already."""
    rules, energies = problem.rules, _RuleEnergies(problem, residual)
    one_domain = np.zeros(problem.node_count, dtype=np.int64)
    for limit in rules.eviction_limits:
        running_count = int(energies.running[limit.members].sum())
        energies.add(STAYING, one_domain, [], limit.members.tolist(), running_count - limit.allowed)
    for exclusion in rules.exclusions:
        row, targets = rules.topologies[exclusion.topology], exclusion.targets.tolist()
        other_targets = [c for c in targets if c != exclusion.holder]
        energies.add(MAX_TARGETS, row, [exclusion.holder], targets, len(targets) - len(other_targets))
        energies.add(MAX_TARGETS, row, other_targets, [exclusion.holder], 0)
    for spread in rules.spreads:
        row = np.where(spread.eligible, rules.topologies[spread.topology], -1)
        has_min_domains = len(np.unique(row[row >= 0])) >= spread.min_domains
        energies.add(
            SKEW if has_min_domains else MAX_TARGETS, row, [spread.holder], spread.targets.tolist(), spread.max_skew
        )
    for attraction in rules.attractions:
        for topology in attraction.topologies:
            rule_kind = SELF_AFFINITY if attraction.allows_first_pod else AFFINITY
            energies.add(rule_kind, rules.topologies[topology], [attraction.holder], attraction.targets.tolist(), 0)
    return energies.build_tables()


class _RuleEnergies:
    """Collects rules with their counts in one array."""

    def __init__(self, problem: PackingProblem, residual: ResidualInstance) -> None:
        self.fixed, self.running = residual.fixed, residual.instance.running
        self.class_in_residual = np.full(problem.class_count, -1, dtype=np.int64)
        self.class_in_residual[residual.origin] = np.arange(len(residual.origin))
        below = (len(residual.instance.list_priorities()) - 1 - residual.tiers).astype(np.float64)
        self.worth: FloatArray = np.power(PRIORITY_RATIO, below)
        self.by_class: defaultdict[int, list[int]] = defaultdict(list)
        # Per rule: kind, start of its counts, number of domains, allowed count, weight, topology row.
        self.rules: list[tuple[int, int, int, int, int, int]] = []
        self.rows: dict[bytes, int] = {}
        self.counts: list[int] = []

    def add(self, kind: int, row: IntArray, holders: list[int], targets: list[int], allowed: int) -> None:
        """Add a rule of some holders about targets, over the domains of a row."""
        roles = [
            (int(self.class_in_residual[c]), 1 * (c in holders) + 2 * (c in targets)) for c in {*holders, *targets}
        ]
        roles = sorted((c, role) for c, role in roles if c >= 0)
        if not roles:
            return
        domains = np.unique(row[row >= 0])
        domain_of_node = np.where(row >= 0, np.searchsorted(domains, row), -1)
        fixed_on_node = self.fixed[targets].sum(axis=0)
        fixed = np.bincount(
            domain_of_node[domain_of_node >= 0], weights=fixed_on_node[domain_of_node >= 0], minlength=len(domains)
        ).astype(np.int64)
        for c, role in roles:
            self.by_class[c].append(4 * len(self.rules) + role)
        weight = int(1000 * _PENALTY * max(self.worth[c] for c, _ in roles))
        number = self.rows.setdefault(domain_of_node.tobytes(), len(self.rows))
        self.rules.append((kind, len(self.counts), len(domains), allowed, weight, number))
        self.counts += [*(0,) * len(domains), *fixed.tolist()]

    def build_tables(self) -> IntArray:
        """Return all tables in one array; empty without a rule."""
        if not self.by_class:
            return np.zeros(0, dtype=np.int64)
        entries_by_class = [self.by_class.get(c, []) for c in range(len(self.worth))]
        kind, first, domains, allowed, weight, number = np.array(self.rules, dtype=np.int64).T
        rows = np.concatenate([np.frombuffer(row, dtype=np.int64) for row in self.rows])
        entries = np.array([entry for one in entries_by_class for entry in one], dtype=np.int64)
        starts = np.cumsum([0, *map(len, entries_by_class)])
        parts = [starts, entries, kind, first, domains, allowed, weight, np.zeros_like(kind), number]
        offsets = RULE_ENERGY_TABLES + np.cumsum([0, *map(len, parts)])
        # The counts follow the tables, then the rows; tables point to both.
        first += offsets[-1]
        number *= len(rows) // len(self.rows)
        number += offsets[-1] + len(self.counts)
        head = np.array([0, *offsets[:-1].tolist()], dtype=np.int64)
        return np.concatenate([head, *parts, np.array(self.counts, dtype=np.int64), rows])

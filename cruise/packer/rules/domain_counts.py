"""Counts pods by domain, and finds the nodes on which the rules between pods allow one more pod.

Checks tell where a pod of a class may arrive, as kube-scheduler's filters would. Guards tell where it would break a
rule for pods that arrived before. Kernels answer the same from tables of the same counts (`rules/kernel_tables.py`).
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from cruise.packer.problem import AttractionRule, BoolArray, IntArray, PackingProblem, SpreadRule
from cruise.packer.rules.by_class import RulesByClass


@dataclass(eq=False)
class NodeDomains:
    """The domain of each node in a topology, -1 outside of all."""

    row: IntArray

    @cached_property
    def domain_list(self) -> list[int]:
        """Return the row as a list, from which single entries are read faster."""
        nodes: list[int] = self.row.tolist()
        return nodes

    @cached_property
    def count(self) -> int:
        """Return the number of domains."""
        return len(np.unique(self.row[self.row >= 0]))

    @cached_property
    def size(self) -> int:
        """Return the largest domain plus one."""
        return int(self.row.max(initial=-1)) + 1


@dataclass(slots=True, eq=False)
class DomainCounts:
    """Pods by domain; a domain without pods has no entry, and pods outside of all domains do not count."""

    domains: NodeDomains
    by_domain_counts: dict[int, int] = field(default_factory=dict)

    def count(self, nodes: IntArray) -> None:
        """Count a pod on each of the nodes, instead of earlier counts."""
        domains_of_nodes = self.domains.row[nodes]
        domains, counts = np.unique(domains_of_nodes[domains_of_nodes >= 0], return_counts=True)
        self.by_domain_counts = dict(zip(domains.tolist(), counts.tolist(), strict=True))

    def add(self, node: int, step: int) -> None:
        """Count a pod that arrives on a node (1) or leaves it (-1)."""
        domain = self.domains.domain_list[node]
        if domain >= 0:
            self.by_domain_counts[domain] = self.by_domain_counts.get(domain, 0) + step
            if not self.by_domain_counts[domain]:
                del self.by_domain_counts[domain]

    def get_in_domain(self, domain: int) -> int:
        """Return the number in a domain."""
        return self.by_domain_counts.get(domain, 0)

    def get_at_node(self, node: int) -> int:
        """Return the number in the domain of a node."""
        return self.by_domain_counts.get(self.domains.domain_list[node], 0)

    def get_minimum(self) -> int:
        """Return the smallest number in a domain."""
        return min(self.by_domain_counts.values(), default=0) if len(self.by_domain_counts) == self.domains.count else 0

    def get_by_domain(self, size: int) -> IntArray:
        """Return the numbers by domain, with an entry of 0 at the end for nodes outside of all domains."""
        found = np.zeros(size + 1, dtype=np.int64)
        found[list(self.by_domain_counts)] = list(self.by_domain_counts.values())
        return found

    def get_per_node(self) -> IntArray:
        """Return the number in the domain of each node."""
        return self.get_by_domain(self.domains.size)[self.domains.row]


@dataclass(frozen=True, slots=True, eq=False)
class ExclusionCheck:
    """An exclusion, for a class: no pod of the others is in the domain where it arrives."""

    index: int
    others: DomainCounts

    def allows(self, node: int) -> bool:
        """Return whether one more pod may arrive on a node."""
        return self.others.get_at_node(node) == 0

    def get_allowed_nodes(self) -> BoolArray:
        """Return the nodes where one more pod may arrive."""
        return np.asarray(self.others.get_per_node() == 0, dtype=np.bool_)


@dataclass(frozen=True, slots=True, eq=False)
class AttractionCheck:
    """An attraction: each topology has a target in the domain, or the pod is the first of its targets.

    Only a target can be the first, on a node with every label, while no other target is in any domain.
    """

    index: int
    rule: AttractionRule
    targets: tuple[DomainCounts, ...]

    @property
    def allows_first_pod(self) -> bool:
        """Return whether the next holder would be the first."""
        return self.rule.allows_first_pod and not any(counts.by_domain_counts for counts in self.targets)

    def allows(self, node: int) -> bool:
        """Return whether one more pod may arrive on a node."""
        if self.allows_first_pod:
            return all(counts.domains.domain_list[node] >= 0 for counts in self.targets)
        return self.supports(node)

    def supports(self, node: int) -> bool:
        """Return whether targets are in the domains of a node."""
        return all(counts.get_at_node(node) > 0 for counts in self.targets)

    def get_allowed_nodes(self) -> BoolArray:
        """Return the nodes where one more pod may arrive."""
        if self.allows_first_pod:
            return np.asarray(np.all([counts.domains.row >= 0 for counts in self.targets], axis=0), dtype=np.bool_)
        return self.get_supported_nodes()

    def get_supported_nodes(self) -> BoolArray:
        """Return the nodes with targets in their domains."""
        return np.asarray(np.all([counts.get_per_node() > 0 for counts in self.targets], axis=0), dtype=np.bool_)


@dataclass(frozen=True, slots=True, eq=False)
class SpreadCheck:
    """A spread, for its holder: with one more pod its domain exceeds the minimum by at most the skew.

    `targets` are counted on eligible nodes only.
    """

    index: int
    rule: SpreadRule
    targets: DomainCounts
    all_domains: NodeDomains

    @property
    def minimum(self) -> int:
        """Return the fewest targets in an eligible domain."""
        return self.targets.get_minimum() if self.targets.domains.count >= self.rule.min_domains else 0

    @property
    def maximum(self) -> int:
        """Return how many targets a domain may have before one more holder arrives."""
        return self.rule.max_skew + self.minimum - int(self.rule.counts_itself)

    def allows(self, node: int) -> bool:
        """Return whether one more pod may arrive on a node."""
        domain = self.all_domains.domain_list[node]
        return domain >= 0 and self.targets.get_in_domain(domain) <= self.maximum

    def get_allowed_nodes(self) -> BoolArray:
        """Return the nodes where one more pod may arrive."""
        row = self.all_domains.row
        return np.asarray(
            (row >= 0) & (self.targets.get_by_domain(self.all_domains.size)[row] <= self.maximum), dtype=np.bool_
        )


@dataclass(frozen=True, slots=True, eq=False)
class SpreadTargetCheck:
    """A spread, for a target that does not hold it: one more pod is not too many next to holders that arrived."""

    spread: SpreadCheck
    arrived: DomainCounts

    def get_allowed_nodes(self) -> BoolArray:
        """Return the nodes where one more pod does not violate the spread."""
        spread = self.spread
        level = spread.targets.get_by_domain(spread.all_domains.size)[spread.all_domains.row]
        watched = (self.arrived.get_per_node() > 0) & spread.rule.eligible
        return np.asarray(~watched | (level + 1 - spread.minimum <= spread.rule.max_skew), dtype=np.bool_)


@dataclass(frozen=True, slots=True, eq=False)
class AttractionTargetCheck:
    """An attraction, for a target: once a holder has arrived, a target arrives only where others are.

    Otherwise a holder that was the first would be rejected in the end because of a target elsewhere.
    """

    attraction: AttractionCheck
    arrived: DomainCounts

    def get_allowed_nodes(self) -> BoolArray:
        """Return the nodes where one more pod does not invalidate the first one."""
        if not self.arrived.by_domain_counts:
            return np.ones(len(self.attraction.targets[0].domains.row), dtype=np.bool_)
        return self.attraction.get_supported_nodes()


class RuleCounts:
    """The placements of a problem's pods, with the counts that questions about rules have needed so far."""

    def __init__(self, problem: PackingProblem, rules: RulesByClass, pod_node: IntArray) -> None:
        self.problem, self.rules = problem, rules
        self.pod_node = pod_node.copy()
        self._domains: dict[Hashable, NodeDomains] = {}
        self._counts: dict[Hashable, DomainCounts] = {}
        self._counts_of_class: dict[int, list[DomainCounts]] = {}
        self._arrival_counts_of_class: dict[int, list[DomainCounts]] = {}
        self._checks: dict[int, list[ExclusionCheck | AttractionCheck | SpreadCheck]] = {}
        self._guards: dict[int, list[SpreadTargetCheck | AttractionTargetCheck]] = {}

    def place(self, pod: int, node: int) -> None:
        """Place a pod on a node."""
        self.pod_node[pod] = node
        self._count(pod, node, 1)

    def evict(self, pod: int) -> None:
        """Remove a pod from its node."""
        self._count(pod, int(self.pod_node[pod]), -1)
        self.pod_node[pod] = -1

    def allows(self, c: int, node: int) -> bool:
        """Return whether kube-scheduler's filters allow one more pod of a class on a node now."""
        return all(rule.allows(node) for rule in self.get_checks(c))

    def get_checks(self, c: int) -> list[ExclusionCheck | AttractionCheck | SpreadCheck]:
        """Return the rules that a pod of the class must obey when it arrives."""
        if c not in self._checks:
            rules = self.rules
            exclusions = [
                ExclusionCheck(i, self._get_counts(rule.topology, others))
                for i, rule, others in rules.excluded.get(c, ())
            ]
            attractions = [self._create_attraction_check(i, rule) for i, rule in rules.attracted.get(c, ())]
            spreads = [self._create_spread_check(i, rule) for i, rule in rules.spread.get(c, ())]
            self._checks[c] = [*exclusions, *attractions, *spreads]
        return self._checks[c]

    def get_target_checks(self, c: int) -> list[SpreadTargetCheck | AttractionTargetCheck]:
        """Return the rules of pods that arrived before, which one more pod of the class may break."""
        if c not in self._guards:
            attractions = [
                AttractionTargetCheck(
                    self._create_attraction_check(i, rule),
                    self._get_arrival_counts(rule.topologies[0], rule.holder, anywhere=True),
                )
                for i, rule in self.rules.attracting.get(c, ())
                if rule.holder != c
            ]
            spreads = [
                SpreadTargetCheck(
                    self._create_spread_check(i, rule), self._get_arrival_counts(rule.topology, rule.holder)
                )
                for i, rule in self.rules.counted.get(c, ())
            ]
            self._guards[c] = [*attractions, *spreads]
        return self._guards[c]

    def get_allowed_nodes(self, c: int) -> BoolArray:
        """Return the nodes where a pod of the class may arrive without breaking a rule of a pod that arrived."""
        allowed = np.ones(self.problem.node_count, dtype=np.bool_)
        for check in self.get_checks(c):
            allowed &= check.get_allowed_nodes()
        for guard in self.get_target_checks(c):
            allowed &= guard.get_allowed_nodes()
        return allowed

    def _create_attraction_check(self, index: int, rule: AttractionRule) -> AttractionCheck:
        return AttractionCheck(
            index, rule, tuple(self._get_counts(topology, rule.targets) for topology in rule.topologies)
        )

    def _create_spread_check(self, index: int, rule: SpreadRule) -> SpreadCheck:
        targets = self._get_counts(rule.topology, rule.targets, rule.eligible)
        return SpreadCheck(index, rule, targets, self._get_row(rule.topology))

    def _get_row(self, topology: int, eligible: BoolArray | None = None) -> NodeDomains:
        key = (topology, b"" if eligible is None else eligible.tobytes())
        if key not in self._domains:
            row = self.problem.rules.topologies[topology]
            self._domains[key] = NodeDomains(row if eligible is None else np.where(eligible, row, -1))
        return self._domains[key]

    def _get_counts(self, topology: int, classes: IntArray, eligible: BoolArray | None = None) -> DomainCounts:
        """Return the counts of some classes over a topology, on eligible nodes (None: on all)."""
        domains = self._get_row(topology, eligible)
        key = (id(domains), classes.tobytes())
        if key not in self._counts:
            counts = self._counts[key] = DomainCounts(domains)
            nodes = self.pod_node[self.rules.get_pods(classes)]
            counts.count(nodes[nodes >= 0])
            for c in classes.tolist():
                self._counts_of_class.setdefault(c, []).append(counts)
        return self._counts[key]

    def _get_arrival_counts(self, topology: int, holder: int, *, anywhere: bool = False) -> DomainCounts:
        """Return the counts by domain of a class's pods that are on a new node; with `anywhere`, all as one."""
        key = ("arrived", -1 if anywhere else topology, holder)
        if key not in self._counts:
            one_domain = np.zeros(self.problem.node_count, dtype=np.int64)
            counts = self._counts[key] = DomainCounts(NodeDomains(one_domain) if anywhere else self._get_row(topology))
            pods = self.rules.get_pods(np.array([holder], dtype=np.int64))
            nodes = self.pod_node[pods]
            counts.count(nodes[(nodes >= 0) & (nodes != self.problem.pod_node[pods])])
            self._arrival_counts_of_class.setdefault(holder, []).append(counts)
        return self._counts[key]

    def _count(self, pod: int, node: int, step: int) -> None:
        c = int(self.problem.pod_class[pod])
        for counts in self._counts_of_class.get(c, ()):
            counts.add(node, step)
        if c in self._arrival_counts_of_class and node != self.problem.pod_node[pod]:
            for counts in self._arrival_counts_of_class[c]:
                counts.add(node, step)

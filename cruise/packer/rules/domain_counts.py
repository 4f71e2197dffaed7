"""How many pods of which classes are in which domains, kept in step, and what the rules between pods make of it.

Every question about rules between pods is answered here: which nodes take one more pod of a class now, as
kube-scheduler's filters would (`filters`), and where one more would break a rule for pods that arrived before
(`guards`). The kernels answer the same from tables of the same counts (`rules/tables.py`).
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from cruise.packer.problem import AttractionRule, BoolArray, ExclusionRule, IntArray, PackingProblem, SpreadRule
from cruise.packer.rules.by_class import RulesByClass


@dataclass(eq=False)
class TopologyRow:
    """The domain of each node in a topology, -1 outside of every one."""

    row: IntArray

    @cached_property
    def get_domain(self) -> list[int]:
        """The same as a list: single entries are read from it faster."""
        nodes: list[int] = self.row.tolist()
        return nodes

    @cached_property
    def count(self) -> int:
        """How many domains there are."""
        return len(np.unique(self.row[self.row >= 0]))

    @cached_property
    def size(self) -> int:
        """One more than the greatest domain."""
        return int(self.row.max(initial=-1)) + 1


@dataclass(slots=True, eq=False)
class DomainCounts:
    """Pods by domain; a domain without any has no entry, and pods outside of every domain count in none."""

    domains: TopologyRow
    by_domain_counts: dict[int, int] = field(default_factory=dict)

    def count(self, nodes: IntArray) -> None:
        """Begin with a pod on each of the nodes."""
        there = self.domains.row[nodes]
        domains, counts = np.unique(there[there >= 0], return_counts=True)
        self.by_domain_counts = dict(zip(domains.tolist(), counts.tolist(), strict=True))

    def add(self, node: int, by: int) -> None:
        """Count a pod that comes to a node (1) or leaves it (-1)."""
        domain = self.domains.get_domain[node]
        if domain >= 0:
            self.by_domain_counts[domain] = self.by_domain_counts.get(domain, 0) + by
            if not self.by_domain_counts[domain]:
                del self.by_domain_counts[domain]

    def get_in_domain(self, domain: int) -> int:
        """How many are in a domain."""
        return self.by_domain_counts.get(domain, 0)

    def get_at_node(self, node: int) -> int:
        """How many are in the domain of a node."""
        return self.by_domain_counts.get(self.domains.get_domain[node], 0)

    def minimum(self) -> int:
        """The fewest in any domain."""
        return min(self.by_domain_counts.values(), default=0) if len(self.by_domain_counts) == self.domains.count else 0

    def get_by_domain(self, size: int) -> IntArray:
        """How many are in each of so many domains; one entry more stays 0, for nodes outside of every domain."""
        found = np.zeros(size + 1, dtype=np.int64)
        found[list(self.by_domain_counts)] = list(self.by_domain_counts.values())
        return found

    def get_per_node(self) -> IntArray:
        """How many are in the domain of each node."""
        return self.get_by_domain(self.domains.size)[self.domains.row]


@dataclass(frozen=True, slots=True, eq=False)
class ExclusionCheck:
    """An exclusion seen from one class: none of the others is in the domain where a pod of it arrives."""

    index: int
    rule: ExclusionRule
    others: DomainCounts

    def allows(self, node: int) -> bool:
        """Whether one more pod may arrive on a node."""
        return self.others.get_at_node(node) == 0

    def get_allowed_nodes(self) -> BoolArray:
        """The nodes where one more pod may arrive."""
        return np.asarray(self.others.get_per_node() == 0, dtype=np.bool_)


@dataclass(frozen=True, slots=True, eq=False)
class AttractionCheck:
    """An attraction: each topology has a target in the domain, or the pod is the first of its targets in any of them.

    Only a target can be the first, on a node that has every label, while no other target is in a domain of any of the
    topologies.
    """

    index: int
    rule: AttractionRule
    targets: tuple[DomainCounts, ...]

    @property
    def allows_first_pod(self) -> bool:
        """Whether the next holder would be the first."""
        return self.rule.allows_first_pod and not any(tally.by_domain_counts for tally in self.targets)

    def allows(self, node: int) -> bool:
        """Whether one more pod may arrive on a node."""
        if self.allows_first_pod:
            return all(tally.domains.get_domain[node] >= 0 for tally in self.targets)
        return self.supports(node)

    def supports(self, node: int) -> bool:
        """Whether there are targets around a node."""
        return all(tally.get_at_node(node) > 0 for tally in self.targets)

    def get_allowed_nodes(self) -> BoolArray:
        """The nodes where one more pod may arrive."""
        if self.allows_first_pod:
            return np.asarray(np.all([tally.domains.row >= 0 for tally in self.targets], axis=0), dtype=np.bool_)
        return self.get_supported_nodes()

    def get_supported_nodes(self) -> BoolArray:
        """The nodes with targets around them."""
        return np.asarray(np.all([tally.get_per_node() > 0 for tally in self.targets], axis=0), dtype=np.bool_)


@dataclass(frozen=True, slots=True, eq=False)
class SpreadCheck:
    """A spread, for its holder: with one more its domain has at most the skew more than the least.

    `everywhere` are the topology's domains; `targets` are counted on eligible nodes alone.
    """

    index: int
    rule: SpreadRule
    targets: DomainCounts
    all_domains: TopologyRow

    @property
    def minimum(self) -> int:
        """The fewest targets in an eligible domain."""
        return self.targets.minimum() if self.targets.domains.count >= self.rule.min_domains else 0

    @property
    def maximum(self) -> int:
        """How many targets a domain may have before one more holder arrives."""
        return self.rule.max_skew + self.minimum - int(self.rule.counts_itself)

    def allows(self, node: int) -> bool:
        """Whether one more pod may arrive on a node."""
        domain = self.all_domains.get_domain[node]
        return domain >= 0 and self.targets.get_in_domain(domain) <= self.maximum

    def get_allowed_nodes(self) -> BoolArray:
        """The nodes where one more pod may arrive."""
        row = self.all_domains.row
        return np.asarray(
            (row >= 0) & (self.targets.get_by_domain(self.all_domains.size)[row] <= self.maximum), dtype=np.bool_
        )


@dataclass(frozen=True, slots=True, eq=False)
class SpreadGuard:
    """A spread, for a target that does not hold it: one more is not too many beside holders that arrived."""

    spread: SpreadCheck
    arrived: DomainCounts

    def get_allowed_nodes(self) -> BoolArray:
        """The nodes where one more pod leaves the spread as it should be."""
        spread = self.spread
        level = spread.targets.get_by_domain(spread.all_domains.size)[spread.all_domains.row]
        watched = (self.arrived.get_per_node() > 0) & spread.rule.eligible
        return np.asarray(~watched | (level + 1 - spread.minimum <= spread.rule.max_skew), dtype=np.bool_)


@dataclass(frozen=True, slots=True, eq=False)
class AttractionGuard:
    """An attraction, for a target: once a holder has arrived, a target comes only where others are.

    Else a holder that was the first would in the end be kept away by one elsewhere.
    """

    company: AttractionCheck
    arrived: DomainCounts

    def get_allowed_nodes(self) -> BoolArray:
        """The nodes where one more pod leaves the first one its place."""
        if not self.arrived.by_domain_counts:
            return np.ones(len(self.company.targets[0].domains.row), dtype=np.bool_)
        return self.company.get_supported_nodes()


class RuleCounts:
    """Where the pods of a problem are, counted as far as questions about them were answered."""

    def __init__(self, problem: PackingProblem, rules: RulesByClass, pod_node: IntArray) -> None:
        self.problem, self.rules = problem, rules
        self.pod_node = pod_node.copy()
        self._domains: dict[Hashable, TopologyRow] = {}
        self._tallies: dict[Hashable, DomainCounts] = {}
        self._counting: dict[int, list[DomainCounts]] = {}
        self._counting_arrivals: dict[int, list[DomainCounts]] = {}
        self._filters: dict[int, list[ExclusionCheck | AttractionCheck | SpreadCheck]] = {}
        self._guards: dict[int, list[SpreadGuard | AttractionGuard]] = {}

    def place(self, pod: int, node: int) -> None:
        """A pod comes to a node."""
        self.pod_node[pod] = node
        self._count(pod, node, 1)

    def evict(self, pod: int) -> None:
        """A pod leaves its node."""
        self._count(pod, int(self.pod_node[pod]), -1)
        self.pod_node[pod] = -1

    def allows(self, c: int, node: int) -> bool:
        """Whether kube-scheduler's filters let one more pod of a class arrive on a node now."""
        return all(rule.allows(node) for rule in self.get_checks(c))

    def get_checks(self, c: int) -> list[ExclusionCheck | AttractionCheck | SpreadCheck]:
        """The rules that a pod of the class is held to when it arrives."""
        if c not in self._filters:
            rules = self.rules
            apart = [
                ExclusionCheck(i, rule, self._tally(rule.topology, others))
                for i, rule, others in rules.excluded.get(c, ())
            ]
            company = [self._company(i, rule) for i, rule in rules.attracted.get(c, ())]
            even = [self._even(i, rule) for i, rule in rules.spread.get(c, ())]
            self._filters[c] = [*apart, *company, *even]
        return self._filters[c]

    def get_guards(self, c: int) -> list[SpreadGuard | AttractionGuard]:
        """The rules that pods which arrived are held to in the end, and that one more pod of the class may break."""
        if c not in self._guards:
            first = [
                AttractionGuard(self._company(i, rule), self._arrived(rule.topologies[0], rule.holder, anywhere=True))
                for i, rule in self.rules.attracting.get(c, ())
                if rule.holder != c
            ]
            even = [
                SpreadGuard(self._even(i, rule), self._arrived(rule.topology, rule.holder))
                for i, rule in self.rules.counted.get(c, ())
            ]
            self._guards[c] = [*first, *even]
        return self._guards[c]

    def get_allowed_nodes(self, c: int) -> BoolArray:
        """The nodes where a pod of the class may arrive, and no pod that arrived breaks a rule by it."""
        found = np.ones(self.problem.node_count, dtype=np.bool_)
        for filtering in self.get_checks(c):
            found &= filtering.get_allowed_nodes()
        for guarding in self.get_guards(c):
            found &= guarding.get_allowed_nodes()
        return found

    def _company(self, index: int, rule: AttractionRule) -> AttractionCheck:
        return AttractionCheck(index, rule, tuple(self._tally(topology, rule.targets) for topology in rule.topologies))

    def _even(self, index: int, rule: SpreadRule) -> SpreadCheck:
        targets = self._tally(rule.topology, rule.targets, rule.eligible)
        return SpreadCheck(index, rule, targets, self._domains_of(rule.topology))

    def _domains_of(self, topology: int, eligible: BoolArray | None = None) -> TopologyRow:
        key = (topology, b"" if eligible is None else eligible.tobytes())
        if key not in self._domains:
            row = self.problem.rules.topologies[topology]
            self._domains[key] = TopologyRow(row if eligible is None else np.where(eligible, row, -1))
        return self._domains[key]

    def _tally(self, topology: int, classes: IntArray, eligible: BoolArray | None = None) -> DomainCounts:
        """The count of some classes over a topology, on eligible nodes (None: on all)."""
        domains = self._domains_of(topology, eligible)
        key = (id(domains), classes.tobytes())
        if key not in self._tallies:
            tally = self._tallies[key] = DomainCounts(domains)
            nodes = self.pod_node[self.rules.get_pods(classes)]
            tally.count(nodes[nodes >= 0])
            for c in classes.tolist():
                self._counting.setdefault(c, []).append(tally)
        return self._tallies[key]

    def _arrived(self, topology: int, holder: int, *, anywhere: bool = False) -> DomainCounts:
        """The count of pods of a class that are not where they ran, by domain, or `anywhere` all as one."""
        key = ("arrived", -1 if anywhere else topology, holder)
        if key not in self._tallies:
            whole = np.zeros(self.problem.node_count, dtype=np.int64)
            tally = self._tallies[key] = DomainCounts(TopologyRow(whole) if anywhere else self._domains_of(topology))
            pods = self.rules.get_pods(np.array([holder], dtype=np.int64))
            nodes = self.pod_node[pods]
            tally.count(nodes[(nodes >= 0) & (nodes != self.problem.pod_node[pods])])
            self._counting_arrivals.setdefault(holder, []).append(tally)
        return self._tallies[key]

    def _count(self, pod: int, node: int, by: int) -> None:
        c = int(self.problem.pod_class[pod])
        for tally in self._counting.get(c, ()):
            tally.add(node, by)
        if c in self._counting_arrivals and node != self.problem.pod_node[pod]:
            for tally in self._counting_arrivals[c]:
                tally.add(node, by)

"""How many pods of which classes are in which domains, kept in step, and what the rules between pods make of it.

Every question about rules between pods is answered here: which nodes take one more pod of a class now, as
kube-scheduler's filters would (`filters`), and where one more would break a rule for pods that arrived before
(`guards`). The kernels answer the same from tables of the same counts (`rules/tables.py`).
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from cruise.packer.arrays import BoolArray, IntArray
from cruise.packer.problem import Attraction, Exclusion, Problem, Spread
from cruise.packer.rules.by_class import RulesByClass


@dataclass(eq=False)
class Domains:
    """The domain of each node in a topology, -1 outside of every one."""

    row: IntArray

    @cached_property
    def of_node(self) -> list[int]:
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
class Tally:
    """Pods by domain; a domain without any has no entry, and pods outside of every domain count in none."""

    domains: Domains
    here: dict[int, int] = field(default_factory=dict)

    def count(self, nodes: IntArray) -> None:
        """Begin with a pod on each of the nodes."""
        there = self.domains.row[nodes]
        domains, counts = np.unique(there[there >= 0], return_counts=True)
        self.here = dict(zip(domains.tolist(), counts.tolist(), strict=True))

    def add(self, node: int, by: int) -> None:
        """Count a pod that comes to a node (1) or leaves it (-1)."""
        domain = self.domains.of_node[node]
        if domain >= 0:
            self.here[domain] = self.here.get(domain, 0) + by
            if not self.here[domain]:
                del self.here[domain]

    def in_domain(self, domain: int) -> int:
        """How many are in a domain."""
        return self.here.get(domain, 0)

    def at(self, node: int) -> int:
        """How many are in the domain of a node."""
        return self.here.get(self.domains.of_node[node], 0)

    def least(self) -> int:
        """The fewest in any domain."""
        return min(self.here.values(), default=0) if len(self.here) == self.domains.count else 0

    def by_domain(self, size: int) -> IntArray:
        """How many are in each of so many domains; one entry more stays 0, for nodes outside of every domain."""
        found = np.zeros(size + 1, dtype=np.int64)
        found[list(self.here)] = list(self.here.values())
        return found

    def per_node(self) -> IntArray:
        """How many are in the domain of each node."""
        return self.by_domain(self.domains.size)[self.domains.row]


@dataclass(frozen=True, slots=True, eq=False)
class Apart:
    """An exclusion seen from one class: none of the others is in the domain where a pod of it arrives."""

    index: int
    rule: Exclusion
    others: Tally

    def opens(self, node: int) -> bool:
        """Whether one more pod may arrive on a node."""
        return self.others.at(node) == 0

    def open_nodes(self) -> BoolArray:
        """The nodes where one more pod may arrive."""
        return np.asarray(self.others.per_node() == 0, dtype=np.bool_)


@dataclass(frozen=True, slots=True, eq=False)
class Company:
    """An attraction: each topology has a target in the domain, or the pod is the first of its targets in any of them.

    Only a target can be the first, on a node that has every label, while no other target is in a domain of any of the
    topologies.
    """

    index: int
    rule: Attraction
    targets: tuple[Tally, ...]

    @property
    def may_be_first(self) -> bool:
        """Whether the next holder would be the first."""
        return self.rule.may_be_first and not any(tally.here for tally in self.targets)

    def opens(self, node: int) -> bool:
        """Whether one more pod may arrive on a node."""
        if self.may_be_first:
            return all(tally.domains.of_node[node] >= 0 for tally in self.targets)
        return self.supports(node)

    def supports(self, node: int) -> bool:
        """Whether there are targets around a node."""
        return all(tally.at(node) > 0 for tally in self.targets)

    def open_nodes(self) -> BoolArray:
        """The nodes where one more pod may arrive."""
        if self.may_be_first:
            return np.asarray(np.all([tally.domains.row >= 0 for tally in self.targets], axis=0), dtype=np.bool_)
        return self.supported_nodes()

    def supported_nodes(self) -> BoolArray:
        """The nodes with targets around them."""
        return np.asarray(np.all([tally.per_node() > 0 for tally in self.targets], axis=0), dtype=np.bool_)


@dataclass(frozen=True, slots=True, eq=False)
class Even:
    """A spread, for its holder: with one more its domain has at most the skew more than the least.

    `everywhere` are the topology's domains; `targets` are counted on eligible nodes alone.
    """

    index: int
    rule: Spread
    targets: Tally
    everywhere: Domains

    @property
    def least(self) -> int:
        """The fewest targets in an eligible domain."""
        return self.targets.least() if self.targets.domains.count >= self.rule.min_domains else 0

    @property
    def most(self) -> int:
        """How many targets a domain may have before one more holder arrives."""
        return self.rule.max_skew + self.least - int(self.rule.counts_itself)

    def opens(self, node: int) -> bool:
        """Whether one more pod may arrive on a node."""
        domain = self.everywhere.of_node[node]
        return domain >= 0 and self.targets.in_domain(domain) <= self.most

    def open_nodes(self) -> BoolArray:
        """The nodes where one more pod may arrive."""
        row = self.everywhere.row
        return np.asarray((row >= 0) & (self.targets.by_domain(self.everywhere.size)[row] <= self.most), dtype=np.bool_)


@dataclass(frozen=True, slots=True, eq=False)
class StaysEven:
    """A spread, for a target that does not hold it: one more is not too many beside holders that arrived."""

    spread: Even
    arrived: Tally

    def open_nodes(self) -> BoolArray:
        """The nodes where one more pod leaves the spread as it should be."""
        spread = self.spread
        level = spread.targets.by_domain(spread.everywhere.size)[spread.everywhere.row]
        watched = (self.arrived.per_node() > 0) & spread.rule.eligible
        return np.asarray(~watched | (level + 1 - spread.least <= spread.rule.max_skew), dtype=np.bool_)


@dataclass(frozen=True, slots=True, eq=False)
class StaysFirst:
    """An attraction, for a target: once a holder has arrived, a target comes only where others are.

    Else a holder that was the first would in the end be kept away by one elsewhere.
    """

    company: Company
    arrived: Tally

    def open_nodes(self) -> BoolArray:
        """The nodes where one more pod leaves the first one its place."""
        if not self.arrived.here:
            return np.ones(len(self.company.targets[0].domains.row), dtype=np.bool_)
        return self.company.supported_nodes()


class Counts:
    """Where the pods of a problem are, counted as far as questions about them were answered."""

    def __init__(self, problem: Problem, rules: RulesByClass, pod_node: IntArray) -> None:
        self.problem, self.rules = problem, rules
        self.pod_node = pod_node.copy()
        self._domains: dict[Hashable, Domains] = {}
        self._tallies: dict[Hashable, Tally] = {}
        self._counting: dict[int, list[Tally]] = {}
        self._counting_arrivals: dict[int, list[Tally]] = {}
        self._filters: dict[int, list[Apart | Company | Even]] = {}
        self._guards: dict[int, list[StaysEven | StaysFirst]] = {}

    def arrive(self, pod: int, node: int) -> None:
        """A pod comes to a node."""
        self.pod_node[pod] = node
        self._count(pod, node, 1)

    def leave(self, pod: int) -> None:
        """A pod leaves its node."""
        self._count(pod, int(self.pod_node[pod]), -1)
        self.pod_node[pod] = -1

    def opens(self, c: int, node: int) -> bool:
        """Whether kube-scheduler's filters let one more pod of a class arrive on a node now."""
        return all(rule.opens(node) for rule in self.filters(c))

    def filters(self, c: int) -> list[Apart | Company | Even]:
        """The rules that a pod of the class is held to when it arrives."""
        if c not in self._filters:
            rules = self.rules
            apart = [
                Apart(i, rule, self._tally(rule.topology, others)) for i, rule, others in rules.excluded.get(c, ())
            ]
            company = [self._company(i, rule) for i, rule in rules.attracted.get(c, ())]
            even = [self._even(i, rule) for i, rule in rules.spread.get(c, ())]
            self._filters[c] = [*apart, *company, *even]
        return self._filters[c]

    def guards(self, c: int) -> list[StaysEven | StaysFirst]:
        """The rules that pods which arrived are held to in the end, and that one more pod of the class may break."""
        if c not in self._guards:
            first = [
                StaysFirst(self._company(i, rule), self._arrived(rule.topologies[0], rule.holder, anywhere=True))
                for i, rule in self.rules.attracting.get(c, ())
                if rule.holder != c
            ]
            even = [
                StaysEven(self._even(i, rule), self._arrived(rule.topology, rule.holder))
                for i, rule in self.rules.counted.get(c, ())
            ]
            self._guards[c] = [*first, *even]
        return self._guards[c]

    def allowed_nodes(self, c: int) -> BoolArray:
        """The nodes where a pod of the class may arrive, and no pod that arrived breaks a rule by it."""
        found = np.ones(self.problem.node_count, dtype=np.bool_)
        for filtering in self.filters(c):
            found &= filtering.open_nodes()
        for guarding in self.guards(c):
            found &= guarding.open_nodes()
        return found

    def _company(self, index: int, rule: Attraction) -> Company:
        return Company(index, rule, tuple(self._tally(topology, rule.targets) for topology in rule.topologies))

    def _even(self, index: int, rule: Spread) -> Even:
        targets = self._tally(rule.topology, rule.targets, rule.eligible)
        return Even(index, rule, targets, self._domains_of(rule.topology))

    def _domains_of(self, topology: int, eligible: BoolArray | None = None) -> Domains:
        key = (topology, b"" if eligible is None else eligible.tobytes())
        if key not in self._domains:
            row = self.problem.rules.topologies[topology]
            self._domains[key] = Domains(row if eligible is None else np.where(eligible, row, -1))
        return self._domains[key]

    def _tally(self, topology: int, classes: IntArray, eligible: BoolArray | None = None) -> Tally:
        """The count of some classes over a topology, on eligible nodes (None: on all)."""
        domains = self._domains_of(topology, eligible)
        key = (id(domains), classes.tobytes())
        if key not in self._tallies:
            tally = self._tallies[key] = Tally(domains)
            nodes = self.pod_node[self.rules.pods_of(classes)]
            tally.count(nodes[nodes >= 0])
            for c in classes.tolist():
                self._counting.setdefault(c, []).append(tally)
        return self._tallies[key]

    def _arrived(self, topology: int, holder: int, *, anywhere: bool = False) -> Tally:
        """The count of pods of a class that are not where they ran, by domain, or `anywhere` all as one."""
        key = ("arrived", -1 if anywhere else topology, holder)
        if key not in self._tallies:
            whole = np.zeros(self.problem.node_count, dtype=np.int64)
            tally = self._tallies[key] = Tally(Domains(whole) if anywhere else self._domains_of(topology))
            pods = self.rules.pods_of(np.array([holder], dtype=np.int64))
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

"""What pods require of each other, kind by kind: the kinds that hold a term, and those that it selects."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from cruise.decisions.packing.node_masks import CLUSTER, NODE, NodeMasks, PlacementObstacle
from cruise.decisions.packing.pod_groups import PodGroup, PodGroups
from cruise.domain.cluster import Node, PodDisruptionBudget, WorkloadRef
from cruise.domain.packing_plan import EvictionAllowance
from cruise.domain.reasons import ReasonDetail
from cruise.domain.resources import UNBOUNDED, BoolArray, Int64Array
from cruise.domain.scheduling import (
    HostPort,
    LabelSelector,
    PodAffinityTerm,
    StorageAndNamespaces,
    TopologySpreadConstraint,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PodRule:
    """A rule between kinds: those that hold it, and those that it is about."""

    holders: frozenset[int]
    targets: frozenset[int]


@dataclass(frozen=True, slots=True)
class AntiAffinityRule(PodRule):
    """One term of anti-affinity, one host port's kind, or a volume for one pod."""

    topology: str
    obstacle: PlacementObstacle


@dataclass(frozen=True, slots=True)
class AffinityRule(PodRule):
    """Required affinity: all terms mean the same targets at once."""

    topologies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopologySpreadRule(PodRule):
    """A spread constraint, for which the `eligible` nodes make up the domains."""

    constraint: TopologySpreadConstraint
    eligible: BoolArray


@dataclass(slots=True)
class PodRules:
    """Every rule between kinds that can bind, each with the kinds it is about."""

    anti_affinity: list[AntiAffinityRule] = field(default_factory=list)
    affinity: list[AffinityRule] = field(default_factory=list)
    topology_spread: list[TopologySpreadRule] = field(default_factory=list)


def find_pod_rules(census: PodGroups, columns: NodeMasks, surroundings: StorageAndNamespaces) -> PodRules:
    """Find the rules between kinds; what concerns no kind that arrives is left out."""
    finder = _PodRuleFinder(census, columns, surroundings)
    marks = PodRules()
    marks.anti_affinity = [*finder.anti_affinity(), *finder.host_ports(), *finder.exclusive_volumes()]
    marks.affinity = [*finder.affinity(), *finder.shared_volumes()]
    marks.topology_spread = finder.spreads()
    return marks


class _PodRuleFinder:
    def __init__(self, census: PodGroups, columns: NodeMasks, surroundings: StorageAndNamespaces) -> None:
        self._census = census
        self._columns = columns
        self._kinds: Sequence[PodGroup] = census.groups
        self._surroundings = surroundings
        self._meant: dict[PodAffinityTerm, frozenset[int]] = {}
        self._arriving = frozenset(number for number, kind in enumerate(census.groups) if kind.may_arrive)

    def anti_affinity(self) -> list[AntiAffinityRule]:
        """Find what required anti-affinity keeps apart."""
        holders = self._kinds_by(lambda kind: kind.pod.constraints.anti_affinity)
        found = []
        for term, held_by in holders.items():
            apart = PlacementObstacle.ANTI_AFFINITY
            found += self._repulsion(term.topology_key, apart, frozenset(held_by), self._meant_by(term))
        return found

    def host_ports(self) -> list[AntiAffinityRule]:
        """Find which kinds ask for the same port of a node."""
        holders = self._kinds_by(lambda kind: kind.pod.constraints.host_ports)
        by_number: dict[tuple[str, int], list[HostPort]] = {}
        for port in holders:
            by_number.setdefault((port.protocol, port.port), []).append(port)
        found = []
        for _, ports in sorted(by_number.items()):
            for at, port in enumerate(ports):
                others = [number for other in ports[at:] if port.collides_with(other) for number in holders[other]]
                found += self._repulsion(
                    NODE, PlacementObstacle.HOST_PORTS, frozenset(holders[port]), frozenset(others)
                )
        return found

    def exclusive_volumes(self) -> list[AntiAffinityRule]:
        """Find the claims that no second pod may use, where there is a second one."""
        users = self._kinds_by(lambda kind: kind.requests.exclusive)
        found = []
        for _, kinds in sorted(users.items()):
            if sum(self._kinds[number].count for number in kinds) > 1:
                found += self._repulsion(CLUSTER, PlacementObstacle.VOLUME, frozenset(kinds), frozenset(kinds))
        return found

    def affinity(self) -> list[AffinityRule]:
        """Find where required affinity sends the kinds that arrive."""
        holders = self._kinds_by(lambda kind: [kind.pod.constraints.affinity] if kind.may_arrive else [])
        return [
            AffinityRule(
                frozenset(held_by),
                frozenset.intersection(*(self._meant_by(term) for term in terms)),
                tuple(dict.fromkeys(term.topology_key for term in terms)),
            )
            for terms, held_by in holders.items()
            if terms
        ]

    def shared_volumes(self) -> list[AffinityRule]:
        """Find the pending pods that have to share a node, since the volume that they share is on one at a time."""
        users = self._kinds_by(lambda kind: kind.requests.shared)
        return [
            AffinityRule(frozenset(kinds), frozenset(kinds), (NODE,))
            for _, kinds in sorted(users.items())
            # Where one runs already, the others may come to its node alone.
            if sum(self._kinds[number].count for number in kinds) > 1 and all(self._kinds[n].pending for n in kinds)
        ]

    def spreads(self) -> list[TopologySpreadRule]:
        """Find how the kinds that arrive are to be spread; pods on their way out do not count."""
        holders: dict[tuple[str, TopologySpreadConstraint, bytes], list[int]] = {}
        masks: dict[bytes, BoolArray] = {}
        for number in sorted(self._arriving):
            pod = self._kinds[number].pod
            for constraint in dict.fromkeys(pod.constraints.spread):
                mask = self._columns.get_eligible_nodes(pod.placement, constraint, pod.constraints.spread)
                key = mask.tobytes()
                masks.setdefault(key, mask)
                holders.setdefault((pod.namespace, constraint, key), []).append(number)
        found = []
        for (namespace, constraint, key), held_by in holders.items():
            targets = self._counted(namespace, constraint.selector)
            if targets:
                found.append(TopologySpreadRule(frozenset(held_by), targets, constraint, masks[key]))
        return found

    def _kinds_by(self, of: Callable[[PodGroup], Iterable[T]]) -> dict[T, list[int]]:
        """Return for each thing that kinds have the kinds that have it."""
        found: dict[T, list[int]] = {}
        for number, kind in enumerate(self._kinds):
            for one in dict.fromkeys(of(kind)):
                found.setdefault(one, []).append(number)
        return found

    def _repulsion(
        self, topology: str, obstacle: PlacementObstacle, holders: frozenset[int], targets: frozenset[int]
    ) -> list[AntiAffinityRule]:
        """Keep of a rule what may keep an arriving kind away."""
        if not holders & self._arriving:
            targets &= self._arriving
        if not targets & self._arriving:
            holders &= self._arriving
        return [AntiAffinityRule(holders, targets, topology, obstacle)] if holders and targets else []

    def _meant_by(self, term: PodAffinityTerm) -> frozenset[int]:
        found = self._meant.get(term)
        if found is None:
            labels = self._census.labels
            groups: Iterable[int] = () if term.selector is None else labels.find_selected(term.selector)
            meant = [
                group for group in groups if self._surroundings.find_matching_namespaces(term, *labels.groups[group])
            ]
            found = frozenset(number for group in meant for number in self._census.groups_by_label[group])
            self._meant[term] = found
        return found

    def _counted(self, namespace: str, selector: LabelSelector | None) -> frozenset[int]:
        if selector is None:
            return frozenset()
        return frozenset(
            number
            for group in self._census.labels.find_selected(selector, namespace)
            for number in self._census.groups_by_label[group]
            if not self._kinds[number].pod.terminating
        )


# Which eviction limits a plan has to mind: those that can bind at all.

_SPENT = {
    PlacementObstacle.DISRUPTION_BUDGET: ReasonDetail.BUDGET_EXHAUSTED,
    PlacementObstacle.EVICTION_LIMIT: ReasonDetail.EVICTIONS_SPENT,
}


@dataclass(frozen=True, slots=True)
class GroupEvictionLimit:
    """At most `allowed` running pods of some kinds are evicted."""

    name: str
    obstacle: PlacementObstacle
    kinds: frozenset[int]
    allowed: int


def apply_eviction_limits(
    census: PodGroups, budgets: Sequence[PodDisruptionBudget], allowance: EvictionAllowance, *, one_by_one: bool = False
) -> list[GroupEvictionLimit]:
    """Make pods under a limit of nothing stay and those under a PDB weigh more; return the limits that may bind.

    `one_by_one`: evictions wait for each other, so that a PDB that allows one allows any number.
    """
    limits: list[GroupEvictionLimit] = []
    for budget in sorted(budgets, key=lambda one: (one.namespace, one.name)):
        groups = census.labels.find_selected(budget.selector, budget.namespace)
        covered = [number for group in groups for number in census.groups_by_label[group]]
        for number in covered:
            census.groups[number].disruption_budgets = True
        if one_by_one and budget.disruptions_allowed > 0:
            continue
        limit = GroupEvictionLimit(
            budget.title, PlacementObstacle.DISRUPTION_BUDGET, frozenset(covered), budget.disruptions_allowed
        )
        limits += _limit(census.groups, limit)
    for name, members, allowed in _allowances(census.groups, allowance):
        limits += _limit(
            census.groups, GroupEvictionLimit(name, PlacementObstacle.EVICTION_LIMIT, frozenset(members), allowed)
        )
    # What stays by a later limit may have freed an earlier one.
    return [limit for limit in limits if limit.allowed < _evictable(census.groups, limit.kinds)]


def _limit(kinds: Sequence[PodGroup], limit: GroupEvictionLimit) -> list[GroupEvictionLimit]:
    if limit.allowed > 0:
        return [limit]
    for number in limit.kinds:
        if not kinds[number].pending and kinds[number].immovable_reason is None:
            kinds[number].immovable_reason = _SPENT[limit.obstacle].create(limit.name)
    return []


def _allowances(kinds: Sequence[PodGroup], allowance: EvictionAllowance) -> Iterator[tuple[str, list[int], int]]:
    if allowance.total is not None:
        yield "evictions left in this hour", list(range(len(kinds))), allowance.total
    if allowance.per_workload is None and not allowance.by_workload:
        return
    of_workload: dict[tuple[str, WorkloadRef], list[int]] = {}
    for number, kind in enumerate(kinds):
        ref = kind.pod.workload
        if ref is not None:
            of_workload.setdefault((kind.pod.namespace, ref), []).append(number)
    for (namespace, ref), members in sorted(of_workload.items()):
        allowed = allowance.get_for_workload(namespace, ref)
        if allowed is not None:
            yield f"evictions left of {ref.kind} {namespace}/{ref.name}", members, allowed


def get_max_evictions_by_node(allowance: EvictionAllowance, nodes: Sequence[Node]) -> Int64Array | None:
    """Return how many pods of each node may be evicted, None where any number may."""
    if allowance.per_node is None and not allowance.by_node:
        return None
    allowed = [allowance.get_for_node(node.name) for node in nodes]
    return np.array([UNBOUNDED if most is None else most for most in allowed], dtype=np.int64)


def _evictable(kinds: Sequence[PodGroup], members: frozenset[int]) -> int:
    return sum(kinds[number].running for number in members if kinds[number].immovable_reason is None)

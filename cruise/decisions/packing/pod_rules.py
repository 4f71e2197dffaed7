"""Finds the rules between groups of pods: affinity, anti-affinity, topology spread, ports, volumes, evictions."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from cruise.decisions.packing.node_masks import CLUSTER, NODE, NodeMasks, PlacementObstacle
from cruise.decisions.packing.pod_groups import PodGroup, PodGroups
from cruise.domain.arrays import UNBOUNDED, BoolArray, Int64Array
from cruise.domain.cluster import Node, PodDisruptionBudget, WorkloadRef
from cruise.domain.packing_plan import EvictionAllowance
from cruise.domain.reasons import ReasonDetailCode
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
    """A rule between groups: `holders` have it, and it counts or excludes pods of `targets`."""

    holders: frozenset[int]
    targets: frozenset[int]


@dataclass(frozen=True, slots=True)
class AntiAffinityRule(PodRule):
    """A term of anti-affinity, a host port, or a volume that only one pod may use."""

    topology: str
    obstacle: PlacementObstacle


@dataclass(frozen=True, slots=True)
class AffinityRule(PodRule):
    """Required pod affinity; a target must match all terms."""

    topologies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopologySpreadRule(PodRule):
    """A topology spread constraint whose domains are those of the `eligible` nodes."""

    constraint: TopologySpreadConstraint
    eligible: BoolArray


@dataclass(slots=True)
class PodRules:
    """All rules between groups that can affect a plan."""

    anti_affinity: list[AntiAffinityRule] = field(default_factory=list)
    affinity: list[AffinityRule] = field(default_factory=list)
    topology_spread: list[TopologySpreadRule] = field(default_factory=list)


def find_pod_rules(
    pod_groups: PodGroups, node_masks: NodeMasks, storage_and_namespaces: StorageAndNamespaces
) -> PodRules:
    """Find the rules between groups, without those that concern no group that may arrive."""
    finder = _PodRuleFinder(pod_groups, node_masks, storage_and_namespaces)
    rules = PodRules()
    rules.anti_affinity = [*finder.find_anti_affinity(), *finder.find_host_ports(), *finder.find_exclusive_volumes()]
    rules.affinity = [*finder.find_affinity(), *finder.find_shared_volumes()]
    rules.topology_spread = finder.find_topology_spread()
    return rules


class _PodRuleFinder:
    def __init__(
        self, pod_groups: PodGroups, node_masks: NodeMasks, storage_and_namespaces: StorageAndNamespaces
    ) -> None:
        self._pod_groups = pod_groups
        self._node_masks = node_masks
        self._groups: Sequence[PodGroup] = pod_groups.groups
        self._storage_and_namespaces = storage_and_namespaces
        self._targets_of_term: dict[PodAffinityTerm, frozenset[int]] = {}
        self._arriving = frozenset(number for number, group in enumerate(pod_groups.groups) if group.may_arrive)

    def find_anti_affinity(self) -> list[AntiAffinityRule]:
        """Find the groups that required anti-affinity separates."""
        holders = self._find_holders(lambda group: group.pod.constraints.anti_affinity)
        found = []
        for term, group_numbers in holders.items():
            obstacle = PlacementObstacle.ANTI_AFFINITY
            found += self._build_anti_affinity(
                term.topology_key, obstacle, frozenset(group_numbers), self._find_targets(term)
            )
        return found

    def find_host_ports(self) -> list[AntiAffinityRule]:
        """Find the groups that need the same port of a node."""
        holders = self._find_holders(lambda group: group.pod.constraints.host_ports)
        ports_by_number: dict[tuple[str, int], list[HostPort]] = {}
        for port in holders:
            ports_by_number.setdefault((port.protocol, port.port), []).append(port)
        found = []
        for _, ports in sorted(ports_by_number.items()):
            for first, port in enumerate(ports):
                colliding = [
                    number for other in ports[first:] if port.collides_with(other) for number in holders[other]
                ]
                found += self._build_anti_affinity(
                    NODE, PlacementObstacle.HOST_PORTS, frozenset(holders[port]), frozenset(colliding)
                )
        return found

    def find_exclusive_volumes(self) -> list[AntiAffinityRule]:
        """Find the claims that only one pod may use and that several pods need."""
        users = self._find_holders(lambda group: group.volumes.exclusive)
        found = []
        for _, numbers in sorted(users.items()):
            if sum(self._groups[number].count for number in numbers) > 1:
                found += self._build_anti_affinity(
                    CLUSTER, PlacementObstacle.VOLUME, frozenset(numbers), frozenset(numbers)
                )
        return found

    def find_affinity(self) -> list[AffinityRule]:
        """Find the required affinity of groups that may arrive."""
        holders = self._find_holders(lambda group: [group.pod.constraints.affinity] if group.may_arrive else [])
        return [
            AffinityRule(
                frozenset(numbers),
                frozenset.intersection(*(self._find_targets(term) for term in terms)),
                tuple(dict.fromkeys(term.topology_key for term in terms)),
            )
            for terms, numbers in holders.items()
            if terms
        ]

    def find_shared_volumes(self) -> list[AffinityRule]:
        """Find pending pods that must share a node because they share a single-node volume."""
        users = self._find_holders(lambda group: group.volumes.shared)
        return [
            AffinityRule(frozenset(numbers), frozenset(numbers), (NODE,))
            for _, numbers in sorted(users.items())
            # If one of them runs, a node mask already restricts the others to its node.
            if sum(self._groups[number].count for number in numbers) > 1
            and all(self._groups[n].pending for n in numbers)
        ]

    def find_topology_spread(self) -> list[TopologySpreadRule]:
        """Find the topology spread of groups that may arrive; terminating pods do not count."""
        holders: dict[tuple[str, TopologySpreadConstraint, bytes], list[int]] = {}
        masks: dict[bytes, BoolArray] = {}
        for number in sorted(self._arriving):
            pod = self._groups[number].pod
            for constraint in dict.fromkeys(pod.constraints.spread):
                mask = self._node_masks.get_eligible_nodes(pod.placement, constraint, pod.constraints.spread)
                key = mask.tobytes()
                masks.setdefault(key, mask)
                holders.setdefault((pod.namespace, constraint, key), []).append(number)
        found = []
        for (namespace, constraint, key), numbers in holders.items():
            targets = self._find_counted(namespace, constraint.selector)
            if targets:
                found.append(TopologySpreadRule(frozenset(numbers), targets, constraint, masks[key]))
        return found

    def _find_holders(self, get_values: Callable[[PodGroup], Iterable[T]]) -> dict[T, list[int]]:
        """Return the groups that have each value that `get_values` returns."""
        found: dict[T, list[int]] = {}
        for number, group in enumerate(self._groups):
            for value in dict.fromkeys(get_values(group)):
                found.setdefault(value, []).append(number)
        return found

    def _build_anti_affinity(
        self, topology: str, obstacle: PlacementObstacle, holders: frozenset[int], targets: frozenset[int]
    ) -> list[AntiAffinityRule]:
        """Return the rule without the groups that cannot keep an arriving group away."""
        if not holders & self._arriving:
            targets &= self._arriving
        if not targets & self._arriving:
            holders &= self._arriving
        return [AntiAffinityRule(holders, targets, topology, obstacle)] if holders and targets else []

    def _find_targets(self, term: PodAffinityTerm) -> frozenset[int]:
        found = self._targets_of_term.get(term)
        if found is None:
            labels = self._pod_groups.labels
            label_numbers: Iterable[int] = () if term.selector is None else labels.find_selected(term.selector)
            matching = [
                label_number
                for label_number in label_numbers
                if self._storage_and_namespaces.term_matches_pod(term, *labels.groups[label_number])
            ]
            found = frozenset(
                number for label_number in matching for number in self._pod_groups.groups_by_label[label_number]
            )
            self._targets_of_term[term] = found
        return found

    def _find_counted(self, namespace: str, selector: LabelSelector | None) -> frozenset[int]:
        if selector is None:
            return frozenset()
        return frozenset(
            number
            for label_number in self._pod_groups.labels.find_selected(selector, namespace)
            for number in self._pod_groups.groups_by_label[label_number]
            if not self._groups[number].pod.terminating
        )


_EXHAUSTED_DETAILS = {
    PlacementObstacle.DISRUPTION_BUDGET: ReasonDetailCode.BUDGET_EXHAUSTED,
    PlacementObstacle.EVICTION_LIMIT: ReasonDetailCode.EVICTIONS_SPENT,
}


@dataclass(frozen=True, slots=True)
class SharedEvictionLimit:
    """At most `allowed` running pods of these groups may be evicted."""

    name: str
    obstacle: PlacementObstacle
    groups: frozenset[int]
    allowed: int


def apply_eviction_limits(
    pod_groups: PodGroups,
    budgets: Sequence[PodDisruptionBudget],
    allowance: EvictionAllowance,
    *,
    sequential: bool = False,
) -> list[SharedEvictionLimit]:
    """Mark pods without an eviction left as immovable, and return the limits that may bind.

    Pods under a PodDisruptionBudget are marked, because their evictions weigh more. With `sequential`, evictions wait
    for each other, so a budget that allows one eviction allows any number.
    """
    limits: list[SharedEvictionLimit] = []
    for budget in sorted(budgets, key=lambda one: (one.namespace, one.name)):
        label_numbers = pod_groups.labels.find_selected(budget.selector, budget.namespace)
        group_numbers = [
            number for label_number in label_numbers for number in pod_groups.groups_by_label[label_number]
        ]
        for number in group_numbers:
            pod_groups.groups[number].has_disruption_budget = True
        if sequential and budget.disruptions_allowed > 0:
            continue
        limit = SharedEvictionLimit(
            budget.title, PlacementObstacle.DISRUPTION_BUDGET, frozenset(group_numbers), budget.disruptions_allowed
        )
        limits += _keep_if_binding(pod_groups.groups, limit)
    for name, members, allowed in _list_eviction_budgets(pod_groups.groups, allowance):
        limits += _keep_if_binding(
            pod_groups.groups, SharedEvictionLimit(name, PlacementObstacle.EVICTION_LIMIT, frozenset(members), allowed)
        )
    # A later limit may have made pods immovable that an earlier one covers.
    return [limit for limit in limits if limit.allowed < _count_evictable(pod_groups.groups, limit.groups)]


def _keep_if_binding(groups: Sequence[PodGroup], limit: SharedEvictionLimit) -> list[SharedEvictionLimit]:
    if limit.allowed > 0:
        return [limit]
    for number in limit.groups:
        if not groups[number].pending and groups[number].immovable_reason is None:
            groups[number].immovable_reason = _EXHAUSTED_DETAILS[limit.obstacle].create(limit.name)
    return []


def _list_eviction_budgets(
    groups: Sequence[PodGroup], allowance: EvictionAllowance
) -> Iterator[tuple[str, list[int], int]]:
    if allowance.total is not None:
        yield "evictions left in this hour", list(range(len(groups))), allowance.total
    if allowance.default_per_workload is None and not allowance.by_workload:
        return
    groups_of_workload: dict[tuple[str, WorkloadRef], list[int]] = {}
    for number, group in enumerate(groups):
        ref = group.pod.workload
        if ref is not None:
            groups_of_workload.setdefault((group.pod.namespace, ref), []).append(number)
    for (namespace, ref), members in sorted(groups_of_workload.items()):
        allowed = allowance.get_for_workload(namespace, ref)
        if allowed is not None:
            yield f"evictions left of {ref.kind} {namespace}/{ref.name}", members, allowed


def get_max_evictions_by_node(allowance: EvictionAllowance, nodes: Sequence[Node]) -> Int64Array | None:
    """Return how many pods of each node may be evicted; None if there is no limit."""
    if allowance.default_per_node is None and not allowance.by_node:
        return None
    allowed = [allowance.get_for_node(node.name) for node in nodes]
    return np.array([UNBOUNDED if limit is None else limit for limit in allowed], dtype=np.int64)


def _count_evictable(groups: Sequence[PodGroup], members: frozenset[int]) -> int:
    return sum(groups[number].running for number in members if groups[number].immovable_reason is None)

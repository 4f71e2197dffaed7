"""Builds the classes of pods that a plan does not distinguish, and expresses the rules between groups by class."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cruise.decisions.packing.node_masks import NodeMasks, PlacementObstacle
from cruise.decisions.packing.pod_groups import AllowedNodeMasks, PodGroup, PodGroups
from cruise.decisions.packing.pod_rules import AntiAffinityRule, PodRules, SharedEvictionLimit
from cruise.decisions.packing.resources import ExtraResources
from cruise.domain.arrays import BoolArray, Int64Array
from cruise.packer.problem import (
    AttractionRule,
    EvictionLimit,
    ExclusionRule,
    PackingObjective,
    PlacementRules,
    SpreadRule,
)


class PodSignature(NamedTuple):
    """What the pods of a class have in common besides their resources; `roles` numbers the rules they take part in."""

    priority: int
    movable: bool
    preemptible: bool
    preempts: bool
    weight: int
    keeps_node_in_use: bool
    node_mask: int
    is_nominated: bool
    roles: tuple[int, ...]


def build_group_signatures(
    pod_groups: PodGroups,
    allowed_masks: AllowedNodeMasks,
    pod_rules: PodRules,
    limits: Sequence[SharedEvictionLimit],
    objective: PackingObjective,
) -> list[PodSignature]:
    """Return the signature of each group."""
    roles: list[list[int]] = [[] for _ in pod_groups.groups]
    for number, members in enumerate(_list_rule_members(pod_rules, limits, pod_groups.groups)):
        for member in members:
            roles[member].append(number)
    is_paper = objective is PackingObjective.PAPER
    # A pod that never preempts must not gain capacity by preemption, not even through a chain of moves.
    top = max(
        (group.pod.priority for group in pod_groups.groups if group.pending and group.pod.may_preempt),
        default=None,
    )
    signatures = []
    for group, own_roles in zip(pod_groups.groups, roles, strict=True):
        movable = group.immovable_reason is None
        # With the operator's objective, no pod is preempted for others of the same priority.
        loses_to_pending = top is not None and (group.pod.priority < top or (is_paper and group.pod.priority == top))
        may_be_preempted = objective in (PackingObjective.PAPER, PackingObjective.OPERATOR) and loses_to_pending
        signature = PodSignature(
            priority=group.pod.priority,
            movable=movable,
            preemptible=movable and may_be_preempted,
            preempts=group.pod.may_preempt or not group.may_arrive,
            weight=group.weight + group.has_disruption_budget if movable else 1,
            keeps_node_in_use=objective is not PackingObjective.CONSOLIDATION or not group.is_node_bound,
            node_mask=allowed_masks.get_mask_number(group),
            # Its capacity is already subtracted from its nominated node.
            is_nominated=group.pending and bool(group.pod.nominated_node),
            roles=tuple(own_roles),
        )
        signatures.append(signature)
    return signatures


def _list_rule_members(
    pod_rules: PodRules, limits: Sequence[SharedEvictionLimit], groups: Sequence[PodGroup]
) -> Iterable[frozenset[int]]:
    """Yield the sets of groups that a rule treats alike, and differently from all others."""
    for rule in (*pod_rules.anti_affinity, *pod_rules.affinity, *pod_rules.topology_spread):
        yield rule.holders
        yield rule.targets
    for limit in limits:
        yield frozenset(number for number in limit.groups if groups[number].immovable_reason is None)


class PodClassKey(NamedTuple):
    """A signature, what each pod of the class needs, and what all its pods on a node need together (`shared_once`)."""

    signature: PodSignature
    cpu: int
    memory: int
    cpu_headroom: int
    memory_headroom: int
    extras: ExtraResources
    shared_once: ExtraResources


@dataclass(frozen=True, slots=True, eq=False)
class PodClasses:
    """The classes in order of first appearance, the class of each pod, and the classes of each group."""

    keys: list[PodClassKey]
    pod_class: Int64Array
    classes_by_group: list[frozenset[int]]


def build_pod_classes(
    pod_groups: PodGroups,
    requests: Int64Array,
    signatures: Sequence[PodSignature],
    extras: Sequence[ExtraResources],
    shared_once: Sequence[ExtraResources],
) -> PodClasses:
    """Assign all pods to classes.

    `extras` and `shared_once` have what each group needs besides CPU and memory.
    """
    class_numbers: dict[PodClassKey, int] = {}
    pod_class: list[int] = []
    classes_of_group: list[set[int]] = [set() for _ in pod_groups.groups]
    for grouped, amounts in zip(pod_groups.pods, requests.tolist(), strict=True):
        group = grouped.group
        key = (signatures[group], *amounts, extras[group], shared_once[group])
        # A plain tuple equals the named one, and is made in half the time.
        number = class_numbers.get(key)  # type: ignore[call-overload]
        if number is None:
            number = len(class_numbers)
            class_numbers[PodClassKey._make(key)] = number
        pod_class.append(number)
        classes_of_group[group].add(number)
    return PodClasses(
        list(class_numbers), np.array(pod_class, dtype=np.int64), [frozenset(classes) for classes in classes_of_group]
    )


class ClassRuleBuilder:
    """Collects the rules of a problem by class.

    `max_on_node` is lowered for rules that it can express. `classes_of_group` has the classes of each group;
    `allowed_nodes[mask_of_class[class], node]` is whether a class may arrive.
    """

    def __init__(
        self,
        pod_groups: PodGroups,
        node_masks: NodeMasks,
        classes_of_group: Sequence[frozenset[int]],
        mask_of_class: Int64Array,
        allowed_nodes: BoolArray,
        max_on_node: Int64Array,
    ) -> None:
        self._groups = pod_groups.groups
        self._node_masks = node_masks
        self._classes_of_group = classes_of_group
        self._mask_of_class = mask_of_class
        self._allowed_nodes = allowed_nodes
        self._may_arrive: list[bool] = np.asarray(allowed_nodes.any(axis=1))[mask_of_class].tolist()
        self._max_on_node = max_on_node
        self._topologies: dict[str, Int64Array] = {}
        self._exclusions: dict[tuple[int, int, tuple[int, ...]], PlacementObstacle] = {}

    def build(
        self, pod_rules: PodRules, limits: Sequence[SharedEvictionLimit]
    ) -> tuple[PlacementRules, tuple[PlacementObstacle, ...]]:
        """Return all rules, and the obstacle of each exclusion."""
        for anti_affinity in pod_rules.anti_affinity:
            self._add_exclusions(anti_affinity)
        attractions = [
            AttractionRule(
                tuple(self._get_topology_number(key) for key in affinity.topologies),
                holder,
                self._get_class_array(affinity.targets),
            )
            for affinity in pod_rules.affinity
            for holder in sorted(self._get_classes(affinity.holders))
        ]
        spreads = [
            SpreadRule(
                self._get_topology_number(spread.constraint.topology_key),
                holder,
                self._get_class_array(spread.targets),
                spread.constraint.max_skew,
                spread.constraint.min_domains,
                spread.eligible,
            )
            for spread in pod_rules.topology_spread
            for holder in sorted(self._get_classes(spread.holders))
        ]
        exclusions = tuple(
            ExclusionRule(topology, holder, np.array(targets, dtype=np.int64))
            for topology, holder, targets in self._exclusions
        )
        eviction_limits = [
            EvictionLimit(
                limit.name,
                self._get_class_array(group for group in limit.groups if self._groups[group].immovable_reason is None),
                limit.allowed,
            )
            for limit in limits
        ]
        domains_of_topology = list(self._topologies.values())
        topologies = np.array(domains_of_topology, dtype=np.int64).reshape(
            len(domains_of_topology), self._node_masks.count
        )
        rules = PlacementRules(topologies, exclusions, tuple(attractions), tuple(spreads), tuple(eviction_limits))
        return rules, tuple(self._exclusions.values())

    def _add_exclusions(self, rule: AntiAffinityRule) -> None:
        key = rule.topology
        targets = self._get_classes(rule.targets)
        is_symmetric = rule.holders == rule.targets
        has_label, distinguishes_nodes = (
            self._node_masks.get_domains(key) >= 0,
            self._node_masks.distinguishes_nodes(key),
        )
        for holder in sorted(self._get_classes(rule.holders)):
            may_arrive = self._may_arrive[holder]
            excluded = {
                target
                for target in targets
                if (may_arrive or self._may_arrive[target]) and not (is_symmetric and target < holder)
            }
            # A class that excludes itself from each node has at most one pod on a node.
            if (
                holder in excluded
                and distinguishes_nodes
                and not (self._allowed_nodes[self._mask_of_class[holder]] & ~has_label).any()
            ):
                self._max_on_node[holder] = 1
                excluded.discard(holder)
            if excluded:
                self._exclusions.setdefault(
                    (self._get_topology_number(key), holder, tuple(sorted(excluded))), rule.obstacle
                )

    def _get_topology_number(self, key: str) -> int:
        if key not in self._topologies:
            self._topologies[key] = self._node_masks.get_domains(key)
        return list(self._topologies).index(key)

    def _get_classes(self, groups: Iterable[int]) -> set[int]:
        return {pod_class for group in groups for pod_class in self._classes_of_group[group]}

    def _get_class_array(self, groups: Iterable[int]) -> Int64Array:
        return np.array(sorted(self._get_classes(groups)), dtype=np.int64)

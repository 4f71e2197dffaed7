"""The rules between kinds, said of classes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cruise.decisions.packing.node_masks import NodeMasks, PlacementObstacle
from cruise.decisions.packing.pod_groups import AllowedNodeMasks, PodGroup, PodGroups
from cruise.decisions.packing.pod_rules import AntiAffinityRule, GroupEvictionLimit, PodRules
from cruise.decisions.packing.resources import ExtraResources
from cruise.domain.resources import BoolArray, Int64Array
from cruise.packer.problem import (
    AttractionRule,
    EvictionLimit,
    ExclusionRule,
    PackingObjective,
    PlacementRules,
    SpreadRule,
)

# What tells classes apart beside amounts: pods whose kinds have equal signatures are all the same to a plan.


class PodSignature(NamedTuple):
    """What all pods of a class have in common; the roles number the rules that hold or mean them."""

    priority: int
    movable: bool
    preemptible: bool
    preempts: bool
    weight: int
    keeps_node_in_use: bool
    node_mask: int
    is_nominated: bool
    roles: tuple[int, ...]


def build_signatures(
    census: PodGroups,
    sites: AllowedNodeMasks,
    marks: PodRules,
    limits: Sequence[GroupEvictionLimit],
    objective: PackingObjective,
) -> list[PodSignature]:
    """Return the signature of each kind."""
    roles: list[list[int]] = [[] for _ in census.groups]
    for number, members in enumerate(_groups(marks, limits, census.groups)):
        for member in members:
            roles[member].append(number)
    paper = objective is PackingObjective.PAPER
    # Pods that never preempt get nothing by a chain either, at whose other end somebody is preempted.
    top = max(
        (kind.pod.priority for kind in census.groups if kind.pending and kind.pod.preemption_allowed), default=None
    )
    found = []
    for kind, own in zip(census.groups, roles, strict=True):
        movable = kind.immovable_reason is None
        # In operation pods of the highest priority that preempts never lose their place, nor do those above it.
        below = top is not None and (kind.pod.priority < top or (paper and kind.pod.priority == top))
        may_lose = objective in (PackingObjective.PAPER, PackingObjective.OPERATOR) and below
        signature = PodSignature(
            priority=kind.pod.priority,
            movable=movable,
            preemptible=movable and may_lose,
            preempts=kind.pod.preemption_allowed or not kind.may_arrive,
            weight=kind.weight + kind.disruption_budgets if movable else 1,
            keeps_node_in_use=objective is not PackingObjective.FLEET or not kind.count_by_node,
            node_mask=sites.get_mask_number(kind),
            # What its node keeps for it, it takes of nothing that others may have.
            is_nominated=kind.pending and bool(kind.pod.nominated_node),
            roles=tuple(own),
        )
        found.append(signature)
    return found


def _groups(
    marks: PodRules, limits: Sequence[GroupEvictionLimit], kinds: Sequence[PodGroup]
) -> Iterable[frozenset[int]]:
    """Yield sets of kinds that a rule treats alike: each such set sets its members apart from all others."""
    for mark in (*marks.anti_affinity, *marks.affinity, *marks.topology_spread):
        yield mark.holders
        yield mark.targets
    for limit in limits:
        yield frozenset(number for number in limit.kinds if kinds[number].immovable_reason is None)


# Classes: pods with the same signature that take the same.


class PodClassKey(NamedTuple):
    """What makes a class: its signature, and what one of its pods takes, or all on a node take `once`."""

    signature: PodSignature
    cpu: int
    memory: int
    cpu_headroom: int
    memory_headroom: int
    extras: ExtraResources
    shared_once: ExtraResources


@dataclass(frozen=True, slots=True, eq=False)
class PodClasses:
    """Classes in the order in which the pods first show them, each pod's, and those of each kind."""

    keys: list[PodClassKey]
    pod_class: Int64Array
    by_group: list[frozenset[int]]


def build_pod_classes(
    census: PodGroups,
    needs: Int64Array,
    signatures: Sequence[PodSignature],
    extras: Sequence[ExtraResources],
    once: Sequence[ExtraResources],
) -> PodClasses:
    """Sort all pods into classes; `extras` and `once` have what each kind takes beside CPU and memory."""
    numbers: dict[PodClassKey, int] = {}
    pod_class: list[int] = []
    of_kind: list[set[int]] = [set() for _ in census.groups]
    for taken, amounts in zip(census.pods, needs.tolist(), strict=True):
        kind = taken.group
        key = (signatures[kind], *amounts, extras[kind], once[kind])
        # A plain tuple finds what a named one put there, in half the time.
        number = numbers.get(key)  # type: ignore[call-overload]
        if number is None:
            number = len(numbers)
            numbers[PodClassKey._make(key)] = number
        pod_class.append(number)
        of_kind[kind].add(number)
    return PodClasses(list(numbers), np.array(pod_class, dtype=np.int64), [frozenset(classes) for classes in of_kind])


class ClassRuleBuilder:
    """Collects the rules of a problem; `most_on_node` is lowered where that says all of a rule.

    `kind_classes` has the classes of each kind, `admits[sites[class], node]` tells where a class may arrive.
    """

    def __init__(
        self,
        census: PodGroups,
        columns: NodeMasks,
        kind_classes: Sequence[frozenset[int]],
        sites: Int64Array,
        admits: BoolArray,
        most_on_node: Int64Array,
    ) -> None:
        self._kinds = census.groups
        self._columns = columns
        self._kind_classes = kind_classes
        self._sites = sites
        self._admits = admits
        self._arrives: list[bool] = np.asarray(admits.any(axis=1))[sites].tolist()
        self._most_on_node = most_on_node
        self._topologies: dict[str, Int64Array] = {}
        self._exclusions: dict[tuple[int, int, tuple[int, ...]], PlacementObstacle] = {}

    def build(
        self, marks: PodRules, limits: Sequence[GroupEvictionLimit]
    ) -> tuple[PlacementRules, tuple[PlacementObstacle, ...]]:
        """Return all rules, and for each exclusion the obstacle that it is."""
        for repulsion in marks.anti_affinity:
            self._repel(repulsion)
        attractions = [
            AttractionRule(tuple(self._topology(key) for key in draw.topologies), holder, self._array(draw.targets))
            for draw in marks.affinity
            for holder in sorted(self._classes(draw.holders))
        ]
        spreads = [
            SpreadRule(
                self._topology(evenness.constraint.topology_key),
                holder,
                self._array(evenness.targets),
                evenness.constraint.max_skew,
                evenness.constraint.min_domains,
                evenness.eligible,
            )
            for evenness in marks.topology_spread
            for holder in sorted(self._classes(evenness.holders))
        ]
        exclusions = tuple(
            ExclusionRule(topology, holder, np.array(targets, dtype=np.int64))
            for topology, holder, targets in self._exclusions
        )
        of_limits = [
            EvictionLimit(
                limit.name,
                self._array(kind for kind in limit.kinds if self._kinds[kind].immovable_reason is None),
                limit.allowed,
            )
            for limit in limits
        ]
        domains = list(self._topologies.values())
        topologies = np.array(domains, dtype=np.int64).reshape(len(domains), self._columns.count)
        found = PlacementRules(topologies, exclusions, tuple(attractions), tuple(spreads), tuple(of_limits))
        return found, tuple(self._exclusions.values())

    def _repel(self, repulsion: AntiAffinityRule) -> None:
        key = repulsion.topology
        targets = self._classes(repulsion.targets)
        mutual = repulsion.holders == repulsion.targets
        labelled, tells_apart = self._columns.get_domains(key) >= 0, self._columns.distinguishes_nodes(key)
        for holder in sorted(self._classes(repulsion.holders)):
            arrives = self._arrives[holder]
            kept_off = {
                target for target in targets if (arrives or self._arrives[target]) and not (mutual and target < holder)
            }
            # No second one of its own on a node: that is how many of it a node holds.
            if holder in kept_off and tells_apart and not (self._admits[self._sites[holder]] & ~labelled).any():
                self._most_on_node[holder] = 1
                kept_off.discard(holder)
            if kept_off:
                self._exclusions.setdefault((self._topology(key), holder, tuple(sorted(kept_off))), repulsion.obstacle)

    def _topology(self, key: str) -> int:
        if key not in self._topologies:
            self._topologies[key] = self._columns.get_domains(key)
        return list(self._topologies).index(key)

    def _classes(self, kinds: Iterable[int]) -> set[int]:
        return {pod_class for kind in kinds for pod_class in self._kind_classes[kind]}

    def _array(self, kinds: Iterable[int]) -> Int64Array:
        return np.array(sorted(self._classes(kinds)), dtype=np.int64)

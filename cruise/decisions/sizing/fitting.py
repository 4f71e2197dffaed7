"""Decides which nodes can hold their pods, and which pods must be evicted where they cannot.

All nodes are compared in columns; only the pods of nodes under pressure are examined one by one. ADR 0006, ADR 0014.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cruise.decisions.eviction.ranking import (
    ASSUME_UNCHANGED,
    DEFAULT_EVICTION_OPTIONS,
    EarlierPassResults,
    EvictionCandidate,
    EvictionDecisionOptions,
    EvictionDestinations,
    decide_evictions,
)
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.pod_policy.resizable_pod import ResizablePod
from cruise.decisions.sizing.node_columns import NodePodColumns
from cruise.domain.actions import EvictPod, ReasonCode
from cruise.domain.arrays import BoolArray, Int64Array
from cruise.domain.cluster import Pod
from cruise.domain.pod_resources import count_pod_requests
from cruise.domain.policy import EnabledRules, EvictionRanking
from cruise.domain.reasons import ReasonDetailCode
from cruise.domain.resources import ResourceName, Resources

# Share of a node's CPU above which the P75 demand of its pods counts as contention: with 1.0 in its place, containers
# of the recorded traces starve half as much again.
CONTENDED_SHARE = 0.95

_MANAGED = {
    (cpu, memory): frozenset(r for r, managed in zip(ResourceName, (cpu, memory), strict=True) if managed)
    for cpu in (False, True)
    for memory in (False, True)
}


@dataclass(frozen=True, slots=True)
class PlannedEviction:
    """A pod to evict, by its index in the columns, with its ranking and the resource that does not fit."""

    index: int
    ranking: EvictionRanking
    resource: ResourceName

    def to_action(self, pod: Pod) -> EvictPod:
        """Return the action that evicts the pod."""
        return EvictPod(
            pod.namespace,
            pod.name,
            pod.uid,
            pod.node,
            pod.workload,
            self.ranking,
            self.resource,
            ReasonCode.NODE_OVER_CAPACITY,
        )


@dataclass(frozen=True, slots=True)
class ContendedNode:
    """The pods of a node under pressure, in the order of `NodePodColumns.get_pods_on_node`.

    `not_evictable_reasons` holds for each pod why it may not be evicted, None for a candidate. `eviction_pressure` are
    the resources for which pods are evicted if the next pass finds the same.
    """

    candidates: Sequence[EvictionCandidate]
    not_evictable_reasons: Sequence[str | None]
    eviction_options: EvictionDecisionOptions = DEFAULT_EVICTION_OPTIONS
    eviction_pressure: frozenset[ResourceName] = frozenset()

    @property
    def has_candidates(self) -> bool:
        """Return whether any of the pods may be evicted."""
        return any(one.evictable_for for one in self.candidates)


ContendedNodes = Mapping[int, ContendedNode]
DestinationsByNode = Callable[[Sequence[Pod]], EvictionDestinations]


@dataclass(frozen=True, slots=True)
class NodeFit:
    """Which nodes hold their pods, and which pods remain on them.

    One entry per node: `fits` and `may_grow` (whether requests may increase; under the first rule set only where the
    pods fit). One entry per pod: `remains`. By node: `evicted` in marking order; `shortages`, the resources that the
    node has too little of before evictions; `eviction_pressure`, those of them for which pods are evicted if they last;
    `unfit`, those that no allowed eviction would relieve; `reserved_for_replacements`, the capacity that no pod may
    grow into. By pod: `not_evicted`, why a candidate stays; `pending_replacements`, the requests of an evicted pod's
    replacement.
    """

    fits: Mapping[ResourceName, BoolArray]
    may_grow: Mapping[ResourceName, BoolArray]
    remains: BoolArray
    evicted: Mapping[int, tuple[PlannedEviction, ...]]
    shortages: Mapping[int, frozenset[ResourceName]] = field(default_factory=dict)
    eviction_pressure: Mapping[int, frozenset[ResourceName]] = field(default_factory=dict)
    unfit: Mapping[int, frozenset[ResourceName]] = field(default_factory=dict)
    not_evicted: Mapping[int, str] = field(default_factory=dict)
    reserved_for_replacements: Mapping[int, Resources] = field(default_factory=dict)
    pending_replacements: Mapping[int, Resources] = field(default_factory=dict)


def find_shortages(columns: NodePodColumns) -> dict[int, frozenset[ResourceName]]:
    """Return the resources of which each node has too little for its pods' bases and their largest single headroom.

    This holds for every headroom model: a headroom changes with every pass, an eviction made for it would be regretted.
    """
    found: dict[int, frozenset[ResourceName]] = {}
    for resource in ResourceName:
        need = columns.base_by_node[resource] + columns.largest_headroom_by_node[resource]
        for node in np.flatnonzero(need > columns.available[resource]).tolist():
            found[node] = found.get(node, frozenset()) | {resource}
    return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class ContentionContext:
    """What is known about nodes under pressure besides the columns.

    `cpu_demand` is the P75 demand of each node's pods in millicores, `fixed_pods` the pods of a node that are not
    resized. Without `destinations` every replacement is assumed to find a node.
    """

    cpu_demand: Int64Array
    earlier: EarlierPassResults = ASSUME_UNCHANGED
    fixed_pods: Mapping[int, Sequence[Pod]] = field(default_factory=dict)
    destinations: DestinationsByNode | None = None


def find_contended_nodes(
    columns: NodePodColumns,
    eligibility: Eligibility,
    rules: EnabledRules,
    context: ContentionContext,
    shortages: Mapping[int, frozenset[ResourceName]],
) -> ContendedNodes:
    """Return the pods of the nodes with shortages, and the resources to relieve there."""
    return {
        node: _build_contended_node(columns, node, eligibility, rules, context, shortages[node]) for node in shortages
    }


def _build_contended_node(
    columns: NodePodColumns,
    node: int,
    eligibility: Eligibility,
    rules: EnabledRules,
    context: ContentionContext,
    shortages: frozenset[ResourceName],
) -> ContendedNode:
    pods = columns.get_pods_on_node(node)
    base, headroom = columns.base, columns.largest_headroom
    amounts = (of_pods[resource][pods].tolist() for of_pods in (base, headroom) for resource in ResourceName)
    candidates, reasons = [], []
    for at, cpu, memory, cpu_headroom, memory_headroom in zip(pods, *amounts, strict=True):
        resizable = columns.candidates.pods[at]
        reason = _explain_not_evictable(resizable, eligibility, context.earlier)
        reasons.append(reason)
        candidates.append(
            EvictionCandidate(
                resizable.pod.namespace,
                resizable.pod.name,
                eligibility.evictability.get_ranking(resizable.pod, resizable.effective_policy),
                Resources(cpu, memory),
                Resources(cpu_headroom, memory_headroom),
                frozenset() if reason else _managed(resizable),
                resizable.pod.priority if rules.eviction_safeguards else 0,
            )
        )
    if not rules.eviction_safeguards:
        return ContendedNode(
            candidates, reasons, EvictionDecisionOptions(check_each_resource_alone=rules.fit_by_resource), shortages
        )
    node_object, pressure = columns.nodes[node], _find_eviction_pressure(columns, node, context, shortages)
    options = EvictionDecisionOptions(
        resources=frozenset(one for one in pressure if context.earlier.had_eviction_pressure(node_object.name, one)),
        check_each_resource_alone=rules.fit_by_resource,
        lowest_other_priority=_find_lowest_other_priority(
            context.fixed_pods.get(node, ()), [columns.candidates.pods[at] for at in pods]
        ),
    )
    if context.destinations is not None:
        options = replace(options, destinations=context.destinations([columns.candidates.pods[at].pod for at in pods]))
    return ContendedNode(candidates, reasons, options, pressure)


def _explain_not_evictable(
    resizable: ResizablePod, eligibility: Eligibility, earlier: EarlierPassResults
) -> str | None:
    rules = eligibility.evictability
    reason = eligibility.explain_not_evictable_for_sizing(resizable.pod, resizable.effective_policy)
    reason = reason or rules.explain_not_evictable_now(resizable.pod)
    if reason is None and resizable.pod.uid in earlier.refused_evictions:
        return ReasonDetailCode.REFUSED_BEFORE
    return reason


def _find_eviction_pressure(
    columns: NodePodColumns, node: int, context: ContentionContext, shortages: frozenset[ResourceName]
) -> frozenset[ResourceName]:
    """Return the shortages that evictions relieve if they last: memory, and CPU only if it is contended.

    The demand for CPU includes the time that containers waited for it.
    """
    threshold = CONTENDED_SHARE * columns.nodes[node].allocatable.cpu_millicores
    contended = bool(context.cpu_demand[node] > threshold)
    return frozenset(one for one in shortages if one is not ResourceName.CPU or contended)


def _find_lowest_other_priority(pods: Sequence[Pod], sized: Sequence[ResizablePod]) -> dict[ResourceName, int]:
    """Return for each resource the lowest priority of the pods that request it and are not resized."""
    users = [(pod, frozenset[ResourceName]()) for pod in pods]
    users += [(one.pod, managed) for one in sized if len(managed := _managed(one)) < len(ResourceName)]
    lowest: dict[ResourceName, int] = {}
    for pod, managed in users:
        counted = count_pod_requests(pod)
        for resource in ResourceName:
            if resource not in managed and counted.get(resource):
                lowest[resource] = min(pod.priority, lowest.get(resource, pod.priority))
    return lowest


def _managed(pod: ResizablePod) -> frozenset[ResourceName]:
    return _MANAGED[pod.manages_cpu, pod.manages_memory]


def decide_node_fit(
    columns: NodePodColumns, contended_nodes: ContendedNodes, shortages: Mapping[int, frozenset[ResourceName]]
) -> NodeFit:
    """Decide the fit and the evictions of all nodes; `contended_nodes` are those with shortages."""
    fits, may_grow = ({one: np.ones(len(columns.nodes), dtype=np.bool_) for one in ResourceName} for _ in range(2))
    remains = np.ones(len(columns.candidates.pods), dtype=np.bool_)
    evicted: dict[int, tuple[PlannedEviction, ...]] = {}
    unfit: dict[int, frozenset[ResourceName]] = {}
    not_evicted: dict[int, str] = {}
    for node, contended in contended_nodes.items():
        available = Resources(*(int(columns.available[resource][node]) for resource in ResourceName))
        decision = decide_evictions(contended.candidates, available, contended.eviction_options)
        pods = columns.get_pods_on_node(node)
        not_evicted |= {pods[at]: detail for at, detail in decision.not_evicted.items()}
        if decision.does_not_fit:
            unfit[node] = decision.does_not_fit
        for resource in decision.over_capacity:
            fits[resource][node] = False
            may_grow[resource][node] = contended.eviction_options.check_each_resource_alone
        if decision.marked:
            evicted[node] = tuple(
                PlannedEviction(pods[at.index], contended.candidates[at.index].ranking, at.resource)
                for at in decision.marked
            )
            remains[[eviction.index for eviction in evicted[node]]] = False
    eviction_pressure = {
        node: contended.eviction_pressure for node, contended in contended_nodes.items() if contended.eviction_pressure
    }
    return NodeFit(fits, may_grow, remains, evicted, shortages, eviction_pressure, unfit, not_evicted)

"""The fit of nodes in columns: which hold their pods, and which pods have to go where they do not.

All nodes are decided together; only a node that does not hold its pods is looked at pod by pod. Section 4.3 and 4.4
of the rules; ADR 0032 has the scenes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cruise.decisions.eviction.ranking import (
    ASSUME_UNCHANGED,
    NO_CONSTRAINTS,
    EarlierPasses,
    EvictionCandidate,
    EvictionDestinations,
    EvictionTerms,
    decide_evictions,
)
from cruise.decisions.pod_policy.eligibility import Eligibility, ResizablePod
from cruise.decisions.sizing.node_columns import NodePodColumns
from cruise.domain.actions import EvictPod, ReasonCode
from cruise.domain.cluster import Pod
from cruise.domain.pod_resources import count_pod_requests
from cruise.domain.policy import EvictionRanking, RuleSet
from cruise.domain.reasons import ReasonDetail
from cruise.domain.resources import BoolArray, Int64Array, ResourceName, Resources

# Of a node's CPU, what its pods' demand at P75 is above where their peaks contend for it: with the whole of it in this
# place traces starve half as much again.
CONTENDED_SHARE = 0.95

_MANAGED = {
    (cpu, memory): frozenset(r for r, managed in zip(ResourceName, (cpu, memory), strict=True) if managed)
    for cpu in (False, True)
    for memory in (False, True)
}


@dataclass(frozen=True, slots=True)
class PlannedEviction:
    """A pod that has to go, by its index, with its ranking and the resource that does not fit."""

    index: int
    ranking: EvictionRanking
    resource: ResourceName

    def to_action(self, pod: Pod) -> EvictPod:
        """Return what evicts the pod."""
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
    """The pods of a crowded node as the fit compares them, in the order of `NodeColumns.pods_of`.

    `why_kept` has for each of them the detail that forbids its eviction, None for a candidate. `terms` are what the
    evictions are decided by; `pressing` is what is to be mended if it lasts.
    """

    candidates: Sequence[EvictionCandidate]
    not_evictable_reasons: Sequence[str | None]
    terms: EvictionTerms = NO_CONSTRAINTS
    shortage: frozenset[ResourceName] = frozenset()

    @property
    def has_candidates(self) -> bool:
        """Tell whether one of the pods may be evicted."""
        return any(one.evictable_for for one in self.candidates)


ContendedNodes = Mapping[int, ContendedNode]
DestinationsByNode = Callable[[Sequence[Pod]], EvictionDestinations]


@dataclass(frozen=True, slots=True)
class NodeFit:
    """Which nodes hold the pods that stay on them, and which pods stay.

    `fits` has an entry a node for each resource, `stays` an entry a pod; `evicted` has the nodes with evictions, in
    marking order. `grows` tells by resource and node whether requests may rise: by the first design they may not where
    the pods do not fit. `short` has what a node has too little of before anyone goes, `pressing` what of it evictions
    mend if it lasts, and `unfit` what no eviction that may be would mend, by node; `kept` has why pods stay that might
    have gone, by pod. `promised` is the room on nodes that replacements are to find there, and `awaited` what each of
    them needs, by the pod that it replaces: nothing grows into the room, or into the quota that is left for it.
    """

    fits: Mapping[ResourceName, BoolArray]
    may_grow: Mapping[ResourceName, BoolArray]
    remains: BoolArray
    evicted: Mapping[int, tuple[PlannedEviction, ...]]
    under_pressure: Mapping[int, frozenset[ResourceName]] = field(default_factory=dict)
    shortage: Mapping[int, frozenset[ResourceName]] = field(default_factory=dict)
    unfit: Mapping[int, frozenset[ResourceName]] = field(default_factory=dict)
    not_evicted: Mapping[int, str] = field(default_factory=dict)
    reserved_for_replacements: Mapping[int, Resources] = field(default_factory=dict)
    pending_replacements: Mapping[int, Resources] = field(default_factory=dict)


def find_shortages(columns: NodePodColumns) -> dict[int, frozenset[ResourceName]]:
    """Return what each node has too little of for the bases of its pods and the largest single headroom.

    Whatever a headroom model wants, pods fit where there is room for one of them at a time at its peak: a headroom
    moves with every pass, and pods that were evicted for it are missed when it has shrunk again.
    """
    found: dict[int, frozenset[ResourceName]] = {}
    for resource in ResourceName:
        need = columns.base_by_node[resource] + columns.largest_headroom_by_node[resource]
        for node in np.flatnonzero(need > columns.available[resource]).tolist():
            found[node] = found.get(node, frozenset()) | {resource}
    return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class ContentionContext:
    """What is known of crowded nodes beside the columns.

    `cpu_demand` is what the pods of each node demand at P75, in millicores. `apart` has by node the pods that take no
    part in the sums. `exits` tells where the pods of a node go, None anywhere.
    """

    cpu_demand: Int64Array
    earlier: EarlierPasses = ASSUME_UNCHANGED
    evaluate_alone: Mapping[int, Sequence[Pod]] = field(default_factory=dict)
    destinations: DestinationsByNode | None = None


def find_contended_nodes(
    columns: NodePodColumns,
    eligibility: Eligibility,
    rules: RuleSet,
    around: ContentionContext,
    short: Mapping[int, frozenset[ResourceName]],
) -> ContendedNodes:
    """Return the pods of the nodes that are short of something, and what is to be mended there."""
    return {node: _crowd(columns, node, eligibility, rules, around, short[node]) for node in short}


def _crowd(
    columns: NodePodColumns,
    node: int,
    eligibility: Eligibility,
    rules: RuleSet,
    around: ContentionContext,
    short: frozenset[ResourceName],
) -> ContendedNode:
    pods = columns.get_pods_on_node(node)
    base, spike = columns.base, columns.largest_headroom
    amounts = (of_pods[resource][pods].tolist() for of_pods in (base, spike) for resource in ResourceName)
    found, why = [], []
    for at, cpu, memory, cpu_headroom, memory_headroom in zip(pods, *amounts, strict=True):
        touchable = columns.candidates.pods[at]
        kept = _why_kept(touchable, eligibility, around.earlier)
        why.append(kept)
        found.append(
            EvictionCandidate(
                touchable.pod.namespace,
                touchable.pod.name,
                eligibility.evictability.get_ranking(touchable.pod, touchable.effective_policy),
                Resources(cpu, memory),
                Resources(cpu_headroom, memory_headroom),
                frozenset() if kept else _managed(touchable),
                touchable.pod.priority if rules.eviction_safeguards else 0,
            )
        )
    if not rules.eviction_safeguards:
        return ContendedNode(found, why, EvictionTerms(check_each_node_alone=rules.fit_by_resource), short)
    its, pressing = columns.nodes[node], _pressing(columns, node, around, short)
    terms = EvictionTerms(
        shortage=frozenset(one for one in pressing if around.earlier.was_under_pressure(its.name, one)),
        check_each_node_alone=rules.fit_by_resource,
        lowest_priority_first=_lowest_apart(
            around.evaluate_alone.get(node, ()), [columns.candidates.pods[at] for at in pods]
        ),
    )
    if around.destinations is not None:
        terms = replace(terms, destinations=around.destinations([columns.candidates.pods[at].pod for at in pods]))
    return ContendedNode(found, why, terms, pressing)


def _why_kept(touchable: ResizablePod, eligibility: Eligibility, earlier: EarlierPasses) -> str | None:
    rules = eligibility.evictability
    kept = rules.explain_not_evictable(touchable.pod, touchable.effective_policy) or rules.explain_not_evictable_now(
        touchable.pod
    )
    if kept is None and touchable.pod.uid in earlier.refused_evictions:
        return ReasonDetail.REFUSED_BEFORE
    return kept


def _pressing(
    columns: NodePodColumns, node: int, around: ContentionContext, short: frozenset[ResourceName]
) -> frozenset[ResourceName]:
    """Return what evictions mend where it lasts to the next pass: memory that is short, and CPU that is contended.

    The pressure is in the demand for CPU already, since time that containers waited for it counts as use.
    """
    most = CONTENDED_SHARE * columns.nodes[node].allocatable.cpu_millicores
    contended = bool(around.cpu_demand[node] > most)
    return frozenset(one for one in short if one is not ResourceName.CPU or contended)


def _lowest_apart(pods: Sequence[Pod], sized: Sequence[ResizablePod]) -> dict[ResourceName, int]:
    """Return for each resource the lowest priority of the pods that take some of it, and are not sized by it."""
    taking = [(pod, frozenset[ResourceName]()) for pod in pods]
    taking += [(one.pod, managed) for one in sized if len(managed := _managed(one)) < len(ResourceName)]
    lowest: dict[ResourceName, int] = {}
    for pod, managed in taking:
        counted = count_pod_requests(pod)
        for resource in ResourceName:
            if resource not in managed and counted.get(resource):
                lowest[resource] = min(pod.priority, lowest.get(resource, pod.priority))
    return lowest


def _managed(pod: ResizablePod) -> frozenset[ResourceName]:
    return _MANAGED[pod.manages_cpu, pod.manages_memory]


def decide_node_fit(
    columns: NodePodColumns, crowds: ContendedNodes, short: Mapping[int, frozenset[ResourceName]]
) -> NodeFit:
    """Decide the fit and the evictions of all nodes; `crowds` has those that are `short` of something."""
    fits, grows = ({one: np.ones(len(columns.nodes), dtype=np.bool_) for one in ResourceName} for _ in range(2))
    stays = np.ones(len(columns.candidates.pods), dtype=np.bool_)
    evicted: dict[int, tuple[PlannedEviction, ...]] = {}
    unfit: dict[int, frozenset[ResourceName]] = {}
    kept: dict[int, str] = {}
    for node, crowd in crowds.items():
        room = Resources(*(int(columns.available[resource][node]) for resource in ResourceName))
        leaving = decide_evictions(crowd.candidates, room, crowd.terms)
        pods = columns.get_pods_on_node(node)
        kept |= {pods[at]: detail for at, detail in leaving.not_evicted.items()}
        if leaving.does_not_fit:
            unfit[node] = leaving.does_not_fit
        for resource in leaving.over_capacity:
            fits[resource][node] = False
            grows[resource][node] = crowd.terms.check_each_node_alone
        if leaving.marked:
            evicted[node] = tuple(
                PlannedEviction(pods[at.index], crowd.candidates[at.index].ranking, at.resource)
                for at in leaving.marked
            )
            stays[[eviction.index for eviction in evicted[node]]] = False
    pressing = {node: crowd.shortage for node, crowd in crowds.items() if crowd.shortage}
    return NodeFit(fits, grows, stays, evicted, short, pressing, unfit, kept)

"""The fit of nodes in columns: which hold their pods, and which pods have to go where they do not.

All nodes are decided together; only a node that does not hold its pods is looked at pod by pod. Section 4.3 and 4.4
of the rules; ADR 0032 has the scenes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cruise.decisions.eviction.earlier import SAME_AGAIN, Earlier
from cruise.decisions.eviction.ranking import FREELY, Contender, Exits, Terms, decide_evictions
from cruise.decisions.guidance.eligibility import Eligibility, Touchable
from cruise.decisions.sizing.node_columns import NodeColumns
from cruise.domain.actions import EvictPod, Reason
from cruise.domain.arrays import BoolArray, Int64Array
from cruise.domain.cluster import Pod
from cruise.domain.details import Detail
from cruise.domain.policy import EvictionRanking
from cruise.domain.requests import counted_requests
from cruise.domain.resources import ResourceName, Resources
from cruise.domain.rules import Rules

# Of a node's CPU, what its pods' demand at P75 is above where their peaks contend for it: with the whole of it in this
# place traces starve half as much again.
CONTENDED_SHARE = 0.95

_MANAGED = {
    (cpu, memory): frozenset(r for r, managed in zip(ResourceName, (cpu, memory), strict=True) if managed)
    for cpu in (False, True)
    for memory in (False, True)
}


@dataclass(frozen=True, slots=True)
class Eviction:
    """A pod that has to go, by its index, with its ranking and the resource that does not fit."""

    index: int
    ranking: EvictionRanking
    resource: ResourceName

    def action(self, pod: Pod) -> EvictPod:
        """Return what evicts the pod."""
        return EvictPod(
            pod.namespace,
            pod.name,
            pod.uid,
            pod.node,
            pod.workload,
            self.ranking,
            self.resource,
            Reason.DOES_NOT_FIT,
        )


@dataclass(frozen=True, slots=True)
class Crowd:
    """The pods of a crowded node as the fit compares them, in the order of `NodeColumns.pods_of`.

    `why_kept` has for each of them the detail that forbids its eviction, None for a candidate. `terms` are what the
    evictions are decided by; `pressing` is what is to be mended if it lasts.
    """

    contenders: Sequence[Contender]
    why_kept: Sequence[str | None]
    terms: Terms = FREELY
    pressing: frozenset[ResourceName] = frozenset()

    @property
    def has_candidates(self) -> bool:
        """Tell whether one of the pods may be evicted."""
        return any(one.candidate_for for one in self.contenders)


Crowds = Mapping[int, Crowd]
ExitsOf = Callable[[Sequence[Pod]], Exits]


@dataclass(frozen=True, slots=True)
class Fit:
    """Which nodes hold the pods that stay on them, and which pods stay.

    `fits` has an entry a node for each resource, `stays` an entry a pod; `evicted` has the nodes with evictions, in
    marking order. `grows` tells by resource and node whether requests may rise: by the first design they may not where
    the pods do not fit. `short` has what a node has too little of before anyone goes, `pressing` what of it evictions
    mend if it lasts, and `unfit` what no eviction that may be would mend, by node; `kept` has why pods stay that might
    have gone, by pod. `promised` is the room on nodes that replacements are to find there, and `awaited` what each of
    them needs, by the pod that it replaces: nothing grows into the room, or into the quota that is left for it.
    """

    fits: Mapping[ResourceName, BoolArray]
    grows: Mapping[ResourceName, BoolArray]
    stays: BoolArray
    evicted: Mapping[int, tuple[Eviction, ...]]
    short: Mapping[int, frozenset[ResourceName]] = field(default_factory=dict)
    pressing: Mapping[int, frozenset[ResourceName]] = field(default_factory=dict)
    unfit: Mapping[int, frozenset[ResourceName]] = field(default_factory=dict)
    kept: Mapping[int, str] = field(default_factory=dict)
    promised: Mapping[int, Resources] = field(default_factory=dict)
    awaited: Mapping[int, Resources] = field(default_factory=dict)


def shortages(columns: NodeColumns) -> dict[int, frozenset[ResourceName]]:
    """Return what each node has too little of for the bases of its pods and the largest single headroom.

    Whatever a headroom model wants, pods fit where there is room for one of them at a time at its peak: a headroom
    moves with every pass, and pods that were evicted for it are missed when it has shrunk again.
    """
    found: dict[int, frozenset[ResourceName]] = {}
    for resource in ResourceName:
        need = columns.base_of_nodes[resource] + columns.spike_of_nodes[resource]
        for node in np.flatnonzero(need > columns.available[resource]).tolist():
            found[node] = found.get(node, frozenset()) | {resource}
    return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What is known of crowded nodes beside the columns.

    `cpu_demand` is what the pods of each node demand at P75, in millicores. `apart` has by node the pods that take no
    part in the sums. `exits` tells where the pods of a node go, None anywhere.
    """

    cpu_demand: Int64Array
    earlier: Earlier = SAME_AGAIN
    apart: Mapping[int, Sequence[Pod]] = field(default_factory=dict)
    exits: ExitsOf | None = None


def crowds_of(
    columns: NodeColumns,
    eligibility: Eligibility,
    rules: Rules,
    around: Circumstances,
    short: Mapping[int, frozenset[ResourceName]],
) -> Crowds:
    """Return the pods of the nodes that are short of something, and what is to be mended there."""
    return {node: _crowd(columns, node, eligibility, rules, around, short[node]) for node in short}


def _crowd(
    columns: NodeColumns,
    node: int,
    eligibility: Eligibility,
    rules: Rules,
    around: Circumstances,
    short: frozenset[ResourceName],
) -> Crowd:
    pods = columns.pods_of(node)
    base, spike = columns.base, columns.spike
    amounts = (of_pods[resource][pods].tolist() for of_pods in (base, spike) for resource in ResourceName)
    found, why = [], []
    for at, cpu, memory, cpu_headroom, memory_headroom in zip(pods, *amounts, strict=True):
        touchable = columns.candidates.pods[at]
        kept = _why_kept(touchable, eligibility, around.earlier)
        why.append(kept)
        found.append(
            Contender(
                touchable.pod.namespace,
                touchable.pod.name,
                eligibility.evictability.ranking_of(touchable.pod, touchable.guidance),
                Resources(cpu, memory),
                Resources(cpu_headroom, memory_headroom),
                frozenset() if kept else _managed(touchable),
                touchable.pod.priority if rules.careful_evictions else 0,
            )
        )
    if not rules.careful_evictions:
        return Crowd(found, why, Terms(each_by_itself=rules.fit_by_resource), short)
    its, pressing = columns.nodes[node], _pressing(columns, node, around, short)
    terms = Terms(
        mend=frozenset(one for one in pressing if around.earlier.was_short(its.name, one)),
        each_by_itself=rules.fit_by_resource,
        lowest_apart=_lowest_apart(around.apart.get(node, ()), [columns.candidates.pods[at] for at in pods]),
    )
    if around.exits is not None:
        terms = replace(terms, exits=around.exits([columns.candidates.pods[at].pod for at in pods]))
    return Crowd(found, why, terms, pressing)


def _why_kept(touchable: Touchable, eligibility: Eligibility, earlier: Earlier) -> str | None:
    rules = eligibility.evictability
    kept = rules.why_kept(touchable.pod, touchable.guidance) or rules.why_not_now(touchable.pod)
    if kept is None and touchable.pod.uid in earlier.refused:
        return Detail.REFUSED_BEFORE
    return kept


def _pressing(
    columns: NodeColumns, node: int, around: Circumstances, short: frozenset[ResourceName]
) -> frozenset[ResourceName]:
    """Return what evictions mend where it lasts to the next pass: memory that is short, and CPU that is contended.

    The pressure is in the demand for CPU already, since time that containers waited for it counts as use.
    """
    most = CONTENDED_SHARE * columns.nodes[node].allocatable.cpu_millicores
    contended = bool(around.cpu_demand[node] > most)
    return frozenset(one for one in short if one is not ResourceName.CPU or contended)


def _lowest_apart(pods: Sequence[Pod], sized: Sequence[Touchable]) -> dict[ResourceName, int]:
    """Return for each resource the lowest priority of the pods that take some of it, and are not sized by it."""
    taking = [(pod, frozenset[ResourceName]()) for pod in pods]
    taking += [(one.pod, managed) for one in sized if len(managed := _managed(one)) < len(ResourceName)]
    lowest: dict[ResourceName, int] = {}
    for pod, managed in taking:
        counted = counted_requests(pod)
        for resource in ResourceName:
            if resource not in managed and counted.of(resource):
                lowest[resource] = min(pod.priority, lowest.get(resource, pod.priority))
    return lowest


def _managed(pod: Touchable) -> frozenset[ResourceName]:
    return _MANAGED[pod.manages_cpu, pod.manages_memory]


def fit_nodes(columns: NodeColumns, crowds: Crowds, short: Mapping[int, frozenset[ResourceName]]) -> Fit:
    """Decide the fit and the evictions of all nodes; `crowds` has those that are `short` of something."""
    fits, grows = ({one: np.ones(len(columns.nodes), dtype=np.bool_) for one in ResourceName} for _ in range(2))
    stays = np.ones(len(columns.candidates.pods), dtype=np.bool_)
    evicted: dict[int, tuple[Eviction, ...]] = {}
    unfit: dict[int, frozenset[ResourceName]] = {}
    kept: dict[int, str] = {}
    for node, crowd in crowds.items():
        room = Resources(*(int(columns.available[resource][node]) for resource in ResourceName))
        leaving = decide_evictions(crowd.contenders, room, crowd.terms)
        pods = columns.pods_of(node)
        kept |= {pods[at]: detail for at, detail in leaving.kept.items()}
        if leaving.unfit:
            unfit[node] = leaving.unfit
        for resource in leaving.over:
            fits[resource][node] = False
            grows[resource][node] = crowd.terms.each_by_itself
        if leaving.marked:
            evicted[node] = tuple(
                Eviction(pods[at.index], crowd.contenders[at.index].ranking, at.resource) for at in leaving.marked
            )
            stays[[eviction.index for eviction in evicted[node]]] = False
    pressing = {node: crowd.pressing for node, crowd in crowds.items() if crowd.pressing}
    return Fit(fits, grows, stays, evicted, short, pressing, unfit, kept)

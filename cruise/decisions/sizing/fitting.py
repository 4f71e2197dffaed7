"""The fit of nodes in columns: which hold their pods, who must go, what the others get, and which grows have room.

All nodes are decided together; only a node that does not hold its pods is looked at pod by pod.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from cruise.decisions.eviction.ranking import Contender, Marked, decide_evictions
from cruise.decisions.sizing.headroom.model import Headroom
from cruise.decisions.sizing.resize import PodSizes
from cruise.decisions.sizing.sharing import NodeColumns
from cruise.decisions.sizing.trimming import trim_growth, trim_to_room
from cruise.domain.arrays import BoolArray, Float64Array, Int64Array
from cruise.domain.policy import EvictionRanking
from cruise.domain.resources import ResourceName, Resources

# A pod's eviction ranking, and the resources on whose account it may go.
Judge = Callable[[int], tuple[EvictionRanking, frozenset[ResourceName]]]


@dataclass(frozen=True, slots=True)
class Fitted:
    """What every node holds and every container gets, before growth is cut to the room that there is now.

    `fits` has an entry a node, `stays` an entry a pod; `marked` has, for nodes with evictions, the marks with the
    indices of their pods, in marking order, and `rankings` those pods' rankings. `base` and `headroom` are those of the
    pods that stay, by node, and `extras` what the headroom model sums up over them; `sizes` has an entry a container.
    """

    fits: BoolArray
    stays: BoolArray
    marked: Mapping[int, tuple[Marked, ...]]
    rankings: Mapping[int, EvictionRanking]
    base: Mapping[ResourceName, Int64Array]
    headroom: Mapping[ResourceName, Int64Array]
    extras: Mapping[ResourceName, Float64Array]
    sizes: dict[ResourceName, Int64Array]


def fit_nodes(columns: NodeColumns, headroom: Headroom, judge: Judge) -> Fitted:
    """Decide the fit, the evictions and the sizes of all nodes; `judge` is asked where a node does not fit.

    Whatever the model wants, pods fit where there is room for one of them at a time at its peak: a headroom moves with
    every pass, and pods that were evicted for it are missed when it has shrunk again. It is shared as far as the room
    goes.
    """
    needs = _Needs(columns, headroom)
    stays = np.ones(len(columns.table.pods), dtype=np.bool_)
    sums = needs.of_nodes(stays)
    fits = np.ones(len(sums.base[ResourceName.CPU]), dtype=np.bool_)
    for resource in ResourceName:
        fits &= sums.base[resource] + sums.largest[resource] <= columns.available[resource]
    marked: dict[int, tuple[Marked, ...]] = {}
    rankings: dict[int, EvictionRanking] = {}
    for node in np.flatnonzero(~fits).tolist():
        found = needs.evictions(node, judge, rankings)
        if found is not None:
            fits[node] = True
            marked[node] = found
            stays[[mark.index for mark in found]] = False
    if marked:
        sums = needs.of_nodes(stays)
    shared = {resource: needs.shared(resource, sums) for resource in ResourceName}
    sizes = {resource: columns.sizes(resource, shared[resource], stays, fits) for resource in ResourceName}
    trim_to_room(columns, sizes, stays, fits)
    return Fitted(fits, stays, marked, rankings, sums.base, shared, sums.extras, sizes)


def pod_sizes(
    columns: NodeColumns,
    sizes: Mapping[ResourceName, Int64Array],
    counted: Mapping[ResourceName, Int64Array],
    stays: BoolArray,
) -> PodSizes:
    """Put limits and growth beside sizes; `counted` is what each pod counts now without its overhead."""
    cpu, memory = sizes[ResourceName.CPU], sizes[ResourceName.MEMORY]
    sums = columns.pod_sums(cpu, memory)
    return PodSizes(
        table=columns.table,
        cpu_millicores=cpu,
        memory_bytes=memory,
        memory_limit_bytes=columns.memory_limits(memory),
        cpu_limit_millicores=columns.cpu_limits(cpu),
        growth={
            resource: np.where(columns.manages[resource], np.maximum(sums[resource] - own, 0), 0)
            for resource, own in counted.items()
        },
        stays=stays,
    )


def cut_growth(
    columns: NodeColumns,
    decided: PodSizes,
    counted: Mapping[ResourceName, Int64Array],
    patched: Callable[[], BoolArray],
    again: Callable[[PodSizes, list[int]], None],
) -> None:
    """Cut grows to the room that pods leave which stay as they are.

    A pod inside its dead band or held back may ask for more than its size. Were others to grow by the sizes alone,
    their grows would wait for that room for ever. `patched` tells whose sizes are to be written; `again` gets the
    smaller sizes and the pods that were cut, until nothing is cut any more.
    """
    sizes = {ResourceName.CPU: decided.cpu_millicores.copy(), ResourceName.MEMORY: decided.memory_bytes.copy()}
    while cut := trim_growth(columns, sizes, counted, patched(), decided.stays):
        among = np.zeros(len(decided.stays), dtype=np.bool_)
        among[cut] = True
        again(pod_sizes(columns, sizes, counted, decided.stays & among), cut)


@dataclass(frozen=True, slots=True)
class _Sums:
    """What each node's pods need together: one entry a node, and a row of what the headroom model sums up."""

    base: Mapping[ResourceName, Int64Array]
    largest: Mapping[ResourceName, Int64Array]
    extras: Mapping[ResourceName, Float64Array]


class _Needs:
    """What pods need, in columns: bases, largest headrooms, and what the headroom model sums up."""

    def __init__(self, columns: NodeColumns, headroom: Headroom) -> None:
        table = columns.table
        self._columns, self._headroom = columns, headroom
        self._base = columns.pod_sums(table.cpu.base, table.memory.base)
        self._spike = {resource: columns.pod_maximum(columns.demand[resource].headroom) for resource in ResourceName}
        self._extras = {resource: self._extras_of_pods(resource) for resource in ResourceName}

    def _extras_of_pods(self, resource: ResourceName) -> Float64Array:
        table, demand = self._columns.table, self._columns.demand[resource]
        extras = self._headroom.extras(resource, table.rows, demand)
        if not extras.size:
            return np.empty((len(table.pods), extras.shape[1]))
        return np.asarray(np.add.reduceat(np.where(demand.managed[:, np.newaxis], extras, 0.0), table.first_container))

    def of_nodes(self, stays: BoolArray) -> "_Sums":
        """Sum up each node's pods that stay."""
        columns = self._columns
        return _Sums(
            base={one: columns.node_sum(np.where(stays, self._base[one], 0)) for one in ResourceName},
            largest={one: columns.node_maximum(np.where(stays, self._spike[one], 0)) for one in ResourceName},
            extras={
                one: columns.node_sums(np.where(stays[:, np.newaxis], self._extras[one], 0.0)) for one in ResourceName
            },
        )

    def shared(self, resource: ResourceName, sums: "_Sums") -> Int64Array:
        """Return the headroom that each node's pods share: what the model wants, as far as there is room."""
        base, largest = sums.base[resource], sums.largest[resource]
        wanted = self._headroom.of_nodes(resource, base, largest, sums.extras[resource])
        return np.asarray(np.minimum(wanted, np.maximum(self._columns.available[resource] - base, largest)))

    def evictions(self, node: int, judge: Judge, rankings: dict[int, EvictionRanking]) -> tuple[Marked, ...] | None:
        """Return whom to evict from a node that does not fit, with the indices of their pods; None where it is vain."""
        pods = self._columns.pods_of(node)
        amounts = (
            of_pods[resource][pods].tolist() for of_pods in (self._base, self._spike) for resource in ResourceName
        )
        contenders = []
        for at, cpu, memory, cpu_headroom, memory_headroom in zip(pods, *amounts, strict=True):
            pod = self._columns.table.pods[at].pod
            rankings[at], may_go = judge(at)
            contenders.append(
                Contender(
                    pod.namespace,
                    pod.name,
                    rankings[at],
                    Resources(cpu, memory),
                    Resources(cpu_headroom, memory_headroom),
                    may_go,
                )
            )
        available = self._columns.available
        room = Resources(int(available[ResourceName.CPU][node]), int(available[ResourceName.MEMORY][node]))
        marked = decide_evictions(contenders, room)
        return None if marked is None else tuple(Marked(pods[mark.index], mark.resource) for mark in marked)

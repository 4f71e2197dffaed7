"""One pass over nodes: what fits, who must go, what every surviving container gets.

All nodes are decided together, in columns; only a node that does not hold its pods is looked at pod by pod.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cruise.decisions.eviction import Contender, decide_evictions
from cruise.decisions.recommendation import DemandTable, recommend
from cruise.decisions.resize import PodSizes, choose_resizes
from cruise.decisions.scope import Scope, StoredOverrides, Touchable
from cruise.decisions.sharing import NodeColumns
from cruise.domain.actions import EvictPod, Hold, Reason, RefusedTarget, ResizePod
from cruise.domain.cluster import ContainerRole, Node, Pod, Snapshot
from cruise.domain.policy import EvictionRanking, Mode, Policy
from cruise.domain.requests import counted_requests
from cruise.domain.resources import ResourceName, Resources
from cruise.domain.usage import Int64Array, StatisticsTable


class ContainerSize(NamedTuple):
    """What one container shall have; `memory_limit_bytes` is 0 where it has no limit and gets none.

    The bases and headrooms say how the requests came about: base + share of the node's headroom, rounded, clamped.
    """

    namespace: str
    pod: str
    container: str
    role: ContainerRole
    cpu_millicores: int
    memory_bytes: int
    memory_limit_bytes: int
    cpu_base_millicores: int
    cpu_headroom_millicores: int
    memory_base_bytes: int
    memory_headroom_bytes: int


@dataclass(frozen=True, slots=True)
class NodePlan:
    """What to do on one node.

    `fits` tells whether the surviving pods' bases and the shared headroom fit `available`; where they do not,
    `reason` is `oversubscribed` and nothing grows. `evict` is in marking order, `resize` has the shrinks first,
    `targets` and `hold` are sorted by namespace, pod, container. `base` and `headroom` are those of the survivors,
    `counted` is what kube-scheduler counts on the node now.
    """

    node: str
    fits: bool
    reason: Reason | None
    available: Resources
    base: Resources
    headroom: Resources
    counted: Resources
    allocatable: Resources
    evict: tuple[EvictPod, ...] = ()
    targets: tuple[ContainerSize, ...] = ()
    resize: tuple[ResizePod, ...] = ()
    hold: tuple[Hold, ...] = ()


@dataclass(slots=True)
class _Room:
    """What a node has left for touchable pods, added up pod by pod."""

    node: Node
    touchable: list[Touchable] = field(default_factory=list)
    touchable_counted: list[Resources] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)
    counted_cpu: int = 0
    counted_memory: int = 0
    taken_cpu: int = 0
    taken_memory: int = 0

    @property
    def available(self) -> Resources:
        """What is left once fixed pods and overheads are taken off."""
        return self.node.allocatable - Resources(self.taken_cpu, self.taken_memory)

    @property
    def counted(self) -> Resources:
        """What kube-scheduler counts on the node now."""
        return Resources(self.counted_cpu, self.counted_memory)


def decide_node_plans(
    snapshot: Snapshot,
    statistics: StatisticsTable,
    policy: Policy,
    now: datetime,
    *,
    stored: StoredOverrides | None = None,
    refused: Mapping[str, RefusedTarget] | None = None,
    nodes: frozenset[str] | None = None,
) -> list[NodePlan]:
    """Decide every node of a snapshot, or only `nodes`; sorted by node name."""
    scope = Scope(snapshot, statistics, stored or {}, policy, now)
    rooms = _rooms(snapshot, scope, nodes)
    table = recommend([pod for room in rooms for pod in room.touchable], statistics, snapshot.limit_ranges, policy)
    return _Pass(rooms, table, scope).plans(snapshot, policy, refused or {}, now)


def _rooms(snapshot: Snapshot, scope: Scope, nodes: frozenset[str] | None) -> list[_Room]:
    """Sort every bound pod to its node, as touchable or as fixed, and take what is fixed from the node's room."""
    rooms = {node.name: _Room(node) for node in snapshot.nodes if nodes is None or node.name in nodes}
    for pod in snapshot.pods:
        room = rooms.get(pod.node) if pod.node is not None else None
        if room is None:
            continue
        counted = counted_requests(pod)
        cpu, memory = counted.cpu_millicores, counted.memory_bytes
        room.counted_cpu += cpu
        room.counted_memory += memory
        verdict = scope.of(pod)
        if isinstance(verdict, Hold):
            room.holds.append(verdict)
            room.taken_cpu += cpu
            room.taken_memory += memory
        else:
            room.touchable.append(verdict)
            room.touchable_counted.append(counted)
            room.taken_cpu += pod.overhead.cpu_millicores if verdict.manages_cpu else cpu
            room.taken_memory += pod.overhead.memory_bytes if verdict.manages_memory else memory
    return [rooms[name] for name in sorted(rooms)]


class _Pass:
    """One pass over rooms: what fits, who goes, what the others get."""

    def __init__(self, rooms: Sequence[_Room], table: DemandTable, scope: Scope) -> None:
        self._rooms = rooms
        self._table = table
        self._scope = scope
        self._columns = NodeColumns(
            [room.node for room in rooms],
            [room.available for room in rooms],
            [len(room.touchable) for room in rooms],
            table,
        )

    def plans(
        self, snapshot: Snapshot, policy: Policy, refused: Mapping[str, RefusedTarget], now: datetime
    ) -> list[NodePlan]:
        """Run the steps of the rules in their order."""
        table = self._table
        pod_base = self._columns.pod_sums(table.cpu.base, table.memory.base)
        pod_headroom = {
            ResourceName.CPU: self._columns.pod_maximum(table.cpu.headroom),
            ResourceName.MEMORY: self._columns.pod_maximum(table.memory.headroom),
        }
        fits = np.ones(len(self._rooms), dtype=np.bool_)
        for resource in ResourceName:
            need = self._columns.node_sum(pod_base[resource]) + self._columns.node_maximum(pod_headroom[resource])
            fits &= need <= self._columns.available[resource]
        gone = np.zeros(len(table.pods), dtype=np.bool_)
        evictions: dict[int, tuple[EvictPod, ...]] = {}
        for index in np.flatnonzero(~fits):
            marked = self._evict(int(index), pod_base, pod_headroom)
            if marked is not None:
                fits[index] = True
                evictions[int(index)] = tuple(action for _, action in marked)
                gone[[pod for pod, _ in marked]] = True
        stays = ~gone
        cpu = self._columns.sizes(ResourceName.CPU, table.cpu, stays, fits)
        memory = self._columns.sizes(ResourceName.MEMORY, table.memory, stays, fits)
        self._columns.trim(cpu, memory, stays, fits)
        limits = self._columns.memory_limits(memory)
        sizes = PodSizes(
            table=table,
            cpu_millicores=cpu,
            memory_bytes=memory,
            memory_limit_bytes=limits,
            cpu_limit_millicores=self._columns.cpu_limits(cpu),
            growth=self._columns.growth(
                [counted for room in self._rooms for counted in room.touchable_counted],
                self._columns.pod_sums(cpu, memory),
            ),
            stays=stays,
        )
        resizes, held = choose_resizes(sizes, snapshot.limit_ranges, policy, refused, now)
        return self._assemble(sizes, fits, evictions, resizes, held, stays)

    def _evict(
        self,
        index: int,
        base: Mapping[ResourceName, Int64Array],
        headroom: Mapping[ResourceName, Int64Array],
    ) -> list[tuple[int, EvictPod]] | None:
        room = self._rooms[index]
        start = int(np.searchsorted(self._columns.node_of_pod, index))
        contenders = []
        for offset, pod in enumerate(room.touchable):
            at = start + offset
            ranking = self._scope.ranking_of(pod.pod, pod.guidance)
            contenders.append(
                Contender(
                    pod.pod.namespace,
                    pod.pod.name,
                    ranking,
                    Resources(int(base[ResourceName.CPU][at]), int(base[ResourceName.MEMORY][at])),
                    Resources(int(headroom[ResourceName.CPU][at]), int(headroom[ResourceName.MEMORY][at])),
                    self._candidate_for(pod, ranking),
                )
            )
        marked = decide_evictions(contenders, room.available)
        if marked is None:
            return None
        return [
            (
                start + mark.index,
                _eviction(room.touchable[mark.index].pod, contenders[mark.index].ranking, mark.resource),
            )
            for mark in marked
        ]

    def _candidate_for(self, pod: Touchable, ranking: EvictionRanking) -> frozenset[ResourceName]:
        if ranking is EvictionRanking.NEVER or pod.guidance.mode < Mode.FULL or self._scope.why_unmovable(pod.pod):
            return frozenset()
        managed = ((ResourceName.CPU, pod.manages_cpu), (ResourceName.MEMORY, pod.manages_memory))
        return frozenset(resource for resource, manages in managed if manages)

    def _assemble(
        self,
        sizes: PodSizes,
        fits: NDArray[np.bool_],
        evictions: Mapping[int, tuple[EvictPod, ...]],
        resizes: Sequence[ResizePod | None],
        held: Sequence[Hold | None],
        stays: NDArray[np.bool_],
    ) -> list[NodePlan]:
        table, targets = self._table, _targets(self._table, sizes)
        base = self._columns.pod_sums(np.where(stays[table.pod_of], table.cpu.base, 0), table.memory.base)
        node_base = {r: self._columns.node_sum(np.where(stays, base[r], 0)) for r in ResourceName}
        staying = stays[table.pod_of]
        node_headroom = {
            resource: self._columns.node_maximum_of_containers(np.where(staying, demand.headroom, 0))
            for resource, demand in ((ResourceName.CPU, table.cpu), (ResourceName.MEMORY, table.memory))
        }
        pod_bounds = np.searchsorted(self._columns.node_of_pod, np.arange(len(self._rooms) + 1)).tolist()
        container_bounds = np.searchsorted(self._columns.node_of, np.arange(len(self._rooms) + 1)).tolist()
        plans = []
        for index, room in enumerate(self._rooms):
            first, last = pod_bounds[index], pod_bounds[index + 1]
            own = [resize for resize in resizes[first:last] if resize is not None]
            own.sort(key=lambda r: (r.growth != Resources(), r.namespace, r.pod))
            holds = [*room.holds, *(hold for hold in held[first:last] if hold is not None)]
            plans.append(
                NodePlan(
                    node=room.node.name,
                    fits=bool(fits[index]),
                    reason=None if fits[index] else Reason.OVERSUBSCRIBED,
                    available=room.available,
                    base=_at(node_base, index),
                    headroom=_at(node_headroom, index),
                    counted=room.counted,
                    allocatable=room.node.allocatable,
                    evict=evictions.get(index, ()),
                    targets=tuple(t for t in targets[container_bounds[index] : container_bounds[index + 1]] if t),
                    resize=tuple(own),
                    hold=tuple(sorted(holds, key=lambda hold: (hold.namespace, hold.pod))),
                )
            )
        return plans


def _targets(table: DemandTable, sizes: PodSizes) -> list[ContainerSize | None]:
    """Return the size of each container of the table, None for those of evicted pods."""
    named = [
        (pod.pod.namespace, pod.pod.name, container.name, container.role)
        for pod in table.pods
        for container in pod.sized
    ]
    columns = zip(
        sizes.cpu_millicores.tolist(),
        sizes.memory_bytes.tolist(),
        sizes.memory_limit_bytes.tolist(),
        table.cpu.raw_base.tolist(),
        table.cpu.headroom.tolist(),
        table.memory.raw_base.tolist(),
        table.memory.headroom.tolist(),
        strict=True,
    )
    found: list[ContainerSize | None] = [
        ContainerSize._make(name + values) for name, values in zip(named, columns, strict=True)
    ]
    for index in np.flatnonzero(~sizes.stays[table.pod_of]):
        found[index] = None
    return found


def _eviction(pod: Pod, ranking: EvictionRanking, resource: ResourceName) -> EvictPod:
    return EvictPod(pod.namespace, pod.name, pod.uid, pod.node, pod.workload, ranking, resource, Reason.DOES_NOT_FIT)


def _at(columns: Mapping[ResourceName, Int64Array], index: int) -> Resources:
    return Resources(int(columns[ResourceName.CPU][index]), int(columns[ResourceName.MEMORY][index]))

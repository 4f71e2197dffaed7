"""One pass over nodes: what fits, who must go, what every surviving container gets.

All nodes are decided together, in columns; only a node that does not hold its pods is looked at pod by pod.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from cruise.decisions.container_sizes import ContainerSize, ContainerSizes
from cruise.decisions.eviction import Contender, decide_evictions
from cruise.decisions.recommendation import DemandTable, recommend, whole_numbers
from cruise.decisions.resize import PodSizes, choose_resizes
from cruise.decisions.rooms import Rooms, rooms_of
from cruise.decisions.scope import Scope, StoredOverrides, Touchable
from cruise.decisions.sharing import NodeColumns
from cruise.decisions.trimming import trim_growth, trim_to_room
from cruise.domain.actions import EvictPod, Hold, Reason, RefusedTarget, ResizePod
from cruise.domain.cluster import Pod, Snapshot
from cruise.domain.policy import EvictionRanking, Mode, Policy
from cruise.domain.resources import ResourceName, Resources
from cruise.domain.usage import Int64Array, StatisticsTable


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
    targets: Sequence[ContainerSize] = ()
    resize: tuple[ResizePod, ...] = ()
    hold: tuple[Hold, ...] = ()


_MANAGED = {
    (cpu, memory): frozenset(r for r, managed in zip(ResourceName, (cpu, memory), strict=True) if managed)
    for cpu in (False, True)
    for memory in (False, True)
}


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
    rooms = rooms_of(snapshot, scope, nodes)
    table = recommend(rooms.touchable, statistics, snapshot.limit_ranges, policy)
    return _Pass(rooms, table, scope).plans(snapshot, policy, refused or {}, now)


class _Pass:
    """One pass over rooms: what fits, who goes, what the others get."""

    def __init__(self, rooms: Rooms, table: DemandTable, scope: Scope) -> None:
        self._rooms = rooms.rooms
        self._table = table
        self._scope = scope
        self._columns = NodeColumns(
            [room.node for room in rooms.rooms], [room.available for room in rooms.rooms], rooms.room_of, table
        )
        self._own = {
            ResourceName.CPU: whole_numbers(rooms.own_cpu),
            ResourceName.MEMORY: whole_numbers(rooms.own_memory),
        }

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
        sizes = {
            ResourceName.CPU: self._columns.sizes(ResourceName.CPU, table.cpu, stays, fits),
            ResourceName.MEMORY: self._columns.sizes(ResourceName.MEMORY, table.memory, stays, fits),
        }
        trim_to_room(self._columns, sizes, stays, fits)
        decided = self._pod_sizes(sizes, stays)
        resizes, held = self._resizes(decided, snapshot, policy, refused, now)
        return self._assemble(decided, fits, evictions, resizes, held, pod_base, pod_headroom)

    def _pod_sizes(self, sizes: Mapping[ResourceName, Int64Array], stays: NDArray[np.bool_]) -> PodSizes:
        cpu, memory = sizes[ResourceName.CPU], sizes[ResourceName.MEMORY]
        sums = self._columns.pod_sums(cpu, memory)
        return PodSizes(
            table=self._table,
            cpu_millicores=cpu,
            memory_bytes=memory,
            memory_limit_bytes=self._columns.memory_limits(memory),
            cpu_limit_millicores=self._columns.cpu_limits(cpu),
            growth={
                resource: np.where(self._columns.manages[resource], np.maximum(sums[resource] - own, 0), 0)
                for resource, own in self._own.items()
            },
            stays=stays,
        )

    def _resizes(
        self,
        decided: PodSizes,
        snapshot: Snapshot,
        policy: Policy,
        refused: Mapping[str, RefusedTarget],
        now: datetime,
    ) -> tuple[list[ResizePod | None], list[Hold | None]]:
        """Choose the resizes, and cut grows to the room that pods leave which stay as they are.

        A pod inside its dead band or held back may ask for more than its size. Were others to grow by the sizes
        alone, their grows would wait for that room for ever.
        """
        resizes, holds = choose_resizes(decided, snapshot.limit_ranges, policy, refused, now)
        sizes = {ResourceName.CPU: decided.cpu_millicores.copy(), ResourceName.MEMORY: decided.memory_bytes.copy()}
        while True:
            patched = np.array([r is not None and r.reason is Reason.RIGHTSIZED for r in resizes], dtype=np.bool_)
            cut = trim_growth(self._columns, sizes, self._own, patched, decided.stays)
            if not cut:
                return resizes, holds
            among = np.zeros(len(resizes), dtype=np.bool_)
            among[cut] = True
            smaller = self._pod_sizes(sizes, decided.stays & among)
            again, held = choose_resizes(smaller, snapshot.limit_ranges, policy, refused, now)
            for index in cut:
                pod = self._table.pods[index].pod
                resizes[index], holds[index] = again[index], held[index]
                if again[index] is None and held[index] is None:
                    holds[index] = Hold(pod.namespace, pod.name, Reason.WAITING_FOR_ROOM)

    def _evict(
        self,
        index: int,
        base: Mapping[ResourceName, Int64Array],
        headroom: Mapping[ResourceName, Int64Array],
    ) -> list[tuple[int, EvictPod]] | None:
        pods = self._columns.pods_of(index)
        touchable = [self._table.pods[at] for at in pods]
        columns = [of_pods[resource][pods].tolist() for of_pods in (base, headroom) for resource in ResourceName]
        contenders = []
        for pod, cpu, memory, cpu_headroom, memory_headroom in zip(touchable, *columns, strict=True):
            ranking = self._scope.ranking_of(pod.pod, pod.guidance)
            contenders.append(
                Contender(
                    pod.pod.namespace,
                    pod.pod.name,
                    ranking,
                    Resources(cpu, memory),
                    Resources(cpu_headroom, memory_headroom),
                    self._candidate_for(pod, ranking),
                )
            )
        marked = decide_evictions(contenders, self._rooms[index].available)
        if marked is None:
            return None
        return [
            (
                pods[mark.index],
                _eviction(self._table.pods[pods[mark.index]].pod, contenders[mark.index].ranking, mark.resource),
            )
            for mark in marked
        ]

    def _candidate_for(self, pod: Touchable, ranking: EvictionRanking) -> frozenset[ResourceName]:
        if ranking is EvictionRanking.NEVER or pod.guidance.mode < Mode.FULL or self._scope.why_unmovable(pod.pod):
            return frozenset()
        return _MANAGED[pod.manages_cpu, pod.manages_memory]

    def _assemble(
        self,
        sizes: PodSizes,
        fits: NDArray[np.bool_],
        evictions: Mapping[int, tuple[EvictPod, ...]],
        resizes: Sequence[ResizePod | None],
        held: Sequence[Hold | None],
        pod_base: Mapping[ResourceName, Int64Array],
        pod_headroom: Mapping[ResourceName, Int64Array],
    ) -> list[NodePlan]:
        stays = sizes.stays
        node_base = {r: self._columns.node_sum(np.where(stays, base, 0)) for r, base in pod_base.items()}
        node_headroom = {
            r: self._columns.node_maximum(np.where(stays, headroom, 0)) for r, headroom in pod_headroom.items()
        }
        plans = []
        for index, room in enumerate(self._rooms):
            pods = self._columns.pods_of(index)
            own = [resize for resize in map(resizes.__getitem__, pods) if resize is not None]
            # The pods of a room are in the order of their names already, and sorting keeps it.
            own.sort(key=_grows)
            holds = [*room.holds, *(hold for hold in map(held.__getitem__, pods) if hold is not None)]
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
                    targets=ContainerSizes(sizes, pods),
                    resize=tuple(own),
                    hold=tuple(sorted(holds, key=lambda hold: (hold.namespace, hold.pod))),
                )
            )
        return plans


def _grows(resize: ResizePod) -> bool:
    return resize.growth.cpu_millicores > 0 or resize.growth.memory_bytes > 0


def _eviction(pod: Pod, ranking: EvictionRanking, resource: ResourceName) -> EvictPod:
    return EvictPod(pod.namespace, pod.name, pod.uid, pod.node, pod.workload, ranking, resource, Reason.DOES_NOT_FIT)


def _at(columns: Mapping[ResourceName, Int64Array], index: int) -> Resources:
    return Resources(int(columns[ResourceName.CPU][index]), int(columns[ResourceName.MEMORY][index]))

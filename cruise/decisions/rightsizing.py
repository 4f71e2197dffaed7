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
from cruise.decisions.recommendation import (
    UNBOUNDED,
    UNIT,
    Demand,
    DemandTable,
    recommend,
    round_up,
    round_up_whole,
)
from cruise.decisions.resize import PodSizes, choose_resizes
from cruise.decisions.scope import Scope, StoredOverrides, Touchable
from cruise.domain.actions import EvictPod, Hold, Reason, RefusedTarget, ResizePod
from cruise.domain.cluster import ContainerRole, Node, Pod, Snapshot
from cruise.domain.policy import EvictionRanking, Mode, Policy
from cruise.domain.requests import counted_requests, init_floor
from cruise.domain.resources import MEBIBYTE, ResourceName, Resources
from cruise.domain.usage import Float64Array, Int64Array, StatisticsTable

FIRST_KUBELET_LOWERING_MEMORY_LIMITS = (1, 34)


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
    return _Fit(rooms, table, scope).plans(snapshot, policy, refused or {}, now)


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


class _Fit:
    """The columns of one pass, from bases to sizes."""

    def __init__(self, rooms: Sequence[_Room], table: DemandTable, scope: Scope) -> None:
        self._rooms = rooms
        self._table = table
        self._scope = scope
        self._node_of_pod = np.repeat(np.arange(len(rooms)), [len(room.touchable) for room in rooms])
        self._node_of = self._node_of_pod[table.pod_of]
        self._with_init = [
            (index, pod.pod)
            for index, pod in enumerate(table.pods)
            if any(container.role is ContainerRole.INIT for container in pod.pod.containers)
        ]
        self._manages = {
            ResourceName.CPU: np.array([pod.manages_cpu for pod in table.pods], dtype=np.bool_),
            ResourceName.MEMORY: np.array([pod.manages_memory for pod in table.pods], dtype=np.bool_),
        }
        self._available = {
            ResourceName.CPU: np.array([room.available.cpu_millicores for room in rooms], dtype=np.int64),
            ResourceName.MEMORY: np.array([room.available.memory_bytes for room in rooms], dtype=np.int64),
        }

    def plans(
        self, snapshot: Snapshot, policy: Policy, refused: Mapping[str, RefusedTarget], now: datetime
    ) -> list[NodePlan]:
        """Run the steps of the rules in their order."""
        table = self._table
        pod_base = self._pod_sums(table.cpu.base, table.memory.base)
        pod_headroom = {
            ResourceName.CPU: self._pod_maximum(table.cpu.headroom),
            ResourceName.MEMORY: self._pod_maximum(table.memory.headroom),
        }
        fits = np.ones(len(self._rooms), dtype=np.bool_)
        for resource in ResourceName:
            need = self._node_sum(pod_base[resource]) + self._node_maximum(pod_headroom[resource])
            fits &= need <= self._available[resource]
        gone = np.zeros(len(table.pods), dtype=np.bool_)
        evictions: dict[int, tuple[EvictPod, ...]] = {}
        for index in np.flatnonzero(~fits):
            marked = self._evict(int(index), pod_base, pod_headroom)
            if marked is not None:
                fits[index] = True
                evictions[int(index)] = tuple(action for _, action in marked)
                gone[[pod for pod, _ in marked]] = True
        stays = ~gone
        cpu = self._sizes(ResourceName.CPU, table.cpu, stays, fits)
        memory = self._sizes(ResourceName.MEMORY, table.memory, stays, fits)
        self._trim(cpu, memory, stays, fits)
        limits = self._memory_limits(memory)
        sizes = PodSizes(
            table=table,
            cpu_millicores=cpu,
            memory_bytes=memory,
            memory_limit_bytes=limits,
            cpu_limit_millicores=self._cpu_limits(cpu),
            growth=self._growth(self._pod_sums(cpu, memory)),
            stays=stays,
        )
        resizes, held = choose_resizes(sizes, snapshot.limit_ranges, policy, refused, now)
        return self._assemble(sizes, fits, evictions, resizes, held, stays)

    def _growth(self, after: Mapping[ResourceName, Int64Array]) -> dict[ResourceName, Int64Array]:
        """Return what each pod's counted requests rise by, 0 where they fall or are not managed."""
        pods = self._table.pods
        before = [counted for room in self._rooms for counted in room.touchable_counted]
        of = {
            ResourceName.CPU: [
                (c.cpu_millicores - p.pod.overhead.cpu_millicores) for c, p in zip(before, pods, strict=True)
            ],
            ResourceName.MEMORY: [
                (c.memory_bytes - p.pod.overhead.memory_bytes) for c, p in zip(before, pods, strict=True)
            ],
        }
        return {
            resource: np.where(
                self._manages[resource], np.maximum(after[resource] - np.array(of[resource], dtype=np.int64), 0), 0
            )
            for resource in ResourceName
        }

    def _evict(
        self,
        index: int,
        base: Mapping[ResourceName, Int64Array],
        headroom: Mapping[ResourceName, Int64Array],
    ) -> list[tuple[int, EvictPod]] | None:
        room = self._rooms[index]
        start = int(np.searchsorted(self._node_of_pod, index))
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

    def _sizes(
        self, resource: ResourceName, demand: Demand, stays: NDArray[np.bool_], fits: NDArray[np.bool_]
    ) -> Int64Array:
        """Return base plus the proportional share of the node's largest headroom, rounded up and clamped."""
        unit = UNIT[resource]
        headroom = np.where(stays[self._table.pod_of], demand.headroom, 0)
        largest = self._container_maximum_of_node(headroom)
        total = np.bincount(self._node_of, weights=headroom, minlength=len(self._rooms))
        ratio = np.divide(largest, total, out=np.zeros(len(self._rooms)), where=total > 0)
        final = round_up(demand.raw_base + headroom * ratio[self._node_of], unit)
        final = np.minimum(np.maximum(final, demand.lower), demand.upper)
        grows_nothing = ~fits[self._node_of]
        final = np.where(grows_nothing, np.minimum(final, demand.current), final)
        return np.where(demand.managed, final, demand.current)

    def _trim(self, cpu: Int64Array, memory: Int64Array, stays: NDArray[np.bool_], fits: NDArray[np.bool_]) -> None:
        """Take back what rounding and clamping put over a node's room, from the largest shares first."""
        for resource, final, demand in (
            (ResourceName.CPU, cpu, self._table.cpu),
            (ResourceName.MEMORY, memory, self._table.memory),
        ):
            unit = UNIT[resource]
            whole = np.clip(round_up_whole(demand.base, unit), demand.lower, demand.upper)
            least = np.clip(demand.base // unit * unit, demand.lower, demand.upper)
            for floor in (whole, least):
                self._trim_to(resource, final, np.minimum(final, floor), (cpu, memory), stays, fits)

    def _trim_to(
        self,
        resource: ResourceName,
        final: Int64Array,
        floor: Int64Array,
        sizes: tuple[Int64Array, Int64Array],
        stays: NDArray[np.bool_],
        fits: NDArray[np.bool_],
    ) -> None:
        """Cut until every node's sum fits or nothing is left to cut.

        A cut under a pod whose init containers set its sum frees nothing, so the sums are taken again each time.
        """
        over = self._excess(resource, *sizes, stays)
        while np.any((over > 0) & fits):
            cut = [
                self._trim_node(int(node), resource, int(over[node]), final, floor, stays)
                for node in np.flatnonzero((over > 0) & fits)
            ]
            if not any(cut):
                return
            over = self._excess(resource, *sizes, stays)

    def _trim_node(
        self,
        node: int,
        resource: ResourceName,
        excess: int,
        final: Int64Array,
        floor: Int64Array,
        stays: NDArray[np.bool_],
    ) -> bool:
        first, last = np.searchsorted(self._node_of, [node, node + 1])
        unit = UNIT[resource]
        wanted = excess
        order = sorted(range(first, last), key=lambda at: (int(floor[at] - final[at]), at))
        for at in order:
            if excess <= 0:
                break
            if not stays[self._table.pod_of[at]]:
                continue
            cut = min(int(final[at] - floor[at]), -(-excess // unit) * unit)
            final[at] -= cut
            excess -= cut
        return excess < wanted

    def _excess(
        self, resource: ResourceName, cpu: Int64Array, memory: Int64Array, stays: NDArray[np.bool_]
    ) -> Int64Array:
        sums = np.where(stays, self._pod_sums(cpu, memory)[resource], 0)
        return self._node_sum(sums) - self._available[resource]

    def _memory_limits(self, memory: Int64Array) -> Int64Array:
        """Return the memory limit of each container, 0 for none."""
        table = self._table
        safe = np.maximum(table.safe_memory_limit, memory)
        wanted = round_up_whole(np.maximum(table.wanted_memory_limit, safe), MEBIBYTE)
        capped = np.minimum(table.memory_limit_cap, _times(memory, table.memory_limit_ratio))
        # Where a LimitRange leaves no safe limit the value stays safe, and the pod is held for breaking the range.
        wanted = np.minimum(wanted, np.maximum(capped, safe))
        lowers = np.array(
            [
                room.node.kubelet_version is None or room.node.kubelet_version >= FIRST_KUBELET_LOWERING_MEMORY_LIMITS
                for room in self._rooms
            ],
            dtype=np.bool_,
        )[self._node_of]
        # An old kubelet refuses to add a limit as it refuses to lower one.
        kept = np.where(table.memory_limit > 0, np.maximum(wanted, table.memory_limit), 0)
        return np.where(table.memory.managed, np.where(lowers, wanted, kept), table.memory_limit)

    def _cpu_limits(self, cpu: Int64Array) -> Int64Array:
        """Return the CPU limit of each container: what the node has, where there is one already; 0 for none."""
        table = self._table
        whole = np.array([room.node.allocatable.cpu_millicores for room in self._rooms], dtype=np.int64)[self._node_of]
        cap = np.minimum(table.cpu_limit_cap, _times(cpu, table.cpu_limit_ratio))
        raised = np.maximum(np.minimum(whole, cap), cpu)
        return np.where(table.cpu.managed & (table.cpu_limit > 0), raised, table.cpu_limit)

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
        base = self._pod_sums(np.where(stays[table.pod_of], table.cpu.base, 0), table.memory.base)
        node_base = {r: self._node_sum(np.where(stays, base[r], 0)) for r in ResourceName}
        node_headroom = {
            ResourceName.CPU: self._container_maximum_of_node(np.where(stays[table.pod_of], table.cpu.headroom, 0)),
            ResourceName.MEMORY: self._container_maximum_of_node(
                np.where(stays[table.pod_of], table.memory.headroom, 0)
            ),
        }
        pod_bounds = np.searchsorted(self._node_of_pod, np.arange(len(self._rooms) + 1)).tolist()
        container_bounds = np.searchsorted(self._node_of, np.arange(len(self._rooms) + 1)).tolist()
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

    def _pod_sums(self, cpu: Int64Array, memory: Int64Array) -> dict[ResourceName, Int64Array]:
        """Sum containers to pods, floored by what their regular init containers need, without overhead."""
        sums = {ResourceName.CPU: self._sum_to_pods(cpu), ResourceName.MEMORY: self._sum_to_pods(memory)}
        for index, pod in self._with_init:
            first = int(self._table.first_container[index])
            sidecars = {
                container.name: Resources(int(cpu[first + offset]), int(memory[first + offset]))
                for offset, container in enumerate(self._table.pods[index].sized)
                if container.role is ContainerRole.SIDECAR
            }
            floor = init_floor(pod, sidecars)
            sums[ResourceName.CPU][index] = max(sums[ResourceName.CPU][index], floor.cpu_millicores)
            sums[ResourceName.MEMORY][index] = max(sums[ResourceName.MEMORY][index], floor.memory_bytes)
        for resource in ResourceName:
            sums[resource][~self._manages[resource]] = 0
        return sums

    def _sum_to_pods(self, values: Int64Array) -> Int64Array:
        if not len(self._table.pods):
            return np.zeros(0, dtype=np.int64)
        return np.add.reduceat(values, self._table.first_container)

    def _pod_maximum(self, values: Int64Array) -> Int64Array:
        if not len(self._table.pods):
            return np.zeros(0, dtype=np.int64)
        return np.maximum.reduceat(values, self._table.first_container)

    def _node_sum(self, of_pods: Int64Array) -> Int64Array:
        sums = np.zeros(len(self._rooms), dtype=np.int64)
        np.add.at(sums, self._node_of_pod, of_pods)
        return sums

    def _node_maximum(self, of_pods: Int64Array) -> Int64Array:
        largest = np.zeros(len(self._rooms), dtype=np.int64)
        np.maximum.at(largest, self._node_of_pod, of_pods)
        return largest

    def _container_maximum_of_node(self, values: Int64Array) -> Int64Array:
        largest = np.zeros(len(self._rooms), dtype=np.int64)
        np.maximum.at(largest, self._node_of, values)
        return largest


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


def _times(requests: Int64Array, ratio: Float64Array) -> Int64Array:
    """Return request x ratio, unbounded where the ratio is free."""
    return np.minimum(np.where(np.isinf(ratio), UNBOUNDED, requests * np.minimum(ratio, UNBOUNDED)), UNBOUNDED).astype(
        np.int64
    )


def _eviction(pod: Pod, ranking: EvictionRanking, resource: ResourceName) -> EvictPod:
    return EvictPod(pod.namespace, pod.name, pod.uid, pod.node, pod.workload, ranking, resource, Reason.DOES_NOT_FIT)


def _at(columns: Mapping[ResourceName, Int64Array], index: int) -> Resources:
    return Resources(int(columns[ResourceName.CPU][index]), int(columns[ResourceName.MEMORY][index]))

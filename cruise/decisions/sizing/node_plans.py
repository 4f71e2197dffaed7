"""One pass over nodes: what fits, who must go, what every surviving container gets, and what is done about it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import numpy as np

from cruise.decisions.guidance.eligibility import Scope, Touchable
from cruise.decisions.sizing.container_sizes import ContainerSize, ContainerSizes
from cruise.decisions.sizing.fitting import Fitted, cut_growth, fit_nodes, pod_sizes
from cruise.decisions.sizing.headroom.model import Headroom
from cruise.decisions.sizing.headroom.shared_max import SHARED_MAX
from cruise.decisions.sizing.recommendation import recommend
from cruise.decisions.sizing.resize import PodSizes, choose_resizes
from cruise.decisions.sizing.rooms import Room, rooms_of
from cruise.decisions.sizing.sharing import NodeColumns, columns_of
from cruise.domain.actions import EvictPod, Hold, Reason, RefusedTarget, ResizePod
from cruise.domain.arrays import BoolArray, Float64Array, Int64Array, whole_numbers
from cruise.domain.cluster import Pod, Snapshot
from cruise.domain.overrides import StoredOverrides
from cruise.domain.policy import EvictionRanking, Mode, Policy
from cruise.domain.resources import ResourceName, Resources
from cruise.domain.usage import StatisticsTable


@dataclass(frozen=True, slots=True)
class NodePlan:
    """What to do on one node.

    `fits` tells whether the surviving pods' bases and the shared headroom fit `available`; where they do not,
    `reason` is `oversubscribed` and nothing grows. `evict` is in marking order, `resize` has the shrinks first,
    `targets` and `hold` are sorted by namespace, pod, container. `base` and `headroom` are those of the survivors,
    `counted` is what kube-scheduler counts on the node now, `extras` what the headroom model summed up of CPU and of
    memory over the containers of `targets`.
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
    extras: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())
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
    headroom: Headroom = SHARED_MAX,
) -> list[NodePlan]:
    """Decide every node of a snapshot, or only `nodes`; sorted by node name.

    `headroom` is prepared for the rows of `statistics`.
    """
    scope = Scope(snapshot, statistics, stored or {}, policy, now)
    rooms = rooms_of(snapshot, scope, nodes)
    table = recommend(rooms.touchable, statistics, snapshot.limit_ranges, policy)
    columns = NodeColumns(
        [room.node for room in rooms.rooms],
        columns_of([room.available for room in rooms.rooms]),
        np.array(rooms.room_of, dtype=np.int64),
        table,
    )
    fitted = fit_nodes(columns, headroom, lambda pod: judged(table.pods[pod], scope))
    counted = {ResourceName.CPU: whole_numbers(rooms.own_cpu), ResourceName.MEMORY: whole_numbers(rooms.own_memory)}
    decided = pod_sizes(columns, fitted.sizes, counted, fitted.stays)
    chosen = _Chosen(columns, decided, snapshot, policy, refused or {}, now)
    cut_growth(columns, decided, counted, chosen.patched, chosen.again)
    return [_plan(room, columns, fitted, decided, chosen) for room in rooms.rooms]


def judged(pod: Touchable, scope: Scope) -> tuple[EvictionRanking, frozenset[ResourceName]]:
    """Return a pod's eviction ranking, and the resources on whose account it may go."""
    ranking = scope.ranking_of(pod.pod, pod.guidance)
    if ranking is EvictionRanking.NEVER or pod.guidance.mode < Mode.FULL or scope.why_unmovable(pod.pod):
        return ranking, frozenset()
    return ranking, _MANAGED[pod.manages_cpu, pod.manages_memory]


class _Chosen:
    """The resizes chosen, and who is held back, one entry a pod."""

    def __init__(
        self,
        columns: NodeColumns,
        decided: PodSizes,
        snapshot: Snapshot,
        policy: Policy,
        refused: Mapping[str, RefusedTarget],
        now: datetime,
    ) -> None:
        self._pods = columns.table.pods
        self._choose = partial(
            choose_resizes, limit_ranges=snapshot.limit_ranges, policy=policy, refused=refused, now=now
        )
        self.resizes, self.holds = self._choose(decided)

    def patched(self) -> BoolArray:
        """Tell for each pod whether its decided sizes are to be written."""
        return np.array([r is not None and r.reason is Reason.RIGHTSIZED for r in self.resizes], dtype=np.bool_)

    def again(self, smaller: PodSizes, cut: list[int]) -> None:
        """Choose anew for pods whose growth was cut."""
        resizes, holds = self._choose(smaller)
        for index in cut:
            pod = self._pods[index].pod
            self.resizes[index], self.holds[index] = resizes[index], holds[index]
            if resizes[index] is None and holds[index] is None:
                self.holds[index] = Hold(pod.namespace, pod.name, Reason.WAITING_FOR_ROOM)


def _plan(room: Room, columns: NodeColumns, fitted: Fitted, decided: PodSizes, chosen: _Chosen) -> NodePlan:
    node, pods = room.number, columns.pods_of(room.number)
    own = [resize for resize in map(chosen.resizes.__getitem__, pods) if resize is not None]
    # The pods of a room are in the order of their names already, and sorting keeps it.
    own.sort(key=_grows)
    holds = [*room.holds, *(hold for hold in map(chosen.holds.__getitem__, pods) if hold is not None)]
    return NodePlan(
        node=room.node.name,
        fits=bool(fitted.fits[node]),
        reason=None if fitted.fits[node] else Reason.OVERSUBSCRIBED,
        available=room.available,
        base=_at(fitted.base, node),
        headroom=_at(fitted.headroom, node),
        counted=room.counted,
        allocatable=room.node.allocatable,
        evict=tuple(
            _eviction(columns.table.pods[mark.index].pod, fitted.rankings[mark.index], mark.resource)
            for mark in fitted.marked.get(node, ())
        ),
        targets=ContainerSizes(decided, pods),
        resize=tuple(own),
        hold=tuple(sorted(holds, key=lambda hold: (hold.namespace, hold.pod))),
        extras=(_row(fitted.extras, ResourceName.CPU, node), _row(fitted.extras, ResourceName.MEMORY, node)),
    )


def _grows(resize: ResizePod) -> bool:
    return resize.growth.cpu_millicores > 0 or resize.growth.memory_bytes > 0


def _eviction(pod: Pod, ranking: EvictionRanking, resource: ResourceName) -> EvictPod:
    return EvictPod(pod.namespace, pod.name, pod.uid, pod.node, pod.workload, ranking, resource, Reason.DOES_NOT_FIT)


def _at(columns: Mapping[ResourceName, Int64Array], index: int) -> Resources:
    return Resources(int(columns[ResourceName.CPU][index]), int(columns[ResourceName.MEMORY][index]))


def _row(rows: Mapping[ResourceName, Float64Array], resource: ResourceName, index: int) -> tuple[float, ...]:
    return tuple(rows[resource][index].tolist())

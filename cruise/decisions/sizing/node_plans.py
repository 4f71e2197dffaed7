"""One pass over nodes: what fits, which pods must go, what every other container gets, and what is done about it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np

from cruise.decisions.eviction.destinations import Destinations, Prospects, Spare
from cruise.decisions.eviction.earlier import SAME_AGAIN, Earlier
from cruise.decisions.guidance.eligibility import Eligibility
from cruise.decisions.sizing.calm import Why
from cruise.decisions.sizing.causes import Cause, Refusals
from cruise.decisions.sizing.container_sizes import ContainerSize, ContainerSizes
from cruise.decisions.sizing.fitting import Circumstances, Crowds, crowds_of, fit_nodes, shortages
from cruise.decisions.sizing.headroom.model import Headroom
from cruise.decisions.sizing.headroom.shared_max import SHARED_MAX
from cruise.decisions.sizing.lasting import calm_of, containers_below, nodes_above
from cruise.decisions.sizing.node_columns import NodeColumns, columns_of
from cruise.decisions.sizing.node_sizes import Sized, size_nodes
from cruise.decisions.sizing.quota_bounds import within_quotas
from cruise.decisions.sizing.recommendation import recommend
from cruise.decisions.sizing.resize import is_forgotten, withdraw_pending
from cruise.decisions.sizing.rooms import Room, Rooms, rooms_of
from cruise.decisions.sizing.sharing import Shares
from cruise.decisions.sizing.wishes import yielding
from cruise.domain.actions import EvictPod, Hold, Reason, RefusedTarget, ResizePod
from cruise.domain.arrays import Int64Array, whole_numbers
from cruise.domain.cluster import Snapshot
from cruise.domain.overrides import StoredOverrides
from cruise.domain.policy import Policy
from cruise.domain.resources import NO_RESOURCES, ResourceName, Resources
from cruise.domain.usage import StatisticsTable

_HELD = {
    Cause.REFUSED: Reason.REFUSED,
    Cause.LIMIT_RANGE: Reason.LIMIT_RANGE,
    Cause.QOS_CHANGE: Reason.QOS_CHANGE,
    Cause.WAITING_FOR_ROOM: Reason.WAITING_FOR_ROOM,
    Cause.QUOTA: Reason.QUOTA,
}


# What finds the replacements of evicted pods, for one snapshot; None where evictions need not know them.
Replacements = Callable[[Snapshot, Eligibility, StatisticsTable, Policy], Prospects | None]


@dataclass(frozen=True, slots=True)
class NodePlan:
    """What to do on one node.

    `fits` tells whether the surviving pods' bases and the largest headroom fit `available`; of what does not fit they
    share what there is, the bases first, and `reason` is `oversubscribed` where no eviction would mend it, `crowded`
    where none is due. `short` is what the node was short of before anyone goes, and `pressing` what of it
    evictions mend if the next pass finds it again. `evict` is in marking order, `resize`
    has the shrinks first, `targets` and `hold` are sorted by namespace, pod, container. `base` and `headroom` are those
    of the survivors, `growing` are pods whose memory only grows, towards a limit that does not follow, whatever else is
    done about them; `own_headrooms` is the sum of what each of their containers has by itself, zero where headroom is
    not shared by it. `counted` is what kube-scheduler counts on the node now. `above` has the resources whose sum is
    above its band, and `below` the containers, by uid and name, whose bases are above their requests.
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
    own_headrooms: Resources = NO_RESOURCES
    resize: tuple[ResizePod, ...] = ()
    hold: tuple[Hold, ...] = ()
    short: frozenset[ResourceName] = frozenset()
    pressing: frozenset[ResourceName] = frozenset()
    growing: tuple[Hold, ...] = ()
    above: frozenset[ResourceName] = frozenset()
    below: tuple[tuple[str, str, ResourceName], ...] = ()


@dataclass(frozen=True, slots=True)
class SizedNodes:
    """What a pass sized: the rooms of the nodes, the crowded ones' pods, and every step of the sizes in columns."""

    rooms: Sequence[Room]
    sized: Sized
    crowds: Crowds = field(default_factory=dict)


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
    earlier: Earlier = SAME_AGAIN,
    replacements: Replacements | None = None,
) -> list[NodePlan]:
    """Decide every node of a snapshot, or only `nodes`; sorted by node name.

    `headroom` is prepared for the rows of `statistics`. `earlier` is what the pass before saw. Without `replacements`
    every evicted pod is taken to have somewhere to go.
    """
    eligibility = Eligibility(snapshot, statistics, stored or {}, policy, now)
    found = size_snapshot(
        snapshot,
        eligibility,
        statistics,
        policy,
        now,
        refused=refused,
        nodes=nodes,
        headroom=headroom,
        earlier=earlier,
        replacements=replacements,
    )
    return plans_of(found, policy, refused or {}, now)


def size_snapshot(
    snapshot: Snapshot,
    eligibility: Eligibility,
    statistics: StatisticsTable,
    policy: Policy,
    now: datetime,
    *,
    refused: Mapping[str, RefusedTarget] | None = None,
    nodes: frozenset[str] | None = None,
    headroom: Headroom = SHARED_MAX,
    earlier: Earlier = SAME_AGAIN,
    replacements: Replacements | None = None,
) -> SizedNodes:
    """Put the touchable pods of a snapshot, or of some `nodes`, into columns, and size them."""
    rooms = rooms_of(snapshot, eligibility, nodes)
    counted = {ResourceName.CPU: whole_numbers(rooms.own_cpu), ResourceName.MEMORY: whole_numbers(rooms.own_memory)}
    table = recommend(rooms.touchable, statistics, snapshot.limit_ranges, policy)
    demanded = NodeColumns(
        nodes=[room.node for room in rooms.rooms],
        available=columns_of([room.available for room in rooms.rooms]),
        node_of_pod=np.array(rooms.room_of, dtype=np.int64),
        counted=counted,
        table=within_quotas(table, counted, snapshot.quotas) if policy.rules.quotas and snapshot.quotas else table,
    )

    def crowds_at(
        columns: NodeColumns, short: Mapping[int, frozenset[ResourceName]]
    ) -> tuple[Crowds, Destinations | None]:
        if not short:
            return {}, None
        prospects = replacements(snapshot, eligibility, statistics, policy) if replacements is not None else None
        places = None if prospects is None else Destinations(snapshot, prospects, _spare(columns, rooms.rooms))
        around = Circumstances(
            cpu_demand=_cpu_demand(columns, rooms.rooms, short, statistics),
            earlier=earlier,
            apart={node: rooms.rooms[node].apart for node in short},
            exits=None if places is None else places.of_node,
        )
        return crowds_of(columns, eligibility, policy.rules, around, short), places

    short = shortages(demanded)
    crowds, places = crowds_at(demanded, short)
    columns = yielding(demanded, [node for node, crowd in crowds.items() if crowd.has_candidates])
    if columns is not demanded:
        short = shortages(columns)
        crowds, places = crowds_at(columns, short)
    fit = fit_nodes(columns, crowds, short)
    if places is not None and fit.evicted:
        promised, going = places.promised(), [one.index for marked in fit.evicted.values() for one in marked]
        fit = replace(
            fit,
            promised={at: promised[one.name] for at, one in enumerate(columns.nodes) if one.name in promised},
            awaited={at: places.need_of_replacement(columns.candidates.pods[at].pod) for at in going},
        )
    refusals = Refusals(snapshot.limit_ranges, _still_refused(rooms, refused or {}, policy, now))
    calm = calm_of(columns, earlier, policy, now)
    return SizedNodes(rooms.rooms, size_nodes(columns, fit, headroom, refusals, calm), crowds)


def _still_refused(
    rooms: Rooms, refused: Mapping[str, RefusedTarget], policy: Policy, now: datetime
) -> Mapping[str, RefusedTarget]:
    """Return the refusals that still stand."""
    standing = dict(refused)
    for touchable, number in zip(rooms.touchable, rooms.room_of, strict=True) if refused else ():
        pod, room = touchable.pod, rooms.rooms[number]
        earlier = refused.get(pod.uid)
        if earlier is None:
            continue
        left = room.available_beside(pod)
        if is_forgotten(earlier, left, room.node.allocatable, policy, now):
            del standing[pod.uid]
    return standing


def _cpu_demand(
    columns: NodeColumns, rooms: Sequence[Room], short: Iterable[int], statistics: StatisticsTable
) -> Int64Array:
    """Return what the pods of each node demand of CPU at P75; those apart count on the nodes that are short alone."""
    demand = columns.node_total(statistics.cpu_base_millicores[columns.table.rows]).astype(np.int64)
    for node in short:
        for pod in rooms[node].apart:
            for container in () if pod.terminal else pod.sized_containers:
                row = statistics.find(pod.namespace, pod.name, pod.workload, container.name, pod.identity)
                demand[node] += 0 if row is None else int(statistics.cpu_base_millicores[row])
    return demand


def _spare(columns: NodeColumns, rooms: Sequence[Room]) -> dict[str, Spare]:
    """Return what each node could give to more pods: of CPU beside the bases, of memory beside the headroom as well."""
    cpu, memory = (columns.available[resource] - columns.base_of_nodes[resource] for resource in ResourceName)
    found = {}
    for room, *beside in zip(
        rooms, cpu.tolist(), memory.tolist(), columns.spike_of_nodes[ResourceName.MEMORY].tolist(), strict=True
    ):
        free, (of_cpu, of_memory, spike) = room.node.allocatable - room.counted, beside
        at_most = free.at_least(Resources(of_cpu, of_memory))
        found[room.node.name] = Spare(free, Resources(of_cpu, of_memory - spike), at_most)
    return found


def plans_of(found: SizedNodes, policy: Policy, refused: Mapping[str, RefusedTarget], now: datetime) -> list[NodePlan]:
    """Return what to do on each node of `rooms`, which may be some of those that were sized."""
    resizes, holds = _resizes(found, policy, refused, now)
    growing, below = _growing(found.sized), containers_below(found.sized)
    return [
        replace(
            _plan(room, found.sized, resizes, holds, growing),
            above=nodes_above(found.sized, room.number),
            below=tuple(below.get(room.number, ())),
        )
        for room in found.rooms
    ]


def _growing(sized: Sized) -> Mapping[int, Sequence[Hold]]:
    """Return the pods whose memory only grows, by the index of their node."""
    columns, found = sized.columns, dict[int, list[Hold]]()
    names: dict[int, list[str]] = {}
    for at in np.flatnonzero(sized.unchecked).tolist():
        pod = int(columns.candidates.pod_of[at])
        container = columns.candidates.pods[pod].sized[at - int(columns.candidates.first_container[pod])]
        names.setdefault(pod, []).append(container.name)
    for index, containers in names.items():
        pod_there, node = columns.candidates.pods[index].pod, int(columns.node_of_pod[index])
        hold = Hold(pod_there.namespace, pod_there.name, Reason.MEMORY_GROWS, ", ".join(containers))
        found.setdefault(node, []).append(hold)
    return found


def _resizes(
    found: SizedNodes, policy: Policy, refused: Mapping[str, RefusedTarget], now: datetime
) -> tuple[list[ResizePod | None], list[Hold | None]]:
    """Return for each pod its resize, or why it is held back; both None where it is settled, evicted or elsewhere."""
    sized = found.sized
    table = sized.columns.table
    here = np.zeros(len(sized.columns.nodes), dtype=np.bool_)
    here[[room.number for room in found.rooms]] = True
    here = here[sized.columns.node_of_pod]
    resizes: list[ResizePod | None] = [None] * len(table.candidates.pods)
    holds: list[Hold | None] = [None] * len(table.candidates.pods)
    for index in np.flatnonzero(here & (sized.causes > Cause.RIGHTSIZED)).tolist():
        cause, touchable = Cause(int(sized.causes[index])), table.candidates.pods[index]
        if cause is Cause.RESIZING:
            resizes[index], holds[index] = withdraw_pending(touchable, policy, refused, now)
        elif cause is not Cause.EVICTED:
            holds[index] = Hold(touchable.pod.namespace, touchable.pod.name, _HELD[cause])
    written = here & sized.rightsized
    indices = np.flatnonzero(written)
    growth_cpu, growth_memory = (sized.growth(resource)[indices].tolist() for resource in ResourceName)
    for index, targets, cpu, memory in zip(
        indices.tolist(), sized.written.targets(table, written), growth_cpu, growth_memory, strict=True
    ):
        growth, pod = Resources(cpu, memory) if cpu or memory else NO_RESOURCES, table.candidates.pods[index].pod
        resizes[index] = ResizePod(
            pod.namespace,
            pod.name,
            pod.uid,
            pod.node,
            pod.workload,
            targets,
            growth,
            Reason.RIGHTSIZED,
            None if sized.why is None else Why(int(sized.why[index])).cause,
        )
    return resizes, holds


def _own_headroom(shares: Shares, node: int) -> int:
    return 0 if shares.by_base[node] else int(shares.total[node])


def _plan(
    room: Room,
    sized: Sized,
    resizes: Sequence[ResizePod | None],
    holds: Sequence[Hold | None],
    growing: Mapping[int, Sequence[Hold]],
) -> NodePlan:
    node, table, pods = room.number, sized.columns.table, sized.columns.pods_of(room.number)
    cpu, memory = sized.sums[ResourceName.CPU], sized.sums[ResourceName.MEMORY]
    own = [resize for resize in map(resizes.__getitem__, pods) if resize is not None]
    # The pods of a room are in the order of their names already, and sorting keeps it.
    own.sort(key=lambda resize: resize.grows)
    held = [*room.holds, *(hold for hold in map(holds.__getitem__, pods) if hold is not None)]
    fits = all(bool(fits[node]) for fits in sized.fit.fits.values())
    reason = Reason.OVERSUBSCRIBED if node in sized.fit.unfit else Reason.CROWDED
    return NodePlan(
        node=room.node.name,
        fits=fits,
        reason=None if fits else reason,
        available=room.available,
        base=Resources(int(cpu.base[node]), int(memory.base[node])),
        headroom=Resources(int(cpu.headroom[node]), int(memory.headroom[node])),
        counted=room.counted,
        allocatable=room.node.allocatable,
        evict=tuple(one.action(table.candidates.pods[one.index].pod) for one in sized.fit.evicted.get(node, ())),
        targets=ContainerSizes(sized, pods),
        resize=tuple(own),
        hold=tuple(sorted(held, key=lambda hold: (hold.namespace, hold.pod))),
        growing=tuple(growing.get(node, ())),
        own_headrooms=Resources(*(_own_headroom(sized.shares[one], node) for one in ResourceName)),
        short=sized.fit.short.get(node, frozenset()),
        pressing=sized.fit.pressing.get(node, frozenset()),
    )

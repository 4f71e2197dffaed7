"""What in the cluster contradicts what is left of a plan: then it is dropped whole and solved anew."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from cruise.decisions.packing.execution.places import Places, rest_of
from cruise.decisions.packing.execution.rest import need_of, sizes_of
from cruise.decisions.packing.judging.leaving import Leaving
from cruise.decisions.packing.judging.replay import Replay
from cruise.domain.actions import ResizePod
from cruise.domain.cluster import Node, Pod, Snapshot
from cruise.domain.cordons import passes_cordons
from cruise.domain.halts import Halt, HaltCode
from cruise.domain.overrides import StoredOverrides
from cruise.domain.packing import Arrival, PackingPlan, Preemption, Stage
from cruise.domain.policy import Policy
from cruise.domain.requests import counted_requests
from cruise.domain.resources import NO_RESOURCES


def find_contradictions(
    plan: PackingPlan, snapshot: Snapshot, places: Places, policy: Policy, stored: StoredOverrides
) -> tuple[Halt, ...]:
    """Judge all that is left of a plan whose present stage has evicted no pod yet.

    What disruption budgets allow now is not judged: they allow more once replacements are ready.
    """
    settled = _settled_by_itself(plan, places)
    if settled is not None:
        return (settled,)
    if any(places.pod_of(one) is None and one.uid in places.left for one in plan.proposal.stages[plan.stage].arrivals):
        # The replacement of a pending pod is not there yet.
        return ()
    rest = rest_of(plan, places)
    later: list[Arrival | Preemption | ResizePod] = [*rest.placed, *rest.moves, *rest.preempted, *rest.resizes]
    gone = {f"{one.namespace}/{one.pod}" for one in later if one.uid not in places.pods}
    if gone:
        return tuple(Halt(HaltCode.POD_GONE, name) for name in sorted(gone))
    replay = Replay(snapshot, rest, Leaving(snapshot, policy, stored))
    replay.run()
    return tuple(Halt(HaltCode.OBJECTION, detail=words) for words in replay.objections)


def find_obstacles(stage: Stage, snapshot: Snapshot, places: Places) -> Iterator[Halt]:
    """Say what keeps pods of the present stage from where they are to arrive, without judging the whole plan.

    Room is looked at once evictions have begun: until then it may be made yet.
    """
    if not places.evicting:
        named: list[Arrival | Preemption | ResizePod] = [*stage.resizes, *stage.leaves, *stage.arrivals]
        gone = {one.uid: one for one in named if one.uid not in places.pods and one.uid not in places.left}
        yield from (Halt(HaltCode.POD_GONE, f"{one.namespace}/{one.pod}") for one in gone.values())
    nodes = {node.name: node for node in snapshot.nodes}
    waiting: defaultdict[str, list[Arrival]] = defaultdict(list)
    for one in stage.arrivals:
        if places.node_of(one) is None:
            waiting[one.target].append(one)
    leaving = {one.uid for one in stage.leaves}
    staying: defaultdict[str | None, list[Pod]] = defaultdict(list)
    for pod in snapshot.pods if places.evicting else ():
        if pod.node in waiting and not pod.terminal and pod.uid not in leaving:
            staying[pod.node].append(pod)
    for target, arriving in sorted(waiting.items()):
        node = nodes.get(target)
        if node is None:
            yield Halt(HaltCode.NODE_GONE, target)
        elif not node.takes_pods or (node.unschedulable and not all(_passes_cordons(one, places) for one in arriving)):
            yield Halt(HaltCode.NODE_CLOSED, target)
        elif places.evicting and not _has_room(node, stage, arriving, staying[target], places):
            yield Halt(HaltCode.NODE_FULL, target)


def _passes_cordons(arrival: Arrival, places: Places) -> bool:
    pictured = places.pictured(arrival)
    return pictured is not None and passes_cordons(pictured)


def _has_room(node: Node, stage: Stage, arriving: Sequence[Arrival], staying: Sequence[Pod], places: Places) -> bool:
    pictured = ((places.pictured(one), sizes_of(stage, one)) for one in arriving)
    taken = sum(map(counted_requests, staying), NO_RESOURCES)
    taken += sum((need_of(pod, sizes) for pod, sizes in pictured if pod is not None), NO_RESOURCES)
    return taken.fits_in(node.allocatable) and len(staying) + len(arriving) <= node.allocatable_pods


def _settled_by_itself(plan: PackingPlan, places: Places) -> Halt | None:
    """Say which pod has found a node in the meantime, where others would be evicted for nothing.

    They would not where more is to come to the nodes that they leave: what fits without that has come by itself.
    """
    stages = plan.proposal.stages[plan.stage :]
    evicting = next((number for number, stage in enumerate(stages) if stage.leaves), len(stages))
    found = next((one for stage in stages[evicting:] for one in stage.arrivals if _is_bound(one, places)), None)
    coming = {one.target for stage in stages for one in stage.arrivals if not _is_bound(one, places)}
    if found is None or all(leave.source in coming for stage in stages[evicting:] for leave in stage.leaves):
        return None
    return Halt(HaltCode.CAME_BY_ITSELF, f"{found.namespace}/{found.pod}")


def _is_bound(arrival: Arrival, places: Places) -> bool:
    return arrival.source is None and arrival.uid not in places.left and places.node_of(arrival) is not None

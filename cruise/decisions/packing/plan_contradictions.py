"""Finds what in the present cluster contradicts a plan that is being carried out."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from cruise.decisions.packing.eviction_rules import EvictionRules
from cruise.decisions.packing.expected_pods import (
    StageArrivalPods,
    get_remaining_plan,
)
from cruise.decisions.packing.plan_replay import PlanReplay
from cruise.decisions.packing.remaining_plan import (
    count_arrival_requests,
    get_arrival_sizes,
)
from cruise.domain.actions import ResizePod
from cruise.domain.cluster import ClusterSnapshot, Node, Pod
from cruise.domain.overrides import PausedWorkloads
from cruise.domain.packing_plan import (
    PackingPlan,
    PlannedPlacement,
    PlannedPreemption,
    PlanStage,
)
from cruise.domain.pod_resources import count_pod_requests, may_be_planned_on_cordoned_node
from cruise.domain.policy import Policy
from cruise.domain.reasons import PlanCondition, PlanStatusReason
from cruise.domain.resources import NO_RESOURCES


def find_plan_contradictions(
    plan: PackingPlan,
    snapshot: ClusterSnapshot,
    places: StageArrivalPods,
    policy: Policy,
    paused_workloads: PausedWorkloads,
) -> tuple[PlanCondition, ...]:
    """Return what contradicts the remaining plan, before the current stage has evicted a pod.

    Disruption budgets are not checked: they allow more evictions once replacements are ready.
    """
    scheduled = _find_scheduled_without_plan(plan, places)
    if scheduled is not None:
        return (scheduled,)
    if any(places.get_pod(one) is None and one.uid in places.left for one in plan.proposal.stages[plan.stage].arrivals):
        # The replacement of a recreated pod does not exist yet.
        return ()
    remaining = get_remaining_plan(plan, places)
    later: list[PlannedPlacement | PlannedPreemption | ResizePod] = [
        *remaining.placed,
        *remaining.moves,
        *remaining.preempted,
        *remaining.resizes,
    ]
    missing = {f"{one.namespace}/{one.pod}" for one in later if one.uid not in places.pods}
    if missing:
        return tuple(PlanCondition(PlanStatusReason.POD_NOT_FOUND, name) for name in sorted(missing))
    replay = PlanReplay(snapshot, remaining, EvictionRules(snapshot, policy, paused_workloads))
    replay.run()
    return tuple(PlanCondition(PlanStatusReason.PLAN_INVALID, detail=objection) for objection in replay.objections)


def find_stage_obstacles(
    stage: PlanStage, snapshot: ClusterSnapshot, places: StageArrivalPods
) -> Iterator[PlanCondition]:
    """Yield what keeps pods of the current stage from their targets, without checking the whole plan.

    Free capacity is checked once evictions have started, because they may still create it before.
    """
    if not places.evicting:
        subjects: list[PlannedPlacement | PlannedPreemption | ResizePod] = [
            *stage.resizes,
            *stage.evictions,
            *stage.arrivals,
        ]
        missing = {one.uid: one for one in subjects if one.uid not in places.pods and one.uid not in places.left}
        yield from (
            PlanCondition(PlanStatusReason.POD_NOT_FOUND, f"{one.namespace}/{one.pod}") for one in missing.values()
        )
    nodes = {node.name: node for node in snapshot.nodes}
    unbound: defaultdict[str, list[PlannedPlacement]] = defaultdict(list)
    for one in stage.arrivals:
        if places.get_node(one) is None:
            unbound[one.target].append(one)
    evicted_uids = {one.uid for one in stage.evictions}
    remaining_pods: defaultdict[str | None, list[Pod]] = defaultdict(list)
    for pod in snapshot.pods if places.evicting else ():
        if pod.node in unbound and not pod.is_finished and pod.uid not in evicted_uids:
            remaining_pods[pod.node].append(pod)
    for target, arriving in sorted(unbound.items()):
        node = nodes.get(target)
        if node is None:
            yield PlanCondition(PlanStatusReason.NODE_NOT_FOUND, target)
        elif not node.accepts_pods or (
            node.unschedulable and not all(_ignores_cordon(one, places) for one in arriving)
        ):
            yield PlanCondition(PlanStatusReason.NODE_UNSCHEDULABLE, target)
        elif places.evicting and not _has_free_capacity(node, stage, arriving, remaining_pods[target], places):
            yield PlanCondition(PlanStatusReason.NODE_FULL, target)


def _ignores_cordon(arrival: PlannedPlacement, places: StageArrivalPods) -> bool:
    pod = places.get_predicted_pods(arrival)
    return pod is not None and may_be_planned_on_cordoned_node(pod)


def _has_free_capacity(
    node: Node,
    stage: PlanStage,
    arrivals: Sequence[PlannedPlacement],
    remaining_pods: Sequence[Pod],
    places: StageArrivalPods,
) -> bool:
    arriving_pods = ((places.get_predicted_pods(one), get_arrival_sizes(stage, one)) for one in arrivals)
    used = sum(map(count_pod_requests, remaining_pods), NO_RESOURCES)
    used += sum((count_arrival_requests(pod, sizes) for pod, sizes in arriving_pods if pod is not None), NO_RESOURCES)
    return used.fits_in(node.allocatable) and len(remaining_pods) + len(arrivals) <= node.allocatable_pods


def _find_scheduled_without_plan(plan: PackingPlan, places: StageArrivalPods) -> PlanCondition | None:
    """Report a pod that was scheduled in the meantime, so that evictions for it would be useless.

    Evictions are still useful if other pods arrive on each node that they free.
    """
    stages = plan.proposal.stages[plan.stage :]
    first_evicting = next((number for number, stage in enumerate(stages) if stage.evictions), len(stages))
    found = next((one for stage in stages[first_evicting:] for one in stage.arrivals if _is_bound(one, places)), None)
    targets = {one.target for stage in stages for one in stage.arrivals if not _is_bound(one, places)}
    if found is None or all(
        eviction.source in targets for stage in stages[first_evicting:] for eviction in stage.evictions
    ):
        return None
    return PlanCondition(PlanStatusReason.SCHEDULED_WITHOUT_PLAN, f"{found.namespace}/{found.pod}")


def _is_bound(arrival: PlannedPlacement, places: StageArrivalPods) -> bool:
    return arrival.source is None and arrival.uid not in places.left and places.get_node(arrival) is not None

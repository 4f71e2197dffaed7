"""Follows the pods of a stage: pending pods, evicted pods and their replacements."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from cruise.decisions.packing.remaining_plan import (
    PodsByUid,
    count_arrival_requests,
    get_arrival_sizes,
    index_pods_by_uid,
)
from cruise.domain.actions import ResizePod
from cruise.domain.annotations import PLACEMENT_HINT, format_placement_hint
from cruise.domain.cluster import ClusterSnapshot, Node, Pod
from cruise.domain.packing_plan import (
    ArrivalPod,
    PackingPlan,
    PackingProposal,
    PlacementHint,
    PlannedPlacement,
    PlannedPreemption,
    PlanStage,
)
from cruise.domain.pod_resources import count_pod_requests, replace_spec_resources, tolerates_cordon
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import NO_RESOURCES, Resources


def add_placement_hints(
    plan: PackingPlan, stage: PlanStage, snapshot: ClusterSnapshot, policy: Policy, until: datetime
) -> PackingPlan:
    """Return the plan with a placement hint for each replacement of its current stage, before any eviction."""
    pods = index_pods_by_uid(snapshot)
    moves = [placement for placement in stage.evictions if isinstance(placement, PlannedPlacement)]
    recreated = find_pods_that_may_bind_elsewhere(plan, stage, snapshot) if policy.mode >= Mode.FULL else []
    expected = tuple(
        PlacementHint(
            plan=plan.id,
            replaces=placement.uid,
            namespace=placement.namespace,
            owner_kind=pod.owner_kind or "",
            owner_name=pod.owner_name,
            pod=placement.pod if pod.owner_kind == "StatefulSet" else None,
            node=placement.target,
            expires_at=until,
            containers=get_arrival_sizes(stage, placement),
        )
        for placement in (*moves, *recreated)
        if (pod := pods.get(placement.uid)) is not None and pod.owner_name is not None
    )
    return add_existing_pods_of_owners(replace(plan, expected=expected), snapshot)


def add_existing_pods_of_owners(plan: PackingPlan, snapshot: ClusterSnapshot) -> PackingPlan:
    """Return the plan with the existing pods of the owners of expected pods."""
    owners = {(one.namespace, one.owner_kind, one.owner_name) for one in plan.expected}
    owner_names = {one.owner_name for one in plan.expected}
    unrelated = tuple(
        pod.uid
        for pod in (snapshot.pods if owners else ())
        if pod.owner_name in owner_names and (pod.namespace, pod.owner_kind, pod.owner_name) in owners
    )
    return plan if unrelated == plan.earlier_pods else replace(plan, earlier_pods=unrelated)


def find_pods_that_may_bind_elsewhere(
    plan: PackingPlan, stage: PlanStage, snapshot: ClusterSnapshot
) -> list[PlannedPlacement]:
    """Return the pending pods that kube-scheduler might bind to capacity that the plan needs for others.

    After the evictions of the stage they fit on a node that is not their target, where they would not fit in the end.
    Not among them are pods that would only exchange places with an equal pod, and pods that run to completion, because
    their owner may count a deletion as a failure.
    """
    pods = index_pods_by_uid(snapshot)
    pending_arrivals = [arrival for arrival in stage.arrivals if arrival.source is None and arrival.uid in pods]
    unbound = [arrival for arrival in pending_arrivals if pods[arrival.uid].node is None]
    if not unbound:
        return []
    stages = plan.proposal.stages[plan.stage :]
    # Other nodes have as much free capacity in the end as after the stage.
    targets = {arrival.target for each_stage in stages for arrival in each_stage.arrivals}
    nodes = [node for node in snapshot.nodes if node.name in targets]
    pods_on_targets = [pod for pod in snapshot.pods if pod.node in targets and not pod.is_finished]
    free_after_stage = _compute_free_capacity(nodes, pods_on_targets, [stage])
    free_after_plan = _compute_free_capacity(nodes, pods_on_targets, stages)
    for each_stage, arrival in ((stage, arrival) for stage in stages for arrival in stage.arrivals):
        pod = pods.get(arrival.uid)
        if pod is not None and arrival.target in free_after_plan and (pod.node is None or arrival.source is not None):
            free_after_plan[arrival.target] -= count_arrival_requests(pod, get_arrival_sizes(each_stage, arrival))

    def get_kind(arrival: PlannedPlacement) -> tuple[object, ...]:
        pod = pods[arrival.uid]
        return (
            pod.namespace,
            pod.owner_kind,
            pod.owner_name,
            count_arrival_requests(pod, get_arrival_sizes(stage, arrival)),
        )

    def may_go_elsewhere(arrival: PlannedPlacement) -> bool:
        pod, need = pods[arrival.uid], count_arrival_requests(pods[arrival.uid], get_arrival_sizes(stage, arrival))
        targets_of_equals = {other.target for other in pending_arrivals if get_kind(other) == get_kind(arrival)}
        return any(
            need.fits_in(free_after_stage[node.name])
            and not need.fits_in(free_after_plan[node.name])
            and _accepts(node, pod)
            for node in nodes
            if node.name not in targets_of_equals
        )

    return [arrival for arrival in unbound if not pods[arrival.uid].runs_to_completion and may_go_elsewhere(arrival)]


def _accepts(node: Node, pod: Pod) -> bool:
    placement = pod.placement
    is_open = node.accepts_pods and (tolerates_cordon(pod) or not node.unschedulable)
    return is_open and placement.allows_node(node.name, node.labels) and placement.tolerates_all(node.taints)


def _compute_free_capacity(
    nodes: Sequence[Node], pods: Sequence[Pod], stages: Sequence[PlanStage]
) -> dict[str, Resources]:
    """Return the free capacity of nodes after the evictions and resizes of some stages, without their arrivals."""
    evicted = {one.uid for stage in stages for one in stage.evictions}
    sizes = {one.uid: one.containers for stage in stages for one in stage.resizes}
    used: defaultdict[str | None, Resources] = defaultdict(Resources)
    for pod in pods:
        if pod.uid not in evicted:
            targets = sizes.get(pod.uid)
            used[pod.node] += (
                count_pod_requests(pod)
                if targets is None
                else count_arrival_requests(replace_spec_resources(pod, targets))
            )
    return {node.name: node.allocatable - used.get(node.name, NO_RESOURCES) for node in nodes}


def find_evicted_uids(plan: PackingPlan, stage: PlanStage, pods: PodsByUid) -> frozenset[str]:
    """Return the uids of pods evicted in the current stage, or deleted by others since it started."""
    evicted = {departure.uid for departure in plan.evicted}
    if plan.ready_at is not None:
        # After a restart the last eviction may be unknown.
        planned = {leave.uid for leave in stage.evictions} | {one.replaces for one in plan.expected}
        evicted |= {uid for uid in planned if uid not in pods or pods[uid].terminating}
    return frozenset(evicted)


class StageArrivalPods:
    """The arrivals of a stage and the pods that they have become."""

    def __init__(self, plan: PackingPlan, stage: PlanStage, snapshot: ClusterSnapshot) -> None:
        self.pods = index_pods_by_uid(snapshot)
        self.left = find_evicted_uids(plan, stage, self.pods)
        self.evicting = any(leave.uid in self.left for leave in stage.evictions)
        self._plan = plan
        self._stage = stage
        self._replacements: dict[str, Pod] = {}
        self._scheduled_first = _find_pods_scheduled_first(plan, self.pods)
        self._add_known_replacements()
        self._find_new_replacements(snapshot.pods)

    @property
    def placed_pods(self) -> tuple[ArrivalPod, ...]:
        """The pods that have arrived and the evicted pods that they replace, in the order of arrival."""
        found = ((one, self.get_pod(one)) for one in self._stage.arrivals)
        return tuple(
            ArrivalPod(one.uid, pod.uid, pod.node)
            for one, pod in found
            if pod is not None and (pod.node is not None or one.uid in self.left)
        )

    def get_pod(self, arrival: PlannedPlacement) -> Pod | None:
        """Return the present pod of an arrival; None if it is not created yet or no longer exists.

        For a pending pod this may be another pending pod that kube-scheduler scheduled first.
        """
        if arrival.uid in self.left:
            return self._replacements.get(arrival.uid)
        if arrival.source is not None:
            return None
        return self._scheduled_first.get(arrival.uid) or self.pods.get(arrival.uid)

    def get_node(self, arrival: PlannedPlacement) -> str | None:
        """Return the node that an arrival is bound to; None if it is not bound."""
        pod = self.get_pod(arrival)
        return None if pod is None else pod.node

    def get_predicted_pods(self, arrival: PlannedPlacement) -> Pod | None:
        """Return the present pod of an arrival, or the evicted pod that it replaces, if that is known."""
        return self.get_pod(arrival) or self.pods.get(arrival.uid)

    def are_all_evicted(self) -> bool:
        """Return whether no evicted pod still exists."""
        return not any(uid in self.pods for uid in self.left)

    def get_pending_evictions(self) -> list[PlannedPlacement | PlannedPreemption]:
        """Return the pods that are not evicted yet, in the plan's order."""
        return [eviction for eviction in self._stage.evictions if eviction.uid not in self.left]

    def get_pending_recreations(self) -> list[PlannedPlacement]:
        """Return the pending pods that must be recreated and are not yet."""
        expected = {one.replaces for one in self._plan.expected}
        return [
            one
            for one in self._stage.arrivals
            if one.source is None and one.uid in expected and one.uid not in self.left and self._is_pending(one)
        ]

    def _is_pending(self, arrival: PlannedPlacement) -> bool:
        """Return whether a pod to recreate is still pending, and no other has been bound in its place."""
        own = self.pods.get(arrival.uid)
        return (own is None or own.node is None) and self.get_node(arrival) is None

    def _add_known_replacements(self) -> None:
        for placed in self._plan.placed:
            pod = self.pods.get(placed.placed_uid)
            if pod is not None and _is_active(pod) and placed.uid != placed.placed_uid:
                self._replacements[placed.uid] = pod

    def _find_new_replacements(self, pods: Sequence[Pod]) -> None:
        """Match new pods to expected ones: first those with the placement hint annotation, then unannotated ones."""
        expected = [
            hint
            for hint in self._plan.expected
            if hint.replaces in self.left and hint.replaces not in self._replacements
        ]
        if not expected:
            return
        known = set(self._plan.earlier_pods) | {pod.uid for pod in self._replacements.values()}
        new = [pod for pod in pods if pod.uid not in known and pod.owner_name is not None and _is_active(pod)]
        all_hints = {format_placement_hint((hint.replaces, hint.node)) for hint in self._plan.expected}
        for hint in expected:
            candidates = [pod for pod in new if _could_replace(pod, hint)]
            own_hint = format_placement_hint((hint.replaces, hint.node))
            annotated = [pod for pod in candidates if pod.annotations.get(PLACEMENT_HINT) == own_hint]
            unannotated = [pod for pod in candidates if pod.annotations.get(PLACEMENT_HINT) not in all_hints]
            for pod in (*annotated, *unannotated)[:1]:
                self._replacements[hint.replaces] = pod
                new.remove(pod)


def _find_pods_scheduled_first(plan: PackingPlan, pods: PodsByUid) -> dict[str, Pod]:
    """Return the pods that take the place of pending arrivals, because kube-scheduler scheduled them first.

    Such a pod is not in the plan, or in a later stage; then the named pod takes its place there. It has at least the
    priority and at most the requests, so that the plan gains as much and needs no more capacity.
    """
    stages = plan.proposal.stages
    pending = {
        one.uid: (number, one) for number, stage in enumerate(stages) for one in stage.arrivals if one.source is None
    }
    unplaced = {one.key for one in plan.proposal.unplaced}
    bound_on_target: dict[str, list[Pod]] = {}
    for pod in pods.values() if pending else ():
        if pod.node is not None and _is_active(pod) and (pod.uid in pending or (pod.namespace, pod.name) in unplaced):
            bound_on_target.setdefault(pod.node, []).append(pod)
    replacing: dict[str, Pod] = {}
    for number, stage in enumerate(stages[: plan.stage + 1] if bound_on_target else ()):
        for one in stage.arrivals:
            named_pod = (replacing.get(one.uid) or pods.get(one.uid)) if one.source is None else None
            if named_pod is None or named_pod.node is not None:
                continue
            requests = count_arrival_requests(named_pod, get_arrival_sizes(stage, one))
            for pod in bound_on_target.get(one.target, ()):
                stage_number, later = pending.get(pod.uid, (len(stages), None))
                if (
                    stage_number <= number
                    or pod.priority < named_pod.priority
                    or not count_arrival_requests(pod).fits_in(requests)
                ):
                    continue
                if later is not None and not _is_equal(named_pod, pod):
                    continue
                replacing[one.uid] = pod
                bound_on_target[one.target].remove(pod)
                if later is not None:
                    replacing[later.uid] = named_pod
                break
    return replacing


def _is_equal(one: Pod, other: Pod) -> bool:
    """Return whether two pods have the same owner, priority and requests, so that they may exchange targets."""
    keys = [(pod.namespace, pod.owner_kind, pod.owner_name, pod.priority) for pod in (one, other)]
    return (
        one.owner_name is not None
        and keys[0] == keys[1]
        and count_arrival_requests(one) == count_arrival_requests(other)
    )


def _is_active(pod: Pod) -> bool:
    return not (pod.is_finished or pod.terminating)


def _could_replace(pod: Pod, hint: PlacementHint) -> bool:
    is_same_owner = (pod.namespace, pod.owner_kind, pod.owner_name) == (
        hint.namespace,
        hint.owner_kind,
        hint.owner_name,
    )
    return is_same_owner and hint.pod in (None, pod.name)


def get_remaining_plan(plan: PackingPlan, places: StageArrivalPods) -> PackingProposal:
    """Return the remaining stages as a plan, before any pod of the current stage is evicted.

    Pending pods that are bound already are left out; recreated pods have their new names.
    """
    return plan.proposal.with_stages(
        [_remove_bound_pods(stage, places) for stage in plan.proposal.stages[plan.stage :]]
    )


def _remove_bound_pods(stage: PlanStage, places: StageArrivalPods) -> PlanStage:
    arrivals = tuple(_update_arrival(one, places) for one in stage.arrivals if places.get_node(one) is None)
    resizes = tuple(one for one in stage.resizes if _is_resize_useful(one, places))
    return replace(stage, resizes=resizes, arrivals=arrivals)


def _is_resize_useful(one: ResizePod, places: StageArrivalPods) -> bool:
    """Return whether a resize is of any use: none is for a pod that waited and has a node, or was created anew."""
    pod = places.pods.get(one.uid)
    return one.uid not in places.left and not (one.node is None and pod is not None and pod.node is not None)


def _update_arrival(arrival: PlannedPlacement, places: StageArrivalPods) -> PlannedPlacement:
    pod = places.get_pod(arrival) if arrival.uid in places.left or arrival.source is None else None
    return arrival if pod is None else replace(arrival, pod=pod.name, uid=pod.uid, source=None)

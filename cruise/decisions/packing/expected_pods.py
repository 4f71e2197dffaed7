"""Where the pods of a stage are: those that wait, and those that come in place of evicted ones."""

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
from cruise.domain.annotations import PLACEMENT_HINT
from cruise.domain.cluster import ClusterSnapshot, Node, Pod
from cruise.domain.packing_plan import (
    PackingPlan,
    PackingProposal,
    PlacedPod,
    PlacementHint,
    PlannedPlacement,
    PlannedPreemption,
    PlanStage,
)
from cruise.domain.pod_resources import count_pod_requests, replace_spec_resources, tolerates_cordon
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import NO_RESOURCES, Resources

# The pods that a stage expects: they are created in place of others, and each is sent to a node.


def add_expected_pods(
    plan: PackingPlan, stage: PlanStage, snapshot: ClusterSnapshot, policy: Policy, until: datetime
) -> PackingPlan:
    """Return the plan with the pods that its present stage expects, and those of the same owners that exist already.

    No pod was evicted for that stage yet.
    """
    pods = index_pods_by_uid(snapshot)
    moving = [one for one in stage.evictions if isinstance(one, PlannedPlacement)]
    astray = find_pods_scheduled_elsewhere(plan, stage, snapshot) if policy.mode >= Mode.FULL else []
    expected = tuple(
        PlacementHint(
            plan=plan.id,
            replaces=one.uid,
            namespace=one.namespace,
            owner_kind=pod.owner_kind or "",
            owner_name=pod.owner_name,
            pod=one.pod if pod.owner_kind == "StatefulSet" else None,
            node=one.target,
            expires_at=until,
            containers=get_arrival_sizes(stage, one),
        )
        for one in (*moving, *astray)
        if (pod := pods.get(one.uid)) is not None and pod.owner_name is not None
    )
    return add_unrelated_pods(replace(plan, expected=expected), snapshot)


def add_unrelated_pods(plan: PackingPlan, snapshot: ClusterSnapshot) -> PackingPlan:
    """Return the plan with the pods that exist now of the owners of expected pods."""
    owners = {(one.namespace, one.owner_kind, one.owner_name) for one in plan.expected}
    names = {one.owner_name for one in plan.expected}
    there = tuple(
        pod.uid
        for pod in (snapshot.pods if owners else ())
        if pod.owner_name in names and (pod.namespace, pod.owner_kind, pod.owner_name) in owners
    )
    return plan if there == plan.earlier_pods else replace(plan, earlier_pods=there)


def find_pods_scheduled_elsewhere(
    plan: PackingPlan, stage: PlanStage, snapshot: ClusterSnapshot
) -> list[PlannedPlacement]:
    """Return the pending pods that kube-scheduler might send where the plan needs the room.

    With what leaves out of the way they fit on a node that is not theirs, and in the end they would not. A pod
    that would only change places with one like it is not among them, nor one that runs to completion: its owner may
    take its deletion for a failure.
    """
    pods = index_pods_by_uid(snapshot)
    coming = [one for one in stage.arrivals if one.source is None and one.uid in pods]
    waiting = [one for one in coming if pods[one.uid].node is None]
    if not waiting:
        return []
    stages = plan.proposal.stages[plan.stage :]
    # On all others there is in the end no less than soon.
    targets = {one.target for its in stages for one in its.arrivals}
    nodes = [node for node in snapshot.nodes if node.name in targets]
    there = [pod for pod in snapshot.pods if pod.node in targets and not pod.is_finished]
    soon = _free(nodes, there, [stage])
    finally_free = _free(nodes, there, stages)
    for its, one in ((stage, arrival) for stage in stages for arrival in stage.arrivals):
        pod = pods.get(one.uid)
        if pod is not None and one.target in finally_free and (pod.node is None or one.source is not None):
            finally_free[one.target] -= count_arrival_requests(pod, get_arrival_sizes(its, one))

    def kind_of(one: PlannedPlacement) -> tuple[object, ...]:
        pod = pods[one.uid]
        return pod.namespace, pod.owner_kind, pod.owner_name, count_arrival_requests(pod, get_arrival_sizes(stage, one))

    def may_stray(one: PlannedPlacement) -> bool:
        pod, need = pods[one.uid], count_arrival_requests(pods[one.uid], get_arrival_sizes(stage, one))
        alike = {other.target for other in coming if kind_of(other) == kind_of(one)}
        return any(
            need.fits_in(soon[node.name]) and not need.fits_in(finally_free[node.name]) and _lets_in(node, pod)
            for node in nodes
            if node.name not in alike
        )

    return [one for one in waiting if not pods[one.uid].runs_to_completion and may_stray(one)]


def _lets_in(node: Node, pod: Pod) -> bool:
    placement = pod.placement
    is_open = node.accepts_pods and (tolerates_cordon(pod) or not node.unschedulable)
    return is_open and placement.allows_node(node.name, node.labels) and placement.tolerates_all(node.taints)


def _free(nodes: Sequence[Node], there: Sequence[Pod], stages: Sequence[PlanStage]) -> dict[str, Resources]:
    """Return what nodes have free once the stages' leaves are gone and their resizes in force, without arrivals."""
    leaving = {one.uid for stage in stages for one in stage.evictions}
    sizes = {one.uid: one.containers for stage in stages for one in stage.resizes}
    taken: defaultdict[str | None, Resources] = defaultdict(Resources)
    for pod in there:
        if pod.uid not in leaving:
            targets = sizes.get(pod.uid)
            taken[pod.node] += (
                count_pod_requests(pod)
                if targets is None
                else count_arrival_requests(replace_spec_resources(pod, targets))
            )
    return {node.name: node.allocatable - taken.get(node.name, NO_RESOURCES) for node in nodes}


def format_placement_hint_annotation(one: PlacementHint) -> str:
    """Return what is written down on a pod that is steered."""
    return f"{one.replaces} {one.node}"


def find_evicted_uids(plan: PackingPlan, stage: PlanStage, pods: PodsByUid) -> frozenset[str]:
    """Return the uids of pods evicted in the present stage, or gone by themselves when that was about to begin."""
    departed = {departure.uid for departure in plan.evicted}
    if plan.ready_at is not None:
        # After a restart it may not be known which pod was evicted last.
        leaving = {leave.uid for leave in stage.evictions} | {one.replaces for one in plan.expected}
        departed |= {uid for uid in leaving if uid not in pods or pods[uid].terminating}
    return frozenset(departed)


class StagePlacements:
    """The arrivals of a stage and the pods that they have become."""

    def __init__(self, plan: PackingPlan, stage: PlanStage, snapshot: ClusterSnapshot) -> None:
        self.pods = index_pods_by_uid(snapshot)
        self.left = find_evicted_uids(plan, stage, self.pods)
        self.evicting = any(leave.uid in self.left for leave in stage.evictions)
        self._plan = plan
        self._stage = stage
        self._become: dict[str, Pod] = {}
        self._instead = _find_instead(plan, self.pods)
        self._find_known()
        self._find_new(snapshot.pods)

    @property
    def get_placed_pods(self) -> tuple[PlacedPod, ...]:
        """What has come in whose place, in the order of arrival."""
        found = ((one, self.get_pod(one)) for one in self._stage.arrivals)
        return tuple(
            PlacedPod(one.uid, pod.uid, pod.node)
            for one, pod in found
            if pod is not None and (pod.node is not None or one.uid in self.left)
        )

    def get_pod(self, arrival: PlannedPlacement) -> Pod | None:
        """Return the pod that an arrival is now, None where it is not replaced yet, or is gone.

        For one that waited that may be another that waited as well, and that kube-scheduler took first.
        """
        if arrival.uid in self.left:
            return self._become.get(arrival.uid)
        if arrival.source is not None:
            return None
        return self._instead.get(arrival.uid) or self.pods.get(arrival.uid)

    def get_node(self, arrival: PlannedPlacement) -> str | None:
        """Return the node that an arrival is bound to, None while it is to none."""
        pod = self.get_pod(arrival)
        return None if pod is None else pod.node

    def get_predicted_pods(self, arrival: PlannedPlacement) -> Pod | None:
        """Return the pod that an arrival is now, or the one in whose place it comes as long as that one is known."""
        return self.get_pod(arrival) or self.pods.get(arrival.uid)

    def are_all_evicted(self) -> bool:
        """Tell whether no pod that left holds room any more."""
        return not any(uid in self.pods for uid in self.left)

    def get_pending_evictions(self) -> list[PlannedPlacement | PlannedPreemption]:
        """Return the pods that have not left yet, in the plan's order."""
        return [leave for leave in self._stage.evictions if leave.uid not in self.left]

    def get_pending_recreations(self) -> list[PlannedPlacement]:
        """Return the pending pods that are to be created anew and are not yet."""
        expected = {one.replaces for one in self._plan.expected}
        return [
            one
            for one in self._stage.arrivals
            if one.source is None and one.uid in expected and one.uid not in self.left and self._waits(one)
        ]

    def _waits(self, arrival: PlannedPlacement) -> bool:
        """Tell whether a pod that is to be created anew waits still, and no other has come in its place."""
        own = self.pods.get(arrival.uid)
        return (own is None or own.node is None) and self.get_node(arrival) is None

    def _find_known(self) -> None:
        for landing in self._plan.placed:
            pod = self.pods.get(landing.placed_uid)
            if pod is not None and _counts(pod) and landing.uid != landing.placed_uid:
                self._become[landing.uid] = pod

    def _find_new(self, pods: Sequence[Pod]) -> None:
        """Take pods annotated as replacements, then those that came since and that no other plan entry expects."""
        waited_for = [
            one for one in self._plan.expected if one.replaces in self.left and one.replaces not in self._become
        ]
        if not waited_for:
            return
        before = set(self._plan.earlier_pods) | {pod.uid for pod in self._become.values()}
        new = [pod for pod in pods if pod.uid not in before and pod.owner_name is not None and _counts(pod)]
        notes = {format_placement_hint_annotation(one) for one in self._plan.expected}
        for one in waited_for:
            theirs = [pod for pod in new if _could_replace(pod, one)]
            marked = [
                pod for pod in theirs if pod.annotations.get(PLACEMENT_HINT) == format_placement_hint_annotation(one)
            ]
            unmarked = [pod for pod in theirs if pod.annotations.get(PLACEMENT_HINT) not in notes]
            for pod in (*marked, *unmarked)[:1]:
                self._become[one.replaces] = pod
                new.remove(pod)


def _find_instead(plan: PackingPlan, pods: PodsByUid) -> dict[str, Pod]:
    """Return the pods that stand for arrivals which waited, since kube-scheduler took another one first.

    On the node of an arrival that may be a pod that the plan leaves out, or one of a later stage, for which the one
    that is named then stands in turn. Each is as important and no larger, so that as much is gained and no less room
    is left.
    """
    stages = plan.proposal.stages
    waiting = {
        one.uid: (number, one) for number, stage in enumerate(stages) for one in stage.arrivals if one.source is None
    }
    left_out = {one.key for one in plan.proposal.unplaced}
    came: dict[str, list[Pod]] = {}
    for pod in pods.values() if waiting else ():
        if pod.node is not None and _counts(pod) and (pod.uid in waiting or (pod.namespace, pod.name) in left_out):
            came.setdefault(pod.node, []).append(pod)
    found: dict[str, Pod] = {}
    for number, stage in enumerate(stages[: plan.stage + 1] if came else ()):
        for one in stage.arrivals:
            named = (found.get(one.uid) or pods.get(one.uid)) if one.source is None else None
            if named is None or named.node is not None:
                continue
            need = count_arrival_requests(named, get_arrival_sizes(stage, one))
            for pod in came.get(one.target, ()):
                at, later = waiting.get(pod.uid, (len(stages), None))
                if at <= number or pod.priority < named.priority or not count_arrival_requests(pod).fits_in(need):
                    continue
                if later is not None and not _alike(named, pod):
                    continue
                found[one.uid] = pod
                came[one.target].remove(pod)
                if later is not None:
                    found[later.uid] = named
                break
    return found


def _alike(one: Pod, other: Pod) -> bool:
    """Tell whether two pods are of one owner and ask for as much: where one was to go the other may."""
    owners = [(pod.namespace, pod.owner_kind, pod.owner_name, pod.priority) for pod in (one, other)]
    return (
        one.owner_name is not None
        and owners[0] == owners[1]
        and count_arrival_requests(one) == count_arrival_requests(other)
    )


def _counts(pod: Pod) -> bool:
    return not (pod.is_finished or pod.terminating)


def _could_replace(pod: Pod, one: PlacementHint) -> bool:
    same = (pod.namespace, pod.owner_kind, pod.owner_name) == (one.namespace, one.owner_kind, one.owner_name)
    return same and one.pod in (None, pod.name)


def get_remaining_plan(plan: PackingPlan, places: StagePlacements) -> PackingProposal:
    """Return the stages that are left as a plan of their own, before any pod of the present one was evicted.

    A pod that waited and has a node already is not in it; one created anew is there by the new name.
    """
    return plan.proposal.with_stages([_without_bound(stage, places) for stage in plan.proposal.stages[plan.stage :]])


def _without_bound(stage: PlanStage, places: StagePlacements) -> PlanStage:
    arrivals = tuple(_as_now(one, places) for one in stage.arrivals if places.get_node(one) is None)
    resizes = tuple(one for one in stage.resizes if _still_to_resize(one, places))
    return replace(stage, resizes=resizes, arrivals=arrivals)


def _still_to_resize(one: ResizePod, places: StagePlacements) -> bool:
    """Tell whether a resize is of any use: none is for a pod that waited and has a node, or was created anew."""
    pod = places.pods.get(one.uid)
    return one.uid not in places.left and not (one.node is None and pod is not None and pod.node is not None)


def _as_now(arrival: PlannedPlacement, places: StagePlacements) -> PlannedPlacement:
    pod = places.get_pod(arrival) if arrival.uid in places.left or arrival.source is None else None
    return arrival if pod is None else replace(arrival, pod=pod.name, uid=pod.uid, source=None)

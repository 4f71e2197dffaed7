"""What comes next for a plan that is being carried out."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from cruise.decisions.packing.eviction_rules import EvictionRules
from cruise.decisions.packing.expected_pods import (
    StagePlacements,
    add_expected_pods,
    add_unrelated_pods,
    get_remaining_plan,
)
from cruise.decisions.packing.plan_replay import PlanReplay
from cruise.decisions.packing.remaining_plan import (
    count_arrival_requests,
    get_arrival_sizes,
    get_current_stage,
    has_sizes,
)
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.pod_policy.evictability import Evictability
from cruise.domain.actions import ActionResult, EvictPod, Outcome, PodItem, ReasonCode, ResizePod
from cruise.domain.annotations import EffectivePolicy
from cruise.domain.cluster import ClusterSnapshot, Node, Pod, ResizePending
from cruise.domain.overrides import StoredOverrides
from cruise.domain.packing_plan import (
    EvictedPod,
    PackingPlan,
    PackingProposal,
    PlannedPlacement,
    PlannedPreemption,
    PlanPhase,
    PlanStage,
)
from cruise.domain.pod_resources import count_pod_requests, may_be_planned_on_cordoned_node, replace_spec_resources
from cruise.domain.policy import EvictionRanking, Mode, Policy
from cruise.domain.reasons import PlanCondition, PlanStatusReason
from cruise.domain.resources import NO_RESOURCES, ResourceName
from cruise.domain.usage import StatisticsTable

# What in the cluster contradicts what is left of a plan: then it is dropped whole and solved anew.


def find_plan_contradictions(
    plan: PackingPlan, snapshot: ClusterSnapshot, places: StagePlacements, policy: Policy, stored: StoredOverrides
) -> tuple[PlanCondition, ...]:
    """Judge all that is left of a plan whose present stage has evicted no pod yet.

    What disruption budgets allow now is not judged: they allow more once replacements are ready.
    """
    settled = _settled_by_itself(plan, places)
    if settled is not None:
        return (settled,)
    if any(places.get_pod(one) is None and one.uid in places.left for one in plan.proposal.stages[plan.stage].arrivals):
        # The replacement of a pending pod is not there yet.
        return ()
    rest = get_remaining_plan(plan, places)
    later: list[PlannedPlacement | PlannedPreemption | ResizePod] = [
        *rest.placed,
        *rest.moves,
        *rest.preempted,
        *rest.resizes,
    ]
    gone = {f"{one.namespace}/{one.pod}" for one in later if one.uid not in places.pods}
    if gone:
        return tuple(PlanCondition(PlanStatusReason.POD_NOT_FOUND, name) for name in sorted(gone))
    replay = PlanReplay(snapshot, rest, EvictionRules(snapshot, policy, stored))
    replay.run()
    return tuple(PlanCondition(PlanStatusReason.PLAN_INVALID, detail=words) for words in replay.objections)


def find_stage_obstacles(
    stage: PlanStage, snapshot: ClusterSnapshot, places: StagePlacements
) -> Iterator[PlanCondition]:
    """Say what keeps pods of the present stage from where they are to arrive, without judging the whole plan.

    Room is looked at once evictions have begun: until then it may be made yet.
    """
    if not places.evicting:
        named: list[PlannedPlacement | PlannedPreemption | ResizePod] = [
            *stage.resizes,
            *stage.evictions,
            *stage.arrivals,
        ]
        gone = {one.uid: one for one in named if one.uid not in places.pods and one.uid not in places.left}
        yield from (
            PlanCondition(PlanStatusReason.POD_NOT_FOUND, f"{one.namespace}/{one.pod}") for one in gone.values()
        )
    nodes = {node.name: node for node in snapshot.nodes}
    waiting: defaultdict[str, list[PlannedPlacement]] = defaultdict(list)
    for one in stage.arrivals:
        if places.get_node(one) is None:
            waiting[one.target].append(one)
    leaving = {one.uid for one in stage.evictions}
    staying: defaultdict[str | None, list[Pod]] = defaultdict(list)
    for pod in snapshot.pods if places.evicting else ():
        if pod.node in waiting and not pod.is_finished and pod.uid not in leaving:
            staying[pod.node].append(pod)
    for target, arriving in sorted(waiting.items()):
        node = nodes.get(target)
        if node is None:
            yield PlanCondition(PlanStatusReason.NODE_NOT_FOUND, target)
        elif not node.accepts_pods or (
            node.unschedulable and not all(_passes_cordons(one, places) for one in arriving)
        ):
            yield PlanCondition(PlanStatusReason.NODE_UNSCHEDULABLE, target)
        elif places.evicting and not _has_room(node, stage, arriving, staying[target], places):
            yield PlanCondition(PlanStatusReason.NODE_FULL, target)


def _passes_cordons(arrival: PlannedPlacement, places: StagePlacements) -> bool:
    pictured = places.get_predicted_pods(arrival)
    return pictured is not None and may_be_planned_on_cordoned_node(pictured)


def _has_room(
    node: Node, stage: PlanStage, arriving: Sequence[PlannedPlacement], staying: Sequence[Pod], places: StagePlacements
) -> bool:
    pictured = ((places.get_predicted_pods(one), get_arrival_sizes(stage, one)) for one in arriving)
    taken = sum(map(count_pod_requests, staying), NO_RESOURCES)
    taken += sum((count_arrival_requests(pod, sizes) for pod, sizes in pictured if pod is not None), NO_RESOURCES)
    return taken.fits_in(node.allocatable) and len(staying) + len(arriving) <= node.allocatable_pods


def _settled_by_itself(plan: PackingPlan, places: StagePlacements) -> PlanCondition | None:
    """Say which pod has found a node in the meantime, where others would be evicted for nothing.

    They would not where more is to come to the nodes that they leave: what fits without that has come by itself.
    """
    stages = plan.proposal.stages[plan.stage :]
    evicting = next((number for number, stage in enumerate(stages) if stage.evictions), len(stages))
    found = next((one for stage in stages[evicting:] for one in stage.arrivals if _is_bound(one, places)), None)
    coming = {one.target for stage in stages for one in stage.arrivals if not _is_bound(one, places)}
    if found is None or all(leave.source in coming for stage in stages[evicting:] for leave in stage.evictions):
        return None
    return PlanCondition(PlanStatusReason.SCHEDULED_WITHOUT_PLAN, f"{found.namespace}/{found.pod}")


def _is_bound(arrival: PlannedPlacement, places: StagePlacements) -> bool:
    return arrival.source is None and arrival.uid not in places.left and places.get_node(arrival) is not None


# The webhook reads every second which pods to steer.
PLACEMENT_HINT_LEAD_TIME = timedelta(seconds=2.5)
# kube-scheduler tries a pod that did not fit again after ten seconds at the latest.
_BINDING_PATIENCE = timedelta(seconds=30)
_NO_STATISTICS = StatisticsTable.from_rows(())


@dataclass(frozen=True, slots=True)
class PlanStep:
    """A plan as it is now, to be stored before the actions are done; without actions there is something to wait for."""

    plan: PackingPlan
    actions: tuple[ResizePod | EvictPod, ...] = ()


def start_plan(
    proposal: PackingProposal,
    at: datetime,
    now: datetime,
    seconds: float,
    mode: Mode,
    *,
    why_not: PlanCondition | None = None,
) -> PackingPlan:
    """Return a proposal as a plan: to be carried out as far as the mode goes, or shown.

    `at` is when the cluster was looked at; `why_not` says why nothing at all is to be carried out, if so.
    """
    evicts = any(stage.evictions for stage in proposal.stages)
    halt = why_not
    if not proposal.stages:
        halt = PlanCondition(PlanStatusReason.NOTHING_TO_DO)
    elif mode < Mode.RESIZE:
        halt = PlanCondition(PlanStatusReason.MODE, mode.label)
    elif why_not is None and evicts and mode < Mode.FULL:
        halt = PlanCondition(PlanStatusReason.NO_EVICTIONS, mode.label)
    phase = PlanPhase.IN_PROGRESS if halt is None else PlanPhase.ADVISORY
    return PackingPlan(at.strftime("%Y%m%dT%H%M%S.%fZ"), at, proposal, seconds, phase, now, condition=halt)


def decide_next_step(
    plan: PackingPlan, snapshot: ClusterSnapshot, policy: Policy, now: datetime, stored: StoredOverrides | None = None
) -> PlanStep:
    """Return what is to be done next for a plan that is under way, from the cluster as it is now.

    Resizes until they are actual, then evictions one by one, then the wait until all pods are bound; then the next
    stage. What contradicts the plan, and its age, drop it whole.
    """
    while (stage := get_current_stage(plan)) is not None:
        present = _CurrentStage(plan, stage, snapshot, policy, now, stored or {})
        if not present.is_done():
            return present.step()
        plan = replace(
            present.plan,
            stage=plan.stage + 1,
            evicted=(),
            placed=(),
            expected=(),
            earlier_pods=(),
            ready_at=None,
            condition=None,
            changed_at=now,
        )
    return PlanStep(replace(plan, phase=PlanPhase.FINISHED, changed_at=now, condition=None))


class _CurrentStage:
    """The stage of a plan that is carried out, in the cluster as it is now; `plan` learns from it as it goes."""

    def __init__(
        self,
        plan: PackingPlan,
        stage: PlanStage,
        snapshot: ClusterSnapshot,
        policy: Policy,
        now: datetime,
        stored: StoredOverrides,
    ) -> None:
        self.plan = plan
        self._stage = stage
        self._snapshot = snapshot
        self._policy = policy
        self._now = now
        self._stored = stored
        self._places = StagePlacements(plan, stage, snapshot)
        if self._places.get_placed_pods != plan.placed:
            self.plan = replace(plan, placed=self._places.get_placed_pods, changed_at=now)

    def is_done(self) -> bool:
        """Tell whether all pods of the stage are bound, wherever that is, and those that left are gone."""
        stage, places = self._stage, self._places
        bound = all(places.get_node(one) is not None for one in stage.arrivals)
        # Where only pods that waited remain, and all of them run, no other has to go.
        if bound and not stage.evictions:
            return all(_is_actual(one, places) for one in stage.resizes) or bool(stage.arrivals)
        return bound and not places.get_pending_evictions() and places.are_all_evicted()

    def step(self) -> PlanStep:
        """Return what is to be done next of a stage that is not done."""
        policy, places = self._policy, self._places
        if policy.mode < Mode.RESIZE or (self._stage.evictions and policy.mode < Mode.FULL):
            return self._dropped(PlanCondition(PlanStatusReason.MODE, policy.mode.label))
        if self._now - self.plan.at >= policy.pass_interval:
            return self._dropped(PlanCondition(PlanStatusReason.TOO_OLD))
        wrong: Sequence[PlanCondition] = list(find_stage_obstacles(self._stage, self._snapshot, places))
        if wrong:
            return self._dropped(*wrong)
        if self.plan.ready_at is None:
            until = self.plan.at + policy.pass_interval
            plan = add_expected_pods(self.plan, self._stage, self._snapshot, policy, until)
            self.plan = replace(plan, ready_at=self._now + PLACEMENT_HINT_LEAD_TIME if plan.expected else self._now)
        elif not places.left:
            self.plan = add_unrelated_pods(self.plan, self._snapshot)
        # A pod that would go astray does so as soon as there is room.
        recreating = None if places.evicting else self._recreated()
        step = recreating or self._resized() or self._evicted()
        if step.actions and not places.evicting:
            # The whole rest is judged before anything is done for a stage: in a large cluster that takes a second.
            wrong = find_plan_contradictions(self.plan, self._snapshot, places, policy, self._stored)
        return self._dropped(*wrong) if wrong else step

    def _recreated(self) -> PlanStep | None:
        """Return the next eviction of a pending pod that could not be steered else, or the wait for its replacement."""
        places, to_go = self._places, self._places.get_pending_recreations()
        if to_go:
            return self._evicting(to_go[0])
        gone = [one for one in self._stage.arrivals if one.uid in places.left and places.get_pod(one) is None]
        return self._waits(PlanStatusReason.RECREATION, _name(gone[0])) if gone else None

    def _resized(self) -> PlanStep | None:
        """Return the resizes that are left, or the wait for those that are not actual yet."""
        places = self._places
        resizes = [one for one in self._stage.resizes if one.uid not in places.left and not places.evicting]
        for one in resizes:
            pod = places.pods.get(one.uid)
            if pod is not None and pod.resize.pending is ResizePending.INFEASIBLE:
                halt = PlanCondition(PlanStatusReason.CANNOT_RESIZE, _name(one), one.node or "")
                return PlanStep(replace(self.plan, phase=PlanPhase.DROPPED, condition=halt))
        resizes = [one for one in resizes if one.node is not None]
        left = [
            replace(one, reason=ReasonCode.FREED_CAPACITY_FOR_PENDING_PODS)
            for one in resizes
            if not has_sizes(places.pods[one.uid], one.containers)
        ]
        left += self._shrinks_of_waiting()
        if left:
            return PlanStep(replace(self.plan, condition=None), tuple(left))
        waits = [one for one in resizes if not _is_actual(one, places)]
        return self._waits(PlanStatusReason.RESIZE, _name(waits[0])) if waits else None

    def _evicted(self) -> PlanStep:
        """Return the next eviction, or the wait for it, or for kube-scheduler once no pod is left to go."""
        to_go = self._places.get_pending_evictions()
        return self._evicting(to_go[0], within_budgets=True) if to_go else self._awaited()

    def _evicting(self, one: PlannedPlacement | PlannedPreemption, *, within_budgets: bool = False) -> PlanStep:
        """Return a pod's eviction, or the wait until the webhook knows of it, and perhaps until a budget allows it."""
        if self.plan.ready_at is not None and self._now < self.plan.ready_at:
            return self._waits(PlanStatusReason.PLACEMENT_HINT)
        pod = self._places.pods[one.uid]
        budget = Evictability(self._snapshot).find_exhausted_budget(pod) if within_budgets else None
        if budget is not None:
            return self._waits(PlanStatusReason.DISRUPTION_BUDGET, budget)
        eligibility = Eligibility(self._snapshot, _NO_STATISTICS, self._stored, self._policy, self._now)
        guidance, ranking = eligibility.get_effective_policy(pod), EvictionRanking.LOW
        if isinstance(guidance, EffectivePolicy):
            ranking = eligibility.evictability.get_ranking(pod, guidance)
        why = ReasonCode.FREED_CAPACITY_FOR_PENDING_PODS
        eviction = EvictPod(one.namespace, one.pod, one.uid, pod.node, pod.workload, ranking, ResourceName.CPU, why)
        return PlanStep(replace(self.plan, condition=None), (eviction,))

    def _awaited(self) -> PlanStep:
        places = self._places
        waiting = [one for one in self._stage.arrivals if places.get_node(one) is None]
        for one in waiting:
            pod = places.get_pod(one)
            since = None if pod is None else pod.unschedulable_since
            last = max((departure.at for departure in self.plan.evicted), default=since)
            late = since is not None and last is not None and self._now - max(since, last) > _BINDING_PATIENCE
            if late and places.are_all_evicted():
                return self._dropped(
                    PlanCondition(PlanStatusReason.NO_NODE_FOR_POD, f"{one.namespace}/{pod.name if pod else one.pod}")
                )
        return (
            self._waits(PlanStatusReason.POD_BINDING, _name(waiting[0]))
            if waiting
            else self._waits(PlanStatusReason.EVICTION_IN_PROGRESS)
        )

    def _shrinks_of_waiting(self) -> list[ResizePod]:
        """Return the resizes of pods that wait for a node with more than they are to arrive with.

        A pod that is created anew has the planned sizes from the webhook; where that did not answer, it is sized here.
        """
        stage, places = self._stage, self._places
        coming = {one.replaces for one in self.plan.expected} - places.left
        found = (
            (get_arrival_sizes(stage, one), places.get_pod(one)) for one in stage.arrivals if one.uid not in coming
        )
        return [
            ResizePod(
                pod.namespace,
                pod.name,
                pod.uid,
                None,
                pod.workload,
                sizes,
                NO_RESOURCES,
                ReasonCode.FREED_CAPACITY_FOR_PENDING_PODS,
            )
            for sizes, pod in found
            if pod is not None
            and pod.node is None
            and not count_arrival_requests(pod).fits_in(count_arrival_requests(replace_spec_resources(pod, sizes)))
        ]

    def _waits(self, code: PlanStatusReason, subject: str = "") -> PlanStep:
        return PlanStep(replace(self.plan, condition=PlanCondition(code, subject)))

    def _dropped(self, *halts: PlanCondition) -> PlanStep:
        """Drop the plan for the first reason; the others are counted."""
        halt = replace(halts[0], similar_count=len(halts) - 1)
        return PlanStep(replace(self.plan, phase=PlanPhase.DROPPED, changed_at=self._now, condition=halt))


def _is_actual(resize: ResizePod, places: StagePlacements) -> bool:
    """Tell whether what a pod counts has come down to its new sizes."""
    pod = places.pods.get(resize.uid)
    if pod is None or pod.node is None:
        return True
    return has_sizes(pod, resize.containers) and count_pod_requests(pod).fits_in(
        count_arrival_requests(replace_spec_resources(pod, resize.containers))
    )


def _name(one: PodItem) -> str:
    return "/".join(one.key)


# What a plan learns from how its actions ended.

# What asking again a moment later would change.
_PASSES_BY = frozenset(
    {
        ReasonCode.THROTTLED,
        ReasonCode.WAITING_FOR_CAPACITY,
        ReasonCode.NODE_EVICTION_BUDGET_SPENT,
        ReasonCode.WORKLOAD_EVICTION_BUDGET_SPENT,
        ReasonCode.HOURLY_EVICTION_BUDGET_SPENT,
        ReasonCode.CHANGED,
        ReasonCode.NOT_FOUND,
        ReasonCode.COOLDOWN,
        ReasonCode.PAUSED,
        ReasonCode.MODE_FORBIDS,
    }
)


def apply_outcomes(plan: PackingPlan, outcomes: Sequence[Outcome], now: datetime) -> PackingPlan:
    """Return the plan as it is after some of its actions; one refused drops it, what passes by holds it up."""
    for outcome in outcomes:
        action = outcome.action
        if not isinstance(action, EvictPod | ResizePod):
            continue
        if outcome.result is ActionResult.DONE:
            if isinstance(action, EvictPod):
                plan = replace(plan, evicted=(*plan.evicted, EvictedPod(action.uid, now)), changed_at=now)
        elif outcome.result is ActionResult.REFUSED or (
            outcome.result is ActionResult.SKIPPED and outcome.reason not in _PASSES_BY
        ):
            code = (
                PlanStatusReason.EVICTION_REFUSED if isinstance(action, EvictPod) else PlanStatusReason.RESIZE_REFUSED
            )
            halt = PlanCondition(code, f"{action.namespace}/{action.pod}", outcome.detail or outcome.reason.value)
            return replace(plan, phase=PlanPhase.DROPPED, changed_at=now, condition=halt)
        else:
            plan = replace(
                plan,
                condition=PlanCondition(
                    PlanStatusReason.SKIPPED, f"{action.namespace}/{action.pod}", outcome.reason.value
                ),
            )
    return plan

"""Decides the next actions of a plan that is being carried out, and when the plan is dropped."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from cruise.decisions.packing.expected_pods import (
    StageArrivalPods,
    add_existing_pods_of_owners,
    add_placement_hints,
)
from cruise.decisions.packing.plan_contradictions import find_plan_contradictions, find_stage_obstacles
from cruise.decisions.packing.remaining_plan import (
    count_arrival_requests,
    get_arrival_sizes,
    get_current_stage,
    has_spec_sizes,
)
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.pod_policy.evictability import Evictability
from cruise.decisions.sizing.resizes import build_resize
from cruise.domain.actions import ActionResult, EvictPod, Outcome, PodItem, ReasonCode, ResizePod
from cruise.domain.annotations import EffectivePolicy
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.overrides import NO_PAUSED_WORKLOADS, PausedWorkloads
from cruise.domain.packing_plan import (
    EvictedPod,
    PackingPlan,
    PackingProposal,
    PlannedPlacement,
    PlannedPreemption,
    PlanPhase,
    PlanStage,
)
from cruise.domain.pod_resources import count_pod_requests, replace_spec_resources
from cruise.domain.policy import EvictionRanking, Mode, Policy
from cruise.domain.reasons import PlanCondition, PlanStatusReason
from cruise.domain.resources import NO_RESOURCES, ResizePending, ResourceName
from cruise.domain.usage import StatisticsTable

# The webhook reads the placement hints every second.
PLACEMENT_HINT_LEAD_TIME = timedelta(seconds=2.5)
# kube-scheduler retries an unschedulable pod after ten seconds at the latest.
_BINDING_TIMEOUT = timedelta(seconds=30)
_NO_STATISTICS = StatisticsTable.from_rows(())


@dataclass(frozen=True, slots=True)
class PlanStep:
    """The new state of a plan, to be stored before its actions are carried out; without actions, the plan waits."""

    plan: PackingPlan
    actions: tuple[ResizePod | EvictPod, ...] = ()


def start_plan(
    proposal: PackingProposal,
    at: datetime,
    now: datetime,
    seconds: float,
    mode: Mode,
    *,
    advisory_reason: PlanCondition | None = None,
) -> PackingPlan:
    """Return a proposal as a plan that is carried out as far as the mode allows, or that is advisory.

    `at` is the time of the snapshot; `advisory_reason` is the reason why nothing is carried out.
    """
    has_evictions = any(stage.evictions for stage in proposal.stages)
    condition = advisory_reason
    if not proposal.stages:
        condition = PlanCondition(PlanStatusReason.NOTHING_TO_DO)
    elif mode < Mode.RESIZE:
        condition = PlanCondition(PlanStatusReason.MODE, mode.label)
    elif advisory_reason is None and has_evictions and mode < Mode.FULL:
        condition = PlanCondition(PlanStatusReason.NO_EVICTIONS, mode.label)
    phase = PlanPhase.IN_PROGRESS if condition is None else PlanPhase.ADVISORY
    return PackingPlan(at.strftime("%Y%m%dT%H%M%S.%fZ"), at, proposal, seconds, phase, now, condition=condition)


def decide_next_step(
    plan: PackingPlan,
    snapshot: ClusterSnapshot,
    policy: Policy,
    now: datetime,
    paused_workloads: PausedWorkloads = NO_PAUSED_WORKLOADS,
) -> PlanStep:
    """Return the next actions of a plan in progress, from the present cluster.

    A stage first resizes until the sizes are actual, then evicts pods one by one, then waits until all pods are bound.
    A contradiction, or its age, drops the whole plan.
    """
    while (stage := get_current_stage(plan)) is not None:
        current = _CurrentStage(plan, stage, snapshot, policy, now, paused_workloads)
        if not current.is_done():
            return current.step()
        plan = replace(
            current.plan,
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
    """The current stage of a plan in the present cluster; `plan` is updated with what is observed."""

    def __init__(
        self,
        plan: PackingPlan,
        stage: PlanStage,
        snapshot: ClusterSnapshot,
        policy: Policy,
        now: datetime,
        paused_workloads: PausedWorkloads,
    ) -> None:
        self.plan = plan
        self._stage = stage
        self._snapshot = snapshot
        self._policy = policy
        self._now = now
        self._paused_workloads = paused_workloads
        self._places = StageArrivalPods(plan, stage, snapshot)
        if self._places.placed_pods != plan.placed:
            self.plan = replace(plan, placed=self._places.placed_pods, changed_at=now)
        # Of an eviction whose answer was lost the time is unknown: kube-scheduler has as long from now on.
        unknown = self._places.left - {one.uid for one in plan.evicted}
        if unknown:
            evicted = (*plan.evicted, *(EvictedPod(uid, now) for uid in sorted(unknown)))
            self.plan = replace(self.plan, evicted=evicted, changed_at=now)

    def is_done(self) -> bool:
        """Return whether all pods of the stage are bound, on any node, and the evicted ones no longer exist."""
        stage, places = self._stage, self._places
        bound = all(places.get_node(one) is not None for one in stage.arrivals)
        # If only pending pods remain and all of them run, no other pod must be evicted.
        if bound and not stage.evictions:
            return all(_is_actual(one, places) for one in stage.resizes) or bool(stage.arrivals)
        return bound and not places.get_pending_evictions() and places.are_all_evicted()

    def step(self) -> PlanStep:
        """Return the next actions of a stage that is not done."""
        policy, places = self._policy, self._places
        if policy.mode < Mode.RESIZE or (self._stage.evictions and policy.mode < Mode.FULL):
            return self._drop(PlanCondition(PlanStatusReason.MODE, policy.mode.label))
        if self._now - self.plan.at >= policy.pass_interval:
            return self._drop(PlanCondition(PlanStatusReason.TOO_OLD))
        obstacles: Sequence[PlanCondition] = list(find_stage_obstacles(self._stage, self._snapshot, places))
        if obstacles:
            return self._drop(*obstacles)
        if self.plan.ready_at is None:
            until = self.plan.at + policy.pass_interval
            plan = add_placement_hints(self.plan, self._stage, self._snapshot, policy, until)
            self.plan = replace(plan, ready_at=self._now + PLACEMENT_HINT_LEAD_TIME if plan.expected else self._now)
        elif not places.left:
            self.plan = add_existing_pods_of_owners(self.plan, self._snapshot)
        # A pod that kube-scheduler might bind elsewhere would be bound as soon as there is capacity.
        recreating = None if places.evicting else self._recreate()
        step = recreating or self._resize() or self._evict_next()
        if step.actions and not places.evicting:
            # The remaining plan is checked before the first action of a stage only: in a large cluster that takes a
            # second.
            obstacles = find_plan_contradictions(self.plan, self._snapshot, places, policy, self._paused_workloads)
        return self._drop(*obstacles) if obstacles else step

    def _recreate(self) -> PlanStep | None:
        """Return the next eviction of a pending pod that gets a placement hint, or the wait for its replacement."""
        places, pending = self._places, self._places.get_pending_recreations()
        if pending:
            return self._evict(pending[0])
        missing = [one for one in self._stage.arrivals if one.uid in places.left and places.get_pod(one) is None]
        return self._wait(PlanStatusReason.RECREATION, _format_name(missing[0])) if missing else None

    def _resize(self) -> PlanStep | None:
        """Return the remaining resizes, or the wait for those that are not actual yet."""
        places = self._places
        resizes = [one for one in self._stage.resizes if one.uid not in places.left and not places.evicting]
        for one in resizes:
            pod = places.pods.get(one.uid)
            if pod is not None and pod.resize.pending is ResizePending.INFEASIBLE:
                condition = PlanCondition(PlanStatusReason.CANNOT_RESIZE, _format_name(one), one.node or "")
                return PlanStep(replace(self.plan, phase=PlanPhase.DROPPED, condition=condition))
        resizes = [one for one in resizes if one.node is not None]
        actions = [
            replace(one, reason=ReasonCode.FREED_CAPACITY_FOR_PENDING_PODS)
            for one in resizes
            if not has_spec_sizes(places.pods[one.uid], one.containers)
        ]
        actions += self._resize_pending()
        if actions:
            return PlanStep(replace(self.plan, condition=None), tuple(actions))
        not_actual = [one for one in resizes if not _is_actual(one, places)]
        return self._wait(PlanStatusReason.RESIZE, _format_name(not_actual[0])) if not_actual else None

    def _evict_next(self) -> PlanStep:
        """Return the next eviction or the wait for it; without evictions left, the wait for kube-scheduler."""
        pending = self._places.get_pending_evictions()
        return self._evict(pending[0], within_budgets=True) if pending else self._wait_for_binding()

    def _evict(self, one: PlannedPlacement | PlannedPreemption, *, within_budgets: bool = False) -> PlanStep:
        """Return a pod's eviction, or the wait until the webhook has its hint and a budget allows it."""
        if self.plan.ready_at is not None and self._now < self.plan.ready_at:
            return self._wait(PlanStatusReason.PLACEMENT_HINT)
        pod = self._places.pods[one.uid]
        budget = Evictability(self._snapshot).find_exhausted_budget(pod) if within_budgets else None
        if budget is not None:
            return self._wait(PlanStatusReason.DISRUPTION_BUDGET, budget)
        eligibility = Eligibility(self._snapshot, _NO_STATISTICS, self._paused_workloads, self._policy, self._now)
        effective_policy, ranking = eligibility.get_effective_policy(pod), EvictionRanking.LOW
        if isinstance(effective_policy, EffectivePolicy):
            ranking = eligibility.evictability.get_ranking(pod, effective_policy)
        reason = ReasonCode.FREED_CAPACITY_FOR_PENDING_PODS
        eviction = EvictPod(one.namespace, one.pod, one.uid, pod.node, pod.workload, ranking, ResourceName.CPU, reason)
        return PlanStep(replace(self.plan, condition=None), (eviction,))

    def _wait_for_binding(self) -> PlanStep:
        places = self._places
        unbound = [one for one in self._stage.arrivals if places.get_node(one) is None]
        for one in unbound:
            pod = places.get_pod(one)
            since = None if pod is None else pod.unschedulable_since
            last = max((eviction.at for eviction in self.plan.evicted), default=since)
            late = since is not None and last is not None and self._now - max(since, last) > _BINDING_TIMEOUT
            if late and places.are_all_evicted():
                return self._drop(
                    PlanCondition(PlanStatusReason.NO_NODE_FOR_POD, f"{one.namespace}/{pod.name if pod else one.pod}")
                )
        return (
            self._wait(PlanStatusReason.POD_BINDING, _format_name(unbound[0]))
            if unbound
            else self._wait(PlanStatusReason.EVICTION_IN_PROGRESS)
        )

    def _resize_pending(self) -> list[ResizePod]:
        """Return the resizes of pending pods that request more than planned on arrival.

        The webhook gives a recreated pod its planned sizes; if it did not answer, the pod is resized here.
        """
        stage, places = self._stage, self._places
        expected = {one.replaces for one in self.plan.expected} - places.left
        arriving = (
            (get_arrival_sizes(stage, one), places.get_pod(one)) for one in stage.arrivals if one.uid not in expected
        )
        return [
            build_resize(pod, sizes, NO_RESOURCES, ReasonCode.FREED_CAPACITY_FOR_PENDING_PODS)
            for sizes, pod in arriving
            if pod is not None
            and pod.node is None
            and not count_arrival_requests(pod).fits_in(count_arrival_requests(replace_spec_resources(pod, sizes)))
        ]

    def _wait(self, code: PlanStatusReason, subject: str = "") -> PlanStep:
        return PlanStep(replace(self.plan, condition=PlanCondition(code, subject)))

    def _drop(self, *conditions: PlanCondition) -> PlanStep:
        """Drop the plan for the first reason; the others are counted."""
        condition = replace(conditions[0], similar_count=len(conditions) - 1)
        return PlanStep(replace(self.plan, phase=PlanPhase.DROPPED, changed_at=self._now, condition=condition))


def _is_actual(resize: ResizePod, places: StageArrivalPods) -> bool:
    """Return whether a pod's counted requests have reached its new sizes."""
    pod = places.pods.get(resize.uid)
    if pod is None or pod.node is None:
        return True
    return has_spec_sizes(pod, resize.containers) and count_pod_requests(pod).fits_in(
        count_arrival_requests(replace_spec_resources(pod, resize.containers))
    )


def _format_name(one: PodItem) -> str:
    return "/".join(one.key)


# Reasons for which the same action may succeed later.
_TEMPORARY_REASONS = frozenset(
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
    """Return the plan after the outcomes of some actions: a rejected one drops it, a temporary reason delays it."""
    for outcome in outcomes:
        action = outcome.action
        if not isinstance(action, EvictPod | ResizePod):
            continue
        if outcome.result is ActionResult.DONE:
            if isinstance(action, EvictPod):
                plan = replace(plan, evicted=(*plan.evicted, EvictedPod(action.uid, now)), changed_at=now)
        elif outcome.result is ActionResult.REFUSED or (
            outcome.result is ActionResult.SKIPPED and outcome.reason not in _TEMPORARY_REASONS
        ):
            code = (
                PlanStatusReason.EVICTION_REFUSED if isinstance(action, EvictPod) else PlanStatusReason.RESIZE_REFUSED
            )
            condition = PlanCondition(code, f"{action.namespace}/{action.pod}", outcome.detail or outcome.reason.value)
            return replace(plan, phase=PlanPhase.DROPPED, changed_at=now, condition=condition)
        else:
            plan = replace(
                plan,
                condition=PlanCondition(
                    PlanStatusReason.SKIPPED, f"{action.namespace}/{action.pod}", outcome.reason.value
                ),
            )
    return plan

"""What comes next for a plan that is being carried out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from cruise.decisions.guidance.eligibility import Eligibility
from cruise.decisions.guidance.evictability import Evictability
from cruise.decisions.packing.execution.contradictions import find_contradictions, find_obstacles
from cruise.decisions.packing.execution.expecting import expecting, with_bystanders
from cruise.decisions.packing.execution.places import Places
from cruise.decisions.packing.execution.rest import asks_for, need_of, present_stage, sizes_of
from cruise.domain.actions import EvictPod, Reason, ResizePod
from cruise.domain.annotations import Guidance
from cruise.domain.cluster import Pod, ResizePending, Snapshot
from cruise.domain.halts import Halt, HaltCode
from cruise.domain.overrides import StoredOverrides
from cruise.domain.packing import Arrival, PackingPlan, Phase, Preemption, Proposal, Stage
from cruise.domain.policy import EvictionRanking, Mode, Policy
from cruise.domain.requests import counted_requests
from cruise.domain.resources import NO_RESOURCES, ResourceName
from cruise.domain.sizes import with_sizes
from cruise.domain.usage import StatisticsTable

# The webhook reads every second which pods to steer.
STEERING_LEAD = timedelta(seconds=2.5)
# kube-scheduler tries a pod that did not fit again after ten seconds at the latest.
_BINDING_PATIENCE = timedelta(seconds=30)
_UNTIL_STEERED = Halt(HaltCode.STEERING)
_NO_STATISTICS = StatisticsTable.of_rows(())


@dataclass(frozen=True, slots=True)
class Step:
    """A plan as it is now, to be stored before the actions are done; without actions there is something to wait for."""

    plan: PackingPlan
    actions: tuple[ResizePod | EvictPod, ...] = ()


def begun(
    proposal: Proposal, at: datetime, now: datetime, seconds: float, mode: Mode, *, why_not: Halt | None = None
) -> PackingPlan:
    """Return a proposal as a plan: to be carried out as far as the mode goes, or shown.

    `at` is when the cluster was looked at; `why_not` says why nothing at all is to be carried out, if so.
    """
    evicts = any(stage.leaves for stage in proposal.stages)
    halt = why_not
    if not proposal.stages:
        halt = Halt(HaltCode.NOTHING_TO_DO)
    elif mode < Mode.RESIZE:
        halt = Halt(HaltCode.MODE, mode.label)
    elif why_not is None and evicts and mode < Mode.FULL:
        halt = Halt(HaltCode.NO_EVICTIONS, mode.label)
    phase = Phase.UNDER_WAY if halt is None else Phase.SHOWN
    return PackingPlan(at.strftime("%Y%m%dT%H%M%S.%fZ"), at, proposal, seconds, phase, now, halt=halt)


def decide_next_step(
    plan: PackingPlan, snapshot: Snapshot, policy: Policy, now: datetime, stored: StoredOverrides | None = None
) -> Step:
    """Return what is to be done next for a plan that is under way, from the cluster as it is now.

    Resizes until they are actual, then evictions one by one, then the wait until all pods are bound; then the next
    stage. What contradicts the plan, and its age, drop it whole.
    """
    while (stage := present_stage(plan)) is not None:
        places = Places(plan, stage, snapshot)
        plan = _landed(plan, places, now)
        if not _is_done(stage, places):
            return _step_in(plan, stage, places, snapshot, policy, now, stored or {})
        plan = replace(
            plan,
            stage=plan.stage + 1,
            departed=(),
            landed=(),
            expected=(),
            bystanders=(),
            ready_at=None,
            halt=None,
            changed_at=now,
        )
    return Step(replace(plan, phase=Phase.FINISHED, changed_at=now, halt=None))


def _landed(plan: PackingPlan, places: Places, now: datetime) -> PackingPlan:
    landed = places.landed
    return plan if landed == plan.landed else replace(plan, landed=landed, changed_at=now)


def _is_done(stage: Stage, places: Places) -> bool:
    """Tell whether all pods of a stage are bound, wherever that is, and those that left are gone."""
    bound = all(places.node_of(one) is not None for one in stage.arrivals)
    # Where only pods that waited remain, and all of them run, no other has to go.
    if bound and not stage.leaves:
        return not [one for one in stage.resizes if not _is_actual(one, places)] or bool(stage.arrivals)
    return bound and not places.still_to_leave() and places.all_gone()


def _step_in(
    plan: PackingPlan,
    stage: Stage,
    places: Places,
    snapshot: Snapshot,
    policy: Policy,
    now: datetime,
    stored: StoredOverrides,
) -> Step:
    if policy.mode < Mode.RESIZE or (stage.leaves and policy.mode < Mode.FULL):
        return _dropped(plan, now, Halt(HaltCode.MODE, policy.mode.label))
    if now - plan.at >= policy.pass_interval:
        return _dropped(plan, now, Halt(HaltCode.TOO_OLD))
    wrong: Sequence[Halt] = list(find_obstacles(stage, snapshot, places))
    if wrong:
        return _dropped(plan, now, *wrong)
    if plan.ready_at is None:
        plan = expecting(plan, stage, snapshot, policy, plan.at + policy.pass_interval)
        plan = replace(plan, ready_at=now + STEERING_LEAD if plan.expected else now)
    elif not places.left:
        plan = with_bystanders(plan, snapshot)
    disruption = _Disruption(snapshot, policy, now, stored)
    # A pod that would go astray does so as soon as there is room.
    recreating = None if places.evicting else _recreated(plan, stage, places, disruption)
    step = recreating or _resized(plan, stage, places) or _evicted(plan, stage, places, disruption)
    if step.actions and not places.evicting:
        # The whole rest is judged before anything is done for a stage: in a large cluster that takes a second.
        wrong = find_contradictions(plan, snapshot, places, policy, stored)
    return _dropped(plan, now, *wrong) if wrong else step


class _Disruption:
    """What an eviction is decided with."""

    def __init__(self, snapshot: Snapshot, policy: Policy, now: datetime, stored: StoredOverrides) -> None:
        self.now = now
        self._snapshot = snapshot
        self._policy = policy
        self._stored = stored

    def of(self, one: Arrival | Preemption, pod: Pod) -> EvictPod:
        """Return the eviction of a pod of a plan."""
        eligibility = Eligibility(self._snapshot, _NO_STATISTICS, self._stored, self._policy, self.now)
        guidance = eligibility.guidance_of(pod)
        ranking = (
            eligibility.evictability.ranking_of(pod, guidance)
            if isinstance(guidance, Guidance)
            else EvictionRanking.LOW
        )
        why = Reason.PACKED
        return EvictPod(one.namespace, one.pod, one.uid, pod.node, pod.workload, ranking, ResourceName.CPU, why)

    def exhausted_budget(self, pod: Pod) -> str | None:
        """Return the PodDisruptionBudget that allows no eviction of the pod now, None if none forbids it."""
        return Evictability(self._snapshot).exhausted_budget(pod)


def _recreated(plan: PackingPlan, stage: Stage, places: Places, disruption: _Disruption) -> Step | None:
    """Return the next eviction of a pending pod that could not be steered else, or the wait for its replacement."""
    to_go = places.still_to_recreate()
    if to_go:
        if plan.ready_at is not None and disruption.now < plan.ready_at:
            return Step(replace(plan, halt=_UNTIL_STEERED))
        return Step(replace(plan, halt=None), (disruption.of(to_go[0], places.pods[to_go[0].uid]),))
    missing = next((one for one in stage.arrivals if one.uid in places.left and places.pod_of(one) is None), None)
    if missing is not None:
        return Step(replace(plan, halt=Halt(HaltCode.RECREATION, f"{missing.namespace}/{missing.pod}")))
    return None


def _resized(plan: PackingPlan, stage: Stage, places: Places) -> Step | None:
    """Return the resizes that are left, or the wait for those that are not actual yet."""
    resizes = [one for one in stage.resizes if one.uid not in places.left]
    stuck = [one for one in resizes if _pending(places.pods.get(one.uid)) is ResizePending.INFEASIBLE]
    if stuck and not places.evicting:
        halt = Halt(HaltCode.CANNOT_RESIZE, f"{stuck[0].namespace}/{stuck[0].pod}", stuck[0].node or "")
        return Step(replace(plan, phase=Phase.DROPPED, halt=halt))
    left = [
        replace(one, reason=Reason.PACKED)
        for one in resizes
        if one.node is not None and not (places.evicting or asks_for(places.pods[one.uid], one.containers))
    ]
    left += _shrinks_of_waiting(plan, stage, places)
    if left:
        return Step(replace(plan, halt=None), tuple(left))
    waits = [one for one in resizes if one.node and not (places.evicting or _is_actual(one, places))]
    if waits:
        return Step(replace(plan, halt=Halt(HaltCode.RESIZE, f"{waits[0].namespace}/{waits[0].pod}")))
    return None


def _evicted(plan: PackingPlan, stage: Stage, places: Places, disruption: _Disruption) -> Step:
    """Return the next eviction, or the wait for it, or for kube-scheduler once no pod is left to go."""
    to_go = places.still_to_leave()
    if not to_go:
        return _awaited(plan, stage, places, disruption.now)
    if plan.ready_at is not None and disruption.now < plan.ready_at:
        return Step(replace(plan, halt=_UNTIL_STEERED))
    pod = places.pods[to_go[0].uid]
    budget = disruption.exhausted_budget(pod)
    if budget is not None:
        return Step(replace(plan, halt=Halt(HaltCode.DISRUPTION_BUDGET, budget)))
    return Step(replace(plan, halt=None), (disruption.of(to_go[0], pod),))


def _awaited(plan: PackingPlan, stage: Stage, places: Places, now: datetime) -> Step:
    waiting = [one for one in stage.arrivals if places.node_of(one) is None]
    for one in waiting:
        pod = places.pod_of(one)
        since = None if pod is None else pod.unschedulable_since
        last = max((departure.at for departure in plan.departed), default=since)
        if since is not None and last is not None and now - max(since, last) > _BINDING_PATIENCE and places.all_gone():
            name = f"{one.namespace}/{pod.name if pod else one.pod}"
            return _dropped(plan, now, Halt(HaltCode.FINDS_NO_NODE, name))
    if waiting:
        return Step(replace(plan, halt=Halt(HaltCode.BINDING, f"{waiting[0].namespace}/{waiting[0].pod}")))
    return Step(replace(plan, halt=Halt(HaltCode.LEAVING)))


def _shrinks_of_waiting(plan: PackingPlan, stage: Stage, places: Places) -> list[ResizePod]:
    """Return the resizes of pods that wait for a node with more than they are to arrive with.

    A pod that is created anew has the planned sizes from the webhook; where that did not answer, it is sized here.
    """
    coming = {one.replaces for one in plan.expected} - places.left
    found = ((sizes_of(stage, one), places.pod_of(one)) for one in stage.arrivals if one.uid not in coming)
    return [
        ResizePod(pod.namespace, pod.name, pod.uid, None, pod.workload, sizes, NO_RESOURCES, Reason.PACKED)
        for sizes, pod in found
        if pod is not None and pod.node is None and not need_of(pod).fits_in(need_of(with_sizes(pod, sizes)))
    ]


def _is_actual(resize: ResizePod, places: Places) -> bool:
    """Tell whether what a pod counts has come down to its new sizes."""
    pod = places.pods.get(resize.uid)
    if pod is None or pod.node is None:
        return True
    return asks_for(pod, resize.containers) and counted_requests(pod).fits_in(
        need_of(with_sizes(pod, resize.containers))
    )


def _pending(pod: Pod | None) -> ResizePending | None:
    return None if pod is None else pod.resize.pending


def _dropped(plan: PackingPlan, now: datetime, *halts: Halt) -> Step:
    """Drop a plan for the first reason; the others are counted."""
    halt = replace(halts[0], more=len(halts) - 1)
    return Step(replace(plan, phase=Phase.DROPPED, changed_at=now, halt=halt))

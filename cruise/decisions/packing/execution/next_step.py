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
from cruise.domain.actions import EvictPod, OfPod, Reason, ResizePod
from cruise.domain.annotations import Guidance
from cruise.domain.cluster import ResizePending, Snapshot
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
        present = _Present(plan, stage, snapshot, policy, now, stored or {})
        if not present.is_done():
            return present.step()
        plan = replace(
            present.plan,
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


class _Present:
    """The stage of a plan that is carried out, in the cluster as it is now; `plan` learns from it as it goes."""

    def __init__(
        self,
        plan: PackingPlan,
        stage: Stage,
        snapshot: Snapshot,
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
        self._places = Places(plan, stage, snapshot)
        if self._places.landed != plan.landed:
            self.plan = replace(plan, landed=self._places.landed, changed_at=now)

    def is_done(self) -> bool:
        """Tell whether all pods of the stage are bound, wherever that is, and those that left are gone."""
        stage, places = self._stage, self._places
        bound = all(places.node_of(one) is not None for one in stage.arrivals)
        # Where only pods that waited remain, and all of them run, no other has to go.
        if bound and not stage.leaves:
            return all(_is_actual(one, places) for one in stage.resizes) or bool(stage.arrivals)
        return bound and not places.still_to_leave() and places.all_gone()

    def step(self) -> Step:
        """Return what is to be done next of a stage that is not done."""
        policy, places = self._policy, self._places
        if policy.mode < Mode.RESIZE or (self._stage.leaves and policy.mode < Mode.FULL):
            return self._dropped(Halt(HaltCode.MODE, policy.mode.label))
        if self._now - self.plan.at >= policy.pass_interval:
            return self._dropped(Halt(HaltCode.TOO_OLD))
        wrong: Sequence[Halt] = list(find_obstacles(self._stage, self._snapshot, places))
        if wrong:
            return self._dropped(*wrong)
        if self.plan.ready_at is None:
            until = self.plan.at + policy.pass_interval
            plan = expecting(self.plan, self._stage, self._snapshot, policy, until)
            self.plan = replace(plan, ready_at=self._now + STEERING_LEAD if plan.expected else self._now)
        elif not places.left:
            self.plan = with_bystanders(self.plan, self._snapshot)
        # A pod that would go astray does so as soon as there is room.
        recreating = None if places.evicting else self._recreated()
        step = recreating or self._resized() or self._evicted()
        if step.actions and not places.evicting:
            # The whole rest is judged before anything is done for a stage: in a large cluster that takes a second.
            wrong = find_contradictions(self.plan, self._snapshot, places, policy, self._stored)
        return self._dropped(*wrong) if wrong else step

    def _recreated(self) -> Step | None:
        """Return the next eviction of a pending pod that could not be steered else, or the wait for its replacement."""
        places, to_go = self._places, self._places.still_to_recreate()
        if to_go:
            return self._evicting(to_go[0])
        gone = [one for one in self._stage.arrivals if one.uid in places.left and places.pod_of(one) is None]
        return self._waits(HaltCode.RECREATION, _name(gone[0])) if gone else None

    def _resized(self) -> Step | None:
        """Return the resizes that are left, or the wait for those that are not actual yet."""
        places = self._places
        resizes = [one for one in self._stage.resizes if one.uid not in places.left and not places.evicting]
        for one in resizes:
            pod = places.pods.get(one.uid)
            if pod is not None and pod.resize.pending is ResizePending.INFEASIBLE:
                halt = Halt(HaltCode.CANNOT_RESIZE, _name(one), one.node or "")
                return Step(replace(self.plan, phase=Phase.DROPPED, halt=halt))
        resizes = [one for one in resizes if one.node is not None]
        left = [
            replace(one, reason=Reason.PACKED) for one in resizes if not asks_for(places.pods[one.uid], one.containers)
        ]
        left += self._shrinks_of_waiting()
        if left:
            return Step(replace(self.plan, halt=None), tuple(left))
        waits = [one for one in resizes if not _is_actual(one, places)]
        return self._waits(HaltCode.RESIZE, _name(waits[0])) if waits else None

    def _evicted(self) -> Step:
        """Return the next eviction, or the wait for it, or for kube-scheduler once no pod is left to go."""
        to_go = self._places.still_to_leave()
        return self._evicting(to_go[0], within_budgets=True) if to_go else self._awaited()

    def _evicting(self, one: Arrival | Preemption, *, within_budgets: bool = False) -> Step:
        """Return a pod's eviction, or the wait until the webhook knows of it, and perhaps until a budget allows it."""
        if self.plan.ready_at is not None and self._now < self.plan.ready_at:
            return self._waits(HaltCode.STEERING)
        pod = self._places.pods[one.uid]
        budget = Evictability(self._snapshot).exhausted_budget(pod) if within_budgets else None
        if budget is not None:
            return self._waits(HaltCode.DISRUPTION_BUDGET, budget)
        eligibility = Eligibility(self._snapshot, _NO_STATISTICS, self._stored, self._policy, self._now)
        guidance, ranking = eligibility.guidance_of(pod), EvictionRanking.LOW
        if isinstance(guidance, Guidance):
            ranking = eligibility.evictability.ranking_of(pod, guidance)
        why = Reason.PACKED
        eviction = EvictPod(one.namespace, one.pod, one.uid, pod.node, pod.workload, ranking, ResourceName.CPU, why)
        return Step(replace(self.plan, halt=None), (eviction,))

    def _awaited(self) -> Step:
        places = self._places
        waiting = [one for one in self._stage.arrivals if places.node_of(one) is None]
        for one in waiting:
            pod = places.pod_of(one)
            since = None if pod is None else pod.unschedulable_since
            last = max((departure.at for departure in self.plan.departed), default=since)
            late = since is not None and last is not None and self._now - max(since, last) > _BINDING_PATIENCE
            if late and places.all_gone():
                return self._dropped(Halt(HaltCode.FINDS_NO_NODE, f"{one.namespace}/{pod.name if pod else one.pod}"))
        return self._waits(HaltCode.BINDING, _name(waiting[0])) if waiting else self._waits(HaltCode.LEAVING)

    def _shrinks_of_waiting(self) -> list[ResizePod]:
        """Return the resizes of pods that wait for a node with more than they are to arrive with.

        A pod that is created anew has the planned sizes from the webhook; where that did not answer, it is sized here.
        """
        stage, places = self._stage, self._places
        coming = {one.replaces for one in self.plan.expected} - places.left
        found = ((sizes_of(stage, one), places.pod_of(one)) for one in stage.arrivals if one.uid not in coming)
        return [
            ResizePod(pod.namespace, pod.name, pod.uid, None, pod.workload, sizes, NO_RESOURCES, Reason.PACKED)
            for sizes, pod in found
            if pod is not None and pod.node is None and not need_of(pod).fits_in(need_of(with_sizes(pod, sizes)))
        ]

    def _waits(self, code: HaltCode, subject: str = "") -> Step:
        return Step(replace(self.plan, halt=Halt(code, subject)))

    def _dropped(self, *halts: Halt) -> Step:
        """Drop the plan for the first reason; the others are counted."""
        halt = replace(halts[0], more=len(halts) - 1)
        return Step(replace(self.plan, phase=Phase.DROPPED, changed_at=self._now, halt=halt))


def _is_actual(resize: ResizePod, places: Places) -> bool:
    """Tell whether what a pod counts has come down to its new sizes."""
    pod = places.pods.get(resize.uid)
    if pod is None or pod.node is None:
        return True
    return asks_for(pod, resize.containers) and counted_requests(pod).fits_in(
        need_of(with_sizes(pod, resize.containers))
    )


def _name(one: OfPod) -> str:
    return "/".join(one.key)

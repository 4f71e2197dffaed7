"""Carries a packing plan out, step by step, each against the cluster as it is then; cruise never binds a pod."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime

import structlog

from cruise.decisions.packing.execution import PlanStep, apply_outcomes, decide_next_step
from cruise.decisions.packing.remaining_plan import PlanSubjects, get_plan_subjects
from cruise.domain.actions import ActionResult, Outcome
from cruise.domain.packing_plan import PackingPlan, PlanPhase
from cruise.domain.policy import Policy
from cruise.domain.reasons import PlanCondition, PlanStatusReason
from cruise.runtime.ports import ClusterPort, StorePort
from cruise.runtime.writing.evictions import WriteExclusions
from cruise.runtime.writing.writer import ClusterWriter

log = structlog.get_logger()

POLL_SECONDS = 1.0


async def _discard(outcomes: Sequence[Outcome]) -> None:
    """Discard outcomes."""


class PlanExecutor:
    """Carries out one plan at a time; its progress is stored before and after each write.

    Meanwhile `exclusions` keeps the node passes from the plan's nodes and pods. `tell` gets each action's outcome;
    `stepped` is called after each look at the cluster.
    """

    def __init__(
        self,
        cluster: ClusterPort,
        store: StorePort,
        policy: Policy,
        writer: ClusterWriter,
        exclusions: WriteExclusions,
        clock: Callable[[], datetime],
        *,
        tell: Callable[[Sequence[Outcome]], Awaitable[None]] = _discard,
        poll_seconds: float = POLL_SECONDS,
        stepped: Callable[[], None] = lambda: None,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._policy = policy
        self._writer = writer
        self._exclusions = exclusions
        self._clock = clock
        self._tell = tell
        self._poll_seconds = poll_seconds
        self._stepped = stepped

    async def start(self) -> PackingPlan | None:
        """Return the plan that was begun and not ended, with its nodes and pods reserved; None without one."""
        plan = await self._store.packing()
        if plan is None or plan.phase is not PlanPhase.IN_PROGRESS:
            self._exclusions.reserved = PlanSubjects()
            return None
        self._exclusions.reserved = get_plan_subjects(plan, await self._cluster.snapshot())
        return plan

    async def run(self, plan: PackingPlan) -> PackingPlan:
        """Carry a plan out until it is finished or dropped; one that is only shown is returned as it is.

        Raises what the world refuses: then the plan is as it was stored last, to be taken up again.
        """
        while plan.phase is PlanPhase.IN_PROGRESS:
            plan, done = await self.step(plan)
            self._stepped()
            if plan.phase is PlanPhase.IN_PROGRESS and not done:
                await asyncio.sleep(self._poll_seconds)
        return plan

    async def step(self, plan: PackingPlan) -> tuple[PackingPlan, bool]:
        """Do what comes next for a plan under way; return it as it is then, and whether something was done."""
        snapshot, stored = await self._cluster.snapshot(), await self._store.overrides()
        self._exclusions.reserved = get_plan_subjects(plan, snapshot)
        now = self._clock()
        # In a thread, since judging the rest of a plan in a large cluster takes a while.
        try:
            step = await asyncio.to_thread(decide_next_step, plan, snapshot, self._policy, now, stored)
        except Exception as mistake:
            log.error("packing plan not understood", plan=plan.id, error=repr(mistake), exc_info=True)
            halt = PlanCondition(PlanStatusReason.FAILED, detail=repr(mistake))
            step = PlanStep(replace(plan, phase=PlanPhase.DROPPED, changed_at=now, condition=halt))
        if step.plan != plan:
            await self._store.save_packing(step.plan)
        after, done = step.plan, False
        if step.actions:
            outcomes = await self._writer.apply_plan(step.actions, snapshot, now, pass_started_at=plan.at)
            after = apply_outcomes(step.plan, outcomes, self._clock())
            if after != step.plan:
                await self._store.save_packing(after)
            done = any(outcome.result is ActionResult.DONE for outcome in outcomes)
            await self._tell(outcomes)
        _log_progress(plan, after)
        if after.phase is not PlanPhase.IN_PROGRESS:
            self._exclusions.reserved = PlanSubjects()
        return after, done


def _log_progress(before: PackingPlan, after: PackingPlan) -> None:
    fields = {"plan": after.id, "stage": after.stage, "stages": len(after.proposal.stages)}
    if after.phase is PlanPhase.DROPPED:
        log.warning("packing plan dropped", **fields, why=str(after.condition))
    elif after.phase is PlanPhase.FINISHED:
        log.info("packing plan finished", **fields)
    elif after.stage != before.stage or after.condition != before.condition:
        log.info("packing plan goes on", **fields, halt=None if after.condition is None else str(after.condition))

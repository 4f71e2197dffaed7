"""Carries out a packing plan step by step, each checked against the present cluster; cruise never binds a pod."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime

import structlog

from cruise.decisions.packing.execution import PlanStep, apply_outcomes, decide_next_step
from cruise.decisions.packing.remaining_plan import PlanDependencies, get_plan_dependencies
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

    `exclusions` reserves the plan's nodes and pods, so that node passes do not change them. `on_outcomes` gets the
    outcomes of each step; `on_step` is called after each step.
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
        on_outcomes: Callable[[Sequence[Outcome]], Awaitable[None]] = _discard,
        poll_seconds: float = POLL_SECONDS,
        on_step: Callable[[], None] = lambda: None,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._policy = policy
        self._writer = writer
        self._exclusions = exclusions
        self._clock = clock
        self._on_outcomes = on_outcomes
        self._poll_seconds = poll_seconds
        self._on_step = on_step

    async def start(self) -> PackingPlan | None:
        """Return the stored plan in progress, with its nodes and pods reserved; None if there is none."""
        plan = await self._store.read_packing_plan()
        if plan is None or plan.phase is not PlanPhase.IN_PROGRESS:
            self._exclusions.reserved = PlanDependencies()
            return None
        self._exclusions.reserved = get_plan_dependencies(plan, await self._cluster.snapshot())
        return plan

    async def run(self, plan: PackingPlan) -> PackingPlan:
        """Carry out a plan until it is finished or dropped; a plan that is only shown is returned unchanged.

        Raises CruiseError: then the plan is as it was last stored, and can be resumed.
        """
        while plan.phase is PlanPhase.IN_PROGRESS:
            plan, done = await self.step(plan)
            self._on_step()
            if plan.phase is PlanPhase.IN_PROGRESS and not done:
                await asyncio.sleep(self._poll_seconds)
        return plan

    async def step(self, plan: PackingPlan) -> tuple[PackingPlan, bool]:
        """Do the next step of a plan; return the plan after it, and whether an action was done."""
        snapshot, paused_workloads = await self._cluster.snapshot(), await self._store.read_paused_workloads()
        self._exclusions.reserved = get_plan_dependencies(plan, snapshot)
        now = self._clock()
        # In a thread: verifying the rest of a plan takes long in a large cluster.
        try:
            step = await asyncio.to_thread(decide_next_step, plan, snapshot, self._policy, now, paused_workloads)
        except Exception as error:
            log.error("packing plan failed", plan=plan.id, error=repr(error), exc_info=True)
            condition = PlanCondition(PlanStatusReason.FAILED, detail=repr(error))
            step = PlanStep(replace(plan, phase=PlanPhase.DROPPED, changed_at=now, condition=condition))
        if step.plan != plan:
            await self._store.write_packing_plan(step.plan)
        after, done = step.plan, False
        if step.actions:
            outcomes = await self._writer.apply_plan(step.actions, snapshot, now, pass_started_at=plan.at)
            after = apply_outcomes(step.plan, outcomes, self._clock())
            if after != step.plan:
                await self._store.write_packing_plan(after)
            done = any(outcome.result is ActionResult.DONE for outcome in outcomes)
            await self._on_outcomes(outcomes)
        _log_progress(plan, after)
        if after.phase is not PlanPhase.IN_PROGRESS:
            self._exclusions.reserved = PlanDependencies()
        return after, done


def _log_progress(before: PackingPlan, after: PackingPlan) -> None:
    fields = {"plan": after.id, "stage": after.stage, "stages": len(after.proposal.stages)}
    if after.phase is PlanPhase.DROPPED:
        log.warning("packing plan dropped", **fields, condition=str(after.condition))
    elif after.phase is PlanPhase.FINISHED:
        log.info("packing plan finished", **fields)
    elif after.stage != before.stage or after.condition != before.condition:
        log.info(
            "packing plan continues", **fields, condition=None if after.condition is None else str(after.condition)
        )

"""The controller: every pass as a job over one cluster, one usage source and one database."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from cruise.app.serve.activity import HourlyTotalsRecorder
from cruise.app.serve.controller_options import ControllerOptions
from cruise.app.serve.jobs import JobScheduler
from cruise.decisions.pod_policy.policy_objects import PolicyIndex
from cruise.domain.actions import Outcome, SkippedPod
from cruise.domain.cluster import WorkloadRef
from cruise.domain.policy import ConsolidationMode, Mode, Policy
from cruise.domain.reasons import PlanCondition, PlanStatusReason
from cruise.errors import CruiseError
from cruise.runtime.headroom import HeadroomState
from cruise.runtime.node_load import NodeLoadHistory, remove_taints_on_exit, run_node_load_pass
from cruise.runtime.node_pass import NodePassResult, add_stored_resizes, run_node_pass
from cruise.runtime.oom import OomReactor
from cruise.runtime.packing.consolidation_pass import ConsolidationPassResult, run_consolidation_pass
from cruise.runtime.packing.packing_pass import PackingPassResult, run_packing_pass
from cruise.runtime.packing.plan_execution import POLL_SECONDS, PlanExecutor
from cruise.runtime.ports import ClusterPort, PassContext, StorePort, UsageSourcePort
from cruise.runtime.revert import revert_workload
from cruise.runtime.startup import STARTUP_INTERVAL, StartupPass
from cruise.runtime.usage.usage_pass import run_usage_pass
from cruise.runtime.usage.usage_reader import UsageReadingProgress, UsageReadingSettings
from cruise.runtime.usage.usage_state import UsageState
from cruise.runtime.writing.writer import ClusterWriter

_PRUNE_INTERVAL = timedelta(hours=1)
_POLL_INTERVAL_SECONDS = 0.5
# A packing pass that solves more often than this, each within its time limit, is stuck.
_MAX_SOLVES = 30
_REFILL_INTERVAL = timedelta(seconds=15)


class Controller:
    """Runs all passes with `clock` as their time, for one term of leadership."""

    def __init__(
        self,
        cluster: ClusterPort,
        source: UsageSourcePort,
        store: StorePort,
        policy: Policy,
        clock: Callable[[], datetime],
        reading: UsageReadingSettings,
        options: ControllerOptions | None = None,
    ) -> None:
        options = options or ControllerOptions()
        self._cluster = cluster
        self._source = source
        self._store = store
        self._policy = policy
        self._clock = clock
        self._pace = options.clock_speed
        self._loads = NodeLoadHistory()
        shared = options.shared
        self._audit = shared.audit
        shared.audit.expect_unknown_intents()
        exclusions = shared.exclusions
        self._usage = UsageState()
        exclusions.history_incomplete = lambda: self.history_incomplete
        shared.evictions.lost_until = lambda: self._usage.evictions_lost_until
        # All writers share the audit queue; the node load pass needs no more. Those of pods share the eviction lock and
        # the pending growths. OOM reactions and packing plans also exclude pods and nodes from node passes.
        create_writer = partial(
            ClusterWriter, cluster, store, policy, audit=shared.audit, concurrent=shared.concurrent_writes
        )
        create_pod_writer = partial(
            create_writer, evictions=shared.evictions, growths=shared.growths, latest=self._usage.get_latest_statistics
        )
        self._load_writer, self._node_writer = create_writer(), create_pod_writer(exclusions=exclusions)
        self._revert_writer = create_pod_writer()
        self._startup = StartupPass(create_pod_writer())
        self._headroom = HeadroomState(self._usage)
        # A new leader evicts no pod before its second node pass.
        self._earlier = options.earlier_passes
        self._policy_index: PolicyIndex | None = None
        self._reactor = OomReactor(cluster, store, policy, create_pod_writer(), exclusions, self._usage)
        writer, poll_seconds = self._node_writer, POLL_SECONDS / options.clock_speed
        self._plan_execution = PlanExecutor(
            cluster,
            store,
            policy,
            writer,
            exclusions,
            clock,
            on_outcomes=self._add_outcomes,
            poll_seconds=poll_seconds,
            # The deadline applies to each step, because a plan may wait for pods to end and start.
            on_step=lambda: self._extend_deadline("packing"),
        )
        self._packing = options.packing
        self._publication, self._policy_statuses = options.publication, options.policy_statuses
        self._totals = HourlyTotalsRecorder()
        # A plan that another process started is resumed before a new one is made.
        self._packing_due, self._has_plan, self._has_resumed = False, True, False
        self._consolidation_due_at: float | None = None  # by the monotonic clock
        self._reading = reading
        self._hooks = options.hooks
        self._grace = options.shutdown_grace
        self.activity = options.activity
        self.jobs: JobScheduler | None = None
        self._usage.rejections.counts = self.activity.refused
        self.activity.reset_for_new_term()

    @property
    def history_incomplete(self) -> bool:
        """Whether the database has lost usage; until it is read again, nothing is shrunk or evicted for its usage."""
        return self._usage.history_lost_until > 0

    @property
    def usage_gap_seconds(self) -> int:
        """How much usage failed to be read twice and is read again once an hour, of the partition that lacks most."""
        return self._usage.gap_seconds

    async def refresh_statistics(self, on_progress: Callable[[UsageReadingProgress], None] | None = None) -> None:
        """Read new samples and write the statistics; the first pass reads the whole history."""
        now = self._clock()
        statistics = await run_usage_pass(
            self._cluster,
            self._source,
            self._store,
            self._usage,
            self._policy,
            now,
            self._reading,
            on_progress or self._on_progress,
        )
        self.activity.unreadable, self.activity.statistics = self._usage.failures, statistics
        if not self._usage.failures:
            self.activity.refreshed_at = now
        # After a restart the database has statistics, although they age if new samples cannot be read.
        self.activity.is_filled = self.activity.is_filled or not self._usage.failures or bool(statistics.keys)
        await self._hooks.on_statistics(statistics)

    async def rightsize(self) -> NodePassResult:
        """Run one node pass."""
        if not self._has_resumed:
            # The subjects of a plan that another process started must be excluded.
            await self._plan_execution.start()
            if self._earlier.over_requested_since is not None:
                present = (await self._cluster.snapshot()).pods
                self._earlier = await add_stored_resizes(
                    self._earlier, self._store, present, self._policy, self._clock()
                )
            self._has_resumed = True
        done = await run_node_pass(
            self._build_input(),
            usage=self._usage,
            headroom=self._headroom,
            writer=self._node_writer,
            earlier=self._earlier,
            policy_index=self._policy_index,
        )
        self._earlier, self._policy_index = done.for_next_pass, done.policy_index
        self.activity.add_pass(done, self._policy.max_age)
        self._packing_due = True
        self.activity.paused = await self._store.is_paused()
        skipped = [*done.unschedulable, *(one for plan in done.plans for one in (*plan.skipped, *plan.suspected_leaks))]
        pods = {(pod.namespace, pod.name): pod for pod in done.snapshot.pods}
        await self._hooks.announce(done.outcomes, skipped, pods)
        uids = {pod.uid for pod in done.snapshot.pods}
        self._audit.forget_gone_pods(uids, done.at)
        self._hooks.forget_gone_pods(uids, done.at)
        return done

    async def pack(self, min_pending: timedelta | None = None) -> PackingPassResult | None:
        """Resume the plan in progress, or plan for pods pending for longer than `min_pending`, and carry it out.

        Returns None if there is no pod to pack.
        """
        self._packing_due = False
        plan, done = await self._plan_execution.start(), None
        # A plan in progress is resumed after a failure; a plan that could not be made is tried in the next pass.
        self._has_plan = plan is not None
        if plan is None and self._packing is not None and self.activity.node_pass is not None:
            packing = self._packing
            done = await run_packing_pass(
                self._build_input(),
                packing.solver,
                seconds=packing.seconds,
                min_pending=min_pending,
                enabled=packing.enabled,
                known_usage=self._usage,
            )
            self.activity.add_packing(done)
            plan = done.plan
        if plan is not None:
            self._has_plan = True
            ended = await self._plan_execution.run(plan)
            self.activity.add_plan(ended)
            done = replace(done, plan=ended) if done is not None else PackingPassResult(plan.at, 0, ended)
        self._has_plan = False
        return done

    async def consolidate(self) -> ConsolidationPassResult | None:
        """Find the fewest nodes that the cluster needs, and start the part that may be carried out; None if disabled.

        The part is a packing plan in progress. Raises CruiseError: then there is no advice, but a condition.
        """
        packing, inputs = self._packing, self._build_input()
        self._consolidate_in(timedelta(0) if packing is None else packing.consolidation_interval)
        if packing is None or packing.consolidation is ConsolidationMode.OFF:
            return None
        try:
            done = await run_consolidation_pass(
                inputs,
                packing.solver,
                seconds=packing.seconds,
                known_usage=self._usage,
                statistics_at=self.activity.refreshed_at,
                rest=packing.consolidation_cooldown if packing.consolidation is ConsolidationMode.ACT else None,
            )
        except CruiseError as error:
            # The earlier result may be outdated.
            self.activity.consolidation = ConsolidationPassResult(
                inputs.now, condition=PlanCondition(PlanStatusReason.API_ERROR, detail=str(error))
            )
            raise
        self.activity.consolidation = done
        if done.started is not None:
            # The rest is planned again after this part.
            self._has_plan = True
            self._consolidate_in(min(packing.consolidation_interval, self._policy.pass_interval))
        return done

    async def record_hourly_totals(self) -> None:
        """Store the cluster's totals, once an hour."""
        await self._totals.record(self._store, self.activity)

    async def publish(self) -> None:
        """Publish the recommendations and the statuses of policies that changed."""
        statistics, node_pass = self.activity.statistics, self.activity.node_pass
        if self._policy_statuses is not None and node_pass is not None:
            await self._policy_statuses.write(node_pass)
        if self._publication is not None and statistics is not None:
            snapshot = await self._cluster.snapshot()
            self.activity.published += await self._publication.publish(snapshot, statistics, self._clock())

    async def check_node_loads(self) -> None:
        """Run one node load pass."""
        done = await run_node_load_pass(self._build_input(), self._source, self._loads, writer=self._load_writer)
        self.activity.add_load_pass(done)
        if done.failure is not None:
            raise done.failure

    async def revert(self, namespace: str, workload: WorkloadRef) -> Sequence[Outcome]:
        """Revert one workload, concurrently with the passes. Raises UnavailableError."""
        done = await revert_workload(self._build_input(), namespace, workload, self._revert_writer)
        await self._add_outcomes(done)
        return done

    async def remove_taints_on_exit(self, namespace: str, process: str) -> None:
        """Remove cruise's taints unless another process remains to do so; `process` is this pod.

        Raises UnavailableError.
        """
        if self._policy.mode >= Mode.FULL:
            outcomes = await remove_taints_on_exit(self._cluster, self._load_writer, namespace, process, self._clock())
            self.activity.add(outcomes)

    async def end_startup_boosts(self) -> None:
        """Take back the CPU of pods that have started."""
        await self._add_outcomes(await self._startup.run(self._build_input()))

    async def react_to_kills(self) -> None:
        """Handle out-of-memory kills, until cancelled."""
        async for reaction in self._reactor.react_to_kills(self._clock):
            self.activity.reactions.append(reaction)
            self._hooks.on_oom_reaction(reaction)
            await self._hooks.on_statistics(await self._usage.get_statistics(self._store))
            self.activity.add([reaction.outcome])
            pods = {} if reaction.pod is None else {(reaction.pod.namespace, reaction.pod.name): reaction.pod}
            skipped = [reaction.decision] if isinstance(reaction.decision, SkippedPod) else []
            await self._hooks.announce([reaction.outcome], skipped, pods)

    async def run(self, stop: asyncio.Event) -> None:
        """Run all passes until `stop` or cancelled. Raises the unexpected exception of a job."""
        async with JobScheduler(self._grace, self.activity.jobs, self._clock) as jobs:
            self.jobs = jobs
            margin = self._policy.max_decision_age
            jobs.set_deadline("node load", self._scale(self._policy.node_load_interval), margin)
            jobs.set_deadline("statistics", self._scale(self._policy.pass_interval), margin, vital=True)
            jobs.run_always("oom reactor", self.react_to_kills)
            if self._hooks.on_idle is not None:
                jobs.run_always("notifications", self._hooks.on_idle)
            jobs.run_every(
                self._scale(self._policy.node_load_interval), "node load", self.check_node_loads, delay=timedelta(0)
            )
            if self._policy.mode >= Mode.RESIZE:
                jobs.limit_run_time("startup", margin)
                jobs.run_every(STARTUP_INTERVAL, "startup", self.end_startup_boosts, delay=timedelta(0))
            jobs.limit_run_time("prune", self._scale(_PRUNE_INTERVAL) / 4 + margin)
            jobs.run_every(self._scale(_PRUNE_INTERVAL), "prune", self._prune, delay=self._scale(_PRUNE_INTERVAL))
            jobs.start(self._fill_then_rightsize(jobs))
            if self._packing is not None:
                time_limit = timedelta(seconds=_MAX_SOLVES * self._packing.seconds) + margin
                for name in ("packing", "consolidation"):
                    jobs.limit_run_time(name, time_limit)
                jobs.start(self._pack_after_passes(jobs))
            await jobs.wait_until(stop)

    async def _fill_then_rightsize(self, jobs: JobScheduler) -> None:
        interval = self._scale(self._policy.pass_interval)
        await jobs.run_now("statistics", self.refresh_statistics)
        while not self.activity.is_filled:
            # A failed read is retried only once, so it gets time to recover.
            pause = interval if self.activity.unreadable else min(interval, _REFILL_INTERVAL)
            await asyncio.sleep(pause.total_seconds())
            await jobs.run_now("statistics", self.refresh_statistics)
        if self._policy.mode < Mode.RESIZE:
            # Nothing is written, so the first node pass need not wait for its regular time.
            await jobs.run_now("node pass", self.rightsize)
        jobs.run_every(interval, "statistics", self.refresh_statistics, delay=interval)
        jobs.set_deadline("node pass", interval, self._policy.max_decision_age, vital=True)
        for name in ("history", "publication"):
            jobs.limit_run_time(name, interval + self._policy.max_decision_age)
        # Half an interval later, so that node passes use complete, recent statistics.
        jobs.run_every(interval, "node pass", self._rightsize_all, delay=interval / 2)
        jobs.run_every(interval, "history", self.record_hourly_totals, delay=interval * 5 / 8)
        if self._publication is not None or self._policy_statuses is not None:
            jobs.run_every(interval, "publication", self.publish, delay=interval * 3 / 4)

    async def _rightsize_all(self) -> None:
        """Run node passes until none leaves writes whose decisions became too old."""
        while (await self.rightsize()).has_stale_writes:
            self._extend_deadline("node pass")

    def _extend_deadline(self, name: str) -> None:
        if self.jobs is not None:
            self.jobs.extend_deadline(name)

    async def _pack_after_passes(self, jobs: JobScheduler) -> None:
        while True:
            if self._packing_due or self._has_plan:
                await jobs.run_now("packing", self.pack)
            elif self._consolidation_due:
                await jobs.run_now("consolidation", self.consolidate)
            await asyncio.sleep(_POLL_INTERVAL_SECONDS)

    @property
    def _consolidation_due(self) -> bool:
        """Whether consolidation is due: it runs between packing passes, which share the solver."""
        enabled = self._packing is not None and self._packing.consolidation is not ConsolidationMode.OFF
        due_at = self._consolidation_due_at
        return enabled and self.activity.node_pass is not None and (due_at is None or time.monotonic() >= due_at)

    def _consolidate_in(self, interval: timedelta) -> None:
        self._consolidation_due_at = time.monotonic() + self._scale(interval).total_seconds()

    async def _add_outcomes(self, outcomes: Sequence[Outcome]) -> None:
        self.activity.add(outcomes)
        await self._hooks.announce(outcomes, (), {})

    def _build_input(self) -> PassContext:
        return PassContext(self._cluster, self._store, self._policy, self._clock())

    def _scale(self, interval: timedelta) -> timedelta:
        return interval / self._pace

    async def _prune(self) -> None:
        await self._store.prune(self._clock())

    def _on_progress(self, read: UsageReadingProgress) -> None:
        self.activity.fill_progress = read
        self._extend_deadline("statistics")
        self._hooks.on_progress(read)

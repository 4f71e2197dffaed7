"""The controller: every pass as a job over one cluster, one usage source and one store."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

from cruise.app.serve.activity import NO_HOOKS, ControllerHooks, HourlyTotalsRecorder, ServeActivity
from cruise.app.serve.jobs import MISFIRE_GRACE_SECONDS, JobScheduler
from cruise.decisions.eviction.ranking import NO_EARLIER_PASSES, EarlierPasses
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
from cruise.runtime.packing.packing_pass import PackingPassResult, PackingSolver, run_packing_pass
from cruise.runtime.packing.plan_execution import POLL_SECONDS, PlanExecutor
from cruise.runtime.ports import ClusterPort, StorePort, UsageSourcePort
from cruise.runtime.revert import revert_workload
from cruise.runtime.usage.usage_pass import run_usage_pass
from cruise.runtime.usage.usage_reader import UsageReadingProgress, UsageReadingSettings
from cruise.runtime.usage.usage_state import UsageState
from cruise.runtime.writing.audit import AuditQueue
from cruise.runtime.writing.evictions import EvictionLock, PendingGrowths, WriteExclusions
from cruise.runtime.writing.publication import VpaPublication
from cruise.runtime.writing.writer import CONCURRENT_WRITES, ClusterWriter

_PRUNE_INTERVAL = timedelta(hours=1)
_BETWEEN_LOOKS_SECONDS = 0.5
# How often a packing pass may solve at most, each within its time, before something is wrong.
_SOLVES = 30
_PAUSE_BETWEEN_FILLS = timedelta(seconds=15)


@dataclass(frozen=True, slots=True)
class PackingSettings:
    """How pods are packed: the solver and its time, and whether plans are carried out or only shown.

    `consolidate` says whether fewer nodes are looked for, `consolidation_interval` how often, and `consolidation_cooldown` how
    old a pod is that may be moved for that.
    """

    solver: PackingSolver
    seconds: float = 10.0
    enabled: bool = True
    consolidation: ConsolidationMode = ConsolidationMode.OFF
    consolidation_interval: timedelta = timedelta(minutes=30)
    consolidation_cooldown: timedelta = timedelta(hours=4)


@dataclass(frozen=True, slots=True)
class SharedWriterState:
    """What the writers of a process share, from one term of leadership to the next."""

    audit: AuditQueue = field(default_factory=AuditQueue)
    evictions: EvictionLock = field(default_factory=EvictionLock)
    growths: PendingGrowths = field(default_factory=PendingGrowths)
    exclusions: WriteExclusions = field(default_factory=WriteExclusions)
    concurrent_writes: int = CONCURRENT_WRITES


class Controller:
    """Statistics refresh, node pass, packing, node load, OOM reactor and pruning, with `clock` as their time.

    One is made for each time that a process begins to lead; `shared` outlives it, for what still has to be audited.
    `pace` is how many seconds of that clock pass in a second: 1 but for a simulation. Without a `packer` nothing is
    packed.
    """

    def __init__(
        self,
        cluster: ClusterPort,
        source: UsageSourcePort,
        store: StorePort,
        policy: Policy,
        clock: Callable[[], datetime],
        reading: UsageReadingSettings,
        pace: float = 1.0,
        *,
        hooks: ControllerHooks = NO_HOOKS,
        activity: ServeActivity | None = None,
        shared: SharedWriterState | None = None,
        packer: PackingSettings | None = None,
        grace: timedelta = MISFIRE_GRACE_SECONDS,
        earlier: EarlierPasses = NO_EARLIER_PASSES,
        publication: VpaPublication | None = None,
    ) -> None:
        self._cluster = cluster
        self._source = source
        self._store = store
        self._policy = policy
        self._clock = clock
        self._pace = pace
        self._loads = NodeLoadHistory()
        shared = shared or SharedWriterState()
        exclusions = shared.exclusions
        self._usage = UsageState()
        exclusions.history_incomplete = lambda: self.history_incomplete
        shared.evictions.lost_until = lambda: self._usage.evictions_lost_until
        # All add to one audit, and taints need no more. Node passes, reactions to kills and packing take turns in
        # evictions and count each other's grows. The latter two also exclude pods and nodes from node passes.
        of_taints = partial(
            ClusterWriter, cluster, store, policy, audit=shared.audit, concurrent=shared.concurrent_writes
        )
        of_pods = partial(of_taints, evictions=shared.evictions, growths=shared.growths, latest=self._usage.latest)
        self._load_writer, self._node_writer = of_taints(), of_pods(exclusions=exclusions)
        self._reverting = of_pods()
        self._headroom = HeadroomState(self._usage)
        # A new leader evicts nobody before its second look.
        self._earlier = earlier
        self._reactor = OomReactor(cluster, store, policy, of_pods(), exclusions, self._usage)
        writer, wait = self._node_writer, POLL_SECONDS / pace
        self._plan_execution = PlanExecutor(
            cluster,
            store,
            policy,
            writer,
            exclusions,
            clock,
            on_outcomes=self._acted,
            poll_seconds=wait,
            # A plan may take its time, as pods end and start, but not a step of it.
            on_step=lambda: self._extend("packing"),
        )
        self._packer = packer
        self._publication = publication
        self._sums = HourlyTotalsRecorder()
        # A plan that another process has begun is taken up before a new one is made.
        self._packing_due, self._packs, self._looked_for_plan = False, True, False
        self._consolidation_due_at: float | None = None  # by the monotonic clock
        self._reading = reading
        self._hooks = hooks
        self._grace = grace
        self.activity = activity or ServeActivity()
        self.jobs: JobScheduler | None = None
        self._usage.rejections.counts = self.activity.refused
        self.activity.forget_term()

    @property
    def history_incomplete(self) -> bool:
        """Tell whether the database lacks usage that it had; nothing is shrunk or evicted because of it meanwhile."""
        return self._usage.history_lost_until > 0

    async def refresh_statistics(self, on_progress: Callable[[UsageReadingProgress], None] | None = None) -> None:
        """Read what is new and write the statistics; the first time this fills the past."""
        now = self._clock()
        statistics = await run_usage_pass(
            self._cluster,
            self._source,
            self._store,
            self._usage,
            self._policy,
            now,
            self._reading,
            on_progress or self._progressed,
        )
        self.activity.unreadable, self.activity.statistics = self._usage.failures, statistics
        if not self._usage.failures:
            self.activity.refreshed_at = now
        # After a restart there are statistics, which age, even where what is new cannot be read.
        self.activity.is_filled = self.activity.is_filled or not self._usage.failures or bool(statistics.keys)
        await self._hooks.on_statistics(statistics)

    async def rightsize(self) -> NodePassResult:
        """Run one node pass."""
        if not self._looked_for_plan:
            # A plan that another process has begun to carry out is not to be undone.
            await self._plan_execution.start()
            if self._earlier.over_requested_since is not None:
                self._earlier = await add_stored_resizes(self._earlier, self._store, self._policy, self._clock())
            self._looked_for_plan = True
        done = await run_node_pass(
            self._cluster,
            self._store,
            self._policy,
            self._clock(),
            usage=self._usage,
            headroom=self._headroom,
            writer=self._node_writer,
            earlier=self._earlier,
        )
        self._earlier = done.for_next_pass
        self.activity.add_pass(done, self._policy.max_age)
        self._packing_due = True
        self.activity.paused = await self._store.paused()
        holds = [*done.unschedulable, *(hold for plan in done.plans for hold in (*plan.skipped, *plan.suspected_leaks))]
        pods = {(pod.namespace, pod.name): pod for pod in done.snapshot.pods}
        await self._hooks.announce(done.outcomes, holds, pods)
        return done

    async def pack(self, min_pending: timedelta | None = None) -> PackingPassResult | None:
        """Take up the plan that is under way, or plan for pods that wait longer than `min_pending`, and carry that out.

        None where there is no pod to pack.
        """
        self._packing_due = False
        plan, done = await self._plan_execution.start(), None
        # A plan under way goes on after a failure; a plan that could not be made waits for the next pass.
        self._packs = plan is not None
        if plan is None and self._packer is not None and self.activity.node_pass is not None:
            packer = self._packer
            done = await run_packing_pass(
                self._cluster,
                self._store,
                packer.solver,
                self._policy,
                self._clock(),
                seconds=packer.seconds,
                min_pending=min_pending,
                enabled=packer.enabled,
                known_usage=self._usage,
            )
            self.activity.add_packing(done)
            plan = done.plan
        if plan is not None:
            self._packs = True
            ended = await self._plan_execution.run(plan)
            self.activity.add_plan(ended)
            done = replace(done, plan=ended) if done is not None else PackingPassResult(plan.at, 0, ended)
        self._packs = False
        return done

    async def consolidate(self) -> ConsolidationPassResult | None:
        """Look with how few nodes the cluster would do, and take that over; None where that is not wanted.

        What is to be carried out of it is a packing plan under way from then on. Raises what the world refuses: then
        there is no advice, and the reason for that.
        """
        packer, now = self._packer, self._clock()
        self._consolidate_in(timedelta(0) if packer is None else packer.consolidation_interval)
        if packer is None or packer.consolidation is ConsolidationMode.OFF:
            return None
        try:
            done = await run_consolidation_pass(
                self._cluster,
                self._store,
                packer.solver,
                self._policy,
                now,
                seconds=packer.seconds,
                known_usage=self._usage,
                statistics_at=self.activity.refreshed_at,
                rest=packer.consolidation_cooldown if packer.consolidation is ConsolidationMode.ACT else None,
            )
        except CruiseError as error:
            # What was found before need not be true any more.
            self.activity.consolidation = ConsolidationPassResult(
                now, condition=PlanCondition(PlanStatusReason.API_ERROR, detail=str(error))
            )
            raise
        self.activity.consolidation = done
        if done.started is not None:
            # The rest is planned anew, on the cluster that this part leaves.
            self._packs = True
            self._consolidate_in(min(packer.consolidation_interval, self._policy.pass_interval))
        return done

    async def keep_history(self) -> None:
        """Store the cluster's sums, once an hour."""
        await self._sums.keep(self._store, self.activity)

    async def publish(self) -> None:
        """Show the sizes to others, as far as they have changed."""
        statistics = self.activity.statistics
        if self._publication is not None and statistics is not None:
            snapshot = await self._cluster.snapshot()
            self.activity.published += await self._publication.publish(snapshot, statistics, self._clock())

    async def watch_load(self) -> None:
        """Read the nodes' loads once."""
        done = await run_node_load_pass(
            self._cluster, self._source, self._store, self._loads, self._policy, self._clock(), writer=self._load_writer
        )
        self.activity.add_load_pass(done)
        if done.failure is not None:
            raise done.failure

    async def revert(self, namespace: str, workload: WorkloadRef) -> Sequence[Outcome]:
        """Put one workload back, beside the passes. Raises Unavailable."""
        done = await revert_workload(
            self._cluster, self._store, self._policy, self._clock(), namespace, workload, self._reverting
        )
        await self._acted(done)
        return done

    async def remove_taints_on_exit(self, namespace: str, process: str) -> None:
        """End for good, as the pod called `process`: no taint is left that nobody takes off. Raises Unavailable."""
        if self._policy.mode >= Mode.FULL:
            outcomes = await remove_taints_on_exit(self._cluster, self._load_writer, namespace, process, self._clock())
            self.activity.add(outcomes)

    async def react_to_kills(self) -> None:
        """React to every out-of-memory kill, until cancelled."""
        async for reaction in self._reactor.reactions(self._clock):
            self.activity.reactions.append(reaction)
            self._hooks.on_oom_reaction(reaction)
            await self._hooks.on_statistics(await self._usage.statistics(self._store))
            self.activity.add([reaction.outcome])
            pods = {} if reaction.pod is None else {(reaction.pod.namespace, reaction.pod.name): reaction.pod}
            holds = [reaction.decision] if isinstance(reaction.decision, SkippedPod) else []
            await self._hooks.announce([reaction.outcome], holds, pods)

    async def run(self, stop: asyncio.Event) -> None:
        """Run all passes until `stop` or cancelled; what runs then has `grace`. Raises what none of them expected."""
        async with JobScheduler(self._grace, self.activity.jobs) as jobs:
            self.jobs = jobs
            slack = self._policy.max_decision_age
            jobs.supervise("node load", self._paced(self._policy.node_load_interval), slack)
            jobs.supervise("statistics", self._paced(self._policy.pass_interval), slack, vital=True)
            jobs.run_always("oom reactor", self.react_to_kills)
            if self._hooks.on_idle is not None:
                jobs.run_always("notifications", self._hooks.on_idle)
            jobs.run_every(
                self._paced(self._policy.node_load_interval), "node load", self.watch_load, delay=timedelta(0)
            )
            jobs.bound("prune", self._paced(_PRUNE_INTERVAL) / 4)
            jobs.run_every(self._paced(_PRUNE_INTERVAL), "prune", self._prune, delay=self._paced(_PRUNE_INTERVAL))
            jobs.start(self._fill_then_pass(jobs))
            if self._packer is not None:
                longest = timedelta(seconds=_SOLVES * self._packer.seconds) + slack
                for name in ("packing", "consolidation"):
                    jobs.bound(name, longest)
                jobs.start(self._pack_after_passes(jobs))
            await jobs.wait_until(stop)

    async def _fill_then_pass(self, jobs: JobScheduler) -> None:
        interval = self._paced(self._policy.pass_interval)
        await jobs.run_now("statistics", self.refresh_statistics)
        while not self.activity.is_filled:
            # A failed read is tried once more and then given up: not before what failed had time to recover.
            pause = interval if self.activity.unreadable else min(interval, _PAUSE_BETWEEN_FILLS)
            await asyncio.sleep(pause.total_seconds())
            await jobs.run_now("statistics", self.refresh_statistics)
        if self._policy.mode < Mode.RESIZE:
            # Nothing is written, so who looks for the first time need not wait until a pass's usual turn.
            await jobs.run_now("node pass", self.rightsize)
        jobs.run_every(interval, "statistics", self.refresh_statistics, delay=interval)
        jobs.supervise("node pass", interval, self._policy.max_decision_age, vital=True)
        for name in ("history", "publication"):
            jobs.bound(name, interval + self._policy.max_decision_age)
        # Half an interval later, so that a pass sees statistics that are young and whole.
        jobs.run_every(interval, "node pass", self._rightsize_all, delay=interval / 2)
        jobs.run_every(interval, "history", self.keep_history, delay=interval * 5 / 8)
        if self._publication is not None:
            jobs.run_every(interval, "publication", self.publish, delay=interval * 3 / 4)

    async def _rightsize_all(self) -> None:
        """Run node passes until none leaves writes behind for being too old: what is left is decided anew at once."""
        while (await self.rightsize()).has_stale_writes:
            self._extend("node pass")

    def _extend(self, name: str) -> None:
        if self.jobs is not None:
            self.jobs.extend_deadline(name)

    async def _pack_after_passes(self, jobs: JobScheduler) -> None:
        while True:
            if self._packing_due or self._packs:
                await jobs.run_now("packing", self.pack)
            elif self._consolidation_due:
                await jobs.run_now("consolidation", self.consolidate)
            await asyncio.sleep(_BETWEEN_LOOKS_SECONDS)

    @property
    def _consolidation_due(self) -> bool:
        """Tell whether it is time to look for fewer nodes: between packing passes, which share the solver."""
        wanted = self._packer is not None and self._packer.consolidation is not ConsolidationMode.OFF
        due_at = self._consolidation_due_at
        return wanted and self.activity.node_pass is not None and (due_at is None or time.monotonic() >= due_at)

    def _consolidate_in(self, interval: timedelta) -> None:
        self._consolidation_due_at = time.monotonic() + self._paced(interval).total_seconds()

    async def _acted(self, outcomes: Sequence[Outcome]) -> None:
        self.activity.add(outcomes)
        await self._hooks.announce(outcomes, (), {})

    def _paced(self, interval: timedelta) -> timedelta:
        return interval / self._pace

    async def _prune(self) -> None:
        await self._store.prune(self._clock())

    def _progressed(self, read: UsageReadingProgress) -> None:
        self.activity.fill_progress = read
        self._extend("statistics")
        self._hooks.on_progress(read)

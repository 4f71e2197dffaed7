"""The OOM reactor: remember every kill, then grow, evict or hold."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

import structlog

from cruise.decisions.oom import OomContext, applies_to_workload, compute_raised_memory, decide_oom_reaction
from cruise.decisions.pod_policy.container_bounds import get_template_memory_limits
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.usage.oom_records import OOM_KILL_RETENTION, raise_oom_memory
from cruise.domain.actions import ActionResult, ContainerTarget, EvictPod, Outcome, ReasonCode, ResizePod, SkippedPod
from cruise.domain.cluster import ClusterSnapshot, ContainerRole, Node, OomKill, Pod
from cruise.domain.pod_resources import count_pod_requests
from cruise.domain.policy import Policy
from cruise.domain.resources import NO_RESOURCES, Resources
from cruise.domain.usage import OomRecord, Statistic, StatisticsTable
from cruise.errors import ConflictError, CruiseError, ThrottledError
from cruise.runtime.ports import ClusterPort, StorePort
from cruise.runtime.usage.usage_state import UsageState
from cruise.runtime.writing.api_answers import WRITE_TIMEOUTS
from cruise.runtime.writing.evictions import WriteExclusions
from cruise.runtime.writing.writer import ClusterWriter

log = structlog.get_logger()

# A write that was overtaken or put off leaves its kill unanswered.
_AGAIN: Mapping[ReasonCode, type[CruiseError]] = {
    ReasonCode.CHANGED: ConflictError,
    ReasonCode.THROTTLED: ThrottledError,
}
_MOST_KNOWN = 10_000


@dataclass(frozen=True, slots=True)
class OomReactionResult:
    """What followed one kill: the decision, and how it ended, which is in the audit for a hold as well.

    `pod` is the pod as it was read right before, None where it was gone.
    """

    record: OomRecord
    decision: ResizePod | EvictPod | SkippedPod
    outcome: Outcome
    pod: Pod | None = None


class OomReactor:
    """Reacts to kills one at a time; a kill that is known already changes nothing.

    A kill is remembered once it was reacted to, not before: where cluster, store or process fail in between, it is met
    again. That the same reaction does not come twice is then the cool-down's doing.
    """

    def __init__(
        self,
        cluster: ClusterPort,
        store: StorePort,
        policy: Policy,
        writer: ClusterWriter | None = None,
        exclusions: WriteExclusions | None = None,
        usage: UsageState | None = None,
        *,
        retry_seconds: float = 1.0,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._policy = policy
        self._writer = writer or ClusterWriter(cluster, store, policy)
        self._exclusions = exclusions or WriteExclusions()
        self._usage = usage or UsageState()
        self._retry_seconds = retry_seconds
        self._reacted_at: dict[tuple[str, str], datetime] = {}
        self._known: dict[tuple[str, str, datetime], None] = {}
        self._unanswered: dict[tuple[str, str, datetime], OomKill] = {}

    @property
    def count_unanswered(self) -> int:
        """How many kills wait to be tried again."""
        return len(self._unanswered)

    async def reactions(self, clock: Callable[[], datetime]) -> AsyncGenerator[OomReactionResult, None]:
        """Yield what follows each kill, for ever.

        A kill that the world keeps from being answered is tried again and again, after those that come meanwhile: none
        is in another's way.
        """
        stream = aiter(self._cluster.oom_kills())
        coming = asyncio.ensure_future(anext(stream, None))
        try:
            while True:
                await asyncio.wait({coming}, timeout=self._retry_seconds if self._unanswered else None)
                if coming.done():
                    kill = coming.result()
                    if kill is None:
                        return
                    coming = asyncio.ensure_future(anext(stream, None))
                else:
                    kill = next(iter(self._unanswered.values()))
                reaction = await self._answered(kill, clock())
                if reaction is not None:
                    yield reaction
        finally:
            coming.cancel()

    async def _answered(self, kill: OomKill, now: datetime) -> OomReactionResult | None:
        failed_before = self._unanswered.pop(kill.key, None) is not None
        try:
            async with asyncio.timeout(self._policy.max_decision_age.total_seconds()):
                return await self._to_the_end(kill, now)
        except (CruiseError, TimeoutError) as error:
            self._unanswered[kill.key] = kill
            if not failed_before:
                log.warning(
                    "out of memory, to be tried again",
                    namespace=kill.namespace,
                    pod=kill.pod,
                    container=kill.container,
                    error=str(error) or "not answered in time",
                )
            return None

    async def _to_the_end(self, kill: OomKill, now: datetime) -> OomReactionResult | None:
        """React to a kill, and when given up meanwhile, first remember what was done about it."""
        reacting = asyncio.ensure_future(self.react(kill, now))
        try:
            return await asyncio.shield(reacting)
        except asyncio.CancelledError:
            await asyncio.wait({reacting}, timeout=WRITE_TIMEOUTS.response)
            reacting.cancel()
            await asyncio.gather(reacting, return_exceptions=True)
            raise

    async def react(self, kill: OomKill, now: datetime) -> OomReactionResult | None:
        """Act on a kill and record it; None for a replay of one that is known.

        Raises what the world refused: the kill is not answered then.
        """
        if (
            now - kill.finished_at > OOM_KILL_RETENTION
            or kill.key in self._known
            or await self._store.has_oom_record(*kill.key)
        ):
            self._know(kill)
            self._let_rest(kill, kill.finished_at, now)
            return None
        statistics = await self._statistics_for(kill)
        record = compute_raised_memory(kill, statistics)
        snapshot = restrict_to_kill(await self._cluster.snapshot(), kill)
        pod = await self._cluster.read_pod(kill.namespace, kill.pod)
        if pod is None or pod.uid != kill.pod_uid or pod.is_finished:
            # The successor of a pod that is gone has another name.
            record = replace(record, applies_to_workload=True)
        shared = record.applies_to_workload or await self._is_shared(record, now)
        decision = await self._decide(record, pod, snapshot, raise_oom_memory(statistics, record, shared=shared), now)
        if isinstance(decision, EvictPod):
            # The pod comes back at once under another name, and shall be admitted with what was learnt.
            await self._teach(kill, record, shared=True)
        if isinstance(decision, SkippedPod):
            outcome = _held(kill, decision, pod, now)
        else:
            fresh = _with_fresh(snapshot, pod)
            [outcome] = await self._writer.apply_plan([decision], fresh, now)
            if outcome.result is ActionResult.DONE:
                self._remember(kill, now)
                record = replace(
                    record, applies_to_workload=record.applies_to_workload or isinstance(decision, EvictPod)
                )
        if isinstance(decision, ResizePod | SkippedPod):
            await self._teach(kill, record, shared=shared)
        if (
            not isinstance(decision, SkippedPod)
            and outcome.result is not ActionResult.DONE
            and outcome.reason in _AGAIN
        ):
            raise _AGAIN[outcome.reason](outcome.detail or "the pod changed while it was decided on")
        await self._store.record_oom(record)
        if isinstance(decision, SkippedPod) or outcome.result is ActionResult.OBSERVED:
            # What a mode or a pause forbids comes again with every pass, a kill does not.
            await self._writer.add_outcome(outcome)
        self._know(kill)
        log.info(
            "out of memory",
            namespace=kill.namespace,
            pod=kill.pod,
            container=kill.container,
            reason=outcome.reason.value,
            verdict=outcome.result.value,
        )
        return OomReactionResult(record, decision, outcome, pod)

    async def _statistics_for(self, kill: OomKill) -> StatisticsTable:
        workload = str(kill.workload) if kill.workload is not None else ""
        return await self._store.statistics_of_pod(kill.namespace, kill.pod, workload, kill.identity)

    async def _is_shared(self, record: OomRecord, now: datetime) -> bool:
        """Tell whether a kill teaches its whole workload: there was one before."""
        earlier = await self._store.oom_records(now - OOM_KILL_RETENTION, (record.namespace, record.workload))
        return applies_to_workload(record, [*earlier, record])

    async def _teach(self, kill: OomKill, record: OomRecord, *, shared: bool) -> None:
        """Write what a kill teaches into the statistics as they are now, stored and in memory."""
        statistics = await self._statistics_for(kill)
        if statistics.keys:
            await self._store.write_statistics(raise_oom_memory(statistics, record, shared=shared))
        self._usage.apply_oom_record(record, shared=shared)

    def _remember(self, kill: OomKill, now: datetime) -> None:
        """Note a reaction, and forget those that have cooled down."""
        cooling = {key: at for key, at in self._reacted_at.items() if now - at < self._policy.oom_cooldown}
        self._reacted_at = cooling | {(kill.pod_uid, kill.container): now}
        self._let_rest(kill, now, now)

    def _let_rest(self, kill: OomKill, since: datetime, now: datetime) -> None:
        """Keep the node passes from the pod as well, while its cool-down lasts."""
        until = since + self._policy.oom_cooldown
        if until > now:
            self._exclusions.add_cooldown(kill.pod_uid, until, now)

    def _know(self, kill: OomKill) -> None:
        """Remember that a kill is stored, for the replays of a broken watch."""
        self._known[kill.key] = None
        if len(self._known) > _MOST_KNOWN:
            del self._known[next(iter(self._known))]

    async def _decide(
        self, record: OomRecord, pod: Pod | None, snapshot: ClusterSnapshot, statistics: StatisticsTable, now: datetime
    ) -> ResizePod | EvictPod | SkippedPod:
        policy = self._policy.planning_policy
        eligibility = Eligibility(snapshot, statistics, await self._store.overrides(), policy, now)
        refused = await self._store.refused_resizes()
        node = None if pod is None else next((node for node in snapshot.nodes if node.name == pod.node), None)
        scene = OomContext(
            node=node,
            free_capacity=_room_on(node, _with_fresh(snapshot, pod)) if node is not None else NO_RESOURCES,
            statistics=_statistics_of(pod, statistics) if pod is not None else {},
            limit_ranges=snapshot.limit_ranges.get(record.namespace, ()),
            refused=refused.get(record.pod_uid),
            last_reaction_at=await self._last_reaction(record, now),
            quotas=snapshot.quotas.get(record.namespace, ()) if policy.rules.quotas else (),
            original_limits=await self._original_limits(pod, snapshot),
        )
        return decide_oom_reaction(record, pod, scene, eligibility, policy, now)

    async def _original_limits(self, pod: Pod | None, snapshot: ClusterSnapshot) -> Mapping[str, int] | None:
        """Return the memory limits that a pod had before it was resized, where its template is not known."""
        if pod is None or get_template_memory_limits(pod, snapshot) is not None:
            return None
        original = (await self._store.original_sizes([pod.uid])).get(pod.uid)
        if original is None:
            return None
        limits = {target.container: target.limits.memory_bytes for target in original.containers}
        return {name: limit for name, limit in limits.items() if limit is not None}

    async def _last_reaction(self, record: OomRecord, now: datetime) -> datetime | None:
        """Return when this container was last reacted to, after a restart from the audit."""
        known = self._reacted_at.get((record.pod_uid, record.container))
        if known is not None:
            return known
        since = now - self._policy.oom_cooldown
        for outcome in await self._store.outcomes_of_pod(record.namespace, record.pod, since):
            action = outcome.action
            if outcome.result is not ActionResult.DONE or not isinstance(action, ResizePod | EvictPod):
                continue
            if action.reason is ReasonCode.OOM_KILLED and action.uid == record.pod_uid and _touches(action, record):
                return outcome.at
        return None


def restrict_to_kill(snapshot: ClusterSnapshot, kill: OomKill) -> ClusterSnapshot:
    """Return a snapshot with the pods alone that matter to a kill: those of its node and of its workload.

    In a cluster of 150,000 pods all that follows looks at a hundred.
    """
    place, workload = kill.node, (kill.namespace, kill.workload)
    pods = [
        pod
        for pod in snapshot.pods
        if (pod.node == place and place is not None)
        or (pod.workload is not None and (pod.namespace, pod.workload) == workload)
        or (pod.name == kill.pod and pod.namespace == kill.namespace)
    ]
    return replace(snapshot, pods=tuple(pods))


def _held(kill: OomKill, hold: SkippedPod, pod: Pod | None, now: datetime) -> Outcome:
    """Return how a kill ended that nothing was done about: the killed container stays as it is."""
    same = pod is not None and pod.uid == kill.pod_uid
    containers = tuple(
        ContainerTarget(one.name, one.role, one.requests, one.limits)
        for one in (pod.containers if pod is not None and same else ())
        if one.name == kill.container
    )
    resize = ResizePod(
        kill.namespace,
        kill.pod,
        kill.pod_uid,
        kill.node,
        kill.workload,
        containers,
        NO_RESOURCES,
        ReasonCode.OOM_KILLED,
    )
    return Outcome(now, resize, ActionResult.SKIPPED, hold.reason, hold.detail, before=containers)


def _touches(action: ResizePod | EvictPod, record: OomRecord) -> bool:
    return isinstance(action, EvictPod) or any(target.container == record.container for target in action.containers)


def _statistics_of(pod: Pod, statistics: StatisticsTable) -> dict[str, Statistic]:
    found = {}
    for container in pod.containers:
        if container.role is not ContainerRole.INIT:
            row = statistics.find(pod.namespace, pod.name, pod.workload, container.name, pod.identity)
            if row is not None:
                found[container.name] = statistics.row(row)
    return found


def _room_on(node: Node, snapshot: ClusterSnapshot) -> Resources:
    counted = NO_RESOURCES
    for pod in snapshot.pods:
        if pod.node == node.name:
            counted += count_pod_requests(pod)
    return node.allocatable - counted


def _with_fresh(snapshot: ClusterSnapshot, pod: Pod | None) -> ClusterSnapshot:
    """Return the snapshot with one pod as it was read last, since the decision was made on that reading."""
    if pod is None:
        return snapshot
    others = (other for other in snapshot.pods if (other.namespace, other.name) != (pod.namespace, pod.name))
    return replace(snapshot, pods=(*others, pod))

"""The OOM reactor: stores every out-of-memory kill, then resizes, evicts or skips the pod."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

import structlog

from cruise.decisions.oom import (
    OomContext,
    affects_whole_workload,
    build_oom_record_from_statistics,
    decide_oom_reaction,
)
from cruise.decisions.pod_policy.container_bounds import get_template_memory_limits
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.pod_policy.resizable_pod import mark_nodes_that_refuse_resizes
from cruise.decisions.usage.estimation import sum_statistics
from cruise.decisions.usage.oom_records import OOM_KILL_RETENTION, raise_oom_memory_by_record
from cruise.domain.actions import ActionResult, ContainerTarget, EvictPod, Outcome, ReasonCode, ResizePod, SkippedPod
from cruise.domain.cluster import POD_LEVEL, ClusterSnapshot, ContainerRole, Node, OomKill, Pod
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

# After these outcomes the kill is handled again later.
_RETRIED_REASONS: Mapping[ReasonCode, type[CruiseError]] = {
    ReasonCode.CHANGED: ConflictError,
    ReasonCode.THROTTLED: ThrottledError,
}
_MAX_KNOWN_KILLS = 10_000


@dataclass(frozen=True, slots=True)
class OomReactionResult:
    """The reaction to one kill: the decision and its outcome, which is in the audit if the pod was skipped as well.

    `pod` is the pod as it was read for the decision, None if it no longer existed.
    """

    record: OomRecord
    decision: ResizePod | EvictPod | SkippedPod
    outcome: Outcome
    pod: Pod | None = None


class OomReactor:
    """Handles kills one by one; a kill that is stored already has no effect.

    A kill is stored after its reaction: if the cluster, the database or the process fails in between, it is handled
    again. The cooldown then prevents a second reaction.
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
    def unanswered_count(self) -> int:
        """How many kills will be handled again."""
        return len(self._unanswered)

    async def react_to_kills(self, clock: Callable[[], datetime]) -> AsyncGenerator[OomReactionResult, None]:
        """Yield the reaction to each kill, without end.

        A kill that could not be handled is retried after later kills, so that it does not block
        them.
        """
        stream = aiter(self._cluster.watch_oom_kills())
        next_kill = asyncio.ensure_future(anext(stream, None))
        try:
            while True:
                await asyncio.wait({next_kill}, timeout=self._retry_seconds if self._unanswered else None)
                if next_kill.done():
                    kill = next_kill.result()
                    if kill is None:
                        return
                    next_kill = asyncio.ensure_future(anext(stream, None))
                else:
                    kill = next(iter(self._unanswered.values()))
                reaction = await self._handle(kill, clock())
                if reaction is not None:
                    yield reaction
        finally:
            next_kill.cancel()

    async def _handle(self, kill: OomKill, now: datetime) -> OomReactionResult | None:
        failed_before = self._unanswered.pop(kill.key, None) is not None
        try:
            async with asyncio.timeout(self._policy.max_decision_age.total_seconds()):
                return await self._finish(kill, now)
        except (CruiseError, TimeoutError) as error:
            self._unanswered[kill.key] = kill
            if not failed_before:
                log.warning(
                    "out of memory, will be handled again",
                    namespace=kill.namespace,
                    pod=kill.pod,
                    container=kill.container,
                    error=str(error) or "no answer in time",
                )
            return None

    async def _finish(self, kill: OomKill, now: datetime) -> OomReactionResult | None:
        """Handle a kill; if cancelled meanwhile, first store what was done."""
        task = asyncio.ensure_future(self.react(kill, now))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait({task}, timeout=WRITE_TIMEOUTS.response)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise

    async def react(self, kill: OomKill, now: datetime) -> OomReactionResult | None:
        """Handle a kill and store it; return None if it is stored already.

        Raises what the API server or the database raised: then the kill was not handled.
        """
        if (
            now - kill.finished_at > OOM_KILL_RETENTION
            or kill.key in self._known
            or await self._store.has_oom_record(*kill.key)
        ):
            self._add_known_kill(kill)
            # A node's clock may be ahead.
            self._exclude_during_cooldown(kill, min(kill.finished_at, now), now)
            return None
        statistics = await self._read_statistics(kill)
        record = build_oom_record_from_statistics(kill, statistics)
        snapshot = restrict_snapshot_to_kill(await self._cluster.snapshot(), kill)
        pod = await self._cluster.read_pod(kill.namespace, kill.pod)
        if pod is None or pod.uid != kill.pod_uid or pod.is_finished:
            # The replacement pod has another name.
            record = replace(record, applies_to_workload=True)
        shared = record.applies_to_workload or await self._is_shared(record, now)
        decision = await self._decide(
            record, pod, snapshot, raise_oom_memory_by_record(statistics, record, shared=shared), now
        )
        if isinstance(decision, EvictPod):
            # Before the eviction, so that the replacement pod is admitted with the raised memory.
            await self._raise_memory(kill, record, shared=True)
        if isinstance(decision, SkippedPod):
            outcome = _build_skipped_outcome(kill, decision, pod, now)
        else:
            with_read_pod = _replace_pod(snapshot, pod)
            [outcome] = await self._writer.apply_plan([decision], with_read_pod, now)
            if outcome.result is ActionResult.DONE:
                self._set_reacted(kill, now)
                record = replace(
                    record, applies_to_workload=record.applies_to_workload or isinstance(decision, EvictPod)
                )
        if isinstance(decision, ResizePod | SkippedPod):
            await self._raise_memory(kill, record, shared=shared)
        if (
            not isinstance(decision, SkippedPod)
            and outcome.result is not ActionResult.DONE
            and outcome.reason in _RETRIED_REASONS
        ):
            raise _RETRIED_REASONS[outcome.reason](outcome.detail or "the pod changed during the decision")
        await self._store.record_oom_kill(record)
        if isinstance(decision, SkippedPod) or outcome.result is ActionResult.OBSERVED:
            # Unlike the decisions of a pass, a reaction that the mode or a pause forbids is not repeated.
            await self._writer.add_outcome(outcome)
        self._add_known_kill(kill)
        log.info(
            "out of memory",
            namespace=kill.namespace,
            pod=kill.pod,
            container=kill.container,
            reason=outcome.reason.value,
            result=outcome.result.value,
        )
        return OomReactionResult(record, decision, outcome, pod)

    async def _read_statistics(self, kill: OomKill) -> StatisticsTable:
        workload = str(kill.workload) if kill.workload is not None else ""
        return await self._store.read_pod_statistics(kill.namespace, kill.pod, workload, kill.identity)

    async def _is_shared(self, record: OomRecord, now: datetime) -> bool:
        """Return whether a kill raises the OOM memory of its whole workload, because it is not the first."""
        earlier = await self._store.read_oom_records(now - OOM_KILL_RETENTION, (record.namespace, record.workload))
        return affects_whole_workload(record, [*earlier, record])

    async def _raise_memory(self, kill: OomKill, record: OomRecord, *, shared: bool) -> None:
        """Raise the OOM memory in the present statistics, in the database and in this process."""
        statistics = await self._read_statistics(kill)
        if statistics.keys:
            await self._store.write_statistics(raise_oom_memory_by_record(statistics, record, shared=shared))
        self._usage.apply_oom_record(record, shared=shared)

    def _set_reacted(self, kill: OomKill, now: datetime) -> None:
        """Store the time of a reaction; drop those whose cooldown is over."""
        in_cooldown = {key: at for key, at in self._reacted_at.items() if now - at < self._policy.oom_cooldown}
        self._reacted_at = in_cooldown | {(kill.pod_uid, kill.container): now}
        self._exclude_during_cooldown(kill, now, now)

    def _exclude_during_cooldown(self, kill: OomKill, since: datetime, now: datetime) -> None:
        """Exclude the pod from node passes during the cooldown."""
        until = since + self._policy.oom_cooldown
        if until > now:
            self._exclusions.add_cooldown(kill.pod_uid, until, now)

    def _add_known_kill(self, kill: OomKill) -> None:
        """Record that a kill is stored, because a restarted watch repeats kills."""
        self._known[kill.key] = None
        if len(self._known) > _MAX_KNOWN_KILLS:
            del self._known[next(iter(self._known))]

    async def _decide(
        self, record: OomRecord, pod: Pod | None, snapshot: ClusterSnapshot, statistics: StatisticsTable, now: datetime
    ) -> ResizePod | EvictPod | SkippedPod:
        policy = self._policy.planning_policy
        refused = await self._store.read_refused_resizes()
        snapshot = mark_nodes_that_refuse_resizes(snapshot, refused)
        eligibility = Eligibility(snapshot, statistics, await self._store.read_paused_workloads(), policy, now)
        node = None if pod is None else next((node for node in snapshot.nodes if node.name == pod.node), None)
        context = OomContext(
            node=node,
            free_capacity=_compute_free_capacity(node, _replace_pod(snapshot, pod))
            if node is not None
            else NO_RESOURCES,
            statistics=_get_container_statistics(pod, statistics) if pod is not None else {},
            limit_ranges=snapshot.limit_ranges.get(record.namespace, ()),
            refused=refused.get(record.pod_uid),
            last_reaction_at=await self._find_last_reaction(record, now),
            quotas=snapshot.quotas.get(record.namespace, ()) if policy.rules.quotas else (),
            original_limits=await self._get_original_limits(pod, snapshot),
        )
        return decide_oom_reaction(record, pod, context, eligibility, policy, now)

    async def _get_original_limits(self, pod: Pod | None, snapshot: ClusterSnapshot) -> Mapping[str, int] | None:
        """Return the memory limits of a pod before its first resize, if its template is unknown."""
        if pod is None or get_template_memory_limits(pod, snapshot) is not None:
            return None
        original = (await self._store.read_original_sizes([pod.uid])).get(pod.uid)
        if original is None:
            return None
        limits = {target.container: target.limits.memory_bytes for target in original.containers}
        return {name: limit for name, limit in limits.items() if limit is not None}

    async def _find_last_reaction(self, record: OomRecord, now: datetime) -> datetime | None:
        """Return the time of the last reaction to this container; after a restart it is read from the audit."""
        known = self._reacted_at.get((record.pod_uid, record.container))
        if known is not None:
            return known
        since = now - self._policy.oom_cooldown
        for outcome in await self._store.read_pod_outcomes(record.namespace, record.pod, since):
            action = outcome.action
            if outcome.result is not ActionResult.DONE or not isinstance(action, ResizePod | EvictPod):
                continue
            if action.reason is ReasonCode.OOM_KILLED and action.uid == record.pod_uid and _concerns(action, record):
                return outcome.at
        return None


def restrict_snapshot_to_kill(snapshot: ClusterSnapshot, kill: OomKill) -> ClusterSnapshot:
    """Return the snapshot with the pods of the kill's node and workload only: about 100 of 150,000 pods."""
    node_name, workload = kill.node, (kill.namespace, kill.workload)
    pods = [
        pod
        for pod in snapshot.pods
        if (pod.node == node_name and node_name is not None)
        or (pod.workload is not None and (pod.namespace, pod.workload) == workload)
        or (pod.name == kill.pod and pod.namespace == kill.namespace)
    ]
    return replace(snapshot, pods=tuple(pods))


def _build_skipped_outcome(kill: OomKill, skipped: SkippedPod, pod: Pod | None, now: datetime) -> Outcome:
    """Return the outcome of a kill whose pod was skipped."""
    is_same_pod = pod is not None and pod.uid == kill.pod_uid
    containers = tuple(
        ContainerTarget(one.name, one.role, one.requests, one.limits)
        for one in (pod.containers if pod is not None and is_same_pod else ())
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
    return Outcome(now, resize, ActionResult.SKIPPED, skipped.reason, skipped.detail, before=containers)


def _concerns(action: ResizePod | EvictPod, record: OomRecord) -> bool:
    return isinstance(action, EvictPod) or any(target.container == record.container for target in action.containers)


def _get_container_statistics(pod: Pod, statistics: StatisticsTable) -> dict[str, Statistic]:
    found = {}
    for container in pod.containers:
        if container.role is not ContainerRole.INIT:
            row = statistics.find_row(pod.namespace, pod.name, pod.workload, container.name, pod.identity)
            if row is not None:
                found[container.name] = statistics.get_row(row)
    if pod.pod_level is not None and len(found) == len(pod.sized_containers):
        found[POD_LEVEL] = sum_statistics(list(found.values()))
    return found


def _compute_free_capacity(node: Node, snapshot: ClusterSnapshot) -> Resources:
    counted = NO_RESOURCES
    for pod in snapshot.pods:
        if pod.node == node.name:
            counted += count_pod_requests(pod)
    return node.allocatable - counted


def _replace_pod(snapshot: ClusterSnapshot, pod: Pod | None) -> ClusterSnapshot:
    """Return the snapshot with one pod replaced by the reading that the decision was made on."""
    if pod is None:
        return snapshot
    others = (other for other in snapshot.pods if (other.namespace, other.name) != (pod.namespace, pod.name))
    return replace(snapshot, pods=(*others, pod))

"""Publishes recommendations and statuses of policy objects: changes no pod, and respects mode, pause and a budget."""

import asyncio
from collections.abc import Mapping
from datetime import datetime

import structlog

from cruise.decisions.scan.policy_status import PolicyKey, summarize_policies
from cruise.decisions.template_sizes import build_recommendations, select_changed_recommendations, size_templates
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.overrides import PausedWorkloads
from cruise.domain.policy import Mode, Policy
from cruise.domain.records import WorkloadRecommendation
from cruise.domain.rightsizing_policies import PolicyStatus
from cruise.domain.usage import StatisticsTable
from cruise.errors import ConflictError, NotFoundError, RefusedError
from cruise.runtime.node_pass import NodePassResult
from cruise.runtime.ports import PolicyStatusPublisher, RecommendationPublisher, StorePort
from cruise.runtime.revert import get_original_sizes_by_uid, read_stored_original_sizes

log = structlog.get_logger()

MAX_RECOMMENDATIONS_PER_PASS = 200
MAX_STATUSES_PER_PASS = 1_000
"""At 100 requests a second, ten seconds between two node passes; 2,000 new policies have their status after two."""


class VpaRecommendationUpdater:
    """Publishes the recommendations that have changed since this process's last pass."""

    def __init__(
        self,
        publisher: RecommendationPublisher,
        store: StorePort,
        policy: Policy,
        limit: int = MAX_RECOMMENDATIONS_PER_PASS,
    ) -> None:
        self._publisher = publisher
        self._store = store
        self._policy = policy
        self._limit = limit
        self._published: dict[tuple[str, str], tuple[WorkloadRecommendation, datetime]] = {}
        self._problem = ""

    async def publish(self, snapshot: ClusterSnapshot, statistics: StatisticsTable, now: datetime) -> int:
        """Write up to a pass's budget, and return how many were written. Raises ThrottledError, UnavailableError.

        Recommendations that cannot be written are logged, once as long as the problem stays the same.
        """
        if self._policy.mode < Mode.RESIZE or await self._store.is_paused():
            return 0
        paused_workloads = await self._store.read_paused_workloads()
        # In a thread: this takes seconds for a large cluster.
        recommendations = await asyncio.to_thread(
            self._build_recommendations, snapshot, statistics, paused_workloads, now
        )
        existing = {(one.namespace, one.name) for one in snapshot.vertical_autoscalers if one.is_published}
        keys = {(one.namespace, one.name) for one in recommendations}
        self._published = {key: entry for key, entry in self._published.items() if key in keys & existing}
        published = {key: entry for key, (entry, _) in self._published.items()}
        chosen = select_changed_recommendations(recommendations, published, self._limit)
        if chosen:
            await self._store.check_writable()
        written = 0
        for one in chosen:
            await self._publisher.wait_for_write_turn()
            if await self._store.is_paused():
                break
            if not await self._write(one, (one.namespace, one.name) in existing, now):
                break
            written += 1
        if written:
            log.info("published", vpas=written, of=len(recommendations))
        return written

    def _build_recommendations(
        self, snapshot: ClusterSnapshot, statistics: StatisticsTable, paused_workloads: PausedWorkloads, now: datetime
    ) -> list[WorkloadRecommendation]:
        sizes = size_templates(snapshot, statistics, self._policy, now, paused_workloads=paused_workloads)
        return list(build_recommendations((*sizes.changed, *sizes.unchanged), snapshot, now))

    async def _write(self, recommendations: WorkloadRecommendation, exists: bool, now: datetime) -> bool:
        """Write one recommendation; return whether the next write may succeed."""
        key = (recommendations.namespace, recommendations.name)
        published = self._published.get(key)
        since = (
            published[1] if published is not None and published[0].is_confident == recommendations.is_confident else now
        )
        try:
            await self._publisher.publish(recommendations, since, exists=exists)
        except ConflictError as error:
            self._log_once("another client has changed it", error)
        except (NotFoundError, RefusedError) as error:
            self._log_once("VerticalPodAutoscalers cannot be written", error)
            return False
        else:
            self._published[key] = (recommendations, since)
        return True

    def _log_once(self, problem: str, error: Exception) -> None:
        if problem != self._problem:
            log.warning("not published", problem=problem, error=str(error))
        self._problem = problem


class PolicyStatusUpdater:
    """Writes the statuses that differ from those that this process wrote; after a restart, all of them once.

    In modes below `resize` nothing is written, because cruise has no permission to.
    """

    def __init__(
        self, publisher: PolicyStatusPublisher, store: StorePort, policy: Policy, limit: int = MAX_STATUSES_PER_PASS
    ) -> None:
        self._publisher = publisher
        self._store = store
        self._policy = policy
        self._limit = limit
        self._written: dict[str, PolicyStatus] = {}
        self._refused: set[str] = set()
        self._problem = ""

    async def write(self, node_pass: NodePassResult) -> int:
        """Write up to a pass's budget, and return how many were written. Raises ThrottledError, UnavailableError.

        Statuses that cannot be written are logged, once as long as the problem stays the same.
        """
        policies = node_pass.snapshot.rightsizing_policies
        if not policies or self._policy.mode < Mode.RESIZE or await self._store.is_paused():
            return 0
        statuses = await self._summarize(node_pass)
        uids = {one.uid for one in policies}
        self._written = {uid: status for uid, status in self._written.items() if uid in uids}
        changed = [one for one in policies if statuses[one.key].differs(self._written.get(one.uid))]
        self._refused &= uids
        # New ones first, so that none waits for others that change all the time. Refused ones last: one ends the loop.
        changed.sort(key=lambda one: (one.uid in self._refused, one.uid in self._written, one.key))
        if changed:
            await self._store.check_writable()
        written = 0
        for one in changed[: self._limit]:
            if await self._store.is_paused():
                break
            try:
                await self._publisher.write_status(one, statuses[one.key], node_pass.at)
            except (ConflictError, NotFoundError) as error:
                # The policy was deleted, or created again.
                log.info("status not written", policy=one.title, error=str(error))
            except RefusedError as error:
                # All would be refused if the permission is missing.
                self._log_once(str(error))
                self._refused.add(one.uid)
                break
            else:
                self._refused.discard(one.uid)
                self._written[one.uid] = statuses[one.key]
                written += 1
        return written

    async def _summarize(self, node_pass: NodePassResult) -> Mapping[PolicyKey, PolicyStatus]:
        snapshot = node_pass.snapshot
        stored, keys = await read_stored_original_sizes(self._store, snapshot)
        skipped = [one for plan in node_pass.plans for one in plan.skipped]
        policy_index = node_pass.policy_index
        # In a thread: this takes a part of a second for a large cluster.
        return await asyncio.to_thread(
            lambda: summarize_policies(
                snapshot, skipped, get_original_sizes_by_uid(snapshot, stored, keys), policy_index
            )
        )

    def _log_once(self, problem: str) -> None:
        if problem != self._problem:
            log.warning("statuses of policies cannot be written", problem=problem)
        self._problem = problem

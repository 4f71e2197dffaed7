"""Sizes shown to others: a write that changes no pod, and heeds mode, pause and a budget as all others do."""

import asyncio
from datetime import datetime

import structlog

from cruise.decisions.template_sizes import build_recommendations, select_changed_recommendations, size_templates
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.overrides import StoredOverrides
from cruise.domain.policy import Mode, Policy
from cruise.domain.records import WorkloadRecommendation
from cruise.domain.usage import StatisticsTable
from cruise.errors import ConflictError, NotFoundError, RefusedError
from cruise.runtime.ports import RecommendationPublisher, StorePort

log = structlog.get_logger()

MAX_PER_PASS = 200


class VpaPublication:
    """Publishes what has changed since the last pass, of this process."""

    def __init__(
        self, publisher: RecommendationPublisher, store: StorePort, policy: Policy, most: int = MAX_PER_PASS
    ) -> None:
        self._publisher = publisher
        self._store = store
        self._policy = policy
        self._most = most
        self._published: dict[tuple[str, str], tuple[WorkloadRecommendation, datetime]] = {}
        self._problem = ""

    async def publish(self, snapshot: ClusterSnapshot, statistics: StatisticsTable, now: datetime) -> int:
        """Write up to a pass's budget, and return how many were written. Raises Throttled, Unavailable.

        What cannot be written is logged, once for as long as the problem is the same.
        """
        if self._policy.mode < Mode.RESIZE or await self._store.paused():
            return 0
        stored = await self._store.overrides()
        # Some seconds for a large cluster, in which other tasks must go on.
        wanted = await asyncio.to_thread(self._wanted, snapshot, statistics, stored, now)
        there = {(one.namespace, one.name) for one in snapshot.vertical_autoscalers if one.is_published}
        keys = {(one.namespace, one.name) for one in wanted}
        self._published = {key: entry for key, entry in self._published.items() if key in keys & there}
        before = {key: entry for key, (entry, _) in self._published.items()}
        chosen = select_changed_recommendations(wanted, before, self._most)
        if chosen:
            await self._store.check_writable()
        written = 0
        for one in chosen:
            if await self._store.paused():
                break
            if not await self._write(one, (one.namespace, one.name) in there, now):
                break
            written += 1
        if written:
            log.info("published", vpas=written, of=len(wanted))
        return written

    def _wanted(
        self, snapshot: ClusterSnapshot, statistics: StatisticsTable, stored: StoredOverrides, now: datetime
    ) -> list[WorkloadRecommendation]:
        sizes = size_templates(snapshot, statistics, self._policy, now, stored=stored)
        return list(build_recommendations((*sizes.changed, *sizes.unchanged), snapshot, now))

    async def _write(self, wanted: WorkloadRecommendation, is_there: bool, now: datetime) -> bool:
        """Write one; tell whether the next may fare better."""
        key = (wanted.namespace, wanted.name)
        before = self._published.get(key)
        since = before[1] if before is not None and before[0].is_confident == wanted.is_confident else now
        try:
            await self._publisher.publish(wanted, since, is_there=is_there)
        except ConflictError as error:
            self._say("somebody else has changed it", error)
        except (NotFoundError, RefusedError) as error:
            self._say("VerticalPodAutoscalers cannot be written", error)
            return False
        else:
            self._published[key] = (wanted, since)
        return True

    def _say(self, what: str, error: Exception) -> None:
        if what != self._problem:
            log.warning("not published", problem=what, error=str(error))
        self._problem = what

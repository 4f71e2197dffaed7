"""What pods are admitted under, kept up to date: cluster and store in, an `Admitter` for the reviewer out."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

import structlog

from cruise.adapters.kube.cluster import KubeCluster
from cruise.app.stored_view import StoredView, StoreFollower
from cruise.domain.actions import Reason
from cruise.domain.policy import Mode, Policy
from cruise.errors import Unavailable
from cruise.runtime.admission import Admitter
from cruise.runtime.reviewing import Reviewer

log = structlog.get_logger()

_LOOK_SECONDS = 0.2
_SOONEST_SECONDS = 1.0
# Statistics grow stale and workloads old without any change.
_LATEST_SECONDS = 10.0


class AdmissionUpkeep:
    """Renews what the reviewer decides by, at most once a second, when cluster or store have changed."""

    def __init__(
        self,
        cluster: KubeCluster,
        store: StoreFollower,
        policy: Policy,
        reviewer: Reviewer,
        clock: Callable[[], datetime],
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._observes = policy.mode < Mode.INITIAL
        # What would be done is counted in mode observe too.
        self._policy = replace(policy, mode=Mode.INITIAL) if self._observes else policy
        self._reviewer = reviewer
        self._clock = clock
        self._seen: tuple[int, StoredView] | None = None
        self._renewed_at = -_LATEST_SECONDS

    async def run(self) -> None:
        """Keep up to date until cancelled. Raises what ended the reading of the store."""
        await self._cluster.synced()
        while True:
            self._store.check()
            await self.renew_if_due(time.monotonic())
            await asyncio.sleep(_LOOK_SECONDS)

    async def renew_if_due(self, now_seconds: float) -> None:
        """Renew after a change, or when the last renewal is long ago."""
        view = self._store.view
        known = (self._cluster.version, view)
        changed = self._seen is None or self._seen[0] != known[0] or self._seen[1] is not view
        if now_seconds - self._renewed_at < (_SOONEST_SECONDS if changed else _LATEST_SECONDS):
            return
        self._renewed_at = now_seconds
        try:
            snapshot = await self._cluster.snapshot()
        except Unavailable as error:
            # Somebody may have asked to be left alone since.
            if self._reviewer.ready:
                log.warning("admission suspended", error=str(error))
            self._seen = None
            self._reviewer.suspend(str(error))
            return
        admitter = await asyncio.to_thread(
            Admitter, snapshot, view.statistics, view.overrides, self._policy, self._clock()
        )
        self._seen = known
        self._reviewer.use(admitter, self._cluster.owners(), self._unpatched(view))

    def _unpatched(self, view: StoredView) -> Reason | None:
        if view.paused:
            return Reason.PAUSED
        return Reason.MODE_OBSERVE if self._observes else None

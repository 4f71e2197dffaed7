"""What pods are admitted under, kept up to date: cluster and store in, an `Admitter` for the reviewer out."""

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

import structlog

from cruise.adapters.kube.cluster import MOST_LAG_SECONDS, KubeCluster
from cruise.app.webhook.stored_view import StoredView, StoreFollower
from cruise.domain.actions import Reason
from cruise.domain.cluster import Snapshot
from cruise.domain.policy import Mode, Policy
from cruise.domain.quotas import Quota
from cruise.errors import Unavailable
from cruise.runtime.admission.admission import Admitter
from cruise.runtime.admission.reviewing import Reviewer
from cruise.runtime.admission.steering import Expected

log = structlog.get_logger()

Quotas = Mapping[str, tuple[Quota, ...]]

_LOOK_SECONDS = 0.2
_SOONEST_SECONDS = 1.0
# What is remembered of each pod takes up to a kilobyte or two.
_MOST_DECIDED = 50_000


class AdmissionUpkeep:
    """Renews what the reviewer decides by, at most once a second, when cluster or store have changed."""

    def __init__(
        self,
        cluster: KubeCluster,
        store: StoreFollower,
        policy: Policy,
        reviewer: Reviewer,
        clock: Callable[[], datetime],
        quotas: Callable[[], Quotas] = dict,
        expected: Expected | None = None,
    ) -> None:
        self._cluster = cluster
        self._quotas = quotas
        self._expected = expected
        self._store = store
        self._observes = policy.mode < Mode.INITIAL
        # What would be done is counted in mode observe too.
        self._policy = replace(policy, mode=Mode.INITIAL) if self._observes else policy
        self._reviewer = reviewer
        self._clock = clock
        self._version = -1
        self._known: tuple[object, ...] = ()
        self._holds_until = -math.inf
        self._looked_at = -math.inf
        self._suspended = False

    async def run(self) -> None:
        """Keep up to date until cancelled. Raises what ended the reading of the store."""
        await self._cluster.synced()
        while True:
            self._store.check()
            if self._expected is not None:
                self._expected.use(self._store.steered)
            await self.renew_if_due(time.monotonic())
            await asyncio.sleep(_LOOK_SECONDS)

    async def renew_if_due(self, now_seconds: float) -> None:
        """Renew after a change, when time alone changes a decision, or when much is remembered."""
        view, version = self._store.view, self._cluster.version
        due = self._clock().timestamp() >= self._holds_until or self._reviewer.decided >= _MOST_DECIDED
        quotas = self._quotas()
        aside = (*_parts_of(view), quotas)
        changed = version != self._version or not _same(self._known[: len(aside)], aside)
        # Nobody waits but for what the watches show next.
        soonest = 0.0 if changed and self._reviewer.waiting else _SOONEST_SECONDS
        if not (due or changed or not self._in_step()) or now_seconds - self._looked_at < soonest:
            return
        self._looked_at = now_seconds
        try:
            snapshot = replace(await self._cluster.snapshot(), quotas=quotas)
        except Unavailable as error:
            # A workload may have opted out since.
            if self._reviewer.ready:
                log.warning("admission suspended", error=str(error))
                self._suspended = True
            self._version, self._known = -1, ()
            self._reviewer.suspend(str(error))
            return
        known = (*aside, *_parts_read(snapshot))
        self._version = version
        if not due and _same(self._known, known):
            return
        admitter, self._holds_until = await asyncio.to_thread(self._prepared, snapshot, view)
        self._known = known
        self._reviewer.use(admitter, self._cluster.owners(), self._unpatched(view))
        if self._suspended:
            log.info("admission goes on")
            self._suspended = False

    def _prepared(self, snapshot: Snapshot, view: StoredView) -> tuple[Admitter, float]:
        admitter = Admitter(snapshot, view.statistics, view.overrides, self._policy, self._clock(), view.signing_keys)
        return admitter, admitter.holds_until()

    def _in_step(self) -> bool:
        return self._cluster.lag_seconds() <= MOST_LAG_SECONDS

    def _unpatched(self, view: StoredView) -> Reason | None:
        if view.paused:
            return Reason.PAUSED
        return Reason.MODE_OBSERVE if self._observes else None


def _parts_of(view: StoredView) -> tuple[object, ...]:
    return (view.statistics, view.overrides, view.paused, view.signing_keys)


def _parts_read(snapshot: Snapshot) -> tuple[object, ...]:
    """Return what admission reads of a snapshot; parts that did not change are the same objects as before."""
    return (
        snapshot.nodes,
        snapshot.former_nodes,
        snapshot.workloads,
        snapshot.autoscalers,
        snapshot.vertical_autoscalers,
        snapshot.scales,
        snapshot.unreadable_scales,
        snapshot.namespaces,
        snapshot.limit_ranges,
        snapshot.namespace_annotations,
        snapshot.node_autoscaler,
    )


def _same(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    return len(one) == len(other) and all(mine is theirs for mine, theirs in zip(one, other, strict=True))

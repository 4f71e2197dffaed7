"""A running `serve` as probes, metrics and the API see it, from before its store is open until its end."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime

from cruise import __version__
from cruise.adapters.kube.cluster import KubeCluster
from cruise.adapters.kube.leading.leases import LeaderLease
from cruise.adapters.kube.writing.intervention_events import InterventionEvents
from cruise.app.http_bounds import ListenerTally, listener_figures
from cruise.app.serve.activity import Activity
from cruise.app.serve.controller import Controller
from cruise.app.serve.reading_log import percent_of
from cruise.domain.actions import Outcome
from cruise.domain.callers import Intervention
from cruise.domain.cluster import Snapshot, WorkloadRef
from cruise.domain.cross_check import CrossTally
from cruise.domain.policy import Policy
from cruise.domain.usage import StatisticsTable
from cruise.errors import Unavailable
from cruise.interfaces.amounts import age_text
from cruise.interfaces.announcements import intervention_words
from cruise.interfaces.http.figures import ControllerFigures
from cruise.interfaces.http.metrics import metrics_text
from cruise.interfaces.http.view import Rehearsing
from cruise.runtime.ports import Store
from cruise.runtime.sizing.node_pass import NodePass

_FAILURES_THAT_COUNT = 3
_MOST_LAG_SECONDS = 60.0
_EVENT_SECONDS = 3.0


@dataclass(slots=True)
class Running:
    """Implements `interfaces.http.view.ApiView`.

    `awaited` is what the start waits for, or None once everything is there; `lease` is None where there is no election,
    `events` where nothing is written to the cluster. `compared` counts what kubelets said of usage, `controller` makes
    the passes of the term that runs here, `rehearsals` is None without a Prometheus.
    """

    policy: Policy
    clock: Callable[[], datetime]
    activity: Activity
    awaited: str | None = "the start"
    opened: Store | None = None
    cluster: KubeCluster | None = None
    lease: LeaderLease | None = None
    events: InterventionEvents | None = None
    compared: Callable[[], CrossTally] = CrossTally
    controller: Controller | None = None
    rehearsals: Rehearsing | None = None
    tally: ListenerTally = field(default_factory=ListenerTally)
    open_intents: Callable[[], int] = lambda: 0

    @property
    def store(self) -> Store:
        """The store. Raises Unavailable before it is open."""
        if self.opened is None:
            raise Unavailable("the database is not there yet")
        return self.opened

    @property
    def leading(self) -> bool:
        """Tell whether the passes run here."""
        return self.awaited is None and (self.lease is None or self.lease.held)

    def why_stuck(self) -> str | None:
        """Return which pass does not end or go through any more, None where all do or none runs here."""
        jobs = None if self.controller is None else self.controller.jobs
        return None if jobs is None else jobs.why_stuck()

    def now(self) -> datetime:
        """Return the time now."""
        return self.clock()

    def figures(self) -> ControllerFigures:
        """Return how the controller is doing."""
        lag = None if self.cluster is None else self.cluster.lag_seconds()
        figures = self.activity.figures(self.policy.mode, self.leading, lag)
        jobs = None if self.controller is None else self.controller.jobs
        figures = replace(
            figures,
            success_ages={} if jobs is None else jobs.success_ages(),
            leads_given_up=0 if self.lease is None else self.lease.times_given_up,
            database_epoch=0 if self.opened is None else self.opened.epoch,
            history_incomplete=self.controller is not None and self.controller.history_incomplete,
            open_intents=self.open_intents(),
        )
        return replace(figures, cross_check=self.compared()) if self.leading else figures

    def last_pass(self) -> NodePass | None:
        """Return the last node pass, None where another process makes them."""
        return self.activity.node_pass if self.leading else None

    async def snapshot(self) -> Snapshot:
        """Return the cluster. Raises Unavailable while it is not known well enough."""
        if self.cluster is None:
            raise Unavailable("the cluster is not watched yet")
        return await self.cluster.snapshot()

    async def statistics(self) -> StatisticsTable:
        """Return the statistics as of their last refresh. Raises Unavailable."""
        known = self.activity.statistics
        return known if known is not None and self.leading else await self.store.read_statistics()

    async def revert(self, namespace: str, workload: WorkloadRef) -> Sequence[Outcome]:
        """Put one workload back. Raises Unavailable."""
        if self.controller is None:
            raise Unavailable("this process does not lead, and the one that does puts pods back")
        return await self.controller.revert(namespace, workload)

    async def announce(self, intervention: Intervention) -> None:
        """Write an Event about what somebody did, if it can be done while they wait."""
        if self.events is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_EVENT_SECONDS):
                await self.events.record(intervention, intervention_words(intervention))

    def metrics(self) -> bytes:
        """Return what `/metrics` shows."""
        return metrics_text(__version__, self.now(), controller=self.figures(), listener=listener_figures(self.tally))

    def reasons(self) -> list[str]:
        """Return why this process is not ready; one that another one leads is, once it could take over."""
        if self.awaited is not None:
            return [f"waiting for {self.awaited}"]
        found = self._cluster_reasons()
        if self.leading:
            return [*found, *self._stuck_reasons(), *self._statistics_reasons(), *self._job_reasons()]
        return [*found, *self._given_up_reasons()]

    def _stuck_reasons(self) -> list[str]:
        why = self.why_stuck()
        return [] if why is None else [why]

    def _given_up_reasons(self) -> list[str]:
        """A process that gave up the lead is not ready until it contends for it again."""
        lease = self.lease
        if lease is None or lease.gave_up is None:
            return []
        return [f"gave up the lead: {lease.gave_up}"]

    def _cluster_reasons(self) -> list[str]:
        lag = self.cluster.lag_seconds() if self.cluster is not None else 0.0
        return [f"the view of the cluster is {lag:.0f} s old"] if lag > _MOST_LAG_SECONDS else []

    def _statistics_reasons(self) -> list[str]:
        activity = self.activity
        if not activity.filled:
            share = f" ({percent_of(activity.filling)} % read)" if activity.filling is not None else ""
            return [f"waiting for the statistics{share}"]
        refreshed, now = activity.refreshed_at, self.now()
        if refreshed is not None and now - refreshed > self.policy.max_age:
            return [f"the statistics were last refreshed {age_text(now, refreshed)}"]
        return []

    def _job_reasons(self) -> list[str]:
        return [
            f"{job.name}: failed {job.failures_in_a_row} times in a row: {job.error}"
            for job in sorted(self.activity.jobs.values(), key=lambda job: job.name)
            if job.failures_in_a_row >= _FAILURES_THAT_COUNT
        ]

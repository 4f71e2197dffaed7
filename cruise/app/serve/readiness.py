"""A running `serve` as probes, metrics and the API see it, from before its database is open until it exits."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime

from cruise import __version__
from cruise.adapters.kube.cluster import KubernetesCluster
from cruise.adapters.kube.events import UserActionEventRecorder
from cruise.adapters.kube.leases import LeaderLease
from cruise.app.http_connection import ListenerCounts, get_listener_figures
from cruise.app.serve.activity import ServeActivity, compute_read_percent
from cruise.app.serve.controller import Controller
from cruise.domain.actions import Outcome
from cruise.domain.cluster import ClusterSnapshot, WorkloadRef
from cruise.domain.policy import Policy
from cruise.domain.preflight import CrossCheckCounts
from cruise.domain.prices import PriceSettings
from cruise.domain.usage import StatisticsTable
from cruise.domain.users import UserAction
from cruise.errors import UnavailableError
from cruise.interfaces.events import describe_user_action
from cruise.interfaces.http.figures import ControllerFigures
from cruise.interfaces.http.metrics import render_metrics
from cruise.interfaces.http.view import PolicyObjectPort, WhatIfPort
from cruise.interfaces.text import format_age
from cruise.runtime.node_pass import NodePassResult
from cruise.runtime.ports import StorePort
from cruise.runtime.usage.usage_pass import read_statistics_for_pods

_FAILURES_THAT_COUNT = 3
_MOST_LAG_SECONDS = 60.0
_EVENT_SECONDS = 3.0


@dataclass(slots=True)
class ServeView:
    """Implements `interfaces.http.view.ApiView`.

    `waiting_for` is what the start waits for, None afterwards; `lease` is None without leader election, `events` if
    nothing is written to the cluster. `cross_checked` counts the comparisons with kubelets, `controller` runs the
    passes of this process's term, `what_if_runs` is None without Prometheus.
    """

    policy: Policy
    clock: Callable[[], datetime]
    activity: ServeActivity
    waiting_for: str | None = "the start"
    opened_store: StorePort | None = None
    cluster: KubernetesCluster | None = None
    lease: LeaderLease | None = None
    events: UserActionEventRecorder | None = None
    cross_checked: Callable[[], CrossCheckCounts] = CrossCheckCounts
    controller: Controller | None = None
    what_if_runs: WhatIfPort | None = None
    counts: ListenerCounts = field(default_factory=ListenerCounts)
    open_intents: Callable[[], int] = lambda: 0
    prices: PriceSettings = PriceSettings()
    policy_objects: PolicyObjectPort | None = None

    @property
    def store(self) -> StorePort:
        """The database. Raises UnavailableError before it is open."""
        if self.opened_store is None:
            raise UnavailableError("the database is not there yet")
        return self.opened_store

    @property
    def leading(self) -> bool:
        """Whether this process runs the passes."""
        return self.waiting_for is None and (self.lease is None or self.lease.is_held)

    def explain_stuck(self) -> str | None:
        """Return which job is stuck, None if none is or this process does not lead."""
        jobs = None if self.controller is None else self.controller.jobs
        return None if jobs is None else jobs.explain_stuck()

    def now(self) -> datetime:
        """Return the present time."""
        return self.clock()

    def get_figures(self) -> ControllerFigures:
        """Return the controller's figures."""
        lag = None if self.cluster is None else self.cluster.get_lag_seconds()
        figures = self.activity.build_figures(self.policy.mode, self.leading, lag)
        jobs = None if self.controller is None else self.controller.jobs
        figures = replace(
            figures,
            success_ages={} if jobs is None else jobs.get_success_ages(),
            leads_given_up=0 if self.lease is None else self.lease.resignations,
            database_epoch=0 if self.opened_store is None else self.opened_store.epoch,
            history_incomplete=self.controller is not None and self.controller.history_incomplete,
            usage_gap_seconds=0 if self.controller is None else self.controller.usage_gap_seconds,
            open_intents=self.open_intents(),
        )
        return replace(figures, cross_check=self.cross_checked()) if self.leading else figures

    def get_last_pass(self) -> NodePassResult | None:
        """Return the last node pass, None if another process leads."""
        return self.activity.node_pass if self.leading else None

    async def snapshot(self) -> ClusterSnapshot:
        """Return the cluster. Raises UnavailableError while the view is incomplete or too old."""
        if self.cluster is None:
            raise UnavailableError("the cluster is not watched yet")
        return await self.cluster.snapshot()

    async def statistics(self) -> StatisticsTable:
        """Return the statistics of the last refresh. Raises UnavailableError."""
        known = self.activity.statistics
        if known is not None and self.leading:
            return known
        pods = () if self.cluster is None else (await self.cluster.snapshot()).pods
        return await read_statistics_for_pods(self.store, pods)

    async def revert(self, namespace: str, workload: WorkloadRef) -> Sequence[Outcome]:
        """Revert one workload. Raises UnavailableError."""
        if self.controller is None:
            raise UnavailableError("this process does not lead, and the one that does puts pods back")
        return await self.controller.revert(namespace, workload)

    async def announce(self, intervention: UserAction) -> None:
        """Write an Event about a user action, if that is possible while the user waits."""
        if self.events is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_EVENT_SECONDS):
                await self.events.record(intervention, describe_user_action(intervention))

    def metrics(self) -> bytes:
        """Return the response of `/metrics`."""
        return render_metrics(
            __version__, self.now(), controller=self.get_figures(), listener=get_listener_figures(self.counts)
        )

    def get_unready_reasons(self) -> list[str]:
        """Return why this process is not ready; a process that does not lead is ready once it could take over."""
        if self.waiting_for is not None:
            return [f"waiting for {self.waiting_for}"]
        found = self._list_cluster_reasons()
        if self.leading:
            return [*found, *self._list_stuck_reasons(), *self._list_statistics_reasons(), *self._list_job_reasons()]
        return [*found, *self._list_released_reasons()]

    def _list_stuck_reasons(self) -> list[str]:
        reason = self.explain_stuck()
        return [] if reason is None else [reason]

    def _list_released_reasons(self) -> list[str]:
        """Return why a process that released its leadership is not ready until it contends again."""
        lease = self.lease
        if lease is None or lease.resign_reason is None:
            return []
        return [f"gave up the lead: {lease.resign_reason}"]

    def _list_cluster_reasons(self) -> list[str]:
        lag = self.cluster.get_lag_seconds() if self.cluster is not None else 0.0
        return [f"the view of the cluster is {lag:.0f} s old"] if lag > _MOST_LAG_SECONDS else []

    def _list_statistics_reasons(self) -> list[str]:
        activity = self.activity
        if not activity.is_filled:
            share = (
                f" ({compute_read_percent(activity.fill_progress)} % read)"
                if activity.fill_progress is not None
                else ""
            )
            return [f"waiting for the statistics{share}"]
        refreshed, now = activity.refreshed_at, self.now()
        if refreshed is not None and now - refreshed > self.policy.max_age:
            return [f"the statistics were last refreshed {format_age(now, refreshed)}"]
        return []

    def _list_job_reasons(self) -> list[str]:
        return [
            f"{job.name}: failed {job.failures_in_a_row} times in a row: {job.error}"
            for job in sorted(self.activity.jobs.values(), key=lambda job: job.name)
            if job.failures_in_a_row >= _FAILURES_THAT_COUNT
        ]

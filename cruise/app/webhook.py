"""`cruise webhook`: a view of the cluster, a view of the database, a certificate and an HTTPS server."""

import asyncio
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import datetime

import structlog

from cruise import __version__
from cruise.adapters.kube.client import KubernetesClient, connect_to_kubernetes
from cruise.adapters.kube.cluster import MAX_LAG_SECONDS, KubernetesCluster
from cruise.adapters.kube.discovery import read_quotas
from cruise.adapters.kube.kinds import ADMISSION_KINDS
from cruise.adapters.store.embedded_postgres import get_default_data_dir
from cruise.adapters.store.postgres import open_store
from cruise.adapters.webhook_tls.certificates import accept_client_certificates
from cruise.app.certificates import (
    CertificateRenewalTiming,
    create_served_certificate,
    keep_certificate_renewed,
    start_certificate_keeper,
)
from cruise.app.http_connection import ListenerCounts, get_listener_figures, get_listener_limits
from cruise.app.http_server import serve_http
from cruise.app.process import get_current_time
from cruise.app.serve.connections import build_policy_from_settings
from cruise.app.webhook_stored_view import StorePoller, StoreState
from cruise.domain.actions import ReasonCode
from cruise.domain.autoscalers import ResourceQuota
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.policy import Mode, Policy
from cruise.errors import CruiseError, UnavailableError, freeze_garbage_collection, raise_single_error
from cruise.interfaces.http.health import AsgiApp, create_health_app
from cruise.interfaces.http.metrics import render_metrics
from cruise.interfaces.webhook import AllowedCallers, create_webhook_app, summarize_reviews
from cruise.runtime.admission import ExpectedPods, PodAdmitter
from cruise.runtime.admission_reviewer import AdmissionReviewer
from cruise.runtime.ports import StorePort
from cruise.settings import Settings

log = structlog.get_logger()

Quotas = Mapping[str, tuple[ResourceQuota, ...]]

_LOOK_SECONDS = 0.2
_SOONEST_SECONDS = 1.0
# The cached decision of a pod takes one or two kilobytes.
_MOST_DECIDED = 50_000
OpenStore = AbstractAsyncContextManager[StorePort]
_STOP_CHECK_SECONDS = 0.1
_QUOTA_SECONDS = 10.0
# Meanwhile clients are asked to reconnect, to another replica.
_DRAIN_SECONDS = 2.0
# How soon a thread that decodes statistics yields; Python's default is ten times longer.
_SWITCH_SECONDS = 0.000_5


class AdmissionRefresher:
    """Refreshes the reviewer's state when the cluster or the database has changed, at most once a second."""

    def __init__(
        self,
        cluster: KubernetesCluster,
        store: StorePoller,
        policy: Policy,
        reviewer: AdmissionReviewer,
        clock: Callable[[], datetime],
        quotas: Callable[[], Quotas] = dict,
        expected: ExpectedPods | None = None,
    ) -> None:
        self._cluster = cluster
        self._quotas = quotas
        self._expected = expected
        self._store = store
        self._observes = policy.mode < Mode.INITIAL
        # In mode observe, decisions are counted as well.
        self._policy = replace(policy, mode=Mode.INITIAL) if self._observes else policy
        self._reviewer = reviewer
        self._clock = clock
        self._version = -1
        self._known: tuple[object, ...] = ()
        self._holds_until = -math.inf
        self._looked_at = -math.inf
        self._suspended = False

    async def run(self) -> None:
        """Refresh until cancelled. Raises the failure of the database poller."""
        await self._cluster.wait_until_synced()
        while True:
            self._store.check()
            if self._expected is not None:
                self._expected.replace(self._store.placement_hints)
            await self.refresh_if_due(time.monotonic())
            await asyncio.sleep(_LOOK_SECONDS)

    async def refresh_if_due(self, now_seconds: float) -> None:
        """Refresh after a change, when a decision changes with time, or when many decisions are cached."""
        view, version = self._store.state, self._cluster.version
        due = self._clock().timestamp() >= self._holds_until or self._reviewer.decided >= _MOST_DECIDED
        quotas = self._quotas()
        stored_parts = (*_get_stored_parts(view), quotas)
        changed = version != self._version or not _are_same_objects(self._known[: len(stored_parts)], stored_parts)
        # Reviews wait only for objects that the watch will have soon.
        soonest = 0.0 if changed and self._reviewer.waiting else _SOONEST_SECONDS
        if not (due or changed or not self._is_synced()) or now_seconds - self._looked_at < soonest:
            return
        self._looked_at = now_seconds
        try:
            snapshot = replace(await self._cluster.snapshot(), quotas=quotas)
        except UnavailableError as error:
            # A workload may have opted out meanwhile.
            if self._reviewer.ready:
                log.warning("admission suspended", error=str(error))
                self._suspended = True
            self._version, self._known = -1, ()
            self._reviewer.suspend(str(error))
            return
        known = (*stored_parts, *_get_snapshot_parts(snapshot))
        self._version = version
        if not due and _are_same_objects(self._known, known):
            return
        admitter, self._holds_until = await asyncio.to_thread(self._prepare, snapshot, view)
        self._known = known
        self._reviewer.set_state(admitter, self._cluster.get_owner_index(), self._get_unpatched_reason(view))
        if self._suspended:
            log.info("admission continues")
            self._suspended = False

    def _prepare(self, snapshot: ClusterSnapshot, view: StoreState) -> tuple[PodAdmitter, float]:
        admitter = PodAdmitter(
            snapshot, view.statistics, view.paused_workloads, self._policy, self._clock(), view.signing_keys
        )
        return admitter, admitter.get_valid_until()

    def _is_synced(self) -> bool:
        return self._cluster.get_lag_seconds() <= MAX_LAG_SECONDS

    def _get_unpatched_reason(self, view: StoreState) -> ReasonCode | None:
        if view.paused:
            return ReasonCode.PAUSED
        if view.history_incomplete:
            # Its statistics may lack the latest peaks; the templates have what the owners asked for.
            return ReasonCode.HISTORY_INCOMPLETE
        return ReasonCode.MODE_OBSERVE if self._observes else None


def _get_stored_parts(view: StoreState) -> tuple[object, ...]:
    return (view.statistics, view.paused_workloads, view.paused, view.history_incomplete, view.signing_keys)


def _get_snapshot_parts(snapshot: ClusterSnapshot) -> tuple[object, ...]:
    """Return the parts of a snapshot that admission reads; unchanged parts are the same objects."""
    return (
        snapshot.nodes,
        snapshot.removed_nodes,
        snapshot.workloads,
        snapshot.autoscalers,
        snapshot.vertical_autoscalers,
        snapshot.rightsizing_policies,
        snapshot.scales,
        snapshot.unreadable_scales,
        snapshot.namespaces,
        snapshot.limit_ranges,
        snapshot.namespace_annotations,
        snapshot.node_autoscaler,
    )


def _are_same_objects(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    return len(one) == len(other) and all(first is second for first, second in zip(one, other, strict=True))


class WebhookServer:
    """One running webhook, as probes and metrics see it."""

    def __init__(
        self,
        settings: Settings,
        client: KubernetesClient,
        times: CertificateRenewalTiming,
        stored: Callable[[], OpenStore],
    ) -> None:
        self._expected = ExpectedPods(get_current_time)
        self.reviewer = AdmissionReviewer(
            self._expected, settings.to_review_limits(), settings.webhook_time_budget.total_seconds()
        )
        self.counts = ListenerCounts()
        self.stopping = False
        self.quotas: Quotas = {}
        self._client = client
        self.cluster = KubernetesCluster(client, ADMISSION_KINDS, node_autoscaling=settings.node_autoscaler)
        self.store = StorePoller(stored, get_current_time)
        self._times = times
        self._policy = build_policy_from_settings(settings)
        self.keeper = create_served_certificate(settings, client, times)
        if settings.webhook_client_ca_file is not None:
            accept_client_certificates(self.keeper.context, settings.webhook_client_ca_file)

    async def run(self) -> None:
        """Answer reviews until cancelled; then let clients move to another replica. Raises CruiseError."""
        await start_certificate_keeper(self.keeper)
        with self.store:
            refresher = AdmissionRefresher(
                self.cluster,
                self.store,
                self._policy,
                self.reviewer,
                get_current_time,
                lambda: self.quotas,
                self._expected,
            )
            with raise_single_error():
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self.cluster.run())
                    tasks.create_task(refresher.run())
                    tasks.create_task(self._follow_quotas())
                    tasks.create_task(keep_certificate_renewed(self.keeper, self._times.interval))
                    tasks.create_task(self._freeze_garbage_collection())
                    await self._until_cancelled()

    def get_unready_reasons(self) -> list[str]:
        """Return why reviews cannot be decided now."""
        found = []
        if self.stopping:
            found.append("stopping")
        unpublished = self.keeper.unpublished_reason
        if unpublished is not None:
            found.append(f"certificate: {unpublished}")
        if self.cluster.get_lag_seconds() > MAX_LAG_SECONDS:
            found += self.cluster.list_problems() or ["waiting for the cluster"]
        elif not self.reviewer.ready:
            found.append(self.reviewer.idle_reason)
        return found

    def metrics(self) -> bytes:
        """Return the response of `/metrics`."""
        figures = replace(
            summarize_reviews(self.reviewer.counts),
            statistics_at=self.store.state.read_at,
            certificate_expires_at=self.keeper.expires_at,
            watch_lag_seconds=self.cluster.get_lag_seconds(),
        )
        return render_metrics(
            __version__, get_current_time(), webhook=figures, listener=get_listener_figures(self.counts)
        )

    async def _follow_quotas(self) -> None:
        """Poll what quotas leave: they change with every pod, and there are few of them."""
        logged = ""
        while True:
            try:
                read = await read_quotas(self._client)
            except CruiseError as error:
                if str(error) != logged:
                    log.warning("quotas not read", error=str(error))
                logged = str(error)
            else:
                logged = ""
                # An equal value stays the same object, so that admission is not prepared again.
                if read != self.quotas:
                    self.quotas = read
            await asyncio.sleep(_QUOTA_SECONDS)

    async def _freeze_garbage_collection(self) -> None:
        """Exclude long-lived objects from garbage collection: collecting all of them would delay every request."""
        while not self.reviewer.ready or self.store.state.read_at is None:
            await asyncio.sleep(_STOP_CHECK_SECONDS)
        freeze_garbage_collection()

    async def _until_cancelled(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.stopping = True
            await asyncio.sleep(_DRAIN_SECONDS)


async def run_webhook(
    settings: Settings, times: CertificateRenewalTiming | None = None, stored: Callable[[], OpenStore] | None = None
) -> None:
    """Answer reviews until cancelled; `stored` opens the database, by default the settings'. Raises CruiseError."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    host, _, port = settings.webhook_address.rpartition(":")
    async with connect_to_kubernetes(settings.to_kubernetes_settings()) as client:
        webhook = WebhookServer(
            settings, client, times or CertificateRenewalTiming(), stored or (lambda: _open_database(settings))
        )
        app = create_health_app(webhook.get_unready_reasons, webhook.metrics, _create_review_app(settings, webhook))
        tls, bounds = webhook.keeper.context, get_listener_limits(settings)
        async with serve_http(app, host.strip("[]"), int(port), tls=tls, bounds=bounds, counts=webhook.counts) as bound:
            callers = settings.webhook_client_ca_file or "anybody: webhook_client_ca_file is not set"
            log.info("listening", address=f"{host or '*'}:{bound}", mode=settings.mode.label, answers=str(callers))
            await webhook.run()


def _create_review_app(settings: Settings, webhook: WebhookServer) -> AsgiApp:
    known = settings.webhook_client_ca_file is not None
    return create_webhook_app(
        webhook.reviewer,
        lambda: webhook.stopping,
        largest_bytes=settings.webhook_max_review_bytes,
        callers=AllowedCallers(settings.webhook_client_names) if known else None,
    )


def _open_database(settings: Settings) -> OpenStore:
    data_dir = settings.data_dir or get_default_data_dir(os.environ)
    return open_store(
        settings.database_url, data_dir, lambda line: log.warning(line), settings.database_statement_timeout
    )

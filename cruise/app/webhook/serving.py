"""`cruise webhook`: settings become a view of the cluster, a view of the store, a certificate and an HTTPS server."""

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

import structlog

from cruise import __version__
from cruise.adapters.kube.asking.surroundings import read_quotas
from cruise.adapters.kube.cluster import MOST_LAG_SECONDS, KubeCluster
from cruise.adapters.kube.following.kinds import ADMISSION_KINDS
from cruise.adapters.kube.http.client import KubeClient
from cruise.adapters.kube.http.connecting import connect
from cruise.adapters.store.embedded_postgres import default_data_dir
from cruise.adapters.store.opening import open_store
from cruise.adapters.webhook_tls.certificates import verify_clients
from cruise.app.certificate_upkeep import begun, kept
from cruise.app.clock import wall_clock
from cruise.app.http_bounds import ListenerTally, bounds_of, listener_figures
from cruise.app.http_server import serve_http
from cruise.app.serve.connections import policy_of
from cruise.app.webhook.admission_upkeep import AdmissionUpkeep, Quotas
from cruise.app.webhook.certificates import CertificateTimes, served_certificate
from cruise.app.webhook.stored_view import StoreFollower
from cruise.collection import leave_to_counting
from cruise.errors import CruiseError, one_refusal
from cruise.interfaces.http.health import AsgiApp, health_app
from cruise.interfaces.http.metrics import metrics_text
from cruise.interfaces.webhook import Callers, answers_and_durations, webhook_app
from cruise.runtime.admission.reviewing import Reviewer
from cruise.runtime.admission.steering import Expected
from cruise.runtime.ports import Store
from cruise.settings import Settings

log = structlog.get_logger()

OpenedStore = AbstractAsyncContextManager[Store]

_LOOK_SECONDS = 0.1
_QUOTA_SECONDS = 10.0
# Meanwhile clients are asked to connect anew, and find another replica.
_DRAIN_SECONDS = 2.0
# A thread that unpacks statistics gives way after so long, where Python's default is ten times as much.
_SWITCH_SECONDS = 0.000_5


class Webhook:
    """One running webhook, as probes and metrics see it."""

    def __init__(
        self, settings: Settings, client: KubeClient, times: CertificateTimes, stored: Callable[[], OpenedStore]
    ) -> None:
        self._expected = Expected(wall_clock)
        self.reviewer = Reviewer(self._expected, settings.review_bounds(), settings.webhook_time_budget.total_seconds())
        self.tally = ListenerTally()
        self.stopping = False
        self.quotas: Quotas = {}
        self._client = client
        self.cluster = KubeCluster(client, ADMISSION_KINDS, node_autoscaling=settings.node_autoscaler)
        self.store = StoreFollower(stored, wall_clock)
        self._times = times
        self._policy = policy_of(settings)
        self.keeper = served_certificate(settings, client, times)
        if settings.webhook_client_ca_file is not None:
            verify_clients(self.keeper.context, settings.webhook_client_ca_file)

    async def run(self) -> None:
        """Decide until cancelled; then let clients move to another replica. Raises CruiseError."""
        await begun(self.keeper)
        with self.store:
            upkeep = AdmissionUpkeep(
                self.cluster, self.store, self._policy, self.reviewer, wall_clock, lambda: self.quotas, self._expected
            )
            with one_refusal():
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self.cluster.run())
                    tasks.create_task(upkeep.run())
                    tasks.create_task(self._follow_quotas())
                    tasks.create_task(kept(self.keeper, self._times.interval))
                    tasks.create_task(self._settle())
                    await self._until_cancelled()

    def reasons(self) -> list[str]:
        """Return why no review can be decided now."""
        found = []
        if self.stopping:
            found.append("stopping")
        unpublished = self.keeper.why_unpublished
        if unpublished is not None:
            found.append(f"certificate: {unpublished}")
        if self.cluster.lag_seconds() > MOST_LAG_SECONDS:
            found += self.cluster.problems() or ["waiting for the cluster"]
        elif not self.reviewer.ready:
            found.append(self.reviewer.why_idle)
        return found

    def metrics(self) -> bytes:
        """Return what `/metrics` shows."""
        figures = replace(
            answers_and_durations(self.reviewer.counts),
            statistics_at=self.store.view.read_at,
            certificate_expires_at=self.keeper.expires_at,
            watch_lag_seconds=self.cluster.lag_seconds(),
        )
        return metrics_text(__version__, wall_clock(), webhook=figures, listener=listener_figures(self.tally))

    async def _follow_quotas(self) -> None:
        """Read again and again what quotas leave: they change with every pod, and there are few of them."""
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
                # An equal one stays the same object, so that admission is not prepared again.
                if read != self.quotas:
                    self.quotas = read
            await asyncio.sleep(_QUOTA_SECONDS)

    async def _settle(self) -> None:
        """Keep the garbage collector from what stays for good: a pass over all of it would hold up every request."""
        while not self.reviewer.ready or self.store.view.read_at is None:
            await asyncio.sleep(_LOOK_SECONDS)
        leave_to_counting()

    async def _until_cancelled(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.stopping = True
            await asyncio.sleep(_DRAIN_SECONDS)


async def serve_webhook(
    settings: Settings, times: CertificateTimes | None = None, stored: Callable[[], OpenedStore] | None = None
) -> None:
    """Answer reviews until cancelled; `stored` opens the store, by default that of the settings. Raises CruiseError."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    host, _, port = settings.webhook_address.rpartition(":")
    async with connect(settings.kube()) as client:
        webhook = Webhook(settings, client, times or CertificateTimes(), stored or (lambda: _stored(settings)))
        app = health_app(webhook.reasons, webhook.metrics, _reviews(settings, webhook))
        tls, bounds = webhook.keeper.context, bounds_of(settings)
        async with serve_http(app, host.strip("[]"), int(port), tls=tls, bounds=bounds, tally=webhook.tally) as bound:
            callers = settings.webhook_client_ca_file or "anybody: webhook_client_ca_file is not set"
            log.info("listening", address=f"{host or '*'}:{bound}", mode=settings.mode.label, answers=str(callers))
            await webhook.run()


def _reviews(settings: Settings, webhook: Webhook) -> AsgiApp:
    known = settings.webhook_client_ca_file is not None
    return webhook_app(
        webhook.reviewer,
        lambda: webhook.stopping,
        largest_bytes=settings.webhook_max_review_bytes,
        callers=Callers(settings.webhook_client_names) if known else None,
    )


def _stored(settings: Settings) -> OpenedStore:
    data_dir = settings.data_dir or default_data_dir(os.environ)
    return open_store(settings.database_url, data_dir, lambda line: log.warning(line), settings.database_timeout)

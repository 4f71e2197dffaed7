"""`cruise serve`: connections, a controller while this process leads, and an HTTP server throughout."""

import asyncio
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

import structlog

from cruise.adapters.kube.actions import PolicyObjectWriter, PolicyStatusWriter, VpaPublisher
from cruise.adapters.kube.client import connect_to_kubernetes, find_own_namespace
from cruise.adapters.kube.events import UserActionEventRecorder
from cruise.app.http_connection import get_listener_limits
from cruise.app.http_server import serve_http
from cruise.app.process import get_current_time, release_unused_memory
from cruise.app.serve.activity import ServeActivity, UsageReadingLog
from cruise.app.serve.connections import (
    ServeConnections,
    build_policy_from_settings,
    build_request_guard_rules,
    check_api_access_settings,
    create_event_hooks,
    get_listen_host,
    keep_cluster_synced,
    limit_mode_to_server,
    open_api_tls_context,
    open_connections,
    wait_until_synced,
)
from cruise.app.serve.controller import Controller
from cruise.app.serve.controller_options import ControllerOptions, PackingSettings, SharedWriterState
from cruise.app.serve.leadership import fence_store_to_term, run_while_leading, uses_leader_election
from cruise.app.serve.notifier import create_notifier, get_notification_webhook
from cruise.app.serve.readiness import ServeView
from cruise.app.serve.what_if_replay import WhatIfRunner
from cruise.domain.policy import Policy
from cruise.errors import CruiseError, ThrottledError, UnavailableError
from cruise.interfaces.dashboard.layout import SignInSessions
from cruise.interfaces.dashboard.pages import add_dashboard
from cruise.interfaces.http.api import create_api
from cruise.interfaces.http.cluster_summary import ClusterSummaryCache
from cruise.interfaces.http.health import AsgiApp, create_health_app
from cruise.interfaces.http.request_guard import RequestGuardRules, guard_requests
from cruise.interfaces.http.view import ApiView
from cruise.interfaces.http.workload import PodExplainer
from cruise.runtime.packing.packing_pass import PackingSolver
from cruise.runtime.packing.solver_client import SolverProcess
from cruise.runtime.ports import StorePort
from cruise.runtime.publication import MAX_RECOMMENDATIONS_PER_PASS, PolicyStatusUpdater, VpaRecommendationUpdater
from cruise.runtime.writing.writer import compute_concurrent_writes
from cruise.settings import Settings
from cruise.settings.value_types import UsageSourceChoice, VpaPublishing

log = structlog.get_logger()

# Probes and scrapes are fast, and a user's long request must not delay the exit.
_HTTP_STOP_SECONDS = 3
_RETRY_SECONDS = 5.0
_API_REQUESTS_PER_SECOND, _API_BURST = 50.0, 200


async def run_serve(settings: Settings) -> None:
    """Serve until cancelled. Raises BadInputError for invalid settings before it waits for anything."""
    check_required_settings(settings)
    running = ServeView(
        build_policy_from_settings(settings), get_current_time, ServeActivity(), prices=settings.to_price_settings()
    )
    host, _, port = settings.http_address.rpartition(":")
    async with (
        # A separate client: API callers must not use up the passes' request rate.
        connect_to_kubernetes(
            replace(settings.to_kubernetes_settings(), requests_per_second=_API_REQUESTS_PER_SECOND, burst=_API_BURST)
        ) as client,
        open_api_tls_context(settings) as tls,
        serve_http(
            build_http_app(
                running, build_request_guard_rules(settings, client), running.get_unready_reasons, running.metrics
            ),
            get_listen_host(settings),
            int(port),
            tls=tls,
            stop_seconds=_HTTP_STOP_SECONDS,
            bounds=get_listener_limits(settings),
            counts=running.counts,
        ) as bound,
    ):
        running.policy_objects = PolicyObjectWriter(client)
        log.info("listening", address=f"{host or '*'}:{bound}", tls=tls is not None, mode=settings.mode.label)
        if uses_leader_election(settings.mode):
            running.events = UserActionEventRecorder(
                client, socket.gethostname(), find_own_namespace(settings.namespace)
            )
        running.waiting_for = "the database"
        async with open_connections(settings, _log_warning) as connected:
            running.opened_store, running.cluster, running.lease = connected.store, connected.cluster, connected.lease
            running.cross_checked = connected.usage.cross_check_counts
            async with SolverProcess(start_now=False) as solver, WhatIfRunner(settings, running) as what_if_runs:
                running.what_if_runs = what_if_runs if settings.prometheus_url is not None else None
                await _sync_and_lead(settings, connected, running, solver)


def build_http_app(
    view: ApiView, rules: RequestGuardRules, ready: Callable[[], Iterable[str]], metrics: Callable[[], bytes]
) -> AsgiApp:
    """Return the HTTP application, behind the request guard."""
    summaries, explanations = ClusterSummaryCache(view), PodExplainer(view)
    api = create_api(view, summaries, explanations)
    dashboard = add_dashboard(api, view, summaries, explanations, SignInSessions(time.monotonic), rules.authority)
    return guard_requests(create_health_app(ready, metrics, api), replace(rules, access_rules=dashboard))


def create_controller(
    settings: Settings,
    connected: ServeConnections,
    policy: Policy,
    solver: PackingSolver,
    options: ControllerOptions,
    most_published: int = MAX_RECOMMENDATIONS_PER_PASS,
) -> Controller:
    """Return the controller that the settings describe, with the rest of its `options`."""
    packing = PackingSettings(
        solver,
        settings.packing_time_limit.total_seconds(),
        settings.packing_enabled,
        settings.consolidation,
        settings.consolidation_interval,
        settings.consolidation_cooldown,
    )
    publication = _create_publication(settings, connected, policy, most_published)
    statuses = None
    if connected.lease is not None:
        # Without leader election, in modes below `resize`, nothing is written.
        statuses = PolicyStatusUpdater(PolicyStatusWriter(connected.client), connected.store, policy)
    options = replace(
        options,
        packing=packing,
        publication=publication,
        policy_statuses=statuses,
        shutdown_grace=settings.shutdown_grace_period,
    )
    source, reading = connected.usage.source, connected.usage.reading
    return Controller(connected.cluster, source, connected.store, policy, get_current_time, reading, options)


def _create_publication(
    settings: Settings, connected: ServeConnections, policy: Policy, limit: int
) -> VpaRecommendationUpdater | None:
    """Return the publication of recommendations, None if it is disabled or nothing is written."""
    if settings.publish_vpas is VpaPublishing.NONE or connected.lease is None:
        return None
    publisher = VpaPublisher(connected.client, settings.publish_vpas.value.capitalize())
    return VpaRecommendationUpdater(publisher, connected.store, policy, limit)


def check_required_settings(settings: Settings) -> None:
    """Check that required settings are set. Raises BadInputError."""
    if settings.prometheus_url is not None or settings.usage_source is UsageSourceChoice.PROMETHEUS:
        settings.to_prometheus_settings()
    get_notification_webhook(settings)
    check_api_access_settings(settings)


async def _sync_and_lead(
    settings: Settings, connected: ServeConnections, running: ServeView, solver: PackingSolver
) -> None:
    """Keep the view of the cluster synced, and run the passes while this process leads."""
    shared = SharedWriterState(concurrent_writes=compute_concurrent_writes(settings.kube_requests_per_second))
    running.open_intents = lambda: shared.audit.open_intents

    async def run_term(store: StorePort) -> None:
        await _end_hung_sessions(store)
        notifier = create_notifier(settings, store, running.activity.notices)
        hooks = replace(create_event_hooks(connected), on_progress=UsageReadingLog())
        if notifier is not None:
            hooks = notifier.add_hooks(hooks)
        controller = create_controller(
            settings,
            replace(connected, store=store),
            running.policy,
            solver,
            ControllerOptions(hooks, running.activity, shared),
        )
        running.controller = controller
        if connected.lease is not None:
            # The epoch of the last leader's database.
            store.expect_epoch(connected.lease.recorded_epoch)
        try:
            await controller.run(asyncio.Event())
        except asyncio.CancelledError:
            # If leadership was lost, another process leads.
            if connected.lease is not None and connected.lease.is_held:
                await _remove_taints(settings, controller)
            raise
        finally:
            running.controller = None
            running.activity.reset_for_new_term()

    async def run_fenced_term() -> None:
        # What this process read in its last term is as large as what it is about to read.
        release_unused_memory()
        with fence_store_to_term(connected.store) as store:
            await run_term(store)

    async with keep_cluster_synced(connected.cluster):
        running.waiting_for = "the cluster"
        await wait_until_synced(connected.cluster)
        running.policy = await _wait_for_supported_mode(connected, running.policy)
        running.waiting_for = None
        try:
            await run_while_leading(connected.lease, run_fenced_term, running.explain_stuck)
        finally:
            running.waiting_for = "the end"


async def _end_hung_sessions(store: StorePort) -> None:
    """End what a former leader may hold in the database: a process that is stopped within a write keeps its locks."""
    try:
        ended = await store.end_hung_sessions()
    except CruiseError as error:
        log.warning("sessions of a stopped process may hold locks in the database", problem=str(error))
    else:
        if ended:
            log.warning("ended sessions of a process that was stopped within a write", sessions=ended)


async def _remove_taints(settings: Settings, controller: Controller) -> None:
    """Remove cruise's taints, within the grace period."""
    try:
        async with asyncio.timeout(settings.shutdown_grace_period.total_seconds()):
            await controller.remove_taints_on_exit(find_own_namespace(settings.namespace), socket.gethostname())
    except (CruiseError, TimeoutError) as error:
        log.warning("nodes may keep cruise's taint", problem=str(error) or "no answer in time")


async def _wait_for_supported_mode(connected: ServeConnections, policy: Policy) -> Policy:
    """Wait until the API server reports what it supports; return the policy limited to that."""
    while True:
        try:
            return await limit_mode_to_server(connected, policy)
        except (ThrottledError, UnavailableError) as error:
            log.warning("waiting for the API server", problem=str(error))
            await asyncio.sleep(_RETRY_SECONDS)


def _log_warning(line: str) -> None:
    log.warning(line)

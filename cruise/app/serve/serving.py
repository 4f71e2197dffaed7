"""`cruise serve`: settings become connections, a controller while this process leads, and an HTTP server throughout."""

import asyncio
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

import structlog

from cruise.adapters.kube.http.connecting import connect, own_namespace
from cruise.adapters.kube.writing.intervention_events import InterventionEvents
from cruise.adapters.kube.writing.published import VerticalPublisher
from cruise.app.clock import wall_clock
from cruise.app.http_bounds import bounds_of
from cruise.app.http_server import serve_http
from cruise.app.serve.activity import Activity
from cruise.app.serve.connections import (
    Connections,
    able,
    announcer,
    connections,
    followed,
    in_step,
    policy_of,
)
from cruise.app.serve.controller import Controller, Packer, Shared
from cruise.app.serve.front import certificate, check_front, gate_rules, host_of
from cruise.app.serve.hooks import Hooks
from cruise.app.serve.leading import elects, lead
from cruise.app.serve.notifying import notifier_of, webhook_of
from cruise.app.serve.readiness import Running
from cruise.app.serve.reading_log import ReadingLog
from cruise.app.serve.rehearsals import Rehearsals
from cruise.decisions.eviction.earlier import NOTHING_SEEN, Earlier
from cruise.domain.policy import Policy
from cruise.errors import CruiseError, Throttled, Unavailable
from cruise.interfaces.dashboard.pages import add_dashboard
from cruise.interfaces.dashboard.sessions import Sessions
from cruise.interfaces.http.api import create_api
from cruise.interfaces.http.gate import GateRules, gated
from cruise.interfaces.http.health import AsgiApp, health_app
from cruise.interfaces.http.pods import Explanations
from cruise.interfaces.http.survey import Surveys
from cruise.interfaces.http.view import ApiView
from cruise.runtime.packing.packing_pass import Solver
from cruise.runtime.packing.worker import PackWorker
from cruise.runtime.writing.publication import MOST_IN_A_PASS, Publication
from cruise.runtime.writing.writer import writes_at_once
from cruise.settings import Settings
from cruise.settings.choices import PublishedVpas, UsageFrom

log = structlog.get_logger()

# Probes and scrapes take no time, and a long request of a person must not hold up the end of the process.
_HTTP_STOP_SECONDS = 3
_RETRY_SECONDS = 5.0
_API_REQUESTS_PER_SECOND, _API_BURST = 50.0, 200


async def serve(settings: Settings) -> None:
    """Serve until cancelled. Raises BadInput for settings that cannot work, before anything is waited for."""
    check(settings)
    running = Running(policy_of(settings), wall_clock, Activity())
    host, _, port = settings.http_address.rpartition(":")
    async with (
        # Of its own: what callers ask for must not use up what the passes may ask.
        connect(replace(settings.kube(), requests_per_second=_API_REQUESTS_PER_SECOND, burst=_API_BURST)) as client,
        certificate(settings) as tls,
        serve_http(
            pages_and_api(running, gate_rules(settings, client), running.reasons, running.metrics),
            host_of(settings),
            int(port),
            tls=tls,
            stop_seconds=_HTTP_STOP_SECONDS,
            bounds=bounds_of(settings),
            tally=running.tally,
        ) as bound,
    ):
        log.info("listening", address=f"{host or '*'}:{bound}", tls=tls is not None, mode=settings.mode.label)
        if elects(settings.mode):
            running.events = InterventionEvents(client, socket.gethostname(), own_namespace(settings.namespace))
        running.awaited = "the database"
        async with connections(settings, _say) as connected:
            running.opened, running.cluster, running.lease = connected.store, connected.cluster, connected.lease
            running.compared = connected.usage.tally
            async with PackWorker(at_once=False) as solver, Rehearsals(settings, running) as rehearsals:
                running.rehearsals = rehearsals if settings.prometheus_url is not None else None
                await _follow_and_lead(settings, connected, running, solver)


def pages_and_api(
    view: ApiView, rules: GateRules, ready: Callable[[], Iterable[str]], metrics: Callable[[], bytes]
) -> AsgiApp:
    """Return all that is served over HTTP, behind its gate."""
    surveys, explanations = Surveys(view), Explanations(view)
    api = create_api(view, surveys, explanations)
    front = add_dashboard(api, view, surveys, explanations, Sessions(time.monotonic), rules.authority)
    return gated(health_app(ready, metrics, api), replace(rules, front=front))


def controller_of(
    settings: Settings,
    connected: Connections,
    policy: Policy,
    solver: Solver,
    hooks: Hooks,
    *,
    activity: Activity | None = None,
    shared: Shared | None = None,
    earlier: Earlier = NOTHING_SEEN,
    most_published: int = MOST_IN_A_PASS,
) -> Controller:
    """Return the controller that settings describe."""
    return Controller(
        connected.cluster,
        connected.usage.source,
        connected.store,
        policy,
        wall_clock,
        connected.usage.reading,
        hooks=hooks,
        activity=activity,
        shared=shared,
        packer=Packer(
            solver,
            settings.packing_time_limit.total_seconds(),
            settings.packing,
            settings.consolidate,
            settings.consolidate_interval,
            settings.consolidate_rest,
        ),
        grace=settings.stop_grace,
        earlier=earlier,
        publication=_publication(settings, connected, policy, most_published),
    )


def _publication(settings: Settings, connected: Connections, policy: Policy, most: int) -> Publication | None:
    """Return what shows sizes to others, None where that is not wanted, or nothing is written."""
    if settings.publish_vpas is PublishedVpas.NONE or connected.lease is None:
        return None
    publisher = VerticalPublisher(connected.client, settings.publish_vpas.value.capitalize())
    return Publication(publisher, connected.store, policy, most)


def check(settings: Settings) -> None:
    """See that what has to be set is set. Raises BadInput."""
    if settings.prometheus_url is not None or settings.usage_source is UsageFrom.PROMETHEUS:
        settings.prometheus()
    webhook_of(settings)
    check_front(settings)


async def _follow_and_lead(settings: Settings, connected: Connections, running: Running, solver: Solver) -> None:
    """Keep the view of the cluster in step, and run the passes while this process leads."""
    shared = Shared(at_once=writes_at_once(settings.kube_requests_per_second))
    running.open_intents = lambda: shared.audit.open_intents

    async def term() -> None:
        notifier = notifier_of(settings, connected.store, running.activity.notices)
        hooks = Hooks(announce=announcer(connected), progress=ReadingLog())
        if notifier is not None:
            hooks = notifier.hooked(hooks)
        controller = controller_of(
            settings, connected, running.policy, solver, hooks, activity=running.activity, shared=shared
        )
        running.controller = controller
        if connected.lease is not None:
            # What the database of the last leader had.
            connected.store.expect(connected.lease.noted_epoch)
        try:
            await controller.run(asyncio.Event())
        except asyncio.CancelledError:
            # Where the lead was lost, another process has it.
            if connected.lease is not None and connected.lease.held:
                await _leave(settings, controller)
            raise
        finally:
            running.controller = None
            running.activity.forget_term()

    async with followed(connected.cluster):
        running.awaited = "the cluster"
        await in_step(connected.cluster)
        running.policy = await _able(connected, running.policy)
        running.awaited = None
        try:
            await lead(connected.lease, term, running.why_stuck)
        finally:
            running.awaited = "the end"


async def _leave(settings: Settings, controller: Controller) -> None:
    """Let the controller leave the cluster, within the time that a pass has to end."""
    try:
        async with asyncio.timeout(settings.stop_grace.total_seconds()):
            await controller.leave(own_namespace(settings.namespace), socket.gethostname())
    except (CruiseError, TimeoutError) as error:
        log.warning("nodes may keep cruise's taint", problem=str(error) or "no answer in time")


async def _able(connected: Connections, policy: Policy) -> Policy:
    """Try to find out what the server supports until it answers."""
    while True:
        try:
            return await able(connected, policy)
        except (Throttled, Unavailable) as error:
            log.warning("waiting for the API server", problem=str(error))
            await asyncio.sleep(_RETRY_SECONDS)


def _say(line: str) -> None:
    log.warning(line)

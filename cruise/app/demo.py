"""The demo: the controller on a simulated cluster with replayed usage, and the same cluster without cruise."""

import asyncio
import contextlib
import fcntl
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import structlog
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from cruise import __version__
from cruise.adapters.store.postgres import open_store
from cruise.app.demo_frames import DemoClock, DemoFrameBuilder
from cruise.app.http_server import serve_http
from cruise.app.process import handle_signals, is_worth_logging
from cruise.app.serve.activity import ControllerHooks, ServeActivity
from cruise.app.serve.controller import Controller
from cruise.app.serve.controller_options import ControllerOptions
from cruise.app.serve.serve import build_http_app
from cruise.domain.actions import Outcome
from cruise.domain.cluster import ClusterSnapshot, Pod, WorkloadRef
from cruise.domain.overrides import PausedWorkloads
from cruise.domain.policy import Mode, Policy
from cruise.domain.prices import LIST_PRICES, PriceSettings
from cruise.domain.usage import StatisticsTable
from cruise.domain.users import UserAction
from cruise.errors import BadInputError
from cruise.interfaces.demo_screen import DemoFrame, describe_status, render_demo_frame
from cruise.interfaces.http.figures import ControllerFigures
from cruise.interfaces.http.metrics import render_metrics
from cruise.interfaces.http.request_guard import MIN_TOKEN_LENGTH, RequestGuardRules, StaticTokenAuthority
from cruise.interfaces.http.view import PolicyObjectPort, WhatIfPort
from cruise.runtime.admission import PodAdmitter
from cruise.runtime.node_pass import NodePassResult
from cruise.runtime.ports import ClusterPort, PassContext, StorePort
from cruise.runtime.revert import revert_workload
from cruise.runtime.usage.usage_reader import UsageReadingProgress, UsageReadingSettings
from cruise.settings import Settings
from cruise.simulation.cluster.cluster import SimulatedCluster
from cruise.simulation.demo_cluster import create_demo_cluster

DEMO_START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
DEMO_SPEED = 300.0
_HOST = "127.0.0.1"
_TICK_SECONDS = 0.1
_FIRST_MINUTE = timedelta(minutes=1)
_FRAMES_PER_SECOND = 4
_STATUS_SECONDS = 5.0


class SimulatedAdmission:
    """Sizes new pods from the snapshot, statistics and overrides of the last statistics refresh, without a webhook."""

    def __init__(self, cluster: ClusterPort, store: StorePort, policy: Policy, clock: Callable[[], datetime]) -> None:
        self._cluster = cluster
        self._store = store
        self._policy = policy
        self._clock = clock
        self._known: tuple[ClusterSnapshot, StatisticsTable, PausedWorkloads] | None = None

    async def update(self, statistics: StatisticsTable) -> None:
        """Replace the statistics."""
        self._known = (await self._cluster.snapshot(), statistics, await self._store.read_paused_workloads())

    def admit(self, pod: Pod) -> Pod:
        """Return the created pod; unchanged without statistics."""
        if self._known is None:
            return pod
        created, _ = PodAdmitter(*self._known, self._policy, self._clock()).admit(pod)
        return created


@dataclass(frozen=True, slots=True)
class DemoView:
    """Implements `interfaces.http.view.ApiView`; its time is the simulated time."""

    cluster: SimulatedCluster
    store: StorePort
    policy: Policy
    activity: ServeActivity
    what_if_runs: WhatIfPort | None = None
    prices: PriceSettings = PriceSettings()
    policy_objects: PolicyObjectPort | None = None

    def now(self) -> datetime:
        """Return the simulated time."""
        return self.cluster.now

    def get_figures(self) -> ControllerFigures:
        """Return the controller's figures."""
        return self.activity.build_figures(self.policy.mode, True, 0.0)

    def get_last_pass(self) -> NodePassResult | None:
        """Return the last node pass."""
        return self.activity.node_pass

    async def snapshot(self) -> ClusterSnapshot:
        """Return the cluster's present state."""
        return await self.cluster.snapshot()

    async def statistics(self) -> StatisticsTable:
        """Return the statistics of the last refresh."""
        return self.activity.statistics or await self.store.read_statistics()

    async def revert(self, namespace: str, workload: WorkloadRef) -> Sequence[Outcome]:
        """Revert one workload. Raises UnavailableError."""
        return await revert_workload(
            PassContext(self.cluster, self.store, self.policy, self.now()), namespace, workload
        )

    async def announce(self, intervention: UserAction) -> None:
        """Announce nothing."""

    def reasons(self) -> Iterable[str]:
        """Return why the demo is not ready."""
        return () if self.activity.is_filled else ("waiting for the statistics",)

    def metrics(self) -> bytes:
        """Return the response of `/metrics`."""
        return render_metrics(__version__, self.now(), controller=self.get_figures())


async def run_demo(settings: Settings, console: Console, data_dir: Path, seconds: float | None) -> DemoFrame:
    """Run the demo until Ctrl-C, or for `seconds`, drawn on `console`; return the last frame.

    Without a database URL it uses an embedded Postgres in its own directory. Raises BadInputError if the database is
    not empty.
    """
    stop = asyncio.Event()
    with handle_signals(stop.set), print_logs_on_console(console), _lock_directory(data_dir) as directory:
        console.print("starting: cluster, store, statistics of the past week")
        async with _open_empty_store(settings, directory, console) as store:
            return await _run(settings, console, store, _write_token(data_dir), seconds, stop)


def _write_token(data_dir: Path) -> Path:
    """Write a new token, which signs in to this demo's dashboard, to a file that only its user reads."""
    file = data_dir / "demo.token"
    file.unlink(missing_ok=True)
    file.touch(mode=0o600)
    file.write_text(f"{secrets.token_hex(MIN_TOKEN_LENGTH // 2)}\n")
    return file


async def _run(
    settings: Settings, console: Console, store: StorePort, token: Path, seconds: float | None, stop: asyncio.Event
) -> DemoFrame:
    policy = replace(settings.to_policy(), mode=Mode.FULL)
    cluster, usage = create_demo_cluster(DEMO_START)
    twin, _ = create_demo_cluster(DEMO_START)
    admission = SimulatedAdmission(cluster, store, policy, lambda: cluster.now)
    cluster.admit = admission.admit
    controller = Controller(
        cluster,
        usage,
        store,
        policy,
        lambda: cluster.now,
        UsageReadingSettings(scrape_delay_seconds=0),
        ControllerOptions(clock_speed=DEMO_SPEED, hooks=ControllerHooks(on_statistics=admission.update)),
    )
    # After a minute the cluster without cruise has usage to show.
    for one in (cluster, twin):
        one.advance(DEMO_START + _FIRST_MINUTE)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        reading = bar.add_task("reading the past", total=None)

        def show_reading(read: UsageReadingProgress) -> None:
            bar.update(reading, completed=read.done_container_hours, total=read.total_container_hours)

        await controller.refresh_statistics(show_reading)
    prices = settings.to_price_settings()
    if prices == PriceSettings():
        # The first page shows money without any settings.
        prices = PriceSettings(LIST_PRICES)
    view = DemoView(cluster, store, policy, controller.activity, prices=prices)
    # Half of the age from which statistics are too old.
    clock = DemoClock(cluster.now, DEMO_SPEED, policy.max_age / 2, controller.activity)
    place = "embedded Postgres" if settings.database_url is None else "Postgres"
    frames = DemoFrameBuilder(cluster, twin, controller.activity, clock, DEMO_SPEED, place, seconds)
    show = _draw_live if console.is_terminal else _print_lines
    async with _serve_dashboard(view, settings, console, token), asyncio.TaskGroup() as tasks:
        time_passes = tasks.create_task(_advance_clusters(clock, [cluster.advance, twin.advance], seconds, stop))
        tasks.create_task(show(console, frames.build, stop))
        await controller.run(stop)
        time_passes.cancel()
    cluster.close()
    return frames.build()


@asynccontextmanager
async def _serve_dashboard(view: DemoView, settings: Settings, console: Console, token: Path) -> AsyncIterator[None]:
    """Serve the dashboard on localhost, on the configured port, or on a free one if that is in use."""
    app = build_http_app(view, RequestGuardRules(StaticTokenAuthority(token)), view.reasons, view.metrics)
    async with AsyncExitStack() as stack:
        try:
            port = int(settings.http_address.rpartition(":")[2])
            bound = await stack.enter_async_context(serve_http(app, _HOST, port, stop_seconds=1))
        except BadInputError:
            bound = await stack.enter_async_context(serve_http(app, _HOST, 0, stop_seconds=1))
        console.print(f"dashboard: http://{_HOST}:{bound}/", soft_wrap=True)
        console.print(f"sign in: to pause or revert, with the token in {token}", soft_wrap=True, highlight=False)
        yield


async def _advance_clusters(
    clock: DemoClock, clusters: list[Callable[[datetime], None]], seconds: float | None, stop: asyncio.Event
) -> None:
    """Advance every cluster by the demo's clock until `stop`, which is set when the time is over."""
    began = before = time.monotonic()
    while not stop.is_set():
        await asyncio.sleep(_TICK_SECONDS)
        now = time.monotonic()
        simulated = clock.tick(now - before).replace(microsecond=0)
        before = now
        for advance in clusters:
            advance(simulated)
        if seconds is not None and now - began >= seconds:
            stop.set()


async def _draw_live(console: Console, frame: Callable[[], DemoFrame], stop: asyncio.Event) -> None:
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while not stop.is_set():
            live.update(render_demo_frame(frame(), console.width), refresh=True)
            await asyncio.sleep(1 / _FRAMES_PER_SECOND)


async def _print_lines(console: Console, frame: Callable[[], DemoFrame], stop: asyncio.Event) -> None:
    """Print a line now and then, if there is no terminal to draw on."""
    while not stop.is_set():
        console.print(describe_status(frame()), soft_wrap=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), _STATUS_SECONDS)


@asynccontextmanager
async def _open_empty_store(settings: Settings, directory: Path, console: Console) -> AsyncIterator[StorePort]:
    """Open the database, which must be empty: the demo's records must not mix with real ones."""

    def say(line: str) -> None:
        console.print(line, soft_wrap=True)

    async with open_store(settings.database_url, directory, say, settings.database_statement_timeout) as store:
        if settings.database_url is None:
            await store.clear()
        elif await store.read_usage_progress() or (await store.read_statistics()).keys:
            raise BadInputError(
                "database_url: that database holds records already; give the demo an empty one, or none"
            )
        yield store


@contextmanager
def _lock_directory(data_dir: Path) -> Iterator[Path]:
    """Return the demo's directory, locked for one demo at a time."""
    directory = data_dir / "demo"
    data_dir.mkdir(parents=True, exist_ok=True)
    with (data_dir / "demo.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise BadInputError(
                f"{directory}: another demo is running there; stop it, or set CRUISE_DATA_DIR"
            ) from error
        yield directory


class _ConsoleLogHandler(logging.Handler):
    """Prints warnings of libraries, a line each."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        self._console.print(record.getMessage(), style="yellow", markup=False, soft_wrap=True)


@contextmanager
def print_logs_on_console(console: Console) -> Iterator[None]:
    """Print warnings on the demo's console, above the live picture."""

    def print_line(_: object, method: str, event: structlog.typing.EventDict) -> str:
        if method in ("warning", "error", "critical"):
            details = " ".join(f"{key}={value}" for key, value in event.items() if key != "event")
            console.print(f"{event['event']}: {details}", style="yellow", markup=False, soft_wrap=True)
        raise structlog.DropEvent

    lines = _ConsoleLogHandler(console)
    lines.addFilter(is_worth_logging)
    structlog.configure(processors=[print_line])
    logging.getLogger().addHandler(lines)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(lines)
        structlog.reset_defaults()

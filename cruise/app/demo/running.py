"""The demo: the whole controller on a simulated cluster with replayed usage, beside the same cluster left alone."""

import asyncio
import contextlib
import fcntl
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import structlog
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from cruise.adapters.store.opening import open_store
from cruise.app.demo.admission import SimulatedAdmission
from cruise.app.demo.frames import FrameMaker
from cruise.app.demo.pacing import DemoClock
from cruise.app.demo.view import DemoView
from cruise.app.http_server import serve_http
from cruise.app.log_lines import worth_logging
from cruise.app.serve.controller import Controller
from cruise.app.serve.hooks import Hooks
from cruise.app.serve.serving import pages_and_api
from cruise.app.signals import on_signals
from cruise.domain.policy import Mode
from cruise.errors import BadInput
from cruise.interfaces.demo_view import DemoFrame, render_frame, status_line
from cruise.interfaces.http.gate import GateRules
from cruise.runtime.ports import Store
from cruise.runtime.usage.reading import ReadingProgress, UsageReading
from cruise.settings import Settings
from cruise.simulation.demo_cluster import demo_cluster

START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
PACE = 300.0
_HOST = "127.0.0.1"
_TICK_SECONDS = 0.1
_FIRST_MINUTE = timedelta(minutes=1)
_FRAMES_PER_SECOND = 4
_STATUS_SECONDS = 5.0


async def run_demo(settings: Settings, console: Console, data_dir: Path, seconds: float | None) -> DemoFrame:
    """Run the demo until Ctrl-C, or for `seconds`, drawn on `console`; return the last frame.

    Without a database URL the store is an embedded Postgres in a directory of the demo's own. Raises BadInput where
    the database already holds something.
    """
    stop = asyncio.Event()
    with on_signals(stop.set), logging_to(console), _own_directory(data_dir) as directory:
        console.print("starting: cluster, store, statistics of the past week")
        async with _empty_store(settings, directory, console) as store:
            return await _run(settings, console, store, seconds, stop)


async def _run(
    settings: Settings, console: Console, store: Store, seconds: float | None, stop: asyncio.Event
) -> DemoFrame:
    policy = replace(settings.policy(), mode=Mode.FULL)
    cluster, usage = demo_cluster(START)
    twin, _ = demo_cluster(START)
    admission = SimulatedAdmission(cluster, store, policy, lambda: cluster.now)
    cluster.admit = admission.admit
    controller = Controller(
        cluster,
        usage,
        store,
        policy,
        lambda: cluster.now,
        UsageReading(settle_seconds=0),
        PACE,
        hooks=Hooks(learn=admission.learn),
    )
    # The first minute gives the picture from before something to show as used.
    for one in (cluster, twin):
        one.advance(START + _FIRST_MINUTE)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        reading = bar.add_task("reading the past", total=None)

        def show_reading(read: ReadingProgress) -> None:
            bar.update(reading, completed=read.done_container_hours, total=read.total_container_hours)

        await controller.refresh_statistics(show_reading)
    view = DemoView(cluster, store, policy, controller.activity)
    # Half of the age from which statistics change nothing.
    clock = DemoClock(cluster.now, PACE, policy.max_age / 2, controller.activity)
    place = "embedded Postgres" if settings.database_url is None else "Postgres"
    frames = FrameMaker(cluster, twin, controller.activity, clock, PACE, place, seconds)
    show = _live if console.is_terminal else _lines
    async with _served(view, settings, console), asyncio.TaskGroup() as tasks:
        time_passes = tasks.create_task(_let_time_pass(clock, [cluster.advance, twin.advance], seconds, stop))
        tasks.create_task(show(console, frames.frame, stop))
        await controller.run(stop)
        time_passes.cancel()
    cluster.close()
    return frames.frame()


@asynccontextmanager
async def _served(view: DemoView, settings: Settings, console: Console) -> AsyncIterator[None]:
    """Serve the dashboard to this machine, on the setting's port or, where that is taken, on any other."""
    app = pages_and_api(view, GateRules(), view.reasons, view.metrics)
    async with AsyncExitStack() as stack:
        try:
            port = int(settings.http_address.rpartition(":")[2])
            bound = await stack.enter_async_context(serve_http(app, _HOST, port, stop_seconds=1))
        except BadInput:
            bound = await stack.enter_async_context(serve_http(app, _HOST, 0, stop_seconds=1))
        console.print(f"dashboard: http://{_HOST}:{bound}/", soft_wrap=True)
        yield


async def _let_time_pass(
    clock: DemoClock, clusters: list[Callable[[datetime], None]], seconds: float | None, stop: asyncio.Event
) -> None:
    """Advance every cluster by the demo's clock until `stop`, and set it when the time is over."""
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


async def _live(console: Console, frame: Callable[[], DemoFrame], stop: asyncio.Event) -> None:
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while not stop.is_set():
            live.update(render_frame(frame(), console.width), refresh=True)
            await asyncio.sleep(1 / _FRAMES_PER_SECOND)


async def _lines(console: Console, frame: Callable[[], DemoFrame], stop: asyncio.Event) -> None:
    """Print one line now and then where there is no terminal to draw on."""
    while not stop.is_set():
        console.print(status_line(frame()), soft_wrap=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), _STATUS_SECONDS)


@asynccontextmanager
async def _empty_store(settings: Settings, directory: Path, console: Console) -> AsyncIterator[Store]:
    """Open the store, empty: the demo's records are made up and must not mix with real ones."""

    def say(line: str) -> None:
        console.print(line, soft_wrap=True)

    async with open_store(settings.database_url, directory, say, settings.database_timeout) as store:
        if settings.database_url is None:
            await store.clear()
        elif await store.usage_progress() or (await store.read_statistics()).keys:
            raise BadInput("database_url: that database holds records already; give the demo an empty one, or none")
        yield store


@contextmanager
def _own_directory(data_dir: Path) -> Iterator[Path]:
    """Return the demo's directory; one demo at a time."""
    directory = data_dir / "demo"
    data_dir.mkdir(parents=True, exist_ok=True)
    with (data_dir / "demo.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise BadInput(f"{directory}: another demo is running there; stop it, or set CRUISE_DATA_DIR") from error
        yield directory


class _Lines(logging.Handler):
    """Warnings of libraries, a line each."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        self._console.print(record.getMessage(), style="yellow", markup=False, soft_wrap=True)


@contextmanager
def logging_to(console: Console) -> Iterator[None]:
    """Send warnings to the demo's console, so that they stand above the live picture and not in it."""

    def print_line(_: object, method: str, event: structlog.typing.EventDict) -> str:
        if method in ("warning", "error", "critical"):
            details = " ".join(f"{key}={value}" for key, value in event.items() if key != "event")
            console.print(f"{event['event']}: {details}", style="yellow", markup=False, soft_wrap=True)
        raise structlog.DropEvent

    lines = _Lines(console)
    lines.addFilter(worth_logging)
    structlog.configure(processors=[print_line])
    logging.getLogger().addHandler(lines)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(lines)
        structlog.reset_defaults()

"""Passes as jobs of one scheduler: never two at once, a late one once, a failed one again at its next turn."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any

import structlog
from apscheduler.executors.asyncio import AsyncIOExecutor
from apscheduler.schedulers.asyncio import AsyncIOScheduler

from cruise.app.clock import wall_clock
from cruise.errors import CruiseError

log = structlog.get_logger()

_PAUSE_SECONDS = 1.0
_GRACE = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class JobRun:
    """How a job's latest run ended; `error` is what the world refused, None where it went through."""

    name: str
    ended_at: datetime
    seconds: float
    error: str | None
    failures_in_a_row: int


class Jobs:
    """Named coroutines at intervals.

    A CruiseError drops the run: it is logged and kept in `latest`, and the next turn is the retry. Anything else is
    a mistake of ours: `until` raises it and the process ends. At the end what runs has `grace` to finish.
    """

    def __init__(self, grace: timedelta = _GRACE) -> None:
        self._grace = grace
        self._scheduler = AsyncIOScheduler(
            executors={"default": AsyncIOExecutor()},
            job_defaults={"max_instances": 1, "coalesce": True},
            timezone=UTC,
        )
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._running: set[asyncio.Task[Any]] = set()
        self._stopping = False
        self.latest: dict[str, JobRun] = {}

    def every(self, interval: timedelta, name: str, job: Callable[[], Awaitable[object]], delay: timedelta) -> None:
        """Run `job` at intervals, first after `delay`; a turn that comes late is still taken, once."""
        first = wall_clock() + delay
        seconds = interval.total_seconds()

        async def run() -> None:
            turn = asyncio.current_task()
            assert turn is not None
            self._running.add(turn)
            turn.add_done_callback(self._running.discard)
            await self._run(name, job)

        self._scheduler.add_job(
            run,
            "interval",
            seconds=seconds,
            id=name,
            name=name,
            next_run_time=first,
            misfire_grace_time=max(1, round(seconds)),
        )

    async def guard(self, name: str, job: Callable[[], Awaitable[object]]) -> None:
        """Run a job that never ends, and start it again after a pause each time the world refuses it something."""
        while True:
            await self._run(name, job)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def until(self, stop: asyncio.Event) -> None:
        """Wait for `stop`. Raises what a job raised unexpectedly."""
        stopped = asyncio.ensure_future(stop.wait())
        try:
            awaited: set[asyncio.Future[Any]] = {stopped, self._broken}
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
        if self._broken.done():
            self._broken.result()

    async def _run(self, name: str, job: Callable[[], Awaitable[object]]) -> None:
        started = time.monotonic()
        error: str | None = None
        try:
            await job()
        except CruiseError as refusal:
            error = str(refusal)
        except asyncio.CancelledError:
            if not self._stopping:
                raise
            return
        except BaseException as mistake:
            # The scheduler's own runner would only log it and go on.
            if not self._broken.done():
                self._broken.set_exception(mistake)
            return
        earlier = self.latest.get(name)
        self._tell(name, error, earlier)
        failures = 0 if error is None else 1 + (earlier.failures_in_a_row if earlier is not None else 0)
        ended = wall_clock()
        self.latest[name] = JobRun(name, ended, time.monotonic() - started, error, failures)

    def _tell(self, name: str, error: str | None, earlier: JobRun | None) -> None:
        """Log what changed: a failure that goes on says nothing new."""
        before = earlier.error if earlier is not None else None
        if error is not None and error != before:
            log.warning("pass dropped", job=name, error=error)
        elif error is None and earlier is not None and before is not None:
            log.warning("pass runs again", job=name, failures=earlier.failures_in_a_row)

    async def __aenter__(self) -> "Jobs":
        self._scheduler.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take no more turns, let what runs come to its end for a while, then cancel it."""
        self._stopping = True
        self._scheduler.remove_all_jobs()
        if self._running:
            await asyncio.wait(self._running, timeout=self._grace.total_seconds())
        self._scheduler.shutdown(wait=False)
        if self._running:
            await asyncio.wait(self._running)

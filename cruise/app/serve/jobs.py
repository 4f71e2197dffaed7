"""The passes as jobs of one scheduler: a job never runs twice at the same time, and a late job is still run.

Intervals and deadlines are measured by the monotonic clock: a step of the wall clock neither delays nor advances a run.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any

import structlog
from apscheduler.executors.asyncio import AsyncIOExecutor
from apscheduler.schedulers.asyncio import AsyncIOScheduler

from cruise.app.process import get_current_time, release_unused_memory
from cruise.errors import CruiseError, UnavailableError
from cruise.interfaces.http.figures import JobFigures

log = structlog.get_logger()

SHUTDOWN_GRACE = timedelta(seconds=10)
_PAUSE_SECONDS = 1.0
# APScheduler uses the wall clock: smaller differences from the monotonic clock are ignored until they add up.
_STEP_SECONDS = 0.1
_FAILURES = 3
_NUMBER = re.compile(r"\d+(\.\d+)?")


class _ClockAdjustingScheduler(AsyncIOScheduler):  # type: ignore[misc]
    """APScheduler whose due times move with steps of the wall clock."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        self._offset = _wall_offset()

    def follow_clock(self) -> None:
        """Move every due time by the step of the wall clock since the last call."""
        offset = _wall_offset()
        step = offset - self._offset
        if abs(step) < _STEP_SECONDS:
            return
        self._offset = offset
        for job in self.get_jobs():
            self.modify_job(job.id, next_run_time=job.next_run_time + timedelta(seconds=step))

    def _process_jobs(self) -> float | None:
        self.follow_clock()
        seconds: float | None = super()._process_jobs()
        return seconds


def _wall_offset() -> float:
    """Return how many seconds the wall clock is ahead of the monotonic clock."""
    return get_current_time().timestamp() - time.monotonic()


@dataclass(slots=True)
class _WatchedJob:
    """The deadline of a job's runs, the longest time without a success, and the time of the last success.

    `running` is the deadline of the present run; `is_overdue`: the last run exceeded it. A process must
    not lead while a job that `leads` is overdue.
    """

    deadline: float
    max_age: float | None
    succeeded_at: float
    leads: bool = True
    running: asyncio.Timeout | None = None
    is_overdue: bool = False


class JobScheduler:
    """Runs named coroutines at intervals within an `async with`; `latest` has the figures of each job.

    `clock` states when a run ended, in the time that the figures are shown with; no interval depends on it.

    A CruiseError ends the run: it is logged once and kept in `latest`, and the next run is the retry. Any other
    exception is a bug: `wait_until` raises it. On exit running jobs are cancelled and get the grace period to end.
    """

    def __init__(
        self,
        grace: timedelta = SHUTDOWN_GRACE,
        latest: dict[str, JobFigures] | None = None,
        clock: Callable[[], datetime] = get_current_time,
    ) -> None:
        self._grace = grace
        self._clock = clock
        self._scheduler = _ClockAdjustingScheduler(
            executors={"default": AsyncIOExecutor()},
            job_defaults={"max_instances": 1, "coalesce": True},
            timezone=UTC,
        )
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._running: set[asyncio.Future[Any]] = set()
        self._watched: dict[str, _WatchedJob] = {}
        self.latest: dict[str, JobFigures] = {} if latest is None else latest

    def set_deadline(self, name: str, interval: timedelta, slack: timedelta, *, vital: bool = False) -> None:
        """Expect each run of a job to end within its interval and `slack`.

        One of three runs of a `vital` job must succeed.
        """
        time_limit = (_FAILURES * interval + slack).total_seconds() if vital else None
        self._watched[name] = _WatchedJob((interval + slack).total_seconds(), time_limit, time.monotonic())

    def limit_run_time(self, name: str, time_limit: timedelta) -> None:
        """Cancel each run of a job that exceeds a time limit, without effect on leadership."""
        self._watched[name] = _WatchedJob(time_limit.total_seconds(), None, time.monotonic(), leads=False)

    def extend_deadline(self, name: str) -> None:
        """Restart the deadline of the present run, because it made progress."""
        watched = self._watched.get(name)
        if watched is not None and watched.running is not None and not watched.running.expired():
            watched.running.reschedule(asyncio.get_running_loop().time() + watched.deadline)

    def get_success_ages(self) -> Mapping[str, float]:
        """Return the seconds since the last success of each job that leadership depends on."""
        now = time.monotonic()
        return {name: now - watched.succeeded_at for name, watched in self._watched.items() if watched.leads}

    def explain_stuck(self) -> str | None:
        """Return which job exceeds its deadline or does not succeed, None if there is none."""
        now = asyncio.get_running_loop().time()
        for name, watched in self._watched.items():
            if not watched.leads:
                continue
            until = None if watched.running is None else watched.running.when()
            if watched.is_overdue or (until is not None and now > until):
                return f"{name}: not finished after {watched.deadline:.0f} s"
            age = time.monotonic() - watched.succeeded_at
            if watched.max_age is not None and age > watched.max_age:
                return f"{name}: no success for {age:.0f} s"
        return None

    def run_every(self, interval: timedelta, name: str, job: Callable[[], Awaitable[object]], delay: timedelta) -> None:
        """Run `job` at intervals, first after `delay`; a late run is not skipped, and several late ones become one."""
        seconds = interval.total_seconds()
        # Apply earlier clock steps first: they must not move the new job.
        self._scheduler.follow_clock()

        async def run() -> None:
            task = asyncio.current_task()
            assert task is not None
            self._track(task)
            # APScheduler would log a cancellation as a failure.
            with suppress(asyncio.CancelledError):
                await self.run_now(name, job)

        self._scheduler.add_job(
            run,
            "interval",
            seconds=seconds,
            id=name,
            name=name,
            next_run_time=get_current_time() + delay,
            misfire_grace_time=max(1, round(seconds)),
        )

    def run_always(self, name: str, job: Callable[[], Awaitable[object]]) -> None:
        """Run a job that does not end, and restart it after a pause each time it fails."""

        async def repeat() -> None:
            while True:
                await self.run_now(name, job)
                await asyncio.sleep(_PAUSE_SECONDS)

        self.start(repeat())

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine once, concurrently with the jobs."""

        async def guarded() -> None:
            try:
                await work
            except asyncio.CancelledError:
                raise
            except BaseException as error:
                self._fail(error)

        self._track(asyncio.ensure_future(guarded()))

    async def run_now(self, name: str, job: Callable[[], Awaitable[object]]) -> None:
        """Run a job once, within its deadline if it has one, and keep its figures."""
        started = time.monotonic()
        error: str | None = None
        try:
            await self._run_within_deadline(name, job)
        except CruiseError as failure:
            error = str(failure)
        except asyncio.CancelledError:
            raise
        except BaseException as unexpected:
            # APScheduler would only log it.
            self._fail(unexpected)
            return
        self._record_run(name, error, time.monotonic() - started)
        if error is not None:
            # Its frames keep the snapshot and the statistics of the run, in cycles with the exception.
            release_unused_memory()

    async def wait_until(self, stop: asyncio.Event) -> None:
        """Wait for `stop`. Raises the unexpected exception of a job."""
        stopped = asyncio.ensure_future(stop.wait())
        try:
            awaited: set[asyncio.Future[Any]] = {stopped, self._failure}
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
        if self._failure.done():
            self._failure.result()

    async def _run_within_deadline(self, name: str, job: Callable[[], Awaitable[object]]) -> None:
        """Run a job once. Raises what it raises, and UnavailableError if it exceeds its deadline."""
        watched = self._watched.get(name)
        if watched is None:
            await job()
            return
        try:
            async with asyncio.timeout(watched.deadline) as watched.running:
                await job()
        except TimeoutError as error:
            if watched.running is None or not watched.running.expired():
                raise
            watched.is_overdue = True
            raise UnavailableError(f"not finished after {watched.deadline:.0f} s: it was cancelled") from error
        finally:
            watched.running = None
        watched.is_overdue, watched.succeeded_at = False, time.monotonic()

    def _track(self, running: asyncio.Future[Any]) -> None:
        self._running.add(running)
        running.add_done_callback(self._running.discard)

    def _fail(self, error: BaseException) -> None:
        if not self._failure.done():
            self._failure.set_exception(error)

    def _record_run(self, name: str, error: str | None, seconds: float) -> None:
        """Keep the result of a run; log only changes, not repeated failures."""
        before = self.latest.get(name, JobFigures(name))
        if error is not None and (before.error is None or _without_numbers(error) != _without_numbers(before.error)):
            log.warning("job failed", job=name, error=error)
        elif error is None and before.error is not None:
            log.warning("job succeeded again", job=name, failures=before.failures_in_a_row)
        ended = self._clock()
        self.latest[name] = replace(
            before,
            runs=before.runs + 1,
            failures=before.failures + (error is not None),
            failures_in_a_row=0 if error is None else before.failures_in_a_row + 1,
            seconds=before.seconds + seconds,
            last_seconds=seconds,
            last_ended_at=ended,
            last_success_at=ended if error is None else before.last_success_at,
            error=error,
        )

    async def __aenter__(self) -> "JobScheduler":
        self._scheduler.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Start no more runs, cancel those in progress, and wait for their end."""
        self._scheduler.remove_all_jobs()
        self._scheduler.shutdown(wait=False)
        for running in self._running:
            running.cancel()
        if self._running:
            _, unfinished = await asyncio.wait(self._running, timeout=self._grace.total_seconds())
            if unfinished:
                log.warning(
                    "jobs did not end in time", count=len(unfinished), grace_seconds=self._grace.total_seconds()
                )


def _without_numbers(error: str) -> str:
    """Return an error without its numbers, to compare errors."""
    return _NUMBER.sub("", error)

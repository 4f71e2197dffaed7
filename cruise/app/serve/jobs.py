"""Passes as jobs of one scheduler: never two at once, a late one once, a failed one again at its next turn.

Every interval and deadline is measured by the monotonic clock: a step of the wall clock neither delays a turn nor
brings one forward.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, timedelta
from types import TracebackType
from typing import Any

import structlog
from apscheduler.executors.asyncio import AsyncIOExecutor
from apscheduler.schedulers.asyncio import AsyncIOScheduler

from cruise.app.process import get_current_time
from cruise.errors import CruiseError, UnavailableError
from cruise.interfaces.http.figures import JobFigures

log = structlog.get_logger()

MISFIRE_GRACE_SECONDS = timedelta(seconds=10)
_PAUSE_SECONDS = 1.0
# APScheduler goes by the wall clock: smaller differences from the monotonic clock are left until they add up.
_STEP_SECONDS = 0.1
_FAILURES = 3
_NUMBER = re.compile(r"\d+(\.\d+)?")


class _ClockAdjustingScheduler(AsyncIOScheduler):  # type: ignore[misc]
    """APScheduler with its due times moved along whenever the wall clock is set."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        self._offset = _wall_offset()

    def follow_clock(self) -> None:
        """Move every due time by as much as the wall clock was set since the last call."""
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
    """A periodic job: how long a turn of it may take, how long it may go without success, and since when it does.

    `running` is the deadline of the turn that runs, `overdue` whether the last one was not over by its own. `leads`
    tells whether a process must not lead while it is overdue.
    """

    deadline: float
    max_age: float | None
    succeeded_at: float
    leads: bool = True
    running: asyncio.Timeout | None = None
    is_overdue: bool = False


class JobScheduler:
    """Named coroutines at intervals, for as long as an `async with` lasts; `latest` has the figures of each.

    A CruiseError drops the run: it is logged once and kept in `latest`, and the next turn is the retry. Any other
    exception is a bug: `until` raises it and the process ends. At the end what runs is cancelled and has `grace` to
    come to an end; what does not is left behind. A `latest` that is given outlives the jobs.
    """

    def __init__(self, grace: timedelta = MISFIRE_GRACE_SECONDS, latest: dict[str, JobFigures] | None = None) -> None:
        self._grace = grace
        self._scheduler = _ClockAdjustingScheduler(
            executors={"default": AsyncIOExecutor()},
            job_defaults={"max_instances": 1, "coalesce": True},
            timezone=UTC,
        )
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._running: set[asyncio.Future[Any]] = set()
        self._watched: dict[str, _WatchedJob] = {}
        self.latest: dict[str, JobFigures] = {} if latest is None else latest

    def supervise(self, name: str, interval: timedelta, slack: timedelta, *, vital: bool = False) -> None:
        """From now on expect each turn of a job to be over after its interval and `slack`.

        A `vital` job is expected to succeed as well, in one of three turns.
        """
        longest = (_FAILURES * interval + slack).total_seconds() if vital else None
        self._watched[name] = _WatchedJob((interval + slack).total_seconds(), longest, time.monotonic())

    def bound(self, name: str, longest: timedelta) -> None:
        """From now on give up each turn of a job that is not over in time; the process leads all the same."""
        self._watched[name] = _WatchedJob(longest.total_seconds(), None, time.monotonic(), leads=False)

    def extend_deadline(self, name: str) -> None:
        """Begin the deadline of the turn that runs anew: it is long, but something came of it."""
        watched = self._watched.get(name)
        if watched is not None and watched.running is not None and not watched.running.expired():
            watched.running.reschedule(asyncio.get_running_loop().time() + watched.deadline)

    def get_success_ages(self) -> Mapping[str, float]:
        """Return how many seconds ago each job that the lead hangs on went through, or was first expected to."""
        now = time.monotonic()
        return {name: now - watched.succeeded_at for name, watched in self._watched.items() if watched.leads}

    def explain_stuck(self) -> str | None:
        """Return which job does not end, or does not go through any more; None while all do."""
        now = asyncio.get_running_loop().time()
        for name, watched in self._watched.items():
            if not watched.leads:
                continue
            until = None if watched.running is None else watched.running.when()
            if watched.is_overdue or (until is not None and now > until):
                return f"{name}: not over after {watched.deadline:.0f} s"
            age = time.monotonic() - watched.succeeded_at
            if watched.max_age is not None and age > watched.max_age:
                return f"{name}: no success for {age:.0f} s"
        return None

    def run_every(self, interval: timedelta, name: str, job: Callable[[], Awaitable[object]], delay: timedelta) -> None:
        """Run `job` at intervals, first after `delay`; a turn that comes late is still taken, once."""
        seconds = interval.total_seconds()
        # What is added must not be moved by an earlier step.
        self._scheduler.follow_clock()

        async def run() -> None:
            turn = asyncio.current_task()
            assert turn is not None
            self._own(turn)
            # The scheduler would log a cancellation as a failure.
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
        """Run a job that never ends, and start it again after a pause each time it fails."""

        async def repeat() -> None:
            while True:
                await self.run_now(name, job)
                await asyncio.sleep(_PAUSE_SECONDS)

        self.start(repeat())

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something once beside the jobs, such as what adds more of them."""

        async def guarded() -> None:
            try:
                await work
            except asyncio.CancelledError:
                raise
            except BaseException as mistake:
                self._break(mistake)

        self._own(asyncio.ensure_future(guarded()))

    async def run_now(self, name: str, job: Callable[[], Awaitable[object]]) -> None:
        """Run a job once, within its deadline if it is watched, and keep its figures."""
        started = time.monotonic()
        error: str | None = None
        try:
            await self._in_time(name, job)
        except CruiseError as refusal:
            error = str(refusal)
        except asyncio.CancelledError:
            raise
        except BaseException as mistake:
            # The scheduler would only log it and go on.
            self._break(mistake)
            return
        self._note(name, error, time.monotonic() - started)

    async def wait_until(self, stop: asyncio.Event) -> None:
        """Wait for `stop`. Raises what a job raised unexpectedly."""
        stopped = asyncio.ensure_future(stop.wait())
        try:
            awaited: set[asyncio.Future[Any]] = {stopped, self._broken}
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
        if self._broken.done():
            self._broken.result()

    async def _in_time(self, name: str, job: Callable[[], Awaitable[object]]) -> None:
        """Run a job once. Raises what it raises, and Unavailable where it is not over by its deadline."""
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
            raise UnavailableError(f"not over after {watched.deadline:.0f} s: it was given up") from error
        finally:
            watched.running = None
        watched.is_overdue, watched.succeeded_at = False, time.monotonic()

    def _own(self, running: asyncio.Future[Any]) -> None:
        self._running.add(running)
        running.add_done_callback(self._running.discard)

    def _break(self, mistake: BaseException) -> None:
        if not self._broken.done():
            self._broken.set_exception(mistake)

    def _note(self, name: str, error: str | None, seconds: float) -> None:
        """Keep how a run ended, and log what changed: a failure that goes on is no news."""
        earlier = self.latest.get(name, JobFigures(name))
        if error is not None and (earlier.error is None or _gist(error) != _gist(earlier.error)):
            log.warning("pass dropped", job=name, error=error)
        elif error is None and earlier.error is not None:
            log.warning("pass runs again", job=name, failures=earlier.failures_in_a_row)
        ended = get_current_time()
        self.latest[name] = replace(
            earlier,
            runs=earlier.runs + 1,
            failures=earlier.failures + (error is not None),
            failures_in_a_row=0 if error is None else earlier.failures_in_a_row + 1,
            seconds=earlier.seconds + seconds,
            last_seconds=seconds,
            last_ended_at=ended,
            last_success_at=ended if error is None else earlier.last_success_at,
            error=error,
        )

    async def __aenter__(self) -> "JobScheduler":
        self._scheduler.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take no more turns, cancel what runs, and wait for its end."""
        self._scheduler.remove_all_jobs()
        self._scheduler.shutdown(wait=False)
        for running in self._running:
            running.cancel()
        if self._running:
            _, left_behind = await asyncio.wait(self._running, timeout=self._grace.total_seconds())
            if left_behind:
                log.warning("passes left behind", count=len(left_behind), grace_seconds=self._grace.total_seconds())


def _gist(error: str) -> str:
    """Return an error without its numbers: with other numbers it is the same error."""
    return _NUMBER.sub("", error)

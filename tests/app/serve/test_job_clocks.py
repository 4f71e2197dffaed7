"""Jobs run by the monotonic clock: wall-clock steps, deadlines, and reports about stuck passes."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta, tzinfo

import pytest
from apscheduler.executors import base as executors
from apscheduler.schedulers import base as schedulers

from cruise.app.serve import jobs as under_test
from cruise.app.serve.jobs import JobScheduler
from cruise.errors import UnavailableError
from tests.event_loop_time import advance_loop_time

SOON, HOUR, NOW = timedelta(milliseconds=20), timedelta(hours=1), timedelta(0)


class Steps(datetime):
    """The wall clock of a host that a test sets."""

    ahead = timedelta(0)

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return datetime.now(tz or UTC) + cls.ahead  # noqa: TID251 - the clock that is set


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> type[Steps]:
    monkeypatch.setattr(Steps, "ahead", timedelta(0))
    for place in (schedulers, executors):
        monkeypatch.setattr(place, "datetime", Steps)
    monkeypatch.setattr(under_test, "get_current_time", lambda: Steps.now(UTC))
    return Steps


class Counted:
    """A job that counts its runs."""

    def __init__(self) -> None:
        self.runs = 0

    async def __call__(self) -> None:
        self.runs += 1

    async def runs_on(self) -> None:
        """Wait for three more runs."""
        enough = self.runs + 3
        async with asyncio.timeout(60):
            while self.runs < enough:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("steps", [[-HOUR], [HOUR], [HOUR, -HOUR], [-HOUR, HOUR]])
async def test_a_step_of_the_clock_delays_no_turn(clock: type[Steps], steps: list[timedelta]) -> None:
    job = Counted()
    async with JobScheduler() as jobs:
        jobs.run_every(SOON, "node pass", job, delay=NOW)
        await job.runs_on()
        for step in steps:
            clock.ahead += step
            await job.runs_on()


async def test_a_step_of_the_clock_brings_no_turn_forward(clock: type[Steps]) -> None:
    job, other = Counted(), Counted()
    async with JobScheduler() as jobs:
        jobs.run_every(HOUR, "prune", job, delay=HOUR)
        jobs.run_every(SOON, "node pass", other, delay=NOW)
        for step in (2 * HOUR, -4 * HOUR):
            clock.ahead += step
            await other.runs_on()
    assert job.runs == 0


async def test_a_job_that_begins_right_after_a_step_is_not_moved(clock: type[Steps]) -> None:
    job = Counted()
    async with JobScheduler() as jobs:
        clock.ahead += HOUR
        jobs.run_every(SOON, "node pass", job, delay=NOW)
        await job.runs_on()


# ---- deadlines ----


async def hangs() -> None:
    await asyncio.sleep(3600)


async def ended(jobs: JobScheduler, job: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(60):
        await jobs.run_now("node pass", job)


async def test_a_hanging_pass_is_cancelled_at_its_deadline_and_reported_until_one_ends() -> None:
    async with JobScheduler() as jobs:
        jobs.set_deadline("node pass", SOON, SOON)
        assert jobs.explain_stuck() is None
        await ended(jobs, hangs)
        assert jobs.latest["node pass"].error == "not finished after 0 s: it was cancelled"
        assert jobs.explain_stuck() == "node pass: not finished after 0 s"
        await ended(jobs, Counted())
        assert jobs.explain_stuck() is None
        assert jobs.latest["node pass"].error is None


async def test_a_pass_that_does_not_end_when_cancelled_is_reported() -> None:
    release = asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    async with JobScheduler() as jobs:
        jobs.set_deadline("node pass", SOON, SOON)
        turn = asyncio.ensure_future(ended(jobs, stubborn))
        async with asyncio.timeout(60):
            while jobs.explain_stuck() is None:
                await asyncio.sleep(0.01)
        assert not turn.done()
        release.set()
        await asyncio.gather(turn, return_exceptions=True)


async def test_progress_begins_the_deadline_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    async def long() -> None:
        for _ in range(6):
            advance_loop_time(monkeypatch, 1.5 * HOUR.total_seconds())
            jobs.extend_deadline("node pass")
            # A deadline that has passed cancels the job here.
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    async with JobScheduler() as jobs:
        jobs.set_deadline("node pass", HOUR, HOUR)
        await jobs.run_now("node pass", long)
        assert jobs.latest["node pass"].error is None


async def test_a_vital_pass_that_keeps_failing_is_reported_and_its_age_grows() -> None:
    async def fails() -> None:
        raise UnavailableError("Postgres is away")

    async with JobScheduler() as jobs:
        jobs.set_deadline("node pass", SOON, SOON, vital=True)
        jobs.set_deadline("node load", SOON, SOON)
        for _ in range(10):
            await ended(jobs, fails)
            await asyncio.sleep(0.01)
        why = jobs.explain_stuck()
        assert why is not None
        assert why.startswith("node pass: no success for")
        assert jobs.get_success_ages()["node pass"] >= 0.08
        await ended(jobs, Counted())
        assert jobs.explain_stuck() is None
        assert jobs.get_success_ages()["node pass"] < jobs.get_success_ages()["node load"]


async def test_a_hanging_bounded_pass_is_cancelled_and_does_not_cost_the_lease() -> None:
    async with JobScheduler() as jobs:
        jobs.limit_run_time("node pass", SOON)
        await ended(jobs, hangs)
        assert jobs.latest["node pass"].error == "not finished after 0 s: it was cancelled"
        assert jobs.explain_stuck() is None
        assert jobs.get_success_ages() == {}

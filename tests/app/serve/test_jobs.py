"""Jobs: external failures are logged and retried, programming errors end the process."""

import asyncio
import gc
import weakref
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from cruise.app.serve.jobs import JobScheduler
from cruise.errors import UnavailableError
from cruise.interfaces.http.figures import JobFigures

SOON = timedelta(milliseconds=10)
NOW = timedelta(0)


async def until(condition: asyncio.Event) -> None:
    await asyncio.wait_for(condition.wait(), 60)


async def test_a_refusal_drops_the_run_and_the_next_turn_tries_again() -> None:
    through = asyncio.Event()
    runs: list[int] = []

    async def job() -> None:
        runs.append(len(runs))
        if len(runs) < 3:
            raise UnavailableError("Postgres is away")
        through.set()

    async with JobScheduler() as jobs:
        jobs.run_every(SOON, "refresh", job, delay=NOW)
        await until(through)
        await asyncio.sleep(0)
        assert jobs.latest["refresh"].error is None
        assert jobs.latest["refresh"].failures_in_a_row == 0
    assert runs[:3] == [0, 1, 2]


async def test_a_failure_is_recorded_with_its_count() -> None:
    twice = asyncio.Event()
    runs: list[int] = []

    async def job() -> None:
        runs.append(1)
        if len(runs) > 2:
            twice.set()
            await asyncio.sleep(60)
        raise UnavailableError("Prometheus is away")

    async with JobScheduler(grace=SOON) as jobs:
        jobs.run_every(SOON, "refresh", job, delay=NOW)
        await until(twice)
        assert jobs.latest["refresh"].error == "Prometheus is away"
        assert jobs.latest["refresh"].failures_in_a_row == 2


async def test_nothing_keeps_what_a_failed_run_has_read() -> None:
    class Snapshot:
        pass

    read: list[weakref.ref[Snapshot]] = []

    async def job() -> None:
        snapshot = Snapshot()
        read.append(weakref.ref(snapshot))
        failure = UnavailableError("the database is away")
        # As where several tasks fail: a frame of the exception's traceback refers to the exception.
        raise failure

    gc.disable()
    try:
        async with JobScheduler() as jobs:
            await jobs.run_now("node pass", job)
            assert read[0]() is None
    finally:
        gc.enable()


async def test_a_job_never_runs_concurrently_with_itself() -> None:
    done = asyncio.Event()
    inside = 0
    most = 0
    runs = 0

    async def job() -> None:
        nonlocal inside, most, runs
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0.05)
        inside -= 1
        runs += 1
        if runs == 3:
            done.set()

    async with JobScheduler() as jobs:
        jobs.run_every(SOON, "slow", job, delay=NOW)
        await until(done)
    assert most == 1


async def test_a_mistake_ends_the_run() -> None:
    async def job() -> None:
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError):
        async with JobScheduler() as jobs:
            jobs.run_every(SOON, "broken", job, delay=NOW)
            await asyncio.wait_for(jobs.wait_until(asyncio.Event()), 60)


async def test_stop_ends_the_wait() -> None:
    stop = asyncio.Event()
    async with JobScheduler() as jobs:
        stop.set()
        await asyncio.wait_for(jobs.wait_until(stop), 60)
        assert jobs.latest == {}


async def test_what_runs_at_the_end_is_cancelled_and_awaited() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def job() -> None:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)
            ended.set()

    async with JobScheduler() as jobs:
        jobs.run_every(timedelta(hours=1), "writing", job, delay=NOW)
        await until(began)
    assert ended.is_set()
    assert jobs.latest == {}


async def test_what_does_not_end_within_the_grace_is_left_behind() -> None:
    began, release, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def job() -> None:
        try:
            began.set()
            await asyncio.sleep(60)
        finally:
            await release.wait()
            ended.set()

    async with JobScheduler(grace=SOON) as jobs:
        jobs.run_every(timedelta(hours=1), "stuck", job, delay=NOW)
        await until(began)
    assert not ended.is_set()
    release.set()
    await until(ended)


async def test_a_cancelled_owner_takes_its_jobs_along() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def job() -> None:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    async def owner() -> None:
        async with JobScheduler() as jobs:
            jobs.run_always("reactor", job)
            await jobs.wait_until(asyncio.Event())

    task = asyncio.ensure_future(owner())
    await until(began)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_a_lasting_failure_is_logged_once_and_so_is_its_end() -> None:
    through = asyncio.Event()
    runs: list[int] = []

    async def job() -> None:
        runs.append(1)
        if len(runs) < 5:
            raise UnavailableError(f"the view of the cluster is {60 + len(runs)} s old")
        through.set()

    with capture_logs() as lines:
        async with JobScheduler() as jobs:
            jobs.run_every(SOON, "refresh", job, delay=NOW)
            await until(through)
            await asyncio.sleep(0.05)
    told = [(line["event"], line.get("failures")) for line in lines]
    assert told == [("job failed", None), ("job succeeded again", 4)]


async def test_figures_are_kept_after_their_jobs_end() -> None:
    book: dict[str, JobFigures] = {}
    through = asyncio.Event()

    async def job() -> None:
        through.set()

    async with JobScheduler(latest=book) as jobs:
        jobs.run_every(timedelta(hours=1), "prune", job, delay=NOW)
        await until(through)
        await asyncio.sleep(0.01)
    figures = book["prune"]
    assert (figures.runs, figures.failures, figures.error) == (1, 0, None)
    assert figures.last_success_at == figures.last_ended_at


async def test_a_mistake_in_what_begins_ends_the_run() -> None:
    async def broken() -> None:
        raise KeyError("a bug")

    with pytest.raises(KeyError):
        async with JobScheduler() as jobs:
            jobs.start(broken())
            await asyncio.wait_for(jobs.wait_until(asyncio.Event()), 60)

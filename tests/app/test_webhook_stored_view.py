"""The webhook's view of the database: polled in the background, kept while the database is down."""

import asyncio
import gc
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import pytest

from cruise.app.webhook_stored_view import EMPTY_STORE_STATE, StorePoller
from cruise.domain.packing_plan import PackingPlan, PackingProposal, PackingSizes, PlacementHint, PlanPhase
from cruise.domain.usage import OomRecord
from cruise.errors import BadInputError, UnavailableError
from cruise.packer.answer import PackingStatus
from cruise.simulation.store import InMemoryStore
from tests.builders import make_ref, make_statistic, make_table

STEERING = PlacementHint("plan", "uid-old", "shop", "ReplicaSet", "web-1", None, "n1", datetime(2026, 1, 1, tzinfo=UTC))
PLAN = PackingPlan(
    "plan",
    datetime(2026, 1, 1, tzinfo=UTC),
    PackingProposal(PackingStatus.OPTIMAL, PackingSizes.RIGHTSIZED, (), (), ()),
    0.1,
    PlanPhase.IN_PROGRESS,
    datetime(2026, 1, 1, tzinfo=UTC),
    expected=(STEERING,),
)
T = TypeVar("T")
NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


class SlowStore(InMemoryStore):
    """A memory store that may be away, and takes its time."""

    away = False
    reads = 0
    thread: threading.Thread | None = None

    async def read_workload_statistics(self):
        self.reads += 1
        self.thread = threading.current_thread()
        if self.away:
            raise UnavailableError("the database is away")
        return await super().read_workload_statistics()

    async def is_paused(self):
        if self.away:
            raise UnavailableError("the database is away")
        return await super().is_paused()


class Setting:
    """A follower of a store, with a clock that the test turns."""

    def __init__(self) -> None:
        self.store = SlowStore()
        self.now = NOW
        self.closed = False
        self.follower = StorePoller(self._opened, lambda: self.now, pause_interval=timedelta(milliseconds=10))

    @asynccontextmanager
    async def _opened(self):
        try:
            yield self.store
        finally:
            self.closed = True

    def write(self, **values) -> None:
        asyncio.run(self.store.write_statistics(make_table(make_statistic("", **values))))


def until(check: Callable[[], T | None]) -> T:
    deadline = time.monotonic() + 60
    while not (found := check()):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return found


@pytest.fixture
def setting():
    return Setting()


def test_statistics_are_read_in_another_thread_and_again_after_the_interval(setting):
    setting.write(cpu_peak=100)
    assert setting.follower.state is EMPTY_STORE_STATE
    with setting.follower as follower:
        first = until(lambda: follower.state if follower.state.read_at else None)
        assert first.statistics.cpu_peak_millicores.tolist() == [100]
        assert setting.store.thread is not threading.current_thread()
        setting.write(cpu_peak=200)
        time.sleep(0.1)
        assert follower.state is first
        setting.now += timedelta(seconds=30)
        second = until(lambda: follower.state if follower.state is not first else None)
        assert second.statistics.cpu_peak_millicores.tolist() == [200]
        assert follower.problem is None
    assert setting.closed


def test_what_a_kill_taught_is_read_once_it_was_answered(setting):
    setting.write(oom_memory_mib=0)
    with setting.follower as follower:
        first = until(lambda: follower.state if follower.state.read_at else None)
        # As the reactor does it: the lesson, then the kill.
        setting.write(oom_memory_mib=512)
        killed = OomRecord("shop", "web-1", "u", "Deployment/web", "app", "", "n1", NOW, 1 << 29, None, None, 1 << 29)
        asyncio.run(setting.store.record_oom_kill(killed))
        second = until(lambda: follower.state if follower.state is not first else None)
        assert second.statistics.oom_memory_bytes.tolist() == [512 << 20]
        time.sleep(0.1)
        assert setting.store.reads == 2


def test_equal_values_remain_the_same_object(setting):
    setting.write()
    with setting.follower as follower:
        first = until(lambda: follower.state if follower.state.read_at else None)
        setting.now += timedelta(seconds=30)
        second = until(lambda: follower.state if follower.state is not first else None)
        assert second.read_at == setting.now
        assert second.statistics is first.statistics
        assert second.paused_workloads is first.paused_workloads


def test_a_pause_is_seen_between_readings(setting):
    with setting.follower as follower:
        first = until(lambda: follower.state if follower.state.read_at else None)
        asyncio.run(setting.store.set_paused(True))
        until(lambda: follower.state.paused)
        assert follower.state.statistics is first.statistics
        asyncio.run(setting.store.set_paused(False))
        until(lambda: not follower.state.paused)
        assert setting.store.reads == 1


def test_an_older_database_is_known_at_once_and_until_serve_has_read_again_what_it_lost(setting):
    setting.write(cpu_peak=100)
    with setting.follower as follower:
        until(lambda: follower.state.read_at)
        assert not follower.state.history_incomplete
        # A backup replaces the database, and nothing in it shows that.
        setting.store.expect_epoch(7)
        until(lambda: follower.state.history_incomplete)
        # The leader, which knew the later state, puts the loss on record, and later that it has read all again.
        asyncio.run(setting.store.record_lost_usage(1))
        time.sleep(0.1)
        assert follower.state.history_incomplete
        asyncio.run(setting.store.record_lost_usage(1, regained=True))
        until(lambda: not follower.state.history_incomplete)
        assert follower.problem is None


def test_an_older_database_that_no_serve_knows_to_be_older_counts_for_an_hour(setting):
    with setting.follower as follower:
        until(lambda: follower.state.read_at)
        setting.store.expect_epoch(7)
        until(lambda: follower.state.history_incomplete)
        setting.now += timedelta(minutes=59)
        time.sleep(0.1)
        assert follower.state.history_incomplete
        setting.now += timedelta(minutes=1)
        until(lambda: not follower.state.history_incomplete)


def test_paused_workloads_are_read(setting):
    asyncio.run(setting.store.write_workload_pause("shop", make_ref("Deployment/web"), setting.now))
    with setting.follower as follower:
        view = until(lambda: follower.state if follower.state.read_at else None)
        assert view.paused_workloads == {("shop", make_ref("Deployment/web")): setting.now}


def test_while_the_database_is_unavailable_known_values_are_kept(setting):
    setting.write()
    with setting.follower as follower:
        first = until(lambda: follower.state if follower.state.read_at else None)
        setting.store.away = True
        setting.now += timedelta(minutes=10)
        assert until(lambda: follower.problem) == "the database is away"
        assert follower.state is first
        setting.store.away = False
        until(lambda: follower.state is not first)
        assert follower.problem is None


def test_what_waiting_does_not_heal_is_raised_by_the_check(setting):
    @asynccontextmanager
    async def refuse():
        raise BadInputError("database_url: no such database")
        yield

    follower = StorePoller(refuse, lambda: NOW)
    with follower:

        def failed() -> bool:
            try:
                follower.check()
            except BadInputError as error:
                return str(error) == "database_url: no such database"
            return False

        assert until(failed)


def test_one_that_is_never_followed_leaves_nothing_open(setting):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ResourceWarning)
        StorePoller(setting.store, lambda: NOW)
        gc.collect()
    assert [str(one.message) for one in told if "event loop" in str(one.message)] == []


def test_an_end_while_it_is_still_opening_does_not_hang():
    @asynccontextmanager
    async def wait():
        await asyncio.Event().wait()
        yield

    began = time.monotonic()
    with StorePoller(wait, lambda: NOW) as follower:
        assert follower.problem == "the database is not open yet"
    assert time.monotonic() - began < 4


def test_placement_hints_are_known_after_one_read_and_stay_one_object_while_unchanged(setting):
    with setting.follower as follower:
        until(lambda: follower.problem is None)
        assert list(follower.placement_hints) == []
        asyncio.run(setting.store.write_packing_plan(PLAN))
        known = until(lambda: follower.placement_hints)
        assert [one.replaces for one in known] == ["uid-old"]
        time.sleep(0.05)
        assert follower.placement_hints is known
        asyncio.run(setting.store.write_packing_plan(replace(PLAN, phase=PlanPhase.DROPPED)))
        until(lambda: not follower.placement_hints)

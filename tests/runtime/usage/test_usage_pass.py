"""The usage pass with a source that records its queries."""

import asyncio
from collections import Counter
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from cruise.decisions.admission.admission import MutatePod, decide_admission
from cruise.decisions.admission.node_index import NodeIndex
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.usage.revisions import update_revisions
from cruise.domain.actions import ContainerTarget, OriginalSizes, ReasonCode, SkippedPod
from cruise.domain.annotations import ORIGINAL_RESOURCES
from cruise.domain.cluster import ContainerRole
from cruise.domain.original_resources import NO_REVISIONS, WorkloadContainer
from cruise.domain.policy import SEED_RULES, Mode, Policy
from cruise.domain.resources import MEBIBYTE, Resources
from cruise.domain.usage import ContainerKey, OomRecord, PeakKey, SampleRejectionReason, Statistic, StatisticKey
from cruise.errors import BadInputError, DatabaseRestoredError, ThrottledError, UnavailableError, UnknownUsageError
from cruise.runtime.usage.usage_pass import read_statistics_for_pods, run_usage_pass
from cruise.runtime.usage.usage_reader import UsageReadingProgress, UsageReadingSettings, align_gaps, join_gaps
from cruise.runtime.usage.usage_state import UsageState
from cruise.simulation.store import InMemoryStore
from tests.builders import (
    NOW,
    NOW_SECONDS,
    make_container,
    make_node,
    make_pod,
    make_snapshot,
    make_statistic_for,
    make_table,
)
from tests.recorded_usage import Ask, RecordedUsage
from tests.shown_cluster import ReadOnlyCluster

HOUR = 3600
AT = 1_767_268_200  # 11:50
HORIZON = (AT // HOUR - 168) * HOUR
SETTLE = 30
WEB = [ContainerKey("shop", f"web-{number}", "app") for number in (1, 2)]
DB = [ContainerKey("data", "db-0", "app")]
READING = UsageReadingSettings(scrape_delay_seconds=SETTLE)
POLICY = Policy()
GONE = ContainerKey("shop", "web-7d9f8b6c5d-x2x4z", "app")


def constant(value):
    return lambda key, times: np.full(len(times), float(value))


def source(**more):
    return RecordedUsage(
        **{
            "containers": {"a": WEB, "b": DB},
            "cpu": lambda key, times: np.full(len(times), 110.0 if key == WEB[1] else 100.0),
            "memory": constant(1e6),
            **more,
        }
    )


def cluster():
    return ReadOnlyCluster(
        make_snapshot(
            pods=[
                make_pod("web-1", workload="Deployment/web"),
                make_pod("web-2", workload="Deployment/web"),
                make_pod("db-0", namespace="data", workload="StatefulSet/db", identity="0"),
            ]
        )
    )


class Cruise:
    """One process: a state of its own over a store that outlives it."""

    def __init__(self, usage, store=None, shown=None, reading=READING, policy=POLICY):
        self.usage, self.store = usage, store or InMemoryStore()
        self.cluster, self.reading, self.policy = shown or cluster(), reading, policy
        self.state = UsageState()
        self.told: list[UsageReadingProgress] = []

    async def run(self, at=AT, **more):
        now = datetime.fromtimestamp(at + SETTLE, UTC)
        return await run_usage_pass(
            self.cluster, self.usage, self.store, self.state, self.policy, now, self.reading, self.told.append, **more
        )


def of_pod(table, key):
    return table.get_row(table.row_of_container[key])


def assert_asked_once(usage, until=AT):
    asked = Counter(usage.times_asked())
    assert set(asked.values()) == {1}
    grid = range(HORIZON + 60, until + 1, 60)
    assert set(asked) == {(partition, at) for partition in usage.containers for at in grid}


async def test_the_first_pass_reads_the_whole_history_oldest_first_and_the_next_what_is_new():
    cruise = Cruise(source())
    await cruise.run()
    for partition in ("a", "b"):
        starts = [ask.start for ask in cruise.usage.asked if ask.partition == partition]
        assert starts == sorted(starts)
        assert starts[0] == HORIZON
    before = len(cruise.usage.asked)
    table = await cruise.run(AT + 300)
    assert cruise.usage.asked[before:] == [Ask("a", AT, AT + 300, AT), Ask("b", AT, AT + 300, AT)]
    assert_asked_once(cruise.usage, AT + 300)
    assert of_pod(table, WEB[0]).updated_at == AT + 300


async def test_only_minutes_that_are_over_for_long_enough_are_read():
    cruise = Cruise(source())
    now = datetime.fromtimestamp(AT + SETTLE - 1, UTC)
    await run_usage_pass(cruise.cluster, cruise.usage, cruise.store, cruise.state, POLICY, now, READING)
    assert max(ask.end for ask in cruise.usage.asked) == AT - 60


async def test_chunks_are_bounded_by_their_samples():
    cruise = Cruise(source(), reading=replace(READING, samples_per_chunk=3 * 60))
    await cruise.run()
    assert {ask.end - ask.start for ask in cruise.usage.asked} == {HOUR, 50 * 60}


@pytest.mark.parametrize(("containers", "seconds"), [(1, 86_400), (1_000, 16 * HOUR), (25_000, 40 * 60), (10**6, 900)])
def test_a_chunk_is_a_day_at_most_and_a_quarter_of_an_hour_at_least(containers, seconds):
    assert READING.get_chunk_seconds(containers) == seconds


async def test_every_chunk_continues_the_counters_of_the_one_before():
    cruise = Cruise(source(), reading=replace(READING, longest_chunk_seconds=6 * HOUR))
    await cruise.run()
    for partition in ("a", "b"):
        asked = [ask for ask in cruise.usage.asked if ask.partition == partition]
        assert [ask.continued_from for ask in asked] == [None, *(ask.end for ask in asked[:-1])]


async def test_progress_is_in_container_hours():
    cruise = Cruise(source(), reading=replace(READING, longest_chunk_seconds=24 * HOUR))
    await cruise.run()
    total = 3 * (AT - HORIZON) / HOUR
    assert all(one.total_container_hours == pytest.approx(total) for one in cruise.told)
    done = [one.done_container_hours for one in cruise.told]
    assert done == sorted(done)
    assert done[-1] == pytest.approx(total)


async def test_after_a_stop_in_mid_fill_nothing_is_read_twice():
    usage = source()
    reading = replace(READING, longest_chunk_seconds=6 * HOUR)
    first = Cruise(usage, reading=reading)
    reached = asyncio.Event()
    plain_read = usage.read

    async def slow_read(*arguments):
        answer = await plain_read(*arguments)
        if len(usage.asked) >= 11:
            reached.set()
        await asyncio.sleep(0)
        return answer

    usage.read = slow_read
    running = asyncio.ensure_future(first.run())
    await reached.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert len(usage.asked) < 40
    table = await Cruise(usage, first.store, reading=reading).run()
    assert_asked_once(usage)
    undisturbed = Cruise(source(), reading=reading)
    expected = await undisturbed.run()
    assert [table.get_row(row) for row in range(len(table.keys))] == [
        expected.get_row(row) for row in range(len(expected.keys))
    ]


async def test_a_cancelled_reader_does_not_wait_for_a_source_that_does_not_answer():
    usage = source()
    cruise = Cruise(usage, reading=replace(READING, finish_seconds=0.01))
    asked, answer = asyncio.Event(), asyncio.Event()

    async def silent_read(*arguments):
        asked.set()
        await answer.wait()

    usage.read = silent_read
    running = asyncio.ensure_future(cruise.run())
    await asked.wait()
    running.cancel()
    async with asyncio.timeout(60):
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_a_process_that_takes_over_has_the_windows_and_peaks_of_the_one_before():
    usage = source(cpu=lambda key, times: 100.0 + (times // 60) % 50, memory=lambda key, times: 1e6 + times % 7919)
    first = Cruise(usage)
    await first.run()
    expected = await first.run(AT + 300)
    second = Cruise(usage, first.store)
    table = await second.run(AT + 300)
    assert_asked_once(usage, AT + 300)
    for key in (*WEB, *DB):
        assert of_pod(table, key) == of_pod(expected, key)


async def test_statistics_wait_until_every_partition_is_read():
    def refuse(ask):
        return BadInputError("too many samples") if ask.partition == "b" and ask.start == HORIZON else None

    cruise = Cruise(source(refuse=refuse), reading=replace(READING, longest_chunk_seconds=24 * HOUR))
    assert list((await cruise.run()).keys) == []
    assert [(one.partition, one.start, one.reason) for one in cruise.state.failures] == [
        ("b", HORIZON, "too many samples")
    ]
    table = await cruise.run()
    assert set(table.row_of_container) == {*WEB, *DB}


async def test_a_failed_chunk_is_tried_once_more_and_loses_its_own_containers_for_one_pass():
    refused: list[Ask] = []

    def refuse(ask):
        if ask.partition == "b" and ask.end == AT + 300 and not refused:
            refused.append(ask)
            return UnavailableError("timed out")
        return None

    cruise = Cruise(source(refuse=refuse))
    await cruise.run()
    table = await cruise.run(AT + 300)
    assert of_pod(table, WEB[0]).updated_at == AT + 300
    assert of_pod(table, DB[0]).updated_at == AT
    assert (await cruise.store.read_usage_progress())["b"].gaps == ((AT, AT + 300, 1),)
    before = len(cruise.usage.asked)
    table = await cruise.run(AT + 600)
    assert [ask for ask in cruise.usage.asked[before:] if ask.partition == "b"] == [
        Ask("b", AT, AT + 300, AT),  # the counters go on where they stopped
        Ask("b", AT + 300, AT + 600, AT + 300),
    ]
    assert (await cruise.store.read_usage_progress())["b"].gaps == ()
    assert of_pod(table, DB[0]).updated_at == AT + 600


async def test_a_chunk_that_fails_twice_is_left_out():
    def refuse(ask):
        return BadInputError("unreadable") if ask.partition == "b" and ask.start == AT else None

    cruise = Cruise(source(refuse=refuse))
    for at in (AT, AT + 300, AT + 600, AT + 900):
        table = await cruise.run(at)
    assert [(ask.start, ask.end) for ask in cruise.usage.asked if ask.partition == "b" and ask.start >= AT] == [
        (AT, AT + 300),
        (AT, AT + 300),
        (AT + 300, AT + 600),
        (AT + 600, AT + 900),
    ]
    assert (await cruise.store.read_usage_progress())["b"].gaps == ((AT, AT + 300, 2),)
    assert cruise.state.gap_seconds == 300
    assert of_pod(table, DB[0]).updated_at == AT + 900


async def test_what_failed_twice_is_read_again_every_hour_so_that_its_peaks_are_not_lost():
    unreadable = [True]

    def refuse(ask):
        is_lost = unreadable[0] and ask.partition == "b" and AT <= ask.start < AT + 1800
        return UnavailableError("timed out") if is_lost else None

    def with_peak(key, times):
        return np.where((times > AT) & (times <= AT + 60), 900.0, 100.0)

    cruise = Cruise(source(cpu=with_peak, refuse=refuse), reading=replace(READING, samples_per_chunk=30))
    for minutes in range(0, 65, 5):
        table = await cruise.run(AT + 60 * minutes)
    assert of_pod(table, DB[0]).cpu_7d_max_millicores < 900
    assert (await cruise.store.read_usage_progress())["b"].gaps == ((AT, AT + 1800, 2),)
    assert cruise.state.gap_seconds == 1800
    # Once an hour, in chunks, no further than to the first that fails, and without a failed pass.
    before = len(cruise.usage.asked)
    for minutes in (70, 75):
        await cruise.run(AT + 60 * minutes)
        assert cruise.state.failures == []
    again = [ask for ask in cruise.usage.asked[before:] if ask.start < AT + 60 * 60]
    assert again == [Ask("b", AT, AT + 900, None)]
    unreadable[0] = False
    assert of_pod(await cruise.run(AT + 80 * 60), DB[0]).cpu_7d_max_millicores < 900
    table = await cruise.run(AT + 130 * 60)
    assert of_pod(table, DB[0]).cpu_7d_max_millicores == 900
    assert (await cruise.store.read_usage_progress())["b"].gaps == ()
    assert cruise.state.gap_seconds == 0


async def test_a_new_leader_reads_at_once_what_the_former_gave_up():
    unreadable = [True]

    def refuse(ask):
        return UnavailableError("timed out") if unreadable[0] and ask.partition == "b" and ask.start == AT else None

    usage = source(refuse=refuse)
    former = Cruise(usage)
    for at in (AT, AT + 300, AT + 600, AT + 900):
        await former.run(at)
    unreadable[0] = False
    later = Cruise(usage, former.store)
    await later.run(AT + 960)
    assert (await later.store.read_usage_progress())["b"].gaps == ()


async def test_where_nothing_can_be_read_nothing_changes_and_the_reason_is_raised():
    down = [False]
    cruise = Cruise(source(refuse=lambda ask: ThrottledError("slow down", 5.0) if down[0] else None))
    await cruise.run()
    progress = await cruise.store.read_usage_progress()
    down[0] = True
    for at in (AT + 300, AT + 600, AT + 900):
        with pytest.raises(ThrottledError, match="slow down"):
            await cruise.run(at)
    assert await cruise.store.read_usage_progress() == progress
    down[0] = False
    cruise.usage.asked.clear()
    table = await cruise.run(AT + 1200)
    assert [(ask.start, ask.end) for ask in cruise.usage.asked] == [(AT, AT + 1200)] * 2
    assert of_pod(table, WEB[0]).updated_at == AT + 1200


class LosingStore(InMemoryStore):
    """A store that is lost after some records."""

    def __init__(self, records):
        super().__init__()
        self.left = records

    async def record_usage(self, advance):
        if not self.left:
            raise UnavailableError("the database is gone")
        self.left -= 1
        await super().record_usage(advance)


async def test_a_store_that_is_lost_ends_the_pass_with_nothing_half_taken_in():
    store = LosingStore(3)
    cruise = Cruise(source(), store, reading=replace(READING, longest_chunk_seconds=24 * HOUR))
    with pytest.raises(UnavailableError, match="the database is gone"):
        await cruise.run()
    assert cruise.state.progress == await store.read_usage_progress()
    assert list((await store.read_statistics()).keys) == []
    store.left = 1000
    assert set((await cruise.run()).row_of_container) == {*WEB, *DB}


class ForgetfulStore(InMemoryStore):
    """Stores the next read, and loses the answer."""

    forgets = False

    async def record_usage(self, advance):
        await super().record_usage(advance)
        if self.forgets:
            self.forgets = False
            raise UnavailableError("no answer in time")


async def test_usage_whose_answer_was_lost_is_not_taken_for_a_restored_database():
    def used(key, times):
        return np.where((times > AT) & (times <= AT + 600), 900.0, 100.0)

    store = ForgetfulStore()
    cruise = Cruise(source(cpu=used), store)
    await cruise.run(AT)
    store.forgets = True
    with pytest.raises(UnavailableError, match="no answer in time"):
        await cruise.run(AT + 600)
    with pytest.raises(UnknownUsageError, match=f"stored until {AT}, not {AT + 600}"):
        await cruise.run(AT + 900)
    assert (cruise.state.history_lost_until, cruise.state.evictions_lost_until) == (0, 0)
    # The peaks of what was stored unseen count as well.
    assert of_pod(await cruise.run(AT + 1200), WEB[0]).cpu_peak_millicores == 900
    assert {one.read_until for one in (await store.read_usage_progress()).values()} == {AT + 1200}


async def test_a_restored_older_database_is_detected_and_what_it_lost_is_read_again():
    """An older copy takes over: it has no peak of the last twenty minutes, and nothing that knows of it."""

    def used(key, times):
        return np.where((times > AT) & (times <= AT + 600), 900.0, 100.0)

    cruise = Cruise(source(cpu=used))
    await cruise.run(AT)
    older = deepcopy(cruise.store)
    await cruise.run(AT + 600)
    assert of_pod(await cruise.run(AT + 1200), WEB[0]).cpu_peak_millicores == 900
    cruise.store = older
    with pytest.raises(DatabaseRestoredError, match=f"stored until {AT + 1200}, not {AT}"):
        await cruise.run(AT + 1500)
    # Nothing was stored on top of what is missing, the statistics of before stay, and nothing shrinks meanwhile.
    assert {one.read_until for one in (await older.read_usage_progress()).values()} == {AT}
    assert of_pod(await cruise.state.get_statistics(older), WEB[0]).cpu_peak_millicores == 900
    assert cruise.state.history_lost_until == AT + 1200
    assert of_pod(await cruise.run(AT + 1800), WEB[0]).cpu_peak_millicores == 900
    assert cruise.state.history_lost_until == 0
    # As after a restart.
    assert of_pod(await Cruise(cruise.usage, older).run(AT + 2100), WEB[0]).cpu_peak_millicores == 900


async def test_what_a_database_lost_is_requested_until_it_is_stored():
    fails = [False]
    down = UnavailableError("Prometheus is away")
    cruise = Cruise(source(refuse=lambda ask: down if fails[0] and ask.partition == "a" else None))
    await cruise.run(AT)
    older = deepcopy(cruise.store)
    await cruise.run(AT + 600)
    cruise.store = older
    with pytest.raises(DatabaseRestoredError):
        await cruise.run(AT + 900)
    fails[0] = True
    for at in (1200, 1500, 1800, 2100):
        await cruise.run(AT + at)
        assert cruise.state.history_lost_until == AT + 600
    fails[0] = False
    await cruise.run(AT + 2400)
    assert cruise.state.history_lost_until == 0


async def test_a_pod_that_was_resized_before_it_was_seen_first_is_of_no_other_revision():
    """Node passes come between usage passes, and resize pods that have not been seen by one."""
    shown = cluster()
    cruise = Cruise(source(), shown=shown)
    await cruise.run()
    late = make_pod("web-3", containers=[make_container("app", cpu=50)], workload="Deployment/web")
    [one] = shown.shown.pods[0].containers
    submitted = (ContainerTarget("app", ContainerRole.MAIN, one.requests, one.limits),)
    await cruise.store.record_original_sizes([OriginalSizes(late.uid, "shop", "web-3", submitted, NOW)])
    shown.shown = replace(shown.shown, pods=(*shown.shown.pods, late))
    table = await cruise.run(AT + 300)
    runs = table.revisions.runs[WorkloadContainer("shop", "Deployment/web", "app")]
    assert len(runs) == 1


async def test_a_restored_older_database_shrinks_nothing_until_it_has_caught_up():
    """A backup is put back between two processes; the Lease knows which epoch the database had."""

    def used(key, times):
        return np.where((times > AT) & (times <= AT + 300), 900.0, 100.0)

    fails = [True]
    down = UnavailableError("Prometheus is away")
    usage = source(cpu=used, refuse=lambda ask: down if fails[0] and ask.partition == "a" and ask.end > AT else None)
    before = Cruise(usage)
    await before.run(AT)
    backup = deepcopy(before.store)
    fails[0] = False
    assert of_pod(await before.run(AT + 300), WEB[0]).cpu_peak_millicores == 900
    fails[0] = True

    backup.expect_epoch(before.store.epoch)
    after = Cruise(usage, backup)
    with pytest.raises(DatabaseRestoredError, match="epoch"):
        await after.run(AT + 600)
    # No shrink rests on statistics without the peak, as long as what is missing cannot be read.
    await after.run(AT + 900)
    assert after.state.history_lost_until == AT + 600
    # The next process knows it from the database.
    after = Cruise(usage, backup)
    await after.run(AT + 1200)
    assert after.state.history_lost_until == AT + 600
    fails[0] = False
    assert of_pod(await after.run(AT + 1500), WEB[0]).cpu_peak_millicores == 900
    assert (after.state.history_lost_until, after.state.evictions_lost_until) == (0, AT + 600)
    after = Cruise(usage, backup)
    await after.run(AT + 1800)
    assert (after.state.history_lost_until, after.state.evictions_lost_until) == (0, AT + 600)


async def test_a_process_that_knows_no_epoch_reads_an_older_database_as_after_a_downtime():
    """In modes observe and initial no Lease keeps the epoch: progress and peaks went back together."""

    def used(key, times):
        return np.where((times > AT) & (times <= AT + 300), 900.0, 100.0)

    fails = [False]
    down = UnavailableError("Prometheus is away")
    usage = source(cpu=used, refuse=lambda ask: down if fails[0] and ask.partition == "a" and ask.end > AT else None)
    before = Cruise(usage)
    await before.run(AT)
    backup = deepcopy(before.store)
    await before.run(AT + 300)
    after = Cruise(usage, backup)
    fails[0] = True
    # What the backup has is shown with its own age, which admission and node passes compare with max_age.
    assert of_pod(await after.run(AT + 600), WEB[0]).updated_at == AT
    fails[0] = False
    assert of_pod(await after.run(AT + 1800), WEB[0]).cpu_peak_millicores == 900
    fails[0] = True
    assert of_pod(await Cruise(usage, backup).run(AT + 2100), WEB[0]).cpu_peak_millicores == 900


class SlowStore(InMemoryStore):
    """A store that notes how many writes of usage were under way at once."""

    def __init__(self):
        super().__init__()
        self.under_way = self.most = 0

    async def record_usage(self, advance):
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0)
        await super().record_usage(advance)
        self.under_way -= 1


async def test_usage_is_written_one_partition_after_the_other():
    """Partitions share their workloads' peaks, on which a database would let two writers wait for each other."""
    store = SlowStore()
    await Cruise(source(), store).run()
    assert store.most == 1


async def test_statistics_are_stored_as_they_are_returned():
    cruise = Cruise(source())
    table, stored = await cruise.run(), await cruise.store.read_statistics()
    assert {key: of_pod(table, key) for key in table.row_of_container} == {
        key: of_pod(stored, key) for key in stored.row_of_container
    }
    assert of_pod(stored, WEB[0]) == Statistic(
        StatisticKey("shop", "web-1", "Deployment/web", "app"),
        updated_at=AT,
        history_since=HORIZON,
        cpu_base_millicores=100,
        cpu_peak_millicores=110,
        cpu_7d_max_millicores=110,
        memory_base_bytes=1_000_000,
        memory_peak_bytes=1_000_000,
        memory_7d_max_bytes=1_000_000,
        memory_last_bytes=1_000_000,
    )


async def test_peaks_are_of_the_same_clock_hours_and_change_with_the_clock():
    """Three hours before, and on the day before, something used much."""
    noon = (AT // HOUR + 1) * HOUR

    def used(key, times):
        yesterday = times - 24 * HOUR * ((times >= noon - 24 * HOUR) & (times < noon - 24 * HOUR + HOUR))
        values = np.where(yesterday != times, 700.0, 100.0)
        return np.where((times >= AT - 4 * HOUR) & (times < AT - 3 * HOUR), 900.0, values)

    cruise = Cruise(source(cpu=used))
    assert of_pod(await cruise.run(AT - 600), WEB[0]).cpu_peak_millicores == 100
    assert of_pod(await cruise.run(AT), WEB[0]).cpu_peak_millicores == 700  # the look-ahead reaches noon
    assert of_pod(await cruise.run(noon + 300), WEB[0]).cpu_peak_millicores == 700
    assert of_pod(await cruise.run(noon + HOUR), WEB[0]).cpu_peak_millicores == 100


async def test_the_largest_memory_of_the_week_is_kept_beyond_the_last_hour():
    cruise = Cruise(source(memory=lambda key, times: np.where(times == AT - 120, 9e6, 1e6)))
    await cruise.run()
    statistic = of_pod(await cruise.run(AT + 2 * HOUR), WEB[0])
    assert (statistic.memory_peak_bytes, statistic.memory_7d_max_bytes) == (1_000_000, 9_000_000)


async def test_peaks_of_gone_pods_are_kept_by_their_workload():
    usage = source(
        containers={"a": [WEB[0], GONE]},
        cpu=lambda key, times: np.where(times < AT - 7200, 800.0, np.nan) if key == GONE else np.full(len(times), 9.0),
        memory=lambda key, times: np.where(times < AT - 7200, 8e6, np.nan) if key == GONE else np.full(len(times), 1e6),
    )
    table = await Cruise(usage).run()
    statistic = of_pod(table, WEB[0])
    assert (statistic.cpu_peak_millicores, statistic.memory_7d_max_bytes) == (800, 8_000_000)
    assert GONE not in table.row_of_container


async def test_a_workload_whose_only_pod_waits_for_a_node_keeps_its_statistics():
    # The pod before it has used this until half an hour ago.
    gone = source(
        containers={"a": [GONE]},
        cpu=lambda key, times: np.where(times < AT - 1800, 250.0, np.nan),
        memory=lambda key, times: np.where(times < AT - 1800, 3e6, np.nan),
    )
    waiting = ReadOnlyCluster(make_snapshot(pods=[make_pod("web-7d9f8b6c5d-zzzzz", node=None)], nodes=[]))
    table = await Cruise(gone, shown=waiting).run()
    [row] = table.row_of_workload.values()
    assert (table.get_row(row).cpu_peak_millicores, table.get_row(row).updated_at) == (250, AT)


async def test_what_oom_kills_taught_counts_for_seven_days():
    cruise = Cruise(source())
    for days, memory in ((6, 5_000_000), (8, 9_000_000)):
        finished = datetime.fromtimestamp(AT, UTC) - timedelta(days=days)
        record = OomRecord(
            "shop", "web-1", f"uid-{days}", "Deployment/web", "app", "", "n1", finished, None, None, None, memory
        )
        assert await cruise.store.record_oom_kill(record)
    table = await cruise.run()
    # One kill teaches its own pod alone.
    assert [of_pod(table, key).oom_memory_bytes for key in WEB] == [5_000_000, 0]
    assert table.get_row(table.row_of_workload[PeakKey("shop", "Deployment/web", "app", "")]).oom_memory_bytes == 0


async def test_what_one_kill_taught_counts_for_the_next_pod_where_the_killed_one_does_not_run_again():
    # The pod before it was killed half an hour ago, and the next one is being created.
    gone = source(
        containers={"a": [GONE]},
        cpu=lambda key, times: np.where(times < AT - 1800, 250.0, np.nan),
        memory=lambda key, times: np.where(times < AT - 1800, 3e6, np.nan),
    )
    waiting = make_pod("web-7d9f8b6c5d-zzzzz", node=None)
    cruise = Cruise(gone, shown=ReadOnlyCluster(make_snapshot(pods=[waiting], nodes=[])))
    finished = datetime.fromtimestamp(AT - 1800, UTC)
    record = OomRecord(
        "shop", GONE.pod, "uid", "Deployment/web", "app", "", "n1", finished, None, None, None, 500 * MEBIBYTE, True
    )
    assert await cruise.store.record_oom_kill(record)
    table = await cruise.run()
    [row] = table.row_of_workload.values()
    assert table.get_row(row).oom_memory_bytes == 500 * MEBIBYTE
    policy, now = Policy(mode=Mode.FULL), datetime.fromtimestamp(AT, UTC)
    snapshot = make_snapshot(pods=[waiting], nodes=[make_node()])
    eligibility = Eligibility(snapshot, table, {}, policy, now)
    decision = decide_admission(waiting, eligibility, table, NodeIndex(snapshot.nodes), (), policy)
    assert isinstance(decision, MutatePod)
    assert decision.containers[0].requests.memory_bytes == 500 * MEBIBYTE


async def test_a_container_without_recent_samples_keeps_its_earlier_row():
    usage = source(
        cpu=lambda key, times: np.where((key in DB) & (times > AT), np.nan, 100.0),
        memory=lambda key, times: np.where((key in DB) & (times > AT), np.nan, 1e6),
    )
    cruise = Cruise(usage)
    expected = of_pod(await cruise.run(), DB[0])
    for at in (AT + 300, AT + 1200, AT + 2 * HOUR):
        table = await cruise.run(at)
        assert of_pod(table, DB[0]) == expected
        assert of_pod(table, WEB[0]).updated_at == at
    taken_over = await Cruise(usage, cruise.store).run(AT + 2 * HOUR + 300)
    assert of_pod(taken_over, DB[0]) == expected


async def test_init_containers_and_finished_pods_have_no_rows():
    pods = [
        make_pod("web-1", containers=[make_container("app"), make_container("setup", role=ContainerRole.INIT)]),
        make_pod("web-2", phase="Succeeded"),
    ]
    setup = ContainerKey("shop", "web-1", "setup")
    cruise = Cruise(source(containers={"a": [*WEB, setup]}), shown=ReadOnlyCluster(make_snapshot(pods=pods)))
    assert set((await cruise.run()).row_of_container) == {WEB[0]}


async def test_a_long_pause_leaves_what_is_too_old_unread():
    cruise = Cruise(source())
    await cruise.run()
    cruise.usage.asked.clear()
    later = AT + 10 * 24 * HOUR
    table = await cruise.run(later)
    assert min(ask.start for ask in cruise.usage.asked) == (later // HOUR - 168) * HOUR
    assert cruise.usage.asked[0].continued_from is None
    assert of_pod(table, WEB[0]).history_since == (later // HOUR - 168) * HOUR


async def test_earlier_statistics_are_returned_until_there_are_new_ones():
    store = InMemoryStore()
    await store.write_statistics(
        make_table(Statistic(StatisticKey("shop", "web-1", "Deployment/web", "app"), AT - 600, 0, 1, 2, 3, 4, 5))
    )

    def refuse(ask):
        return BadInputError("no") if ask.partition == "b" else None

    table = await Cruise(source(refuse=refuse), store).run()
    assert of_pod(table, WEB[0]).updated_at == AT - 600


async def test_another_step_continues_where_the_previous_one_ended():
    first = Cruise(source())
    await first.run(AT - 60)
    usage = source(step=120)
    table = await Cruise(usage, first.store, reading=replace(READING, step_seconds=120)).run(AT + 3600)
    assert {(ask.start, ask.end, ask.continued_from) for ask in usage.asked} == {(AT, AT + 3600, None)}
    assert of_pod(table, WEB[0]).cpu_base_millicores == 100
    assert of_pod(table, WEB[0]).updated_at == AT + 3600


def test_gaps_are_kept_after_a_change_of_the_step():
    gaps = ((60, 600, 1), (660, 720, 2), (780, 1200, 2))
    assert align_gaps(gaps, 60) == gaps
    assert align_gaps(gaps, 120) == ((120, 600, 1), (840, 1200, 2))


def test_neighbouring_gaps_that_stay_unknown_become_one():
    assert join_gaps(((120, 180, 2), (0, 60, 2), (60, 120, 2), (180, 240, 1), (300, 360, 2))) == (
        (0, 180, 2),
        (180, 240, 1),
        (300, 360, 2),
    )


def spoofed(since, share=1.0):
    """Usage of web-1 at forty cores for a share of the minutes after `since`."""

    def cpu(key, times):
        hit = (times > since) & ((times // 60) % 10 < 10 * share)
        return np.where(hit & (key == WEB[0]), 40_000.0, 100.0)

    return cpu


def on_nodes():
    return ReadOnlyCluster(replace(cluster().shown, nodes=(make_node("n1", 4000, 8192),)))


async def test_samples_above_the_nodes_cores_raise_no_peak_and_hold_their_container(capsys):
    cruise = Cruise(source(cpu=spoofed(AT - 240)), shown=on_nodes())
    table = await cruise.run()
    victim = of_pod(table, WEB[0])
    assert (victim.cpu_base_millicores, victim.cpu_peak_millicores) == (100, 100)
    assert (victim.rejected_percent, victim.rejections) == (40, (SampleRejectionReason.ABOVE_NODE_CAPACITY,))
    assert cruise.state.rejections.counts == {SampleRejectionReason.ABOVE_NODE_CAPACITY: 4}
    assert "example=shop/web-1/app reason=above-node-capacity" in capsys.readouterr().out.replace("\x1b[0m", "")
    assert of_pod(table, WEB[1]).rejected_percent == 0
    stored = await cruise.store.read_statistics()
    assert of_pod(stored, WEB[0]) == victim


async def test_a_container_of_which_everything_is_refused_keeps_what_was_known_of_it():
    cruise = Cruise(source(cpu=spoofed(AT)), shown=on_nodes())
    known = of_pod(await cruise.run(), WEB[0])
    assert known.rejected_percent == 0
    held = of_pod(await cruise.run(AT + 1800), WEB[0])
    assert (held.cpu_peak_millicores, held.rejected_percent) == (100, 100)


async def test_a_new_leader_reads_what_was_refused():
    first = Cruise(source(cpu=spoofed(AT - 240)), shown=on_nodes())
    await first.run()
    second = Cruise(source(), store=first.store, shown=on_nodes())
    assert of_pod(await second.run(AT + 60), WEB[0]).rejected_percent == 40


async def test_the_seeds_take_every_sample():
    cruise = Cruise(source(cpu=spoofed(AT - 240)), shown=on_nodes(), policy=Policy(rules=SEED_RULES))
    assert of_pod(await cruise.run(), WEB[0]).cpu_peak_millicores == 40_000


def sudden(since):
    """Usage of web-1 at 3,000 m, which is less than its node's four cores, after `since`."""

    def cpu(key, times):
        return np.where((times > since) & (key == WEB[0]), 3000.0, 100.0)

    return cpu


async def test_what_a_whole_node_did_not_use_raises_no_peak_and_holds_its_container():
    usage = source(cpu=sudden(AT), node="n1", node_millicores=400.0)
    cruise = Cruise(usage, shown=on_nodes())
    await cruise.run()
    # Where all is as it was, no node is asked about.
    assert usage.nodes_asked == []
    table = await cruise.run(AT + 300)
    assert usage.nodes_asked == [("n1",)]
    victim = of_pod(table, WEB[0])
    assert (victim.cpu_base_millicores, victim.cpu_peak_millicores) == (100, 100)
    assert (victim.rejected_percent, victim.rejections) == (50, (SampleRejectionReason.ABOVE_NODE_USAGE,))
    assert cruise.state.rejections.counts == {SampleRejectionReason.ABOVE_NODE_USAGE: 5}
    assert of_pod(table, WEB[1]).rejected_percent == of_pod(table, DB[0]).rejected_percent == 0
    assert_asked_once(usage, AT + 300)


@pytest.mark.parametrize("used", [None, 3500.0])
async def test_usage_within_the_capacity_of_a_node_is_accepted(used):
    usage = source(cpu=sudden(AT), node="n1", node_millicores=used)
    cruise = Cruise(usage, shown=on_nodes())
    await cruise.run()
    assert of_pod(await cruise.run(AT + 300), WEB[0]).cpu_peak_millicores == 3000
    assert cruise.state.rejections.counts == {}


async def test_the_first_design_believes_what_no_node_used():
    usage = source(cpu=sudden(AT), node="n1", node_millicores=400.0)
    cruise = Cruise(usage, shown=on_nodes(), policy=Policy(rules=SEED_RULES))
    await cruise.run()
    assert of_pod(await cruise.run(AT + 300), WEB[0]).cpu_peak_millicores == 3000
    assert usage.nodes_asked == []


RESIZE = Policy(mode=Mode.RESIZE)


async def test_a_young_pod_that_was_resized_is_no_new_revision():
    young = make_pod("web-1", containers=(make_container(cpu=400),), created_at=NOW - timedelta(minutes=10))
    revisions = update_revisions(NO_REVISIONS, [young], {}, NOW_SECONDS, refresh=True).revisions
    store = InMemoryStore()
    await store.write_statistics(replace(make_table(make_statistic_for(young)), revisions=revisions))
    sizes = ContainerTarget("app", young.containers[0].role, young.containers[0].requests, young.containers[0].limits)
    await store.record_original_sizes([OriginalSizes(young.uid, young.namespace, young.name, (sizes,), NOW)])
    resized = replace(young, containers=(make_container(cpu=30),))

    async def check(pod):
        statistics = await read_statistics_for_pods(store, [pod])
        found = Eligibility(make_snapshot([pod]), statistics, {}, RESIZE, NOW).check(pod)
        return found.reason if isinstance(found, SkippedPod) else None

    assert await check(resized) is None
    # Another pod with these resources is one of another template.
    assert await check(replace(resized, uid="other")) is ReasonCode.NEW_TEMPLATE_REVISION


class AskedStore(InMemoryStore):
    """Records of which pods the original sizes are read."""

    def __init__(self):
        super().__init__()
        self.asked: list[set[str]] = []

    async def read_original_sizes(self, pod_uids):
        self.asked.append(set(pod_uids))
        return await super().read_original_sizes(pod_uids)


async def test_original_sizes_are_read_of_present_pods_that_state_none_and_once_by_each_process():
    """Those of gone pods are kept for 90 days, millions where pods come and go."""
    store, shown = AskedStore(), cluster()
    marked = make_pod("web-3", workload="Deployment/web", annotations={ORIGINAL_RESOURCES: "{}"})
    bare = make_pod("bare", workload=None)
    shown.shown = replace(shown.shown, pods=(*shown.shown.pods, marked, bare))
    stating_none = {pod.uid for pod in shown.shown.pods} - {marked.uid, bare.uid}
    for _ in range(2):
        cruise = Cruise(source(), store, shown)
        await cruise.run()
        await cruise.run(AT + 300)
    assert store.asked == [stating_none, stating_none]


@pytest.mark.parametrize("capacity", [None, 0, 1 << 50])
@pytest.mark.parametrize("used", [1e17, 1e19, 1e38])
async def test_more_than_any_machine_has_is_no_usage_whatever_the_node_states(capacity, used):
    nodes = () if capacity is None else (replace(make_node(), allocatable=Resources(capacity, capacity)),)
    shown = ReadOnlyCluster(replace(await cluster().snapshot(), nodes=nodes))
    table = await Cruise(source(cpu=constant(used), memory=constant(used)), shown=shown).run()
    assert table.rejected_percent.tolist() == [100, 100, 100]
    assert table.cpu_peak_millicores.tolist() == table.memory_peak_bytes.tolist() == [0, 0, 0]

"""The contract of StorePort: one suite for the in-memory store, the embedded Postgres and a Postgres by URL."""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.adapters.store.postgres import open_store
from cruise.adapters.store.schema import metadata
from cruise.decisions.usage.oom_records import summarize_oom_records
from cruise.domain.actions import (
    Action,
    ActionResult,
    ContainerTarget,
    EvictPod,
    LastResizes,
    OriginalSizes,
    Outcome,
    ReasonCode,
    RefusedResize,
    ResizePod,
    TaintNode,
    UntaintNode,
    WriteIntent,
)
from cruise.domain.cluster import ContainerRole, WorkloadRef
from cruise.domain.original_resources import RevisionPeriod, WorkloadContainer, WorkloadRevisions
from cruise.domain.packing_plan import (
    ArrivalPod,
    EvictedPod,
    PackingPlan,
    PackingProposal,
    PackingSizes,
    PlacementHint,
    PlannedPlacement,
    PlannedPreemption,
    PlanPhase,
    PlanStage,
    PriorityResult,
)
from cruise.domain.policy import (
    EvictionRanking,
)
from cruise.domain.reasons import (
    BlockingPodKind,
    PlanCondition,
    PlanStatusReason,
    UnplacedPod,
    UnschedulableCode,
    UnschedulableReason,
)
from cruise.domain.records import (
    CONTAINER_STARTS_KEPT,
    RETENTION,
    AverageHeadroomShare,
    EpochAndLostUsage,
    HourlyClusterTotals,
    OutcomeCount,
    RiskDay,
    get_clock_hour,
)
from cruise.domain.resources import ResourceName, Resources, StatedResources
from cruise.domain.scheduling import (
    LabelRequirement,
    LabelSelector,
    NodeSelectorTerm,
    PodAffinityTerm,
    SelectorOperator,
    Taint,
    TaintEffect,
)
from cruise.domain.usage import (
    ContainerKey,
    ContainerStart,
    HourlyPeaks,
    OomRecord,
    PartitionCounterTail,
    PartitionProgress,
    PeakKey,
    SampleBlock,
    Statistic,
    StatisticKey,
    StatisticsTable,
    UsageUpdate,
)
from cruise.domain.users import UserAction, UserActionKind
from cruise.errors import DatabaseRestoredError, UnknownUsageError
from cruise.packer.answer import PackingNote, PackingNoteCode, PackingStatus
from cruise.runtime.ports import StorePort
from cruise.simulation.store import InMemoryStore
from tests.postgres_servers import LeastRoles, change, dsn_below, emptied, least_roles
from tests.tiers import examples, is_long

NOW = datetime(2026, 3, 4, 5, 6, 7, 890123, tzinfo=UTC)
NOW_SECONDS = int(NOW.timestamp())
NOW_HOUR = NOW_SECONDS // 3600
FEW_EXAMPLES = examples(25)

StoreOpener = Callable[[], AbstractAsyncContextManager[StorePort]]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Two stores run the whole suite; the second Postgres runs a part of it below the tier long."""
    if "open_empty" in metafunc.fixturenames:
        whole = is_long(metafunc.config) or metafunc.definition.get_closest_marker("smoke")
        kinds = ["memory", "embedded", "debian"] if whole else ["memory", "embedded"]
        marked = [pytest.param(kind, marks=() if kind == "memory" else pytest.mark.server) for kind in kinds]
        metafunc.parametrize("open_empty", marked, indirect=True, scope="module")


@pytest.fixture(scope="module")
def open_empty(request: pytest.FixtureRequest) -> Iterator[StoreOpener]:
    """Opens an empty store of one kind, any number of times."""
    if request.param == "memory":
        yield _memory_store
    elif request.param == "embedded":
        data_dir = request.getfixturevalue("embedded_postgres")
        emptied(dsn_below(data_dir))
        yield lambda: _embedded_store(data_dir)
    else:
        # Of the roles that share a database, the one of `cruise serve` may do no more than it has to.
        with least_roles(request.getfixturevalue("debian_postgres")) as roles:
            # A loop may be running where fixtures are made.
            with ThreadPoolExecutor(1) as thread:
                thread.submit(asyncio.run, _migrated(roles)).result()
            yield lambda: _store_of_serve(roles)


@asynccontextmanager
async def _memory_store() -> AsyncIterator[StorePort]:
    yield InMemoryStore()


@asynccontextmanager
async def _embedded_store(data_dir: Path) -> AsyncIterator[StorePort]:
    async with open_store(None, data_dir, _surprised) as store:
        await store.clear()
        yield store


async def _migrated(roles: LeastRoles) -> None:
    async with open_store(roles.owner, Path("/nowhere"), _surprised):
        """The schema is made."""


@asynccontextmanager
async def _store_of_serve(roles: LeastRoles) -> AsyncIterator[StorePort]:
    change(roles.owner, f"TRUNCATE {', '.join(table.name for table in metadata.sorted_tables)}")
    async with open_store(roles.serve, Path("/nowhere"), _surprised) as store:
        yield store


def _surprised(line: str) -> None:
    raise AssertionError(f"the server is there, and yet: {line}")


@pytest.fixture
async def store(open_empty: StoreOpener) -> AsyncIterator[StorePort]:
    async with open_empty() as opened:
        yield opened


# ---- statistics ----

names = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=12)
figures = st.integers(0, (1 << 63) - 1)
statistic_keys = st.builds(StatisticKey, names, names, names, names, names)
statistic_rows = st.builds(
    Statistic,
    statistic_keys,
    figures,
    figures,
    figures,
    figures,
    figures,
    figures,
    figures,
    figures,
    figures,
    st.booleans(),
)


def subject(key: StatisticKey) -> tuple[str, ...]:
    """What has one row: a container of a pod, or of a workload and identity."""
    if key.pod:
        return (key.namespace, key.pod, key.container)
    return (key.namespace, key.workload, key.container, key.identity)


def rows_of(table: StatisticsTable) -> dict[tuple[str, ...], Statistic]:
    assert len({subject(key) for key in table.keys}) == len(table.keys)
    return {subject(key): table.get_row(row) for row, key in enumerate(table.keys)}


def statistic(pod="", workload="Deployment/web", container="app", identity="", updated_at=NOW_SECONDS, cpu_base=10):
    key = StatisticKey("shop", pod, workload, container, identity)
    return Statistic(key, updated_at, 1, cpu_base, 20, 30, 40, 50)


@given(first=st.lists(statistic_rows, max_size=8), second=st.lists(statistic_rows, max_size=8), again=st.booleans())
@FEW_EXAMPLES
async def test_statistics_are_read_as_written_and_later_rows_replace_earlier_ones(open_empty, first, second, again):
    if again:
        second = second + [replace(row, cpu_base_millicores=7) for row in first[:3]]
    async with open_empty() as store:
        await store.write_statistics(StatisticsTable.from_rows(first))
        await store.write_statistics(StatisticsTable.from_rows(second))
        table = await store.read_statistics()
    assert rows_of(table) == {subject(row.key): row for row in [*first, *second]}
    assert set(table.row_of_container.values()) | set(table.row_of_workload.values()) == set(range(len(table.keys)))


async def test_no_statistics_at_first(store):
    table = await store.read_statistics()
    assert (len(table.keys), len(table.updated_at), table.psi_known.dtype) == (0, 0, np.bool_)


async def test_a_container_of_a_pod_that_changes_its_workload_keeps_one_row(store):
    await store.write_statistics(StatisticsTable.from_rows([statistic("web-0", "StatefulSet/web", identity="0")]))
    await store.write_statistics(StatisticsTable.from_rows([statistic("web-0", "Deployment/web", cpu_base=99)]))
    table = await store.read_statistics()
    assert [table.get_row(0)] == [statistic("web-0", "Deployment/web", cpu_base=99)]
    assert len(table.keys) == 1


def revisions(**runs: RevisionPeriod) -> StatisticsTable:
    """A table without rows, with revisions of one container."""
    return replace(
        StatisticsTable.from_rows([]), revisions=WorkloadRevisions({WorkloadContainer("shop", "Job/x", "app"): runs})
    )


@pytest.mark.smoke
async def test_revisions_keep_their_earliest_start_and_latest_time_seen(store):
    assert (await store.read_statistics()).revisions is None
    await store.write_statistics(revisions(a=RevisionPeriod(100, 200), b=RevisionPeriod(150, 160)))
    await store.write_statistics(revisions(a=RevisionPeriod(120, 220), c=RevisionPeriod(300, 300)))
    await store.write_statistics(revisions(a=RevisionPeriod(90, 210)))
    await store.write_statistics(StatisticsTable.from_rows([statistic("web-0")]))
    for table in (await store.read_statistics(), await store.read_workload_statistics()):
        assert (
            table.revisions
            == revisions(a=RevisionPeriod(90, 220), b=RevisionPeriod(150, 160), c=RevisionPeriod(300, 300)).revisions
        )
    await store.prune(datetime.fromtimestamp(210, UTC) + RETENTION.statistics)
    assert (await store.read_statistics()).revisions == revisions(
        a=RevisionPeriod(90, 220), c=RevisionPeriod(300, 300)
    ).revisions
    await store.prune(datetime.fromtimestamp(301, UTC) + RETENTION.statistics)
    assert (await store.read_statistics()).revisions is None


async def test_reads_headroom_sharing_with_the_statistics(store):
    assert (await store.read_workload_statistics()).average_headroom_share is None
    for average_share in (AverageHeadroomShare(0.5, 1.0), AverageHeadroomShare(0.25, 0.0)):
        await store.record_average_headroom_share(average_share)
        await store.write_statistics(StatisticsTable.from_rows([statistic("web-0")]))
        assert (await store.read_workload_statistics()).average_headroom_share == average_share
        assert (await store.read_statistics()).average_headroom_share == average_share


@pytest.mark.smoke
async def test_the_statistics_of_a_pod_are_its_own_and_its_workloads(store):
    own = statistic("agent-x", "DaemonSet/agent", identity="node-1", cpu_base=1)
    of_identity = statistic("", "DaemonSet/agent", identity="node-1", cpu_base=2)
    of_all = statistic("", "DaemonSet/agent", cpu_base=3)
    others = [
        statistic("agent-y", "DaemonSet/agent", identity="node-2"),
        statistic("", "DaemonSet/agent", identity="node-2"),
        statistic("", "DaemonSet/other", identity="node-1"),
        statistic("", "DaemonSet/other"),
    ]
    elsewhere = Statistic(StatisticKey("other", "agent-x", "DaemonSet/agent", "app", "node-1"), 1, 1, 1, 1, 1, 1, 1)
    await store.write_statistics(StatisticsTable.from_rows([own, of_identity, of_all, *others, elsewhere]))

    table = await store.read_pod_statistics("shop", "agent-x", "DaemonSet/agent", "node-1")
    assert rows_of(table) == {subject(row.key): row for row in (own, of_identity, of_all)}
    row = table.find_row("shop", "agent-x", WorkloadRef("DaemonSet", "agent"), "app", "node-1")
    assert row is not None and table.get_row(row) == own

    new_pod = await store.read_pod_statistics("shop", "", "DaemonSet/agent", "node-3")
    assert rows_of(new_pod) == {subject(of_all.key): of_all}


async def test_the_statistics_of_workloads_are_those_without_a_pod(store):
    assert len((await store.read_workload_statistics()).keys) == 0
    of_workloads = [statistic("", cpu_base=1), statistic("", "DaemonSet/agent", identity="node-1", cpu_base=2)]
    await store.write_statistics(StatisticsTable.from_rows([statistic("web-0"), *of_workloads, statistic("web-1")]))
    table = await store.read_workload_statistics()
    assert rows_of(table) == {subject(row.key): row for row in of_workloads}
    row = table.find_row("shop", "new", WorkloadRef("DaemonSet", "agent"), "app", "node-1")
    assert row is not None and table.get_row(row) == of_workloads[1]


# ---- usage ----


def peak_key(number: int, identity: str = "") -> PeakKey:
    return PeakKey("shop", f"Deployment/web-{number}", "app", identity)


def hourly(*rows: tuple[PeakKey, int, float, float]) -> HourlyPeaks:
    return HourlyPeaks(
        keys=[row[0] for row in rows],
        hours=np.array([row[1] for row in rows], dtype=np.int64),
        cpu_demand_millicores=np.array([row[2] for row in rows], dtype=np.float64),
        memory_bytes=np.array([row[3] for row in rows], dtype=np.float64),
    )


def block_at(last_time: int, containers: int = 2, steps: int = 3) -> SampleBlock:
    shape = (containers, steps)
    memory = np.arange(containers * steps, dtype=np.float64).reshape(shape) * 4096
    memory[0, 0] = np.nan
    return SampleBlock(
        keys=[ContainerKey("shop", f"web-{number}", "app") for number in range(containers)],
        times=last_time - 60 * np.arange(steps, dtype=np.int64)[::-1],
        cpu_demand_millicores=np.linspace(0, 1, containers * steps, dtype=np.float32).reshape(shape),
        memory_bytes=memory,
        psi_known=np.arange(containers) % 2 == 0,
    )


def advance(partition="a", read_until=NOW_SECONDS, peaks=None, block=None, **progress) -> UsageUpdate:
    return UsageUpdate(partition, PartitionProgress(0, read_until, **progress), peaks or hourly(), block)


def assert_same_block(one: SampleBlock, other: SampleBlock) -> None:
    assert list(one.keys) == list(other.keys)
    for name in ("times", "cpu_demand_millicores", "memory_bytes", "psi_known"):
        left, right = getattr(one, name), getattr(other, name)
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)


@pytest.mark.smoke
async def test_progress_is_read_with_gaps_and_counters(store):
    tail = PartitionCounterTail(
        at=NOW_SECONDS,
        keys=[ContainerKey("shop", "web-0", "app"), ContainerKey("shop", "web-0", "app")],
        series=["containerd://old", "containerd://new"],
        cpu_seconds=np.array([1.25, 0.1]),
        cpu_waiting_seconds=np.array([np.nan, 1e-300]),
        changed_at=np.array([NOW_SECONDS, -NOW_SECONDS]),
    )
    await store.record_usage(advance("a", read_until=60, gaps=((10, 20, 1), (30, 40, 2)), counter_tail=tail))
    await store.record_usage(advance("b", read_until=70))
    await store.record_usage(advance("b", read_until=80))
    progress = await store.read_usage_progress()
    assert progress["b"] == PartitionProgress(0, 80)
    kept = progress["a"]
    assert (kept.read_from, kept.read_until, kept.gaps) == (0, 60, ((10, 20, 1), (30, 40, 2)))
    assert kept.counter_tail is not None
    assert (kept.counter_tail.at, list(kept.counter_tail.keys), list(kept.counter_tail.series)) == (
        tail.at,
        tail.keys,
        tail.series,
    )
    np.testing.assert_array_equal(kept.counter_tail.cpu_seconds, tail.cpu_seconds)
    np.testing.assert_array_equal(kept.counter_tail.cpu_waiting_seconds, tail.cpu_waiting_seconds)
    np.testing.assert_array_equal(kept.counter_tail.changed_at, tail.changed_at)


def container_start(number=0, started_at=NOW_SECONDS, container="app", **fields) -> ContainerStart:
    values = {"ends_at": 0, "sampled_until": started_at, "cpu_peak_millicores": 100.5} | fields
    return ContainerStart("shop", "Deployment/web", container, f"uid-{number}", started_at, **values)


@pytest.mark.smoke
async def test_starts_are_merged_to_their_larger_figures(store):
    await store.record_usage(replace(advance("a"), starts=[container_start(), container_start(1)]))
    whole = container_start(ends_at=NOW_SECONDS + 60, sampled_until=NOW_SECONDS + 60, cpu_peak_millicores=900.25)
    await store.record_usage(replace(advance("b"), starts=[whole]))
    await store.record_usage(replace(advance("b"), starts=[container_start(cpu_peak_millicores=3.0)]))
    found = await store.read_container_starts()
    assert sorted(found, key=lambda one: one.pod_uid) == [whole, container_start(1)]
    assert whole.is_complete


async def test_pruning_keeps_the_newest_starts_of_each_container(store):
    starts = [container_start(number, NOW_SECONDS - number) for number in range(CONTAINER_STARTS_KEPT + 3)]
    await store.record_usage(replace(advance(), starts=[*starts, container_start(container="proxy")]))
    await store.prune(NOW)
    found = await store.read_container_starts()
    expected = [*starts[:CONTAINER_STARTS_KEPT], container_start(container="proxy")]
    assert sorted(found, key=lambda one: (one.container, -one.started_at)) == expected


async def test_recent_blocks_are_those_with_a_later_time_oldest_first(store):
    blocks = [block_at(1200, containers=1), block_at(600, containers=2), block_at(900, containers=3)]
    for number, block in enumerate(blocks):
        await store.record_usage(advance(f"partition-{number}", block=block))
    found = await store.read_recent_blocks(600)
    assert len(found) == 2
    assert_same_block(found[0], blocks[2])
    assert_same_block(found[1], blocks[0])
    assert len(await store.read_recent_blocks(599)) == 3
    assert len(await store.read_recent_blocks(1200)) == 0


peaks_of_hours = st.lists(
    st.tuples(
        st.integers(0, 4).map(peak_key),
        st.integers(NOW_HOUR - 6, NOW_HOUR),
        st.one_of(st.just(math.nan), st.floats(0, 1e6, width=64)),
        st.one_of(st.just(math.nan), st.floats(0, 1e12, width=64)),
    ),
    max_size=12,
)


def highest(values: list[float]) -> float:
    return max((value for value in values if not math.isnan(value)), default=math.nan)


@given(
    reads=st.lists(peaks_of_hours, max_size=4),
    hours=st.sets(st.integers(NOW_HOUR - 6, NOW_HOUR)),
    since_hour=st.integers(NOW_HOUR - 6, NOW_HOUR),
)
@FEW_EXAMPLES
async def test_stores_the_highest_peaks_of_all_reads(open_empty, reads, hours, since_hour):
    async with open_empty() as store:
        for rows in reads:
            await store.record_usage(advance(peaks=hourly(*rows)))
        summary = await store.read_peak_summary(hours, since_hour)
        of_one = await store.read_workload_peaks("shop", "Deployment/web-1", since_hour)

    counted = [row for rows in reads for row in rows if row[1] >= since_hour and not math.isnan(highest([*row[2:]]))]
    expected = {
        key: (
            highest([row[2] for row in counted if row[0] == key and row[1] in hours]),
            highest([row[3] for row in counted if row[0] == key and row[1] in hours]),
            highest([row[3] for row in counted if row[0] == key]),
            min(row[1] for row in counted if row[0] == key),
        )
        for key in {row[0] for row in counted}
    }
    found = dict(
        zip(
            summary.keys,
            zip(
                summary.cpu_peak_millicores.tolist(),
                summary.memory_peak_bytes.tolist(),
                summary.memory_7d_max_bytes.tolist(),
                summary.first_hour.tolist(),
                strict=True,
            ),
            strict=True,
        )
    )
    assert repr(sorted(found.items())) == repr(sorted(expected.items()))

    hours_of_one = sorted({row[1] for row in counted if row[0] == peak_key(1)})
    assert (list(of_one.keys), of_one.hours.tolist()) == ([peak_key(1)] * len(hours_of_one), hours_of_one)
    for hour, cpu, memory in zip(of_one.hours, of_one.cpu_demand_millicores, of_one.memory_bytes, strict=True):
        rows = [row for row in counted if row[0] == peak_key(1) and row[1] == hour]
        np.testing.assert_equal([cpu, memory], [highest([row[2] for row in rows]), highest([row[3] for row in rows])])


async def test_hourly_peaks_of_a_workload_are_sorted_by_key_and_hour(store):
    late, early = NOW_HOUR, NOW_HOUR - 1
    rows = [(peak_key(1, identity), hour, 1.0, 2.0) for identity in ("b", "A", "a") for hour in (late, early)]
    await store.record_usage(advance(peaks=hourly(*rows, (peak_key(2), late, 9.0, 9.0))))
    peaks = await store.read_workload_peaks("shop", "Deployment/web-1", early)
    order = [(key.identity, hour) for key, hour in zip(peaks.keys, peaks.hours.tolist(), strict=True)]
    assert order == [("A", early), ("A", late), ("a", early), ("a", late), ("b", early), ("b", late)]


# ---- kills, actions, refusals ----

times = st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
amounts = st.builds(StatedResources, st.none() | figures, st.none() | figures)
references = st.builds(WorkloadRef, names, names)
targets = st.builds(ContainerTarget, names, st.sampled_from(ContainerRole), amounts, amounts)
reasons = st.sampled_from(ReasonCode)
actions = st.one_of(
    st.builds(
        ResizePod,
        names,
        names,
        names,
        st.none() | names,
        st.none() | references,
        st.lists(targets, max_size=3).map(tuple),
        st.builds(Resources, figures, figures),
        reasons,
    ),
    st.builds(
        EvictPod,
        names,
        names,
        names,
        st.none() | names,
        st.none() | references,
        st.sampled_from(EvictionRanking),
        st.sampled_from(ResourceName),
        reasons,
    ),
    st.builds(TaintNode, names, reasons),
    st.builds(UntaintNode, names, reasons),
)
outcomes = st.builds(
    Outcome,
    times,
    actions,
    st.sampled_from(ActionResult),
    reasons,
    names,
    before=st.lists(targets, max_size=2).map(tuple),
)


def count_alone(one: Outcome) -> OutcomeCount:
    """What one outcome adds to the counts."""
    action = one.action
    namespace = action.namespace if isinstance(action, ResizePod | EvictPod) else None
    cause = action.cause if isinstance(action, ResizePod) else None
    return OutcomeCount(namespace, type(action), action.reason, cause, one.result, one.reason, 1)


@given(written=st.lists(outcomes, max_size=8), since=times)
@FEW_EXAMPLES
async def test_outcomes_are_read_as_written_newest_first(open_empty, written, since):
    async with open_empty() as store:
        await store.record_outcomes(written[:3])
        await store.record_outcomes(written[3:])
        found = await store.read_outcomes(since)
        spent = await store.read_evictions_since(since)
        counts = await store.count_outcomes(since)
        done = await store.read_done_outcomes(since, 2)
        namespaces = {getattr(line.action, "namespace", None) for line in written[:2]} - {None}
        of_namespaces = await store.read_done_outcomes(since, 2, namespaces)
        visible = await store.read_outcomes(since, 3, namespaces)
        audited = await store.read_audited_namespaces()
    by_time = sorted((line for line in written if line.at >= since), key=lambda line: line.at)
    assert list(found) == by_time[::-1]
    assert Counter({replace(one, count=1): one.count for one in counts}) == Counter(
        count_alone(line) for line in by_time if line.result is not ActionResult.SKIPPED
    )
    expected = [line for line in by_time[::-1] if line.result is ActionResult.DONE]
    assert list(done) == expected[:2]
    own = [line for line in expected if getattr(line.action, "namespace", None) in namespaces]
    assert list(of_namespaces) == own[:2]
    assert list(visible) == [one for one in by_time[::-1] if one.namespace in namespaces | {None}][:3]
    assert audited == {one.namespace for one in written} - {None}
    evictions = [line for line in by_time if isinstance(line.action, EvictPod)]
    assert [line for line in spent if line.result is ActionResult.DONE] == [
        line for line in evictions if line.result is ActionResult.DONE
    ]
    done, failed = (
        {line.action.uid for line in evictions if line.result is verdict}
        for verdict in (ActionResult.DONE, ActionResult.FAILED)
    )
    # A pod whose eviction has no known end counts once.
    assert sorted(line.action.uid for line in spent if line.result is not ActionResult.DONE) == sorted(failed - done)


def eviction(number: int, verdict: ActionResult = ActionResult.DONE) -> Outcome:
    action: Action = EvictPod(
        "shop", f"web-{number}", "uid", "n1", None, EvictionRanking.LOW, ResourceName.CPU, ReasonCode.NODE_OVER_CAPACITY
    )
    return Outcome(NOW + timedelta(minutes=number), action, verdict, ReasonCode.NODE_OVER_CAPACITY)


def going_on(
    action: Action, minutes: int, count: int, reason: ReasonCode = ReasonCode.HOURLY_EVICTION_BUDGET_SPENT
) -> Outcome:
    first = NOW if count > 1 else None
    return Outcome(NOW + timedelta(minutes=minutes), action, ActionResult.SKIPPED, reason, first_at=first, count=count)


@pytest.mark.parametrize("action", [eviction(1).action, TaintNode("n1", ReasonCode.OVERLOADED)])
async def test_a_repeated_outcome_updates_its_row(store, action):
    other = going_on(action, 0, 1, ReasonCode.NODE_EVICTION_BUDGET_SPENT)
    await store.record_outcomes([going_on(action, 0, 1), other])
    await store.record_outcomes([going_on(action, 60, 13)])
    await store.record_outcomes([going_on(action, 120, 25)])
    assert list(await store.read_outcomes(NOW)) == [going_on(action, 120, 25), other]
    assert list(await store.read_outcomes(NOW + timedelta(minutes=90))) == [going_on(action, 120, 25)]


async def test_a_repeated_outcome_in_one_batch_is_one_row(store):
    action = eviction(1).action
    await store.record_outcomes([going_on(action, 0, 1), going_on(action, 60, 13), going_on(action, 120, 25)])
    assert list(await store.read_pod_outcomes("shop", "web-1", NOW)) == [going_on(action, 120, 25)]


async def test_a_repeated_outcome_without_a_row_is_inserted(store):
    await store.record_outcomes([going_on(eviction(1).action, 60, 13)])
    assert list(await store.read_outcomes(NOW)) == [going_on(eviction(1).action, 60, 13)]


async def test_outcomes_are_limited_to_the_newest(store):
    lines = [eviction(number) for number in range(5)]
    await store.record_outcomes(lines)
    assert list(await store.read_outcomes(NOW, limit=2)) == [lines[4], lines[3]]
    assert list(await store.read_outcomes(NOW + timedelta(minutes=3))) == [lines[4], lines[3]]


async def test_the_outcomes_of_a_pod_are_those_about_its_name(store):
    taint = Outcome(NOW, TaintNode("n1", ReasonCode.OVERLOADED), ActionResult.DONE, ReasonCode.OVERLOADED)
    earlier, later = eviction(1), replace(eviction(1), at=NOW + timedelta(hours=1))
    too_old = replace(eviction(1), at=NOW - timedelta(hours=1))
    await store.record_outcomes([earlier, eviction(2), taint, later, too_old])
    assert list(await store.read_pod_outcomes("shop", "web-1", NOW)) == [later, earlier]
    assert list(await store.read_pod_outcomes("other", "web-1", NOW)) == []


async def test_evictions_that_were_done_or_may_have_been_spend_budgets(store):
    lines = [of_uid(str(number), eviction(number, verdict)) for number, verdict in enumerate(ActionResult)]
    await store.record_outcomes(lines)
    assert [line.result for line in await store.read_evictions_since(NOW)] == [ActionResult.DONE, ActionResult.FAILED]


async def test_rejects_usage_that_continues_another_progress(store):
    await store.record_usage(advance("a", read_until=600))
    with pytest.raises(DatabaseRestoredError, match="stored until 900, not 600"):
        await store.record_usage(
            replace(advance("a", read_until=1200, peaks=hourly((peak_key(1), NOW_HOUR, 1.0, 2.0))), continues_from=900)
        )
    with pytest.raises(DatabaseRestoredError, match="not None"):
        await store.record_usage(replace(advance("b", read_until=1200), continues_from=900))
    with pytest.raises(UnknownUsageError, match="stored until 300, not 600"):
        await store.record_usage(replace(advance("a", read_until=1200), continues_from=300))
    assert {name: one.read_until for name, one in (await store.read_usage_progress()).items()} == {"a": 600}
    assert len((await store.read_peak_summary([NOW_HOUR], 0)).keys) == 0
    await store.record_usage(replace(advance("a", read_until=1200), continues_from=600))
    assert (await store.read_usage_progress())["a"].read_until == 1200


async def test_the_epoch_grows_with_each_read_intent_and_kill(store):
    assert (store.epoch, (await store.read_epoch_and_lost_usage()).epoch) == (0, 0)
    await store.record_usage(advance("a", read_until=600))
    await store.record_intents([intent(1, eviction(1))])
    await store.record_oom_kill(kill())
    assert (store.epoch, await store.read_epoch_and_lost_usage()) == (3, EpochAndLostUsage(3))


async def test_a_database_at_an_earlier_state_accepts_no_writes_until_the_loss_is_recorded(store):
    await store.record_usage(advance("a", read_until=600))
    store.expect_epoch(5)
    with pytest.raises(DatabaseRestoredError, match="epoch 1, but was at 5"):
        await store.read_epoch_and_lost_usage()
    for refused in (
        store.record_usage(advance("a", read_until=1200)),
        store.record_intents([intent(1, eviction(1))]),
        store.record_oom_kill(kill()),
    ):
        with pytest.raises(DatabaseRestoredError):
            await refused
    assert {name: one.read_until for name, one in (await store.read_usage_progress()).items()} == {"a": 600}
    assert list(await store.read_open_intents()) == []
    await store.record_lost_usage(900)
    assert await store.read_epoch_and_lost_usage() == EpochAndLostUsage(6, lost_until=900, regained=False)
    await store.record_usage(advance("a", read_until=1200))
    await store.record_lost_usage(900, regained=True)
    assert await store.read_epoch_and_lost_usage() == EpochAndLostUsage(store.epoch, lost_until=900)


def of_uid(uid: str, line: Outcome) -> Outcome:
    assert isinstance(line.action, EvictPod)
    return replace(line, action=replace(line.action, uid=uid))


def intent(number: int, line: Outcome) -> WriteIntent:
    return WriteIntent(number, line.at, line.action, line.before)


@given(written=st.lists(outcomes, max_size=8), completed=st.sets(st.integers(0, 9)))
@FEW_EXAMPLES
async def test_intents_are_open_until_their_outcomes_are_recorded(open_empty, written, completed):
    intents = [intent(number, line) for number, line in enumerate(written)]
    async with open_empty() as store:
        await store.record_intents(intents)
        by_time = sorted(intents, key=lambda one: (one.at, one.id))
        assert list(await store.read_open_intents()) == by_time
        assert await store.read_outcomes(NOW - timedelta(days=4000)) == []
        await store.record_outcomes(written[:1], completed)
        assert list(await store.read_open_intents()) == [one for one in by_time if one.id not in completed]


async def test_checking_for_writes_leaves_no_row(store):
    await store.check_writable()
    await store.check_writable()
    assert await store.read_open_intents() == []


async def test_an_eviction_counts_against_budgets_from_its_intent_on(store):
    first, second = of_uid("1", eviction(1)), of_uid("2", eviction(2))
    await store.record_intents([intent(7, first), intent(8, second)])
    assert [line.result for line in await store.read_evictions_since(NOW)] == [ActionResult.STARTED] * 2
    assert await store.read_evictions_since(NOW + timedelta(minutes=3)) == []
    # The answer was lost: that is known, and the intent stays open until the cluster was looked at.
    await store.record_outcomes([replace(second, result=ActionResult.FAILED)])
    assert [line.result for line in await store.read_evictions_since(NOW)] == [ActionResult.STARTED] * 2
    await store.record_outcomes([first], [7])
    await store.record_outcomes([], [8])
    spent = await store.read_evictions_since(NOW)
    assert [(line.result, line.action.uid) for line in spent] == [(ActionResult.DONE, "1"), (ActionResult.FAILED, "2")]


async def test_unanswered_resizes_are_those_without_an_answer_oldest_first(store):
    size = ContainerTarget("app", ContainerRole.MAIN, StatedResources(100, 1 << 20), StatedResources())
    actions = [
        ResizePod("shop", f"web-{n}", str(n), "n1", None, (size,), Resources(1, 1), ReasonCode.RIGHTSIZED)
        for n in range(4)
    ]
    ends = (ActionResult.FAILED, ActionResult.FAILED, ActionResult.DONE, ActionResult.FAILED)
    at = (2, 1, 3, -1)
    lines = [
        Outcome(NOW + timedelta(minutes=minutes), action, end, ReasonCode.RIGHTSIZED)
        for action, end, minutes in zip(actions, ends, at, strict=True)
    ]
    await store.record_outcomes([*lines, eviction(4, ActionResult.FAILED)])
    assert list(await store.read_unanswered_resizes(NOW)) == [lines[1], lines[0]]


def kill(container: str = "app", minutes: int = 0, **changed: object) -> OomRecord:
    values = {
        "namespace": "shop",
        "pod": "web-0",
        "pod_uid": "uid-0",
        "workload": "Deployment/web",
        "container": container,
        "identity": "",
        "node": None,
        "finished_at": NOW + timedelta(minutes=minutes),
        "memory_limit_bytes": 1 << 28,
        "memory_request_bytes": None,
        "last_working_set_bytes": None,
        "oom_memory_bytes": 1 << 28,
    }
    return OomRecord(**(values | changed))  # type: ignore[arg-type]


async def test_a_kill_is_remembered_once(store):
    known = {"node": "n1", "memory_request_bytes": 1, "last_working_set_bytes": 2, "applies_to_workload": True}
    first, second = kill(), kill("sidecar", minutes=-5, **known)
    assert await store.has_oom_record(first.pod_uid, first.container, first.finished_at) is False
    assert await store.record_oom_kill(first) is True
    assert await store.has_oom_record(first.pod_uid, first.container, first.finished_at) is True
    assert await store.has_oom_record(first.pod_uid, first.container, first.finished_at + timedelta(seconds=1)) is False
    assert await store.record_oom_kill(first) is False
    assert await store.record_oom_kill(kill(oom_memory_bytes=5)) is False
    assert await store.record_oom_kill(second) is True
    assert list(await store.read_oom_records(NOW - timedelta(hours=1))) == [second, first]
    assert list(await store.read_oom_records(NOW)) == [first]
    assert list(await store.read_oom_records(NOW - timedelta(hours=1), ("shop", "Deployment/web"))) == [second, first]
    assert list(await store.read_oom_records(NOW - timedelta(hours=1), ("shop", "Deployment/other"))) == []


async def test_kills_of_one_container_are_limited_to_those_with_the_most_memory(store):
    loop = [kill(minutes=number - 60, oom_memory_bytes=number % 7 << 20) for number in range(50)]
    others = [kill(pod="web-1", pod_uid="uid-1"), kill("sidecar"), kill(identity="0", minutes=1), kill(minutes=-90)]
    for one in (*loop, *others):
        await store.record_oom_kill(one)
    since = NOW - timedelta(hours=1)
    found = await store.read_oom_records(since, most_of_container=2)
    largest = sorted(loop, key=lambda one: (-one.oom_memory_bytes, one.finished_at))[:2]
    assert sorted(found, key=repr) == sorted([*largest, *others[:3]], key=repr)
    assert [one.finished_at for one in found] == sorted(one.finished_at for one in found)
    every = await store.read_oom_records(since)
    assert len(every) == 53
    assert summarize_oom_records(found) == summarize_oom_records(every)
    assert list(await store.read_oom_records(since, ("shop", "Deployment/web"), 2)) == list(found)


rooms = st.none() | st.builds(Resources, st.integers(-(10**6), 10**6), st.integers(-(2**60), 2**60))


@given(containers=st.lists(targets, max_size=3).map(tuple), reason=reasons, at=times, uid=names, room=rooms)
@FEW_EXAMPLES
async def test_stores_a_refused_resize_until_the_next_one(open_empty, containers, reason, at, uid, room):
    async with open_empty() as store:
        await store.record_refused_resizes([])
        await store.record_refused_resizes(
            [
                RefusedResize(uid, (), ReasonCode.RESIZE_REFUSED, NOW),
                RefusedResize(f"{uid}-other", (), ReasonCode.RESIZE_REFUSED, NOW),
            ]
        )
        await store.record_refused_resizes([RefusedResize(uid, containers, reason, at, room)])
        refused = await store.read_refused_resizes()
    assert refused == {
        uid: RefusedResize(uid, containers, reason, at, room),
        f"{uid}-other": RefusedResize(f"{uid}-other", (), ReasonCode.RESIZE_REFUSED, NOW),
    }


originals = st.builds(
    OriginalSizes, st.sampled_from(["u1", "u2", "u3"]), names, names, st.lists(targets, max_size=2).map(tuple), times
)


@given(batches=st.lists(st.lists(originals, max_size=4), max_size=3))
@FEW_EXAMPLES
async def test_the_first_original_sizes_of_a_pod_stay_with_the_time_of_its_last_resize(open_empty, batches):
    async with open_empty() as store:
        for batch in batches:
            await store.record_original_sizes(batch)
        found = await store.read_original_sizes(["u1", "u2", "u3", "unknown"])
        assert set(await store.read_original_sizes(list(found)[:1])) == set(list(found)[:1])
        assert await store.read_original_sizes([]) == {}
        for since in {one.at for one in found.values()}:
            later = {uid: one.at for uid, one in found.items() if one.at >= since}
            for asked in (list(found), list(found)[:1], []):
                own = {uid: at for uid, at in later.items() if uid in asked}
                others = Counter(at.replace(second=0, microsecond=0) for uid, at in later.items() if uid not in asked)
                assert await store.read_last_resizes(asked, since) == LastResizes(own, others)
    written = [one for batch in batches for one in batch]
    expected = {}
    for one in written:
        first = next(other for other in written if other.pod_uid == one.pod_uid)
        latest = max(other.at for other in written if other.pod_uid == one.pod_uid)
        expected[one.pod_uid] = replace(first, at=latest)
    assert found == expected


# ---- observed risks ----

risk_days = st.builds(
    RiskDay,
    st.sampled_from(ResourceName),
    st.integers(20_000, 20_003),
    st.integers(0, 1 << 40),
    st.integers(0, 1 << 40),
    st.floats(0, 3),
)


@given(batches=st.lists(st.lists(risk_days, max_size=4), max_size=3))
@FEW_EXAMPLES
async def test_a_new_count_of_a_day_replaces_the_earlier_one(open_empty, batches):
    async with open_empty() as store:
        for batch in batches:
            await store.record_risk_days(batch)
        found = {(one.resource, one.day): one for one in await store.read_risk_days()}
    assert found == {(one.resource, one.day): one for batch in batches for one in batch}


async def test_the_peaks_of_one_hour_are_every_keys(store):
    first, second = PeakKey("shop", "Deployment/web", "app", ""), PeakKey("shop", "StatefulSet/db", "db", "0")
    await store.record_usage(
        UsageUpdate(
            "a",
            PartitionProgress(0, 1),
            HourlyPeaks(
                [first, second, first],
                np.array([100, 100, 101]),
                np.array([1.5, math.nan, 3.0]),
                np.array([7.0, 8.0, 9.0]),
            ),
            None,
        )
    )
    found = await store.read_peaks_of_hour(100)
    rows = dict(zip(found.keys, found.memory_bytes.tolist(), strict=True))
    assert rows == {first: 7.0, second: 8.0}
    cpu = dict(zip(found.keys, found.cpu_demand_millicores.tolist(), strict=True))
    assert cpu[first] == 1.5 and math.isnan(cpu[second])
    assert found.hours.tolist() == [100, 100]
    assert len((await store.read_peaks_of_hour(99)).keys) == 0


# ---- pauses ----


@given(
    paused=st.dictionaries(st.tuples(names, references), st.sampled_from([NOW, NOW - timedelta(days=1)]), max_size=4)
)
@FEW_EXAMPLES
async def test_workloads_stay_paused_since_their_first_pause_until_they_are_resumed(open_empty, paused):
    web = ("shop", WorkloadRef("Deployment", "web"))
    async with open_empty() as store:
        for (namespace, workload), since in paused.items():
            await store.write_workload_pause(namespace, workload, since)
        await store.write_workload_pause(*web, NOW)
        await store.write_workload_pause(*web, NOW + timedelta(hours=1))
        assert await store.read_paused_workloads() == {web: NOW, **paused}
        await store.write_workload_pause(*web, None)
        await store.write_workload_pause(*web, None)
        assert await store.read_paused_workloads() == {key: since for key, since in paused.items() if key != web}


async def test_the_pause_lasts_until_it_is_ended(store):
    assert await store.is_paused() is False
    await store.set_paused(True)
    await store.set_paused(True)
    assert await store.is_paused() is True
    await store.set_paused(False)
    assert await store.is_paused() is False


# ---- packing ----

arrivals = st.builds(
    PlannedPlacement, names, names, names, st.none() | names, names, st.lists(targets, max_size=2).map(tuple)
)
preemptions = st.builds(PlannedPreemption, names, names, names, names)
resizes = st.builds(
    ResizePod,
    names,
    names,
    names,
    st.none() | names,
    st.none() | references,
    st.just(()),
    st.just(Resources()),
    reasons,
)


def some(*kinds: st.SearchStrategy) -> st.SearchStrategy:
    return st.lists(st.one_of(*kinds), max_size=3).map(tuple)


requirements = st.builds(LabelRequirement, names, st.sampled_from(SelectorOperator), some(names))
findings = st.builds(
    UnschedulableReason,
    st.sampled_from(UnschedulableCode),
    unsupported=names,
    nodes=figures,
    blocking_pods=st.sampled_from(BlockingPodKind),
    missing_resources=some(st.tuples(names, figures)),
    selector=some(st.tuples(names, names)),
    node_terms=some(st.builds(NodeSelectorTerm, some(requirements), some(requirements))),
    affinity=some(
        st.builds(
            PodAffinityTerm, names, st.none() | st.builds(LabelSelector, some(requirements)), st.frozensets(names)
        )
    ),
    taints=some(st.builds(Taint, names, names, st.sampled_from(TaintEffect))),
)
proposals = st.builds(
    PackingProposal,
    st.sampled_from(PackingStatus),
    st.sampled_from(PackingSizes),
    some(st.builds(UnplacedPod, names, names, some(names), findings, st.booleans())),
    some(st.builds(PriorityResult, figures, figures, figures, figures)),
    some(st.builds(PlanStage, some(resizes), some(arrivals, preemptions), some(arrivals))),
    some(st.builds(PackingNote, st.sampled_from(PackingNoteCode), names, figures)),
)
hints_of_plans = st.builds(
    PlacementHint,
    names,
    names,
    names,
    names,
    names,
    st.none() | names,
    names,
    times,
    st.lists(targets, max_size=2).map(tuple),
)
plans = st.builds(
    PackingPlan,
    names,
    times,
    proposals,
    st.floats(0, 100),
    st.sampled_from(PlanPhase),
    times,
    st.integers(0, 9),
    some(st.builds(EvictedPod, names, times)),
    some(st.builds(ArrivalPod, names, names, st.none() | names)),
    st.lists(hints_of_plans, max_size=3, unique_by=lambda one: one.replaces).map(tuple),
    some(names),
    st.none() | times,
    st.none() | st.builds(PlanCondition, st.sampled_from(PlanStatusReason), names, names, st.integers(0, 9)),
)


@pytest.mark.smoke
@given(plan=plans, phase=st.sampled_from(PlanPhase))
@FEW_EXAMPLES
async def test_stores_a_packing_plan_with_progress_and_placement_hints(open_empty, plan, phase):
    later = replace(
        plan,
        phase=phase,
        stage=plan.stage + 1,
        expected=(),
        condition=PlanCondition(PlanStatusReason.POD_BINDING, "shop/web-1"),
    )
    async with open_empty() as store:
        assert await store.read_packing_plan() is None
        await store.write_packing_plan(plan)
        assert await store.read_packing_plan() == plan
        placed = {one.uid for one in plan.placed}
        hints = [one for one in plan.expected if plan.phase is PlanPhase.IN_PROGRESS and one.replaces not in placed]
        assert list(await store.read_placement_hints()) == sorted(hints, key=lambda one: one.replaces)
        await store.write_packing_plan(later)
        assert await store.read_packing_plan() == later
        assert list(await store.read_placement_hints()) == []


def packing(number: int, at: datetime = NOW) -> PackingPlan:
    proposal = PackingProposal(PackingStatus.OPTIMAL, PackingSizes.RIGHTSIZED, (), (), ())
    return PackingPlan(str(number), at, proposal, 0.1, PlanPhase.ADVISORY, at)


async def test_the_last_plan_is_that_of_the_latest_snapshot(store):
    await store.write_packing_plan(packing(1))
    await store.write_packing_plan(packing(2, NOW - timedelta(minutes=5)))
    found = await store.read_packing_plan()
    assert found is not None
    assert found.id == "1"


# ---- retention ----


@pytest.mark.smoke
@pytest.mark.parametrize("late", [False, True], ids=["in time", "past it"])
async def test_each_kind_is_kept_for_its_time(store, late):
    """Everything is written at the last moment of its retention, or one step of its clock before it."""
    step = timedelta(seconds=1) if late else timedelta(0)

    def last_moment(kept: timedelta) -> datetime:
        return NOW - kept - step

    def seconds(kept: timedelta) -> int:
        return int(last_moment(kept).timestamp())

    oldest_hour = int((NOW - RETENTION.hourly_peaks).timestamp()) // 3600 - int(late)
    rows = [
        statistic("web-0", updated_at=seconds(RETENTION.pod_statistics)),
        statistic("", updated_at=seconds(RETENTION.statistics)),
    ]
    await store.write_statistics(StatisticsTable.from_rows(rows))
    # A block is out once its last time is as old as the retention.
    block = block_at(seconds(RETENTION.sample_blocks) + int(not late))
    peaks = hourly((peak_key(1), oldest_hour, 1.0, 2.0))
    old = advance("old", read_until=seconds(RETENTION.partitions), peaks=peaks, block=block)
    await store.record_usage(replace(old, starts=[container_start(0, seconds(RETENTION.container_starts))]))
    await store.record_oom_kill(kill(finished_at=last_moment(RETENTION.oom_records)))
    done = eviction(0)
    await store.record_outcomes([Outcome(last_moment(RETENTION.outcomes), done.action, done.result, done.reason)])
    await store.record_refused_resizes(
        [RefusedResize("uid", (), ReasonCode.RESIZE_REFUSED, last_moment(RETENTION.refused_resizes))]
    )
    await store.record_original_sizes(
        [OriginalSizes("uid", "shop", "web-0", (), last_moment(RETENTION.original_sizes))]
    )
    await store.write_packing_plan(packing(1, last_moment(RETENTION.packing_plans)))
    oldest_day = int((NOW - RETENTION.risk_days).timestamp()) // 86400 - int(late)
    await store.record_risk_days([RiskDay(ResourceName.CPU, oldest_day, 2, 1, 0.5)])
    await store.set_paused(True)
    await store.write_workload_pause("shop", WorkloadRef("Deployment", "web"), NOW - timedelta(days=400))

    await store.prune(NOW)

    long_ago = NOW - timedelta(days=400)
    counts = {
        "statistics": len((await store.read_statistics()).keys),
        "blocks": len(await store.read_recent_blocks(0)),
        "partitions": len(await store.read_usage_progress()),
        "peaks": len((await store.read_peak_summary([], 0)).keys),
        "starts": len(await store.read_container_starts()),
        "kills": len(await store.read_oom_records(long_ago)),
        "outcomes": len(await store.read_outcomes(long_ago)),
        "evictions": len(await store.read_evictions_since(long_ago)),
        "refusals": len(await store.read_refused_resizes()),
        "originals": len(await store.read_original_sizes(["uid"])),
        "packings": int(await store.read_packing_plan() is not None),
        "risk days": len(await store.read_risk_days()),
    }
    kept = {name: 2 if name == "statistics" else 1 for name in counts}
    assert counts == ({name: 0 for name in counts} if late else kept)
    assert await store.is_paused() is True
    assert len(await store.read_paused_workloads()) == 1


@pytest.mark.smoke
async def test_reads_user_actions_newest_first(store):
    web = WorkloadRef("Deployment", "web")
    paused = UserAction(NOW, "ann", UserActionKind.PAUSE)
    set_ = UserAction(NOW, "bob", UserActionKind.PUT_POLICY, "shop", web, '{"mode":"off"}')
    removed = UserAction(NOW - timedelta(hours=1), "system:x", UserActionKind.DELETE_POLICY, "shop", web)
    for one in (removed, paused, set_):
        await store.record_user_action(one)
    assert await store.read_user_actions(NOW - timedelta(days=1)) == [set_, paused, removed]
    assert await store.read_user_actions(NOW, 1) == [set_]
    assert await store.read_user_actions(NOW, 1, {"bank"}) == [paused]
    assert await store.read_user_actions(NOW - timedelta(days=1), 9, {"shop"}) == [set_, paused, removed]
    assert await store.read_audited_namespaces() == {"shop"}
    assert await store.read_user_actions(NOW + timedelta(seconds=1)) == []
    await store.prune(NOW - timedelta(minutes=30) + RETENTION.user_actions)
    assert await store.read_user_actions(NOW - timedelta(days=1)) == [set_, paused]


@pytest.mark.smoke
async def test_reads_cluster_hours_oldest_first_and_keeps_the_first_of_an_hour(store):
    hour = get_clock_hour(NOW)
    large, middle, small = (Resources(8000 + number, number << 40) for number in range(3))
    kept = [HourlyClusterTotals(hour + at, large, middle, small, Resources(-500, -(1 << 40))) for at in (0, 1, 5)]
    for one in (kept[2], kept[0], kept[1], replace(kept[1], saved=Resources(1, 1))):
        await store.store_hourly_totals(one)
    assert await store.read_hourly_totals(hour) == kept
    assert await store.read_hourly_totals(hour + 1) == kept[1:]
    await store.prune(kept[1].at + RETENTION.cluster_hours)
    assert await store.read_hourly_totals(0) == kept[1:]


@pytest.mark.smoke
async def test_after_a_month_another_key_signs_and_those_before_it_verify_as_long_as_sizes_are_kept(store):
    months = [await _keys_at(store, NOW + number * RETENTION.signing_key) for number in range(6)]
    assert [len(keys) for keys in months] == [1, 2, 3, 4, 5, 5]
    assert {len(key) for keys in months for key in keys} == {32}
    assert all(later[1:] == earlier[: len(later) - 1] for earlier, later in pairwise(months))
    # Nothing is made twice.
    assert await _keys_at(store, NOW + 5 * RETENTION.signing_key) == months[-1]


async def _keys_at(store: StorePort, now: datetime) -> list[bytes]:
    await store.prune(now)
    return list(await store.read_signing_keys())


@pytest.mark.smoke
async def test_pruning_leaves_younger_neighbours_as_they_are(store):
    old_hour = NOW_HOUR - 24 * 9
    rows = [(peak_key(1), old_hour, 1.0, 1.0), (peak_key(2), old_hour, 1.0, 1.0), (peak_key(2), NOW_HOUR, 3.0, 4.0)]
    await store.record_usage(advance("a", peaks=hourly(*rows), block=block_at(NOW_SECONDS)))
    await store.write_statistics(
        StatisticsTable.from_rows([statistic("web-0", updated_at=NOW_SECONDS - 9 * 86400), statistic("web-1")])
    )
    await store.prune(NOW)
    await store.record_usage(
        advance("a", peaks=hourly((peak_key(3), NOW_HOUR, 5.0, 6.0), (peak_key(1), NOW_HOUR, 7.0, 8.0)))
    )

    summary = await store.read_peak_summary([NOW_HOUR], 0)
    found = dict(zip(summary.keys, summary.cpu_peak_millicores.tolist(), strict=True))
    assert found == {peak_key(1): 7.0, peak_key(2): 3.0, peak_key(3): 5.0}
    assert summary.first_hour.tolist() == [NOW_HOUR] * 3
    table = await store.read_statistics()
    assert list(table.row_of_container) == [ContainerKey("shop", "web-1", "app")]
    assert table.get_row(table.row_of_container[ContainerKey("shop", "web-1", "app")]) == statistic("web-1")
    assert len(await store.read_recent_blocks(0)) == 1

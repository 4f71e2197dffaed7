"""A node pass reads the usage pass's table, and the store before the first usage pass."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from cruise.decisions.sizing.headroom import HEADROOM_MODELS
from cruise.domain.actions import ReasonCode
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.policy import Mode, Policy
from cruise.domain.usage import (
    NodeLoadAverage,
    NodeUsage,
    OomRecord,
    PartitionCounterTail,
    SampleBlock,
    StatisticsTable,
)
from cruise.errors import UnavailableError
from cruise.runtime.headroom import HeadroomState
from cruise.runtime.node_pass import STEPS, NodePassResult, run_node_pass
from cruise.runtime.ports import PassContext, UsageSourcePort
from cruise.runtime.usage.usage_pass import run_usage_pass
from cruise.runtime.usage.usage_reader import UsageReadingSettings
from cruise.runtime.usage.usage_state import UsageState
from cruise.simulation.demo_cluster import create_demo_cluster
from cruise.simulation.store import InMemoryStore

START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
POLICY = Policy(mode=Mode.FULL)
PASS = timedelta(minutes=5)


class CountingStore(InMemoryStore):
    """Counts how often all statistics are read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    async def read_statistics(self) -> StatisticsTable:
        self.reads += 1
        return await super().read_statistics()


class Source:
    """A usage source that is out of reach while `away`."""

    def __init__(self, inner: UsageSourcePort) -> None:
        self._inner = inner
        self.away = False

    async def list_partitions(self, snapshot: ClusterSnapshot) -> Sequence[str]:
        return await self._inner.list_partitions(snapshot)

    async def read(
        self, partition: str, start: int, end: int, tail: PartitionCounterTail | None
    ) -> tuple[SampleBlock, PartitionCounterTail | None]:
        if self.away:
            raise UnavailableError("Prometheus does not answer")
        return await self._inner.read(partition, start, end, tail)

    async def read_node_usage(self, nodes: Collection[str], start: int, end: int) -> NodeUsage:
        return await self._inner.read_node_usage(nodes, start, end)

    async def read_node_loads(self, at: int) -> Mapping[str, NodeLoadAverage]:
        return {}


class Process:
    """One process: usage passes and node passes over one store, with their own state."""

    def __init__(self, store: CountingStore, policy: Policy = POLICY, before: "Process | None" = None) -> None:
        if before is None:
            cluster, usage = create_demo_cluster(START)
            self.cluster, self.source = cluster, Source(usage)
        else:
            self.cluster, self.source = before.cluster, before.source
        self.store, self.policy, self.state = store, policy, UsageState()
        self.headroom = HeadroomState(self.state)

    async def usage_pass(self) -> StatisticsTable:
        reading = UsageReadingSettings(scrape_delay_seconds=0)
        now = self.cluster.now
        return await run_usage_pass(self.cluster, self.source, self.store, self.state, self.policy, now, reading)

    async def node_pass(self) -> NodePassResult:
        return await run_node_pass(
            PassContext(self.cluster, self.store, self.policy, self.cluster.now),
            usage=self.state,
            headroom=self.headroom,
        )


def held(done: NodePassResult) -> set[ReasonCode]:
    return {hold.reason for plan in done.plans for hold in plan.skipped}


async def test_after_a_usage_pass_no_statistics_are_read_from_the_store() -> None:
    process = Process(CountingStore())
    await process.usage_pass()
    process.store.reads = 0
    for turn in range(1, 4):
        assert (await process.node_pass()).plans
        process.cluster.advance(START + turn * PASS)
        await process.usage_pass()
    assert process.store.reads == 0


@pytest.mark.parametrize("headroom", HEADROOM_MODELS)
async def test_the_table_in_memory_and_the_store_decide_the_same(headroom: str) -> None:
    policy = replace(POLICY, headroom=headroom)
    process = Process(CountingStore(), policy)
    resized = 0
    for turn in range(1, 13):
        await process.usage_pass()
        now, observe = process.cluster.now, replace(policy, mode=Mode.OBSERVE)
        from_store = await run_node_pass(
            PassContext(process.cluster, process.store, observe, now), headroom=HeadroomState(process.state)
        )
        reads = process.store.reads
        from_memory = await run_node_pass(
            PassContext(process.cluster, process.store, observe, now),
            usage=process.state,
            headroom=HeadroomState(process.state),
        )
        assert process.store.reads == reads
        assert from_memory.plans == from_store.plans
        assert from_memory.outcomes == from_store.outcomes
        resized += sum(len(plan.resize) for plan in from_memory.plans)
        await process.node_pass()
        process.cluster.advance(START + turn * PASS)
    assert resized > 0


async def test_a_new_leader_reads_the_store_once_and_decides_as_the_former_one_would_have() -> None:
    store = CountingStore()
    former = Process(store, replace(POLICY, mode=Mode.OBSERVE, headroom="shared-max"))
    await former.usage_pass()
    store.reads = 0
    leader = Process(store, former.policy, before=former)
    first, second = await leader.node_pass(), await leader.node_pass()
    assert store.reads == 1
    expected = await former.node_pass()
    assert first.plans == second.plans == expected.plans
    await leader.usage_pass()
    assert store.reads == 1


async def test_the_store_is_read_once_where_usage_comes_first_as_well() -> None:
    store = CountingStore()
    former = Process(store)
    await former.usage_pass()
    store.reads = 0
    leader = Process(store, before=former)
    former.source.away = True
    former.cluster.advance(START + PASS)
    with pytest.raises(UnavailableError):
        await leader.usage_pass()
    assert held(await leader.node_pass()) == held(await former.node_pass())
    assert store.reads == 1


async def test_what_is_not_renewed_for_max_age_changes_nothing() -> None:
    process = Process(CountingStore())
    table = await process.usage_pass()
    assert (await process.node_pass()).outcomes
    process.source.away = True
    updated = datetime.fromtimestamp(int(table.updated_at.max()), UTC)
    process.cluster.advance(updated + POLICY.max_age)
    with pytest.raises(UnavailableError):
        await process.usage_pass()
    assert ReasonCode.STALE_STATISTICS not in held(await process.node_pass())
    process.cluster.advance(updated + POLICY.max_age + timedelta(seconds=1))
    with pytest.raises(UnavailableError):
        await process.usage_pass()
    late = await process.node_pass()
    assert ReasonCode.STALE_STATISTICS in held(late)
    assert [resize for plan in late.plans for resize in plan.resize] == []
    assert [eviction for plan in late.plans for eviction in plan.evict] == []
    process.source.away = False
    await process.usage_pass()
    assert ReasonCode.STALE_STATISTICS not in held(await process.node_pass())


async def test_an_oom_record_counts_from_the_next_node_pass_on() -> None:
    process = Process(CountingStore())
    table = await process.usage_pass()
    key = next(key for key in table.keys if key.pod)
    lesson = 7 << 30
    record = OomRecord(
        key.namespace, key.pod, "uid", key.workload, key.container, key.identity, None, START, None, None, None, lesson
    )
    process.state.apply_oom_record(record, shared=False)
    taught = await process.state.get_statistics(process.store)
    row = taught.row_of_container[key.namespace, key.pod, key.container]  # type: ignore[index]
    assert taught.oom_memory_bytes[row] == lesson
    assert table.oom_memory_bytes[row] < lesson
    # A table that is not read yet is read with the lesson in it.
    unread = UsageState()
    unread.apply_oom_record(record, shared=False)
    assert unread.table is None


async def test_every_step_is_timed_in_its_order() -> None:
    process = Process(CountingStore())
    await process.usage_pass()
    done = await process.node_pass()
    assert list(done.seconds) == [name for name, _ in STEPS]
    assert all(seconds >= 0 for seconds in done.seconds.values())

"""Properties of the real database: values that it cannot store, and the use of indexes."""

import asyncio
import gc
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from sqlalchemy import text

from cruise.adapters.store.connection import Database
from cruise.adapters.store.postgres import open_store
from cruise.domain.actions import ActionResult, Outcome, ReasonCode, UntaintNode
from cruise.domain.usage import (
    HourlyPeaks,
    PartitionProgress,
    PeakKey,
    Statistic,
    StatisticKey,
    StatisticsTable,
    UsageUpdate,
)
from cruise.errors import BadInputError, pause_garbage_collection
from tests.builders import NOW
from tests.postgres_servers import dsn_below, emptied


@pytest.fixture(scope="module")
def data_dir(embedded_postgres):
    emptied(dsn_below(embedded_postgres))
    return embedded_postgres


@pytest.fixture
async def store(data_dir):
    async with open_store(None, data_dir, pytest.fail) as opened:
        yield opened


def statistic(pod: str, cpu_base: int = 1) -> Statistic:
    return Statistic(StatisticKey("shop", pod, "Deployment/web", "app"), 1, 1, cpu_base, 1, 1, 1, 1)


def test_garbage_collection_is_enabled_again_after_errors():
    with pytest.raises(ZeroDivisionError), pause_garbage_collection():
        assert not gc.isenabled()
        _ = 1 / 0
    assert gc.isenabled()


async def test_rejects_a_value_that_postgres_cannot_store(store):
    await store.write_statistics(StatisticsTable.from_rows([statistic("web-0")]))
    with pytest.raises(BadInputError) as refused:
        await store.write_statistics(StatisticsTable.from_rows([statistic("web-0", 2), statistic("null\0byte")]))
    assert "\n" not in str(refused.value)

    far_away = HourlyPeaks([PeakKey("a", "b", "c", "")], np.array([1 << 40]), np.ones(1), np.ones(1))
    with pytest.raises(BadInputError):
        await store.record_usage(UsageUpdate("a", PartitionProgress(0, 1), far_away, None))

    table = await store.read_statistics()
    assert [table.get_row(row) for row in range(len(table.keys))] == [statistic("web-0")]
    assert await store.read_usage_progress() == {}


async def test_stores_a_detail_without_what_postgres_cannot_store(store):
    action = UntaintNode("n1", ReasonCode.LOAD_NORMAL)
    await store.record_outcomes([Outcome(NOW, action, ActionResult.REFUSED, ReasonCode.FORBIDDEN, "denied:\0 no")])
    [kept] = await store.read_outcomes(NOW - timedelta(hours=1))
    assert kept.detail == "denied: no"


async def test_rows_that_a_pass_replaces_stay_on_their_page(store, data_dir):
    """Where they do, no index is touched."""
    database = Database(f"postgresql://postgres@/postgres?host={data_dir}/postgres")

    async def pages() -> dict[str, int]:
        async with database.transaction() as connection:
            rows = await connection.execute(text("SELECT pod, (ctid::text::point)[0]::int FROM pod_statistic"))
            return {pod: page for pod, page in rows}

    table = StatisticsTable.from_rows([statistic(f"web-{number}") for number in range(2000)])
    await store.write_statistics(table)
    before = await pages()
    for turn in range(3):
        await store.write_statistics(replace(table, cpu_base_millicores=table.cpu_base_millicores + turn))
    after = await pages()
    await database.close()
    assert sum(after[pod] == page for pod, page in before.items()) >= 0.99 * len(before)
    assert len(set(after.values())) > 10


async def test_two_writers_of_the_same_peaks_do_not_deadlock(store):
    keys = [PeakKey("shop", f"Deployment/app-{number:05}", "app", "") for number in range(20_000)]
    for turn in range(3):
        both = [
            UsageUpdate(
                partition,
                PartitionProgress(0, turn),
                HourlyPeaks(order, np.full(len(order), turn), np.full(len(order), 1.0 + turn), np.ones(len(order))),
                None,
            )
            for partition, order in (("a", keys[:15_000]), ("b", keys[:5_000:-1]))
        ]
        await asyncio.gather(*(store.record_usage(advance) for advance in both))
    summed = await store.read_peak_summary(range(10), 0)
    assert set(keys) <= set(summed.keys)

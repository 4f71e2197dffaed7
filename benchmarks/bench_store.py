"""The store on an embedded Postgres at the size of 5,000 nodes: 225,000 containers of 40,000 workloads."""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
from numpy.random import Generator
from sqlalchemy import text

from benchmarks.table import BenchmarkRow, peak_memory_mib
from cruise.adapters.store.connection import Database
from cruise.adapters.store.embedded_postgres import EmbeddedPostgres
from cruise.adapters.store.postgres import PostgresStore, open_store
from cruise.domain.arrays import Int64Array
from cruise.domain.usage import (
    ContainerKey,
    HourlyPeaks,
    PartitionCounterTail,
    PartitionProgress,
    PeakKey,
    SampleBlock,
    StatisticKey,
    StatisticsTable,
    UsageUpdate,
)

NAME = "store"
CONTAINERS = 225_000
WORKLOADS = 40_000
PARTITIONS = 9
STEPS = 5  # a pass of five minutes, a sample a minute
HOUR = 490_000
HOURS = 168
PEAK_KEYS = 30_000  # times 168 hours: 5 million rows
LIMIT_SECONDS = 10.0

# Two passes are recorded; with these it is fourteen.
_MORE_BLOCKS = (
    "INSERT INTO sample_block (last_time, samples) "
    "SELECT last_time + 300 * n, samples FROM sample_block, generate_series(1, 6) AS n",
)
_MANY_PEAKS = (
    "TRUNCATE hourly_peak, peak_key RESTART IDENTITY",
    "INSERT INTO peak_key (namespace, workload, container, identity) "
    f"SELECT 'bench', 'Deployment/' || n, 'app', '' FROM generate_series(1, {PEAK_KEYS}) AS n",
    "INSERT INTO hourly_peak SELECT hour, id, random() * 1000, random() * 1e9 "
    f"FROM generate_series({HOUR - HOURS + 1}, {HOUR}) AS hour, peak_key",
    "ANALYZE hourly_peak",
)


def run() -> list[BenchmarkRow]:
    """Measure the wall seconds of each operation, including the client."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        Path(directory).chmod(0o755)
        return asyncio.run(_measure(Path(directory)))


async def _measure(data_dir: Path) -> list[BenchmarkRow]:
    rng = np.random.default_rng(1)
    rows: list[BenchmarkRow] = []
    async with open_store(None, data_dir, print) as store:

        async def timed(
            measure: str, step: Callable[[], Awaitable[object]], limit_seconds: float | None = None
        ) -> None:
            started = time.perf_counter()
            await step()
            seconds = time.perf_counter() - started
            comparison = f"limit {limit_seconds:.0f} s" if limit_seconds else ""
            ratio = seconds / limit_seconds if limit_seconds else None
            rows.append(BenchmarkRow(NAME, measure, seconds, "s", comparison, ratio, peak_memory_mib()))

        keys = _statistic_keys()
        first, second = _statistics(keys, rng), _statistics(keys, rng)
        await timed(f"write {len(keys):,} new statistics", lambda: store.write_statistics(first), LIMIT_SECONDS)
        await timed("replace all of them", lambda: store.write_statistics(second), LIMIT_SECONDS)
        await timed("replace all of them again", lambda: store.write_statistics(first), LIMIT_SECONDS)
        await timed("read all of them", store.read_statistics)
        await _look_ups(store, rows)

        advances = [_advance(partition, HOUR, rng) for partition in range(PARTITIONS)]
        again = [_advance(partition, HOUR, rng) for partition in range(PARTITIONS)]
        await timed("record one pass of usage, keys unknown", lambda: _record(store, advances))
        await timed("record one pass of usage, same hour", lambda: _record(store, again))

        await _on_server(data_dir, *_MORE_BLOCKS)
        await timed("read 70 minutes of blocks back", lambda: store.read_recent_blocks(0))

        await _on_server(data_dir, *_MANY_PEAKS)
        hours = {HOUR - 24 * day + ahead for day in range(8) for ahead in (0, 1)}
        for turn in ("first", "second"):
            measure = f"sum up {HOURS * PEAK_KEYS / 1e6:.1f} M hourly peaks, {turn} time"
            await timed(measure, lambda: store.read_peak_summary(hours, HOUR - HOURS))
        await timed(
            "hourly peaks of one workload", lambda: store.read_workload_peaks("bench", "Deployment/7", HOUR - HOURS)
        )
    return rows


async def _look_ups(store: PostgresStore, rows: list[BenchmarkRow]) -> None:
    count = 500
    started = time.perf_counter()
    for number in range(count):
        workload = f"Deployment/service-{number * 7:05d}"
        found = await store.read_pod_statistics(f"team-{number * 7 % 200:03d}", "", workload, "")
        assert len(found.keys) == 1
    milliseconds = (time.perf_counter() - started) / count * 1000
    rows.append(BenchmarkRow(NAME, "statistics of one pod to be admitted", milliseconds, "ms"))


async def _record(store: PostgresStore, advances: list[UsageUpdate]) -> None:
    for advance in advances:
        await store.record_usage(advance)


async def _on_server(data_dir: Path, *statements: str) -> None:
    """Create rows on the server, because sending millions of them would take too long."""
    database = Database(EmbeddedPostgres(data_dir).dsn)
    async with database.transaction() as connection:
        for statement in statements:
            await connection.execute(text(statement))
    await database.close()


def _workload(number: int) -> str:
    return f"Deployment/service-{number:05d}"


def _pod(container: int) -> str:
    # Generated names have unique suffixes.
    return f"service-{container % WORKLOADS:05d}-7d9f8b6c5-{container:06x}"


def _statistic_keys() -> list[StatisticKey]:
    pods = [
        StatisticKey(f"team-{number % WORKLOADS % 200:03d}", _pod(number), _workload(number % WORKLOADS), "app")
        for number in range(CONTAINERS)
    ]
    workloads = [StatisticKey(f"team-{n % 200:03d}", "", _workload(n), "app") for n in range(WORKLOADS)]
    return pods + workloads


def _statistics(keys: list[StatisticKey], rng: Generator) -> StatisticsTable:
    def column() -> Int64Array:
        return rng.integers(0, 1 << 36, len(keys))

    return StatisticsTable(
        keys=keys,
        updated_at=column(),
        history_since=column(),
        cpu_base_millicores=column(),
        cpu_peak_millicores=column(),
        memory_base_bytes=column(),
        memory_peak_bytes=column(),
        memory_7d_max_bytes=column(),
        cpu_7d_max_millicores=column(),
        cpu_start_millicores=column(),
        oom_memory_bytes=column(),
        memory_last_bytes=column(),
        rejected_percent=np.zeros(len(keys), dtype=np.int64),
        rejected_reasons=np.zeros(len(keys), dtype=np.int64),
        psi_known=rng.random(len(keys)) < 0.9,
    )


def _advance(partition: int, hour: int, rng: Generator) -> UsageUpdate:
    numbers = np.arange(partition, CONTAINERS, PARTITIONS)
    keys = [ContainerKey(f"team-{n % WORKLOADS % 200:03d}", _pod(n), "app") for n in numbers.tolist()]
    workloads = np.unique(numbers % WORKLOADS)
    shape = (len(numbers), STEPS)
    # Working sets are whole pages and change little per minute.
    pages = rng.lognormal(10, 1, (len(numbers), 1)) * (1 + 0.01 * rng.standard_normal(shape))
    counters = rng.random((2, len(numbers))) * 1e6
    series = [f"containerd://{rng.bytes(32).hex()}" for _ in keys]
    changed_at = np.full(len(keys), hour * 3600)
    return UsageUpdate(
        partition=f"partition-{partition}",
        progress=PartitionProgress(
            0,
            hour * 3600,
            counter_tail=PartitionCounterTail(hour * 3600, keys, series, counters[0], counters[1], changed_at),
        ),
        peaks=HourlyPeaks(
            keys=[PeakKey(f"team-{n % 200:03d}", _workload(n), "app", "") for n in workloads.tolist()],
            hours=np.full(len(workloads), hour, dtype=np.int64),
            cpu_demand_millicores=rng.lognormal(4, 1, len(workloads)),
            memory_bytes=rng.lognormal(19, 1, len(workloads)),
        ),
        block=SampleBlock(
            keys=keys,
            times=hour * 3600 - 60 * np.arange(STEPS, dtype=np.int64)[::-1],
            cpu_demand_millicores=rng.lognormal(4, 1, shape).astype(np.float32),
            memory_bytes=np.round(pages) * 4096,
            psi_known=np.ones(len(numbers), dtype=np.bool_),
        ),
    )

"""Hourly peaks: one row for each key and hour, raised and never lowered.

Arrays go to the server as they are and are unfolded there: the statements name what SQLAlchemy has no shorter word
for, and go to the driver. NaN, which Postgres takes for the largest number, is stored as NULL.
"""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from cruise.adapters.store.connection import get_driver_connection
from cruise.adapters.store.schema import cluster_hour, headroom_sharing, hourly_peak, peak_key, risk_day
from cruise.domain.records import HeadroomSharing, HourlyClusterTotals, RiskDay
from cruise.domain.resources import ResourceName, Resources
from cruise.domain.usage import HourlyPeaks, PeakKey, PeakSummary
from cruise.errors import pause_garbage_collection

# Shared by writers of peaks, exclusive for the removal of keys that have none.
PEAKS_LOCK = 0x6372_7569_7365_0003

_KEYS = """
unnest($1::text[], $2::text[], $3::text[], $4::text[]) WITH ORDINALITY
    AS incoming (namespace, workload, container, identity, position)
"""
_FIND = f"""
SELECT incoming.position - 1, peak_key.id
FROM {_KEYS} JOIN peak_key USING (namespace, workload, container, identity)
"""
# Only the missing ones are inserted: each attempt takes a number of the four-byte sequence, in vain or not.
# Rows are locked in one order everywhere, so that two writers of the same keys wait for each other and no more.
_ADD = f"""
INSERT INTO peak_key (namespace, workload, container, identity)
SELECT namespace, workload, container, identity
FROM {_KEYS}
WHERE NOT EXISTS (
    SELECT FROM peak_key AS known
    WHERE known.namespace = incoming.namespace AND known.workload = incoming.workload
        AND known.container = incoming.container AND known.identity = incoming.identity
)
ORDER BY 1, 2, 3, 4
ON CONFLICT DO NOTHING
"""
_RAISE = """
INSERT INTO hourly_peak AS known (hour, key_id, cpu_demand_millicores, memory_bytes)
SELECT hour, key_id, max(nullif(cpu, 'NaN')), max(nullif(memory, 'NaN'))
FROM unnest($1::integer[], $2::integer[], $3::float8[], $4::float8[]) AS incoming (hour, key_id, cpu, memory)
GROUP BY hour, key_id
ORDER BY hour, key_id
ON CONFLICT (hour, key_id) DO UPDATE
SET cpu_demand_millicores = greatest(known.cpu_demand_millicores, excluded.cpu_demand_millicores),
    memory_bytes = greatest(known.memory_bytes, excluded.memory_bytes)
WHERE (known.cpu_demand_millicores, known.memory_bytes) IS DISTINCT FROM (
    greatest(known.cpu_demand_millicores, excluded.cpu_demand_millicores),
    greatest(known.memory_bytes, excluded.memory_bytes)
)
"""
_SUMMARY = """
WITH summary AS (
    SELECT key_id,
        max(cpu_demand_millicores) FILTER (WHERE hour = ANY ($1::integer[])) AS cpu_peak,
        max(memory_bytes) FILTER (WHERE hour = ANY ($1::integer[])) AS memory_peak,
        max(memory_bytes) AS memory_max,
        min(hour) AS first_hour
    FROM hourly_peak
    WHERE hour >= $2
    GROUP BY key_id
)
SELECT namespace, workload, container, identity, cpu_peak, memory_peak, memory_max, first_hour
FROM summary JOIN peak_key ON peak_key.id = summary.key_id
"""
_OF_HOUR = """
SELECT namespace, workload, container, identity, cpu_demand_millicores, memory_bytes
FROM hourly_peak JOIN peak_key ON peak_key.id = hourly_peak.key_id
WHERE hour = $1::integer
"""
# Both columns of the primary key are given as lists, so that a workload's rows are looked up one by one.
_OF_WORKLOAD = """
SELECT peak_key.namespace, peak_key.workload, peak_key.container, peak_key.identity,
    hour, cpu_demand_millicores, memory_bytes
FROM hourly_peak JOIN peak_key ON peak_key.id = hourly_peak.key_id
WHERE hourly_peak.key_id = ANY (ARRAY(SELECT id FROM peak_key WHERE namespace = $1 AND workload = $2))
    AND hour = ANY (ARRAY(SELECT generate_series($3::integer, (SELECT max(hour) FROM hourly_peak))))
ORDER BY 1, 2, 3, 4, 5
"""


async def merge_peaks(connection: AsyncConnection, peaks: HourlyPeaks) -> None:
    """Raise the stored peaks to those given, where they are higher."""
    sampled = np.flatnonzero(~(np.isnan(peaks.cpu_demand_millicores) & np.isnan(peaks.memory_bytes)))
    if not len(sampled):
        return
    keys = [peaks.keys[row] for row in sampled.tolist()]
    await connection.execute(select(func.pg_advisory_xact_lock_shared(PEAKS_LOCK)))
    driver = await get_driver_connection(connection)
    number_of = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    ids = await _intern(driver, list(number_of))
    numbers = np.fromiter(map(number_of.__getitem__, keys), np.int64, len(keys))
    await driver.execute(
        _RAISE,
        peaks.hours[sampled].tolist(),
        ids[numbers].tolist(),
        peaks.cpu_demand_millicores[sampled].tolist(),
        peaks.memory_bytes[sampled].tolist(),
    )


async def _intern(driver: Any, keys: Sequence[PeakKey]) -> np.ndarray[Any, np.dtype[np.int64]]:  # noqa: ANN401
    """Return each key's number in the database, given one now where it has none."""
    columns = list(zip(*keys, strict=True))
    found = await driver.fetch(_FIND, *columns)
    if len(found) < len(keys):
        await driver.execute(_ADD, *columns)
        found = await driver.fetch(_FIND, *columns)
    ids = np.zeros(len(keys), dtype=np.int64)
    pairs = np.array([tuple(row) for row in found], dtype=np.int64)
    ids[pairs[:, 0]] = pairs[:, 1]
    return ids


async def summarize_peaks(connection: AsyncConnection, hours: Collection[int], since_hour: int) -> PeakSummary:
    """Sum up each key's peaks from `since_hour` on, and over those of `hours` that are not before it."""
    driver = await get_driver_connection(connection)
    rows = await driver.fetch(_SUMMARY, sorted(hours), since_hour)
    columns = list(zip(*rows, strict=True)) or [()] * 8
    return PeakSummary(
        keys=list(map(PeakKey._make, zip(*columns[:4], strict=True))),
        cpu_peak_millicores=np.array(columns[4], dtype=np.float64),
        memory_peak_bytes=np.array(columns[5], dtype=np.float64),
        memory_7d_max_bytes=np.array(columns[6], dtype=np.float64),
        first_hour=np.array(columns[7], dtype=np.int64),
    )


async def read_peaks_of_workload(
    connection: AsyncConnection, namespace: str, workload: str, since_hour: int
) -> HourlyPeaks:
    """Return one workload's peaks from an hour on, sorted by key and hour."""
    driver = await get_driver_connection(connection)
    rows = await driver.fetch(_OF_WORKLOAD, namespace, workload, since_hour)
    columns = list(zip(*rows, strict=True)) or [()] * 7
    return HourlyPeaks(
        keys=list(map(PeakKey._make, zip(*columns[:4], strict=True))),
        hours=np.array(columns[4], dtype=np.int64),
        cpu_demand_millicores=np.array(columns[5], dtype=np.float64),
        memory_bytes=np.array(columns[6], dtype=np.float64),
    )


async def read_peaks_of_hour(connection: AsyncConnection, hour: int) -> HourlyPeaks:
    """Return every key's peaks of one hour."""
    driver = await get_driver_connection(connection)
    rows = await driver.fetch(_OF_HOUR, hour)
    columns = list(zip(*rows, strict=True)) or [()] * 6
    keys = list(map(PeakKey._make, zip(*columns[:4], strict=True)))
    return HourlyPeaks(
        keys=keys,
        hours=np.full(len(keys), hour, dtype=np.int64),
        cpu_demand_millicores=np.array(columns[4], dtype=np.float64),
        memory_bytes=np.array(columns[5], dtype=np.float64),
    )


async def prune_peaks(connection: AsyncConnection, before_hour: int) -> None:
    """Drop the peaks before an hour, and then the keys that have none left."""
    dropped = await connection.execute(delete(hourly_peak).where(hourly_peak.c.hour < before_hour))
    if not dropped.rowcount:
        return
    await connection.execute(select(func.pg_advisory_xact_lock(PEAKS_LOCK)))
    has_peaks = select(hourly_peak.c.key_id).where(hourly_peak.c.key_id == peak_key.c.id).exists()
    await connection.execute(delete(peak_key).where(~has_peaks))


# The sums of the cluster by the hour.

_SUMS = ("allocatable", "requested", "used", "saved")


async def insert_cluster_hour(connection: AsyncConnection, one: HourlyClusterTotals) -> None:
    """Store an hour; what is stored of it already stays."""
    sums = {name: getattr(one, name) for name in _SUMS}
    values = {f"{name}_cpu_millicores": amount.cpu_millicores for name, amount in sums.items()}
    values |= {f"{name}_memory_bytes": amount.memory_bytes for name, amount in sums.items()}
    await connection.execute(insert(cluster_hour).values(hour=one.hour, **values).on_conflict_do_nothing())


async def read_cluster_hours(connection: AsyncConnection, hour: int) -> Sequence[HourlyClusterTotals]:
    """Return the hours from one on, oldest first."""
    rows = await connection.execute(
        select(cluster_hour).where(cluster_hour.c.hour >= hour).order_by(cluster_hour.c.hour)
    )
    with pause_garbage_collection():
        return [
            HourlyClusterTotals(
                row["hour"],
                **{name: Resources(row[f"{name}_cpu_millicores"], row[f"{name}_memory_bytes"]) for name in _SUMS},
            )
            for row in rows.mappings()
        ]


async def prune_cluster_hours(connection: AsyncConnection, before_hour: int) -> None:
    """Drop the hours before one."""
    await connection.execute(delete(cluster_hour).where(cluster_hour.c.hour < before_hour))


# How stated risks were kept by day, and how headroom is shared now.


async def insert_risk_days(connection: AsyncConnection, days: Sequence[RiskDay]) -> None:
    """Store days, each in place of what was counted of it before."""
    of_day = {(one.resource.value, one.day): one for one in days}
    # In one order, since two writers of the same days could wait for each other for ever.
    rows = [
        {"resource": resource, "day": day, "intervals": one.intervals, "short": one.short, "level": one.level}
        for (resource, day), one in sorted(of_day.items(), key=lambda item: item[0])
    ]
    if rows:
        statement = insert(risk_day)
        replaced = {name: statement.excluded[name] for name in ("intervals", "short", "level")}
        await connection.execute(
            statement.on_conflict_do_update(index_elements=["resource", "day"], set_=replaced), rows
        )


async def read_risk_days(connection: AsyncConnection) -> list[RiskDay]:
    """Return all days."""
    return [
        RiskDay(ResourceName(row.resource), row.day, row.intervals, row.short, row.level)
        for row in await connection.execute(select(risk_day))
    ]


async def prune_risk_days(connection: AsyncConnection, before_day: int) -> None:
    """Drop the days before one."""
    await connection.execute(delete(risk_day).where(risk_day.c.day < before_day))


async def write_sharing(connection: AsyncConnection, sharing: HeadroomSharing) -> None:
    """Remember how headroom is shared now."""
    values = {"cpu": sharing.cpu, "memory": sharing.memory}
    statement = insert(headroom_sharing).values(singleton=True, **values)
    await connection.execute(statement.on_conflict_do_update(index_elements=["singleton"], set_=values))


async def read_sharing(connection: AsyncConnection) -> HeadroomSharing | None:
    """Return how headroom is shared, None where no pass has said so yet."""
    row = (await connection.execute(select(headroom_sharing))).one_or_none()
    return None if row is None else HeadroomSharing(row.cpu, row.memory)

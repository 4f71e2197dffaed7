"""Hourly peaks: one row for each key and hour, raised and never lowered.

Arrays go to the server as they are and are unfolded there: the statements name what SQLAlchemy has no shorter word
for, and go to the driver. NaN, which Postgres takes for the largest number, is stored as NULL.
"""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from sqlalchemy import delete, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from cruise.adapters.store.connection import driver_in_transaction
from cruise.adapters.store.tables import hourly_peak, peak_key
from cruise.domain.usage import HourlyPeaks, PeakKey, PeakSummary

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


async def merge(connection: AsyncConnection, peaks: HourlyPeaks) -> None:
    """Raise the stored peaks to those given, where they are higher."""
    sampled = np.flatnonzero(~(np.isnan(peaks.cpu_demand_millicores) & np.isnan(peaks.memory_bytes)))
    if not len(sampled):
        return
    keys = [peaks.keys[row] for row in sampled.tolist()]
    await connection.execute(select(func.pg_advisory_xact_lock_shared(PEAKS_LOCK)))
    driver = await driver_in_transaction(connection)
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


async def summary(connection: AsyncConnection, hours: Collection[int], since_hour: int) -> PeakSummary:
    """Sum up each key's peaks from `since_hour` on, and over those of `hours` that are not before it."""
    driver = await driver_in_transaction(connection)
    rows = await driver.fetch(_SUMMARY, sorted(hours), since_hour)
    columns = list(zip(*rows, strict=True)) or [()] * 8
    return PeakSummary(
        keys=list(map(PeakKey._make, zip(*columns[:4], strict=True))),
        cpu_peak_millicores=np.array(columns[4], dtype=np.float64),
        memory_peak_bytes=np.array(columns[5], dtype=np.float64),
        memory_7d_max_bytes=np.array(columns[6], dtype=np.float64),
        first_hour=np.array(columns[7], dtype=np.int64),
    )


async def of_workload(connection: AsyncConnection, namespace: str, workload: str, since_hour: int) -> HourlyPeaks:
    """Return one workload's peaks from an hour on, sorted by key and hour."""
    driver = await driver_in_transaction(connection)
    rows = await driver.fetch(_OF_WORKLOAD, namespace, workload, since_hour)
    columns = list(zip(*rows, strict=True)) or [()] * 7
    return HourlyPeaks(
        keys=list(map(PeakKey._make, zip(*columns[:4], strict=True))),
        hours=np.array(columns[4], dtype=np.int64),
        cpu_demand_millicores=np.array(columns[5], dtype=np.float64),
        memory_bytes=np.array(columns[6], dtype=np.float64),
    )


async def of_hour(connection: AsyncConnection, hour: int) -> HourlyPeaks:
    """Return every key's peaks of one hour."""
    driver = await driver_in_transaction(connection)
    rows = await driver.fetch(_OF_HOUR, hour)
    columns = list(zip(*rows, strict=True)) or [()] * 6
    keys = list(map(PeakKey._make, zip(*columns[:4], strict=True)))
    return HourlyPeaks(
        keys=keys,
        hours=np.full(len(keys), hour, dtype=np.int64),
        cpu_demand_millicores=np.array(columns[4], dtype=np.float64),
        memory_bytes=np.array(columns[5], dtype=np.float64),
    )


async def prune(connection: AsyncConnection, before_hour: int) -> None:
    """Drop the peaks before an hour, and then the keys that have none left."""
    dropped = await connection.execute(delete(hourly_peak).where(hourly_peak.c.hour < before_hour))
    if not dropped.rowcount:
        return
    await connection.execute(select(func.pg_advisory_xact_lock(PEAKS_LOCK)))
    has_peaks = select(hourly_peak.c.key_id).where(hourly_peak.c.key_id == peak_key.c.id).exists()
    await connection.execute(delete(peak_key).where(~has_peaks))

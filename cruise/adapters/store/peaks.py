"""Hourly peaks (one row per key and hour, raised and never lowered), hourly cluster totals, and headroom by day.

Statements on peaks go to the driver: arrays are parameters and are unnested on the server, which SQLAlchemy cannot say
shorter. NaN is stored as NULL, because Postgres takes it for the largest number.
"""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from cruise.adapters.store.connection import get_driver_connection
from cruise.adapters.store.schema import (
    CLUSTER_TOTALS,
    cluster_hour,
    headroom_sharing,
    hourly_peak,
    peak_key,
    risk_day,
)
from cruise.domain.arrays import Int64Array
from cruise.domain.records import AverageHeadroomShare, HourlyClusterTotals, RiskDay
from cruise.domain.resources import ResourceName, Resources
from cruise.domain.usage import HourlyPeaks, PeakKey, PeakSummary
from cruise.errors import pause_garbage_collection

# Writers of peaks share it; deleting keys without peaks holds it exclusively.
PEAKS_LOCK = 0x6372_7569_7365_0003

_INCOMING_KEYS = """
unnest($1::text[], $2::text[], $3::text[], $4::text[]) WITH ORDINALITY
    AS incoming (namespace, workload, container, identity, position)
"""
_FIND_KEYS = f"""
SELECT incoming.position - 1, peak_key.id
FROM {_INCOMING_KEYS} JOIN peak_key USING (namespace, workload, container, identity)
"""
# Only missing keys are inserted, because each attempt takes a number of the four-byte sequence.
# Sorted, because two writers that lock the same rows in different orders would deadlock.
_INSERT_KEYS = f"""
INSERT INTO peak_key (namespace, workload, container, identity)
SELECT namespace, workload, container, identity
FROM {_INCOMING_KEYS}
WHERE NOT EXISTS (
    SELECT FROM peak_key AS stored
    WHERE stored.namespace = incoming.namespace AND stored.workload = incoming.workload
        AND stored.container = incoming.container AND stored.identity = incoming.identity
)
ORDER BY 1, 2, 3, 4
ON CONFLICT DO NOTHING
"""
_RAISE_PEAKS = """
INSERT INTO hourly_peak AS stored (hour, key_id, cpu_demand_millicores, memory_bytes)
SELECT hour, key_id, max(nullif(cpu, 'NaN')), max(nullif(memory, 'NaN'))
FROM unnest($1::integer[], $2::integer[], $3::float8[], $4::float8[]) AS incoming (hour, key_id, cpu, memory)
GROUP BY hour, key_id
ORDER BY hour, key_id
ON CONFLICT (hour, key_id) DO UPDATE
SET cpu_demand_millicores = greatest(stored.cpu_demand_millicores, excluded.cpu_demand_millicores),
    memory_bytes = greatest(stored.memory_bytes, excluded.memory_bytes)
WHERE (stored.cpu_demand_millicores, stored.memory_bytes) IS DISTINCT FROM (
    greatest(stored.cpu_demand_millicores, excluded.cpu_demand_millicores),
    greatest(stored.memory_bytes, excluded.memory_bytes)
)
"""
_SUMMARIZE_PEAKS = """
WITH summary AS (
    SELECT key_id,
        max(cpu_demand_millicores) FILTER (WHERE hour = ANY ($1::integer[])) AS cpu_peak,
        max(memory_bytes) FILTER (WHERE hour = ANY ($1::integer[])) AS memory_peak,
        max(cpu_demand_millicores) AS cpu_max,
        max(memory_bytes) AS memory_max,
        min(hour) AS first_hour
    FROM hourly_peak
    WHERE hour >= $2
    GROUP BY key_id
)
SELECT namespace, workload, container, identity, cpu_peak, memory_peak, cpu_max, memory_max, first_hour
FROM summary JOIN peak_key ON peak_key.id = summary.key_id
"""
_SELECT_HOUR = """
SELECT namespace, workload, container, identity, cpu_demand_millicores, memory_bytes
FROM hourly_peak JOIN peak_key ON peak_key.id = hourly_peak.key_id
WHERE hour = $1::integer
"""
# Both columns of the primary key are arrays, so that the index finds each row of the workload.
_SELECT_WORKLOAD = """
SELECT peak_key.namespace, peak_key.workload, peak_key.container, peak_key.identity,
    hour, cpu_demand_millicores, memory_bytes
FROM hourly_peak JOIN peak_key ON peak_key.id = hourly_peak.key_id
WHERE hourly_peak.key_id = ANY (ARRAY(SELECT id FROM peak_key WHERE namespace = $1 AND workload = $2))
    AND hour = ANY (ARRAY(SELECT generate_series($3::integer, (SELECT max(hour) FROM hourly_peak))))
ORDER BY 1, 2, 3, 4, 5
"""


async def merge_peaks(connection: AsyncConnection, peaks: HourlyPeaks) -> None:
    """Raise the stored peaks to the given ones if those are higher."""
    sampled = np.flatnonzero(~(np.isnan(peaks.cpu_demand_millicores) & np.isnan(peaks.memory_bytes)))
    if not len(sampled):
        return
    keys = [peaks.keys[row] for row in sampled.tolist()]
    await connection.execute(select(func.pg_advisory_xact_lock_shared(PEAKS_LOCK)))
    driver = await get_driver_connection(connection)
    positions = {key: position for position, key in enumerate(dict.fromkeys(keys))}
    ids = await _find_or_insert_keys(driver, list(positions))
    rows = np.fromiter(map(positions.__getitem__, keys), np.int64, len(keys))
    await driver.execute(
        _RAISE_PEAKS,
        peaks.hours[sampled].tolist(),
        ids[rows].tolist(),
        peaks.cpu_demand_millicores[sampled].tolist(),
        peaks.memory_bytes[sampled].tolist(),
    )


async def _find_or_insert_keys(driver: Any, keys: Sequence[PeakKey]) -> Int64Array:  # noqa: ANN401
    """Return the id of each key; keys that have none are inserted."""
    columns = list(zip(*keys, strict=True))
    found = await driver.fetch(_FIND_KEYS, *columns)
    if len(found) < len(keys):
        await driver.execute(_INSERT_KEYS, *columns)
        found = await driver.fetch(_FIND_KEYS, *columns)
    ids = np.zeros(len(keys), dtype=np.int64)
    pairs = np.array([tuple(row) for row in found], dtype=np.int64)
    ids[pairs[:, 0]] = pairs[:, 1]
    return ids


async def summarize_peaks(connection: AsyncConnection, hours: Collection[int], since_hour: int) -> PeakSummary:
    """Return the maxima of each key since `since_hour`, and over those of `hours` that are not before it."""
    driver = await get_driver_connection(connection)
    rows = await driver.fetch(_SUMMARIZE_PEAKS, sorted(hours), since_hour)
    columns = list(zip(*rows, strict=True)) or [()] * 9
    return PeakSummary(
        keys=list(map(PeakKey._make, zip(*columns[:4], strict=True))),
        cpu_peak_millicores=np.array(columns[4], dtype=np.float64),
        memory_peak_bytes=np.array(columns[5], dtype=np.float64),
        cpu_7d_max_millicores=np.array(columns[6], dtype=np.float64),
        memory_7d_max_bytes=np.array(columns[7], dtype=np.float64),
        first_hour=np.array(columns[8], dtype=np.int64),
    )


async def read_peaks_of_workload(
    connection: AsyncConnection, namespace: str, workload: str, since_hour: int
) -> HourlyPeaks:
    """Return the peaks of one workload since an hour, sorted by key and hour."""
    driver = await get_driver_connection(connection)
    rows = await driver.fetch(_SELECT_WORKLOAD, namespace, workload, since_hour)
    columns = list(zip(*rows, strict=True)) or [()] * 7
    return HourlyPeaks(
        keys=list(map(PeakKey._make, zip(*columns[:4], strict=True))),
        hours=np.array(columns[4], dtype=np.int64),
        cpu_demand_millicores=np.array(columns[5], dtype=np.float64),
        memory_bytes=np.array(columns[6], dtype=np.float64),
    )


async def read_peaks_of_hour(connection: AsyncConnection, hour: int) -> HourlyPeaks:
    """Return the peaks of all keys in one hour."""
    driver = await get_driver_connection(connection)
    rows = await driver.fetch(_SELECT_HOUR, hour)
    columns = list(zip(*rows, strict=True)) or [()] * 6
    keys = list(map(PeakKey._make, zip(*columns[:4], strict=True)))
    return HourlyPeaks(
        keys=keys,
        hours=np.full(len(keys), hour, dtype=np.int64),
        cpu_demand_millicores=np.array(columns[4], dtype=np.float64),
        memory_bytes=np.array(columns[5], dtype=np.float64),
    )


async def prune_peaks(connection: AsyncConnection, before_hour: int) -> None:
    """Delete the peaks before an hour, and then the keys without peaks."""
    deleted = await connection.execute(delete(hourly_peak).where(hourly_peak.c.hour < before_hour))
    if not deleted.rowcount:
        return
    await connection.execute(select(func.pg_advisory_xact_lock(PEAKS_LOCK)))
    has_peaks = select(hourly_peak.c.key_id).where(hourly_peak.c.key_id == peak_key.c.id).exists()
    await connection.execute(delete(peak_key).where(~has_peaks))


async def insert_hourly_totals(connection: AsyncConnection, totals: HourlyClusterTotals) -> None:
    """Store the totals of an hour; the first ones of an hour stay."""
    amounts = {name: getattr(totals, name) for name in CLUSTER_TOTALS}
    values = {f"{name}_cpu_millicores": amount.cpu_millicores for name, amount in amounts.items()}
    values |= {f"{name}_memory_bytes": amount.memory_bytes for name, amount in amounts.items()}
    await connection.execute(insert(cluster_hour).values(hour=totals.hour, **values).on_conflict_do_nothing())


async def read_hourly_totals(connection: AsyncConnection, since_hour: int) -> Sequence[HourlyClusterTotals]:
    """Return the totals since an hour, oldest first."""
    rows = await connection.execute(
        select(cluster_hour).where(cluster_hour.c.hour >= since_hour).order_by(cluster_hour.c.hour)
    )
    with pause_garbage_collection():
        return [
            HourlyClusterTotals(
                row["hour"],
                **{
                    name: Resources(row[f"{name}_cpu_millicores"], row[f"{name}_memory_bytes"])
                    for name in CLUSTER_TOTALS
                },
            )
            for row in rows.mappings()
        ]


async def prune_cluster_hours(connection: AsyncConnection, before_hour: int) -> None:
    """Delete the totals before an hour."""
    await connection.execute(delete(cluster_hour).where(cluster_hour.c.hour < before_hour))


async def insert_risk_days(connection: AsyncConnection, days: Sequence[RiskDay]) -> None:
    """Store days; each replaces the earlier counts of its day."""
    by_day = {(one.resource.value, one.day): one for one in days}
    # Sorted, because two writers that lock the same rows in different orders would deadlock.
    rows = [
        {"resource": resource, "day": day, "intervals": one.intervals, "short": one.short, "level": one.level}
        for (resource, day), one in sorted(by_day.items(), key=lambda item: item[0])
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
    """Delete the days before one."""
    await connection.execute(delete(risk_day).where(risk_day.c.day < before_day))


async def write_average_headroom_share(connection: AsyncConnection, average_share: AverageHeadroomShare) -> None:
    """Store how headroom is shared."""
    values = {"cpu": average_share.cpu, "memory": average_share.memory}
    statement = insert(headroom_sharing).values(singleton=True, **values)
    await connection.execute(statement.on_conflict_do_update(index_elements=["singleton"], set_=values))


async def read_average_headroom_share(connection: AsyncConnection) -> AverageHeadroomShare | None:
    """Return how headroom is shared, None if no node pass has stored it yet."""
    row = (await connection.execute(select(headroom_sharing))).one_or_none()
    return None if row is None else AverageHeadroomShare(row.cpu, row.memory)

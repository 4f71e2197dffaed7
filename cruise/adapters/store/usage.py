"""Samples, counters and starts of containers, and how far each partition of usage was read.

Samples are stored as compressed bytes. Matrices are stored byte plane by byte plane (all first bytes, then all second
bytes): neighbouring values share their upper bytes, so planes compress well.
"""

import zlib
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import DTypeLike, NDArray
from sqlalchemy import delete, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from cruise.adapters.store import peaks
from cruise.adapters.store.schema import container_start, database_history, sample_block, usage_partition
from cruise.domain.records import EpochAndLostUsage
from cruise.domain.usage import (
    ContainerKey,
    ContainerStart,
    PartitionCounterTail,
    PartitionProgress,
    SampleBlock,
    UsageUpdate,
)
from cruise.errors import DatabaseRestoredError, UnknownUsageError, pause_garbage_collection

_COMPRESSION_LEVEL = 1  # half the time of the default, for a tenth more bytes
_BLOCKS_PER_FETCH = 8


class _PackedBlock(msgspec.Struct, array_like=True, frozen=True):
    keys: Sequence[ContainerKey]
    times: bytes
    cpu_demand_millicores: bytes
    memory_bytes: bytes
    psi_known: bytes
    rejected: bytes | None


class _PackedTail(msgspec.Struct, array_like=True, frozen=True):
    at: int
    keys: Sequence[ContainerKey]
    series: Sequence[str]
    cpu_seconds: bytes
    cpu_waiting_seconds: bytes
    changed_at: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode_block = msgspec.msgpack.Decoder(_PackedBlock).decode
_decode_tail = msgspec.msgpack.Decoder(_PackedTail).decode


def serialize_sample_block(block: SampleBlock) -> bytes:
    """Return a sample block as bytes."""
    packed = _PackedBlock(
        block.keys,
        _to_planes(block.times, "<i8"),
        _to_planes(block.cpu_demand_millicores, "<f4"),
        _to_planes(block.memory_bytes, "<f8"),
        _to_planes(block.psi_known, "?"),
        None if block.rejected is None else _to_planes(block.rejected, "?"),
    )
    return zlib.compress(_encode(packed), _COMPRESSION_LEVEL)


def deserialize_sample_block(packed: bytes, pool: dict[ContainerKey, ContainerKey] | None = None) -> SampleBlock:
    """Return the sample block that `serialize_sample_block` packed.

    Blocks with the same `pool` share equal keys: each container is in a dozen blocks of an hour.
    """
    block = _decode_block(zlib.decompress(packed))
    keys = block.keys if pool is None else [pool.setdefault(key, key) for key in block.keys]
    shape = (len(block.keys), -1) if block.keys else (0, len(block.times) // 8)
    return SampleBlock(
        keys=keys,
        times=_from_planes(block.times, "<i8"),
        cpu_demand_millicores=_from_planes(block.cpu_demand_millicores, "<f4").reshape(shape),
        memory_bytes=_from_planes(block.memory_bytes, "<f8").reshape(shape),
        psi_known=_from_planes(block.psi_known, "?"),
        rejected=None if block.rejected is None else _from_planes(block.rejected, "?").reshape(shape),
    )


def serialize_counter_tail(tail: PartitionCounterTail) -> bytes:
    """Return the last counters of a partition as bytes."""
    packed = _PackedTail(
        tail.at,
        tail.keys,
        tail.series,
        _to_planes(tail.cpu_seconds, "<f8"),
        _to_planes(tail.cpu_waiting_seconds, "<f8"),
        _to_planes(tail.changed_at, "<i8"),
    )
    return zlib.compress(_encode(packed), _COMPRESSION_LEVEL)


def deserialize_counter_tail(packed: bytes) -> PartitionCounterTail:
    """Return the counters that `serialize_counter_tail` packed."""
    tail = _decode_tail(zlib.decompress(packed))
    return PartitionCounterTail(
        at=tail.at,
        keys=tail.keys,
        series=tail.series,
        cpu_seconds=_from_planes(tail.cpu_seconds, "<f8"),
        cpu_waiting_seconds=_from_planes(tail.cpu_waiting_seconds, "<f8"),
        changed_at=_from_planes(tail.changed_at, "<i8"),
    )


def _to_planes(values: NDArray[Any], dtype: DTypeLike) -> bytes:
    flat = np.ascontiguousarray(values, dtype=dtype).reshape(-1)
    return flat.view(np.uint8).reshape(-1, flat.itemsize).T.tobytes()


def _from_planes(planes: bytes, dtype: DTypeLike) -> NDArray[Any]:
    width = np.dtype(dtype).itemsize
    return np.frombuffer(planes, np.uint8).reshape(width, -1).T.reshape(-1).view(dtype)


async def insert_usage(connection: AsyncConnection, update: UsageUpdate) -> None:
    """Store the samples, the peaks, the starts and the progress of one read.

    Raises DatabaseRestoredError if less is stored than the update continues from, UnknownUsageError if more is.
    """
    if update.continues_from is not None:
        stored = select(usage_partition.c.read_until).where(usage_partition.c.partition == update.partition)
        read_until = await connection.scalar(stored.with_for_update())
        if read_until != update.continues_from:
            error = DatabaseRestoredError if (read_until or 0) < update.continues_from else UnknownUsageError
            raise error(f"usage of {update.partition} was stored until {update.continues_from}, not {read_until}")
    await peaks.merge_peaks(connection, update.peaks)
    await merge_container_starts(connection, update.starts)
    block = update.block
    if block is not None and len(block.times):
        packed = {"last_time": int(block.times[-1]), "samples": serialize_sample_block(block)}
        await connection.execute(insert(sample_block).values(packed))
    progress = update.progress
    state = {
        "read_from": progress.read_from,
        "read_until": progress.read_until,
        "gaps": [list(gap) for gap in progress.gaps],
        "counter_tail": None if progress.counter_tail is None else serialize_counter_tail(progress.counter_tail),
    }
    statement = insert(usage_partition).values(partition=update.partition, **state)
    await connection.execute(statement.on_conflict_do_update(index_elements=["partition"], set_=state))


async def read_partition_progress(connection: AsyncConnection) -> dict[str, PartitionProgress]:
    """Return the progress of each partition."""
    rows = await connection.execute(select(usage_partition))
    return {
        row.partition: PartitionProgress(
            read_from=row.read_from,
            read_until=row.read_until,
            gaps=tuple((start, end, attempts) for start, end, attempts in row.gaps),
            counter_tail=None if row.counter_tail is None else deserialize_counter_tail(row.counter_tail),
        )
        for row in rows
    }


async def read_recent_blocks(connection: AsyncConnection, since: int) -> Sequence[SampleBlock]:
    """Return the blocks that end after a Unix time, by last time and then in the order in which they were stored."""
    statement = (
        select(sample_block.c.samples)
        .where(sample_block.c.last_time > since)
        .order_by(sample_block.c.last_time, sample_block.c.id)
    )
    pool: dict[ContainerKey, ContainerKey] = {}
    # A few blocks at a time: all packed blocks together would need as much memory again.
    packed_blocks = await connection.stream_scalars(statement.execution_options(yield_per=_BLOCKS_PER_FETCH))
    with pause_garbage_collection():
        return [deserialize_sample_block(packed, pool) async for packed in packed_blocks]


async def prune_usage(connection: AsyncConnection, blocks_until: int, partitions_before: int) -> None:
    """Delete the blocks that end at `blocks_until` or before, and the partitions last read before `partitions_before`.

    Both are Unix seconds.
    """
    await connection.execute(delete(sample_block).where(sample_block.c.last_time <= blocks_until))
    await connection.execute(delete(usage_partition).where(usage_partition.c.read_until < partitions_before))


async def advance_epoch(connection: AsyncConnection, expected: int) -> int:
    """Advance the epoch and return it. Raises DatabaseRestoredError if it was below `expected`."""
    table = database_history
    first = insert(table).values(singleton=True, epoch=1, lost_until=0, regained=True)
    advanced = first.on_conflict_do_update(index_elements=["singleton"], set_={"epoch": table.c.epoch + 1})
    epoch = int(await connection.scalar(advanced.returning(table.c.epoch)) or 0)
    _check_epoch(epoch - 1, expected)
    return epoch


async def read_epoch_and_lost_usage(connection: AsyncConnection, expected: int) -> EpochAndLostUsage:
    """Return the history of the database. Raises DatabaseRestoredError if its epoch is below `expected`."""
    row = (await connection.execute(select(database_history))).first()
    found = EpochAndLostUsage() if row is None else EpochAndLostUsage(row.epoch, row.lost_until, row.regained)
    _check_epoch(found.epoch, expected)
    return found


async def record_lost_usage(connection: AsyncConnection, expected: int, until: int, *, regained: bool) -> int:
    """Store until when usage was lost, and return the new epoch, which is above `expected`."""
    table = database_history
    await connection.execute(
        insert(table)
        .values(singleton=True, epoch=0, lost_until=0, regained=True)
        .on_conflict_do_nothing(index_elements=["singleton"])
    )
    values = {
        "epoch": func.greatest(table.c.epoch, expected) + 1,
        "lost_until": func.greatest(table.c.lost_until, until),
        "regained": regained,
    }
    return int(await connection.scalar(update(table).values(values).returning(table.c.epoch)) or 0)


def _check_epoch(epoch: int, expected: int) -> None:
    if epoch < expected:
        raise DatabaseRestoredError(f"the database is at epoch {epoch}, but was at {expected} before")


_KEY = ("namespace", "workload", "container", "pod_uid")
_MERGED = ("ends_at", "sampled_until", "cpu_peak_millicores")
# The driver sends each row's values separately.
_ROWS_PER_STATEMENT = 5_000


async def merge_container_starts(connection: AsyncConnection, starts: Sequence[ContainerStart]) -> None:
    """Merge starts into the stored ones: the larger figures count."""
    # Sorted, because two writers that lock the same rows in different orders would deadlock.
    ordered = sorted(starts, key=lambda one: (one.namespace, one.workload, one.container, one.pod_uid))
    rows = [{name: getattr(one, name) for name in (*_KEY, "started_at", *_MERGED)} for one in ordered]
    statement = insert(container_start)
    merged = {name: func.greatest(container_start.c[name], statement.excluded[name]) for name in _MERGED}
    statement = statement.on_conflict_do_update(index_elements=_KEY, set_=merged)
    for first in range(0, len(rows), _ROWS_PER_STATEMENT):
        await connection.execute(statement, rows[first : first + _ROWS_PER_STATEMENT])


async def read_container_starts(connection: AsyncConnection) -> list[ContainerStart]:
    """Return all starts, in no order."""
    return [ContainerStart(**row) for row in (await connection.execute(select(container_start))).mappings()]


async def prune_container_starts(connection: AsyncConnection, before: int, most: int) -> None:
    """Delete the starts before a time in Unix seconds, and all but the `most` newest of each workload's container."""
    table = container_start
    await connection.execute(delete(table).where(table.c.started_at < before))
    newer = func.row_number().over(
        partition_by=(table.c.namespace, table.c.workload, table.c.container), order_by=table.c.started_at.desc()
    )
    ranked = select(table.c.namespace, table.c.container, table.c.workload, table.c.pod_uid, newer.label("rank"))
    surplus = ranked.subquery()
    await connection.execute(
        delete(table).where(*(table.c[name] == surplus.c[name] for name in _KEY), surplus.c.rank > most)
    )

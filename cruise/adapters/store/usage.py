"""Samples and counters as bytes: names and matrices together, compressed.

The bytes of a matrix are stored plane by plane (all first bytes, then all second ones): neighbours are alike in
their upper bytes, which is what compresses.
"""

import zlib
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import DTypeLike, NDArray
from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from cruise.adapters.store import peaks
from cruise.adapters.store.schema import database_history, sample_block, usage_partition
from cruise.domain.records import DatabaseHistory
from cruise.domain.usage import ContainerKey, CounterTail, PartitionProgress, SampleBlock, UsageUpdate
from cruise.errors import HistoryChangedError, pause_garbage_collection

_LEVEL = 1  # half the time of the default for a tenth more bytes


class _PackedBlock(msgspec.Struct, array_like=True, frozen=True):
    keys: Sequence[ContainerKey]
    times: bytes
    cpu_demand_millicores: bytes
    memory_bytes: bytes
    psi_known: bytes
    refused: bytes = b""


class _PackedTail(msgspec.Struct, array_like=True, frozen=True):
    at: int
    keys: Sequence[ContainerKey]
    series: Sequence[str]
    cpu_seconds: bytes
    cpu_waiting_seconds: bytes
    changed_at: bytes | None = None  # tails of earlier versions have none


_encode = msgspec.msgpack.Encoder().encode
_decode_block = msgspec.msgpack.Decoder(_PackedBlock).decode
_decode_tail = msgspec.msgpack.Decoder(_PackedTail).decode


def pack_block(block: SampleBlock) -> bytes:
    """Return a sample block as bytes."""
    packed = _PackedBlock(
        block.keys,
        _planes(block.times, "<i8"),
        _planes(block.cpu_demand_millicores, "<f4"),
        _planes(block.memory_bytes, "<f8"),
        _planes(block.psi_known, "?"),
        b"" if block.rejected is None else _planes(block.rejected, "?"),
    )
    return zlib.compress(_encode(packed), _LEVEL)


def unpack_block(packed: bytes, pool: dict[ContainerKey, ContainerKey] | None = None) -> SampleBlock:
    """Return the sample block that `pack_block` packed.

    Blocks that share a `pool` share their keys: an hour of blocks names every container a dozen times.
    """
    block = _decode_block(zlib.decompress(packed))
    keys = block.keys if pool is None else [pool.setdefault(key, key) for key in block.keys]
    shape = (len(block.keys), -1) if block.keys else (0, len(block.times) // 8)
    return SampleBlock(
        keys=keys,
        times=_joined(block.times, "<i8"),
        cpu_demand_millicores=_joined(block.cpu_demand_millicores, "<f4").reshape(shape),
        memory_bytes=_joined(block.memory_bytes, "<f8").reshape(shape),
        psi_known=_joined(block.psi_known, "?"),
        rejected=_joined(block.refused, "?").reshape(shape) if block.refused else None,
    )


def pack_tail(tail: CounterTail) -> bytes:
    """Return a partition's last counters as bytes."""
    packed = _PackedTail(
        tail.at,
        tail.keys,
        tail.series,
        _planes(tail.cpu_seconds, "<f8"),
        _planes(tail.cpu_waiting_seconds, "<f8"),
        _planes(tail.changed_at, "<i8"),
    )
    return zlib.compress(_encode(packed), _LEVEL)


def unpack_tail(packed: bytes) -> CounterTail:
    """Return the counters that `pack_tail` packed."""
    tail = _decode_tail(zlib.decompress(packed))
    return CounterTail(
        at=tail.at,
        keys=tail.keys,
        series=tail.series,
        cpu_seconds=_joined(tail.cpu_seconds, "<f8"),
        cpu_waiting_seconds=_joined(tail.cpu_waiting_seconds, "<f8"),
        changed_at=np.full(len(tail.keys), tail.at) if tail.changed_at is None else _joined(tail.changed_at, "<i8"),
    )


def _planes(values: NDArray[Any], dtype: DTypeLike) -> bytes:
    flat = np.ascontiguousarray(values, dtype=dtype).reshape(-1)
    return flat.view(np.uint8).reshape(-1, flat.itemsize).T.tobytes()


def _joined(planes: bytes, dtype: DTypeLike) -> NDArray[Any]:
    width = np.dtype(dtype).itemsize
    return np.frombuffer(planes, np.uint8).reshape(width, -1).T.reshape(-1).view(dtype)


# What was read of each partition, and the samples young enough for the windows.

_BLOCKS_AT_ONCE = 8


async def insert_usage(connection: AsyncConnection, advance: UsageUpdate) -> None:
    """Store one read: its samples, its peaks, and how far it came. Raises Conflict."""
    if advance.continues_from is not None:
        known = select(usage_partition.c.read_until).where(usage_partition.c.partition == advance.partition)
        read_until = await connection.scalar(known.with_for_update())
        if read_until != advance.continues_from:
            raise HistoryChangedError(
                f"usage of {advance.partition} was stored until {advance.continues_from}, not {read_until}"
            )
    await peaks.merge_peaks(connection, advance.peaks)
    block = advance.block
    if block is not None and len(block.times):
        packed = {"last_time": int(block.times[-1]), "samples": pack_block(block)}
        await connection.execute(insert(sample_block).values(packed))
    progress = advance.progress
    state = {
        "read_from": progress.read_from,
        "read_until": progress.read_until,
        "gaps": [list(gap) for gap in progress.gaps],
        "tail": None if progress.counter_tail is None else pack_tail(progress.counter_tail),
    }
    statement = upsert(usage_partition).values(partition=advance.partition, **state)
    await connection.execute(statement.on_conflict_do_update(index_elements=["partition"], set_=state))


async def read_progress(connection: AsyncConnection) -> dict[str, PartitionProgress]:
    """Return how far each partition was read."""
    rows = await connection.execute(select(usage_partition))
    return {
        row.partition: PartitionProgress(
            read_from=row.read_from,
            read_until=row.read_until,
            gaps=tuple((start, end, asked) for start, end, asked in row.gaps),
            counter_tail=None if row.tail is None else unpack_tail(row.tail),
        )
        for row in rows
    }


async def read_recent_blocks(connection: AsyncConnection, since: int) -> Sequence[SampleBlock]:
    """Return the blocks whose last time is after a Unix time, by last time and then as they were stored."""
    statement = (
        select(sample_block.c.samples)
        .where(sample_block.c.last_time > since)
        .order_by(sample_block.c.last_time, sample_block.c.id)
    )
    pool: dict[ContainerKey, ContainerKey] = {}
    # In small batches: the packed bytes of all blocks at once would be as much again.
    packed_blocks = await connection.stream_scalars(statement.execution_options(yield_per=_BLOCKS_AT_ONCE))
    with pause_garbage_collection():
        return [unpack_block(packed, pool) async for packed in packed_blocks]


async def prune_usage(connection: AsyncConnection, blocks_until: int, partitions_before: int) -> None:
    """Drop blocks without a time after `blocks_until`, and partitions not read since `partitions_before`.

    Both in Unix seconds.
    """
    await connection.execute(delete(sample_block).where(sample_block.c.last_time <= blocks_until))
    await connection.execute(delete(usage_partition).where(usage_partition.c.read_until < partitions_before))


# The epoch of the database: grows with what is stored, so that an earlier state is recognised.


async def advance_epoch(connection: AsyncConnection, expected: int) -> int:
    """Advance the epoch; return it. Raises HistoryChangedError where it is before the expected one."""
    table = database_history
    begun = upsert(table).values(singleton=True, epoch=1, lost_until=0, regained=True)
    advanced = begun.on_conflict_do_update(index_elements=["singleton"], set_={"epoch": table.c.epoch + 1})
    epoch = int(await connection.scalar(advanced.returning(table.c.epoch)) or 0)
    _compare(epoch - 1, expected)
    return epoch


async def read_history(connection: AsyncConnection, expected: int) -> DatabaseHistory:
    """Return what the database says of its past. Raises HistoryChangedError where its epoch is before the expected one."""
    row = (await connection.execute(select(database_history))).first()
    found = DatabaseHistory() if row is None else DatabaseHistory(row.epoch, row.lost_until, row.regained)
    _compare(found.epoch, expected)
    return found


async def record_lost_usage(connection: AsyncConnection, expected: int, until: int, *, regained: bool) -> int:
    """Put on record until when usage was lost; return the epoch, which is after the expected one."""
    table = database_history
    await connection.execute(
        upsert(table)
        .values(singleton=True, epoch=0, lost_until=0, regained=True)
        .on_conflict_do_nothing(index_elements=["singleton"])
    )
    values = {
        "epoch": func.greatest(table.c.epoch, expected) + 1,
        "lost_until": func.greatest(table.c.lost_until, until),
        "regained": regained,
    }
    return int(await connection.scalar(update(table).values(values).returning(table.c.epoch)) or 0)


def _compare(epoch: int, expected: int) -> None:
    if epoch < expected:
        raise HistoryChangedError(f"the database is at epoch {epoch}, and was at {expected} before")

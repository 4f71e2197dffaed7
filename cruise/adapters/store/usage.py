"""What was read of each partition, and the samples young enough for the windows."""

from collections.abc import Sequence

from sqlalchemy import delete, insert, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from cruise.adapters.store import peaks
from cruise.adapters.store.packing import pack_block, pack_tail, unpack_block, unpack_tail
from cruise.adapters.store.tables import sample_block, usage_partition
from cruise.collection import uncollected
from cruise.domain.usage import ContainerKey, PartitionProgress, SampleBlock, UsageAdvance
from cruise.errors import HistoryChanged

_BLOCKS_AT_ONCE = 8


async def record(connection: AsyncConnection, advance: UsageAdvance) -> None:
    """Store one read: its samples, its peaks, and how far it came. Raises Conflict."""
    if advance.continues is not None:
        known = select(usage_partition.c.read_until).where(usage_partition.c.partition == advance.partition)
        read_until = await connection.scalar(known.with_for_update())
        if read_until != advance.continues:
            raise HistoryChanged(f"usage of {advance.partition} was stored until {advance.continues}, not {read_until}")
    await peaks.merge(connection, advance.peaks)
    block = advance.block
    if block is not None and len(block.times):
        packed = {"last_time": int(block.times[-1]), "samples": pack_block(block)}
        await connection.execute(insert(sample_block).values(packed))
    progress = advance.progress
    state = {
        "read_from": progress.read_from,
        "read_until": progress.read_until,
        "gaps": [list(gap) for gap in progress.gaps],
        "tail": None if progress.tail is None else pack_tail(progress.tail),
    }
    statement = upsert(usage_partition).values(partition=advance.partition, **state)
    await connection.execute(statement.on_conflict_do_update(index_elements=["partition"], set_=state))


async def progress(connection: AsyncConnection) -> dict[str, PartitionProgress]:
    """Return how far each partition was read."""
    rows = await connection.execute(select(usage_partition))
    return {
        row.partition: PartitionProgress(
            read_from=row.read_from,
            read_until=row.read_until,
            gaps=tuple((start, end, asked) for start, end, asked in row.gaps),
            tail=None if row.tail is None else unpack_tail(row.tail),
        )
        for row in rows
    }


async def recent_blocks(connection: AsyncConnection, since: int) -> Sequence[SampleBlock]:
    """Return the blocks whose last time is after a Unix time, by last time and then as they were stored."""
    statement = (
        select(sample_block.c.samples)
        .where(sample_block.c.last_time > since)
        .order_by(sample_block.c.last_time, sample_block.c.id)
    )
    pool: dict[ContainerKey, ContainerKey] = {}
    # In small batches: the packed bytes of all blocks at once would be as much again.
    packed_blocks = await connection.stream_scalars(statement.execution_options(yield_per=_BLOCKS_AT_ONCE))
    with uncollected():
        return [unpack_block(packed, pool) async for packed in packed_blocks]


async def prune(connection: AsyncConnection, blocks_until: int, partitions_before: int) -> None:
    """Drop blocks without a time after `blocks_until`, and partitions not read since `partitions_before`.

    Both in Unix seconds.
    """
    await connection.execute(delete(sample_block).where(sample_block.c.last_time <= blocks_until))
    await connection.execute(delete(usage_partition).where(usage_partition.c.read_until < partitions_before))

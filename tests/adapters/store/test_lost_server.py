"""The embedded server is killed while usage is recorded: each read is stored completely or not at all.
continues.
"""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from cruise.adapters.store.postgres import PostgresStore, open_store
from cruise.domain.usage import (
    ContainerKey,
    HourlyPeaks,
    PartitionCounterTail,
    PartitionProgress,
    PeakKey,
    SampleBlock,
    UsageUpdate,
)
from cruise.errors import UnavailableError
from tests.postgres_servers import embedded_server

CONTAINERS = 1000


@pytest.fixture
def data_dir():
    with embedded_server() as directory:
        yield directory


def read_number(number: int) -> UsageUpdate:
    """The number-th read: it is the only one with a block that ends then, and with peaks of that hour."""
    keys = [ContainerKey("shop", f"web-{container}", "app") for container in range(CONTAINERS)]
    figures = np.full(CONTAINERS, float(number))
    tail = PartitionCounterTail(number, keys, [""] * CONTAINERS, figures, figures, figures.astype(np.int64))
    return UsageUpdate(
        partition="a",
        progress=PartitionProgress(0, number, counter_tail=tail),
        peaks=HourlyPeaks(
            keys=[PeakKey("shop", f"Deployment/web-{container}", "app", "") for container in range(CONTAINERS)],
            hours=np.full(CONTAINERS, number, dtype=np.int64),
            cpu_demand_millicores=figures,
            memory_bytes=figures,
        ),
        block=SampleBlock(
            keys=keys,
            times=np.array([number], dtype=np.int64),
            cpu_demand_millicores=figures.astype(np.float32).reshape(-1, 1),
            memory_bytes=figures.reshape(-1, 1),
            psi_known=np.ones(CONTAINERS, dtype=np.bool_),
        ),
    )


async def kill(data_dir: Path) -> None:
    """End the server as a crash would, and wait for its children, which may answer for a moment longer."""
    # It may have ended since an earlier kill.
    with suppress(ProcessLookupError, FileNotFoundError):
        server = int((data_dir / "postgres" / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
        os.kill(server, signal.SIGKILL)
        while any(runs(child) for child in children):
            await asyncio.sleep(0.01)


def runs(pid: str) -> bool:
    """Return whether a process is there that has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def stored_reads(store: PostgresStore) -> int:
    """How many reads are stored, after a look at every part of each."""
    progress = (await store.read_usage_progress())["a"]
    last = progress.read_until
    assert progress.counter_tail is not None and progress.counter_tail.at == last
    assert progress.counter_tail.cpu_seconds.tolist() == [float(last)] * CONTAINERS
    assert [block.times.tolist() for block in await store.read_recent_blocks(0)] == [[n] for n in range(1, last + 1)]
    peaks = await store.read_workload_peaks("shop", "Deployment/web-7", 0)
    assert peaks.hours.tolist() == list(range(1, last + 1))
    summary = await store.read_peak_summary([last], 0)
    assert summary.cpu_peak_millicores.tolist() == [float(last)] * CONTAINERS
    return last


async def record_until_killed(
    store: PostgresStore, data_dir: Path, number: int, pause_seconds: float
) -> tuple[int, bool]:
    """Record one read after the other while the server is killed: how many are acknowledged, and if one was lost."""
    killed = asyncio.Event()

    async def kill_soon() -> None:
        await asyncio.sleep(pause_seconds)
        await kill(data_dir)
        killed.set()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(kill_soon())
        # A server that is lost between two reads may be started again unseen; then there is nothing to see here.
        reads_after_it = 0
        while reads_after_it < 2:
            try:
                await store.record_usage(read_number(number + 1))
            except UnavailableError:
                await killed.wait()
                return number, True
            number += 1
            reads_after_it += killed.is_set()
    return number, False


async def test_a_read_is_stored_completely_or_not(data_dir):
    losses = 0
    async with open_store(None, data_dir, pytest.fail) as store:
        number = 1
        await store.record_usage(read_number(number))
        for turn in range(40):
            acknowledged, lost = await record_until_killed(store, data_dir, number, 0.003 + 0.0071 * turn)
            number = await stored_reads(store)
            # The read in progress may have been stored without an answer.
            assert acknowledged <= number <= acknowledged + 1
            await store.record_usage(read_number(number + 1))
            number += 1
            assert await stored_reads(store) == number
            losses += lost
            if losses == 5:
                break
    assert losses == 5

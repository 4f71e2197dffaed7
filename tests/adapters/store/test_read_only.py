"""A database that answers but accepts no writes, such as a standby or one with a full disk."""

from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from cruise.adapters.store.postgres import open_store
from cruise.domain.actions import Action, ReasonCode, TaintNode, UntaintNode
from cruise.domain.policy import Mode, Policy
from cruise.domain.scheduling import OVERLOADED_TAINT
from cruise.errors import UnavailableError
from cruise.runtime.ports import StorePort
from cruise.runtime.writing.writer import ClusterWriter
from tests.postgres_servers import dsn_below, emptied
from tests.simulation.scenes import amounts, cluster, evict, only_pod, resize, workload

FULL = Policy(mode=Mode.FULL)


@pytest.fixture
async def read_only(embedded_postgres: Path) -> AsyncIterator[StorePort]:
    dsn = dsn_below(embedded_postgres)
    emptied(dsn)
    async with open_store(None, embedded_postgres, pytest.fail):
        pass
    await switched(dsn, "on")
    try:
        async with open_store(None, embedded_postgres, pytest.fail) as store:
            yield store
    finally:
        await switched(dsn, "off")


async def switched(dsn: str, value: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("SET default_transaction_read_only = off")
        [name] = await connection.fetchrow("SELECT current_database()")
        await connection.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = {value}')
    finally:
        await connection.close()


async def test_nothing_is_written_to_the_cluster_but_taints_are_removed(read_only: StorePort):
    world = cluster(workload())
    pod = await only_pod(world)
    actions: list[Action] = [resize(pod, amounts(50, 50)), evict(pod), TaintNode("n1", ReasonCode.OVERLOADED)]
    for action in actions:
        with pytest.raises(UnavailableError, match="read-only"):
            await ClusterWriter(world, read_only, FULL).apply_plan([action], await world.snapshot(), world.now)
    assert (world.counts.resizes_requested, world.counts.evictions) == (0, 0)
    with pytest.raises(UnavailableError, match="read-only"):
        await read_only.check_writable()
    [one] = (await world.snapshot()).nodes
    assert one.taints == ()
    await world.perform(actions[2])
    with pytest.raises(UnavailableError, match="read-only"):
        # The taint is removed, and its outcome is stored once the database accepts writes.
        await ClusterWriter(world, read_only, FULL).apply_plan(
            [UntaintNode("n1", ReasonCode.LOAD_NORMAL)], await world.snapshot(), world.now
        )
    [one] = (await world.snapshot()).nodes
    assert OVERLOADED_TAINT not in one.taints

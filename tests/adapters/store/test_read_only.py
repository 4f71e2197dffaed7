"""A database that answers and takes nothing, as a standby does or one on a full disk: no write to the cluster."""

from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from cruise.adapters.store import open_store
from cruise.domain.actions import Action, Reason, TaintNode, UntaintNode
from cruise.domain.policy import Mode, Policy
from cruise.domain.scheduling import OVERLOADED
from cruise.errors import Unavailable
from cruise.runtime.ports import Store
from cruise.runtime.writing.writer import Writer
from tests.postgres_servers import dsn_below, emptied
from tests.simulation.scenes import amounts, cluster, evict, only_pod, resize, workload

FULL = Policy(mode=Mode.FULL)


@pytest.fixture
async def read_only(embedded_postgres: Path) -> AsyncIterator[Store]:
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


async def test_nothing_is_written_to_the_cluster_but_taints_come_off(read_only: Store):
    world = cluster(workload())
    pod = await only_pod(world)
    actions: list[Action] = [resize(pod, amounts(50, 50)), evict(pod), TaintNode("n1", Reason.OVERLOADED)]
    for action in actions:
        with pytest.raises(Unavailable, match="read-only"):
            await Writer(world, read_only, FULL).apply([action], await world.snapshot(), world.now)
    assert (world.tally.resizes_asked, world.tally.evictions) == (0, 0)
    with pytest.raises(Unavailable, match="read-only"):
        await read_only.check_writable()
    [one] = (await world.snapshot()).nodes
    assert one.taints == ()
    await world.perform(actions[2])
    with pytest.raises(Unavailable, match="read-only"):
        # It is done, and its line waits for the database.
        await Writer(world, read_only, FULL).apply(
            [UntaintNode("n1", Reason.LOAD_FELL)], await world.snapshot(), world.now
        )
    [one] = (await world.snapshot()).nodes
    assert OVERLOADED not in one.taints

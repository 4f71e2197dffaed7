"""Who explains from the store alone prepares the model that the node pass has."""

import asyncio
from contextlib import closing

import numpy as np
import pytest

from cruise.backtest.replay.options import ReplayOptions
from cruise.backtest.replay.replay import replay
from cruise.decisions.sizing.headroom.shared_max import SHARED_MAX
from cruise.decisions.sizing.recommendation import Demand
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName, Resources
from cruise.domain.usage import StatisticsTable
from cruise.runtime.sizing.pass_headroom import stored_headroom
from cruise.simulation.store.store import MemoryStore
from tests.backtest.policies.live_passes import LivePasses
from tests.backtest.policies.test_node_passes import GIBIBYTE, recording


@pytest.mark.parametrize(("model", "step"), [("joint-peak", 300), ("risk", 60)])
def test_the_store_tells_what_the_pass_knew(model, step):
    made = recording(5, 26 if model == "joint-peak" else 6, step)
    policy = Policy(headroom=model)
    with closing(LivePasses(made, policy)) as live:
        replay(made, live, ReplayOptions(node=Resources(4000, 8 * GIBIBYTE)))

        async def both():
            statistics = await live.store.read_statistics()
            ours = await stored_headroom(live.store, statistics, policy)
            return statistics, ours, await live.headroom.prepare(live.store, statistics, policy)

        statistics, ours, theirs = asyncio.run(both())
    rows = np.array(sorted(statistics.row_of_container.values()))
    assert len(rows) > 3
    base, nothing = statistics.cpu_base_millicores[rows], np.zeros(len(rows), dtype=np.int64)
    headroom = np.maximum(statistics.cpu_peak_millicores[rows] - base, 0)
    managed = np.ones(len(rows), dtype=np.bool_)
    peak = base + headroom
    demand = Demand(base, peak, base, headroom, peak, nothing, nothing, nothing, managed, nothing)
    for resource in ResourceName:
        assert ours.rule(resource) == model
        extras = ours.extras(resource, rows, demand)
        assert extras.size
        np.testing.assert_array_equal(extras, theirs.extras(resource, rows, demand))
        node = (base.sum(keepdims=True), headroom.max(keepdims=True), extras.sum(axis=0, keepdims=True))
        assert ours.of_nodes(resource, *node).tolist() == theirs.of_nodes(resource, *node).tolist()


async def test_where_nothing_is_known_the_largest_single_headroom_is_shared():
    nothing = StatisticsTable.of_rows([])
    assert await stored_headroom(MemoryStore(), nothing, Policy(headroom="risk")) is SHARED_MAX

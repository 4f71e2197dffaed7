"""The headroom model prepared from the store alone equals that of the node pass."""

import asyncio
from contextlib import closing

import numpy as np
import pytest

from cruise.backtest.replay.policy import ReplayOptions
from cruise.backtest.replay.replay import replay_policy
from cruise.decisions.sizing.demand import ResourceDemand
from cruise.decisions.sizing.headroom import SHARED_MAX_HEADROOM
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName, Resources
from cruise.domain.usage import StatisticsTable
from cruise.runtime.headroom import prepare_stored_headroom
from cruise.simulation.store import InMemoryStore
from tests.backtest.policies.live_passes import LivePasses
from tests.backtest.policies.test_cruise_policy import GIBIBYTE, recording


@pytest.mark.parametrize(("model", "step"), [("joint-peak", 300), ("risk", 60)])
def test_the_store_returns_what_the_pass_recorded(model, step):
    made = recording(5, 26 if model == "joint-peak" else 6, step)
    policy = Policy(headroom=model)
    with closing(LivePasses(made, policy)) as live:
        replay_policy(made, live, ReplayOptions(node=Resources(4000, 8 * GIBIBYTE)))

        async def both():
            statistics = await live.store.read_statistics()
            ours = await prepare_stored_headroom(live.store, statistics, policy)
            return statistics, ours, await live.headroom.prepare(live.store, statistics, policy)

        statistics, ours, theirs = asyncio.run(both())
    rows = np.array(sorted(statistics.row_of_container.values()))
    assert len(rows) > 3
    base, nothing = statistics.cpu_base_millicores[rows], np.zeros(len(rows), dtype=np.int64)
    headroom = np.maximum(statistics.cpu_peak_millicores[rows] - base, 0)
    managed = np.ones(len(rows), dtype=np.bool_)
    peak = base + headroom
    demand = ResourceDemand(base, peak, base, headroom, peak, nothing, nothing, nothing, managed, nothing)
    for resource in ResourceName:
        assert ours.name == model
        extras = ours.get_columns_to_sum(resource, rows, demand)
        assert extras.size
        np.testing.assert_array_equal(extras, theirs.get_columns_to_sum(resource, rows, demand))
        node = (base.sum(keepdims=True), headroom.max(keepdims=True), extras.sum(axis=0, keepdims=True))
        assert (
            ours.compute_node_headroom(resource, *node).tolist()
            == theirs.compute_node_headroom(resource, *node).tolist()
        )


async def test_where_nothing_is_known_the_largest_single_headroom_is_shared():
    nothing = StatisticsTable.from_rows([])
    assert await prepare_stored_headroom(InMemoryStore(), nothing, Policy(headroom="risk")) is SHARED_MAX_HEADROOM

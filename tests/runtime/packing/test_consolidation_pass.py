"""The consolidation pass on small simulated clusters, with a solver in this process."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from cruise.domain.policy import Mode
from cruise.domain.reasons import PlanCondition, PlanStatusReason
from cruise.errors import UnavailableError
from cruise.interfaces.packing.descriptions import describe_condition
from cruise.interfaces.packing.nodes import count_kept_nodes, describe_consolidation
from cruise.runtime.packing.consolidation_pass import ConsolidationPassResult, run_consolidation_pass
from cruise.runtime.ports import PassContext
from cruise.runtime.usage.usage_state import UsageState
from tests.runtime.packing.packing_scenes import FULL, PackingSimulation, make_resized_pod
from tests.runtime.packing.test_packing_pass import Exhaustive
from tests.simulation.scenes import node, run


def spread_out(policy=FULL, **fields) -> PackingSimulation:
    """Three pods that one node could hold, on three nodes."""
    theatre = PackingSimulation(
        [make_resized_pod("web", 500, replicas=3)], [node("n1"), node("n2"), node("n3")], policy, **fields
    )
    run(theatre.world, 60)
    return theatre


async def looked(
    theatre: PackingSimulation, solver=None, *, statistics_at="now", cluster: Any = None
) -> ConsolidationPassResult:
    now = theatre.world.now
    return await run_consolidation_pass(
        PassContext(cluster or theatre.world, theatre.store, theatre.policy, now),
        solver or Exhaustive(),
        seconds=1,
        known_usage=UsageState(),
        statistics_at=now if statistics_at == "now" else statistics_at,
    )


async def test_the_fewest_nodes_are_found_and_nothing_is_written():
    theatre = spread_out()
    before = await theatre.where()
    done = await looked(theatre)
    assert done.node_count_change is not None and done.plan is not None
    assert (
        done.node_count_change.nodes_before,
        done.node_count_change.nodes_after,
        done.node_count_change.nodes_bound,
    ) == (3, 1, 1)
    assert len(done.plan.moves) == len(done.node_count_change.drained) == 2
    assert describe_consolidation(done) == ["3 nodes in use; 1 suffices after 2 moves, proved."]
    assert await theatre.where() == before
    assert await theatre.store.read_packing_plan() is None
    assert (theatre.world.counts.evictions, theatre.world.counts.resizes_requested) == (0, 0)


async def test_observe_is_advised_as_mode_full_would_be():
    done = await looked(spread_out(replace(FULL, mode=Mode.OBSERVE)))
    assert done.node_count_change is not None and done.node_count_change.nodes_after == 1


@pytest.mark.parametrize("age", [None, timedelta(minutes=16)])
async def test_without_fresh_statistics_there_is_no_advice(age):
    theatre, solver = spread_out(), Exhaustive()
    done = await looked(theatre, solver, statistics_at=None if age is None else theatre.world.now - age)
    assert done.node_count_change is None
    assert "no statistics" in describe_condition(done.condition)
    assert describe_consolidation(done) == [f"No advice: {describe_condition(done.condition)}."]
    assert solver.asked == []


async def test_what_keeps_a_node_is_said():
    theatre = spread_out()
    pods = (await theatre.world.snapshot()).pods
    done = await looked(theatre, cluster=Kept(theatre, pods[0].uid))
    assert done.node_count_change is not None
    assert done.node_count_change.nodes_after == 1
    [kept] = count_kept_nodes(done.node_count_change)
    assert kept.nodes == 1 and "safe-to-evict" in kept.reason


class Kept:
    """A cluster in which one pod may not be evicted."""

    def __init__(self, theatre: PackingSimulation, uid: str) -> None:
        self._theatre, self._uid = theatre, uid

    async def snapshot(self):
        found = await self._theatre.world.snapshot()
        kept = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
        pods = [replace(pod, annotations=kept) if pod.uid == self._uid else pod for pod in found.pods]
        return replace(found, pods=tuple(pods))


async def test_a_view_of_the_cluster_that_is_not_known_is_refused():
    theatre = spread_out()

    class Lost(Kept):
        async def snapshot(self):
            raise UnavailableError("the view of the cluster is old")

    with pytest.raises(UnavailableError):
        await looked(theatre, cluster=Lost(theatre, ""))


async def test_a_mistake_about_one_cluster_ends_no_other_pass():
    class Odd(Exhaustive):
        async def pack(self, problem, seconds, /):
            raise ValueError("odd")

    done = await looked(spread_out(), Odd())
    assert done.condition == PlanCondition(PlanStatusReason.FAILED, detail="ValueError('odd')")

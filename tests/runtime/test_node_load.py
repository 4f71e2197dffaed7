"""The node-load pass on a simulated cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cruise.domain.actions import Outcome, TaintNode, UntaintNode, Verdict
from cruise.domain.cluster import Snapshot
from cruise.domain.policy import Mode, Policy
from cruise.domain.scheduling import OVERLOADED
from cruise.domain.usage import CounterTail, SampleBlock
from cruise.runtime.node_load import NodeLoads, node_load_pass
from cruise.simulation.cluster.cluster import SimulatedCluster
from cruise.simulation.store.store import MemoryStore
from tests.simulation.scenes import START, cluster, node, workload

FULL = Policy(mode=Mode.FULL)


class Readings:
    """A usage source that knows loads only: those of one minute after the other."""

    def __init__(self, *minutes: Mapping[str, float]) -> None:
        self._minutes = list(minutes)

    async def partitions(self, snapshot: Snapshot) -> Sequence[str]:
        return ()

    async def read(
        self, partition: str, start: int, end: int, tail: CounterTail | None
    ) -> tuple[SampleBlock, CounterTail | None]:
        raise AssertionError("no samples are asked for")

    async def node_loads(self, at: int) -> Mapping[str, float]:
        return self._minutes.pop(0)


async def watch(world: SimulatedCluster, *minutes: Mapping[str, float], policy=FULL) -> list[list[Outcome]]:
    source, store, loads = Readings(*minutes), MemoryStore(), NodeLoads()
    return [await node_load_pass(world, source, store, loads, policy, START) for _ in minutes]


async def tainted(world: SimulatedCluster) -> list[str]:
    return [one.name for one in (await world.snapshot()).nodes if OVERLOADED in one.taints]


def two_nodes() -> SimulatedCluster:
    return cluster(workload(), [node("n1", cpu=4000), node("n2", cpu=8000)])


async def test_a_node_over_its_capacity_twice_is_tainted_and_under_it_twice_freed():
    world = two_nodes()
    # A load of 5 is over 4 CPUs and under 8.
    minutes = [{"n1": 5.0, "n2": 5.0}] * 2 + [{"n1": 3.0, "n2": 5.0}] * 2
    done = await watch(world, *minutes[:2])
    assert [len(outcomes) for outcomes in done] == [0, 1]
    assert isinstance(done[1][0].action, TaintNode)
    assert await tainted(world) == ["n1"]
    freed = await watch(world, *minutes[2:])
    assert [[type(o.action) for o in outcomes] for outcomes in freed] == [[], [UntaintNode]]
    assert await tainted(world) == []


async def test_what_is_kept_from_pods_carries_load_as_well():
    world = cluster(workload(), [replace(node("n1", cpu=4000), cpu_capacity_millicores=6000)])
    assert await watch(world, {"n1": 5.9}, {"n1": 5.9}) == [[], []]
    [_, second] = await watch(world, {"n1": 6.1}, {"n1": 6.1})
    assert len(second) == 1


async def test_a_missing_reading_breaks_the_row_and_leaves_the_taint():
    world = two_nodes()
    assert [len(o) for o in await watch(world, {"n1": 9.0}, {}, {"n1": 9.0}, {"n1": 9.0})] == [0, 0, 0, 1]
    assert [len(o) for o in await watch(world, {}, {}, {"n1": 0.1}, {})] == [0] * 4
    assert await tainted(world) == ["n1"]


async def test_taints_need_mode_full():
    world = two_nodes()
    done = await watch(world, {"n1": 9.0}, {"n1": 9.0}, policy=Policy(mode=Mode.RESIZE))
    assert [outcome.verdict for outcome in done[1]] == [Verdict.OBSERVED]
    assert await tainted(world) == []


async def test_readings_of_nodes_that_are_gone_are_forgotten():
    loads = NodeLoads()
    loads.add("n1", 2.0)
    loads.keep_only(frozenset({"n2"}))
    assert list(loads.add("n1", 2.0)) == [2.0]
    assert list(loads.add("n1", None)) == [2.0, None]
    assert list(loads.add("n1", 1.0)) == [None, 1.0]

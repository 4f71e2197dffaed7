"""The node-load pass on a simulated cluster."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from cruise.domain.actions import ActionResult, Outcome, ReasonCode, TaintNode, UntaintNode
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.policy import Mode, Policy
from cruise.domain.scheduling import OVERLOADED_TAINT
from cruise.domain.usage import NO_NODE_USAGE, NodeLoadAverage, NodeUsage, PartitionCounterTail, SampleBlock
from cruise.errors import CruiseError, RefusedError, UnavailableError
from cruise.runtime.node_load import NodeLoadHistory, NodeLoadPassResult, remove_taints_on_exit, run_node_load_pass
from cruise.runtime.ports import PassContext
from cruise.runtime.writing.writer import ClusterWriter
from cruise.simulation.cluster.cluster import SimulatedCluster
from cruise.simulation.store import InMemoryStore
from tests.simulation.scenes import START, cluster, node, workload

FULL = Policy(mode=Mode.FULL)
MINUTE = timedelta(minutes=1)
Loads = Mapping[str, float]


class Readings:
    """A usage source with node loads only: those of one minute after the other, each with a new sample."""

    def __init__(self, *minutes: Loads | CruiseError, every_seconds: int = 60) -> None:
        self._minutes = list(minutes)
        self._every_seconds = every_seconds

    async def list_partitions(self, snapshot: ClusterSnapshot) -> Sequence[str]:
        return ()

    async def read(
        self, partition: str, start: int, end: int, tail: PartitionCounterTail | None
    ) -> tuple[SampleBlock, PartitionCounterTail | None]:
        raise AssertionError("no samples are asked for")

    async def read_node_usage(self, nodes: Collection[str], start: int, end: int) -> NodeUsage:
        return NO_NODE_USAGE

    async def read_node_loads(self, at: int) -> Mapping[str, NodeLoadAverage]:
        found = self._minutes.pop(0)
        if isinstance(found, CruiseError):
            raise found
        return {
            name: NodeLoadAverage(load, at // self._every_seconds * self._every_seconds) for name, load in found.items()
        }


class Watch:
    """One process that looks at the loads every minute."""

    def __init__(self, world: SimulatedCluster, policy: Policy = FULL, store: InMemoryStore | None = None) -> None:
        self.world, self.policy, self.store = world, policy, store or InMemoryStore()
        self.loads = NodeLoadHistory()
        self.now = START

    async def passes(self, *minutes: Loads | CruiseError, every_seconds: int = 60) -> list[NodeLoadPassResult]:
        source, done = Readings(*minutes, every_seconds=every_seconds), []
        for _ in minutes:
            self.now += MINUTE
            done.append(
                await run_node_load_pass(PassContext(self.world, self.store, self.policy, self.now), source, self.loads)
            )
        return done

    async def outcomes(self, *minutes: Loads | CruiseError) -> list[Sequence[Outcome]]:
        return [done.outcomes for done in await self.passes(*minutes)]

    async def tainted(self) -> list[str]:
        return [one.name for one in (await self.world.snapshot()).nodes if OVERLOADED_TAINT in one.taints]


def watch_nodes(count: int = 5, policy: Policy = FULL, **fields: object) -> Watch:
    nodes = [node(f"n{number}", cpu=8000 if number == 2 else 4000) for number in range(1, count + 1)]
    return Watch(cluster(workload(), nodes), policy)


async def test_a_node_over_its_capacity_twice_is_tainted_and_under_it_twice_freed():
    watch = watch_nodes()
    # A load of 5 is over 4 CPUs and under 8.
    [first, second] = await watch.outcomes({"n1": 5.0, "n2": 5.0}, {"n1": 5.0, "n2": 5.0})
    assert (len(first), len(second)) == (0, 1)
    assert isinstance(second[0].action, TaintNode)
    assert await watch.tainted() == ["n1"]
    freed = await watch.outcomes({"n1": 3.0, "n2": 5.0}, {"n1": 3.0, "n2": 5.0})
    assert [[type(one.action) for one in outcomes] for outcomes in freed] == [[], [UntaintNode]]
    assert await watch.tainted() == []


async def test_what_is_kept_from_pods_carries_load_as_well():
    nodes = [replace(node("n1", cpu=4000), cpu_capacity_millicores=6000), node("n2")]
    watch = Watch(cluster(workload(), nodes))
    assert await watch.outcomes({"n1": 5.9}, {"n1": 5.9}) == [[], []]
    [_, second] = await watch.outcomes({"n1": 6.1}, {"n1": 6.1})
    assert len(second) == 1


async def test_one_sample_seen_twice_is_one_reading():
    watch = watch_nodes()
    # Scraped every three minutes and looked at every minute: at 9:00, which two looks see, and at 9:03.
    done = await watch.passes(*[{"n1": 9.0}] * 3, every_seconds=180)
    assert [len(one.outcomes) for one in done] == [0, 0, 1]
    assert await watch.tainted() == ["n1"]


async def test_a_missing_reading_breaks_the_row_and_leaves_the_taint():
    watch = watch_nodes()
    assert [len(o) for o in await watch.outcomes({"n1": 9.0}, {}, {"n1": 9.0}, {"n1": 9.0})] == [0, 0, 0, 1]
    assert [len(o) for o in await watch.outcomes({}, {}, {"n1": 0.1}, {})] == [0] * 4
    assert await watch.tainted() == ["n1"]


async def test_without_readings_the_taint_is_removed_after_an_hour_even_without_prometheus():
    watch = watch_nodes()
    await watch.outcomes({"n1": 9.0}, {"n1": 9.0})
    done = await watch.passes(*[UnavailableError("Prometheus does not answer")] * 59)
    assert [one for one in done if one.outcomes] == []
    assert all(str(one.failure) == "Prometheus does not answer" for one in done)
    assert await watch.tainted() == ["n1"]
    [last] = await watch.passes(UnavailableError("Prometheus does not answer"))
    assert [(type(one.action), one.reason) for one in last.outcomes] == [(UntaintNode, ReasonCode.LOAD_UNKNOWN)]
    assert await watch.tainted() == []


async def test_a_hundred_nodes_that_are_all_overloaded_are_not_tainted():
    watch = watch_nodes(100)
    everywhere = {f"n{number}": 40.0 for number in range(1, 101)}
    with capture_logs() as logs:
        done = await watch.passes(*[everywhere] * 3)
    assert await watch.tainted() == []
    assert [one.overloaded_at_once for one in done] == [100] * 3
    assert [one["event"] for one in logs] == ["most nodes are overloaded, which is implausible: none is tainted"]


async def test_of_a_hundred_nodes_a_fifth_is_tainted():
    watch = watch_nodes(100)
    done = await watch.passes(*[{f"n{number}": 40.0 + number for number in range(1, 51)}] * 3)
    assert [len(one.outcomes) for one in done] == [0, 20, 0]
    assert len(await watch.tainted()) == 20
    assert len(done[-1].tainted) == 20


async def test_an_implausible_load_taints_no_node_and_is_logged_once():
    watch = watch_nodes()
    with capture_logs() as logs:
        done = await watch.passes(*[{"n1": 1e6, "n3": 5.0}] * 3)
        await watch.passes({"n1": 1.0, "n3": 5.0})
    assert [list(one.implausible) for one in done] == [["n1"]] * 3
    assert await watch.tainted() == ["n3"]
    assert [one["event"] for one in logs] == [
        "implausible node loads are ignored",
        "node loads are plausible again",
    ]


async def test_taints_need_mode_full():
    watch = watch_nodes(policy=Policy(mode=Mode.RESIZE))
    [_, second] = await watch.outcomes({"n1": 9.0}, {"n1": 9.0})
    assert [outcome.result for outcome in second] == [ActionResult.OBSERVED]
    assert await watch.tainted() == []


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.INITIAL, Mode.RESIZE])
async def test_a_taint_is_removed_once_the_mode_is_lowered(mode: Mode):
    watch = watch_nodes()
    await watch.outcomes({"n1": 9.0}, {"n1": 9.0})
    lowered = Watch(watch.world, Policy(mode=mode))
    [[freed]] = await lowered.outcomes({"n1": 9.0})
    assert (freed.result, freed.reason) == (ActionResult.DONE, ReasonCode.TAINTING_DISABLED)
    assert await lowered.tainted() == []


async def test_a_taint_may_be_removed_but_not_added_while_paused():
    watch = watch_nodes()
    await watch.outcomes({"n1": 9.0}, {"n1": 9.0})
    await watch.store.set_paused(True)
    done = await watch.outcomes({"n1": 0.1, "n3": 9.0}, {"n1": 0.1, "n3": 9.0})
    assert {(type(one.action), one.result) for one in done[1]} == {
        (UntaintNode, ActionResult.DONE),
        (TaintNode, ActionResult.OBSERVED),
    }
    assert await watch.tainted() == []


async def test_a_store_that_is_away_keeps_no_taint_on():
    watch = watch_nodes()
    await watch.outcomes({"n1": 9.0}, {"n1": 9.0})
    away = Watch(watch.world, store=Away())
    with pytest.raises(UnavailableError, match="no store"):
        await away.outcomes({"n1": 0.1}, {"n1": 0.1})
    assert await watch.tainted() == []


class Away(InMemoryStore):
    """A store that is out of reach."""

    async def is_paused(self) -> bool:
        raise UnavailableError("no store")

    async def record_outcomes(self, outcomes: Sequence[Outcome], completed: Collection[int] = ()) -> None:
        raise UnavailableError("no store")


async def test_without_the_right_it_is_tried_once_an_hour_and_the_nodes_are_named():
    watch = watch_nodes()
    await watch.outcomes({"n1": 9.0}, {"n1": 9.0})
    world = NoRight(watch.world)
    lowered = Watch(world, Policy(mode=Mode.OBSERVE))  # type: ignore[arg-type]
    done = await lowered.passes(*[{}] * 70)
    assert world.tried == 2
    assert {tuple(one.unremovable) for one in done} == {("n1",)}
    assert {tuple(one.tainted) for one in done} == {("n1",)}


class NoRight:
    """A cluster whose nodes cruise may not change."""

    def __init__(self, world: SimulatedCluster) -> None:
        self._world = world
        self.tried = 0

    async def snapshot(self) -> ClusterSnapshot:
        return await self._world.snapshot()

    async def wait_for_write_turn(self) -> None:
        pass

    async def perform(self, action: object) -> None:
        self.tried += 1
        raise RefusedError('nodes "n1" is forbidden', "Forbidden")


async def test_a_final_shutdown_leaves_no_taint():
    watch = watch_nodes()
    await watch.outcomes({"n1": 9.0}, {"n1": 9.0})
    writer = ClusterWriter(watch.world, watch.store, FULL)
    [freed] = await remove_taints_on_exit(watch.world, writer, "cruise", "laptop", watch.now)
    assert (freed.result, freed.reason) == (ActionResult.DONE, ReasonCode.TAINTING_DISABLED)
    assert await watch.tainted() == []
    assert await remove_taints_on_exit(watch.world, writer, "cruise", "laptop", watch.now) == ()


async def test_readings_of_nodes_that_are_gone_are_forgotten():
    loads, one = NodeLoadHistory(), node("n1")
    loads.add(one, NodeLoadAverage(8.0, 60), START)
    assert loads.keep_only(frozenset({"n2"})) == {}
    loads.add(one, NodeLoadAverage(8.0, 60), START)
    assert loads.keep_only(frozenset({"n1"}))["n1"].latest == (2.0,)
    loads.add(one, NodeLoadAverage(8.0, 60), START)
    loads.add(one, None, START)
    assert loads.keep_only(frozenset({"n1"}))["n1"].latest == (2.0, None)

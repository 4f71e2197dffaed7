"""A day of evictions on the simulated cluster: no eviction from the only node of a pod."""

from datetime import timedelta

from cruise.app.serve.controller import Controller
from cruise.domain.actions import ActionResult, EvictPod
from cruise.domain.cluster import Node
from cruise.domain.policy import DEFAULT_RULES, SEED_RULES, EnabledRules, Mode, Policy
from cruise.runtime.usage.usage_reader import UsageReadingSettings
from cruise.simulation.cluster.state import SimulationSettings
from cruise.simulation.store import InMemoryStore
from cruise.simulation.usage_source import SimulatedUsageSource
from tests.simulation.scenes import START, AdjustableDemand, cluster, container, node, pods, template, workload

BY_MINUTE = SimulationSettings(step_seconds=60)
LONG_AGO = START - timedelta(days=30)


async def day(nodes: list[Node], rules: EnabledRules, hours: int = 24) -> tuple[int, int]:
    """Four single replicas of 1,050 m; how many are evicted in so many hours, and how many wait then."""
    names = ("a", "b", "c", "d")
    dial = AdjustableDemand(cpu=1050, mebibytes=100)
    world = cluster(
        [workload(name, template(container(950, 256)), dial, created_at=LONG_AGO) for name in names],
        nodes,
        BY_MINUTE,
    )
    policy = Policy(mode=Mode.FULL, rules=rules)
    controller = Controller(
        world,
        SimulatedUsageSource(world),
        InMemoryStore(),
        policy,
        lambda: world.now,
        UsageReadingSettings(scrape_delay_seconds=0),
    )
    for minutes in range(10, hours * 60 + 1, 10):
        world.advance(START + timedelta(minutes=minutes))
        await controller.refresh_statistics()
        await controller.rightsize()
    gone = [one for one in controller.activity.outcomes if isinstance(one.action, EvictPod)]
    waiting = [pod for pod in await pods(world) if pod.node is None]
    return sum(one.result is ActionResult.DONE for one in gone), len(waiting)


async def test_no_pod_is_evicted_from_the_only_node_all_day():
    only = [node("n1", cpu=4000)]
    # The first design has one go again and again, whenever the one before has come back.
    evicted, _ = await day(only, SEED_RULES, hours=8)
    assert evicted > 2
    assert await day(only, DEFAULT_RULES) == (0, 0)

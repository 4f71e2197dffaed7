"""A memory leak over a day on the simulated cluster: its limit ends at twice the template's limit."""

from datetime import timedelta

import numpy as np

from cruise.app.serve.controller import Controller
from cruise.domain.actions import ReasonCode
from cruise.domain.arrays import Float64Array, Int64Array
from cruise.domain.policy import DEFAULT_RULES, SEED_RULES, EnabledRules, Mode, Policy
from cruise.domain.resources import MEBIBYTE
from cruise.runtime.oom import OomReactor
from cruise.runtime.usage.usage_reader import UsageReadingSettings
from cruise.simulation.cluster.state import SimulationSettings
from cruise.simulation.store import InMemoryStore
from cruise.simulation.usage_source import SimulatedUsageSource
from tests.simulation.scenes import START, amounts, cluster, container, node, only_pod, template, workload

BY_MINUTE = SimulationSettings(step_seconds=60)


class Growing:
    """300 MiB at the start of a process, and a tenth more every five minutes."""

    cpu = np.zeros(1)

    def compute_demand(self, members: Int64Array, at: Int64Array, age: Int64Array) -> tuple[Float64Array, Float64Array]:
        shape = np.broadcast_shapes(np.shape(members), np.shape(at), np.shape(age))
        memory = 300 * MEBIBYTE * 1.1 ** (np.clip(np.asarray(age, dtype=np.float64), 0, 36_000) / 300)
        return np.full(shape, 100.0), np.broadcast_to(memory, shape).copy()


async def limits_of_a_leak(rules: EnabledRules, hours: int) -> tuple[int, set[ReasonCode]]:
    """The largest limit in so many hours, in MiB, and the reasons stated for the pod."""
    leak = workload("leak", template(container(100, 400, amounts(None, 1024))), Growing(), created_at=START)  # type: ignore[arg-type]
    world = cluster(leak, [node("n1", cpu=4000, mebibytes=16_384)], BY_MINUTE)
    policy, store = Policy(mode=Mode.RESIZE, rules=rules), InMemoryStore()
    controller = Controller(
        world,
        SimulatedUsageSource(world),
        store,
        policy,
        lambda: world.now,
        UsageReadingSettings(scrape_delay_seconds=0),
    )
    reactor = OomReactor(world, store, policy)
    largest, said, answered = 0, set[ReasonCode](), 0
    for minutes in range(5, hours * 60 + 1, 5):
        world.advance(START + timedelta(minutes=minutes))
        for kill in world.oom_kills_at[answered:]:
            reaction = await reactor.react(kill, world.now)
            said |= {reaction.decision.reason} if reaction is not None else set()
        answered = len(world.oom_kills_at)
        await controller.refresh_statistics()
        done = await controller.rightsize()
        said |= {hold.reason for plan in done.plans for hold in plan.suspected_leaks}
        [app] = (await only_pod(world)).containers
        largest = max(largest, (app.limits.memory_bytes or 0) // MEBIBYTE)
    return largest, said


async def test_a_leak_is_stopped_at_its_ceiling_and_reported():
    largest, said = await limits_of_a_leak(DEFAULT_RULES, 24)
    assert largest == 2048
    assert {ReasonCode.MEMORY_LEAK_SUSPECTED, ReasonCode.OOM_KILLED, ReasonCode.AT_MAXIMUM} <= said


async def test_without_the_ceiling_its_limit_passed_the_node():
    largest, said = await limits_of_a_leak(SEED_RULES, 4)
    assert largest > 16_384
    assert ReasonCode.MEMORY_LEAK_SUSPECTED not in said

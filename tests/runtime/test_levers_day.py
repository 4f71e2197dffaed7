"""A day with a tenant whose annotations request a whole node, on the simulated cluster."""

from dataclasses import replace
from datetime import timedelta

import numpy as np

from cruise.app.serve.controller import Controller
from cruise.app.serve.controller_options import ControllerOptions, SharedWriterState
from cruise.domain.actions import EvictPod
from cruise.domain.policy import DEFAULT_RULES, Mode, Policy
from cruise.domain.resources import MEBIBYTE
from cruise.runtime.usage.usage_reader import UsageReadingSettings
from cruise.runtime.writing.evictions import PendingGrowths
from cruise.simulation.cluster.state import SimulationSettings
from cruise.simulation.store import InMemoryStore
from cruise.simulation.usage_source import SimulatedUsageSource
from tests.simulation.scenes import START, AdjustableDemand, cluster, container, node, pods, template, workload

LEVERS = {
    "cruise.io/eviction-ranking": "never",
    "cruise.io/memory-min": "8Gi",
    "cruise.io/headroom-factor": "10",
}
NAMES = ("one", "two", "three")


async def test_over_a_day_no_neighbour_is_evicted_or_below_its_base_for_a_tenants_annotations():
    dials = {name: AdjustableDemand(cpu=100, mebibytes=1500) for name in NAMES}
    tenant = template(container(100, 64), annotations=LEVERS)
    world = cluster(
        [
            workload("tenant", tenant, AdjustableDemand(cpu=50, mebibytes=48)),
            *(workload(name, template(container(100, 2500)), dials[name]) for name in NAMES),
        ],
        [node(cpu=8000, mebibytes=8192)],
        SimulationSettings(step_seconds=60),
    )
    controller = Controller(
        world,
        SimulatedUsageSource(world),
        InMemoryStore(),
        Policy(mode=Mode.FULL, rules=replace(DEFAULT_RULES, eviction_safeguards=False)),
        lambda: world.now,
        UsageReadingSettings(scrape_delay_seconds=0),
        ControllerOptions(shared=SharedWriterState(growths=PendingGrowths(lambda: world.now.timestamp()))),
    )
    granted = []
    for part in range(1, 24 * 6 + 1):
        # Together they need 4.5 GiB at night and 7.3 GiB by day, of the node's 8 GiB.
        level = 2000 - 480 * np.cos(2 * np.pi * part / (24 * 6))
        for dial in dials.values():
            dial.mebibytes[:] = level
        world.advance(START + timedelta(minutes=10 * part))
        await controller.refresh_statistics()
        await controller.rightsize()
        last = controller.activity.node_pass
        assert last is not None
        for plan in last.plans:
            assert plan.evict == ()
            for target in plan.targets:
                if not target.pod.startswith("tenant"):
                    assert target.memory_bytes >= target.memory_base_bytes
        [pod] = await pods(world, "tenant")
        granted.append((pod.containers[0].requests.memory_bytes or 0) // MEBIBYTE)
    assert not [one for one in controller.activity.outcomes if isinstance(one.action, EvictPod)]
    # It had what was free, and gave back what others came to need.
    assert max(granted) > 2000
    assert min(granted[24 * 3 :]) < max(granted) - 1000

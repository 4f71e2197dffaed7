"""What a controller keeps of pods that are gone."""

import gc
import random
from collections.abc import Set
from datetime import datetime, timedelta
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType

from cruise.app.serve.activity import ControllerHooks, ServeActivity
from cruise.app.serve.controller import Controller
from cruise.app.serve.controller_options import ControllerOptions
from cruise.domain.actions import ResizePod
from cruise.domain.policy import Mode, Policy
from cruise.runtime.usage.usage_reader import UsageReadingSettings
from cruise.simulation.cluster.cluster import SimulatedCluster
from cruise.simulation.cluster.state import SimulationSettings
from cruise.simulation.store import InMemoryStore
from cruise.simulation.usage_source import SimulatedUsageSource
from tests.simulation.scenes import START, AdjustableDemand, cluster, container, evict, node, pods, template, workload

PODS, REPLACED, PASSES = 20, 10, 150
WORLD = (SimulatedCluster, InMemoryStore, SimulatedUsageSource)
CODE = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)


def find_uids(root: object, uids: Set[str]) -> set[str]:
    """Return which of these uids are reachable from an object."""
    found, seen, left = set(), set(), [root]
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, (*WORLD, *CODE)):
            continue
        seen.add(id(one))
        if isinstance(one, str) and one in uids:
            found.add(one)
        left += gc.get_referents(one)
    return found


async def test_forgets_pods_that_are_gone():
    dial = AdjustableDemand(cpu=100, mebibytes=100, members=400)
    web = workload("web", template(container(300, 512)), dial, replicas=PODS, created_at=START - timedelta(days=2))
    world = cluster(web, [node(cpu=64000, mebibytes=131072)], SimulationSettings(step_seconds=60))
    told: list[tuple[Set[str], datetime]] = []
    activity = ServeActivity()
    controller = Controller(
        world,
        SimulatedUsageSource(world),
        InMemoryStore(),
        Policy(mode=Mode.RESIZE),
        lambda: world.now,
        UsageReadingSettings(scrape_delay_seconds=0),
        ControllerOptions(ControllerHooks(forget_gone_pods=lambda *gone: told.append(gone)), activity),
    )
    uids, drawn = set[str](), random.Random(32)
    for minute in range(1, PASSES + 1):
        present = await pods(world)
        uids |= {pod.uid for pod in present}
        for pod in drawn.sample([pod for pod in present if not pod.terminating], REPLACED):
            await world.perform(evict(pod))
        world.advance(START + timedelta(minutes=minute))
        await controller.refresh_statistics()
        done = await controller.rightsize()
        assert told[-1] == ({pod.uid for pod in done.snapshot.pods}, done.at)
    present_now = {pod.uid for pod in await pods(world)}
    gone = uids - present_now
    assert len(gone) > 1000
    # What the API shows of the latest resizes.
    shown = {one.action.uid for one in activity.outcomes if isinstance(one.action, ResizePod)}
    shown |= {uid for uid, _ in activity.requested_before}
    told.clear()
    kept = find_uids(controller, gone) - shown
    assert len(kept) < 2 * PODS

"""A day with overloaded nodes and other autoscalers on the simulated cluster."""

from datetime import timedelta

import numpy as np

from cruise.app.serve.controller import Controller
from cruise.domain.actions import ActionResult, ReasonCode, ResizePod
from cruise.domain.cluster import HorizontalPodAutoscaler, VerticalPodAutoscaler, WorkloadRef
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import ResourceName
from cruise.domain.scheduling import (
    OVERLOADED_TAINT,
    LabelRequirement,
    LabelSelector,
    SchedulingConstraints,
    SelectorOperator,
)
from cruise.runtime.node_load import NodeLoadHistory, run_node_load_pass
from cruise.runtime.ports import PassContext
from cruise.runtime.usage.usage_reader import UsageReadingSettings
from cruise.simulation.cluster.cluster import SimulatedCluster
from cruise.simulation.cluster.state import SimulationSettings
from cruise.simulation.store import InMemoryStore
from cruise.simulation.usage_source import SimulatedUsageSource
from tests.simulation.scenes import (
    NAMESPACE,
    START,
    AdjustableDemand,
    cluster,
    container,
    node,
    pods,
    template,
    workload,
)

BY_MINUTE = SimulationSettings(step_seconds=60)
FULL = Policy(mode=Mode.FULL)
NODES = 10


def one_pod_a_node(dials: list[AdjustableDemand]) -> SimulatedCluster:
    def pinned(number: int) -> SchedulingConstraints:
        return SchedulingConstraints(node_selector=(("number", str(number)),))

    nodes = [node(f"n{number}", labels={"number": str(number)}) for number in range(NODES)]
    workloads = [
        workload(f"web{number}", template(placement=pinned(number)), dial) for number, dial in enumerate(dials)
    ]
    return cluster(workloads, nodes, BY_MINUTE)


async def test_over_a_day_no_more_than_a_fifth_is_tainted_and_none_when_all_seem_to_be_overloaded():
    dials = [AdjustableDemand(cpu=1000) for _ in range(NODES)]
    world, store, loads = one_pod_a_node(dials), InMemoryStore(), NodeLoadHistory()
    usage, now, tainted_at = SimulatedUsageSource(world), START, []
    for minute in range(1, 24 * 60 + 1):
        hour = minute / 60
        for number, dial in enumerate(dials):
            # From 8 to 10 four of ten have too much to do, from 12 to 14 all.
            busy = (8 <= hour < 10 and number < 4) or 12 <= hour < 14
            dial.cpu[:] = 5000 + 100 * number if busy else 1000
        await store.set_paused(hour >= 9)
        now = START + timedelta(minutes=minute)
        world.advance(now)
        await run_node_load_pass(PassContext(world, store, FULL, now), usage, loads)
        tainted_at.append([one.name for one in (await world.snapshot()).nodes if OVERLOADED_TAINT in one.taints])
    at = dict(enumerate(tainted_at, start=1))
    assert max(len(names) for names in tainted_at) == 2
    # Two samples above it, the most loaded first.
    assert at[8 * 60 + 1] == ["n2", "n3"]
    assert at[8 * 60 + 30] == at[9 * 60 + 59] == ["n2", "n3"]
    # Two below it take the taints off, paused or not, and nothing is put on while all are overloaded.
    assert all(not names for minute, names in at.items() if not 8 * 60 <= minute <= 10 * 60 + 1)


async def test_over_a_day_pods_that_a_vpa_takes_over_at_noon_are_skipped_from_then_on():
    names = ("free", "rival", "engine")
    dials = {name: AdjustableDemand(cpu=100, mebibytes=200) for name in names}
    big = container(1000, 1024)
    world = cluster(
        [workload(name, template(big), dials[name], replicas=2) for name in names],
        [node("n1", cpu=16000, mebibytes=32768)],
        BY_MINUTE,
        # The Deployment is named after the target, and nothing else identifies it.
        autoscalers=[
            HorizontalPodAutoscaler(
                NAMESPACE, "engine", WorkloadRef("KafkaConnect", "engine"), frozenset({ResourceName.CPU})
            )
        ],
    )
    # Its kind has no scale.
    world.add_scale(NAMESPACE, WorkloadRef("KafkaConnect", "engine"), None)
    store = InMemoryStore()
    controller = Controller(
        world, SimulatedUsageSource(world), store, FULL, lambda: world.now, UsageReadingSettings(scrape_delay_seconds=0)
    )
    noon = START + timedelta(hours=12)
    for quarter in range(1, 24 * 4 + 1):
        # Use rises and falls all day, each time a little higher, so that sizes have to follow it.
        level = 100 + quarter + 80 * np.sin(quarter / 5)
        for dial in dials.values():
            dial.cpu[:], dial.mebibytes[:] = level, 2 * level
        world.advance(START + timedelta(minutes=15 * quarter))
        if world.now == noon:
            target = WorkloadRef("Deployment", "rival")
            world.add_vertical_pod_autoscaler(VerticalPodAutoscaler(NAMESPACE, "rival", target, "Recreate"))
        await controller.refresh_statistics()
        await controller.rightsize()
    done = [one for one in controller.activity.outcomes if one.result is ActionResult.DONE]
    resized = {
        name: [o.at for o in done if isinstance(o.action, ResizePod) and o.action.pod.startswith(name)]
        for name in names
    }
    assert min(resized["rival"]) < noon
    assert max(resized["rival"]) < noon
    assert max(resized["free"]) > noon
    last = controller.activity.node_pass
    assert last is not None
    held = {hold.pod: hold.reason for plan in last.plans for hold in plan.skipped}
    for pod in await pods(world, "rival"):
        assert held[pod.name] is ReasonCode.MANAGED_BY_OTHER_AUTOSCALER
    # The HPA's resource is as it was stated, the other one is sized.
    for pod in await pods(world, "engine"):
        [one] = pod.containers
        assert one.requests.cpu_millicores == 1000
        assert (one.requests.memory_bytes or 0) < 1 << 30


async def test_no_pod_that_a_scale_may_select_is_written_before_the_scale_was_answered():
    names, big = ("free", "engine"), container(1000, 1024)
    world = cluster(
        [workload(name, template(big), AdjustableDemand(cpu=100, mebibytes=200), replicas=2) for name in names],
        [node("n1", cpu=16000, mebibytes=32768)],
        BY_MINUTE,
        autoscalers=[
            HorizontalPodAutoscaler(
                NAMESPACE, "main", WorkloadRef("KafkaConnect", "main"), frozenset({ResourceName.CPU})
            )
        ],
    )
    controller = Controller(
        world,
        SimulatedUsageSource(world),
        InMemoryStore(),
        FULL,
        lambda: world.now,
        UsageReadingSettings(scrape_delay_seconds=0),
    )
    answered = START + timedelta(hours=3)
    engines = LabelSelector((LabelRequirement("app", SelectorOperator.IN, ("engine",)),))
    for quarter in range(1, 4 * 6 + 1):
        world.advance(START + timedelta(minutes=15 * quarter))
        if world.now == answered:
            assert not controller.activity.outcomes
            world.add_scale(NAMESPACE, WorkloadRef("KafkaConnect", "main"), engines)
        await controller.refresh_statistics()
        await controller.rightsize()
    for pod in await pods(world, "engine"):
        assert pod.containers[0].requests.cpu_millicores == 1000
    for pod in await pods(world, "free"):
        assert (pod.containers[0].requests.cpu_millicores or 0) < 300

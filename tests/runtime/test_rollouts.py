"""A rollout to a template with larger requests over a day of passes: its pods are sized by their own usage."""

from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from cruise.app.demo import SimulatedAdmission
from cruise.decisions.sizing.node_plans import NodePlan
from cruise.domain.actions import ReasonCode
from cruise.domain.cluster import Pod
from cruise.domain.policy import SEED_RULES, Mode, Policy
from cruise.domain.resources import MEBIBYTE
from cruise.runtime.node_pass import run_node_pass
from cruise.runtime.ports import PassContext
from cruise.runtime.usage.usage_pass import run_usage_pass
from cruise.runtime.usage.usage_state import UsageState
from cruise.simulation.cluster.cluster import SimulatedCluster
from cruise.simulation.cluster.state import SimulationSettings
from cruise.simulation.store import InMemoryStore
from cruise.simulation.usage_source import SimulatedUsageSource
from tests.simulation.scenes import START, AdjustableDemand, cluster, container, evict, node, pods, template, workload

MINUTES = timedelta(minutes=5)
# Every difference is written, so that what is seen is whose use a pod is sized by.
AT_ONCE = Policy(mode=Mode.FULL, cpu_tolerance=0, memory_tolerance=0, shrink_cooldown=timedelta(0))
SMALL = workload(
    pod=template(container(500, 1024)),
    dial=AdjustableDemand(400, 1000),
    replicas=3,
    created_at=START - timedelta(days=30),
)
LARGE = replace(
    SMALL,
    template=template(container(2000, 6144), labels={"app": "web"}),
    profiles=workload(dial=AdjustableDemand(1500, 5000)).profiles,
)


@dataclass
class Cruise:
    """A controller in mode full over a simulated cluster, a pass at a time."""

    world: SimulatedCluster
    policy: Policy

    def __post_init__(self) -> None:
        self.store, self.usage, self.state = InMemoryStore(), SimulatedUsageSource(self.world), UsageState()
        self.admission = SimulatedAdmission(self.world, self.store, self.policy, lambda: self.world.now)
        self.world.admit = self.admission.admit

    async def step(self) -> list[NodePlan]:
        self.world.advance(self.world.now + MINUTES)
        table = await run_usage_pass(self.world, self.usage, self.store, self.state, self.policy, self.world.now)
        await self.admission.update(table)
        return list(
            (
                await run_node_pass(PassContext(self.world, self.store, self.policy, self.world.now), usage=self.state)
            ).plans
        )


def of_kind(one, kind):
    return replace(one, ref=replace(one.ref, kind=kind))


def requests_of(pod: Pod) -> tuple[int, int]:
    requests = pod.containers[0].requests.resources
    return requests.cpu_millicores, requests.memory_bytes // MEBIBYTE


def reasons(plans: list[NodePlan], pod: Pod) -> set[ReasonCode]:
    return {hold.reason for plan in plans for hold in plan.skipped if hold.pod == pod.name}


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
async def test_pods_of_a_larger_template_are_sized_by_their_own_use_from_the_first_one_on(kind):
    small, large = of_kind(SMALL, kind), of_kind(LARGE, kind)
    world = cluster(small, [node(cpu=16000, mebibytes=65536)], SimulationSettings())
    cruise = Cruise(world, AT_ONCE)
    for _ in range(12):
        await cruise.step()
    assert {requests_of(pod) for pod in await pods(world)} == {(400, 1000)}
    world.roll_out(small, large)
    old = {pod.uid for pod in await pods(world)}
    least: dict[str, tuple[int, int]] = {}
    for step in range(24 * 12):
        plans = await cruise.step()
        for pod in await pods(world):
            if pod.uid in old:
                continue
            assert pod.created_at is not None
            is_first = least.keys() <= {pod.uid} or kind == "StatefulSet"
            if world.now - pod.created_at < timedelta(minutes=24) and is_first:
                assert reasons(plans, pod) == {ReasonCode.NEW_TEMPLATE_REVISION}
                assert requests_of(pod) == (2000, 6144)
            cpu, memory = requests_of(pod)
            least[pod.uid] = min(cpu, least.get(pod.uid, (cpu, 0))[0]), min(memory, least.get(pod.uid, (0, memory))[1])
        # One pod at a time, an hour apart.
        remaining = [pod for pod in await pods(world) if pod.uid in old]
        if step % 12 == 0 and remaining:
            await world.perform(evict(remaining[0]))
    assert {requests_of(pod) for pod in await pods(world)} == {(1500, 5000)}
    assert set(least.values()) == {(1500, 5000)}
    assert world.oom_kills_at == []


async def test_by_the_first_design_they_get_what_the_old_revision_needed_and_are_killed():
    world = cluster(SMALL, [node(cpu=16000, mebibytes=65536)], SimulationSettings())
    cruise = Cruise(world, Policy(mode=Mode.FULL, rules=SEED_RULES))
    for _ in range(12):
        await cruise.step()
    world.roll_out(SMALL, LARGE)
    [first, *_] = await pods(world)
    await world.perform(evict(first))
    await cruise.step()
    [new] = [pod for pod in await pods(world) if pod.created_at is not None and pod.created_at > START]
    cpu, memory = requests_of(new)
    assert (cpu < 1500, memory < 5000) == (True, True)
    assert {kill.memory_limit_bytes for kill in world.oom_kills_at} == {2000 * MEBIBYTE}

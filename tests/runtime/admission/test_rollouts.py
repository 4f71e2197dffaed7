"""A rollout to a template that asks for more, over a day of passes: its pods are sized by their own use."""

from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from cruise.app.demo.admission import SimulatedAdmission
from cruise.decisions.sizing.node_plans import NodePlan
from cruise.domain.actions import Reason
from cruise.domain.cluster import Pod
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import MEBIBYTE
from cruise.domain.rules import SEEDS
from cruise.runtime.sizing.node_pass import node_pass
from cruise.runtime.usage.state import UsageState
from cruise.runtime.usage.usage_pass import usage_pass
from cruise.simulation.cluster.behaviour import Behaviour
from cruise.simulation.cluster.cluster import SimulatedCluster
from cruise.simulation.store.store import MemoryStore
from cruise.simulation.usage_source import SimulatedUsage
from tests.simulation.scenes import START, Dial, cluster, container, evict, node, pods, template, workload

MINUTES = timedelta(minutes=5)
# Every difference is written, so that what is seen is whose use a pod is sized by.
AT_ONCE = Policy(mode=Mode.FULL, cpu_band=0, memory_band=0, shrink_cooldown=timedelta(0))
SMALL = workload(
    pod=template(container(500, 1024)), dial=Dial(400, 1000), replicas=3, created_at=START - timedelta(days=30)
)
LARGE = replace(
    SMALL,
    template=template(container(2000, 6144), labels={"app": "web"}),
    profiles=workload(dial=Dial(1500, 5000)).profiles,
)


@dataclass
class Cruise:
    """A controller in mode full over a simulated cluster, a pass at a time."""

    world: SimulatedCluster
    policy: Policy

    def __post_init__(self) -> None:
        self.store, self.usage, self.state = MemoryStore(), SimulatedUsage(self.world), UsageState()
        self.admission = SimulatedAdmission(self.world, self.store, self.policy, lambda: self.world.now)
        self.world.admit = self.admission.admit

    async def step(self) -> list[NodePlan]:
        self.world.advance(self.world.now + MINUTES)
        table = await usage_pass(self.world, self.usage, self.store, self.state, self.policy, self.world.now)
        await self.admission.learn(table)
        return list((await node_pass(self.world, self.store, self.policy, self.world.now, usage=self.state)).plans)


def of_kind(one, kind):
    return replace(one, ref=replace(one.ref, kind=kind))


def requests_of(pod: Pod) -> tuple[int, int]:
    requests = pod.containers[0].requests.resources
    return requests.cpu_millicores, requests.memory_bytes // MEBIBYTE


def reasons(plans: list[NodePlan], pod: Pod) -> set[Reason]:
    return {hold.reason for plan in plans for hold in plan.hold if hold.pod == pod.name}


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
async def test_pods_of_a_larger_template_are_sized_by_their_own_use_from_the_first_one_on(kind):
    small, large = of_kind(SMALL, kind), of_kind(LARGE, kind)
    world = cluster(small, [node(cpu=16000, mebibytes=65536)], Behaviour())
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
                assert reasons(plans, pod) == {Reason.NEW_REVISION}
                assert requests_of(pod) == (2000, 6144)
            cpu, memory = requests_of(pod)
            least[pod.uid] = min(cpu, least.get(pod.uid, (cpu, 0))[0]), min(memory, least.get(pod.uid, (0, memory))[1])
        # One pod at a time, an hour apart.
        remaining = [pod for pod in await pods(world) if pod.uid in old]
        if step % 12 == 0 and remaining:
            await world.perform(evict(remaining[0]))
    assert {requests_of(pod) for pod in await pods(world)} == {(1500, 5000)}
    assert set(least.values()) == {(1500, 5000)}
    assert world.kills == []


async def test_by_the_first_design_they_get_what_the_old_revision_needed_and_are_killed():
    world = cluster(SMALL, [node(cpu=16000, mebibytes=65536)], Behaviour())
    cruise = Cruise(world, Policy(mode=Mode.FULL, rules=SEEDS))
    for _ in range(12):
        await cruise.step()
    world.roll_out(SMALL, LARGE)
    [first, *_] = await pods(world)
    await world.perform(evict(first))
    await cruise.step()
    [new] = [pod for pod in await pods(world) if pod.created_at is not None and pod.created_at > START]
    cpu, memory = requests_of(new)
    assert (cpu < 1500, memory < 5000) == (True, True)
    assert {kill.memory_limit_bytes for kill in world.kills} == {2000 * MEBIBYTE}

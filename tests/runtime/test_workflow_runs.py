"""A workflow of a hundred pods every twenty minutes: each run is created at the sizes of earlier runs."""

from dataclasses import replace
from datetime import timedelta

from cruise.app.demo import SimulatedAdmission
from cruise.domain.actions import EvictPod, ReasonCode, ResizePod
from cruise.domain.cluster import Pod
from cruise.domain.policy import SEED_RULES, Mode, Policy
from cruise.domain.resources import MEBIBYTE
from cruise.runtime.node_pass import run_node_pass
from cruise.runtime.ports import PassContext
from cruise.runtime.usage.usage_pass import run_usage_pass
from cruise.runtime.usage.usage_state import UsageState
from cruise.simulation.cluster.state import SimulationSettings
from cruise.simulation.store import InMemoryStore
from cruise.simulation.usage_source import SimulatedUsageSource
from tests.simulation.scenes import START, AdjustableDemand, cluster, container, node, pods, template, workload

MINUTE = timedelta(minutes=1)
PODS = 100
FULL = Policy(mode=Mode.FULL)


class Cruise:
    """A controller and its webhook over a simulated cluster, with a pass every five minutes."""

    def __init__(self, policy: Policy, **more) -> None:
        nightly = workload(
            "nightly",
            kind="CronWorkflow",
            pod=template(container(2000, 4096), restart_policy="Never"),
            dial=AdjustableDemand(400, 1000, members=PODS),
            **{"replicas": PODS, "period_seconds": 1200, "duration_seconds": 180, **more},
        )
        nodes = [node(f"n{number}", 64_000, 131_072) for number in range(4)]
        self.world = cluster([nightly], nodes, SimulationSettings())
        self.policy, self.store, self.state = policy, InMemoryStore(), UsageState()
        self.usage = SimulatedUsageSource(self.world)
        self.admission = SimulatedAdmission(self.world, self.store, policy, lambda: self.world.now)
        self.world.admit = self.admission.admit
        self.created: dict[str, Pod] = {}
        self.actions: list[EvictPod | ResizePod] = []
        self.skipped: set[ReasonCode] = set()

    async def run(self, minutes: int) -> list[Pod]:
        """Let time pass; return the pods of the last run in their first minute."""
        for _ in range(minutes):
            self.world.advance(self.world.now + MINUTE)
            for pod in await pods(self.world):
                self.created.setdefault(pod.uid, pod)
            if self.world.now.minute % 5 == 0:
                table = await run_usage_pass(
                    self.world, self.usage, self.store, self.state, self.policy, self.world.now
                )
                await self.admission.update(table)
                done = await run_node_pass(
                    PassContext(self.world, self.store, self.policy, self.world.now), usage=self.state
                )
                for plan in done.plans:
                    self.actions += [*plan.evict, *plan.resize]
                self.skipped |= {one.reason for plan in done.plans for one in plan.skipped}
        newest = max(pod.owner_name or "" for pod in self.created.values())
        return [pod for pod in self.created.values() if pod.owner_name == newest]


def sizes(of: list[Pod]) -> set[tuple[int, int]]:
    amounts = [pod.containers[0].requests.resources for pod in of]
    return {(one.cpu_millicores, one.memory_bytes // MEBIBYTE) for one in amounts}


async def test_the_second_run_is_created_at_the_sizes_of_the_first() -> None:
    cruise = Cruise(FULL)
    first = await cruise.run(20)
    assert (len(first), sizes(first)) == (PODS, {(2000, 4096)})
    second = await cruise.run(20)
    assert (len(second), sizes(second)) == (PODS, {(400, 1000)})
    await cruise.run(120)
    assert not [one for one in cruise.actions if isinstance(one, EvictPod)]
    # Every run is another Workflow, and all are one workload.
    assert len({pod.owner_name for pod in cruise.created.values()}) == 8
    assert [key.workload for key in (await cruise.store.read_statistics()).row_of_workload] == ["CronWorkflow/nightly"]


async def test_a_run_at_another_hour_is_created_at_the_same_sizes() -> None:
    cruise = Cruise(FULL, replicas=5, period_seconds=5 * 3600)
    await cruise.run(5 * 60 + 10)
    assert sizes(await cruise.run(5 * 60)) == {(400, 1000)}
    by_the_first_rules = Cruise(replace(FULL, rules=SEED_RULES), replicas=5, period_seconds=5 * 3600)
    await by_the_first_rules.run(5 * 60 + 10)
    assert sizes(await by_the_first_rules.run(5 * 60)) == {(2000, 4096)}


async def test_the_first_run_is_not_sized_while_it_runs() -> None:
    cruise = Cruise(FULL, replicas=5, period_seconds=12 * 3600, duration_seconds=6 * 3600)
    start = START.replace(hour=12)
    await cruise.run(int((start - cruise.world.now) / MINUTE) + 5 * 60)
    assert (cruise.actions, ReasonCode.NEW_WORKLOAD in cruise.skipped) == ([], True)

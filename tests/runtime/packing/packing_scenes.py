"""Hand-made plans for simulated clusters, and a cluster whose pods are admitted as by the webhook."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from cruise.decisions.admission.admission import LeaveUnchanged
from cruise.decisions.admission.placement_hints import apply_placement_hint
from cruise.decisions.packing.execution import start_plan
from cruise.domain.actions import ReasonCode, ResizePod
from cruise.domain.cluster import Pod
from cruise.domain.packing_plan import (
    PackingPlan,
    PackingProposal,
    PackingSizes,
    PlannedPlacement,
    PlannedPreemption,
    PlanPhase,
    PlanStage,
)
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import NO_RESOURCES
from cruise.packer.answer import PackingStatus
from cruise.runtime.admission import ExpectedPods
from cruise.runtime.packing.plan_execution import PlanExecutor
from cruise.runtime.writing.audit import AuditQueue
from cruise.runtime.writing.evictions import PendingGrowths, WriteExclusions
from cruise.runtime.writing.writer import ClusterWriter
from cruise.simulation.cluster.cluster import SimulatedCluster
from cruise.simulation.store import InMemoryStore
from tests.simulation.scenes import amounts, cluster, node, pods, run, template, workload
from tests.simulation.scenes import container as make_container
from tests.simulation.scenes import resize as make_resize

FULL = Policy(mode=Mode.FULL, max_evictions_per_node=9)


def make_resized_pod(name: str, cpu: int, mebibytes: int = 256, replicas: int = 1, **fields: Any) -> Any:
    """A workload whose pods have these requests."""
    pod = replace(template(make_container(cpu, mebibytes)), priority=fields.pop("priority", 0))
    fields.setdefault("grace_seconds", 2)
    return workload(name, pod, replicas=replicas, **fields)


def make_planned_move(pod: Pod, target: str | None, containers: tuple[Any, ...] = ()) -> PlannedPlacement:
    """Evict a pod, or bind it if it is pending."""
    assert target is not None
    return PlannedPlacement(pod.namespace, pod.name, pod.uid, pod.node, target, containers)


def preemption(pod: Pod) -> PlannedPreemption:
    """Delete a pod without a replacement."""
    assert pod.node is not None
    return PlannedPreemption(pod.namespace, pod.name, pod.uid, pod.node)


def shrink(pod: Pod, cpu: int, mebibytes: int = 256) -> ResizePod:
    """A resize of a plan that only shrinks."""
    return replace(
        make_resize(pod, amounts(cpu, mebibytes)),
        reason=ReasonCode.FREED_CAPACITY_FOR_PENDING_PODS,
        growth=NO_RESOURCES,
    )


def proposal(*stages: PlanStage) -> PackingProposal:
    """A plan of these stages."""
    return PackingProposal(PackingStatus.OPTIMAL, PackingSizes.RIGHTSIZED, (), (), stages)


class PackingSimulation:
    """A simulated cluster, a store, and the two that carry a plan out: cruise and the webhook."""

    def __init__(self, workloads: Sequence[Any], nodes: Sequence[Any], policy: Policy = FULL, **fields: Any) -> None:
        self.world: SimulatedCluster = cluster(workloads, nodes, **fields)
        self.store = InMemoryStore()
        self.policy = policy
        self.restart()
        self.expected = ExpectedPods(lambda: self.world.now, lambda: self.world.now.timestamp())
        self.steers = True
        self.world.admit = self._admit
        self.port: Any = self.world

    def _admit(self, pod: Pod) -> Pod:
        one = self.expected.find(pod) if self.steers else None
        if one is None:
            return pod
        self.expected.claim(one)
        return apply_placement_hint(pod, pod, LeaveUnchanged(ReasonCode.NO_CHANGE_NEEDED), one) or pod

    def restart(self) -> None:
        """Forget what a process keeps in memory."""
        self.audit, self.grows, self.exclusions = AuditQueue(), PendingGrowths(), WriteExclusions()

    def carrying(self) -> PlanExecutor:
        """A process that carries plans out."""
        writer = ClusterWriter(self.port, self.store, self.policy, audit=self.audit, growths=self.grows)
        return PlanExecutor(
            self.port, self.store, self.policy, writer, self.exclusions, lambda: self.world.now, poll_seconds=0
        )

    async def begin(self, *stages: PlanStage) -> PackingPlan:
        """Store a plan that is to be carried out."""
        plan = start_plan(proposal(*stages), self.world.now, self.world.now, 0.1, self.policy.mode)
        await self.store.write_packing_plan(plan)
        return plan

    async def step(self, plan: PackingPlan) -> PackingPlan:
        """Do one step, and let a second pass."""
        plan, _ = await self.carrying().step(plan)
        self.expected.replace(await self.store.read_placement_hints())
        run(self.world, 1)
        return plan

    async def to_the_end(self, plan: PackingPlan, most_seconds: int = 200) -> PackingPlan:
        """Go on until the plan ends."""
        end = self.world.now + timedelta(seconds=most_seconds)
        while plan.phase is PlanPhase.IN_PROGRESS:
            assert self.world.now < end, plan.condition
            plan = await self.step(plan)
        return plan

    async def where(self) -> dict[str, str | None]:
        """The node of every pod that is not going, by its app, with a number where there are several."""
        found: dict[str, str | None] = {}
        for pod in await pods(self.world):
            if not pod.terminating:
                app = pod.labels["app"]
                same = sum(name == app or name.startswith(f"{app}/") for name in found)
                found[app if not same else f"{app}/{same}"] = pod.node
        return found

    async def only(self, app: str) -> Pod:
        """The only pod of an app that is not going."""
        [pod] = [pod for pod in await pods(self.world, app) if not pod.terminating]
        return pod


__all__ = [
    "FULL",
    "PackingSimulation",
    "make_planned_move",
    "make_resized_pod",
    "node",
    "preemption",
    "proposal",
    "shrink",
]

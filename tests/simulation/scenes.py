"""Small clusters for tests, with container demand that a test sets."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from cruise.domain.actions import ContainerTarget, EvictPod, ReasonCode, ResizePod
from cruise.domain.arrays import Float64Array, Int64Array
from cruise.domain.cluster import Container, ContainerRole, Node, Pod, WorkloadRef
from cruise.domain.policy import EvictionRanking
from cruise.domain.resources import MEBIBYTE, NO_RESOURCES, NOTHING_STATED, ResourceName, Resources, StatedResources
from cruise.simulation.cluster.cluster import SimulatedCluster
from cruise.simulation.cluster.state import SimulationSettings
from cruise.simulation.cluster.workloads import SimulatedWorkload
from cruise.simulation.demand.demand import ContainerProfile

START = datetime(2026, 1, 5, 9, tzinfo=UTC)
NAMESPACE = "shop"
# Steps of a second show each state of a kubelet.
BY_SECOND = SimulationSettings(step_seconds=1)


class AdjustableDemand:
    """A demand source under a test's control: `cpu` and `mebibytes` by member."""

    def __init__(self, cpu: float = 100, mebibytes: float = 100, members: int = 16) -> None:
        self.cpu = np.full(members, float(cpu))
        self.mebibytes = np.full(members, float(mebibytes))

    def compute_demand(self, members: Int64Array, at: Int64Array, age: Int64Array) -> tuple[Float64Array, Float64Array]:
        shape = np.broadcast_shapes(np.shape(members), np.shape(at), np.shape(age))
        cpu = np.broadcast_to(self.cpu[members], shape).copy()
        return cpu, np.broadcast_to(self.mebibytes[members] * MEBIBYTE, shape).copy()


def amounts(cpu: int | None = None, mebibytes: int | None = None) -> StatedResources:
    return StatedResources(cpu, None if mebibytes is None else mebibytes * MEBIBYTE)


def resources(cpu: int, mebibytes: int) -> Resources:
    return Resources(cpu, mebibytes * MEBIBYTE)


def node(name: str = "n1", cpu: int = 4000, mebibytes: int = 8192, **fields: Any) -> Node:
    return Node(name, resources(cpu, mebibytes), **fields)


def container(
    cpu: int | None = 500,
    mebibytes: int | None = 512,
    limits: StatedResources = NOTHING_STATED,
    name: str = "app",
    role: ContainerRole = ContainerRole.MAIN,
) -> Container:
    return Container(name, role, amounts(cpu, mebibytes), limits)


def template(*containers: Container, **fields: Any) -> Pod:
    return replace(Pod("", "", "", containers or (container(),)), **fields)


def workload(
    name: str = "web",
    pod: Pod | None = None,
    dial: AdjustableDemand | None = None,
    kind: str = "Deployment",
    first_member: int = 0,
    **fields: Any,
) -> SimulatedWorkload:
    pod = template() if pod is None else pod
    pod = replace(pod, labels={"app": name, **pod.labels})
    profiles: Mapping[str, ContainerProfile] = {}
    if dial is not None:
        members = tuple(range(first_member, len(dial.cpu)))
        profiles = {one.name: ContainerProfile(dial, members) for one in pod.containers}
    one = SimulatedWorkload(NAMESPACE, WorkloadRef(kind, name), pod, profiles=profiles)
    return replace(one, **fields)


def cluster(
    workloads: Sequence[SimulatedWorkload] | SimulatedWorkload,
    nodes: Sequence[Node] | None = None,
    settings: SimulationSettings = BY_SECOND,
    **fields: Any,
) -> SimulatedCluster:
    many = [workloads] if isinstance(workloads, SimulatedWorkload) else workloads
    return SimulatedCluster([node()] if nodes is None else nodes, many, START, settings, **fields)


def run(world: SimulatedCluster, seconds: float) -> None:
    world.advance(world.now + timedelta(seconds=seconds))


async def pods(world: SimulatedCluster, app: str | None = None) -> list[Pod]:
    snapshot = await world.snapshot()
    return [pod for pod in snapshot.pods if app is None or pod.labels.get("app") == app]


async def only_pod(world: SimulatedCluster, app: str | None = None) -> Pod:
    (pod,) = await pods(world, app)
    return pod


def resize(
    pod: Pod, requests: StatedResources = NOTHING_STATED, limits: StatedResources = NOTHING_STATED, name: str = "app"
) -> ResizePod:
    role = next((one.role for one in pod.resizable_parts if one.name == name), ContainerRole.MAIN)
    target = ContainerTarget(name, role, requests, limits)
    return ResizePod(
        pod.namespace, pod.name, pod.uid, pod.node, pod.workload, (target,), NO_RESOURCES, ReasonCode.RIGHTSIZED
    )


def evict(pod: Pod) -> EvictPod:
    return EvictPod(
        pod.namespace,
        pod.name,
        pod.uid,
        pod.node,
        pod.workload,
        EvictionRanking.LOW,
        ResourceName.MEMORY,
        ReasonCode.NODE_OVER_CAPACITY,
    )

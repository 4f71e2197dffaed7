"""The scenes of the cluster contract: simulated clusters and a real control plane."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

from cruise.adapters.kube.client import KubernetesSettings, connect_to_kubernetes
from cruise.adapters.kube.cluster import KubernetesCluster
from cruise.domain.autoscalers import LimitRangeItem
from cruise.domain.cluster import Container, Node, Pod
from cruise.domain.pod_resources import count_pod_requests
from cruise.domain.resources import StatedResources, format_cpu_millicores, format_memory_bytes
from cruise.runtime.ports import ClusterPort
from cruise.simulation.cluster.cluster import SimulatedCluster
from cruise.simulation.cluster.controllers import DisruptionBudgetSpec
from cruise.simulation.cluster.state import SimulationSettings as SimulatedBehaviour
from cruise.simulation.cluster.workloads import SimulatedWorkload
from tests.controlplane import manifests
from tests.controlplane.api import Api
from tests.controlplane.behaviour import KubeletBehaviour, SimulatedNodeSpec
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.kubelet import TestKubelet
from tests.controlplane.namespaces import own_namespace
from tests.simulation.scenes import NAMESPACE, START, AdjustableDemand, node

SCENE_LABEL = "example.com/scene"


@dataclass(frozen=True)
class ContractCluster:
    """What there is in a cluster before the test."""

    workloads: Sequence[SimulatedWorkload] = ()
    nodes: Sequence[Node] = (node("n1", labels={"zone": "a"}), node("n2", labels={"zone": "b"}))
    budgets: Sequence[DisruptionBudgetSpec] = ()
    limit_ranges: Mapping[str, tuple[LimitRangeItem, ...]] = field(default_factory=dict)
    compute_demand: AdjustableDemand = field(default_factory=AdjustableDemand)


class ContractEnvironment(Protocol):
    """A cluster under test. On a shared cluster the scene has its own namespace and node names."""

    port: ClusterPort
    namespace: str

    def node(self, name: str) -> str:
        """Return what a node of the scene is called."""
        ...

    async def wait_until_stable(self) -> None:
        """Wait until all requested changes are done and every replacement is running."""
        ...

    async def exhaust_memory(self, pod: Pod) -> None:
        """Let a pod's container be killed for its memory, once."""
        ...


Build = Callable[[ContractCluster], AbstractAsyncContextManager[ContractEnvironment]]


class SimulatedEnvironment:
    """A scene in the simulated cluster."""

    namespace = NAMESPACE

    def __init__(self, scene: ContractCluster) -> None:
        self.simulated = SimulatedCluster(
            scene.nodes,
            scene.workloads,
            START,
            SimulatedBehaviour(step_seconds=5, server_version=(1, 36)),
            budgets=scene.budgets,
            limit_ranges=scene.limit_ranges,
        )
        self.port: ClusterPort = self.simulated
        self._demand = scene.compute_demand

    def node(self, name: str) -> str:
        return name

    async def wait_until_stable(self) -> None:
        self.simulated.advance(self.simulated.now + timedelta(minutes=2))

    async def exhaust_memory(self, pod: Pod) -> None:
        usual, self._demand.mebibytes = self._demand.mebibytes, self._demand.mebibytes + 100_000
        while not self.simulated.oom_kills_at:
            self.simulated.advance(self.simulated.now + timedelta(seconds=5))
        self._demand.mebibytes = usual


@asynccontextmanager
async def simulated(scene: ContractCluster) -> AsyncIterator[ContractEnvironment]:
    """Build a scene in the simulated cluster."""
    world = SimulatedEnvironment(scene)
    yield world
    world.simulated.close()


class RealEnvironment:
    """A scene on a real control plane, with its own namespace and nodes."""

    def __init__(
        self,
        scene: ContractCluster,
        port: KubernetesCluster,
        plane: ControlPlane,
        admin: Api,
        kubelet: TestKubelet,
        namespace: str,
    ) -> None:
        self.port: ClusterPort = port
        self.namespace = namespace
        self._plane = plane
        self._admin = admin
        self._kubelet = kubelet
        self._replicas = sum(workload.replicas for workload in scene.workloads)
        self._roomiest = max(one.allocatable.cpu_millicores for one in scene.nodes)

    def node(self, name: str) -> str:
        return f"{self.namespace}-{name}"

    async def wait_until_stable(self) -> None:
        deadline = asyncio.get_running_loop().time() + 120
        while not await self._at_rest():
            assert asyncio.get_running_loop().time() < deadline, f"the scene does not come to rest: {self._as_it_is()}"
            await asyncio.sleep(0.02)

    async def exhaust_memory(self, pod: Pod) -> None:
        await asyncio.to_thread(self._kubelet.oom_kill, pod.namespace, pod.name, "app")

    async def _at_rest(self) -> bool:
        """Return whether controllers, scheduler and kubelets are done, and the port shows it."""
        pods = [pod for pod in (await self.port.snapshot()).pods if pod.namespace == self.namespace]
        return (
            len(pods) == self._replicas
            and all(self._is_stable(pod) for pod in pods)
            and all([pod == await self.port.read_pod(pod.namespace, pod.name) for pod in pods])
            and await self._budgets_observed(len(pods))
        )

    def _is_stable(self, pod: Pod) -> bool:
        if pod.node is None:
            hopeless = count_pod_requests(pod).cpu_millicores > self._roomiest
            return hopeless and pod.unschedulable_since is not None
        done = all(one.allocated == one.requests for one in pod.resizable_parts)
        return pod.phase == "Running" and not pod.terminating and (done or pod.resize.pending is not None)

    def _as_it_is(self) -> str:
        """Say what the API server has of the scene, and what its controllers and scheduler logged last."""
        pods = {one["metadata"]["name"]: one["status"] for one in self._admin.items("pods", self.namespace)}
        events = [one.get("message") for one in self._admin.items("events", self.namespace)][-5:]
        logs = "\n".join(self._plane.log(name)[-1500:] for name in ("kube-scheduler", "kube-controller-manager"))
        return f"servers {sorted(self._plane.pids())}, pods {pods}, events {events}\n{logs}"

    async def _budgets_observed(self, healthy: int) -> bool:
        """Return whether the disruption controller has observed the pods, and the port its status."""
        told = {
            one["metadata"]["name"]: one for one in self._admin.items("poddisruptionbudgets.policy", self.namespace)
        }
        seen = {one.name: one for one in (await self.port.snapshot()).budgets if one.namespace == self.namespace}
        # Of several budgets over the same pods the controller keeps one up to date.
        observed = [
            one
            for one in told.values()
            if one.get("status", {}).get("currentHealthy") == healthy and not one["status"].get("disruptedPods")
        ]
        return (len(observed) > 0 or not told) and {
            name: one["status"].get("disruptionsAllowed") for name, one in told.items()
        } == {name: one.disruptions_allowed for name, one in seen.items()}


def real(plane: ControlPlane, admin: Api, kubelet: TestKubelet) -> Build:
    """Return what builds scenes on a control plane."""

    @asynccontextmanager
    async def build(scene: ContractCluster) -> AsyncIterator[ContractEnvironment]:
        namespace = f"scene-{secrets.token_hex(3)}"
        kubelet.add_nodes([_node_spec(one, namespace) for one in scene.nodes])
        # Disrupted pods stay long enough to be observed.
        kubelet.behave(KubeletBehaviour(start_seconds=0.7), namespace)
        with own_namespace(admin, namespace):
            for manifest in _manifests(scene, namespace):
                admin.create(manifest)
            async with connect_to_kubernetes(KubernetesSettings(plane.kubeconfig())) as client:
                cluster = KubernetesCluster(client)
                running = asyncio.ensure_future(cluster.run())
                try:
                    await asyncio.wait_for(cluster.wait_until_synced(), 120)
                    yield RealEnvironment(scene, cluster, plane, admin, kubelet, namespace)
                finally:
                    running.cancel()
                    await asyncio.gather(running, return_exceptions=True)

    return build


def _node_spec(one: Node, namespace: str) -> SimulatedNodeSpec:
    amounts = _quantities(StatedResources(one.allocatable.cpu_millicores, one.allocatable.memory_bytes))
    taints = [{"key": taint.key, "value": taint.value, "effect": taint.effect.value} for taint in one.taints]
    return SimulatedNodeSpec(
        f"{namespace}-{one.name}",
        amounts["cpu"],
        amounts["memory"],
        one.allocatable_pods,
        labels={**one.labels, SCENE_LABEL: namespace},
        taints=taints,
    )


def _manifests(scene: ContractCluster, namespace: str) -> list[dict[str, Any]]:
    found = [_limit_range(items, namespace) for items in scene.limit_ranges.values()]
    for workload in scene.workloads:
        assert workload.ref is not None
        kind: Any = workload.kind
        template = manifests.pod_template(
            workload.ref.name,
            *(_container(one) for one in workload.template.containers),
            nodeSelector={SCENE_LABEL: namespace},
            terminationGracePeriodSeconds=workload.grace_seconds,
            **_pod_level(workload.template.pod_level),
        )
        found.append(manifests.workload(kind, namespace, workload.ref.name, template, workload.replicas))
    found += [_budget(rule, namespace) for rule in scene.budgets]
    return found


def _pod_level(one: Container | None) -> dict[str, Any]:
    return {} if one is None else {"resources": _container(one)["resources"]}


def _container(one: Container) -> dict[str, Any]:
    return manifests.container(one.name, _quantities(one.requests), _quantities(one.limits))


def _budget(rule: DisruptionBudgetSpec, namespace: str) -> dict[str, Any]:
    (app,) = (value for requirement in rule.selector.requirements for value in requirement.values)
    budget = manifests.budget(namespace, rule.name, app, 0)
    del budget["spec"]["minAvailable"]
    bounds = {"minAvailable": rule.min_available, "maxUnavailable": rule.max_unavailable}
    budget["spec"] |= {name: bound for name, bound in bounds.items() if bound is not None}
    return budget


def _limit_range(items: Sequence[LimitRangeItem], namespace: str) -> dict[str, Any]:
    limits = [
        {
            "type": "Pod" if item.is_for_pod else "Container",
            "min": _quantities(item.minimum),
            "max": _quantities(item.maximum),
        }
        for item in items
    ]
    metadata = {"namespace": namespace, "name": "limits"}
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": limits}}


def _quantities(amounts: StatedResources) -> dict[str, str]:
    stated = {}
    if amounts.cpu_millicores is not None:
        stated["cpu"] = format_cpu_millicores(amounts.cpu_millicores)
    if amounts.memory_bytes is not None:
        stated["memory"] = format_memory_bytes(amounts.memory_bytes)
    return stated

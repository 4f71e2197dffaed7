"""Random clusters in which sizing frees capacity: pods request their peaks, and some pods are pending."""

import random
from collections.abc import Iterator
from dataclasses import replace

from cruise.domain.autoscalers import LimitRangeItem, ResourceQuota
from cruise.domain.cluster import (
    ClusterSnapshot,
    Container,
    ContainerRole,
    Node,
    Pod,
    PodDisruptionBudget,
    Workload,
    WorkloadRef,
)
from cruise.domain.pod_resources import count_pod_requests, get_qos_class
from cruise.domain.resources import MEBIBYTE, NO_RESOURCES, ResizePending, ResizeState, Resources, StatedResources
from cruise.domain.scheduling import LabelRequirement, LabelSelector, SelectorOperator
from cruise.domain.usage import Statistic, StatisticKey, StatisticsTable
from tests.builders import LONG_AGO, NOW, NOW_SECONDS
from tests.strategies import DrawnClusterValues


def sized_cluster_of(seed: int) -> DrawnClusterValues:
    """The cluster of a seed: up to four full nodes, up to six workloads, and pods for which there is no room."""
    return _Drawing(random.Random(seed)).cluster()


class _Drawing:
    def __init__(self, source: random.Random) -> None:
        self.source = source
        self.statistics: list[Statistic] = []
        self.odd = source.choice([0.0, 0.1, 0.3])

    def oddly(self) -> bool:
        return self.source.random() < self.odd

    def cluster(self) -> DrawnClusterValues:
        names = [f"n{number}" for number in range(1, self.source.randint(1, 4) + 1)]
        pods: list[Pod] = []
        workloads: dict[tuple[str, WorkloadRef], Workload] = {}
        for number in range(self.source.randint(1, 6)):
            members = list(self.pods_of(number, names))
            pods += members
            ref = WorkloadRef("Deployment", f"w{number}")
            workloads["shop", ref] = Workload("shop", ref, len(members), created_at=LONG_AGO)
        pods.sort(key=lambda pod: pod.name)
        snapshot = ClusterSnapshot(
            nodes=tuple(self.node(name, pods) for name in names),
            pods=tuple(pods),
            workloads=workloads,
            budgets=tuple(self.budgets(len(workloads))),
            limit_ranges={"shop": (self.limit_range(),)} if self.oddly() else {},
            quotas={"shop": (ResourceQuota(requests_left=StatedResources(self.source.choice([0, 3000]), None)),)}
            if self.oddly()
            else {},
        )
        return DrawnClusterValues(snapshot, StatisticsTable.from_rows(self.statistics))

    def pods_of(self, number: int, nodes: list[str]) -> Iterator[Pod]:
        source = self.source
        ref = WorkloadRef("Deployment", f"w{number}")
        names = ["app", "log"] if source.random() < 0.3 else ["app"]
        parts = [self.container(name, ContainerRole.MAIN) for name in names]
        if self.oddly():
            parts.insert(0, self.container("proxy", ContainerRole.SIDECAR))
        if self.oddly():
            parts.insert(
                0, Container("warm", ContainerRole.INIT, StatedResources(source.randint(1, 900), 300 * MEBIBYTE))
            )
        overhead = Resources(30, 10 * MEBIBYTE) if self.oddly() else NO_RESOURCES
        priority = source.choice([0, 0, 10])
        for copy in range(source.randint(1, 4)):
            node = source.choice(nodes) if source.random() < 0.7 else None
            pod = Pod(
                namespace="shop",
                name=f"w{number}-{copy}",
                uid=f"uid-w{number}-{copy}",
                containers=tuple(self.settled(part) if node else part for part in parts),
                node=node,
                workload=ref,
                owner_kind="ReplicaSet",
                owner_name=f"w{number}-1",
                labels={"app": f"w{number}"},
                phase="Running" if node else "Pending",
                created_at=LONG_AGO,
                priority=priority,
                overhead=overhead,
                unschedulable_since=None if node else NOW,
            )
            if node and self.oddly():
                pod = replace(pod, resize=ResizeState(ResizePending.DEFERRED, NOW))
            yield replace(pod, qos=get_qos_class(pod))
            if node and source.random() < 0.5:
                self.state(pod, pod.name)
        if not self.oddly():
            self.state(pod, "")

    def container(self, name: str, role: ContainerRole) -> Container:
        requests = StatedResources(self.source.randint(1, 20) * 50, self.source.randint(1, 20) * 50 * MEBIBYTE)
        limits = StatedResources()
        if self.oddly():
            limits = self.source.choice(
                [requests, StatedResources(None, 1100 * MEBIBYTE), StatedResources(1100, 1100 * MEBIBYTE)]
            )
        return Container(name, role, requests, limits)

    def settled(self, container: Container) -> Container:
        if container.role is ContainerRole.INIT:
            return container
        return replace(
            container, allocated=container.requests, actual=container.requests, actual_limits=container.limits
        )

    def state(self, pod: Pod, name: str) -> None:
        """State what was measured: a base under the request, and a peak around it."""
        for container in pod.containers:
            if container.role is ContainerRole.INIT:
                continue
            cpu, memory = container.requests.resources.cpu_millicores, container.requests.resources.memory_bytes
            base, memory_base = (self.source.uniform(0.1, 1.05) for _ in range(2))
            self.statistics.append(
                Statistic(
                    key=StatisticKey("shop", name, str(pod.workload), container.name),
                    updated_at=NOW_SECONDS - 60,
                    history_since=NOW_SECONDS - 200 * 3600,
                    cpu_base_millicores=int(cpu * base),
                    cpu_peak_millicores=int(cpu * self.source.choice([base, 1.0, 1.1])),
                    memory_base_bytes=int(memory * memory_base),
                    memory_peak_bytes=int(memory * self.source.choice([memory_base, 1.0])),
                    memory_7d_max_bytes=memory,
                    memory_last_bytes=int(memory * memory_base),
                )
            )

    def node(self, name: str, pods: list[Pod]) -> Node:
        """A node that is as good as full."""
        used = sum((count_pod_requests(pod) for pod in pods if pod.node == name), start=NO_RESOURCES)
        spare = Resources(self.source.choice([0, 10, 200]), self.source.choice([0, 100, 300]) * MEBIBYTE)
        least = Resources(200, 300 * MEBIBYTE)
        return Node(name, (used + spare).max_with(least), kubelet_version=(1, 34))

    def budgets(self, workloads: int) -> Iterator[PodDisruptionBudget]:
        for number in range(workloads):
            if self.source.random() < 0.3:
                selector = LabelSelector((LabelRequirement("app", SelectorOperator.IN, (f"w{number}",)),))
                yield PodDisruptionBudget("shop", f"w{number}", selector, self.source.randint(0, 2))

    def limit_range(self) -> LimitRangeItem:
        return self.source.choice(
            [
                LimitRangeItem(False, minimum=StatedResources(100, None)),
                LimitRangeItem(True, minimum=StatedResources(300, 200 * MEBIBYTE)),
                LimitRangeItem(False, max_memory_ratio=1.5),
            ]
        )

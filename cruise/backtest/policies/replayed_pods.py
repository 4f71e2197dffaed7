"""The pods of a replay as decisions read them: made from the view's columns where one is needed."""

from datetime import datetime
from types import MappingProxyType

import numpy as np

from cruise.backtest.recordings.recording import RecordedContainer, Recording
from cruise.backtest.replay.policy import ClusterView, Sizes
from cruise.decisions.guidance.eligibility import Eligibility
from cruise.domain.annotations import ORIGINAL_RESOURCES, RESOURCES
from cruise.domain.arrays import Int64Array
from cruise.domain.cluster import Container, Node, Pod, Snapshot, Workload, WorkloadRef
from cruise.domain.original_resources import format_original_resources
from cruise.domain.overrides import StoredOverrides
from cruise.domain.policy import Policy
from cruise.domain.resources import Amounts, ResourceName
from cruise.domain.usage import StatisticsTable
from cruise.simulation.cluster.timeline import utc

ELSEWHERE = -1
_NODE_PREFIX = "node-"
NO_OVERRIDES: StoredOverrides = MappingProxyType({})


class ReplayedPods:
    """Pods and nodes of a view; every pod belongs to a Deployment of as many replicas as the recording has series."""

    def __init__(self, recording: Recording, stored: StoredOverrides = NO_OVERRIDES) -> None:
        self._stored = stored
        self._containers = recording.containers
        # Where memory was not recorded there is nothing to size it by.
        self._annotations = {} if recording.has_memory else {RESOURCES.name: ResourceName.CPU.value}
        self._nodes: list[Node] = []
        self._sized = np.zeros(len(recording.containers), dtype=np.bool_)
        replicas: dict[tuple[str, WorkloadRef], int] = {}
        for one in recording.containers:
            replicas[one.namespace, one.workload] = replicas.get((one.namespace, one.workload), 0) + 1
        number_of = {key: number for number, key in enumerate(replicas)}
        self._number_of = number_of
        self._numbers = np.array(
            [number_of[one.namespace, one.workload] for one in recording.containers], dtype=np.int64
        )
        limits: dict[tuple[str, WorkloadRef], dict[str, int]] = {key: {} for key in replicas}
        for one in recording.containers:
            stated = limits[one.namespace, one.workload]
            if one.memory_limit_bytes:
                stated[one.container] = max(one.memory_limit_bytes, stated.get(one.container, 0))
        self._workloads = {
            key: Workload(*key, replicas=count, memory_limits=limits[key]) for key, count in replicas.items()
        }

    def note_admission(self, container: int, sized: bool) -> None:
        """Remember whether a container's new pod was created with other sizes than its template's."""
        self._sized[container] = sized

    def created(self, container: int, at: datetime) -> Pod:
        """Return a pod as its controller creates it."""
        one = self._containers[container]
        requests, limits = _provisioned(one)
        return self._pod(container, requests, limits, "", None, "Pending", at)

    def pod(self, container: int, view: ClusterView) -> Pod:
        """Return a container's pod as it is now."""
        sizes, node = view.sizes, int(view.node[container])
        cpu, memory = int(sizes.cpu_millicores[container]), int(sizes.memory_bytes[container])
        limit = int(sizes.memory_limit_bytes[container])
        return self._pod(
            container,
            Amounts(cpu or None, memory or None),
            Amounts(None, limit or None),
            f"-{int(view.born[container])}",
            None if node < 0 else node_name(node),
            "Running" if node >= 0 else "Pending",
            utc(int(view.born_at[container])),
        )

    def nodes(self, view: ClusterView) -> list[Node]:
        """Return a node for each index; those that do not exist now have no pods."""
        known = self._nodes
        known += [Node(node_name(index), view.allocatable) for index in range(len(known), len(view.alive))]
        return known[: len(view.alive)]

    def around(self, namespace: str, workload: WorkloadRef | None, node: str | None, view: ClusterView) -> Int64Array:
        """Return the containers of a workload and those on a node, as far as they exist."""
        number = -1 if workload is None else self._number_of[namespace, workload]
        index = ELSEWHERE if node is None else index_of_node(node)
        return np.flatnonzero(((self._numbers == number) & (view.node >= ELSEWHERE)) | (view.node == index))

    def snapshot(self, view: ClusterView, containers: Int64Array | None = None) -> Snapshot:
        """Return the cluster with the pods of some containers, or of all that exist."""
        chosen = np.flatnonzero(view.node >= ELSEWHERE) if containers is None else containers
        nodes = [node for node, alive in zip(self.nodes(view), view.alive.tolist(), strict=True) if alive]
        pods = [self.pod(container, view) for container in chosen.tolist()]
        pods.sort(key=lambda pod: (pod.namespace, pod.name))
        return Snapshot(nodes=tuple(nodes), pods=tuple(pods), workloads=self._workloads)

    def eligibility(self, view: ClusterView, statistics: StatisticsTable, policy: Policy) -> Eligibility:
        """Return the rules on which pods may be touched; of other pods, those without a node matter to evictions."""
        waiting = np.flatnonzero((view.node >= ELSEWHERE) & (view.node < 0))
        return Eligibility(self.snapshot(view, waiting), statistics, self._stored, policy, utc(view.at))

    def _pod(
        self,
        container: int,
        requests: Amounts,
        limits: Amounts,
        birth: str,
        node: str | None,
        phase: str,
        created_at: datetime,
    ) -> Pod:
        one = self._containers[container]
        annotations = self._annotations
        if self._sized[container]:
            original = {one.container: _provisioned(one)}
            annotations = {**annotations, ORIGINAL_RESOURCES: format_original_resources(original)}
        return Pod(
            one.namespace,
            one.pod,
            f"{one.namespace}/{one.pod}{birth}",
            (Container(one.container, requests=requests, limits=limits),),
            node=node,
            workload=one.workload,
            owner_kind="ReplicaSet",
            owner_name=one.workload.name,
            annotations=annotations,
            phase=phase,
            created_at=created_at,
        )


def _provisioned(one: RecordedContainer) -> tuple[Amounts, Amounts]:
    """Return what the container's template requests and is limited to."""
    requests = Amounts(one.requests.cpu_millicores or None, one.requests.memory_bytes or None)
    return requests, Amounts(None, one.memory_limit_bytes or None)


def node_name(index: int) -> str:
    """Name a node so that names sort as indices do."""
    return f"{_NODE_PREFIX}{index:03d}"


def index_of_node(name: str) -> int:
    """Return the index of a node by its name."""
    return int(name.removeprefix(_NODE_PREFIX))


def sizes_of(pods: list[Pod]) -> Sizes:
    """Return what single-container pods ask for."""
    return Sizes(
        np.array([pod.containers[0].requests.cpu_millicores or 0 for pod in pods], dtype=np.int64),
        np.array([pod.containers[0].requests.memory_bytes or 0 for pod in pods], dtype=np.int64),
        np.array([pod.containers[0].limits.memory_bytes or 0 for pod in pods], dtype=np.int64),
    )

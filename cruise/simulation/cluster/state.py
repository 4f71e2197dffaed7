"""The state of a simulated cluster: its settings, clock, nodes, pods, and the sums over them."""

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from cruise.domain.cluster import POD_LEVEL, Container, ContainerRole, Node, Pod
from cruise.domain.pod_resources import count_pod_requests
from cruise.domain.resources import MEBIBYTE, NO_RESOURCES, NOTHING_STATED, ResourceName, Resources, StatedResources
from cruise.domain.run_to_completion_operators import MAX_ENDED_PODS, CompletedPod
from cruise.simulation.cluster.containers import ContainerTable
from cruise.simulation.cluster.workloads import SimulatedWorkload
from cruise.simulation.demand.demand import MeasurementHistory

MINUTE = 60
# The requests that kube-scheduler's scores, not its filters, assume for a container without requests.
DEFAULT_SCORED = Resources(100, 200 * MEBIBYTE)
_SUMS = ("counted_cpu", "counted_memory", "scored_cpu", "scored_memory", "allocated_cpu", "allocated_memory", "pods_on")


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """Versions and delays of a simulated cluster, in seconds.

    Controllers and scheduler run every `step_seconds`; kubelets and containers act at their own second. Usage is
    recorded once a minute, or once a step if steps are longer.
    """

    seed: int = 0
    server_version: tuple[int, int] = (1, 34)
    step_seconds: int = 60
    allocate_seconds: int = 1  # until the kubelet handles a resize
    actuate_seconds: int = 5  # from allocated to actual
    start_seconds: int = 5  # from bound to running
    restart_seconds: int = 10  # after the first kill; doubled after each further one
    longest_restart_seconds: int = 300
    quiet_seconds: int = 600  # the running time that resets the doubling
    retention_seconds: int = 86_400  # of recorded usage
    static_managers: frozenset[ResourceName] = frozenset()  # of all kubelets: they do not resize Guaranteed pods
    memory_swaps: bool = False  # on all nodes: kubelets refuse other memory requests of Burstable pods
    duplicates_kill_events: bool = False  # every kill is streamed twice, as after a broken watch


@dataclass(slots=True)
class SimulationCounts:
    """Counts since the start of the simulation.

    Seconds are pod or container seconds. A container is starved while it receives less than 99 % of its CPU demand.
    `evictions` does not include `drained`, the evictions by the node autoscaler. Kills are also counted by (namespace,
    workload, slot, container): a replacement pod has its predecessor's slot, so that runs can be compared.
    """

    oom_kills: int = 0
    evictions: int = 0
    evictions_refused: int = 0
    resizes_requested: int = 0
    resizes_done: int = 0
    resizes_deferred: int = 0
    resizes_infeasible: int = 0
    resizes_refused: int = 0
    resize_errors: int = 0
    pods_created: int = 0
    creations_refused: int = 0
    pending_pod_seconds: int = 0
    container_seconds: int = 0
    starved_container_seconds: int = 0
    nodes_added: int = 0
    nodes_removed: int = 0
    drained: int = 0
    oom_kills_by_container: dict[tuple[str, str, int, str], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SimulatedNodeUsage:
    """One node at the last step; `requested` as kube-scheduler counts it, `load` is CPU demand over capacity."""

    node: str
    allocatable: Resources
    requested: Resources
    used: Resources
    pods: int
    load: float


class SimulationClock:
    """Simulated time, and the actions scheduled for it; those of the same second run in the order of scheduling."""

    def __init__(self, start: int) -> None:
        self.now = start
        self._due: list[tuple[int, int, Callable[[int], None]]] = []
        self._planned = 0

    def schedule(self, at: int, action: Callable[[int], None]) -> None:
        """Schedule an action, which is called with its time."""
        self._planned += 1
        heapq.heappush(self._due, (max(at, self.now), self._planned, action))

    def run_until(self, end: int) -> None:
        """Run all actions until `end`, including those scheduled meanwhile, and set the time to `end`."""
        while self._due and self._due[0][0] <= end:
            at, _, action = heapq.heappop(self._due)
            self.now = at
            action(at)
        self.now = end


def convert_to_datetime(seconds: int) -> datetime:
    """Return Unix seconds as a time."""
    return datetime.fromtimestamp(seconds, UTC)


def convert_to_seconds(time: datetime) -> int:
    """Return a time as whole Unix seconds."""
    return int(time.timestamp())


PodKey = tuple[str, str]


@dataclass(slots=True, eq=False)
class SimulatedPod:
    """One pod with its internal state.

    `rows` are the rows of its running containers in the container table. `requested` and `allocations` count the
    resizes that were requested and allocated, so that scheduled actions of an earlier resize are recognized.
    `deferred_since` is set while a resize is Deferred, `is_failing` while it cannot be applied.
    """

    pod: Pod
    workload: SimulatedWorkload
    slot: int
    rows: dict[str, int] = field(default_factory=dict)
    counted_requests: Resources = NO_RESOURCES
    scored_requests: Resources = NO_RESOURCES
    allocated_requests: Resources = NO_RESOURCES
    allocated_limits: dict[str, StatedResources] = field(default_factory=dict)
    allocations: int = 0
    requested: int = 0
    requested_at: int = 0
    deferred_since: int | None = None
    is_failing: bool = False
    is_deleted: bool = False

    @property
    def key(self) -> PodKey:
        """Namespace and name."""
        return (self.pod.namespace, self.pod.name)

    @property
    def member(self) -> tuple[str, str, int]:
        """Namespace, workload and slot, which its replacement pod shares."""
        return (self.pod.namespace, str(self.pod.workload or self.pod.name), self.slot)


class SimulatedClusterState:
    """The nodes and pods of a cluster; columns have one entry per node, in the order of `node_names`.

    A removed node keeps its index, with an allocatable of 0. `counted_…` are the requests that kube-scheduler's filters
    count, `scored_…` those of its scores, `allocated_…` the resources allocated by kubelets.
    """

    def __init__(self, nodes: tuple[Node, ...], start: int, settings: SimulationSettings) -> None:
        self.settings = settings
        self.clock = SimulationClock(start)
        self.counts = SimulationCounts()
        self.containers = ContainerTable()
        self.history = MeasurementHistory(start, max(MINUTE, settings.step_seconds), settings.retention_seconds)
        self.nodes: dict[str, Node] = {}
        self.node_names: list[str] = []
        self.node_index: dict[str, int] = {}
        nothing = np.zeros(0, dtype=np.int64)
        self.allocatable_cpu = self.allocatable_memory = self.allocatable_pods = nothing
        self.counted_cpu = self.counted_memory = self.scored_cpu = self.scored_memory = nothing
        self.allocated_cpu = self.allocated_memory = self.pods_on = nothing
        self.extended_free: dict[str, NDArray[np.int64]] = {}
        self.records: dict[PodKey, SimulatedPod] = {}
        self.unbound_pods: dict[PodKey, SimulatedPod] = {}
        self.ended_pods: deque[CompletedPod] = deque(maxlen=MAX_ENDED_PODS)
        self.nodes_version = 0
        self._versions = 0
        self.add_nodes(sorted(nodes, key=lambda node: node.name))
        self._pods: tuple[Pod, ...] | None = None
        self._sorted: list[PodKey] | None = None

    @property
    def pods(self) -> tuple[Pod, ...]:
        """All pods, sorted by namespace and name."""
        if self._pods is None:
            if self._sorted is None:
                self._sorted = sorted(self.records)
            self._pods = tuple(self.records[key].pod for key in self._sorted)
        return self._pods

    def get_allocatable(self, index: int) -> Resources:
        """Return a node's allocatable."""
        return Resources(int(self.allocatable_cpu[index]), int(self.allocatable_memory[index]))

    def get_unallocated(self, index: int) -> Resources:
        """Return the resources that the node's kubelet has not allocated."""
        used = Resources(int(self.allocated_cpu[index]), int(self.allocated_memory[index]))
        return self.get_allocatable(index) - used

    def get_node_index(self, pod: Pod) -> int:
        """Return the index of a bound pod's node, -1 for a pending pod."""
        return -1 if pod.node is None else self.node_index[pod.node]

    def set_node(self, node: Node) -> None:
        """Replace a node of the same name and size."""
        self.nodes[node.name] = node
        self.nodes_version += 1

    def add_nodes(self, nodes: Sequence[Node]) -> None:
        """Add empty nodes; names must not be reused."""
        self.nodes.update((node.name, node) for node in nodes)
        self.node_index.update((node.name, len(self.node_names) + place) for place, node in enumerate(nodes))
        self.node_names.extend(node.name for node in nodes)
        self._extend("allocatable_cpu", [node.allocatable.cpu_millicores for node in nodes])
        self._extend("allocatable_memory", [node.allocatable.memory_bytes for node in nodes])
        self._extend("allocatable_pods", [node.allocatable_pods for node in nodes])
        for name in _SUMS:
            self._extend(name, [0] * len(nodes))
        for name in sorted(self.extended_free.keys() | {name for node in nodes for name in node.allocatable_extended}):
            before = self.extended_free.get(name, np.zeros(len(self.node_names) - len(nodes), dtype=np.int64))
            self.extended_free[name] = np.append(before, [node.allocatable_extended.get(name, 0) for node in nodes])
        self.nodes_version += 1

    def remove_node(self, name: str) -> None:
        """Remove a node without pods."""
        del self.nodes[name]
        index = self.node_index[name]
        for column in (self.allocatable_cpu, self.allocatable_memory, self.allocatable_pods):
            column[index] = 0
        self.nodes_version += 1

    def _extend(self, name: str, values: list[int]) -> None:
        setattr(self, name, np.append(getattr(self, name), np.array(values, dtype=np.int64)))

    def add(self, record: SimulatedPod) -> None:
        """Add a pod that is not bound yet."""
        record.pod = self._versioned(record.pod)
        self._count(record)
        self.records[record.key] = record
        self.unbound_pods[record.key] = record
        self._pods = self._sorted = None

    def remove(self, record: SimulatedPod) -> None:
        """Remove a pod."""
        if record.pod.node is not None:
            self._take(record, -1)
        ended = record.pod.ended_pod
        if ended is not None:
            self.ended_pods.append(ended)
        self.unbound_pods.pop(record.key, None)
        del self.records[record.key]
        record.is_deleted = True
        self._pods = self._sorted = None

    def put(self, record: SimulatedPod, pod: Pod, allocated: Resources | None = None) -> None:
        """Replace a pod, and with `allocated` the resources that its kubelet allocated; a new node binds it."""
        if record.pod.node is not None:
            self._take(record, -1)
        elif pod.node is not None:
            del self.unbound_pods[record.key]
        record.pod = self._versioned(pod)
        self._count(record)
        record.allocated_requests = (
            NO_RESOURCES if pod.is_finished else record.allocated_requests if allocated is None else allocated
        )
        if pod.node is not None:
            self._take(record, 1)
        self._pods = None

    def _take(self, record: SimulatedPod, sign: int) -> None:
        """Add a bound pod to its node's sums, or subtract it."""
        index = self.get_node_index(record.pod)
        self.counted_cpu[index] += sign * record.counted_requests.cpu_millicores
        self.counted_memory[index] += sign * record.counted_requests.memory_bytes
        self.scored_cpu[index] += sign * record.scored_requests.cpu_millicores
        self.scored_memory[index] += sign * record.scored_requests.memory_bytes
        self.allocated_cpu[index] += sign * record.allocated_requests.cpu_millicores
        self.allocated_memory[index] += sign * record.allocated_requests.memory_bytes
        if not record.pod.is_finished:
            self.pods_on[index] += sign
            for name, amount in record.pod.extended_requests:
                if name in self.extended_free:
                    self.extended_free[name][index] -= sign * amount

    def _versioned(self, pod: Pod) -> Pod:
        """Return a pod with a new resourceVersion."""
        self._versions += 1
        return replace(pod, resource_version=str(self._versions))

    @staticmethod
    def _count(record: SimulatedPod) -> None:
        record.counted_requests = counted = count_pod_requests(record.pod)
        mains = 0 if record.pod.is_finished else sum(one.role is ContainerRole.MAIN for one in record.pod.containers)
        record.scored_requests = Resources(
            counted.cpu_millicores or mains * DEFAULT_SCORED.cpu_millicores,
            counted.memory_bytes or mains * DEFAULT_SCORED.memory_bytes,
        )


def get_limits_in_force(record: SimulatedPod, container: Container) -> StatedResources:
    """Return a container's limits as the kubelet sets them: the pod's where it states none."""
    limits = record.allocated_limits[container.name]
    return limits.with_defaults(record.allocated_limits.get(POD_LEVEL, NOTHING_STATED))

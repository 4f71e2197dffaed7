"""The objects of a simulated cluster and the sums over them, kept up to date at every change."""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from cruise.domain.cluster import ContainerRole, Node, Pod
from cruise.domain.pod_resources import count_pod_requests
from cruise.domain.resources import MEBIBYTE, NO_RESOURCES, Resources, StatedResources
from cruise.simulation.cluster.containers import ContainerTable
from cruise.simulation.cluster.workloads import SimulatedWorkload
from cruise.simulation.demand.history import MeasurementHistory

# How a simulated cluster behaves where real ones differ.


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """Versions and delays; times in seconds.

    Everything is decided on a grid of `step_seconds`; what a kubelet or a container does in between happens at its
    own second. Measurements are kept once a minute, or once a step where steps are longer.
    """

    seed: int = 0
    server_version: tuple[int, int] = (1, 34)
    step_seconds: int = 60
    allocate_seconds: int = 1  # until the kubelet looks at a resize
    actuate_seconds: int = 5  # from allocated to actual
    start_seconds: int = 5  # from bound to running
    restart_seconds: int = 10  # after the first kill; doubled at each further one
    longest_restart_seconds: int = 300
    quiet_seconds: int = 600  # a process that lived longer starts the doubling anew
    retention_seconds: int = 86_400  # of measurements
    emit_twice: bool = False  # every kill comes out of the stream twice, as after a broken watch


# What a simulation counts, for reports.


@dataclass(slots=True)
class SimulationCounts:
    """Sums since the start of the simulation.

    Seconds are pod or container seconds. A container is starved while it gets less than 99 % of the CPU that it wants.
    `drained` are the evictions by the node autoscaler, which `evictions` does not have. `kills_of` counts kills by
    (namespace, workload, slot, container): a replacement shares its predecessor's slot, so two runs of one cluster can
    be compared.
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
    """One node at the last step: `requested` is what kube-scheduler counts, `load` its CPU demand over capacity."""

    node: str
    allocatable: Resources
    requested: Resources
    used: Resources
    pods: int
    load: float


# Simulated time: what is due when, in an order that never depends on chance.

MINUTE = 60


class SimulationClock:
    """Things to do at given seconds; those due at the same second run in the order in which they were planned."""

    def __init__(self, start: int) -> None:
        self.now = start
        self._due: list[tuple[int, int, Callable[[int], None]]] = []
        self._planned = 0

    def schedule(self, at: int, action: Callable[[int], None]) -> None:
        """Plan `action`, which is called with the time that it is due."""
        self._planned += 1
        heapq.heappush(self._due, (max(at, self.now), self._planned, action))

    def run_until(self, end: int) -> None:
        """Run all that is due until `end`, whatever gets planned meanwhile included, and stop there."""
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


# What kube-scheduler's scores, not its filters, take a container for that requests nothing.
DEFAULT_SCORED = Resources(100, 200 * MEBIBYTE)
PodKey = tuple[str, str]
_SUMS = ("counted_cpu", "counted_memory", "scored_cpu", "scored_memory", "granted_cpu", "granted_memory", "pods_on")


@dataclass(slots=True, eq=False)
class PodRecord:
    """One pod with what its frozen picture does not show.

    `rows` are its running containers' rows in the container table, `granted` what the kubelet has allocated to the
    pod and `granted_limits` the limits that go with it; `requested` and `grants` count its resizes as requested and as
    allocated, so that what was planned for an earlier one can tell that it is stale; `waiting_since` is set while a
    resize is Deferred; `failing` tells that a resize could not be put in force.
    """

    pod: Pod
    workload: SimulatedWorkload
    slot: int
    rows: dict[str, int] = field(default_factory=dict)
    counted_requests: Resources = NO_RESOURCES
    scored_requests: Resources = NO_RESOURCES
    allocated_requests: Resources = NO_RESOURCES
    allocated_limits: dict[str, StatedResources] = field(default_factory=dict)
    grants: int = 0
    requested: int = 0
    requested_at: int = 0
    waiting_since: int | None = None
    is_failing: bool = False
    is_deleted: bool = False

    @property
    def key(self) -> PodKey:
        """Namespace and name."""
        return (self.pod.namespace, self.pod.name)

    @property
    def member(self) -> tuple[str, str, int]:
        """Namespace, workload and slot: what its replacement will share with it."""
        return (self.pod.namespace, str(self.pod.workload or self.pod.name), self.slot)


class SimulatedClusterState:
    """Nodes and pods, and what all parts of the cluster share; columns have one entry a node, as in `node_names`.

    A node that is removed keeps its index, with room for nothing. `counted_…` is what kube-scheduler counts, `scored_…`
    what its scores see, `granted_…` what kubelets have allocated.
    """

    def __init__(self, nodes: tuple[Node, ...], start: int, behaviour: SimulationSettings) -> None:
        self.behaviour = behaviour
        self.timeline = SimulationClock(start)
        self.counts = SimulationCounts()
        self.containers = ContainerTable()
        self.history = MeasurementHistory(start, max(MINUTE, behaviour.step_seconds), behaviour.retention_seconds)
        self.nodes: dict[str, Node] = {}
        self.node_names: list[str] = []
        self.node_index: dict[str, int] = {}
        nothing = np.zeros(0, dtype=np.int64)
        self.allocatable_cpu = self.allocatable_memory = self.allocatable_pods = nothing
        self.counted_cpu = self.counted_memory = self.scored_cpu = self.scored_memory = nothing
        self.granted_cpu = self.granted_memory = self.pods_on = nothing
        self.extended_free: dict[str, NDArray[np.int64]] = {}
        self.records: dict[PodKey, PodRecord] = {}
        self.unbound_pods: dict[PodKey, PodRecord] = {}
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

    def allocatable(self, index: int) -> Resources:
        """Return a node's allocatable."""
        return Resources(int(self.allocatable_cpu[index]), int(self.allocatable_memory[index]))

    def get_allocated_room(self, index: int) -> Resources:
        """Return what the node's kubelet has not allocated to any pod."""
        used = Resources(int(self.granted_cpu[index]), int(self.granted_memory[index]))
        return self.allocatable(index) - used

    def index_of(self, pod: Pod) -> int:
        """Return the index of a bound pod's node, -1 for a pending pod."""
        return -1 if pod.node is None else self.node_index[pod.node]

    def set_node(self, node: Node) -> None:
        """Replace a node of the same name and size."""
        self.nodes[node.name] = node
        self.nodes_version += 1

    def add_nodes(self, nodes: Sequence[Node]) -> None:
        """Add empty nodes; no name may ever have been that of another."""
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
        """Remove a node that has no pod."""
        del self.nodes[name]
        index = self.node_index[name]
        for column in (self.allocatable_cpu, self.allocatable_memory, self.allocatable_pods):
            column[index] = 0
        self.nodes_version += 1

    def _extend(self, name: str, values: list[int]) -> None:
        setattr(self, name, np.append(getattr(self, name), np.array(values, dtype=np.int64)))

    def add(self, record: PodRecord) -> None:
        """Add a pod that is not bound yet."""
        record.pod = self._versioned(record.pod)
        self._count(record)
        self.records[record.key] = record
        self.unbound_pods[record.key] = record
        self._pods = self._sorted = None

    def remove(self, record: PodRecord) -> None:
        """Remove a pod and give its room back."""
        if record.pod.node is not None:
            self._take(record, -1)
        self.unbound_pods.pop(record.key, None)
        del self.records[record.key]
        record.is_deleted = True
        self._pods = self._sorted = None

    def put(self, record: PodRecord, pod: Pod, granted: Resources | None = None) -> None:
        """Replace a pod's picture, and with `granted` what its kubelet has allocated to it; a new node binds it."""
        if record.pod.node is not None:
            self._take(record, -1)
        elif pod.node is not None:
            del self.unbound_pods[record.key]
        record.pod = self._versioned(pod)
        self._count(record)
        record.allocated_requests = (
            NO_RESOURCES if pod.is_finished else record.allocated_requests if granted is None else granted
        )
        if pod.node is not None:
            self._take(record, 1)
        self._pods = None

    def _take(self, record: PodRecord, sign: int) -> None:
        """Add a bound pod to its node's sums, or take it out of them."""
        index = self.index_of(record.pod)
        self.counted_cpu[index] += sign * record.counted_requests.cpu_millicores
        self.counted_memory[index] += sign * record.counted_requests.memory_bytes
        self.scored_cpu[index] += sign * record.scored_requests.cpu_millicores
        self.scored_memory[index] += sign * record.scored_requests.memory_bytes
        self.granted_cpu[index] += sign * record.allocated_requests.cpu_millicores
        self.granted_memory[index] += sign * record.allocated_requests.memory_bytes
        if not record.pod.is_finished:
            self.pods_on[index] += sign
            for name, amount in record.pod.extended_requests:
                if name in self.extended_free:
                    self.extended_free[name][index] -= sign * amount

    def _versioned(self, pod: Pod) -> Pod:
        """Return a pod with a resourceVersion that no other object has or had."""
        self._versions += 1
        return replace(pod, version=str(self._versions))

    @staticmethod
    def _count(record: PodRecord) -> None:
        record.counted_requests = counted = count_pod_requests(record.pod)
        mains = 0 if record.pod.is_finished else sum(one.role is ContainerRole.MAIN for one in record.pod.containers)
        record.scored_requests = Resources(
            counted.cpu_millicores or mains * DEFAULT_SCORED.cpu_millicores,
            counted.memory_bytes or mains * DEFAULT_SCORED.memory_bytes,
        )

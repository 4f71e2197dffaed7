"""Upper bounds of containers' usage as the cluster shows them: the capacity of their nodes, and their limits.

The columns have a row per container; from one snapshot to the next only the rows of changed pods are recomputed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cruise.decisions.usage.usage_columns import NEVER
from cruise.domain.arrays import Float64Array, Int64Array
from cruise.domain.cluster import ClusterSnapshot, Container, Pod
from cruise.domain.policy import LARGEST_MACHINE
from cruise.domain.resources import NOTHING_STATED
from cruise.domain.usage import ContainerKey

PodKey = tuple[str, str]
Capacity = tuple[float, float]
_UNLIMITED = (np.inf, np.inf)
_LARGEST = (float(LARGEST_MACHINE.cpu_millicores), float(LARGEST_MACHINE.memory_bytes))
# Rows of deleted containers that are tolerated before the columns are rebuilt.
_MAX_UNUSED_ROWS = 1024


@dataclass(frozen=True, slots=True)
class UsageBoundColumns:
    """The most that the containers of a block can use, in millicores and bytes, infinite if unknown.

    Limits apply to samples after `limit_since`, in Unix seconds.
    """

    node_cpu: Float64Array
    node_memory: Float64Array
    limit_cpu: Float64Array
    limit_memory: Float64Array
    limit_since: Int64Array


@dataclass(frozen=True, slots=True)
class UsageBounds:
    """The bounds of all containers by a snapshot and the one before it.

    A limit may have changed between the two, so the larger one applies. Before the earlier snapshot (`since`, Unix
    seconds) nothing is known, except for pods created later. `columns` has five rows: the bounds by node and by limit,
    CPU before memory, and whether the limits were in effect in the earlier snapshot. `changed` are the pods that differ
    from it.
    """

    pods: Mapping[PodKey, Pod]
    nodes: Mapping[str, Capacity]
    at: int
    row_of: Mapping[ContainerKey, int]
    columns: Float64Array
    changed: frozenset[PodKey]
    since: int = NEVER

    @staticmethod
    def create(snapshot: ClusterSnapshot, at: int, before: "UsageBounds | None" = None) -> "UsageBounds":
        """Compute the bounds from a snapshot taken at a time, reusing those of the one before."""
        nodes = {
            node.name: (
                _limit_to_machine(node.cpu_capacity_millicores or node.allocatable.cpu_millicores, _LARGEST[0]),
                _limit_to_machine(node.memory_capacity_bytes or node.allocatable.memory_bytes, _LARGEST[1]),
            )
            for node in snapshot.nodes
        }
        pods = {(pod.namespace, pod.name): pod for pod in snapshot.pods}
        if before is None:
            return UsageBounds(pods, nodes, at, *_build_columns(pods, pods, nodes, pods, None), frozenset())
        earlier = before.pods.get
        changed = {key for key, pod in pods.items() if earlier(key) is not pod}
        deleted = len(before.pods) - len(pods) + sum(key not in before.pods for key in changed)
        if deleted:
            changed.update(before.pods.keys() - pods.keys())
        known = before if before.nodes == nodes and before.columns.shape[1] < _get_max_rows(before) else None
        # Pods that changed last time had the larger of two limits, and have a single one now.
        recomputed = pods.keys() if known is None else changed | before.changed
        row_of, columns = _build_columns(pods, recomputed, nodes, before.pods, known)
        return UsageBounds(pods, nodes, at, row_of, columns, frozenset(changed), before.at)

    def get_rows(self, keys: Sequence[ContainerKey], nodes: Sequence[str]) -> UsageBoundColumns:
        """Return the bounds of containers; `nodes` are their nodes according to the source, empty if unknown.

        A container on an unknown node may use as much as the largest node has.
        """
        rows = np.fromiter((self.row_of.get(key, -1) for key in keys), np.int64, len(keys))
        node_cpu, node_memory, limit_cpu, limit_memory, earlier = self.columns[:, rows]
        missing = np.flatnonzero(rows < 0).tolist()
        if missing:
            unknown = _get_largest_capacity(self.nodes.values())
            for index in missing:
                pod = self.pods.get(keys[index][:2])
                node = (pod.node or "") if pod is not None else nodes[index] if nodes else ""
                node_cpu[index], node_memory[index] = self.nodes.get(node, unknown)
                limit_cpu[index], limit_memory[index], earlier[index] = np.inf, np.inf, 0
        if self.since == NEVER:
            unlimited = np.full(len(keys), np.inf)
            return UsageBoundColumns(node_cpu, node_memory, unlimited, unlimited, np.zeros(len(keys), np.int64))
        return UsageBoundColumns(node_cpu, node_memory, limit_cpu, limit_memory, np.where(earlier > 0, self.since, 0))


def _get_max_rows(bounds: UsageBounds) -> int:
    return 2 * len(bounds.row_of) + _MAX_UNUSED_ROWS


def _get_largest_capacity(capacities: Iterable[Capacity]) -> Capacity:
    known = list(capacities)
    return max((cpu for cpu, _ in known), default=_LARGEST[0]), max(
        (memory for _, memory in known), default=_LARGEST[1]
    )


def _limit_to_machine(capacity: int, largest: float) -> float:
    """Return a node's capacity, that of the largest machine if it is unknown or more."""
    return min(float(capacity or largest), largest)


def _build_columns(
    pods: Mapping[PodKey, Pod],
    recomputed: Iterable[PodKey],
    nodes: Mapping[str, Capacity],
    earlier: Mapping[PodKey, Pod],
    known: UsageBounds | None,
) -> tuple[dict[ContainerKey, int], Float64Array]:
    """Return the row of each container, and the columns with the rows of the given pods recomputed.

    The last column belongs to no container: containers that are not found refer to it.
    """
    unknown = _get_largest_capacity(nodes.values())
    row_of = {} if known is None else dict(known.row_of)
    reused = np.empty((5, 0)) if known is None else known.columns[:, :-1]
    rows: list[tuple[float, float, float, float, bool]] = []
    for key in recomputed:
        pod, before = pods.get(key), earlier.get(key)
        if before is not None and known is not None:
            for container in before.containers:
                row_of.pop(ContainerKey(*key, container.name), None)
        if pod is None:
            continue
        capacity, is_same_pod = nodes.get(pod.node or "", unknown), before is not None and before.uid == pod.uid
        for container in pod.containers:
            cpu, memory = _get_largest_limits(container)
            if before is not None and is_same_pod and before is not pod:
                earlier_cpu, earlier_memory = _find_largest_limits(before, container.name)
                cpu, memory = max(cpu, earlier_cpu), max(memory, earlier_memory)
            row_of[ContainerKey(*key, container.name)] = reused.shape[1] + len(rows)
            rows.append((*capacity, cpu, memory, is_same_pod))
    new = np.array(rows, dtype=np.float64).reshape(-1, 5).T
    return row_of, np.column_stack((reused, new, np.full(5, np.inf)))


def _find_largest_limits(pod: Pod, name: str) -> Capacity:
    for container in pod.containers:
        if container.name == name:
            return _get_largest_limits(container)
    return _UNLIMITED


def _get_largest_limits(container: Container) -> Capacity:
    """Return the limits in effect: the larger of what the spec states and what the kubelet has set."""
    if container.limits is NOTHING_STATED:
        return _UNLIMITED
    stated, actual = container.limits, container.actual_limits or container.limits
    cpu = max(stated.cpu_millicores, actual.cpu_millicores or 0) if stated.cpu_millicores else np.inf
    memory = max(stated.memory_bytes, actual.memory_bytes or 0) if stated.memory_bytes else np.inf
    return cpu, memory

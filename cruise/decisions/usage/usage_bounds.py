"""What containers can use at most, as far as a cluster shows it: what their nodes have, and their limits.

Columns with a row a container; from one snapshot to the next only those of pods that changed are looked at again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cruise.decisions.usage.usage_columns import NEVER
from cruise.domain.cluster import ClusterSnapshot, Container, Pod
from cruise.domain.resources import NOTHING_STATED, Float64Array, Int64Array
from cruise.domain.usage import ContainerKey

PodKey = tuple[str, str]
Capacity = tuple[float, float]
_UNLIMITED = (np.inf, np.inf)
# Rows of containers that are gone, beside those that are there: then it is time to begin anew.
_MOST_UNUSED = 1024


@dataclass(frozen=True, slots=True)
class UsageBoundColumns:
    """What the containers of a block can use at most: millicores and bytes, infinite where that is not known.

    Limits hold for samples after `limit_since`, in Unix seconds.
    """

    node_cpu: Float64Array
    node_memory: Float64Array
    limit_cpu: Float64Array
    limit_memory: Float64Array
    limit_since: Int64Array


@dataclass(frozen=True, slots=True)
class UsageBounds:
    """What is known of the bounds of all containers from a snapshot, and from the one before it.

    A limit may have been changed between the two, so the larger of both holds; of the time before the earlier one
    (`since`, Unix seconds) nothing is known, but for pods that have come since. `columns` has five rows: what node and
    limits allow, CPU before memory, and whether the limits were in force earlier as well. `changed` are the pods that
    differ from those of the snapshot before.
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
        """Read the bounds from a snapshot made at a time."""
        nodes = {
            node.name: (
                float(node.cpu_capacity_millicores or node.allocatable.cpu_millicores or np.inf),
                float(node.memory_capacity_bytes or node.allocatable.memory_bytes or np.inf),
            )
            for node in snapshot.nodes
        }
        pods = {(pod.namespace, pod.name): pod for pod in snapshot.pods}
        if before is None:
            return UsageBounds(pods, nodes, at, *_columns(pods, pods, nodes, pods, None), frozenset())
        earlier = before.pods.get
        changed = {key for key, pod in pods.items() if earlier(key) is not pod}
        gone = len(before.pods) - len(pods) + sum(key not in before.pods for key in changed)
        if gone:
            changed.update(before.pods.keys() - pods.keys())
        known = before if before.nodes == nodes and before.columns.shape[1] < _most_rows(before) else None
        # What changed the last time had the larger of two limits, and has one by now.
        renewed = pods.keys() if known is None else changed | before.changed
        row_of, columns = _columns(pods, renewed, nodes, before.pods, known)
        return UsageBounds(pods, nodes, at, row_of, columns, frozenset(changed), before.at)

    def get_rows(self, keys: Sequence[ContainerKey], nodes: Sequence[str]) -> UsageBoundColumns:
        """Return the bounds of containers; `nodes` are where the source says that they run, empty where it does not.

        A container on a node that is not known may use what the largest has.
        """
        rows = np.fromiter((self.row_of.get(key, -1) for key in keys), np.int64, len(keys))
        node_cpu, node_memory, limit_cpu, limit_memory, earlier = self.columns[:, rows]
        missing = np.flatnonzero(rows < 0).tolist()
        if missing:
            unknown = _largest(self.nodes.values())
            for index in missing:
                pod = self.pods.get(keys[index][:2])
                node = (pod.node or "") if pod is not None else nodes[index] if nodes else ""
                node_cpu[index], node_memory[index] = self.nodes.get(node, unknown)
                limit_cpu[index], limit_memory[index], earlier[index] = np.inf, np.inf, 0
        if self.since == NEVER:
            unlimited = np.full(len(keys), np.inf)
            return UsageBoundColumns(node_cpu, node_memory, unlimited, unlimited, np.zeros(len(keys), np.int64))
        return UsageBoundColumns(node_cpu, node_memory, limit_cpu, limit_memory, np.where(earlier > 0, self.since, 0))


def _most_rows(bounds: UsageBounds) -> int:
    return 2 * len(bounds.row_of) + _MOST_UNUSED


def _largest(capacities: Iterable[Capacity]) -> Capacity:
    known = list(capacities)
    return max((cpu for cpu, _ in known), default=np.inf), max((memory for _, memory in known), default=np.inf)


def _columns(
    pods: Mapping[PodKey, Pod],
    renewed: Iterable[PodKey],
    nodes: Mapping[str, Capacity],
    earlier: Mapping[PodKey, Pod],
    known: UsageBounds | None,
) -> tuple[dict[ContainerKey, int], Float64Array]:
    """Return the columns and where each container stands, of which what is `known` stays but for the renewed pods.

    The last column is of no container: it makes room for those that are not found.
    """
    unknown = _largest(nodes.values())
    row_of = {} if known is None else dict(known.row_of)
    kept = np.empty((5, 0)) if known is None else known.columns[:, :-1]
    found: list[tuple[float, float, float, float, bool]] = []
    for key in renewed:
        pod, before = pods.get(key), earlier.get(key)
        if before is not None and known is not None:
            for container in before.containers:
                row_of.pop(ContainerKey(*key, container.name), None)
        if pod is None:
            continue
        room, same = nodes.get(pod.node or "", unknown), before is not None and before.uid == pod.uid
        for container in pod.containers:
            cpu, memory = _largest_limits(container)
            if before is not None and same and before is not pod:
                earlier_cpu, earlier_memory = _limits_of(before, container.name)
                cpu, memory = max(cpu, earlier_cpu), max(memory, earlier_memory)
            row_of[ContainerKey(*key, container.name)] = kept.shape[1] + len(found)
            found.append((*room, cpu, memory, same))
    new = np.array(found, dtype=np.float64).reshape(-1, 5).T
    return row_of, np.column_stack((kept, new, np.full(5, np.inf)))


def _limits_of(pod: Pod, name: str) -> Capacity:
    for container in pod.containers:
        if container.name == name:
            return _largest_limits(container)
    return _UNLIMITED


def _largest_limits(container: Container) -> Capacity:
    """Return the limits in force: of what is asked for and what the kubelet has set, the larger."""
    if container.limits is NOTHING_STATED:
        return _UNLIMITED
    asked, actual = container.limits, container.actual_limits or container.limits
    cpu = max(asked.cpu_millicores, actual.cpu_millicores or 0) if asked.cpu_millicores else np.inf
    memory = max(asked.memory_bytes, actual.memory_bytes or 0) if asked.memory_bytes else np.inf
    return cpu, memory

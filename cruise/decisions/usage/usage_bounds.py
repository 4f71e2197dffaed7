"""What containers can use at most, as far as a cluster shows it: what their nodes have, and their limits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cruise.decisions.usage.usage_columns import NEVER
from cruise.domain.arrays import Float64Array, Int64Array
from cruise.domain.cluster import Container, Pod, Snapshot
from cruise.domain.resources import NO_AMOUNTS
from cruise.domain.usage import ContainerKey

PodKey = tuple[str, str]
_UNLIMITED = (np.inf, np.inf)
_NO_LIMITS = (np.inf, np.inf, 0.0)


@dataclass(frozen=True, slots=True)
class RowBounds:
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
    (`since`, Unix seconds) nothing is known, but for pods that have come since.
    """

    pods: Mapping[PodKey, Pod]
    nodes: Mapping[str, tuple[float, float]]
    at: int
    earlier: Mapping[PodKey, Pod] | None = None
    since: int = NEVER

    @staticmethod
    def of(snapshot: Snapshot, at: int, before: "UsageBounds | None" = None) -> "UsageBounds":
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
            return UsageBounds(pods, nodes, at)
        return UsageBounds(pods, nodes, at, before.pods, before.at)

    def rows(self, keys: Sequence[ContainerKey], nodes: Sequence[str]) -> RowBounds:
        """Return the bounds of containers; `nodes` are where the source says that they run, empty where it does not.

        A container on a node that is not known may use what the largest has.
        """
        capacities = self.nodes.values()
        unknown = (
            max((cpu for cpu, _ in capacities), default=np.inf),
            max((memory for _, memory in capacities), default=np.inf),
        )
        # This is for all containers of a cluster; a plain tuple finds what a named one would.
        find, node_of, limits = self.pods.get, self.nodes.get, self._limits
        found: list[float] = []
        for index, key in enumerate(keys):
            pod = find(key[:2])
            if pod is None:
                found += (*(node_of(nodes[index], unknown) if nodes else unknown), *_NO_LIMITS)
                continue
            found += node_of(pod.node or "", unknown)
            name = key[2]
            for container in pod.containers:
                if container.name == name:
                    found += limits(key, pod, container) if container.limits is not NO_AMOUNTS else _NO_LIMITS
                    break
            else:
                found += _NO_LIMITS
        columns = np.array(found, dtype=np.float64).reshape(-1, 5).T
        return RowBounds(columns[0], columns[1], columns[2], columns[3], columns[4].astype(np.int64))

    def _limits(self, key: ContainerKey, pod: Pod, container: Container) -> tuple[float, float, float]:
        """Return the limits of a container for CPU and memory, and since when they are known."""
        if self.earlier is None:
            return _NO_LIMITS
        now = _largest_limits(container)
        before = self.earlier.get((key.namespace, key.pod))
        if before is pod:
            return (*now, float(self.since))
        if before is None or before.uid != pod.uid:
            return (*now, 0.0)
        cpu, memory = _limits_of(before, key.container)
        return max(now[0], cpu), max(now[1], memory), float(self.since)


def _limits_of(pod: Pod, name: str) -> tuple[float, float]:
    for container in pod.containers:
        if container.name == name:
            return _largest_limits(container)
    return _UNLIMITED


def _largest_limits(container: Container) -> tuple[float, float]:
    """Return the limits in force: of what is asked for and what the kubelet has set, the larger."""
    asked, actual = container.limits, container.actual_limits or container.limits
    cpu = max(asked.cpu_millicores, actual.cpu_millicores or 0) if asked.cpu_millicores else np.inf
    memory = max(asked.memory_bytes, actual.memory_bytes or 0) if asked.memory_bytes else np.inf
    return cpu, memory

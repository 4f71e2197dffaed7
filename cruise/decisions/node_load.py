"""Which nodes to mark as overloaded: with hysteresis, few at a time, and none on loads that cannot be true.

A taint keeps new pods away. On all nodes at once it would keep them from running at all, and what reports every node as
overloaded is rather a mistake, or a pod that exports what it likes, than the truth.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cruise.domain.actions import ReasonCode, TaintNode, UntaintNode
from cruise.domain.cluster import ClusterSnapshot, Node
from cruise.domain.policy import Mode, Policy
from cruise.domain.scheduling import OVERLOADED_TAINT

REQUIRED_READINGS = 2
# Relative to the node's CPU: no machine does anything at such a load, least of all export it.
MAX_PLAUSIBLE_LOAD = 50.0
# Of this many nodes one may bear the taint, and one in any case.
_NODES_FOR_EACH_TAINT = 5
MAX_READING_AGE = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class NodeLoadReadings:
    """The latest readings of one node, relative to its CPU, oldest first; None for a look that found no new sample.

    `known_at` is when the latest reading came; before the first one, since when it is looked for.
    """

    latest: tuple[float | None, ...]
    known_at: datetime

    def are_all_above(self, threshold: float) -> bool:
        """Tell whether enough readings in a row are above a threshold."""
        return len(self.latest) >= REQUIRED_READINGS and all(one is not None and one > threshold for one in self.latest)

    def are_all_below(self, threshold: float) -> bool:
        """Tell whether enough readings in a row are below a threshold."""
        return len(self.latest) >= REQUIRED_READINGS and all(one is not None and one < threshold for one in self.latest)

    @property
    def newest(self) -> float | None:
        """The load at the last look."""
        return self.latest[-1] if self.latest else None


@dataclass(frozen=True, slots=True)
class NodeLoadDecision:
    """What to do about taints; `crowd` counts the overloaded nodes where they are too many at once to be true."""

    actions: tuple[TaintNode | UntaintNode, ...]
    overloaded_at_once: int = 0


def decide_node_load(
    nodes: Sequence[Node], readings: Mapping[str, NodeLoadReadings], policy: Policy, now: datetime
) -> NodeLoadDecision:
    """Taint nodes above the threshold at two readings in a row, and untaint those below the lower one at two in a row.

    At most a fifth of the nodes (at least one) bears the taint, the most loaded first. Where more than half of them are
    above the threshold at once, none is tainted. Without readings a taint stays for an hour at most, and where cruise
    taints no nodes, not at all. `readings` has an entry for each node.
    """
    free = [node for node in nodes if OVERLOADED_TAINT not in node.taints]
    freed, staying = [], []
    for node in nodes:
        if OVERLOADED_TAINT in node.taints:
            reason = _why_freed(readings[node.name], policy, now)
            if reason is None:
                staying.append(node)
            else:
                freed.append(UntaintNode(node.name, reason))
    most = max(1, len(nodes) // _NODES_FOR_EACH_TAINT)
    staying.sort(key=lambda node: _heaviest_first(node, readings))
    freed += [UntaintNode(node.name, ReasonCode.TOO_MANY_TAINTS) for node in staying[most:]]
    overloaded = sum((readings[node.name].newest or 0.0) > policy.overload_taint_threshold for node in nodes)
    if 2 * overloaded > len(nodes):
        return NodeLoadDecision(tuple(freed), overloaded)
    candidates = [node for node in free if readings[node.name].are_all_above(policy.overload_taint_threshold)]
    candidates.sort(key=lambda node: _heaviest_first(node, readings))
    room = max(0, most - len(staying))
    return NodeLoadDecision((*freed, *(TaintNode(node.name, ReasonCode.OVERLOADED) for node in candidates[:room])))


def find_tainted_nodes(nodes: Sequence[Node]) -> list[str]:
    """Return the names of the nodes with cruise's taint."""
    return [node.name for node in nodes if OVERLOADED_TAINT in node.taints]


def build_taint_removals(nodes: Sequence[Node]) -> tuple[UntaintNode, ...]:
    """Return how cruise leaves for good: without a taint of its own on any node."""
    return tuple(UntaintNode(name, ReasonCode.TAINTING_DISABLED) for name in find_tainted_nodes(nodes))


def format_untaint_command(nodes: Sequence[str]) -> str:
    """Return how a person takes cruise's taint off nodes."""
    return f"kubectl taint nodes {' '.join(nodes)} {OVERLOADED_TAINT.key}:{OVERLOADED_TAINT.effect.value}-"


def has_running_successor(snapshot: ClusterSnapshot, namespace: str, process: str) -> bool:
    """Tell whether another process goes on where the pod called `process` ends: its workload is there, and wants pods.

    Outside of the cluster there is no telling.
    """
    own = next((pod for pod in snapshot.pods if (pod.namespace, pod.name) == (namespace, process)), None)
    if own is None or own.workload is None:
        return False
    workload = snapshot.workloads.get((namespace, own.workload))
    return workload is not None and workload.replicas != 0


def is_plausible(load: float) -> bool:
    """Tell whether a load relative to a node's CPU may be true."""
    return 0.0 <= load <= MAX_PLAUSIBLE_LOAD


def compute_relative_load(load1: float | None, node: Node) -> float | None:
    """Return load1 relative to the node's CPU, None without a reading or without CPU.

    What is kept from pods carries load as well, so the machine's capacity counts; where it is unknown, what is
    allocatable.
    """
    capacity = node.allocatable.cpu_millicores if node.cpu_capacity_millicores is None else node.cpu_capacity_millicores
    return None if load1 is None or capacity <= 0 else load1 * 1000 / capacity


def _why_freed(readings: NodeLoadReadings, policy: Policy, now: datetime) -> ReasonCode | None:
    """Return why a node loses its taint, None where it stays."""
    if policy.mode < Mode.FULL:
        return ReasonCode.TAINTING_DISABLED
    if readings.are_all_below(policy.overload_untaint_threshold):
        return ReasonCode.LOAD_NORMAL
    return ReasonCode.LOAD_UNKNOWN if now - readings.known_at >= MAX_READING_AGE else None


def _heaviest_first(node: Node, readings: Mapping[str, NodeLoadReadings]) -> tuple[float, str]:
    return -(readings[node.name].newest or 0.0), node.name

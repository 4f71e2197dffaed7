"""Decides which nodes get the overload taint (ADR 0028).

A taint keeps new pods away; on all nodes it would keep them from running at all. If every node is reported overloaded,
that is more likely an error, or a pod that exports arbitrary series.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cruise.domain.actions import ReasonCode, TaintNode, UntaintNode
from cruise.domain.cluster import ClusterSnapshot, Node
from cruise.domain.policy import Mode, Policy
from cruise.domain.scheduling import OVERLOADED_TAINT

REQUIRED_READINGS = 2
# Relative to the node's CPU: no machine with a higher load could still export it.
MAX_PLAUSIBLE_LOAD = 50.0
# One of this many nodes may have the taint, and one in any case.
_NODES_FOR_EACH_TAINT = 5
MAX_READING_AGE = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class NodeLoadReadings:
    """The latest readings of one node, relative to its CPU, oldest first; None for a read without a new sample.

    `known_at` is the time of the latest reading, or, before the first one, since when readings are expected.
    """

    latest: tuple[float | None, ...]
    known_at: datetime

    def are_all_above(self, threshold: float) -> bool:
        """Return whether enough consecutive readings are above a threshold."""
        return len(self.latest) >= REQUIRED_READINGS and all(one is not None and one > threshold for one in self.latest)

    def are_all_below(self, threshold: float) -> bool:
        """Return whether enough consecutive readings are below a threshold."""
        return len(self.latest) >= REQUIRED_READINGS and all(one is not None and one < threshold for one in self.latest)

    @property
    def newest(self) -> float | None:
        """The load at the last read."""
        return self.latest[-1] if self.latest else None


@dataclass(frozen=True, slots=True)
class NodeLoadDecision:
    """The taints to add and remove; `overloaded_at_once` counts overloaded nodes if they are implausibly many."""

    actions: tuple[TaintNode | UntaintNode, ...]
    overloaded_at_once: int = 0


def decide_node_load(
    nodes: Sequence[Node], readings: Mapping[str, NodeLoadReadings], policy: Policy, now: datetime
) -> NodeLoadDecision:
    """Taint nodes with two consecutive readings above the threshold, and untaint those with two below the lower one.

    At most a fifth of the nodes (at least one) has the taint, the most loaded first. If more than half of the nodes
    exceed the threshold, none is tainted. Without readings a taint stays for at most an hour; if cruise taints no
    nodes, it is removed immediately. `readings` has an entry for each node.
    """
    untainted = [node for node in nodes if OVERLOADED_TAINT not in node.taints]
    removals, tainted = [], []
    for node in nodes:
        if OVERLOADED_TAINT in node.taints:
            reason = _explain_taint_removal(readings[node.name], policy, now)
            if reason is None:
                tainted.append(node)
            else:
                removals.append(UntaintNode(node.name, reason))
    maximum = max(1, len(nodes) // _NODES_FOR_EACH_TAINT)
    tainted.sort(key=lambda node: _order_by_load(node, readings))
    removals += [UntaintNode(node.name, ReasonCode.TOO_MANY_TAINTS) for node in tainted[maximum:]]
    overloaded = sum((readings[node.name].newest or 0.0) > policy.overload_taint_threshold for node in nodes)
    if 2 * overloaded > len(nodes):
        return NodeLoadDecision(tuple(removals), overloaded)
    candidates = [node for node in untainted if readings[node.name].are_all_above(policy.overload_taint_threshold)]
    candidates.sort(key=lambda node: _order_by_load(node, readings))
    remaining = max(0, maximum - len(tainted))
    return NodeLoadDecision(
        (*removals, *(TaintNode(node.name, ReasonCode.OVERLOADED) for node in candidates[:remaining]))
    )


def find_tainted_nodes(nodes: Sequence[Node]) -> list[str]:
    """Return the names of the nodes with cruise's taint."""
    return [node.name for node in nodes if OVERLOADED_TAINT in node.taints]


def build_taint_removals(nodes: Sequence[Node]) -> tuple[UntaintNode, ...]:
    """Return the actions that remove cruise's taint from all nodes."""
    return tuple(UntaintNode(name, ReasonCode.TAINTING_DISABLED) for name in find_tainted_nodes(nodes))


def format_untaint_command(nodes: Sequence[str]) -> str:
    """Return the command by which a user removes cruise's taint from nodes."""
    return f"kubectl taint nodes {' '.join(nodes)} {OVERLOADED_TAINT.key}:{OVERLOADED_TAINT.effect.value}-"


def has_running_successor(snapshot: ClusterSnapshot, namespace: str, process: str) -> bool:
    """Return whether another process takes over when the pod called `process` ends.

    It does if the pod's workload exists and has replicas. Outside of the cluster this is unknown, and False.
    """
    own_pod = next((pod for pod in snapshot.pods if (pod.namespace, pod.name) == (namespace, process)), None)
    if own_pod is None or own_pod.workload is None:
        return False
    workload = snapshot.workloads.get((namespace, own_pod.workload))
    return workload is not None and workload.replicas != 0


def is_plausible_load(load: float) -> bool:
    """Return whether a load relative to a node's CPU is plausible."""
    return 0.0 <= load <= MAX_PLAUSIBLE_LOAD


def compute_relative_load(load1: float | None, node: Node) -> float | None:
    """Return load1 relative to the node's CPU, None without a reading or without CPU.

    Reserved CPU is loaded as well, so the capacity counts, or the allocatable CPU if the capacity is unknown.
    """
    capacity = node.allocatable.cpu_millicores if node.cpu_capacity_millicores is None else node.cpu_capacity_millicores
    return None if load1 is None or capacity <= 0 else load1 * 1000 / capacity


def _explain_taint_removal(readings: NodeLoadReadings, policy: Policy, now: datetime) -> ReasonCode | None:
    """Return why a node loses its taint, None if it keeps it."""
    if policy.mode < Mode.FULL:
        return ReasonCode.TAINTING_DISABLED
    if readings.are_all_below(policy.overload_untaint_threshold):
        return ReasonCode.LOAD_NORMAL
    return ReasonCode.LOAD_UNKNOWN if now - readings.known_at >= MAX_READING_AGE else None


def _order_by_load(node: Node, readings: Mapping[str, NodeLoadReadings]) -> tuple[float, str]:
    return -(readings[node.name].newest or 0.0), node.name

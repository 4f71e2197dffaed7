"""Which nodes to mark as overloaded: with hysteresis, few at a time, and none on loads that cannot be true.

A taint keeps new pods away. On all nodes at once it would keep them from running at all, and what reports every node as
overloaded is rather a mistake, or a pod that exports what it likes, than the truth.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cruise.domain.actions import Reason, TaintNode, UntaintNode
from cruise.domain.cluster import Node, Snapshot
from cruise.domain.policy import Mode, Policy
from cruise.domain.scheduling import OVERLOADED

READINGS_IN_A_ROW = 2
# Relative to the node's CPU: no machine does anything at such a load, least of all export it.
LARGEST_PLAUSIBLE = 50.0
# Of this many nodes one may bear the taint, and one in any case.
_NODES_FOR_EACH_TAINT = 5
LONGEST_WITHOUT_READING = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class LoadReadings:
    """The latest readings of one node, relative to its CPU, oldest first; None for a look that found no new sample.

    `known_at` is when the latest reading came; before the first one, since when it is looked for.
    """

    latest: tuple[float | None, ...]
    known_at: datetime

    def all_above(self, threshold: float) -> bool:
        """Tell whether enough readings in a row are above a threshold."""
        return len(self.latest) >= READINGS_IN_A_ROW and all(one is not None and one > threshold for one in self.latest)

    def all_below(self, threshold: float) -> bool:
        """Tell whether enough readings in a row are below a threshold."""
        return len(self.latest) >= READINGS_IN_A_ROW and all(one is not None and one < threshold for one in self.latest)

    @property
    def newest(self) -> float | None:
        """The load at the last look."""
        return self.latest[-1] if self.latest else None


@dataclass(frozen=True, slots=True)
class LoadDecision:
    """What to do about taints; `crowd` counts the overloaded nodes where they are too many at once to be true."""

    actions: tuple[TaintNode | UntaintNode, ...]
    crowd: int = 0


def decide_node_load(
    nodes: Sequence[Node], readings: Mapping[str, LoadReadings], policy: Policy, now: datetime
) -> LoadDecision:
    """Taint nodes above the threshold at two readings in a row, and untaint those below the lower one at two in a row.

    At most a fifth of the nodes (at least one) bears the taint, the most loaded first. Where more than half of them are
    above the threshold at once, none is tainted. Without readings a taint stays for an hour at most, and where cruise
    taints no nodes, not at all. `readings` has an entry for each node.
    """
    free = [node for node in nodes if OVERLOADED not in node.taints]
    freed, staying = [], []
    for node in nodes:
        if OVERLOADED in node.taints:
            reason = _why_freed(readings[node.name], policy, now)
            if reason is None:
                staying.append(node)
            else:
                freed.append(UntaintNode(node.name, reason))
    most = max(1, len(nodes) // _NODES_FOR_EACH_TAINT)
    staying.sort(key=lambda node: _heaviest_first(node, readings))
    freed += [UntaintNode(node.name, Reason.TOO_MANY_TAINTS) for node in staying[most:]]
    overloaded = sum((readings[node.name].newest or 0.0) > policy.overload_above for node in nodes)
    if 2 * overloaded > len(nodes):
        return LoadDecision(tuple(freed), overloaded)
    candidates = [node for node in free if readings[node.name].all_above(policy.overload_above)]
    candidates.sort(key=lambda node: _heaviest_first(node, readings))
    room = max(0, most - len(staying))
    return LoadDecision((*freed, *(TaintNode(node.name, Reason.OVERLOADED) for node in candidates[:room])))


def tainted_nodes(nodes: Sequence[Node]) -> list[str]:
    """Return the names of the nodes with cruise's taint."""
    return [node.name for node in nodes if OVERLOADED in node.taints]


def leftover_taints(nodes: Sequence[Node]) -> tuple[UntaintNode, ...]:
    """Return how cruise leaves for good: without a taint of its own on any node."""
    return tuple(UntaintNode(name, Reason.TAINTS_NO_MORE) for name in tainted_nodes(nodes))


def untaint_command(nodes: Sequence[str]) -> str:
    """Return how a person takes cruise's taint off nodes."""
    return f"kubectl taint nodes {' '.join(nodes)} {OVERLOADED.key}:{OVERLOADED.effect.value}-"


def has_successor(snapshot: Snapshot, namespace: str, process: str) -> bool:
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
    return 0.0 <= load <= LARGEST_PLAUSIBLE


def load_of(load1: float | None, node: Node) -> float | None:
    """Return load1 relative to the node's CPU, None without a reading or without CPU.

    What is kept from pods carries load as well, so the machine's capacity counts; where it is unknown, what is
    allocatable.
    """
    capacity = node.allocatable.cpu_millicores if node.cpu_capacity_millicores is None else node.cpu_capacity_millicores
    return None if load1 is None or capacity <= 0 else load1 * 1000 / capacity


def _why_freed(readings: LoadReadings, policy: Policy, now: datetime) -> Reason | None:
    """Return why a node loses its taint, None where it stays."""
    if policy.mode < Mode.FULL:
        return Reason.TAINTS_NO_MORE
    if readings.all_below(policy.overload_below):
        return Reason.LOAD_FELL
    return Reason.LOAD_UNKNOWN if now - readings.known_at >= LONGEST_WITHOUT_READING else None


def _heaviest_first(node: Node, readings: Mapping[str, LoadReadings]) -> tuple[float, str]:
    return -(readings[node.name].newest or 0.0), node.name

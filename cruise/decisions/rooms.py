"""What every node has left for touchable pods, once fixed pods and overheads are taken off."""

from dataclasses import dataclass, field
from operator import attrgetter

from cruise.decisions.scope import Scope, Touchable
from cruise.domain.actions import Hold
from cruise.domain.cluster import Node, Snapshot
from cruise.domain.requests import counted_requests
from cruise.domain.resources import Resources

_NAME = attrgetter("namespace", "name")


@dataclass(slots=True)
class Room:
    """What a node has left for touchable pods, added up pod by pod."""

    node: Node
    touchable: list[Touchable] = field(default_factory=list)
    own_cpu: list[int] = field(default_factory=list)  # what each touchable pod counts, without its overhead
    own_memory: list[int] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)
    counted_cpu: int = 0
    counted_memory: int = 0
    taken_cpu: int = 0
    taken_memory: int = 0

    @property
    def available(self) -> Resources:
        """What is left once fixed pods and overheads are taken off."""
        return self.node.allocatable - Resources(self.taken_cpu, self.taken_memory)

    @property
    def counted(self) -> Resources:
        """What kube-scheduler counts on the node now."""
        return Resources(self.counted_cpu, self.counted_memory)


def rooms_of(snapshot: Snapshot, scope: Scope, nodes: frozenset[str] | None) -> list[Room]:
    """Sort every bound pod to its node, as touchable or as fixed, and take what is fixed from the node's room."""
    rooms = {node.name: Room(node) for node in snapshot.nodes if nodes is None or node.name in nodes}
    # Sorted already where a snapshot was read; the order must not depend on whoever put one together.
    for pod in sorted(snapshot.pods, key=_NAME):
        room = rooms.get(pod.node) if pod.node is not None else None
        if room is None:
            continue
        counted = counted_requests(pod)
        cpu, memory = counted.cpu_millicores, counted.memory_bytes
        room.counted_cpu += cpu
        room.counted_memory += memory
        verdict = scope.of(pod)
        if isinstance(verdict, Hold):
            room.holds.append(verdict)
            room.taken_cpu += cpu
            room.taken_memory += memory
        else:
            over_cpu, over_memory = pod.overhead.cpu_millicores, pod.overhead.memory_bytes
            room.touchable.append(verdict)
            room.own_cpu.append(cpu - over_cpu)
            room.own_memory.append(memory - over_memory)
            room.taken_cpu += over_cpu if verdict.manages_cpu else cpu
            room.taken_memory += over_memory if verdict.manages_memory else memory
    return [rooms[name] for name in sorted(rooms)]

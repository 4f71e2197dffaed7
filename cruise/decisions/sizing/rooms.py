"""What every node has left for touchable pods, once fixed pods and overheads are taken off."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from cruise.decisions.guidance.eligibility import Eligibility, Touchable
from cruise.domain.actions import Hold
from cruise.domain.cluster import Node, Pod, Snapshot
from cruise.domain.requests import counted_requests
from cruise.domain.resources import Resources

_NAME = attrgetter("namespace", "name")


@dataclass(slots=True)
class Room:
    """What a node has left for touchable pods, added up pod by pod; `apart` are those that are left alone."""

    node: Node
    number: int
    holds: list[Hold] = field(default_factory=list)
    apart: list[Pod] = field(default_factory=list)
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

    def available_beside(self, pod: Pod) -> Resources:
        """Return what the other pods leave of the node for one of its pods."""
        return self.node.allocatable - self.counted + counted_requests(pod)


@dataclass(frozen=True, slots=True)
class Rooms:
    """The rooms of all nodes, sorted by name, and the touchable pods, sorted by namespace and name.

    For each of the pods: the index of its room, and what it counts now without its overhead.
    """

    rooms: Sequence[Room]
    touchable: Sequence[Touchable]
    room_of: Sequence[int]
    own_cpu: Sequence[int]
    own_memory: Sequence[int]


def rooms_of(snapshot: Snapshot, eligibility: Eligibility, nodes: frozenset[str] | None) -> Rooms:
    """Sort every bound pod to its node, as touchable or as fixed, and take what is fixed from the node's room."""
    wanted = sorted((node for node in snapshot.nodes if nodes is None or node.name in nodes), key=attrgetter("name"))
    rooms = {node.name: Room(node, number) for number, node in enumerate(wanted)}
    touchable: list[Touchable] = []
    room_of: list[int] = []
    own_cpu: list[int] = []
    own_memory: list[int] = []
    # Sorted already where a snapshot was read; the order must not depend on how one was put together.
    for pod in sorted(snapshot.pods, key=_NAME):
        room = rooms.get(pod.node) if pod.node is not None else None
        if room is None:
            continue
        counted = counted_requests(pod)
        cpu, memory = counted.cpu_millicores, counted.memory_bytes
        room.counted_cpu += cpu
        room.counted_memory += memory
        verdict = eligibility.of(pod)
        if isinstance(verdict, Hold):
            room.holds.append(verdict)
            room.apart.append(pod)
            room.taken_cpu += cpu
            room.taken_memory += memory
        else:
            over_cpu, over_memory = pod.overhead.cpu_millicores, pod.overhead.memory_bytes
            touchable.append(verdict)
            room_of.append(room.number)
            own_cpu.append(cpu - over_cpu)
            own_memory.append(memory - over_memory)
            room.taken_cpu += over_cpu if verdict.manages_cpu else cpu
            room.taken_memory += over_memory if verdict.manages_memory else memory
    return Rooms(list(rooms.values()), touchable, room_of, own_cpu, own_memory)

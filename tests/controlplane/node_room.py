"""The free capacity of a node, as a kubelet checks new pods and resizes against it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tests.controlplane.behaviour import ResizeBehaviour
from tests.controlplane.pod_record import Json, NodePodRecord
from tests.controlplane.pod_resources import count_requests

RESOURCES = ("cpu", "memory")
REFUSED = {
    ResizeBehaviour.DEFER: ("Deferred", "Node didn't have enough resource: memory"),
    ResizeBehaviour.INFEASIBLE: ("Infeasible", "Node didn't have enough capacity: memory"),
}
# Source: podResizesAdmitHandler of kubelet 1.36.
STATIC_CPU_MANAGER = "Infeasible", 'Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"'


@dataclass(frozen=True, slots=True)
class NodeFreeCapacity:
    """The allocatable capacity of a node."""

    cpu_millicores: int
    memory_bytes: int

    @property
    def amounts(self) -> tuple[int, int]:
        """Return CPU and memory, in the units of `counted`."""
        return self.cpu_millicores, self.memory_bytes


def rejects_new_pod(record: NodePodRecord, room: NodeFreeCapacity, others: Iterable[NodePodRecord]) -> str | None:
    """Return the reason with which a new pod is rejected, such as OutOfcpu."""
    asked, used = count_requests(record.pod["spec"], record.allocated), _used(others)
    short = [name for name, *amounts in zip(RESOURCES, asked, used, room.amounts, strict=True) if not _fits(*amounts)]
    return f"OutOf{short[0]}" if short else None


def rejects_resize(
    record: NodePodRecord,
    wanted: Mapping[str, Json],
    resizing: ResizeBehaviour,
    room: NodeFreeCapacity,
    others: Iterable[NodePodRecord],
) -> tuple[str, str] | None:
    """Return the reason and message of a deferred or infeasible resize; None if it may be allocated."""
    spec = record.pod["spec"]
    if wanted == record.allocated:
        return None
    if resizing is ResizeBehaviour.STATIC_CPU_MANAGER:
        guaranteed = record.pod["status"].get("qosClass") == "Guaranteed"
        if guaranteed and count_requests(spec, wanted)[0] != count_requests(spec, record.allocated)[0]:
            return STATIC_CPU_MANAGER
    elif resizing is not ResizeBehaviour.JUDGE:
        return REFUSED.get(resizing)
    asked, held, used = count_requests(spec, wanted), count_requests(spec, record.allocated), _used(others)
    figures = list(zip(RESOURCES, asked, held, used, room.amounts, strict=True))
    for name, now, _, _, capacity in figures:
        if now > capacity:
            told = f"{name}, requested: {now}, capacity: {capacity}"
            return "Infeasible", f"Node didn't have enough capacity: {told}"
    for name, now, before, taken, capacity in figures:
        # A resize that increases nothing needs no capacity.
        if now > before and not _fits(now, taken, capacity):
            told = f"{name}, requested: {now}, used: {taken}, capacity: {capacity}"
            return "Deferred", f"Node didn't have enough resource: {told}"
    return None


def _used(records: Iterable[NodePodRecord]) -> tuple[int, int]:
    taken = [count_requests(one.pod["spec"], one.allocated) for one in records if not one.terminal]
    return sum(cpu for cpu, _ in taken), sum(memory for _, memory in taken)


def _fits(asked: int, used: int, capacity: int) -> bool:
    return used + asked <= capacity

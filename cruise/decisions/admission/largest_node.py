"""New pods that no known node could hold: cut to the largest one, but not below what their template asks.

The largest node may be gone for an hour, or be ordered for this very pod: only what cruise itself adds is cut.
ADR 0038 says why that holds where nodes are ordered for pods as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cruise.decisions.admission.node_index import NodeIndex
from cruise.domain.actions import ContainerTarget
from cruise.domain.cluster import Pod
from cruise.domain.requests import counted_requests
from cruise.domain.resources import MEBIBYTE, NO_RESOURCES, Amounts, ResourceName, Resources
from cruise.domain.revisions import originals_of
from cruise.domain.sizes import sized_containers

_UNITS = {ResourceName.CPU: 1, ResourceName.MEMORY: MEBIBYTE}


@dataclass(frozen=True, slots=True)
class Terms:
    """What the cut goes by.

    With `keeps_template` no request falls below what the pod asks by itself, or below its target where that is less.
    `reserved` is what the DaemonSets' pods take of every node. Where `nodes_come` for pods and no known node could run
    this one, nothing is added to what it asks; else such a pod is left as it is.
    """

    keeps_template: bool = True
    reserved: Resources = NO_RESOURCES
    nodes_come: bool = False


def within_largest_node(
    pod: Pod,
    targets: Sequence[ContainerTarget],
    managed: frozenset[ResourceName],
    nodes: NodeIndex,
    terms: Terms,
) -> list[ContainerTarget]:
    """Cut requests to the largest node that the pod could run on, so that it does not stay pending for good."""
    need = counted_requests(pod, sized_containers(pod, targets)) + terms.reserved
    rooms = []
    for room in nodes.rooms(pod):
        # Mostly the first does.
        if need.fits_in(room):
            return list(targets)
        rooms.append(room)
    if not rooms and not terms.nodes_come:
        return list(targets)
    largest = max(
        rooms, key=lambda room: (_share(room, need), room.memory_bytes, room.cpu_millicores), default=NO_RESOURCES
    )
    room = largest - terms.reserved - pod.overhead
    originals = originals_of(pod)
    submitted = [originals.get(one.name, (one.requests,))[0] for one in pod.sized_containers]
    cuts = {
        resource: _cut(
            [target.requests.resources.of(resource) for target in targets],
            [one.resources.of(resource) if terms.keeps_template else 0 for one in submitted],
            room.of(resource),
            _UNITS[resource],
        )
        if resource in managed
        else [target.requests.of(resource) for target in targets]
        for resource in ResourceName
    }
    pairs = zip(cuts[ResourceName.CPU], cuts[ResourceName.MEMORY], strict=True)
    return [replace(target, requests=Amounts(*pair)) for target, pair in zip(targets, pairs, strict=True)]


def _cut(wanted: Sequence[int], asked: Sequence[int], room: int, unit: int) -> list[int]:
    """Share out what the room has beyond what is asked, in proportion to what is wanted beyond it."""
    if sum(wanted) <= room:
        return list(wanted)
    floors = [min(pair) for pair in zip(wanted, asked, strict=True)]
    spare, more = max(0, room - sum(floors)), sum(wanted) - sum(floors)
    return [
        max(unit, floor, (floor + (one - floor) * spare // max(1, more)) // unit * unit)
        for one, floor in zip(wanted, floors, strict=True)
    ]


def _share(room: Resources, need: Resources) -> float:
    """Return how much of the need a node holds, by its scarcer resource."""
    return min(
        1.0,
        room.cpu_millicores / max(1, need.cpu_millicores),
        room.memory_bytes / max(1, need.memory_bytes),
    )

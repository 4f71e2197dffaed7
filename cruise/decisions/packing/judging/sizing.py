"""Whether the sizes that a plan asks for may be written, and whether they hold what the pods need."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from cruise.decisions.guidance.limit_ranges import refuses_resize
from cruise.decisions.guidance.quotas import breaks_quota
from cruise.decisions.scheduling.board import Board, PodKey, key_of
from cruise.domain.actions import ContainerTarget
from cruise.domain.cluster import Pod, Snapshot
from cruise.domain.qos import qos_class
from cruise.domain.requests import counted_requests
from cruise.domain.resources import NO_RESOURCES, ResourceName, Resources
from cruise.domain.sizes import sized, with_sizes


@dataclass(frozen=True, slots=True)
class Demand:
    """What a pod needs on its node: `base` always, overhead included, and `headroom` shared with the pods there."""

    base: Resources
    headroom: Resources


Demands = Mapping[PodKey, Demand]


def find_wrong_sizes(snapshot: Snapshot, pod: Pod, targets: Sequence[ContainerTarget]) -> Iterator[str]:
    """Say what the API server would refuse about a pod's sizes, or what cruise leaves alone."""
    roles = {container.name: container.role for container in pod.containers}
    for target in targets:
        if roles.get(target.container) is not target.role:
            yield f"has no {target.role} container {target.container}"
        for one in ResourceName:
            request, limit = target.requests.of(one), target.limits.of(one)
            if request is not None and limit is not None and request > limit:
                yield f"would request more {one} than the limit of container {target.container}"
    if len({target.container for target in targets}) < len(targets):
        yield "has a container sized twice"
    if pod.mirror or pod.windows or pod.pod_requests is not None or pod.pod_limits is not None:
        yield "cannot be resized"
    if qos_class(with_sizes(pod, targets)) is not pod.qos:
        yield "would change its QoS class"
    if refuses_resize(pod, targets, snapshot.limit_ranges.get(pod.namespace, ())):
        yield "would be outside its namespace's LimitRange"
    if breaks_quota(pod, targets, snapshot.quotas.get(pod.namespace, ())):
        yield "would exceed its namespace's quota"


def find_growth(pod: Pod, targets: Sequence[ContainerTarget]) -> Iterator[str]:
    """Say which resource a resize before all evictions grows: there is room for that only afterwards."""
    before, after = counted_requests(pod), counted_requests(sized(pod, targets))
    if after.cpu_millicores > before.cpu_millicores:
        yield f"grows from {before.cpu_millicores} m to {after.cpu_millicores} m"
    if after.memory_bytes > before.memory_bytes:
        yield f"grows from {before.memory_bytes} to {after.memory_bytes} bytes"


def find_removals(pod: Pod, targets: Sequence[ContainerTarget]) -> Iterator[str]:
    """Say which stated values a resize would take back: the API server keeps whatever was once stated."""
    stated = {container.name: container for container in pod.containers}
    for target in targets:
        container = stated.get(target.container)
        if container is None:
            continue
        for kind, before, after in (
            ("request", container.requests, target.requests),
            ("limit", container.limits, target.limits),
        ):
            for one in ResourceName:
                if before.of(one) is not None and after.of(one) is None:
                    yield f"would lose the {one} {kind} of container {target.container}"


def find_lack_of_headroom(board: Board, node_name: str, arrived: Sequence[Pod], demands: Demands) -> Iterator[str]:
    """Say whether the pods on a node need more than it has of what those that arrived there ask for.

    They need all bases, and the largest headroom once.
    """
    here = [_demand_of(pod, demands) for pod in board.pods_on(node_name)]
    new = [_demand_of(pod, demands) for pod in arrived]
    base = sum((demand.base for demand in here), NO_RESOURCES)
    headroom = reduce(Resources.at_least, (demand.headroom for demand in here), NO_RESOURCES)
    wanted = sum((demand.base + demand.headroom for demand in new), NO_RESOURCES)
    room, need = board.nodes[node_name].allocatable, base + headroom
    for one, unit in ((ResourceName.CPU, "m"), (ResourceName.MEMORY, "bytes")):
        if wanted.of(one) and need.of(one) > room.of(one):
            yield (
                f"node {node_name} offers {room.of(one)} {unit}, bases of {base.of(one)} {unit} and a headroom of "
                f"{headroom.of(one)} {unit} are more"
            )


def _demand_of(pod: Pod, demands: Demands) -> Demand:
    return demands.get(key_of(pod)) or Demand(counted_requests(pod), NO_RESOURCES)

"""What pods count before a packing plan and after it."""

from collections.abc import Mapping, Sequence

from cruise.decisions.sizing.outlook import counted_when_sized
from cruise.domain.actions import ContainerTarget
from cruise.domain.cluster import Pod
from cruise.domain.packing import Arrival, Proposal
from cruise.domain.requests import counted_container, counted_requests
from cruise.domain.resources import Resources

Pods = Mapping[tuple[str, str], Pod]


def sizes_after(proposal: Proposal, pods: Pods) -> dict[tuple[str, str], tuple[str, Resources]]:
    """Return for every pod that gets another size the node where it then is, and what will count for it.

    Keys and `pods` are by (namespace, name).
    """
    found = {}
    for resize in proposal.resizes:
        key = resize.key
        found[key] = (resize.node or "", counted_as(pods[key], resize.containers))
    for arrival in (*proposal.placed, *proposal.moves):
        if arrival.containers:
            found[arrival.key] = (arrival.target, size_on_arrival(arrival, pods))
    return found


def size_on_arrival(arrival: Arrival, pods: Pods) -> Resources:
    """Return what counts for a pod once it runs on its target."""
    pod = pods[arrival.key]
    return counted_as(pod, arrival.containers) if arrival.containers else counted_requests(pod)


def counted_as(pod: Pod, targets: Sequence[ContainerTarget]) -> Resources:
    """Return what counts for a pod whose containers ask for these values."""
    containers = {container.name: container for container in pod.containers}
    sizes = {}
    for target in targets:
        now, wanted = counted_container(containers[target.container]), target.requests
        sizes[target.container] = Resources(
            now.cpu_millicores if wanted.cpu_millicores is None else wanted.cpu_millicores,
            now.memory_bytes if wanted.memory_bytes is None else wanted.memory_bytes,
        )
    return counted_when_sized(pod, sizes)

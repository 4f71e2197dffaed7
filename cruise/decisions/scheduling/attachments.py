"""Which volumes are attached to nodes, as kube-scheduler's NodeVolumeLimits counts them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from cruise.domain.cluster import Pod, Snapshot
from cruise.domain.colocation import AttachedVolume, Claim, Surroundings


def attached_for(claims: Iterable[Claim | None]) -> set[AttachedVolume]:
    """Return what a pod with these claims has attached to its node."""
    return {
        (claim.driver, claim.volume or f"{claim.namespace}/{claim.name}")
        for claim in claims
        if claim is not None and claim.driver is not None
    }


def attached_for_running(surroundings: Surroundings, pod: Pod) -> set[AttachedVolume]:
    """Return what a pod has attached to the node that it is on."""
    return attached_for(surroundings.claims.get((pod.namespace, name)) for name in pod.constraints.claims)


def left_attached(snapshot: Snapshot) -> Mapping[str, frozenset[AttachedVolume]]:
    """Return by node the volumes that VolumeAttachments still name and that no pod there uses any more.

    A volume that a pod there uses is detached once that pod is gone, so it counts with the pod alone.
    """
    attached = snapshot.surroundings.attached
    if not attached:
        return {}
    used: defaultdict[str, set[AttachedVolume]] = defaultdict(set)
    for pod in snapshot.pods:
        if pod.constraints.claims and pod.node is not None and pod.node in attached and not pod.terminal:
            used[pod.node] |= attached_for_running(snapshot.surroundings, pod)
    return {node: left for node, volumes in attached.items() if (left := volumes - used[node])}

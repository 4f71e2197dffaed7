"""What has gone on since earlier passes, in the columns of this one; and what this one adds to it."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

import numpy as np

from cruise.decisions.eviction.ranking import EarlierPasses
from cruise.decisions.sizing.damping import WriteDamping, get_tolerances, is_within_write_budget
from cruise.decisions.sizing.node_columns import NodePodColumns
from cruise.decisions.sizing.node_sizes import SizingResult
from cruise.domain.policy import Policy
from cruise.domain.resources import BoolArray, ResourceName


def build_write_damping(
    columns: NodePodColumns, earlier: EarlierPasses, policy: Policy, now: datetime
) -> WriteDamping | None:
    """Return what has gone on for long enough by now, None where every change is written.

    Without earlier passes what goes on now always has.
    """
    if not policy.rules.write_damping:
        return None
    above = {
        one: np.full(len(columns.nodes), earlier.over_requested_since is None, dtype=np.bool_) for one in ResourceName
    }
    below = {
        one: np.full(len(columns.node_of), earlier.under_requested_since is None, dtype=np.bool_)
        for one in ResourceName
    }
    if earlier.over_requested_since:
        nodes = {node.name: at for at, node in enumerate(columns.nodes)}
        for (name, resource), since in earlier.over_requested_since.items():
            if name in nodes and now - since >= policy.over_requested_stabilization:
                above[resource][nodes[name]] = True
    long = [
        key
        for key, since in (earlier.under_requested_since or {}).items()
        if now - since >= policy.under_requested_stabilization
    ]
    resized = [key for key, at in earlier.resized.items() if now - at < policy.effective_shrink_cooldown]
    writes = [write.uid for write in earlier.recent_resizes if now - write.at < timedelta(days=1)]
    places = {pod.pod.uid: at for at, pod in enumerate(columns.candidates.pods)} if long or resized or writes else {}
    for uid, container, resource in long:
        if uid in places:
            _flag(columns, below[resource], places[uid], container)
    of_pods = np.zeros(len(columns.candidates.pods), dtype=np.int64)
    np.add.at(of_pods, [places[uid] for uid in writes if uid in places], 1)
    within = is_within_write_budget(of_pods, len(writes), policy)
    rested = {resource: within.copy() for resource in ResourceName}
    for uid, resource in resized:
        if uid in places:
            rested[resource][places[uid]] = False
    return WriteDamping(get_tolerances(policy), above, below, rested)


def _flag(columns: NodePodColumns, flags: BoolArray, pod: int, container: str) -> None:
    first = int(columns.candidates.first_container[pod])
    for offset, one in enumerate(columns.candidates.pods[pod].sized):
        if one.name == container:
            flags[first + offset] = True


def find_over_requested_resources(sized: SizingResult, node: int) -> frozenset[ResourceName]:
    """Return the resources whose sum on a node lies above its band."""
    if sized.damped_sizes is None:
        return frozenset()
    return frozenset(one for one, above in sized.damped_sizes.over_requested.items() if above[node])


def find_under_requested_containers(sized: SizingResult) -> Mapping[int, list[tuple[str, str, ResourceName]]]:
    """Return by node the containers whose bases are above their requests: the pod's uid, its name, and the resource."""
    found: dict[int, list[tuple[str, str, ResourceName]]] = {}
    for node, uid, container, resource in _below(sized):
        found.setdefault(node, []).append((uid, container, resource))
    return found


def _below(sized: SizingResult) -> Iterator[tuple[int, str, str, ResourceName]]:
    if sized.damped_sizes is None:
        return
    columns = sized.columns
    candidates = columns.candidates
    for resource, flags in sized.damped_sizes.under_requested.items():
        places = np.flatnonzero(flags)
        pods, nodes = candidates.pod_of[places], columns.node_of[places]
        offsets = places - candidates.first_container[pods]
        for pod, node, offset in zip(pods.tolist(), nodes.tolist(), offsets.tolist(), strict=True):
            touchable = candidates.pods[pod]
            yield node, touchable.pod.uid, touchable.sized[offset].name, resource

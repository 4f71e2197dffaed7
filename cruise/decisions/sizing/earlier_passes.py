"""Applies the records of earlier passes to the columns of this one, and reads off what this pass adds to them."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

import numpy as np

from cruise.decisions.eviction.ranking import EarlierPassResults
from cruise.decisions.sizing.headroom import HeadroomModel
from cruise.decisions.sizing.node_columns import NodePodColumns
from cruise.decisions.sizing.node_sizes import SizingResult
from cruise.decisions.sizing.write_tolerances import (
    WriteDamping,
    get_over_request_tolerances,
    get_under_request_tolerances,
    is_within_write_budget,
)
from cruise.domain.arrays import BoolArray, Int64Array
from cruise.domain.original_resources import NO_REVISIONS, WorkloadRevisions
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName


def build_write_damping(
    columns: NodePodColumns,
    earlier: EarlierPassResults,
    headroom: HeadroomModel,
    policy: Policy,
    now: datetime,
    revisions: WorkloadRevisions | None,
) -> WriteDamping | None:
    """Return which conditions have lasted long enough; None if write damping is off.

    Without earlier passes every present condition counts as lasting. `revisions` tell what pods were created with.
    """
    if not policy.rules.write_damping:
        return None
    over_requested = {
        one: np.full(len(columns.nodes), earlier.over_requested_since is None, dtype=np.bool_) for one in ResourceName
    }
    under_requested = {
        one: np.full(len(columns.node_of_container), earlier.under_requested_since is None, dtype=np.bool_)
        for one in ResourceName
    }
    if earlier.over_requested_since:
        nodes = {node.name: at for at, node in enumerate(columns.nodes)}
        for (name, resource), since in earlier.over_requested_since.items():
            if name in nodes and now - since >= policy.over_requested_stabilization:
                over_requested[resource][nodes[name]] = True
    lasting = [
        key
        for key, since in (earlier.under_requested_since or {}).items()
        if now - since >= policy.under_requested_stabilization
    ]
    resized = [key for key, at in earlier.resized.items() if now - at < policy.effective_shrink_cooldown]
    writes = [write for write in earlier.recent_resizes if now - write.at < timedelta(days=1)]
    pod_index = (
        {pod.pod.uid: at for at, pod in enumerate(columns.candidates.pods)} if lasting or resized or writes else {}
    )
    for uid, container, resource in lasting:
        if uid in pod_index:
            _flag(columns, under_requested[resource], pod_index[uid], container)
    writes_by_pod = np.zeros(len(columns.candidates.pods), dtype=np.int64)
    np.add.at(writes_by_pod, [pod_index[write.uid] for write in writes if write.uid in pod_index], 1)
    within = is_within_write_budget(writes_by_pod, sum(write.number for write in writes), policy)
    past_cooldown = {resource: within.copy() for resource in ResourceName}
    for uid, resource in resized:
        if uid in pod_index:
            past_cooldown[resource][pod_index[uid]] = False
    pods = columns.candidates.pods

    def flag_unsized(indices: Int64Array) -> BoolArray:
        known = NO_REVISIONS if revisions is None else revisions
        return np.array([known.is_unsized(pods[at].pod) for at in indices.tolist()], dtype=np.bool_)

    return WriteDamping(
        get_over_request_tolerances(policy),
        get_under_request_tolerances(headroom),
        over_requested,
        under_requested,
        past_cooldown,
        flag_unsized,
    )


def _flag(columns: NodePodColumns, flags: BoolArray, pod: int, container: str) -> None:
    first = int(columns.candidates.first_container[pod])
    for offset, one in enumerate(columns.candidates.pods[pod].sized):
        if one.name == container:
            flags[first + offset] = True


def find_over_requested_resources(sized: SizingResult, node: int) -> frozenset[ResourceName]:
    """Return the resources of which a node is over-requested."""
    if sized.damped_sizes is None:
        return frozenset()
    return frozenset(one for one, flags in sized.damped_sizes.over_requested.items() if flags[node])


def find_under_requested_containers(sized: SizingResult) -> Mapping[int, list[tuple[str, str, ResourceName]]]:
    """Return the under-requested containers by node: the pod's uid, the container's name, and the resource."""
    by_node: dict[int, list[tuple[str, str, ResourceName]]] = {}
    for node, uid, container, resource in _iterate_under_requested(sized):
        by_node.setdefault(node, []).append((uid, container, resource))
    return by_node


def _iterate_under_requested(sized: SizingResult) -> Iterator[tuple[int, str, str, ResourceName]]:
    if sized.damped_sizes is None:
        return
    columns = sized.columns
    candidates = columns.candidates
    for resource, flags in sized.damped_sizes.under_requested.items():
        indices = np.flatnonzero(flags)
        pods, nodes = candidates.pod_of_container[indices], columns.node_of_container[indices]
        offsets = indices - candidates.first_container[pods]
        for pod, node, offset in zip(pods.tolist(), nodes.tolist(), offsets.tolist(), strict=True):
            resizable = candidates.pods[pod]
            yield node, resizable.pod.uid, resizable.sized[offset].name, resource

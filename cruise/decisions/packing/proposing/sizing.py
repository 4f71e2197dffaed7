"""What pods ask for once a plan is carried out, and which of them are resized for it: as few as can be."""

from collections.abc import Container, Sequence
from dataclasses import dataclass, field

import numpy as np

from cruise.decisions.packing.building.built import Built
from cruise.decisions.packing.proposing.hypothesis import Sized, SizedNode, decide_sizes
from cruise.decisions.packing.proposing.matching import Changes
from cruise.decisions.packing.proposing.shrinking import Candidate, fewest
from cruise.domain.actions import ContainerTarget, Reason, ResizePod
from cruise.domain.arrays import Int64Array
from cruise.domain.requests import counted_requests
from cruise.domain.resources import NO_RESOURCES, Resources
from cruise.domain.sizes import spec_targets


@dataclass(frozen=True, slots=True, eq=False)
class Sizing:
    """`now` and `there` [pod, resource]: what a pod counts for where it is and, once it arrives, on its target.

    `resizes` are shrinks, by pod; `containers` is what pods ask for that are created anew, where that is something
    else. Rows of `now` hold for the nodes at which something arrives.
    """

    now: Int64Array
    there: Int64Array
    resizes: dict[int, ResizePod] = field(default_factory=dict)
    containers: dict[int, tuple[ContainerTarget, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NoRoom:
    """A node that cannot hold what a packing puts there; `unsizable` are the uids of the pods in the way."""

    node: str
    unsizable: frozenset[str]


def as_they_are(built: Built) -> Sizing:
    """Take all pods at the size that the problem has."""
    amounts = built.problem.demands[built.problem.pod_class]
    return Sizing(amounts, amounts)


def decide_sizing(built: Built, changes: Changes) -> Sizing | NoRoom:
    """Size the nodes at which something arrives as the node pass would, and shrink there no more pods than needed."""
    target, arriving = changes.pod_node, frozenset((*changes.placed, *changes.moved))
    on_node: dict[int, list[int]] = {int(target[pod]): [] for pod in sorted(arriving)}
    involved = np.isin(target, list(on_node))
    for pod in np.flatnonzero(involved).tolist():
        on_node[int(target[pod])].append(pod)
    now = built.problem.demands[built.problem.pod_class]
    # A pod that leaves such a node counts there until then.
    for pod in np.flatnonzero(np.isin(built.problem.pod_node, list(on_node)) | involved).tolist():
        now[pod, :2] = _amounts(counted_requests(built.pods[pod]))
    sizing = Sizing(now, now.copy())
    sized = decide_sizes(built, on_node, arriving)
    for node, pods in sorted(on_node.items()):
        unsizable = _size(built, sizing, sized[node], node, pods, arriving)
        if unsizable is not None:
            return NoRoom(built.nodes[node].name, unsizable)
    return sizing


def _size(
    built: Built, sizing: Sizing, sized: SizedNode, node: int, pods: Sequence[int], arriving: Container[int]
) -> frozenset[str] | None:
    """Decide which pods are resized on a node; return those in the way where it cannot hold them all."""
    shrinks: dict[int, Sized] = {}
    candidates = []
    for pod in pods:
        one = built.pods[pod]
        if pod in arriving and one.node is not None:
            anew = sized.created(one)
            if anew is not None:
                if anew.targets != spec_targets(one):
                    sizing.containers[pod] = anew.targets
                sizing.there[pod, :2] = _amounts(anew.counts)
            continue
        smaller = sized.shrunk(one)
        if smaller is not None:
            shrinks[pod] = smaller
            candidates.append(Candidate(pod, *_amounts(counted_requests(one) - smaller.counts)))
    # A node that is over its CPU already still takes a pod that asks for none.
    wanted = sizing.there[[pod for pod in pods if pod in arriving], :2].any(axis=0)
    excess = np.where(wanted, sizing.there[pods, :2].sum(axis=0) - built.problem.capacities[node, :2], 0)
    chosen = fewest(candidates, int(excess[0]), int(excess[1]))
    if chosen is None:
        return _in_the_way(built, sizing, [pod for pod in pods if pod not in shrinks])
    for pod in chosen:
        one, smaller = built.pods[pod], shrinks[pod]
        sizing.now[pod, :2] = sizing.there[pod, :2] = _amounts(smaller.counts)
        sizing.resizes[pod] = ResizePod(
            one.namespace,
            one.name,
            one.uid,
            one.node,
            one.workload,
            smaller.targets,
            NO_RESOURCES,
            Reason.RIGHTSIZED,
        )
    return None


def _in_the_way(built: Built, sizing: Sizing, pods: Sequence[int]) -> frozenset[str]:
    """Return those of the pods that the packing took to be smaller than they can be made."""
    taken = built.problem.demands[built.problem.pod_class[pods]]
    larger = np.asarray((sizing.there[pods, :2] > taken[:, :2]).any(axis=1)).tolist()
    return frozenset(
        built.pods[pod].uid
        for pod, is_larger in zip(pods, larger, strict=True)
        if is_larger and pod not in sizing.containers
    )


def _amounts(counted: Resources) -> tuple[int, int]:
    return counted.cpu_millicores, counted.memory_bytes

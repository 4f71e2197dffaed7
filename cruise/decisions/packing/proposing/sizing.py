"""What pods ask for once a plan is carried out, and which of them are resized for it: as few as can be."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cruise.decisions.packing.building.built import Built
from cruise.decisions.packing.proposing.hypothesis import SizedNode, decide_sizes
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
    resizes: Mapping[int, ResizePod] = field(default_factory=dict)
    containers: Mapping[int, tuple[ContainerTarget, ...]] = field(default_factory=dict)


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
    sizer = _Sizer(built, changes)
    for node, pods in sizer.on_nodes().items():
        unsizable = sizer.size(node, pods)
        if unsizable is not None:
            return NoRoom(built.nodes[node].name, unsizable)
    return sizer.sizing()


class _Sizer:
    def __init__(self, built: Built, changes: Changes) -> None:
        self._built = built
        self._target = changes.pod_node
        self._arriving = frozenset((*changes.placed, *changes.moved))
        self._now = built.problem.demands[built.problem.pod_class]
        self._there = self._now.copy()
        self._resizes: dict[int, ResizePod] = {}
        self._containers: dict[int, tuple[ContainerTarget, ...]] = {}
        self._sized: Mapping[int, SizedNode] = {}

    def on_nodes(self) -> dict[int, list[int]]:
        """Return for each node with arrivals the pods there in the end, and decide all sizes there at once."""
        found: dict[int, list[int]] = {int(self._target[pod]): [] for pod in sorted(self._arriving)}
        involved = np.isin(self._target, list(found))
        for pod in np.flatnonzero(involved).tolist():
            found[int(self._target[pod])].append(pod)
        # A pod that leaves such a node counts there until then.
        for pod in np.flatnonzero(np.isin(self._built.problem.pod_node, list(found)) | involved).tolist():
            self._count(self._now, pod, counted_requests(self._built.pods[pod]))
            self._count(self._there, pod, counted_requests(self._built.pods[pod]))
        self._sized = decide_sizes(self._built, found, self._arriving)
        return dict(sorted(found.items()))

    def size(self, node: int, pods: Sequence[int]) -> frozenset[str] | None:
        """Decide which pods are resized on a node; return those in the way where it cannot hold them all."""
        sized, built = self._sized[node], self._built
        candidates = []
        for pod in pods:
            one = built.pods[pod]
            if pod in self._arriving and one.node is not None:
                anew = sized.created(one)
                if anew is not None:
                    if anew.targets != spec_targets(one):
                        self._containers[pod] = anew.targets
                    self._count(self._there, pod, anew.counts)
                continue
            smaller = sized.shrunk(one)
            if smaller is not None:
                gain = counted_requests(one) - smaller.counts
                candidates.append(Candidate(pod, gain.cpu_millicores, gain.memory_bytes))
        # A node that is over its CPU already still takes a pod that asks for none.
        wanted = self._there[[pod for pod in pods if pod in self._arriving], :2].any(axis=0)
        excess = np.where(wanted, self._there[pods, :2].sum(axis=0) - built.problem.capacities[node, :2], 0)
        chosen = fewest(candidates, int(excess[0]), int(excess[1]))
        if chosen is None:
            return self._in_the_way(pods, {candidate.pod for candidate in candidates})
        for pod in chosen:
            self._shrink(pod, sized)
        return None

    def sizing(self) -> Sizing:
        """Return what was decided."""
        return Sizing(self._now, self._there, self._resizes, self._containers)

    def _shrink(self, pod: int, sized: SizedNode) -> None:
        one = self._built.pods[pod]
        smaller = sized.shrunk(one)
        assert smaller is not None
        self._count(self._now, pod, smaller.counts)
        self._count(self._there, pod, smaller.counts)
        self._resizes[pod] = ResizePod(
            one.namespace,
            one.name,
            one.uid,
            one.node,
            one.workload,
            smaller.targets,
            NO_RESOURCES,
            Reason.RIGHTSIZED,
        )

    def _in_the_way(self, pods: Sequence[int], sizable: set[int]) -> frozenset[str]:
        """Return those that the packing took to be smaller than they can be made."""
        problem = self._built.problem
        taken = problem.demands[problem.pod_class[pods]]
        larger = np.asarray((self._there[pods, :2] > taken[:, :2]).any(axis=1)).tolist()
        return frozenset(
            self._built.pods[pod].uid
            for pod, is_larger in zip(pods, larger, strict=True)
            if is_larger and pod not in sizable and pod not in self._containers
        )

    @staticmethod
    def _count(amounts: Int64Array, pod: int, counted: Resources) -> None:
        amounts[pod, 0], amounts[pod, 1] = counted.cpu_millicores, counted.memory_bytes

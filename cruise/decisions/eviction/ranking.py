"""Chooses which pods to evict from a node that cannot hold all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, Protocol

from cruise.domain.policy import EvictionRanking
from cruise.domain.reasons import ReasonDetailCode
from cruise.domain.resources import ResourceName, Resources


@dataclass(frozen=True, slots=True)
class EvictionCandidate:
    """A pod of a node under pressure: its base, its largest headroom, and for which resources it may be evicted.

    `evictable_for` is empty for a pod that must stay.
    """

    namespace: str
    name: str
    ranking: EvictionRanking
    base: Resources
    headroom: Resources
    evictable_for: frozenset[ResourceName]
    priority: int = 0


@dataclass(frozen=True, slots=True)
class EvictionMark:
    """A pod marked for eviction, by its index among the candidates, and the resource that does not fit."""

    index: int
    resource: ResourceName


class EvictionDestinations(Protocol):
    """Finds nodes for the replacements of a node's pods; a pod is its index among the candidates."""

    def evict(self, index: int) -> bool:
        """Reserve a node for the pod's replacement; return False if no node can take it."""

    def undo_eviction(self, index: int) -> None:
        """Release the node that was reserved: the pod stays."""


class _UnlimitedDestinations:
    """Every replacement finds a node."""

    def evict(self, index: int) -> bool:
        return True

    def undo_eviction(self, index: int) -> None:
        return None


@dataclass(frozen=True, slots=True)
class EvictionDecisionOptions:
    """What limits the evictions from a node.

    Only shortages of `resources` are relieved. With `check_each_resource_alone`, pods are still evicted for one
    resource if the other cannot fit. `lowest_other_priority` is the lowest priority of the pods that use the resource
    and are not among the candidates.
    """

    resources: frozenset[ResourceName] = frozenset(ResourceName)
    check_each_resource_alone: bool = True
    lowest_other_priority: Mapping[ResourceName, int] = field(default_factory=dict)
    destinations: EvictionDestinations = field(default_factory=_UnlimitedDestinations)


DEFAULT_EVICTION_OPTIONS = EvictionDecisionOptions()


@dataclass(frozen=True, slots=True)
class EvictionDecision:
    """The pods to evict, in marking order, and for other candidates why they stay, by index.

    `over_capacity` are the resources that still do not fit, `does_not_fit` those that no allowed eviction would make
    fit.
    """

    marked: tuple[EvictionMark, ...] = ()
    over_capacity: frozenset[ResourceName] = frozenset()
    does_not_fit: frozenset[ResourceName] = frozenset()
    not_evicted: Mapping[int, ReasonDetailCode] = field(default_factory=dict)


def rank_for_eviction(candidates: Sequence[EvictionCandidate], resource: ResourceName) -> list[int]:
    """Return the indices of the pods that may be evicted for a resource, in eviction order.

    The order is by ranking, priority, largest headroom of the resource (descending), namespace and name.
    """

    def order(index: int) -> tuple[int, int, int, str, str]:
        one = candidates[index]
        return (one.ranking, one.priority, -one.headroom.get(resource), one.namespace, one.name)

    return sorted((i for i, c in enumerate(candidates) if resource in c.evictable_for), key=order)


def decide_evictions(
    candidates: Sequence[EvictionCandidate],
    available: Resources,
    options: EvictionDecisionOptions = DEFAULT_EVICTION_OPTIONS,
) -> EvictionDecision:
    """Mark pods until the rest fits, memory first, then unmark in reverse order every pod that fits after all.

    No pod is evicted for a resource that would not fit even without every candidate. A pod is evicted only after all
    pods of lower priority, and none of lower priority is unmarked while it is marked.
    """
    node = _NodeContention(candidates, available, options)
    unfit = set()
    for resource in (ResourceName.MEMORY, ResourceName.CPU):
        if resource in options.resources and not node.relieve(resource):
            unfit.add(resource)
    if unfit and not options.check_each_resource_alone:
        node.stop()
        unfit = set(ResourceName)
    # Evictions for CPU may have freed enough memory.
    unfit = {resource for resource in unfit if not options.check_each_resource_alone or not node.fits(resource)}
    node.undo_unneeded(options.resources - unfit)
    over = frozenset(resource for resource in ResourceName if not node.fits(resource)) | unfit
    return EvictionDecision(tuple(node.marked), over, frozenset(unfit), node.not_evicted)


class _NodeContention:
    """The candidates of one node while some of them are marked."""

    def __init__(
        self, candidates: Sequence[EvictionCandidate], available: Resources, options: EvictionDecisionOptions
    ) -> None:
        self._candidates = candidates
        self._available = available
        self._options = options
        self._staying = [True] * len(candidates)
        self._needs = {resource: _ResourceNeed(candidates, self._staying, resource) for resource in ResourceName}
        self.marked: list[EvictionMark] = []
        self.not_evicted: dict[int, ReasonDetailCode] = {}

    def relieve(self, resource: ResourceName) -> bool:
        """Mark pods until a resource fits; if no candidate is left, undo the marks and return False."""
        before = len(self.marked)
        queue = rank_for_eviction(self._candidates, resource)
        while not self.fits(resource):
            index = self._next(queue, resource)
            if index is None:
                for mark in reversed(self.marked[before:]):
                    self._return(mark.index)
                del self.marked[before:]
                return False
            self._remove(index)
            self.marked.append(EvictionMark(index, resource))
        return True

    def stop(self) -> None:
        """Undo all marks."""
        for mark in reversed(self.marked):
            self._return(mark.index)
        self.marked.clear()

    def undo_unneeded(self, relieved: frozenset[ResourceName]) -> None:
        """Undo, last marked first, every mark without which the relieved resources still fit."""
        for mark in self.marked[::-1]:
            own = self._candidates[mark.index].priority
            if any(self._candidates[other.index].priority > own for other in self.marked):
                continue
            self._count(mark.index)
            if all(self.fits(resource) for resource in relieved):
                self._options.destinations.undo_eviction(mark.index)
                self.marked.remove(mark)
                self.not_evicted[mark.index] = ReasonDetailCode.EVICTION_NOT_NEEDED
            else:
                self._remove(mark.index)

    def _next(self, queue: Sequence[int], resource: ResourceName) -> int | None:
        for index in queue:
            if not self._staying[index] or self.not_evicted.get(index) is ReasonDetailCode.NO_NODE_FOR_REPLACEMENT:
                continue
            if self._lowest_of_others(index, resource) < self._candidates[index].priority:
                self.not_evicted[index] = ReasonDetailCode.LOWER_PRIORITY_STAYS
            elif self._options.destinations.evict(index):
                self.not_evicted.pop(index, None)
                return index
            else:
                self.not_evicted[index] = ReasonDetailCode.NO_NODE_FOR_REPLACEMENT
        return None

    def _lowest_of_others(self, index: int, resource: ResourceName) -> int:
        """Return the lowest priority of the pods that would stay and use the resource."""
        own = self._candidates[index].priority
        lowest = self._options.lowest_other_priority.get(resource, own)
        for at, one in enumerate(self._candidates):
            if self._staying[at] and one.priority < lowest and (one.base.get(resource) or one.headroom.get(resource)):
                lowest = one.priority
        return lowest

    def fits(self, resource: ResourceName) -> bool:
        """Return whether the pods that stay fit."""
        return self._needs[resource].get_total() <= self._available.get(resource)

    def _remove(self, index: int) -> None:
        self._staying[index] = False
        for need in self._needs.values():
            need.remove(index)

    def _return(self, index: int) -> None:
        self._options.destinations.undo_eviction(index)
        self._count(index)

    def _count(self, index: int) -> None:
        self._staying[index] = True
        for need in self._needs.values():
            need.add(index)


class _ResourceNeed:
    """The need of the remaining candidates for one resource; `staying` is shared with the decision."""

    def __init__(
        self, candidates: Sequence[EvictionCandidate], staying: Sequence[bool], resource: ResourceName
    ) -> None:
        self._staying = staying
        self._bases = [candidate.base.get(resource) for candidate in candidates]
        self._headrooms = [candidate.headroom.get(resource) for candidate in candidates]
        self._largest_first = sorted(range(len(candidates)), key=lambda index: -self._headrooms[index])
        self._base = sum(base for base, stays in zip(self._bases, staying, strict=True) if stays)

    def get_total(self) -> int:
        """Return the sum of the bases plus the largest single headroom."""
        return self._base + next((self._headrooms[index] for index in self._largest_first if self._staying[index]), 0)

    def remove(self, index: int) -> None:
        """Stop counting one candidate."""
        self._base -= self._bases[index]

    def add(self, index: int) -> None:
        """Count one candidate again."""
        self._base += self._bases[index]


class CompletedResize(NamedTuple):
    """A completed resize of a pod; those of pods that are gone are counted by minute, without a uid."""

    uid: str
    at: datetime
    number: int = 1


@dataclass(frozen=True, slots=True)
class EarlierPassResults:
    """The results of earlier passes that evictions and write damping depend on.

    `eviction_pressure` holds the (node, resource) pairs for which the last pass would have evicted, `refused_evictions`
    the uids of the pods whose eviction was rejected in it. `over_requested_since` and `under_requested_since` hold
    since when a node has been over-requested, and a container (pod uid, name) under-requested, without interruption.
    `resized` holds when a pod's request was last written within a day, by uid; `recent_resizes` all resizes of a day.
    None means that there was no earlier pass: it is assumed to have found the same as this one.
    """

    eviction_pressure: frozenset[tuple[str, ResourceName]] | None = None
    refused_evictions: frozenset[str] = frozenset()
    over_requested_since: Mapping[tuple[str, ResourceName], datetime] | None = None
    under_requested_since: Mapping[tuple[str, str, ResourceName], datetime] | None = None
    resized: Mapping[tuple[str, ResourceName], datetime] = field(default_factory=dict)
    recent_resizes: tuple[CompletedResize, ...] = ()

    def had_eviction_pressure(self, node: str, resource: ResourceName) -> bool:
        """Return whether the last pass would have evicted from this node for this resource."""
        return self.eviction_pressure is None or (node, resource) in self.eviction_pressure


ASSUME_UNCHANGED = EarlierPassResults()
NO_EARLIER_PASSES = EarlierPassResults(frozenset(), over_requested_since={}, under_requested_since={})

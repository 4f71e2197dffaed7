"""Which pods to evict from a node that does not hold all of them, and which to spare again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, Protocol

from cruise.domain.policy import EvictionRanking
from cruise.domain.reasons import ReasonDetail
from cruise.domain.resources import ResourceName, Resources


@dataclass(frozen=True, slots=True)
class EvictionCandidate:
    """A pod in the fit of its node: its base, its largest headroom, and whether it may be evicted.

    `candidate_for` has the resources on whose account it may go; empty for a pod that must stay.
    """

    namespace: str
    name: str
    ranking: EvictionRanking
    base: Resources
    headroom: Resources
    evictable_for: frozenset[ResourceName]
    priority: int = 0


@dataclass(frozen=True, slots=True)
class MarkedForEviction:
    """A pod marked for eviction, by its index among the contenders, and the resource that does not fit."""

    index: int
    resource: ResourceName


class EvictionDestinations(Protocol):
    """Where the pods of a node go, by their index among the contenders."""

    def evict(self, index: int) -> bool:
        """Give a pod's replacement a place; False where there is none."""

    def undo_eviction(self, index: int) -> None:
        """Take the place back: the pod stays."""


class _UnlimitedDestinations:
    """Every pod has somewhere to go."""

    def evict(self, index: int) -> bool:
        return True

    def undo_eviction(self, index: int) -> None:
        return None


@dataclass(frozen=True, slots=True)
class EvictionTerms:
    """What the evictions of a node are decided by.

    Only what `mend` names is mended. With `each_by_itself` a resource that cannot fit keeps nobody from going for the
    other one. `lowest_apart` is the lowest priority of the pods that take of the resource and do not contend for it.
    """

    shortage: frozenset[ResourceName] = frozenset(ResourceName)
    check_each_node_alone: bool = True
    lowest_priority_first: Mapping[ResourceName, int] = field(default_factory=dict)
    destinations: EvictionDestinations = field(default_factory=_UnlimitedDestinations)


NO_CONSTRAINTS = EvictionTerms()


@dataclass(frozen=True, slots=True)
class EvictionDecision:
    """Who goes, in marking order; and why candidates stay, by index.

    `over` is what does not fit in the end, and `unfit` what no eviction that may be would mend.
    """

    marked: tuple[MarkedForEviction, ...] = ()
    over_capacity: frozenset[ResourceName] = frozenset()
    does_not_fit: frozenset[ResourceName] = frozenset()
    not_evicted: Mapping[int, ReasonDetail] = field(default_factory=dict)


def rank_for_eviction(contenders: Sequence[EvictionCandidate], resource: ResourceName) -> list[int]:
    """Return the pods that may go on account of a resource, first to go first.

    By ranking, then by priority, then by the largest headroom of that resource, then by namespace and name.
    """

    def order(index: int) -> tuple[int, int, int, str, str]:
        one = contenders[index]
        return (one.ranking, one.priority, -one.headroom.get(resource), one.namespace, one.name)

    return sorted((i for i, c in enumerate(contenders) if resource in c.evictable_for), key=order)


def decide_evictions(
    contenders: Sequence[EvictionCandidate], available: Resources, terms: EvictionTerms = NO_CONSTRAINTS
) -> EvictionDecision:
    """Mark pods until the rest fits, memory first, then spare again, in reverse order, all whose return still fits.

    Nobody goes for a resource that does not fit even with every candidate gone. A pod goes only once all those of
    lower priority have gone, and one of lower priority stays gone while it is.
    """
    node = _NodeContention(contenders, available, terms)
    unfit = set()
    for resource in (ResourceName.MEMORY, ResourceName.CPU):
        if resource in terms.shortage and not node.relieve(resource):
            unfit.add(resource)
    if unfit and not terms.check_each_node_alone:
        node.stop()
        unfit = set(ResourceName)
    # Who went for CPU may have made enough room in memory.
    unfit = {resource for resource in unfit if not terms.check_each_node_alone or not node.fits(resource)}
    node.undo_unneeded(terms.shortage - unfit)
    over = frozenset(resource for resource in ResourceName if not node.fits(resource)) | unfit
    return EvictionDecision(tuple(node.marked), over, frozenset(unfit), node.kept)


class _NodeContention:
    """The contenders of one node while some are marked."""

    def __init__(self, contenders: Sequence[EvictionCandidate], available: Resources, terms: EvictionTerms) -> None:
        self._contenders = contenders
        self._available = available
        self._terms = terms
        self._staying = [True] * len(contenders)
        self._needs = {resource: _ResourceNeed(contenders, self._staying, resource) for resource in ResourceName}
        self.marked: list[MarkedForEviction] = []
        self.kept: dict[int, ReasonDetail] = {}

    def relieve(self, resource: ResourceName) -> bool:
        """Mark pods until a resource fits; where none is left to go, take back those marked for it, and say False."""
        before = len(self.marked)
        queue = rank_for_eviction(self._contenders, resource)
        while not self.fits(resource):
            index = self._next(queue, resource)
            if index is None:
                for mark in reversed(self.marked[before:]):
                    self._return(mark.index)
                del self.marked[before:]
                return False
            self._remove(index)
            self.marked.append(MarkedForEviction(index, resource))
        return True

    def stop(self) -> None:
        """Take back all marks."""
        for mark in reversed(self.marked):
            self._return(mark.index)
        self.marked.clear()

    def undo_unneeded(self, mended: frozenset[ResourceName]) -> None:
        """Take back, last marked first, the marks without which all that was mended still fits."""
        for mark in self.marked[::-1]:
            own = self._contenders[mark.index].priority
            if any(self._contenders[other.index].priority > own for other in self.marked):
                continue
            self._count(mark.index)
            if all(self.fits(resource) for resource in mended):
                self._terms.destinations.undo_eviction(mark.index)
                self.marked.remove(mark)
                self.kept[mark.index] = ReasonDetail.EVICTION_NOT_NEEDED
            else:
                self._remove(mark.index)

    def _next(self, queue: Sequence[int], resource: ResourceName) -> int | None:
        for index in queue:
            if not self._staying[index] or self.kept.get(index) is ReasonDetail.NO_NODE_FOR_REPLACEMENT:
                continue
            if self._lowest_of_others(index, resource) < self._contenders[index].priority:
                self.kept[index] = ReasonDetail.LOWER_PRIORITY_STAYS
            elif self._terms.destinations.evict(index):
                self.kept.pop(index, None)
                return index
            else:
                self.kept[index] = ReasonDetail.NO_NODE_FOR_REPLACEMENT
        return None

    def _lowest_of_others(self, index: int, resource: ResourceName) -> int:
        """Return the lowest priority of the pods that would stay, and take of the resource."""
        own = self._contenders[index].priority
        lowest = self._terms.lowest_priority_first.get(resource, own)
        for at, one in enumerate(self._contenders):
            if self._staying[at] and one.priority < lowest and (one.base.get(resource) or one.headroom.get(resource)):
                lowest = one.priority
        return lowest

    def fits(self, resource: ResourceName) -> bool:
        """Tell whether those that stay fit."""
        return self._needs[resource].now() <= self._available.get(resource)

    def _remove(self, index: int) -> None:
        self._staying[index] = False
        for need in self._needs.values():
            need.remove(index)

    def _return(self, index: int) -> None:
        self._terms.destinations.undo_eviction(index)
        self._count(index)

    def _count(self, index: int) -> None:
        self._staying[index] = True
        for need in self._needs.values():
            need.add(index)


class _ResourceNeed:
    """What the contenders that stay need of one resource; `staying` is shared with the decision."""

    def __init__(
        self, contenders: Sequence[EvictionCandidate], staying: Sequence[bool], resource: ResourceName
    ) -> None:
        self._staying = staying
        self._bases = [contender.base.get(resource) for contender in contenders]
        self._spikes = [contender.headroom.get(resource) for contender in contenders]
        self._largest_first = sorted(range(len(contenders)), key=lambda index: -self._spikes[index])
        self._base = sum(base for base, stays in zip(self._bases, staying, strict=True) if stays)

    def now(self) -> int:
        """Return the sum of the bases and the largest single headroom."""
        return self._base + next((self._spikes[index] for index in self._largest_first if self._staying[index]), 0)

    def remove(self, index: int) -> None:
        """Count one contender no longer."""
        self._base -= self._bases[index]

    def add(self, index: int) -> None:
        """Count one contender again."""
        self._base += self._bases[index]


# What the passes before saw, as far as evictions and the calm of sizes go by it.


class PodWrite(NamedTuple):
    """A resize of a pod that was done, by the pod's uid."""

    uid: str
    at: datetime


@dataclass(frozen=True, slots=True)
class EarlierPasses:
    """What nodes were short of a pass ago, by node name, and the uids of the pods whose eviction was refused then.

    A node was short of CPU only where its pods contended for it.

    Since when, in all passes up to the last: the sum of a node has been `above` its band, by name; a container's base
    has been above its request, `below`, by the pod's uid and the container's name. `resized` has when a pod's request
    for a resource was last written within a day, by uid, and `writes` all resizes of a day, the oldest first. Where
    `short`, `above` or `below` is None there was no pass before: it is taken to have seen the same.
    """

    nodes_under_pressure: frozenset[tuple[str, ResourceName]] | None = None
    refused_evictions: frozenset[str] = frozenset()
    over_requested_since: Mapping[tuple[str, ResourceName], datetime] | None = None
    under_requested_since: Mapping[tuple[str, str, ResourceName], datetime] | None = None
    resized: Mapping[tuple[str, ResourceName], datetime] = field(default_factory=dict)
    recent_resizes: tuple[PodWrite, ...] = ()

    def was_under_pressure(self, node: str, resource: ResourceName) -> bool:
        """Tell whether a node was short of a resource a pass ago."""
        return self.nodes_under_pressure is None or (node, resource) in self.nodes_under_pressure


ASSUME_UNCHANGED = EarlierPasses()
NO_EARLIER_PASSES = EarlierPasses(frozenset(), over_requested_since={}, under_requested_since={})

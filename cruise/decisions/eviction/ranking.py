"""Which pods to evict from a node that does not hold all of them, and which to spare again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from cruise.domain.details import Detail
from cruise.domain.policy import EvictionRanking
from cruise.domain.resources import ResourceName, Resources


@dataclass(frozen=True, slots=True)
class Contender:
    """A pod in the fit of its node: its base, its largest headroom, and whether it may be evicted.

    `candidate_for` has the resources on whose account it may go; empty for a pod that must stay.
    """

    namespace: str
    name: str
    ranking: EvictionRanking
    base: Resources
    headroom: Resources
    candidate_for: frozenset[ResourceName]
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Marked:
    """A pod marked for eviction, by its index among the contenders, and the resource that does not fit."""

    index: int
    resource: ResourceName


class Exits(Protocol):
    """Where the pods of a node go, by their index among the contenders."""

    def leave(self, index: int) -> bool:
        """Give a pod's replacement a place; False where there is none."""

    def come_back(self, index: int) -> None:
        """Take the place back: the pod stays."""


class _Anywhere:
    """Every pod has somewhere to go."""

    def leave(self, index: int) -> bool:
        return True

    def come_back(self, index: int) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Terms:
    """What the evictions of a node are decided by.

    Only what `mend` names is mended. With `each_by_itself` a resource that cannot fit keeps nobody from going for the
    other one. `lowest_apart` is the lowest priority of the pods that take of the resource and do not contend for it.
    """

    mend: frozenset[ResourceName] = frozenset(ResourceName)
    each_by_itself: bool = True
    lowest_apart: Mapping[ResourceName, int] = field(default_factory=dict)
    exits: Exits = field(default_factory=_Anywhere)


FREELY = Terms()


@dataclass(frozen=True, slots=True)
class Leaving:
    """Who goes, in marking order; and why candidates stay, by index.

    `over` is what does not fit in the end, and `unfit` what no eviction that may be would mend.
    """

    marked: tuple[Marked, ...] = ()
    over: frozenset[ResourceName] = frozenset()
    unfit: frozenset[ResourceName] = frozenset()
    kept: Mapping[int, Detail] = field(default_factory=dict)


def rank_for_eviction(contenders: Sequence[Contender], resource: ResourceName) -> list[int]:
    """Return the pods that may go on account of a resource, first to go first.

    By ranking, then by priority, then by the largest headroom of that resource, then by namespace and name.
    """

    def order(index: int) -> tuple[int, int, int, str, str]:
        one = contenders[index]
        return (one.ranking, one.priority, -one.headroom.of(resource), one.namespace, one.name)

    return sorted((i for i, c in enumerate(contenders) if resource in c.candidate_for), key=order)


def decide_evictions(contenders: Sequence[Contender], available: Resources, terms: Terms = FREELY) -> Leaving:
    """Mark pods until the rest fits, memory first, then spare again, in reverse order, all whose return still fits.

    Nobody goes for a resource that does not fit even with every candidate gone. A pod goes only once all those of
    lower priority have gone, and one of lower priority stays gone while it is.
    """
    node = _Node(contenders, available, terms)
    unfit = set()
    for resource in (ResourceName.MEMORY, ResourceName.CPU):
        if resource in terms.mend and not node.mend(resource):
            unfit.add(resource)
    if unfit and not terms.each_by_itself:
        node.give_up()
        unfit = set(ResourceName)
    # Who went for CPU may have made enough room in memory.
    unfit = {resource for resource in unfit if not terms.each_by_itself or not node.fits(resource)}
    node.spare(terms.mend - unfit)
    over = frozenset(resource for resource in ResourceName if not node.fits(resource)) | unfit
    return Leaving(tuple(node.marked), over, frozenset(unfit), node.kept)


class _Node:
    """The contenders of one node while some are marked."""

    def __init__(self, contenders: Sequence[Contender], available: Resources, terms: Terms) -> None:
        self._contenders = contenders
        self._available = available
        self._terms = terms
        self._staying = [True] * len(contenders)
        self._needs = {resource: _Need(contenders, self._staying, resource) for resource in ResourceName}
        self.marked: list[Marked] = []
        self.kept: dict[int, Detail] = {}

    def mend(self, resource: ResourceName) -> bool:
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
            self.marked.append(Marked(index, resource))
        return True

    def give_up(self) -> None:
        """Take back all marks."""
        for mark in reversed(self.marked):
            self._return(mark.index)
        self.marked.clear()

    def spare(self, mended: frozenset[ResourceName]) -> None:
        """Take back, last marked first, the marks without which all that was mended still fits."""
        for mark in self.marked[::-1]:
            own = self._contenders[mark.index].priority
            if any(self._contenders[other.index].priority > own for other in self.marked):
                continue
            self._count(mark.index)
            if all(self.fits(resource) for resource in mended):
                self._terms.exits.come_back(mark.index)
                self.marked.remove(mark)
                self.kept[mark.index] = Detail.SPARED
            else:
                self._remove(mark.index)

    def _next(self, queue: Sequence[int], resource: ResourceName) -> int | None:
        for index in queue:
            if not self._staying[index] or self.kept.get(index) is Detail.NOWHERE_TO_GO:
                continue
            if self._lowest_of_others(index, resource) < self._contenders[index].priority:
                self.kept[index] = Detail.LOWER_PRIORITY_STAYS
            elif self._terms.exits.leave(index):
                self.kept.pop(index, None)
                return index
            else:
                self.kept[index] = Detail.NOWHERE_TO_GO
        return None

    def _lowest_of_others(self, index: int, resource: ResourceName) -> int:
        """Return the lowest priority of the pods that would stay, and take of the resource."""
        own = self._contenders[index].priority
        lowest = self._terms.lowest_apart.get(resource, own)
        for at, one in enumerate(self._contenders):
            if self._staying[at] and one.priority < lowest and (one.base.of(resource) or one.headroom.of(resource)):
                lowest = one.priority
        return lowest

    def fits(self, resource: ResourceName) -> bool:
        """Tell whether those that stay fit."""
        return self._needs[resource].now() <= self._available.of(resource)

    def _remove(self, index: int) -> None:
        self._staying[index] = False
        for need in self._needs.values():
            need.remove(index)

    def _return(self, index: int) -> None:
        self._terms.exits.come_back(index)
        self._count(index)

    def _count(self, index: int) -> None:
        self._staying[index] = True
        for need in self._needs.values():
            need.add(index)


class _Need:
    """What the contenders that stay need of one resource; `staying` is shared with the decision."""

    def __init__(self, contenders: Sequence[Contender], staying: Sequence[bool], resource: ResourceName) -> None:
        self._staying = staying
        self._bases = [contender.base.of(resource) for contender in contenders]
        self._spikes = [contender.headroom.of(resource) for contender in contenders]
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

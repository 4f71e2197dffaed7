"""Which pods to evict from a node that does not hold all of them, and which to spare again."""

from collections.abc import Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Marked:
    """A pod marked for eviction, by its index among the contenders, and the resource that does not fit."""

    index: int
    resource: ResourceName


def rank_for_eviction(contenders: Sequence[Contender], resource: ResourceName) -> list[int]:
    """Return the pods that may go on account of a resource, first to go first.

    By ranking, then by the largest headroom of that resource, then by namespace and name.
    """

    def order(index: int) -> tuple[int, int, str, str]:
        contender = contenders[index]
        return (contender.ranking, -contender.headroom.of(resource), contender.namespace, contender.name)

    return sorted((i for i, c in enumerate(contenders) if resource in c.candidate_for), key=order)


def decide_evictions(contenders: Sequence[Contender], available: Resources) -> list[Marked] | None:
    """Mark pods until the rest fits, memory first, then spare again, in reverse order, all whose return still fits.

    None where not even the departure of every candidate would make the rest fit: then none goes.
    """
    staying = [True] * len(contenders)
    marked: list[Marked] = []
    for resource in (ResourceName.MEMORY, ResourceName.CPU):
        need = _Need(contenders, staying, resource)
        queue = iter(rank_for_eviction(contenders, resource))
        while need.now() > available.of(resource):
            index = next((index for index in queue if staying[index]), None)
            if index is None:
                return None
            staying[index] = False
            need.remove(index)
            marked.append(Marked(index, resource))
    needs = {resource: _Need(contenders, staying, resource) for resource in ResourceName}
    gone: list[Marked] = []
    for mark in reversed(marked):
        staying[mark.index] = True
        for need in needs.values():
            need.add(mark.index)
        if not all(need.now() <= available.of(resource) for resource, need in needs.items()):
            staying[mark.index] = False
            for need in needs.values():
                need.remove(mark.index)
            gone.append(mark)
    return gone[::-1]


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

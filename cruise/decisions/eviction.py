"""Whom to evict from a node that does not hold its pods, and whom to spare again."""

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


def need_of(contenders: Sequence[Contender]) -> Resources:
    """Return what pods need together: the sum of their bases and the largest single headroom."""
    return Resources(
        sum(c.base.cpu_millicores for c in contenders)
        + max((c.headroom.cpu_millicores for c in contenders), default=0),
        sum(c.base.memory_bytes for c in contenders) + max((c.headroom.memory_bytes for c in contenders), default=0),
    )


def rank_for_eviction(contenders: Sequence[Contender], resource: ResourceName) -> list[int]:
    """Return who may go on account of a resource, first to go first.

    By ranking, then by the largest headroom of that resource, then by namespace and name.
    """

    def order(index: int) -> tuple[int, int, str, str]:
        contender = contenders[index]
        return (contender.ranking, -_of(contender.headroom, resource), contender.namespace, contender.name)

    return sorted((i for i, c in enumerate(contenders) if resource in c.candidate_for), key=order)


def decide_evictions(contenders: Sequence[Contender], available: Resources) -> list[Marked] | None:
    """Mark pods until the rest fits, memory first, then spare again, in reverse order, all whose return still fits.

    None where not even the departure of every candidate would make the rest fit: then nobody goes.
    """
    staying = dict(enumerate(contenders))
    marked: list[Marked] = []
    for resource in (ResourceName.MEMORY, ResourceName.CPU):
        queue = [index for index in rank_for_eviction(contenders, resource) if index in staying]
        while not _fits(list(staying.values()), resource, available):
            if not queue:
                return None
            index = queue.pop(0)
            del staying[index]
            marked.append(Marked(index, resource))
    for mark in reversed(list(marked)):
        back = contenders[mark.index]
        if need_of([*staying.values(), back]).fits_in(available):
            staying[mark.index] = back
            marked.remove(mark)
    return marked


def _fits(staying: Sequence[Contender], resource: ResourceName, available: Resources) -> bool:
    return _of(need_of(staying), resource) <= _of(available, resource)


def _of(resources: Resources, resource: ResourceName) -> int:
    return resources.cpu_millicores if resource is ResourceName.CPU else resources.memory_bytes

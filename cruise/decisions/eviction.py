"""Whom to evict from a node that does not hold its pods, and whom to spare again."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

from cruise.domain.policy import EvictionRanking
from cruise.domain.resources import NO_RESOURCES, ResourceName, Resources


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
    return _sum(c.base for c in contenders) + _largest(c.headroom for c in contenders)


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
    staying = [True] * len(contenders)
    marked: list[Marked] = []
    for resource in (ResourceName.MEMORY, ResourceName.CPU):
        room = _of(available, resource)
        base = sum(_of(c.base, resource) for c, stays in zip(contenders, staying, strict=True) if stays)
        spikes = iter(sorted(range(len(contenders)), key=lambda index: -_of(contenders[index].headroom, resource)))
        spike = _next_staying(spikes, staying)
        queue = iter(rank_for_eviction(contenders, resource))
        while base + (0 if spike is None else _of(contenders[spike].headroom, resource)) > room:
            index = _next_staying(queue, staying)
            if index is None:
                return None
            staying[index] = False
            base -= _of(contenders[index].base, resource)
            marked.append(Marked(index, resource))
            if index == spike:
                spike = _next_staying(spikes, staying)
    return _unspared(contenders, staying, marked, available)


def _next_staying(order: Iterator[int], staying: Sequence[bool]) -> int | None:
    return next((index for index in order if staying[index]), None)


def _unspared(
    contenders: Sequence[Contender], staying: Sequence[bool], marked: Sequence[Marked], available: Resources
) -> list[Marked]:
    """Return the marks without those of pods whose return, last marked first, still fits."""
    here = [contender for contender, stays in zip(contenders, staying, strict=True) if stays]
    base = _sum(contender.base for contender in here)
    headroom = _largest(contender.headroom for contender in here)
    gone: list[Marked] = []
    for mark in reversed(marked):
        back = contenders[mark.index]
        with_base, with_headroom = base + back.base, headroom.at_least(back.headroom)
        if (with_base + with_headroom).fits_in(available):
            base, headroom = with_base, with_headroom
        else:
            gone.append(mark)
    return gone[::-1]


def _sum(parts: Iterable[Resources]) -> Resources:
    return reduce(Resources.__add__, parts, NO_RESOURCES)


def _largest(parts: Iterable[Resources]) -> Resources:
    return reduce(Resources.at_least, parts, NO_RESOURCES)


def _of(resources: Resources, resource: ResourceName) -> int:
    return resources.cpu_millicores if resource is ResourceName.CPU else resources.memory_bytes

"""What tells classes apart beside amounts: pods whose kinds have equal signatures are all the same to a plan."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cruise.decisions.packing.building.budgets import Limit
from cruise.decisions.packing.building.census import Census, Kind
from cruise.decisions.packing.building.marks import Marks
from cruise.decisions.packing.building.sites import Sites
from cruise.packer.problem import Objective


class Signature(NamedTuple):
    """What all pods of a class have in common; the roles number the rules that hold or mean them."""

    priority: int
    movable: bool
    preemptible: bool
    preempts: bool
    weight: int
    occupies: bool
    site: int
    kept: bool
    roles: tuple[int, ...]


def sign(census: Census, sites: Sites, marks: Marks, limits: Sequence[Limit], objective: Objective) -> list[Signature]:
    """Return the signature of each kind."""
    roles: list[list[int]] = [[] for _ in census.kinds]
    for number, members in enumerate(_groups(marks, limits, census.kinds)):
        for member in members:
            roles[member].append(number)
    paper = objective is Objective.PAPER
    # Pods that never preempt get nothing by a chain either, at whose other end somebody is preempted.
    top = max((kind.pod.priority for kind in census.kinds if kind.pending and kind.pod.preempts), default=None)
    found = []
    for kind, own in zip(census.kinds, roles, strict=True):
        movable = kind.stays is None
        # In operation pods of the highest priority that preempts never lose their place, nor do those above it.
        below = top is not None and (kind.pod.priority < top or (paper and kind.pod.priority == top))
        may_lose = objective in (Objective.PAPER, Objective.OPERATOR) and below
        signature = Signature(
            priority=kind.pod.priority,
            movable=movable,
            preemptible=movable and may_lose,
            preempts=kind.pod.preempts or not kind.arrives,
            weight=kind.weight + kind.covered if movable else 1,
            occupies=objective is not Objective.FLEET or not kind.of_node,
            site=sites.of(kind),
            # What its node keeps for it, it takes of nothing that others may have.
            kept=kind.pending and bool(kind.pod.nominated_node),
            roles=tuple(own),
        )
        found.append(signature)
    return found


def _groups(marks: Marks, limits: Sequence[Limit], kinds: Sequence[Kind]) -> Iterable[frozenset[int]]:
    """Yield sets of kinds that a rule treats alike: each such set sets its members apart from all others."""
    for mark in (*marks.repulsions, *marks.draws, *marks.evennesses):
        yield mark.holders
        yield mark.targets
    for limit in limits:
        yield frozenset(number for number in limit.kinds if kinds[number].stays is None)

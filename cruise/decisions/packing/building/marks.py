"""What pods require of each other, kind by kind: the kinds that hold a term, and those that it selects."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from cruise.decisions.packing.building.census import Census, Kind
from cruise.decisions.packing.building.nodes import CLUSTER, NODE, NodeColumns
from cruise.decisions.packing.building.obstacle import Obstacle
from cruise.domain.arrays import BoolArray
from cruise.domain.colocation import HostPort, PodTerm, SpreadConstraint, Surroundings
from cruise.domain.scheduling import LabelSelector

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Mark:
    """A rule between kinds: those that hold it, and those that it is about."""

    holders: frozenset[int]
    targets: frozenset[int]


@dataclass(frozen=True, slots=True)
class Repulsion(Mark):
    """One term of anti-affinity, one host port's kind, or a volume for one pod."""

    topology: str
    obstacle: Obstacle


@dataclass(frozen=True, slots=True)
class Draw(Mark):
    """Required affinity: all terms mean the same targets at once."""

    topologies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Evenness(Mark):
    """A spread constraint, for which the `eligible` nodes make up the domains."""

    constraint: SpreadConstraint
    eligible: BoolArray


@dataclass(slots=True)
class Marks:
    """Every rule between kinds that can bind, each with the kinds it is about."""

    repulsions: list[Repulsion] = field(default_factory=list)
    draws: list[Draw] = field(default_factory=list)
    evennesses: list[Evenness] = field(default_factory=list)


def find_marks(census: Census, columns: NodeColumns, surroundings: Surroundings) -> Marks:
    """Find the rules between kinds; what concerns no kind that arrives is left out."""
    finder = _Finder(census, columns, surroundings)
    marks = Marks()
    marks.repulsions = [*finder.anti_affinity(), *finder.host_ports(), *finder.lone_volumes()]
    marks.draws = [*finder.affinity(), *finder.shared_volumes()]
    marks.evennesses = finder.spreads()
    return marks


class _Finder:
    def __init__(self, census: Census, columns: NodeColumns, surroundings: Surroundings) -> None:
        self._census = census
        self._columns = columns
        self._kinds: Sequence[Kind] = census.kinds
        self._surroundings = surroundings
        self._meant: dict[PodTerm, frozenset[int]] = {}
        self._arriving = frozenset(number for number, kind in enumerate(census.kinds) if kind.arrives)

    def anti_affinity(self) -> list[Repulsion]:
        """Find what required anti-affinity keeps apart."""
        holders = self._kinds_by(lambda kind: kind.pod.constraints.anti_affinity)
        found = []
        for term, held_by in holders.items():
            apart = Obstacle.ANTI_AFFINITY
            found += self._repulsion(term.topology_key, apart, frozenset(held_by), self._meant_by(term))
        return found

    def host_ports(self) -> list[Repulsion]:
        """Find which kinds ask for the same port of a node."""
        holders = self._kinds_by(lambda kind: kind.pod.constraints.host_ports)
        by_number: dict[tuple[str, int], list[HostPort]] = {}
        for port in holders:
            by_number.setdefault((port.protocol, port.port), []).append(port)
        found = []
        for _, ports in sorted(by_number.items()):
            for at, port in enumerate(ports):
                others = [number for other in ports[at:] if port.collides_with(other) for number in holders[other]]
                found += self._repulsion(NODE, Obstacle.HOST_PORTS, frozenset(holders[port]), frozenset(others))
        return found

    def lone_volumes(self) -> list[Repulsion]:
        """Find the claims that no second pod may use, where there is a second one."""
        users = self._kinds_by(lambda kind: kind.needs.alone)
        found = []
        for _, kinds in sorted(users.items()):
            if sum(self._kinds[number].count for number in kinds) > 1:
                found += self._repulsion(CLUSTER, Obstacle.VOLUME, frozenset(kinds), frozenset(kinds))
        return found

    def affinity(self) -> list[Draw]:
        """Find where required affinity sends the kinds that arrive."""
        holders = self._kinds_by(lambda kind: [kind.pod.constraints.affinity] if kind.arrives else [])
        return [
            Draw(
                frozenset(held_by),
                frozenset.intersection(*(self._meant_by(term) for term in terms)),
                tuple(dict.fromkeys(term.topology_key for term in terms)),
            )
            for terms, held_by in holders.items()
            if terms
        ]

    def shared_volumes(self) -> list[Draw]:
        """Find the pending pods that have to share a node, since the volume that they share is on one at a time."""
        users = self._kinds_by(lambda kind: kind.needs.together)
        return [
            Draw(frozenset(kinds), frozenset(kinds), (NODE,))
            for _, kinds in sorted(users.items())
            # Where one runs already, the others may come to its node alone.
            if sum(self._kinds[number].count for number in kinds) > 1 and all(self._kinds[n].pending for n in kinds)
        ]

    def spreads(self) -> list[Evenness]:
        """Find how the kinds that arrive are to be spread; pods on their way out do not count."""
        holders: dict[tuple[str, SpreadConstraint, bytes], list[int]] = {}
        masks: dict[bytes, BoolArray] = {}
        for number in sorted(self._arriving):
            pod = self._kinds[number].pod
            for constraint in dict.fromkeys(pod.constraints.spread):
                mask = self._columns.eligible(pod.placement, constraint, pod.constraints.spread)
                key = mask.tobytes()
                masks.setdefault(key, mask)
                holders.setdefault((pod.namespace, constraint, key), []).append(number)
        found = []
        for (namespace, constraint, key), held_by in holders.items():
            targets = self._counted(namespace, constraint.selector)
            if targets:
                found.append(Evenness(frozenset(held_by), targets, constraint, masks[key]))
        return found

    def _kinds_by(self, of: Callable[[Kind], Iterable[T]]) -> dict[T, list[int]]:
        """Return for each thing that kinds have the kinds that have it."""
        found: dict[T, list[int]] = {}
        for number, kind in enumerate(self._kinds):
            for one in dict.fromkeys(of(kind)):
                found.setdefault(one, []).append(number)
        return found

    def _repulsion(
        self, topology: str, obstacle: Obstacle, holders: frozenset[int], targets: frozenset[int]
    ) -> list[Repulsion]:
        """Keep of a rule what may keep an arriving kind away."""
        if not holders & self._arriving:
            targets &= self._arriving
        if not targets & self._arriving:
            holders &= self._arriving
        return [Repulsion(holders, targets, topology, obstacle)] if holders and targets else []

    def _meant_by(self, term: PodTerm) -> frozenset[int]:
        found = self._meant.get(term)
        if found is None:
            labels = self._census.labels
            groups: Iterable[int] = () if term.selector is None else labels.selected(term.selector)
            meant = [group for group in groups if self._surroundings.mean(term, *labels.groups[group])]
            found = frozenset(number for group in meant for number in self._census.of_group[group])
            self._meant[term] = found
        return found

    def _counted(self, namespace: str, selector: LabelSelector | None) -> frozenset[int]:
        if selector is None:
            return frozenset()
        return frozenset(
            number
            for group in self._census.labels.selected(selector, namespace)
            for number in self._census.of_group[group]
            if not self._kinds[number].pod.terminating
        )

"""The rules between pods while a plan is carried out: whom the neighbours of the moment let in."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence, Set

import numpy as np

from cruise.domain.arrays import BoolArray, Int64Array
from cruise.packer.problem import Attraction, Exclusion, Rules, Spread

_NONE: frozenset[int] = frozenset()


class _Tally:
    """Counts pods of some classes by the domains of one topology; pods outside every domain count in none."""

    def __init__(self, domain_of: list[int], classes: Iterable[int]) -> None:
        self.domain_of = domain_of
        self.classes = frozenset(classes)
        self.of_domain: Counter[int] = Counter()
        self.in_all = 0

    def add(self, node: int, by: int) -> None:
        domain = self.domain_of[node]
        if domain >= 0:
            self.of_domain[domain] += by
            self.in_all += by

    def at(self, node: int) -> int:
        """Count in the domain of a node."""
        domain = self.domain_of[node]
        return self.of_domain[domain] if domain >= 0 else 0


class _Shut:
    """An exclusion, seen from one side: nobody arrives where one of the others is."""

    def __init__(self, others: _Tally) -> None:
        self._others = others

    def lets_in(self, node: int) -> bool:
        return self._others.at(node) == 0


class _Drawn:
    """An attraction: there is one of the targets in each topology, or none in any domain and the holder is one."""

    def __init__(self, tallies: Sequence[_Tally], is_target: bool) -> None:
        self._tallies = tallies
        self._is_target = is_target

    def lets_in(self, node: int) -> bool:
        if any(tally.domain_of[node] < 0 for tally in self._tallies):
            return False
        if all(tally.at(node) > 0 for tally in self._tallies):
            return True
        return self._is_target and not any(tally.in_all for tally in self._tallies)


class _Level:
    """A spread: with the newcomer its domain has at most the skew more than the least."""

    def __init__(self, spread: Spread, tally: _Tally, domains: list[int]) -> None:
        self._tally = tally
        self._domains = domains
        self._open = sorted(set(tally.domain_of) - {-1})
        self._most = spread.max_skew - (1 if spread.holder in tally.classes else 0)
        self._too_few = len(self._open) < spread.min_domains

    def lets_in(self, node: int) -> bool:
        domain = self._domains[node]
        if domain < 0:
            return False
        counts = self._tally.of_domain
        least = 0 if self._too_few else min((counts[other] for other in self._open), default=0)
        return counts[domain] <= least + self._most


class Neighbours:
    """Counts the pods that rules name, as far as they touch classes of which something arrives."""

    def __init__(self, rules: Rules, arriving: frozenset[int], pod_class: Int64Array, pod_node: Int64Array) -> None:
        self._tallies: dict[int, list[_Tally]] = defaultdict(list)
        self._rules: dict[int, list[_Shut | _Drawn | _Level]] = defaultdict(list)
        self._keep: dict[int, set[int]] = defaultdict(set)
        self._kept_by: dict[int, set[int]] = defaultdict(set)
        self._topologies = rules.topologies
        self._domains: dict[tuple[int, bytes], list[int]] = {}
        for exclusion in rules.exclusions:
            self._take_exclusion(exclusion, arriving)
        for attraction in rules.attractions:
            if attraction.holder in arriving:
                self._take_attraction(attraction)
        for spread in rules.spreads:
            if spread.holder in arriving:
                self._take_spread(spread)
        counted = np.isin(pod_class, list(self._tallies)) & (pod_node >= 0)
        for pod in np.flatnonzero(counted).tolist():
            self.add(int(pod_class[pod]), int(pod_node[pod]), 1)

    def add(self, pod_class: int, node: int, by: int) -> None:
        """Count pods of a class that come to a node, or leave it (negative)."""
        for tally in self._tallies.get(pod_class, ()):
            tally.add(node, by)

    def let_in(self, pod_class: int, node: int) -> bool:
        """Tell whether those who are there let in one more pod of a class."""
        return all(rule.lets_in(node) for rule in self._rules.get(pod_class, ()))

    def kept_by(self, pod_class: int) -> Set[int]:
        """Return the classes on whose pods the arrival of one of this class may hang."""
        return self._kept_by.get(pod_class, _NONE)

    def keep(self, pod_class: int) -> Set[int]:
        """Return the classes whose arrival may hang on pods of this one."""
        return self._keep.get(pod_class, _NONE)

    def _domains_of(self, topology: int, eligible: BoolArray | None = None) -> list[int]:
        """Return each node's domain, -1 where it does not count; many rules share one list."""
        key = (topology, b"" if eligible is None else eligible.tobytes())
        if key not in self._domains:
            row = self._topologies[topology]
            self._domains[key] = (row if eligible is None else np.where(eligible, row, -1)).tolist()
        return self._domains[key]

    def _tally(self, domain_of: list[int], classes: Iterable[int], holder: int) -> _Tally:
        tally = _Tally(domain_of, classes)
        for one in tally.classes:
            self._tallies[one].append(tally)
            self._relate(one, holder)
        return tally

    def _relate(self, one: int, arriving: int) -> None:
        self._keep[one].add(arriving)
        self._kept_by[arriving].add(one)

    def _take_exclusion(self, exclusion: Exclusion, arriving: frozenset[int]) -> None:
        targets = exclusion.targets.tolist()
        if exclusion.holder in arriving and targets:
            others = self._tally(self._domains_of(exclusion.topology), targets, exclusion.holder)
            self._rules[exclusion.holder].append(_Shut(others))
        kept_off = [target for target in targets if target in arriving and target != exclusion.holder]
        if kept_off:
            holders = _Tally(self._domains_of(exclusion.topology), (exclusion.holder,))
            self._tallies[exclusion.holder].append(holders)
            for target in kept_off:
                self._relate(exclusion.holder, target)
                self._rules[target].append(_Shut(holders))

    def _take_attraction(self, attraction: Attraction) -> None:
        targets = attraction.targets.tolist()
        tallies = [
            self._tally(self._domains_of(topology), targets, attraction.holder) for topology in attraction.topologies
        ]
        self._rules[attraction.holder].append(_Drawn(tallies, attraction.holder in targets))

    def _take_spread(self, spread: Spread) -> None:
        counted = self._domains_of(spread.topology, spread.eligible)
        tally = self._tally(counted, spread.targets.tolist(), spread.holder)
        self._rules[spread.holder].append(_Level(spread, tally, self._domains_of(spread.topology)))

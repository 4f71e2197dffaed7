"""The pods of each class and the rules that touch it, laid out once for a problem."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from cruise.packer.instance import BoolArray, IntArray
from cruise.packer.problem import Attraction, EvictionLimit, Exclusion, Problem, Spread


@dataclass(frozen=True, slots=True, eq=False)
class Census:
    """`order[starts[c]:starts[c + 1]]` are the pods of class c; the dictionaries hold the rules by class.

    `excluded[c]` are (topology, classes) of which none may share a domain with an arriving pod of c, in either role.
    `counted[c]` are the spreads that count c without holding it, `attracting[c]` the attractions to c whose holder,
    another class, may be the first of its targets. A class is `anchored` where pods that arrived may
    depend on it staying.
    """

    order: IntArray
    starts: IntArray
    excluded: dict[int, list[tuple[int, IntArray]]]
    attracted: dict[int, list[Attraction]]
    attracting: dict[int, list[Attraction]]
    spread: dict[int, list[Spread]]
    counted: dict[int, list[Spread]]
    limits: dict[int, list[int]]
    anchored: BoolArray

    def pods_of(self, classes: IntArray) -> IntArray:
        """The pods of all these classes."""
        if len(classes) == 1:
            return self.order[self.starts[classes[0]] : self.starts[classes[0] + 1]]
        parts = [self.order[self.starts[c] : self.starts[c + 1]] for c in classes.tolist()]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def census_of(problem: Problem) -> Census:
    """Lay out a problem's pods and rules by class."""
    order = np.argsort(problem.pod_class, kind="stable").astype(np.int64)
    starts = np.zeros(problem.class_count + 1, dtype=np.int64)
    np.cumsum(np.bincount(problem.pod_class, minlength=problem.class_count), out=starts[1:])
    rules = problem.rules
    anchored = np.zeros(problem.class_count, dtype=np.bool_)
    for targets in [rule.targets for rule in rules.attractions] + [rule.targets for rule in rules.spreads]:
        anchored[targets] = True
    own = [rule for rule in rules.attractions if rule.holder in rule.targets.tolist()]
    return Census(
        order,
        starts,
        _by_class(pair for exclusion in rules.exclusions for pair in _both_ways(exclusion)),
        _by_class((rule.holder, rule) for rule in rules.attractions),
        _by_class((c, rule) for rule in own for c in rule.targets.tolist() if c != rule.holder),
        _by_class((rule.holder, rule) for rule in rules.spreads),
        _by_class((c, rule) for rule in rules.spreads for c in rule.targets.tolist() if c != rule.holder),
        _by_class((c, index) for index, limit in enumerate(rules.eviction_limits) for c in limit.members.tolist()),
        anchored,
    )


def sums_over(limits: Sequence[EvictionLimit], per_class: IntArray) -> IntArray:
    """For each limit the sum over its members of a figure of each class."""
    sizes = np.array([len(limit.members) for limit in limits], dtype=np.int64)
    if sizes.sum() == 0:
        return np.zeros(len(limits), dtype=np.int64)
    owners = np.repeat(np.arange(len(limits)), sizes)
    sums = np.zeros(len(limits), dtype=np.int64)
    np.add.at(sums, owners, per_class[np.concatenate([limit.members for limit in limits])])
    return sums


T = TypeVar("T")


def _by_class(pairs: Iterable[tuple[int, T]]) -> dict[int, list[T]]:
    lists: defaultdict[int, list[T]] = defaultdict(list)
    for c, entry in pairs:
        lists[c].append(entry)
    return dict(lists)


def _both_ways(exclusion: Exclusion) -> list[tuple[int, tuple[int, IntArray]]]:
    """Each class that the rule touches, with those that it must not meet."""
    holder = np.array([exclusion.holder], dtype=np.int64)
    pairs = [(exclusion.holder, (exclusion.topology, exclusion.targets))]
    others = [c for c in exclusion.targets.tolist() if c != exclusion.holder]
    return pairs + [(c, (exclusion.topology, holder)) for c in others]

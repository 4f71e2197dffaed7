"""The pods of each class and the rules that touch it, laid out once for a problem."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from cruise.packer.arrays import BoolArray, IntArray
from cruise.packer.problem import Attraction, EvictionLimit, Exclusion, Problem, Spread

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class RulesByClass:
    """`order[starts[c]:starts[c + 1]]` are the pods of class c; the dictionaries hold rules with their index, by class.

    `excluded[c]` are the exclusions of class c in either role, each with the classes that it must not meet.
    `counted[c]` are the spreads that count c without holding it, `attracting[c]` the attractions to c whose holder
    may be the first of its targets. A class is `anchored` where pods that arrived may depend on it staying.
    """

    order: IntArray
    starts: IntArray
    excluded: dict[int, list[tuple[int, Exclusion, IntArray]]]
    attracted: dict[int, list[tuple[int, Attraction]]]
    attracting: dict[int, list[tuple[int, Attraction]]]
    spread: dict[int, list[tuple[int, Spread]]]
    counted: dict[int, list[tuple[int, Spread]]]
    limits: dict[int, list[int]]
    anchored: BoolArray

    def pods_of(self, classes: IntArray) -> IntArray:
        """The pods of all these classes."""
        if len(classes) == 1:
            return self.order[self.starts[classes[0]] : self.starts[classes[0] + 1]]
        parts = [self.order[self.starts[c] : self.starts[c + 1]] for c in classes.tolist()]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def rules_by_class(problem: Problem) -> RulesByClass:
    """Lay out a problem's pods and rules by class."""
    order = np.argsort(problem.pod_class, kind="stable").astype(np.int64)
    starts = np.zeros(problem.class_count + 1, dtype=np.int64)
    np.cumsum(np.bincount(problem.pod_class, minlength=problem.class_count), out=starts[1:])
    rules = problem.rules
    attractions, spreads = list(enumerate(rules.attractions)), list(enumerate(rules.spreads))
    anchored = np.zeros(problem.class_count, dtype=np.bool_)
    for targets in [rule.targets for rule in rules.attractions] + [rule.targets for rule in rules.spreads]:
        anchored[targets] = True
    return RulesByClass(
        order,
        starts,
        by_class(pair for index, rule in enumerate(rules.exclusions) for pair in _both_ways(index, rule)),
        by_class((rule.holder, (i, rule)) for i, rule in attractions),
        by_class((c, (i, rule)) for i, rule in attractions if rule.may_be_first for c in rule.targets.tolist()),
        by_class((rule.holder, (i, rule)) for i, rule in spreads),
        by_class((c, (i, rule)) for i, rule in spreads for c in rule.targets.tolist() if c != rule.holder),
        by_class((c, index) for index, limit in enumerate(rules.eviction_limits) for c in limit.members.tolist()),
        anchored,
    )


def by_class(pairs: Iterable[tuple[int, T]]) -> dict[int, list[T]]:
    """Collect what belongs to each class, in order."""
    lists: defaultdict[int, list[T]] = defaultdict(list)
    for c, entry in pairs:
        lists[c].append(entry)
    return dict(lists)


def sums_over(limits: Sequence[EvictionLimit], per_class: IntArray) -> IntArray:
    """For each limit the sum over its members of a figure of each class."""
    sizes = np.array([len(limit.members) for limit in limits], dtype=np.int64)
    if sizes.sum() == 0:
        return np.zeros(len(limits), dtype=np.int64)
    owners = np.repeat(np.arange(len(limits)), sizes)
    sums = np.zeros(len(limits), dtype=np.int64)
    np.add.at(sums, owners, per_class[np.concatenate([limit.members for limit in limits])])
    return sums


def _both_ways(index: int, rule: Exclusion) -> list[tuple[int, tuple[int, Exclusion, IntArray]]]:
    """Each class that an exclusion touches, with those that it must not meet."""
    holder = np.array([rule.holder], dtype=np.int64)
    pairs = [(rule.holder, (index, rule, rule.targets))]
    return pairs + [(c, (index, rule, holder)) for c in rule.targets.tolist() if c != rule.holder]

"""Which selectors may select given labels, and which labels a selector may select, without trying every pair.

Both only leave out what cannot match: the selector itself decides about the rest.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from cruise.domain.scheduling import LabelSelector, Operator

Labels = frozenset[tuple[str, str]]
Item = TypeVar("Item")


def needed_labels(selector: LabelSelector) -> list[tuple[str, str]] | None:
    """The labels of which a selector needs one, by its first requirement that names values; None if none does."""
    for requirement in selector.requirements:
        if requirement.operator is Operator.IN:
            return [(requirement.key, value) for value in requirement.values]
    return None


class SelectorIndex(Generic[Item]):
    """Things with a selector, found by labels."""

    def __init__(self) -> None:
        self._by_label: defaultdict[tuple[str, str], dict[Item, None]] = defaultdict(dict)
        self._by_none: dict[Item, None] = {}

    def add(self, selector: LabelSelector, item: Item) -> None:
        """Remember an item."""
        needed = needed_labels(selector)
        if needed is None:
            self._by_none[item] = None
        for label in needed or ():
            self._by_label[label][item] = None

    def candidates(self, labels: Mapping[str, str]) -> Iterator[Item]:
        """The items whose selector may select the labels, each once."""
        found = dict(self._by_none)
        for label in labels.items():
            if label in self._by_label:
                found |= self._by_label[label]
        return iter(found)


class LabelIndex:
    """Sets of labels, found by selectors."""

    def __init__(self) -> None:
        self._all: dict[Labels, None] = {}
        self._by_label: defaultdict[tuple[str, str], dict[Labels, None]] = defaultdict(dict)

    def add(self, labels: Labels) -> None:
        """Remember a set of labels."""
        self._all[labels] = None
        for label in labels:
            self._by_label[label][labels] = None

    def candidates(self, selector: LabelSelector) -> Iterator[Labels]:
        """The sets that the selector may select, each once."""
        needed = needed_labels(selector)
        if needed is None:
            return iter(self._all)
        found: dict[Labels, None] = {}
        for label in needed:
            found |= self._by_label.get(label, {})
        return iter(found)

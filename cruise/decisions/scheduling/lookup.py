"""Which selectors may select given labels, and which labels a selector may select, without trying every pair.

Both only leave out what cannot match: the selector itself decides about the rest.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from cruise.domain.scheduling import LabelSelector, Operator

Labels = frozenset[tuple[str, str]]
Item = TypeVar("Item")


def needed_labels(selector: LabelSelector) -> list[list[tuple[str, str]]]:
    """For each requirement of a selector that names values, the labels of which it needs one."""
    return [
        [(requirement.key, value) for value in requirement.values]
        for requirement in selector.requirements
        if requirement.operator is Operator.IN
    ]


class SelectorIndex(Generic[Item]):
    """Things with a selector, found by labels."""

    def __init__(self) -> None:
        self._by_label: defaultdict[tuple[str, str], dict[Item, None]] = defaultdict(dict)
        self._by_none: dict[Item, None] = {}

    def add(self, selector: LabelSelector, item: Item) -> None:
        """Remember an item."""
        choices = needed_labels(selector)
        if not choices:
            self._by_none[item] = None
            return
        # Mostly one label tells selectors apart, and they share the others.
        for label in min(choices, key=self._crowd):
            self._by_label[label][item] = None

    def candidates(self, labels: Mapping[str, str]) -> Iterator[Item]:
        """The items whose selector may select the labels, each once."""
        found = dict(self._by_none)
        for label in labels.items():
            if label in self._by_label:
                found |= self._by_label[label]
        return iter(found)

    def _crowd(self, labels: Sequence[tuple[str, str]]) -> int:
        return sum(len(self._by_label[label]) for label in labels if label in self._by_label)


class LabelIndex(Generic[Item]):
    """Things with labels, found by selectors."""

    def __init__(self) -> None:
        self._all: dict[Item, None] = {}
        self._by_label: defaultdict[tuple[str, str], dict[Item, None]] = defaultdict(dict)

    def add(self, labels: Labels, item: Item) -> None:
        """Remember an item."""
        self._all[item] = None
        for label in labels:
            self._by_label[label][item] = None

    def candidates(self, selector: LabelSelector) -> Iterator[Item]:
        """The items whose labels the selector may select, each once."""
        choices = needed_labels(selector)
        if not choices:
            return iter(self._all)
        rarest = min(choices, key=lambda labels: sum(len(self._by_label.get(label, ())) for label in labels))
        found: dict[Item, None] = {}
        for label in rarest:
            found |= self._by_label.get(label, {})
        return iter(found)

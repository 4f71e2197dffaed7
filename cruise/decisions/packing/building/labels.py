"""Pods in groups of equal namespace and labels, so that a selector is evaluated for groups, never for pods."""

from collections import defaultdict
from collections.abc import Mapping

from cruise.decisions.scheduling.lookup import LabelIndex
from cruise.domain.cluster import Pod
from cruise.domain.scheduling import LabelSelector


class LabelGroups:
    """Numbers the distinct pairs of namespace and labels, and finds those that a selector means."""

    def __init__(self) -> None:
        self.groups: list[tuple[str, Mapping[str, str]]] = []
        self._numbers: dict[tuple[str, frozenset[tuple[str, str]]], int] = {}
        self._by_object: dict[tuple[str, int], int] = {}
        self._everywhere: LabelIndex[int] = LabelIndex()
        self._of_namespace: defaultdict[str, LabelIndex[int]] = defaultdict(LabelIndex)

    def number(self, pod: Pod) -> int:
        """Number a pod's group. The pod's labels must outlive this object: they are known again by identity."""
        by_object = (pod.namespace, id(pod.labels))
        number = self._by_object.get(by_object)
        if number is None:
            labels = frozenset(pod.labels.items())
            number = self._numbers.setdefault((pod.namespace, labels), len(self.groups))
            if number == len(self.groups):
                self.groups.append((pod.namespace, pod.labels))
                self._everywhere.add(labels, number)
                self._of_namespace[pod.namespace].add(labels, number)
            self._by_object[by_object] = number
        return number

    def selected(self, selector: LabelSelector, namespace: str | None = None) -> list[int]:
        """Return the groups that a selector selects, of one namespace or (None) of all."""
        index = self._everywhere if namespace is None else self._of_namespace[namespace]
        return [number for number in index.candidates(selector) if selector.selects(self.groups[number][1])]

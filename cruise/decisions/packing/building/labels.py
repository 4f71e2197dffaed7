"""Pods in groups of equal namespace and labels, so that a selector is evaluated for groups, never for pods."""

from collections.abc import Iterable, Mapping

from cruise.domain.cluster import Pod
from cruise.domain.scheduling import LabelSelector, Operator

Labels = Mapping[str, str]


class LabelGroups:
    """Numbers the distinct pairs of namespace and labels, and finds those that a selector means."""

    def __init__(self) -> None:
        self.groups: list[tuple[str, Labels]] = []
        self._numbers: dict[tuple[str, tuple[tuple[str, str], ...]], int] = {}
        self._by_object: dict[tuple[str, int], int] = {}
        self._with_label: dict[tuple[str, str], list[int]] = {}
        self._of_namespace: dict[str, list[int]] = {}

    def number(self, pod: Pod) -> int:
        """Number a pod's group. The pod's labels must outlive this object: they are known again by identity."""
        by_object = (pod.namespace, id(pod.labels))
        number = self._by_object.get(by_object)
        if number is None:
            key = (pod.namespace, tuple(sorted(pod.labels.items())))
            number = self._numbers.get(key)
            if number is None:
                number = self._numbers[key] = len(self.groups)
                self.groups.append((pod.namespace, pod.labels))
                self._of_namespace.setdefault(pod.namespace, []).append(number)
                for item in pod.labels.items():
                    self._with_label.setdefault(item, []).append(number)
            self._by_object[by_object] = number
        return number

    def selected(self, selector: LabelSelector) -> Iterable[int]:
        """Return the groups that a selector selects, in whatever namespace."""
        candidates: Iterable[int] = range(len(self.groups))
        fewest = len(self.groups)
        # Mostly a selector asks for some value of a label, which few groups have.
        for requirement in selector.requirements:
            if requirement.operator is Operator.IN:
                found = [self._with_label.get((requirement.key, value), []) for value in requirement.values]
                if sum(map(len, found)) < fewest:
                    fewest = sum(map(len, found))
                    candidates = dict.fromkeys(number for numbers in found for number in numbers)
        return [number for number in candidates if selector.selects(self.groups[number][1])]

    def selected_in(self, namespace: str, selector: LabelSelector) -> list[int]:
        """Return the groups of one namespace that a selector selects."""
        mine = self._of_namespace.get(namespace, [])
        if len(mine) < 8:
            return [number for number in mine if selector.selects(self.groups[number][1])]
        return [number for number in self.selected(selector) if self.groups[number][0] == namespace]

"""Which PodDisruptionBudgets cover a pod, without trying every pod against every budget of its namespace."""

from collections import Counter
from collections.abc import Iterable

from cruise.decisions.scheduling.lookup import SelectorIndex
from cruise.domain.cluster import DisruptionBudget, Pod


class CoveringBudgets:
    """The budgets of a cluster, found by a label that they require; pods with the same labels share an answer."""

    def __init__(self, budgets: Iterable[DisruptionBudget]) -> None:
        self._budgets = tuple(budgets)
        self._index: dict[str, SelectorIndex[int]] = {}
        for number, budget in enumerate(self._budgets):
            self._index.setdefault(budget.namespace, SelectorIndex()).add(budget.selector, number)
        self._known: dict[tuple[str, frozenset[tuple[str, str]]], tuple[DisruptionBudget, ...]] = {}

    def of(self, pod: Pod) -> tuple[DisruptionBudget, ...]:
        """The budgets against which an eviction of the pod counts, in the order in which they were given."""
        index = self._index.get(pod.namespace)
        if index is None:
            return ()
        key = (pod.namespace, frozenset(pod.labels.items()))
        found = self._known.get(key)
        if found is None:
            candidates = [self._budgets[number] for number in sorted(index.candidates(pod.labels))]
            found = self._known[key] = tuple([one for one in candidates if one.selector.selects(pod.labels)])
        return found

    def overdrawn(self, pods: Iterable[Pod]) -> list[tuple[DisruptionBudget, int]]:
        """Return the budgets that do not allow to evict some pods at once, with how many they cover of these."""
        counts = Counter(budget for pod in pods for budget in self.of(pod))
        found = [(budget, many) for budget, many in counts.items() if many > budget.disruptions_allowed]
        return sorted(found, key=lambda entry: (entry[0].namespace, entry[0].name))

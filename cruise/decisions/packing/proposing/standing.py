"""Which pods are on which node while a plan is carried out, and whether one more pod would be let in."""

from collections import Counter
from collections.abc import Set

import numpy as np

from cruise.domain.arrays import Int64Array
from cruise.packer.problem import Problem
from cruise.packer.rules.by_class import RulesByClass, rules_by_class
from cruise.packer.rules.counts import Counts

# CPU, memory and places: what each pod takes for itself, or by sizes that are decided.
_SIZED = 3


class Standing:
    """The moment: where each pod is, what is taken on each node, and the counts of rules between pods.

    `now[pod, resource]` is what a pod counts for where it is at first, `there` wherever it arrives.
    """

    def __init__(self, problem: Problem, arriving: frozenset[int], now: Int64Array, there: Int64Array) -> None:
        self._problem = problem
        self._now = now
        self._there = there
        self._source: list[int] = problem.pod_node.tolist()
        self._class_of: list[int] = problem.pod_class.tolist()
        self.node_of: list[int] = list(self._source)
        rules = rules_by_class(problem)
        self._counts = Counts(problem, rules, problem.pod_node)
        self._depends_on = {pod_class: _depends_on(rules, pod_class) for pod_class in arriving}
        self._dependents: dict[int, set[int]] = {}
        for pod_class, others in self._depends_on.items():
            for other in others:
                self._dependents.setdefault(other, set()).add(pod_class)
        # Beside CPU and memory, headroom is what pods on a node take once together.
        self._shares = problem.headroom[:, _SIZED:]
        self._sharing = np.zeros_like(problem.capacities[:, _SIZED:]) if self._shares.any() else None
        self._used = np.zeros_like(problem.capacities)
        here = problem.pod_node >= 0
        np.add.at(self._used, problem.pod_node[here], now[here])
        if self._sharing is not None:
            np.add.at(self._sharing, problem.pod_node[here], self._shares[problem.pod_class[here]])
        self._copies = Counter(
            (pod_class, node)
            for pod_class, node in zip(self._class_of, self.node_of, strict=True)
            if node >= 0 and pod_class in arriving
        )

    def class_of(self, pod: int) -> int:
        """Return a pod's class."""
        return self._class_of[pod]

    def depends_on(self, pod_class: int) -> Set[int]:
        """Return the classes on whose pods the arrival of one of this class may depend."""
        return self._depends_on.get(pod_class, frozenset())

    def dependents(self, pod_class: int) -> Set[int]:
        """Return the classes whose arrival may depend on pods of this one."""
        return self._dependents.get(pod_class, frozenset())

    def leave(self, pod: int) -> None:
        """Take a pod off its node."""
        self._counts.leave(pod)
        self._change(pod, self.node_of[pod], -1)
        self.node_of[pod] = -1

    def arrive(self, pod: int, node: int) -> None:
        """Put a pod on a node."""
        self.node_of[pod] = node
        self._counts.arrive(pod, node)
        self._change(pod, node, 1)

    def lets_in(self, pod: int, node: int) -> bool:
        """Tell whether kube-scheduler's filters would let the pod onto the node now."""
        pod_class, problem = self._class_of[pod], self._problem
        wanted = self._there[pod]
        if not problem.admits[problem.sites[pod_class], node]:
            return False
        if ((self._used[node] + wanted > problem.capacities[node]) & (wanted > 0)).any():
            return False
        if self._sharing is not None and self._lacks_for_all(pod_class, node, wanted[_SIZED:]):
            return False
        if self._copies[pod_class, node] >= problem.most_on_node[pod_class]:
            return False
        return self._counts.opens(pod_class, node)

    def _lacks_for_all(self, pod_class: int, node: int, wanted: Int64Array) -> bool:
        """Tell whether what pods share is too much beside the rest, once one of the class is among them."""
        assert self._sharing is not None
        shares = self._shares[pod_class]
        once = (self._sharing[node] + shares) > 0
        over = self._used[node, _SIZED:] + wanted + once > self._problem.capacities[node, _SIZED:]
        return bool((over & ((wanted > 0) | (shares > 0))).any())

    def _change(self, pod: int, node: int, by: int) -> None:
        pod_class = self._class_of[pod]
        amounts = self._now if node == self._source[pod] else self._there
        self._used[node] += by * amounts[pod]
        if self._sharing is not None:
            self._sharing[node] += by * self._shares[pod_class]
        self._copies[pod_class, node] += by


def _depends_on(rules: RulesByClass, pod_class: int) -> frozenset[int]:
    named = [others for _, _, others in rules.excluded.get(pod_class, ())]
    named += [rule.targets for _, rule in rules.attracted.get(pod_class, ())]
    named += [rule.targets for _, rule in rules.spread.get(pod_class, ())]
    return frozenset(other for others in named for other in others.tolist())

"""Which pods that run now give company to one that arrives before they leave."""

import numpy as np

from cruise.packer.problem import Attraction, Problem, copies_of
from cruise.packer.rules.by_class import RulesByClass


class Leavers:
    """The pods as they run now, beside each of which another may arrive while it is still there."""

    def __init__(self, problem: Problem, rules: RulesByClass) -> None:
        self._problem, self._rules = problem, rules
        self._running = copies_of(problem, problem.pod_node)
        stuck = np.where(problem.movable[:, None], 0, self._running)
        self._free = problem.capacities - stuck.T @ problem.demands

    def give_company(self, rule: Attraction, topology: int, node: int, home: int = -1) -> bool:
        """Whether a holder may arrive on a node for a target that runs in the domain; itself it may run at `home`."""
        row = self._problem.rules.topologies[topology]
        here = np.flatnonzero((row == row[node]) & (row >= 0))
        cells = np.argwhere(self._running[np.ix_(rule.targets, here)] > 0).tolist()
        return any(self._agree(rule.holder, node, int(rule.targets[t]), int(here[n]), home) for t, n in cells)

    def _agree(self, holder: int, node: int, target: int, there: int, home: int) -> bool:
        """Whether rules and room let a holder come to a node while the target is there."""
        problem = self._problem
        if target == holder and there == home and self._running[target, there] == 1:
            return False
        for _, rule, others in self._rules.excluded.get(holder, ()):
            row = problem.rules.topologies[rule.topology]
            if target in others.tolist() and row[node] == row[there] >= 0:
                return False
        if node != there:
            return True
        both = problem.demands[holder] + problem.demands[target]
        return bool((both <= self._free[node]).all()) and not (target == holder and problem.most_on_node[holder] == 1)

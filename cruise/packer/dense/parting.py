"""Ways to go on from an assignment where copies arrive without the company that attracts them: one of them holds."""

from dataclasses import dataclass, replace

import numpy as np

from cruise.packer.arrays import BoolArray, IntArray
from cruise.packer.dense.between import Between, at_least_one
from cruise.packer.dense.phase import Phase, beside
from cruise.packer.dense.residual import Residual
from cruise.packer.problem import Attraction, Problem, copies_of


@dataclass(frozen=True, slots=True, eq=False)
class Way:
    """Of class `holder` a node has `most[node]` copies, or `rows` hold."""

    holder: int
    most: IntArray | None
    rows: Between | None

    def narrow(self, phase: Phase, residual: Residual) -> Phase:
        """The question with this besides; the same one where that cannot be said of its groups."""
        if self.rows is not None:
            return beside(phase, residual, self.rows)
        classes = residual.origin[phase.classes]
        caps = np.zeros(len(phase.group_size), dtype=np.int64)
        np.maximum.at(caps, phase.node_group, np.asarray(self.most))
        limits = np.where(classes == self.holder, np.minimum(phase.limits, caps[:, None]), phase.limits)
        return replace(phase, limits=limits) if (limits < phase.limits).any() else phase


def ways_of(problem: Problem, assignment: IntArray) -> list[Way]:
    """The ways that part what is left by the first attraction that an assignment breaks; none where it breaks none."""
    running = copies_of(problem, problem.pod_node)
    for rule in problem.rules.attractions:
        arrives = assignment[rule.holder] > running[rule.holder]
        for domains in problem.rules.topologies[list(rule.topologies)]:
            for domain in np.unique(domains[arrives & (domains >= 0)]).tolist():
                ways = _ways(problem, rule, domains == domain, domains >= 0, running, assignment)
                if ways:
                    return ways
    return []


def _ways(
    problem: Problem, rule: Attraction, inside: BoolArray, named: BoolArray, running: IntArray, assignment: IntArray
) -> list[Way]:
    c, any_number = rule.holder, problem.pod_count
    stays = Way(c, np.where(inside, running[c], any_number), None)
    if rule.may_be_first:
        # Where none of them runs one can only be the first of all, and others follow into its domain alone.
        elsewhere = named & ~inside
        if rule.targets.tolist() != [c] or len(rule.topologies) > 1 or running[c, inside].any():
            return []
        if not assignment[c, elsewhere].any():
            return []
        stuck = not problem.movable[c] and running[c, elsewhere].any()
        return [stays] if stuck else [stays, Way(c, np.where(elsewhere, 0, any_number), None)]
    if len(rule.targets) > 1 or assignment[np.ix_(rule.targets, inside)].any():
        return []
    target = int(rule.targets[0])
    return [stays, Way(c, None, at_least_one(target, int((problem.pod_class == target).sum()), inside))]

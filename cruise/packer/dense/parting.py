"""Ways to go on from an assignment where copies arrive without the company that attracts them: one of them holds."""

from dataclasses import dataclass

import numpy as np

from cruise.packer.arrays import BoolArray, FloatArray, IntArray
from cruise.packer.dense.between import attracting_by_domain, domains_of
from cruise.packer.dense.phase import Phase
from cruise.packer.dense.residual import Residual
from cruise.packer.problem import Problem, copies_of


@dataclass(frozen=True, slots=True, eq=False)
class Bond:
    """An attraction in a domain, of a question in which every node is a group.

    `holder` and `targets` are among the question's classes; `inside` and `elsewhere` mark nodes, on which `ran[node]`
    holders run. A `row` of the question counts targets inside; -1 where holders are the first of all.
    """

    holder: int
    targets: BoolArray
    inside: BoolArray
    elsewhere: BoolArray
    ran: IntArray
    row: int

    def lonely(self, groups: IntArray, amounts: FloatArray, fillings: IntArray) -> float:
        """How uncertain it is, from 0 to 1, whether holders that arrive have company; `amounts` are of fillings."""
        inside = self.inside[groups]
        arriving = np.maximum(fillings[:, self.holder] - self.ran[groups], 0)
        arrives = float(amounts[inside] @ arriving[inside])
        if self.row < 0:
            others = float(amounts @ (fillings[:, self.holder] * self.elsewhere[groups]))
            return min(arrives, others, 1.0)
        there = float(amounts[inside] @ fillings[inside][:, self.targets].sum(axis=1))
        return min(arrives, 1.0) * max(1.0 - there, 0.0)


def bonds_of(problem: Problem, residual: Residual, phase: Phase) -> tuple[Bond, ...]:
    """The attractions of a question by domain, where it has all the targets and may ask for them."""
    classes, rules = residual.origin[phase.classes], problem.rules
    asked, found = set(attracting_by_domain(problem)), []
    running = copies_of(problem, problem.pod_node)
    for rule in rules.attractions:
        holders, targets = np.flatnonzero(classes == rule.holder), np.isin(classes, rule.targets)
        first = rule.may_be_first
        if not len(holders) or targets.sum() != 1 or len(rule.targets) > 1 or (first and len(rule.topologies) > 1):
            continue
        for topology in rule.topologies:
            row = rules.topologies[topology]
            for domain in domains_of(row) if (int(rule.targets[0]), topology) in asked else ():
                inside = row == domain
                ran = running[rule.holder]
                settled = ran[inside].any() if first else residual.nailed[rule.targets][:, inside].any()
                if not settled:
                    counting = np.where(targets, inside[:, None], False)
                    number = -1 if first else int(np.argmax((phase.row_share == counting).all(axis=(1, 2))))
                    moving = residual.running[phase.classes[holders[0]]]
                    found.append(Bond(int(holders[0]), targets, inside, (row >= 0) & ~inside, moving, number))
    return tuple(found)

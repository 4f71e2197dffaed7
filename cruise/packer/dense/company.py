"""Fillings of nodes without the copies that may not arrive there alone: attractions by node, said of one node."""

from dataclasses import dataclass

import numpy as np

from cruise.packer.arrays import BoolArray, IntArray
from cruise.packer.dense.phase import Phase
from cruise.packer.dense.residual import Residual
from cruise.packer.problem import Problem
from cruise.packer.rules.folding import each_its_own


@dataclass(frozen=True, slots=True, eq=False)
class Company:
    """Of `holder[k]` a node of a group has `alone[k, group]` copies where it has none of the `targets[k, class]`."""

    holder: IntArray
    targets: BoolArray
    alone: IntArray

    def lonely(self, group: int, filling: IntArray) -> int:
        """The first rule that a filling breaks, -1 for none."""
        many = filling[self.holder] > self.alone[:, group]
        broken = np.flatnonzero(many & ~(self.targets & (filling > 0)).any(axis=1))
        return int(broken[0]) if len(broken) else -1

    def accompany(self, group: int, least: IntArray) -> None:
        """Let the least that a group has include the company that it needs, where only one class can be that."""
        for _ in self.holder:
            rule = self.lonely(group, least)
            if rule < 0 or self.targets[rule].sum() != 1:
                return
            least[self.targets[rule]] = 1


NO_COMPANY = Company(np.zeros(0, dtype=np.int64), np.zeros((0, 0), dtype=np.bool_), np.zeros((0, 0), dtype=np.int64))


def company_of(problem: Problem, residual: Residual, phase: Phase) -> Company:
    """What attractions by node ask of a phase's fillings, where all their targets are among its classes."""
    classes, rules = residual.origin[phase.classes], problem.rules
    rows = []
    for rule in rules.attractions:
        mine = np.flatnonzero(classes == rule.holder)
        elsewhere = np.setdiff1d(np.intersect1d(rule.targets, residual.origin), classes)
        by_node = any(each_its_own(rules.topologies[topology]) for topology in rule.topologies)
        if len(mine) and by_node and not rule.may_be_first and not len(elsewhere):
            ran = residual.running[phase.classes[mine[0]]]
            # Beside what cannot move any number may be.
            alone = np.where(residual.nailed[rule.targets].any(axis=0), np.iinfo(np.int64).max, ran)
            most = np.zeros(len(phase.group_size), dtype=np.int64)
            np.maximum.at(most, phase.node_group, alone)
            rows.append((int(mine[0]), np.isin(classes, rule.targets), most))
    return Company(
        np.array([holder for holder, _, _ in rows], dtype=np.int64),
        np.array([targets for _, targets, _ in rows], dtype=np.bool_).reshape(len(rows), len(classes)),
        np.array([most for _, _, most in rows], dtype=np.int64).reshape(len(rows), len(phase.group_size)),
    )

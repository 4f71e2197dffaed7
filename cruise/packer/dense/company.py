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

    def keep(self, groups: IntArray, fillings: IntArray) -> IntArray:
        """The fillings without what would be alone; those with company are in other ones."""
        kept = fillings.copy()
        # What leaves may have been company itself.
        for _ in self.holder:
            before = kept.copy()
            for holder, targets, alone in zip(self.holder.tolist(), self.targets, self.alone, strict=True):
                lonely = kept[:, targets].sum(axis=1) == 0
                kept[:, holder] = np.where(lonely, np.minimum(kept[:, holder], alone[groups]), kept[:, holder])
            if (kept == before).all():
                break
        return kept


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

"""CP-SAT's part: whether one filling a node, out of those that may still matter, can reach a target."""

import math

import numpy as np
from ortools.sat.python import cp_model

from cruise.packer.arrays import IntArray
from cruise.packer.dense.phase import Phase
from cruise.packer.dense.verdict import Verdict

_SEED = 1


def decide_target(
    phase: Phase, groups: IntArray, fillings: IntArray, target: int, seconds: float, effort: float
) -> Verdict:
    """Decide whether a choice of the fillings reaches `target`, within seconds and deterministic effort."""
    model = cp_model.CpModel()
    sizes = phase.group_size[groups]
    uses = [model.new_int_var(0, int(size), "") for size in sizes.tolist()]
    for group in range(len(phase.group_size)):
        mine = np.flatnonzero(groups == group).tolist()
        if mine:
            model.add(cp_model.LinearExpr.sum([uses[k] for k in mine]) <= int(phase.group_size[group]))
    counts: list[cp_model.IntVar | None] = []
    for c in range(len(phase.classes)):
        users = np.flatnonzero(fillings[:, c]).tolist()
        cover = cp_model.LinearExpr.weighted_sum([uses[k] for k in users], fillings[users, c].tolist())
        if phase.must[c]:
            counts.append(None)
            model.add(cover >= int(phase.counts[c]))
        else:
            count = model.new_int_var(0, int(phase.counts[c]), "")
            counts.append(count)
            model.add(cover >= count)
    stays = np.minimum(fillings, phase.running[groups])
    for need in range(len(phase.need_least)):
        members = phase.need_members[need]
        if phase.need_stays[need]:
            model.add(_weighted(uses, stays[:, members].sum(axis=1)) >= int(phase.need_least[need]))
        else:
            model.add(
                cp_model.LinearExpr.sum([counts[c] for c in np.flatnonzero(members).tolist()])
                >= int(phase.need_least[need])
            )
    counted = [counts[c] for c in np.flatnonzero(phase.counted).tolist()]
    kept = _weighted(uses, stays @ phase.kept)
    model.add(cp_model.LinearExpr.sum([cp_model.LinearExpr.sum(counted), kept]) >= target)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.linearization_level = 2
    solver.parameters.random_seed = _SEED
    if seconds < math.inf:
        solver.parameters.max_time_in_seconds = max(seconds, 0.001)
    if effort < math.inf:
        solver.parameters.max_deterministic_time = max(effort, 0.001)
    status = solver.solve(model)
    effort_spent = float(solver.response_proto.deterministic_time)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Verdict(True, np.array([solver.value(use) for use in uses], dtype=np.int64), effort_spent)
    return Verdict(False if status == cp_model.INFEASIBLE else None, np.zeros(0, dtype=np.int64), effort_spent)


def _weighted(uses: list[cp_model.IntVar], weights: IntArray) -> cp_model.LinearExprT:
    some = np.flatnonzero(weights).tolist()
    return cp_model.LinearExpr.weighted_sum([uses[k] for k in some], weights[some].tolist())

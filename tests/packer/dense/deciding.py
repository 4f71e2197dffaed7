"""What CP-SAT says of whether one filling a node, out of those that are listed, can reach a target."""

import numpy as np
from ortools.sat.python import cp_model

from cruise.packer.arrays import IntArray
from cruise.packer.budget import Meter
from cruise.packer.cpsat import solve
from cruise.packer.dense.branching import Verdict
from cruise.packer.dense.phase import Phase


def decide_target(phase: Phase, groups: IntArray, fillings: IntArray, target: int, meter: Meter) -> Verdict:
    """Decide whether a choice of the fillings reaches `target`, with what the meter has left."""
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
    outcome = solve(model, meter)
    if outcome.found:
        return Verdict(True, np.array([outcome.solver.value(use) for use in uses], dtype=np.int64))
    refuted = outcome.solver.response_proto.status == cp_model.INFEASIBLE
    return Verdict(False if refuted else None, np.zeros(0, dtype=np.int64))


def _weighted(uses: list[cp_model.IntVar], weights: IntArray) -> cp_model.LinearExprT:
    some = np.flatnonzero(weights).tolist()
    return cp_model.LinearExpr.weighted_sum([uses[k] for k in some], weights[some].tolist())

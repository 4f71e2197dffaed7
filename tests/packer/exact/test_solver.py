"""One call of CP-SAT: an invalid model gets an answer too."""

import math
from pathlib import Path

import pytest
from ortools.sat.python import cp_model

from cruise.packer.budget import BudgetMeter
from cruise.packer.exact.solver import run_solver

# What is left of a cluster that was to be consolidated, with the hints of a plan that is known.
LOST = Path(__file__).parent / "lost_in_hints.pb.txt"


def test_a_hint_that_is_lost_on_the_way_costs_no_answer():
    model = cp_model.CpModel()
    model.proto.parse_text_format(LOST.read_text())
    # Once a release of OR-Tools answers this, the second try in `solve` may go.
    with pytest.raises(IndexError):
        cp_model.CpSolver().solve(model)
    outcome = run_solver(model, BudgetMeter(math.inf, 1e10))
    assert outcome.found
    assert outcome.bound == outcome.solver.objective_value

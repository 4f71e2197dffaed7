"""A model of all rules, what is maximised in it, and one call of the solver."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from ortools.sat.python import cp_model

from cruise.packer.arrays import IntArray
from cruise.packer.budget import Meter
from cruise.packer.constrained.between_pods import keep_between_pods
from cruise.packer.constrained.cells import Cells, Count
from cruise.packer.constrained.grounding import keep_grounded
from cruise.packer.constrained.layout import Layout
from cruise.packer.constrained.room import keep_preemption_to_those_who_may, keep_to_capacity, keep_to_counts
from cruise.packer.cpsat import EFFORT_UNIT, solve
from cruise.packer.problem import Objective

# About how long a model takes to be built, with its rules.
SECONDS_A_VARIABLE = 5e-5

Found = Callable[[IntArray], None]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call found: an assignment, and what its objective surpasses nowhere; None for nothing."""

    assignment: IntArray | None
    bound: int | None


class Model:
    """All rules; `entries` are the objective's key less what is stuck, the most urgent first."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.cells = Cells(layout)
        keep_to_counts(self.cells)
        keep_to_capacity(self.cells)
        keep_preemption_to_those_who_may(self.cells)
        keep_between_pods(self.cells)
        keep_grounded(self.cells)
        self.entries = _entries(self.cells)

    def demand(self, entry: int, least: int) -> None:
        """From now on an entry of the key is to be at least so much."""
        self.cells.require(self.entries[entry].expression() >= least)

    def cap(self, entry: int, most: int) -> None:
        """From now on an entry of the key is to be no more than what is known to bound it."""
        self.cells.require(self.entries[entry].expression() <= most)

    @property
    def effort(self) -> float:
        """What building it stands for in work units."""
        return EFFORT_UNIT * SECONDS_A_VARIABLE * len(self.cells.model.proto.variables)

    def complete_hint(self, assignment: IntArray, meter: Meter) -> bool:
        """Hint at every variable, and tell whether the model allows the assignment at all."""
        model, layout = self.cells.model, self.layout
        model.clear_hints()  # type: ignore[no-untyped-call]
        for cell, variable in self.cells.stay.items():
            model.add_hint(variable, int(min(assignment[cell], layout.running[cell]) - layout.stuck[cell]))
        for cell, variable in self.cells.arrive.items():
            model.add_hint(variable, int(max(assignment[cell] - layout.running[cell], 0)))
        outcome = solve(model, meter, as_hinted=True)
        if not outcome.found:
            return False
        self._hint_all(outcome.solver)
        # What has no variable, or is more than its variable may be, was not hinted at.
        return bool((self.read(outcome.solver.value) == assignment).all())

    def maximise(self, entry: int, meter: Meter, found: Found) -> Answer:
        """Look for the greatest value of an entry of the key, and hint at what is found from then on."""
        self.cells.model.maximize(self.entries[entry].expression())
        outcome = solve(self.cells.model, meter, _Listener(self, found))
        if not outcome.found:
            return Answer(None, None)
        self._hint_all(outcome.solver)
        bound = None if outcome.bound is None else math.floor(outcome.bound + 1e-6)
        return Answer(self.read(outcome.solver.value), bound)

    def read(self, value: Callable[[cp_model.IntVar], int]) -> IntArray:
        """The assignment that the variables' values make."""
        cells = self.cells
        assignment: IntArray = self.layout.stuck.copy()
        for variables in (cells.stay, cells.arrive):
            for cell, variable in variables.items():
                assignment[cell] += value(variable)
        return assignment

    def _hint_all(self, solver: cp_model.CpSolver) -> None:
        model = self.cells.model
        model.clear_hints()  # type: ignore[no-untyped-call]
        solution = solver.response_proto.solution
        for index, level in enumerate(solution):
            model.add_hint(model.get_int_var_from_proto_index(index), level)


class _Listener(cp_model.CpSolverSolutionCallback):
    def __init__(self, model: Model, found: Found) -> None:
        super().__init__()
        self._model, self._found = model, found

    def on_solution_callback(self) -> None:
        self._found(self._model.read(self.value))


def _entries(cells: Cells) -> list[Count]:
    problem, classes = cells.layout.problem, list(cells.nodes_of)
    entries = []
    for priority in np.unique(problem.priorities)[::-1].tolist():
        tier = [pod_class for pod_class in classes if problem.priorities[pod_class] == priority]
        entries.append(_sum_of(cells, (cells.stay, cells.arrive), dict.fromkeys(tier, 1)))
        if problem.objective is Objective.PAPER:
            entries.append(_sum_of(cells, (cells.stay,), dict.fromkeys(tier, 1)))
    if problem.objective is Objective.FLEET:
        entries.append(_price(cells))
    if problem.objective is not Objective.PAPER:
        weights = {c: int(problem.weights[c]) for c in classes if problem.weights[c]}
        entries.append(_sum_of(cells, (cells.stay,), weights))
    return entries


def _price(cells: Cells) -> Count:
    """What the nodes cost, below zero, that nothing stuck occupies, for those that something else does."""
    fleet = cells.layout.problem.fleet
    assert fleet is not None
    count = Count()
    occupying = np.flatnonzero(fleet.occupies).tolist()
    for node, price in enumerate(fleet.prices.tolist()):
        held = cells.held(occupying, (node,))
        if price and held.most and not held.known:
            spare = cells.model.new_bool_var("")
            cells.require(held.expression() <= 0, spare)
            count.take(spare, 1, price)
            count.know(-price)
    return count


def _sum_of(cells: Cells, kinds: tuple[dict[tuple[int, int], cp_model.IntVar], ...], weights: dict[int, int]) -> Count:
    """What is decided of some classes, at their weights."""
    count = Count()
    for variables in kinds:
        most = cells.stay_most if variables is cells.stay else cells.arrive_most
        for pod_class, weight in weights.items():
            for node in cells.nodes_of[pod_class]:
                cell = pod_class, node
                if cell in variables:
                    count.take(variables[cell], most[cell], weight)
    return count

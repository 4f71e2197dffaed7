"""A model of all rules, what is maximised in it, and one call of the solver."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from ortools.sat.python import cp_model

from cruise.packer.answer import Packing, PackingNote, PackingNoteCode, ReportFunction
from cruise.packer.budget import BudgetMeter
from cruise.packer.exact.affinity import add_affinity_constraints
from cruise.packer.exact.constraints import (
    add_capacity_constraints,
    add_count_constraints,
    add_pod_rule_constraints,
    add_preemption_constraints,
)
from cruise.packer.exact.incumbent import Incumbent, build_incumbent, compute_copies_key
from cruise.packer.exact.layout import ProblemLayout, add_returning_copies
from cruise.packer.exact.solver import EFFORT_UNIT, run_solver
from cruise.packer.exact.variables import BoundedSum, PlacementVariables
from cruise.packer.problem import IntArray, PackingObjective, PackingProblem

# About how long a model takes to be built, with its rules.
SECONDS_A_VARIABLE = 5e-5

CopyAssignment = Callable[[IntArray], None]


@dataclass(frozen=True, slots=True)
class SolverAnswer:
    """What a call found: an assignment, and what its objective surpasses nowhere; None for nothing."""

    assignment: IntArray | None
    bound: int | None


class ConstraintModel:
    """All rules; `entries` are the objective's key less what is stuck, the most urgent first."""

    def __init__(self, layout: ProblemLayout) -> None:
        self.layout = layout
        self.cells = PlacementVariables(layout)
        add_count_constraints(self.cells)
        add_capacity_constraints(self.cells)
        add_preemption_constraints(self.cells)
        add_pod_rule_constraints(self.cells)
        add_affinity_constraints(self.cells)
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

    def complete_hint(self, assignment: IntArray, meter: BudgetMeter) -> bool:
        """Hint at every variable, and tell whether the model allows the assignment at all."""
        model, layout = self.cells.model, self.layout
        model.clear_hints()  # type: ignore[no-untyped-call]
        for cell, variable in self.cells.stay.items():
            model.add_hint(variable, int(min(assignment[cell], layout.running[cell]) - layout.immovable[cell]))
        for cell, variable in self.cells.arrive.items():
            model.add_hint(variable, int(max(assignment[cell] - layout.running[cell], 0)))
        outcome = run_solver(model, meter, as_hinted=True)
        if not outcome.found:
            return False
        self._hint_all(outcome.solver)
        # What has no variable, or is more than its variable may be, was not hinted at.
        return bool((self.read(outcome.solver.value) == assignment).all())

    def maximise(self, entry: int, meter: BudgetMeter, found: CopyAssignment) -> SolverAnswer:
        """Look for the greatest value of an entry of the key, and hint at what is found from then on."""
        self.cells.model.maximize(self.entries[entry].expression())
        outcome = run_solver(self.cells.model, meter, _SolutionCallback(self, found))
        if not outcome.found:
            return SolverAnswer(None, None)
        self._hint_all(outcome.solver)
        bound = None if outcome.bound is None else math.floor(outcome.bound + 1e-6)
        return SolverAnswer(self.read(outcome.solver.value), bound)

    def read(self, value: Callable[[cp_model.IntVar], int]) -> IntArray:
        """The assignment that the variables' values make."""
        cells = self.cells
        assignment: IntArray = self.layout.immovable.copy()
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


class _SolutionCallback(cp_model.CpSolverSolutionCallback):
    def __init__(self, model: ConstraintModel, found: CopyAssignment) -> None:
        super().__init__()
        self._model, self._found = model, found

    def on_solution_callback(self) -> None:
        self._found(self._model.read(self.value))


def _entries(cells: PlacementVariables) -> list[BoundedSum]:
    problem, classes = cells.layout.problem, list(cells.nodes_of)
    entries = []
    for priority in np.unique(problem.priorities)[::-1].tolist():
        tier = [pod_class for pod_class in classes if problem.priorities[pod_class] == priority]
        entries.append(_sum_of(cells, (cells.stay, cells.arrive), dict.fromkeys(tier, 1)))
        if problem.objective is PackingObjective.PAPER:
            entries.append(_sum_of(cells, (cells.stay,), dict.fromkeys(tier, 1)))
    if problem.objective is PackingObjective.FLEET:
        entries.append(_price(cells))
    if problem.objective is not PackingObjective.PAPER:
        weights = {c: int(problem.weights[c]) for c in classes if problem.weights[c]}
        entries.append(_sum_of(cells, (cells.stay,), weights))
    return entries


def _price(cells: PlacementVariables) -> BoundedSum:
    """What the nodes cost, below zero, that nothing stuck occupies, for those that something else does."""
    fleet = cells.layout.problem.node_prices
    assert fleet is not None
    count = BoundedSum()
    occupying = np.flatnonzero(fleet.keeps_node_in_use).tolist()
    for node, price in enumerate(fleet.prices.tolist()):
        held = cells.get_held(occupying, (node,))
        if price and held.maximum and not held.constant:
            spare = cells.model.new_bool_var("")
            cells.require(held.expression() <= 0, spare)
            count.add_variable(spare, 1, price)
            count.add_constant(-price)
    return count


def _sum_of(
    cells: PlacementVariables, kinds: tuple[dict[tuple[int, int], cp_model.IntVar], ...], weights: dict[int, int]
) -> BoundedSum:
    """What is decided of some classes, at their weights."""
    count = BoundedSum()
    for variables in kinds:
        most = cells.stay_most if variables is cells.stay else cells.arrive_most
        for pod_class, weight in weights.items():
            for node in cells.nodes_of[pod_class]:
                cell = pod_class, node
                if cell in variables:
                    count.add_variable(variables[cell], most[cell], weight)
    return count


_ENTRY_SHARE, _BUILDING_SHARE = 0.4, 0.3


def solve_exact(
    problem: PackingProblem, start: IntArray, meter: BudgetMeter, report: ReportFunction, relaxed: tuple[int, ...] = ()
) -> Packing:
    """Pack as well as the meter lets, never worse than `start` or than what runs now.

    `start[pod]` is a node or -1, and obeys every rule. `relaxed` is the bound of the same problem without some of its
    rules. With work units, and no deadline, the answer repeats exactly.
    """
    incumbent = build_incumbent(problem, start, report, relaxed)
    if not incumbent.is_proved:
        maximise_and_prove(incumbent, meter)
    return incumbent.packing()


def maximise_and_prove(incumbent: Incumbent, meter: BudgetMeter) -> None:
    """Maximise one entry of the key after the other, those before held at what is reached.

    Where copies may return, what bounds an entry is a model of its own: it finds nothing. Nothing is done where
    building the model alone would take much of what is left.
    """
    layout = incumbent.layout
    if not _pays(layout, meter):
        return
    fixed = compute_copies_key(layout, layout.immovable)
    model = ConstraintModel(layout)
    meter.spend(model.effort)
    if not model.complete_hint(incumbent.assignment, meter):
        return
    returns = add_returning_copies(layout)
    bounding = model if returns is None else ConstraintModel(returns)
    last = len(incumbent.key) - 1
    for entry in range(last + 1):
        if incumbent.get_open_entries(entry) and not meter.is_exhausted():
            for one in dict.fromkeys((model, bounding)):
                one.cap(entry, incumbent.bound[entry] - fixed[entry])
            with meter.get_part(1.0 if entry == last else _ENTRY_SHARE) as own:
                bound = _maximised(incumbent, entry, model, bounding, own)
            if bound is not None:
                incumbent.lower(entry, bound + fixed[entry])
        if incumbent.is_proved or meter.is_exhausted():
            return
        for one in dict.fromkeys((model, bounding)):
            one.demand(entry, incumbent.key[entry] - fixed[entry])


def _maximised(
    incumbent: Incumbent, entry: int, model: ConstraintModel, bounding: ConstraintModel, meter: BudgetMeter
) -> int | None:
    """Offer the best in an entry of the key that a model finds; the bound that another one gives."""
    answer = model.maximise(entry, meter, incumbent.offer)
    if answer.assignment is not None:
        incumbent.offer(answer.assignment)
    if answer.bound is not None and bounding is not model:
        answer = _bounded(incumbent, entry, answer.bound, bounding, meter)
    return answer.bound


def _pays(layout: ProblemLayout, meter: BudgetMeter) -> bool:
    """Whether a model is built in a small part of what is left."""
    variables = int((layout.running > layout.immovable).sum() + (layout.maximum > 0).sum())
    building = variables * SECONDS_A_VARIABLE / _BUILDING_SHARE
    return not meter.is_exhausted() and building < min(meter.get_remaining_seconds(), meter.work_left / EFFORT_UNIT)


def _bounded(
    incumbent: Incumbent, entry: int, without: int, bounding: ConstraintModel, meter: BudgetMeter
) -> SolverAnswer:
    """The bound of a model in which copies return, and a note where it is more than without."""
    bounding.complete_hint(incumbent.assignment, meter)
    answer = bounding.maximise(entry, meter, _ignore)
    if answer.bound is None or answer.bound > without:
        incumbent.notes = (PackingNote(PackingNoteCode.OTHER_ORDERS),)
    return answer


def _ignore(assignment: IntArray) -> None:
    """What returns is none of an assignment that is carried out."""

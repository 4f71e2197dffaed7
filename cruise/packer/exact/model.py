"""Builds the CP-SAT model of all rules, maximizes the entries of the key one after the other, and proves bounds."""

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

# Seconds to build a model with its rules, per variable.
SECONDS_A_VARIABLE = 5e-5

CopyAssignment = Callable[[IntArray], None]


@dataclass(frozen=True, slots=True)
class SolverAnswer:
    """What a call found: an assignment, and a bound of its objective; None for nothing."""

    assignment: IntArray | None
    bound: int | None


class ConstraintModel:
    """The model of all rules; `entries` are those of the key without immovable copies."""

    def __init__(self, layout: ProblemLayout) -> None:
        self.layout = layout
        self.variables = PlacementVariables(layout)
        add_count_constraints(self.variables)
        add_capacity_constraints(self.variables)
        add_preemption_constraints(self.variables)
        add_pod_rule_constraints(self.variables)
        add_affinity_constraints(self.variables)
        self.entries = _build_entries(self.variables)

    def require_minimum(self, entry: int, least: int) -> None:
        """Require at least so much of an entry from now on."""
        self.variables.require(self.entries[entry].build_expression() >= least)

    def apply_bound(self, entry: int, most: int) -> None:
        """Limit an entry to its known bound from now on."""
        self.variables.require(self.entries[entry].build_expression() <= most)

    @property
    def effort(self) -> float:
        """Return the work units of building the model."""
        return EFFORT_UNIT * SECONDS_A_VARIABLE * len(self.variables.model.proto.variables)

    def complete_hint(self, assignment: IntArray, meter: BudgetMeter) -> bool:
        """Hint every variable, and tell whether the model allows the assignment."""
        model, layout = self.variables.model, self.layout
        model.clear_hints()  # type: ignore[no-untyped-call]
        for cell, variable in self.variables.stay.items():
            model.add_hint(variable, int(min(assignment[cell], layout.running[cell]) - layout.immovable[cell]))
        for cell, variable in self.variables.arrive.items():
            model.add_hint(variable, int(max(assignment[cell] - layout.running[cell], 0)))
        outcome = run_solver(model, meter, as_hinted=True)
        if not outcome.found:
            return False
        self._hint_all(outcome.solver)
        # Copies without a variable, or above its maximum, were not hinted.
        return bool((self.get_assignment(outcome.solver.value) == assignment).all())

    def maximise(self, entry: int, meter: BudgetMeter, found: CopyAssignment) -> SolverAnswer:
        """Maximize an entry of the key, and hint the result from then on."""
        self.variables.model.maximize(self.entries[entry].build_expression())
        outcome = run_solver(self.variables.model, meter, _SolutionCallback(self, found))
        if not outcome.found:
            return SolverAnswer(None, None)
        self._hint_all(outcome.solver)
        bound = None if outcome.bound is None else math.floor(outcome.bound + 1e-6)
        return SolverAnswer(self.get_assignment(outcome.solver.value), bound)

    def get_assignment(self, value: Callable[[cp_model.IntVar], int]) -> IntArray:
        """Return the assignment of the variables' values."""
        assignment: IntArray = self.layout.immovable.copy()
        for kind in (self.variables.stay, self.variables.arrive):
            for cell, variable in kind.items():
                assignment[cell] += value(variable)
        return assignment

    def _hint_all(self, solver: cp_model.CpSolver) -> None:
        model = self.variables.model
        model.clear_hints()  # type: ignore[no-untyped-call]
        solution = solver.response_proto.solution
        for index, level in enumerate(solution):
            model.add_hint(model.get_int_var_from_proto_index(index), level)


class _SolutionCallback(cp_model.CpSolverSolutionCallback):
    def __init__(self, model: ConstraintModel, found: CopyAssignment) -> None:
        super().__init__()
        self._model, self._found = model, found

    def on_solution_callback(self) -> None:
        self._found(self._model.get_assignment(self.value))


def _build_entries(variables: PlacementVariables) -> list[BoundedSum]:
    problem, classes = variables.layout.problem, list(variables.nodes_of)
    entries = []
    for priority in np.unique(problem.priorities)[::-1].tolist():
        tier = [pod_class for pod_class in classes if problem.priorities[pod_class] == priority]
        entries.append(_sum_classes(variables, (variables.stay, variables.arrive), dict.fromkeys(tier, 1)))
        if problem.objective is PackingObjective.PAPER:
            entries.append(_sum_classes(variables, (variables.stay,), dict.fromkeys(tier, 1)))
    if problem.objective is PackingObjective.CONSOLIDATION:
        entries.append(_build_price(variables))
    if problem.objective is not PackingObjective.PAPER:
        weights = {c: int(problem.weights[c]) for c in classes if problem.weights[c]}
        entries.append(_sum_classes(variables, (variables.stay,), weights))
    return entries


def _build_price(variables: PlacementVariables) -> BoundedSum:
    """Return the negative price of the nodes in use."""
    node_prices = variables.layout.problem.node_prices
    assert node_prices is not None
    count = BoundedSum()
    classes = np.flatnonzero(node_prices.keeps_node_in_use).tolist()
    for node, price in enumerate(node_prices.prices.tolist()):
        placed = variables.count_placed(classes, (node,))
        if price and placed.maximum and not placed.constant:
            is_unused = variables.model.new_bool_var("")
            variables.require(placed.build_expression() <= 0, is_unused)
            count.add_variable(is_unused, 1, price)
            count.add_constant(-price)
    return count


def _sum_classes(
    variables: PlacementVariables, kinds: tuple[dict[tuple[int, int], cp_model.IntVar], ...], weights: dict[int, int]
) -> BoundedSum:
    """Return the weighted sum of the variables of some classes."""
    count = BoundedSum()
    for kind in kinds:
        most = variables.stay_most if kind is variables.stay else variables.arrive_most
        for pod_class, weight in weights.items():
            for node in variables.nodes_of[pod_class]:
                cell = pod_class, node
                if cell in kind:
                    count.add_variable(kind[cell], most[cell], weight)
    return count


_ENTRY_SHARE, _BUILDING_SHARE = 0.4, 0.3


def solve_exact(
    problem: PackingProblem, start: IntArray, meter: BudgetMeter, report: ReportFunction, relaxed: tuple[int, ...] = ()
) -> Packing:
    """Return the best packing that the meter allows, never worse than `start` or the present one.

    `start[pod]` is a node or -1, and obeys every rule. `relaxed` is the bound of the problem with fewer rules. With
    work units and no deadline, the answer is reproducible.
    """
    incumbent = build_incumbent(problem, start, report, relaxed)
    if not incumbent.is_proved:
        maximise_all_objectives(incumbent, meter)
    return incumbent.build_packing()


def maximise_all_objectives(incumbent: Incumbent, meter: BudgetMeter) -> None:
    """Maximize one entry of the key after the other, with earlier ones fixed at what is reached.

    If copies may return to their node, a separate model proves the bound. Nothing is done if building the model would
    take too much of the remaining budget.
    """
    layout = incumbent.layout
    if not _is_worth_building(layout, meter):
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
        if incumbent.is_open(entry) and not meter.is_exhausted():
            for one in dict.fromkeys((model, bounding)):
                one.apply_bound(entry, incumbent.bound[entry] - fixed[entry])
            with meter.get_part(1.0 if entry == last else _ENTRY_SHARE) as own:
                bound = _maximise_entry(incumbent, entry, model, bounding, own)
            if bound is not None:
                incumbent.lower_bound(entry, bound + fixed[entry])
        if incumbent.is_proved or meter.is_exhausted():
            return
        for one in dict.fromkeys((model, bounding)):
            one.require_minimum(entry, incumbent.key[entry] - fixed[entry])


def _maximise_entry(
    incumbent: Incumbent, entry: int, model: ConstraintModel, bounding: ConstraintModel, meter: BudgetMeter
) -> int | None:
    """Offer the best assignment of a model in an entry; return the bound of the other model."""
    answer = model.maximise(entry, meter, incumbent.offer)
    if answer.assignment is not None:
        incumbent.offer(answer.assignment)
    if answer.bound is not None and bounding is not model:
        answer = _bound_with_returns(incumbent, entry, answer.bound, bounding, meter)
    return answer.bound


def _is_worth_building(layout: ProblemLayout, meter: BudgetMeter) -> bool:
    """Return whether building the model takes a small part of the remaining budget."""
    variables = int((layout.running > layout.immovable).sum() + (layout.maximum > 0).sum())
    building = variables * SECONDS_A_VARIABLE / _BUILDING_SHARE
    return not meter.is_exhausted() and building < min(meter.get_remaining_seconds(), meter.work_left / EFFORT_UNIT)


def _bound_with_returns(
    incumbent: Incumbent, entry: int, without: int, bounding: ConstraintModel, meter: BudgetMeter
) -> SolverAnswer:
    """Return the bound of a model in which copies return, with a note if it is higher."""
    bounding.complete_hint(incumbent.assignment, meter)
    answer = bounding.maximise(entry, meter, _ignore)
    if answer.bound is None or answer.bound > without:
        incumbent.notes = (PackingNote(PackingNoteCode.OTHER_ORDERS),)
    return answer


def _ignore(assignment: IntArray) -> None:
    """Ignore an assignment with returning copies, which cannot be carried out."""

"""The variables of a packing model: how many copies of a class stay on a node, and how many arrive there."""

from collections.abc import Iterable

import numpy as np
from ortools.sat.python import cp_model

from cruise.packer.exact.layout import ProblemLayout

# A literal that may be known already.
BoolLiteral = cp_model.LiteralT
DemandTerms = cp_model.BoundedLinearExpression | bool | np.bool_

_Kind = tuple[dict[tuple[int, int], cp_model.IntVar], dict[tuple[int, int], int]]


def is_constant_true(literal: BoolLiteral) -> bool:
    """Whether a literal is known to hold."""
    return isinstance(literal, bool | np.bool_) and bool(literal)


def is_constant_false(literal: BoolLiteral) -> bool:
    """Whether a literal is known not to hold."""
    return isinstance(literal, bool | np.bool_) and not literal


def negate(literal: BoolLiteral) -> BoolLiteral:
    """The literal that holds where this one does not."""
    return not literal if isinstance(literal, bool | int | np.bool_ | np.integer) else literal.negated()


class BoundedSum:
    """A sum of variables and a known part, and what it may come to at most."""

    __slots__ = ("constant", "maximum", "terms", "weights")

    def __init__(self) -> None:
        self.terms: list[cp_model.IntVar] = []
        self.weights: list[int] = []
        self.constant = 0
        self.maximum = 0

    def add_variable(self, variable: cp_model.IntVar, most: int, weight: int = 1) -> None:
        """Count a variable, of a positive weight, as well."""
        self.terms.append(variable)
        self.weights.append(weight)
        self.maximum += most * weight

    def add_constant(self, copies: int) -> None:
        """Count copies that are there in any case."""
        self.constant += copies
        self.maximum += copies

    def expression(self) -> cp_model.LinearExprT:
        """It as the model wants it."""
        if not self.terms:
            return self.constant
        return cp_model.LinearExpr.weighted_sum(self.terms, self.weights) + self.constant


class PlacementVariables:
    """The variables of every class and node: there, copies may be beside those that are stuck."""

    def __init__(self, layout: ProblemLayout) -> None:
        self.layout = layout
        self.model = cp_model.CpModel()
        self.stay: dict[tuple[int, int], cp_model.IntVar] = {}
        self.arrive: dict[tuple[int, int], cp_model.IntVar] = {}
        self.stay_most: dict[tuple[int, int], int] = {}
        self.arrive_most: dict[tuple[int, int], int] = {}
        self._literals: dict[tuple[tuple[int, ...], tuple[int, ...]], BoolLiteral] = {}
        self._presences: dict[tuple[int, int], cp_model.IntVar] = {}
        self._settled: set[tuple[int, int]] = set()
        self._draw_variables()

    def _draw_variables(self) -> None:
        layout, model = self.layout, self.model
        free = layout.counts - layout.immovable.sum(axis=1)
        staying, arriving = layout.running - layout.immovable, np.minimum(layout.maximum, free[:, None])
        for pod_class, node in np.argwhere((staying > 0) | (arriving > 0)).tolist():
            stays, arrives = int(staying[pod_class, node]), int(arriving[pod_class, node])
            if stays:
                self.stay[pod_class, node] = model.new_int_var(0, stays, "")
                self.stay_most[pod_class, node] = stays
            if arrives:
                self.arrive[pod_class, node] = model.new_int_var(0, arrives, "")
                self.arrive_most[pod_class, node] = arrives
        self.nodes_of: dict[int, list[int]] = {}
        for pod_class, node in sorted({*self.stay, *self.arrive}):
            self.nodes_of.setdefault(pod_class, []).append(node)

    def get_held(self, classes: Iterable[int], nodes: tuple[int, ...] | None = None) -> BoundedSum:
        """How many copies of some classes there are on some nodes (None: on all)."""
        return self._count(classes, nodes, ((self.stay, self.stay_most), (self.arrive, self.arrive_most)))

    def get_staying(self, classes: Iterable[int], nodes: tuple[int, ...] | None = None) -> BoundedSum:
        """How many copies of some classes stay on some nodes."""
        return self._count(classes, nodes, ((self.stay, self.stay_most),))

    def get_arrivals(self, classes: Iterable[int], nodes: tuple[int, ...] | None = None) -> BoundedSum:
        """How many copies of some classes arrive on some nodes."""
        return self._count(classes, nodes, ((self.arrive, self.arrive_most),))

    def get_arriving(self, classes: tuple[int, ...], nodes: tuple[int, ...]) -> BoolLiteral:
        """Whether a copy of one of the classes arrives on one of the nodes; true may also be chosen without."""
        key = classes, nodes
        if key not in self._literals:
            self._literals[key] = self._arrives(classes, nodes)
        return self._literals[key]

    def get_presence(self, pod_class: int, node: int) -> BoolLiteral:
        """Whether a node has a copy of a class; true may also be chosen without."""
        if self.layout.immovable[pod_class, node]:
            return True
        key = pod_class, node
        if key not in self._presences:
            held = self.get_held((pod_class,), (node,))
            if held.maximum == 1 and len(held.terms) == 1:
                self._presences[key] = held.terms[0]
            else:
                self._presences[key] = self.model.new_bool_var("")
                self.model.add(held.expression() <= held.maximum * self._presences[key])
        return self._presences[key]

    def add_stay_before_arrival(self, cell: tuple[int, int]) -> None:
        """Let copies arrive only beside all that run there: one that left and one that came would be the same."""
        if cell in self.stay and cell in self.arrive and cell not in self._settled and not self.layout.returning:
            self._settled.add(cell)
            left = int(self.layout.running[cell] - self.layout.immovable[cell]) - self.stay[cell]
            self.require(left <= 0, self.get_arriving((cell[0],), (cell[1],)))

    def require(self, demand: DemandTerms, *conditions: BoolLiteral) -> None:
        """Demand something where all conditions hold."""
        if any(is_constant_false(condition) for condition in conditions):
            return
        unknown = [condition for condition in conditions if not is_constant_true(condition)]
        if isinstance(demand, bool | np.bool_):
            if not demand:
                self.model.add_bool_or([negate(condition) for condition in unknown])
            return
        demanded = self.model.add(demand)
        if unknown:
            demanded.only_enforce_if(unknown)

    def _arrives(self, classes: tuple[int, ...], nodes: tuple[int, ...]) -> BoolLiteral:
        cells = [(c, n) for c in classes if c in self.nodes_of for n in nodes if (c, n) in self.arrive]
        if not cells:
            return False
        if len(cells) == 1 and self.arrive_most[cells[0]] == 1:
            return self.arrive[cells[0]]
        literal = self.model.new_bool_var("")
        for cell in cells:
            self.model.add(self.arrive[cell] <= self.arrive_most[cell] * literal)
        return literal

    def _count(self, classes: Iterable[int], nodes: tuple[int, ...] | None, kinds: tuple[_Kind, ...]) -> BoundedSum:
        count = BoundedSum()
        several = list(classes)
        for variables, most in kinds:
            if variables is self.stay:
                stuck = self.layout.immovable[several]
                count.add_constant(int((stuck if nodes is None else stuck[:, nodes]).sum()))
            for pod_class in several:
                if pod_class not in self.nodes_of:
                    continue
                for node in self.nodes_of[pod_class] if nodes is None else nodes:
                    cell = pod_class, node
                    if cell in variables:
                        count.add_variable(variables[cell], most[cell])
        return count

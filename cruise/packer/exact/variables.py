"""Defines the CP-SAT variables: how many copies of a class stay on a node, and how many arrive there."""

from collections.abc import Iterable

import numpy as np
from ortools.sat.python import cp_model

from cruise.packer.exact.layout import ProblemLayout

# A literal, or a constant.
BoolLiteral = cp_model.LiteralT
DemandTerms = cp_model.BoundedLinearExpression | bool | np.bool_

_Kind = tuple[dict[tuple[int, int], cp_model.IntVar], dict[tuple[int, int], int]]


def is_constant_true(literal: BoolLiteral) -> bool:
    """Return whether a literal is constant and true."""
    return isinstance(literal, bool | np.bool_) and bool(literal)


def is_constant_false(literal: BoolLiteral) -> bool:
    """Return whether a literal is constant and false."""
    return isinstance(literal, bool | np.bool_) and not literal


def negate(literal: BoolLiteral) -> BoolLiteral:
    """Return the negated literal."""
    return not literal if isinstance(literal, bool | int | np.bool_ | np.integer) else literal.negated()


class BoundedSum:
    """A weighted sum of variables and a constant, with its maximum."""

    __slots__ = ("constant", "maximum", "terms", "weights")

    def __init__(self) -> None:
        self.terms: list[cp_model.IntVar] = []
        self.weights: list[int] = []
        self.constant = 0
        self.maximum = 0

    def add_variable(self, variable: cp_model.IntVar, maximum: int, weight: int = 1) -> None:
        """Add a variable with a positive weight."""
        self.terms.append(variable)
        self.weights.append(weight)
        self.maximum += maximum * weight

    def add_constant(self, copies: int) -> None:
        """Add copies that are there in any case."""
        self.constant += copies
        self.maximum += copies

    def build_expression(self) -> cp_model.LinearExprT:
        """Return the sum as an expression of the model."""
        if not self.terms:
            return self.constant
        return cp_model.LinearExpr.weighted_sum(self.terms, self.weights) + self.constant


class PlacementVariables:
    """The variables of every class and node; immovable copies have none."""

    def __init__(self, layout: ProblemLayout) -> None:
        self.layout = layout
        self.model = cp_model.CpModel()
        self.stay: dict[tuple[int, int], cp_model.IntVar] = {}
        self.arrive: dict[tuple[int, int], cp_model.IntVar] = {}
        self.stay_most: dict[tuple[int, int], int] = {}
        self.arrive_most: dict[tuple[int, int], int] = {}
        self._literals: dict[tuple[tuple[int, ...], tuple[int, ...]], BoolLiteral] = {}
        self._presences: dict[tuple[int, int], cp_model.IntVar] = {}
        self._ordered: set[tuple[int, int]] = set()
        self._create_variables()

    def _create_variables(self) -> None:
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

    def count_placed(self, classes: Iterable[int], nodes: tuple[int, ...] | None = None) -> BoundedSum:
        """Return the number of copies of some classes on some nodes (None: on all)."""
        return self._count(classes, nodes, ((self.stay, self.stay_most), (self.arrive, self.arrive_most)))

    def count_staying(self, classes: Iterable[int], nodes: tuple[int, ...] | None = None) -> BoundedSum:
        """Return the number of copies of some classes that stay on some nodes."""
        return self._count(classes, nodes, ((self.stay, self.stay_most),))

    def count_arriving(self, classes: Iterable[int], nodes: tuple[int, ...] | None = None) -> BoundedSum:
        """Return the number of copies of some classes that arrive on some nodes."""
        return self._count(classes, nodes, ((self.arrive, self.arrive_most),))

    def get_arriving(self, classes: tuple[int, ...], nodes: tuple[int, ...]) -> BoolLiteral:
        """Return whether a copy of the classes arrives on the nodes; may also be true without."""
        key = classes, nodes
        if key not in self._literals:
            self._literals[key] = self._create_arrival_literal(classes, nodes)
        return self._literals[key]

    def get_presence(self, pod_class: int, node: int) -> BoolLiteral:
        """Return whether a node has a copy of a class; may also be true without."""
        if self.layout.immovable[pod_class, node]:
            return True
        key = pod_class, node
        if key not in self._presences:
            held = self.count_placed((pod_class,), (node,))
            if held.maximum == 1 and len(held.terms) == 1:
                self._presences[key] = held.terms[0]
            else:
                self._presences[key] = self.model.new_bool_var("")
                self.model.add(held.build_expression() <= held.maximum * self._presences[key])
        return self._presences[key]

    def add_stay_before_arrival(self, cell: tuple[int, int]) -> None:
        """Let copies arrive only if all running ones stay, because exchanged copies are equal."""
        if cell in self.stay and cell in self.arrive and cell not in self._ordered and not self.layout.returning:
            self._ordered.add(cell)
            left = int(self.layout.running[cell] - self.layout.immovable[cell]) - self.stay[cell]
            self.require(left <= 0, self.get_arriving((cell[0],), (cell[1],)))

    def require(self, demand: DemandTerms, *conditions: BoolLiteral) -> None:
        """Add a constraint that holds if all conditions do."""
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

    def _create_arrival_literal(self, classes: tuple[int, ...], nodes: tuple[int, ...]) -> BoolLiteral:
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
        class_list = list(classes)
        for variables, maximum in kinds:
            if variables is self.stay:
                immovable = self.layout.immovable[class_list]
                count.add_constant(int((immovable if nodes is None else immovable[:, nodes]).sum()))
            for pod_class in class_list:
                if pod_class not in self.nodes_of:
                    continue
                for node in self.nodes_of[pod_class] if nodes is None else nodes:
                    cell = pod_class, node
                    if cell in variables:
                        count.add_variable(variables[cell], maximum[cell])
        return count

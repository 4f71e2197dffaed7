"""The variables of a packing model: how many copies of a class stay on a node, and how many arrive there."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from ortools.sat.python import cp_model

from cruise.packer.arrays import BoolArray, IntArray
from cruise.packer.constrained.layout import Layout

# A literal that may be known already.
Literal = cp_model.LiteralT
Demand = cp_model.BoundedLinearExpression | bool | np.bool_

_Kind = tuple[dict[tuple[int, int], cp_model.IntVar], dict[tuple[int, int], int]]


def is_always(literal: Literal) -> bool:
    """Whether a literal is known to hold."""
    return isinstance(literal, bool | np.bool_) and bool(literal)


def is_never(literal: Literal) -> bool:
    """Whether a literal is known not to hold."""
    return isinstance(literal, bool | np.bool_) and not literal


def opposite(literal: Literal) -> Literal:
    """The literal that holds where this one does not."""
    return not literal if isinstance(literal, bool | int | np.bool_ | np.integer) else literal.negated()


class Count:
    """A sum of variables and a known part, and what it may come to at most."""

    __slots__ = ("known", "most", "terms", "weights")

    def __init__(self) -> None:
        self.terms: list[cp_model.IntVar] = []
        self.weights: list[int] = []
        self.known = 0
        self.most = 0

    def take(self, variable: cp_model.IntVar, most: int, weight: int = 1) -> None:
        """Count a variable, of a positive weight, as well."""
        self.terms.append(variable)
        self.weights.append(weight)
        self.most += most * weight

    def know(self, copies: int) -> None:
        """Count copies that are there in any case."""
        self.known += copies
        self.most += copies

    def expression(self) -> cp_model.LinearExprT:
        """It as the model wants it."""
        if not self.terms:
            return self.known
        return cp_model.LinearExpr.weighted_sum(self.terms, self.weights) + self.known


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """What of a problem is decided: where `free[class]` copies go on the open nodes, beside `fixed[class, node]`."""

    fixed: IntArray
    free: IntArray
    open_nodes: BoolArray


def whole(layout: Layout) -> Part:
    """Everything that can be decided at all."""
    everywhere = np.ones(layout.problem.node_count, dtype=np.bool_)
    return Part(layout.stuck, layout.counts - layout.stuck.sum(axis=1), everywhere)


class Cells:
    """The variables of some open nodes: there, `free[class]` copies may be beside those that are `fixed` everywhere.

    What is fixed is in `fixed_stay` where it runs already, and in `fixed_arrive` where it does not.
    """

    def __init__(self, layout: Layout, part: Part) -> None:
        self.layout, self.free, self.open_nodes = layout, part.free, part.open_nodes
        self.model = cp_model.CpModel()
        self.stay: dict[tuple[int, int], cp_model.IntVar] = {}
        self.arrive: dict[tuple[int, int], cp_model.IntVar] = {}
        self.stay_most: dict[tuple[int, int], int] = {}
        self.arrive_most: dict[tuple[int, int], int] = {}
        self.fixed_stay = np.minimum(part.fixed, layout.running)
        self.fixed_arrive = part.fixed - self.fixed_stay
        self._came = set(np.flatnonzero(self.fixed_arrive.any(axis=1)).tolist())
        self._literals: dict[tuple[tuple[int, ...], tuple[int, ...]], Literal] = {}
        self._presences: dict[tuple[int, int], cp_model.IntVar] = {}
        self._settled: set[tuple[int, int]] = set()
        self._draw_variables()

    def _draw_variables(self) -> None:
        layout, model = self.layout, self.model
        opened, classes = np.flatnonzero(self.open_nodes), np.flatnonzero(self.free > 0)
        some = np.ix_(classes, opened)
        free = self.free[classes, None]
        staying = np.minimum(layout.running[some] - self.fixed_stay[some], free)
        arriving = np.clip(layout.most[some] - self.fixed_arrive[some], 0, free)
        for row, index in zip(*(axis.tolist() for axis in np.nonzero((staying > 0) | (arriving > 0))), strict=True):
            pod_class, node = int(classes[row]), int(opened[index])
            stays, arrives = int(staying[row, index]), int(arriving[row, index])
            if stays:
                self.stay[pod_class, node] = model.new_int_var(0, stays, "")
                self.stay_most[pod_class, node] = stays
            if arrives:
                self.arrive[pod_class, node] = model.new_int_var(0, arrives, "")
                self.arrive_most[pod_class, node] = arrives
        self.nodes_of: dict[int, list[int]] = {}
        for pod_class, node in sorted({*self.stay, *self.arrive}):
            self.nodes_of.setdefault(pod_class, []).append(node)

    def held(self, classes: Iterable[int], nodes: tuple[int, ...] | None = None) -> Count:
        """How many copies of some classes there are on some nodes (None: on all)."""
        return self._count(classes, nodes, ((self.stay, self.stay_most), (self.arrive, self.arrive_most)))

    def stays(self, classes: Iterable[int], nodes: tuple[int, ...] | None = None) -> Count:
        """How many copies of some classes stay on some nodes."""
        return self._count(classes, nodes, ((self.stay, self.stay_most),))

    def arrivals(self, classes: Iterable[int], nodes: tuple[int, ...] | None = None) -> Count:
        """How many copies of some classes arrive on some nodes."""
        return self._count(classes, nodes, ((self.arrive, self.arrive_most),))

    def arrives(self, classes: tuple[int, ...], nodes: tuple[int, ...]) -> Literal:
        """Whether a copy of one of the classes arrives on one of the nodes; true may also be chosen without."""
        key = classes, nodes
        if key not in self._literals:
            self._literals[key] = self._arrives(classes, nodes)
        return self._literals[key]

    def is_on(self, pod_class: int, node: int) -> Literal:
        """Whether a node has a copy of a class; true may also be chosen without."""
        if self.fixed_stay[pod_class, node] or self.fixed_arrive[pod_class, node]:
            return True
        key = pod_class, node
        if key not in self._presences:
            held = self.held((pod_class,), (node,))
            if held.most == 1 and len(held.terms) == 1:
                self._presences[key] = held.terms[0]
            else:
                self._presences[key] = self.model.new_bool_var("")
                self.model.add(held.expression() <= held.most * self._presences[key])
        return self._presences[key]

    def stay_before_arriving(self, cell: tuple[int, int]) -> None:
        """Let copies arrive only beside all that run there: one that left and one that came would be the same."""
        if cell in self.stay and cell in self.arrive and cell not in self._settled:
            self._settled.add(cell)
            left = int(self.layout.running[cell]) - int(self.fixed_stay[cell]) - self.stay[cell]
            self.require(left <= 0, self.arrives((cell[0],), (cell[1],)))

    def require(self, demand: Demand, *conditions: Literal) -> None:
        """Demand something where all conditions hold."""
        if any(is_never(condition) for condition in conditions):
            return
        unknown = [condition for condition in conditions if not is_always(condition)]
        if isinstance(demand, bool | np.bool_):
            if not demand:
                self.model.add_bool_or([opposite(condition) for condition in unknown])
            return
        demanded = self.model.add(demand)
        if unknown:
            demanded.only_enforce_if(unknown)

    def _arrives(self, classes: tuple[int, ...], nodes: tuple[int, ...]) -> Literal:
        if any(pod_class in self._came and self.fixed_arrive[pod_class, nodes].any() for pod_class in classes):
            return True
        cells = [(c, n) for c in classes if c in self.nodes_of for n in nodes if (c, n) in self.arrive]
        if not cells:
            return False
        if len(cells) == 1 and self.arrive_most[cells[0]] == 1:
            return self.arrive[cells[0]]
        literal = self.model.new_bool_var("")
        for cell in cells:
            self.model.add(self.arrive[cell] <= self.arrive_most[cell] * literal)
        return literal

    def _count(self, classes: Iterable[int], nodes: tuple[int, ...] | None, kinds: tuple[_Kind, ...]) -> Count:
        count = Count()
        several = list(classes)
        for variables, most in kinds:
            fixed = self.fixed_stay if variables is self.stay else self.fixed_arrive
            known = fixed[several] if nodes is None else fixed[several][:, nodes]
            count.know(int(known.sum()))
            for pod_class in several:
                if pod_class not in self.nodes_of:
                    continue
                for node in self.nodes_of[pod_class] if nodes is None else nodes:
                    cell = pod_class, node
                    if cell in variables:
                        count.take(variables[cell], most[cell])
        return count

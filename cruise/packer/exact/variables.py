"""The variables of a packing model: how many copies of a class stay on a node, and how many arrive there."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from ortools.sat.python import cp_model

from cruise.packer.problem import BoolArray, IntArray, PackingProblem, PlacementRules, compute_loads, count_copies
from cruise.packer.rules.by_class import group_by_class

# Which rules concern which classes, and which nodes make up each domain.


@dataclass(frozen=True, slots=True, eq=False)
class RulesByClassAndDomain:
    """The rules by class, and the nodes by domain of each topology; nodes without a domain are left out.

    `ranks[class]` is equal for classes whose arrivals may have to wait for each other's.
    """

    rules: PlacementRules
    domains: list[dict[int, tuple[int, ...]]]
    exclusions: Mapping[int, list[int]]
    spreads: Mapping[int, list[int]]
    eviction_limits: Mapping[int, list[int]]
    ranks: IntArray


def build_rules_by_class_and_domain(rules: PlacementRules, class_count: int) -> RulesByClassAndDomain:
    """Sort rules by the classes that they concern."""
    return RulesByClassAndDomain(
        rules,
        [_nodes_by_domain(domains) for domains in rules.topologies],
        group_by_class(
            (c, i) for i, rule in enumerate(rules.exclusions) for c in {rule.holder, *rule.targets.tolist()}
        ),
        group_by_class((c, i) for i, rule in enumerate(rules.spreads) for c in {rule.holder, *rule.targets.tolist()}),
        group_by_class((c, i) for i, limit in enumerate(rules.eviction_limits) for c in set(limit.members.tolist())),
        _ranks_of(rules, class_count),
    )


def select_rules_of_classes(rules: Mapping[int, list[int]], classes: Iterable[int]) -> list[int]:
    """The rules that concern one of the classes, each once, in order."""
    return sorted({rule for pod_class in classes for rule in rules.get(pod_class, ())})


def _ranks_of(rules: PlacementRules, class_count: int) -> IntArray:
    """Find the classes that may have to wait for each other, or for themselves."""
    waits: dict[int, set[int]] = {}
    for attraction in rules.attractions:
        targets = set(attraction.targets.tolist())
        waits.setdefault(attraction.holder, set()).update(targets)
        if attraction.holder in targets:
            for target in targets:
                waits.setdefault(target, set()).add(attraction.holder)
    reach = {start: _reached(waits, start) for start in waits}
    ranks = np.arange(class_count, dtype=np.int64)
    for start in sorted(waits):
        for other in sorted(reach[start]):
            if start in reach.get(other, ()):
                ranks[other] = min(ranks[other], ranks[start])
    return ranks


def _reached(waits: dict[int, set[int]], start: int) -> set[int]:
    seen: set[int] = set()
    ahead = [start]
    while ahead:
        for target in waits.get(ahead.pop(), ()):
            if target not in seen:
                seen.add(target)
                ahead.append(target)
    return seen


def _nodes_by_domain(domains: IntArray) -> dict[int, tuple[int, ...]]:
    nodes = group_by_class((domain, node) for node, domain in enumerate(domains.tolist()) if domain >= 0)
    return {domain: tuple(members) for domain, members in nodes.items()}


# A problem counted by class and node.


@dataclass(frozen=True, slots=True, eq=False)
class ProblemLayout:
    """The copies of each class, and what may become of them on each node.

    `counts[class]` exist, `running[class, node]` of them now; `stuck` of these stay in every plan. `most[class, node]`
    is how many may arrive beside all that run there, or in their place where copies are `returning`.
    `overfull[node, resource]` tells where more is held than fits.
    """

    problem: PackingProblem
    counts: IntArray
    running: IntArray
    immovable: IntArray
    maximum: IntArray
    overfull: BoolArray
    rules: RulesByClassAndDomain
    returning: bool = False


def build_layout(problem: PackingProblem) -> ProblemLayout:
    """Count a problem's pods."""
    running = count_copies(problem, problem.pod_node)
    stuck = np.where(problem.movable[:, None], 0, running)
    admitted = problem.allowed_nodes[problem.node_mask_of_class]
    most = np.where(admitted, np.maximum(problem.max_on_node[:, None] - running, 0), 0)
    counts = np.bincount(problem.pod_class, minlength=problem.class_count).astype(np.int64)
    most = np.minimum(most, counts[:, None])
    rules = problem.rules
    for holder, topologies in [(rule.holder, [rule.topology]) for rule in rules.spreads] + [
        (rule.holder, list(rule.topologies)) for rule in rules.attractions
    ]:
        most[holder, (rules.topologies[topologies] < 0).any(axis=0)] = 0
    used, largest = compute_loads(problem, problem.pod_node)
    overfull = used + largest > problem.capacities
    taken, kept = compute_immovable_loads(problem)
    spare = problem.capacities - taken
    for resource in range(problem.demands.shape[1]):
        demand, headroom = problem.demands[:, resource], problem.headroom[:, resource]
        left = spare[None, :, resource] - np.maximum(kept[None, :, resource], headroom[:, None])
        fit = np.where(demand[:, None] > 0, left // np.maximum(demand[:, None], 1), np.where(left >= 0, most, 0))
        takes = (demand > 0) | (headroom > 0)
        most = np.where(takes[:, None], np.clip(fit, 0, most), most)
    return ProblemLayout(
        problem, counts, running, stuck, most, overfull, build_rules_by_class_and_domain(rules, problem.class_count)
    )


def add_returning_copies(layout: ProblemLayout) -> ProblemLayout | None:
    """The layout with copies that leave so that another is the first of a group, and come back; None where none do.

    No assignment expresses that: a copy that left a node and one that came there look like one that stays.
    """
    problem, movable = layout.problem, layout.running - layout.immovable
    back = np.zeros_like(layout.maximum)
    for rule in problem.rules.attractions:
        counted = (problem.rules.topologies[list(rule.topologies)] >= 0).any(axis=0)
        stays = layout.immovable[rule.targets][:, counted].any()
        if rule.allows_first_pod and not stays and layout.maximum[rule.holder].any():
            back[rule.targets] = movable[rule.targets]
    back[~problem.allowed_nodes[problem.node_mask_of_class]] = 0
    if not back.any():
        return None
    return replace(layout, maximum=layout.maximum + back, returning=True)


def compute_immovable_loads(problem: PackingProblem) -> tuple[IntArray, IntArray]:
    """For each node and resource the sum of demands of what stays there in every plan, and its largest headroom."""
    return compute_loads(problem, np.where(problem.movable[problem.pod_class], -1, problem.pod_node))


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

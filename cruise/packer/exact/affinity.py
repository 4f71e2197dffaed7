"""Adds the constraints of pod affinity: each arrival finds its targets, in some order of evictions and arrivals."""

from dataclasses import dataclass, field

import numpy as np
from ortools.sat.python import cp_model

from cruise.packer.exact.variables import BoolLiteral, PlacementVariables, is_constant_false, negate
from cruise.packer.problem import AttractionRule, IntArray
from cruise.packer.rules.by_class import build_rules_by_class
from cruise.packer.rules.preemption import LeavingPods

ClassOnNode = tuple[int, int]


def add_affinity_constraints(variables: PlacementVariables) -> None:
    """Add the attractions that copies can break.

    If classes attract each other, or themselves, arrivals get levels: each one has a target of a lower level.
    """
    problem = variables.layout.problem
    if not problem.rules.attractions:
        return
    ranks = variables.layout.rules.ranks
    levels = _ArrivalLevels(variables, ranks)
    concerned = {
        int(ranks[a.holder])
        for a in problem.rules.attractions
        if a.holder in variables.nodes_of or any(t in variables.nodes_of for t in a.targets.tolist())
    }
    for attraction in problem.rules.attractions:
        if ranks[attraction.holder] in concerned:
            _add_attraction(variables, attraction, levels)


@dataclass(frozen=True, slots=True, eq=False)
class _FirstArrivals:
    """Which arrival is the first of all targets, and whether there is one."""

    first_pods: dict[ClassOnNode, cp_model.IntVar] = field(default_factory=dict)
    exists: cp_model.IntVar | int = 0


class _ArrivalLevels:
    """The order in which copies of a class arrive on a node, as far as it matters, and the pods that leave later."""

    def __init__(self, variables: PlacementVariables, ranks: IntArray) -> None:
        problem = variables.layout.problem
        self.ranks, self.leaving = ranks, LeavingPods(problem, build_rules_by_class(problem))
        self.top = max(len(variables.arrive), 1)
        self._model = variables.model
        self._known: dict[ClassOnNode, cp_model.IntVar] = {}

    def get_level(self, cell: ClassOnNode) -> cp_model.IntVar:
        if cell not in self._known:
            self._known[cell] = self._model.new_int_var(0, self.top, "")
        return self._known[cell]


def _list_arrivals(
    variables: PlacementVariables, classes: tuple[int, ...], nodes: tuple[int, ...]
) -> dict[ClassOnNode, BoolLiteral]:
    found = {(c, n): variables.get_arriving((c,), (n,)) for c in classes for n in nodes}
    return {cell: literal for cell, literal in found.items() if not is_constant_false(literal)}


def _add_attraction(variables: PlacementVariables, attraction: AttractionRule, levels: _ArrivalLevels) -> None:
    holder, targets = attraction.holder, tuple(sorted(attraction.targets.tolist()))
    all_nodes = tuple(range(variables.layout.problem.node_count))
    holders = _list_arrivals(variables, (holder,), all_nodes)
    if not holders:
        return
    first = _FirstArrivals()
    if attraction.allows_first_pod:
        # A pod outside of all domains does not prevent another one from being the first.
        counted = (variables.layout.problem.rules.topologies[list(attraction.topologies)] >= 0).any(axis=0)
        first = _add_first_arrivals(
            variables, attraction, targets, holders, tuple(np.flatnonzero(counted).tolist()), levels
        )
    for topology in attraction.topologies:
        domain_of = variables.layout.problem.rules.topologies[topology]
        for domain, nodes in variables.layout.rules.domains[topology].items():
            in_domain = {cell: literal for cell, literal in holders.items() if domain_of[cell[1]] == domain}
            if in_domain:
                _require_targets(variables, attraction, topology, nodes, in_domain, first, levels)


def _require_targets(
    variables: PlacementVariables,
    attraction: AttractionRule,
    topology: int,
    nodes: tuple[int, ...],
    in_domain: dict[ClassOnNode, BoolLiteral],
    first: _FirstArrivals,
    levels: _ArrivalLevels,
) -> None:
    """Require that each arrival in a domain is the first or finds targets there, and has targets in the end."""
    model, targets = variables.model, tuple(sorted(attraction.targets.tolist()))
    staying = variables.count_staying(targets, nodes)
    if staying.constant:
        return
    reasons: list[cp_model.IntVar] = []
    level = model.new_int_var(0, levels.top, "")
    if staying.terms:
        is_staying = model.new_bool_var("")
        variables.require(staying.build_expression() >= 1, is_staying)
        reasons.append(is_staying)
    needs_order = False
    for cell in _list_arrivals(variables, targets, nodes):
        witness = model.new_bool_var("")
        variables.require(variables.count_arriving((cell[0],), (cell[1],)).build_expression() >= 1, witness)
        if levels.ranks[cell[0]] == levels.ranks[attraction.holder]:
            variables.require(levels.get_level(cell) + 1 <= level, witness)
            needs_order = True
        reasons.append(witness)
    has_target = model.new_bool_var("")
    variables.require(cp_model.LinearExpr.sum(reasons) >= 1 if reasons else False, has_target)
    # Pods that leave are targets until then, but if a pod is the first, no other is there any more.
    may_use_leaving = model.new_bool_var("")
    variables.require(first.exists <= 0, may_use_leaving)
    in_the_end = variables.count_placed(targets, nodes).build_expression() >= 1 + int(attraction.allows_first_pod)
    for cell, arrives in in_domain.items():
        conditions = [arrives, *([negate(first.first_pods[cell])] if cell in first.first_pods else [])]
        if needs_order and levels.leaving.find_supporting_targets(attraction, topology, cell[1]):
            variables.require(in_the_end, *conditions)
            conditions.append(may_use_leaving.negated())
        variables.require(has_target >= 1, *conditions)
        if needs_order:
            variables.require(levels.get_level(cell) >= level, *conditions)


def _add_first_arrivals(
    variables: PlacementVariables,
    attraction: AttractionRule,
    targets: tuple[int, ...],
    holders: dict[ClassOnNode, BoolLiteral],
    counted: tuple[int, ...],
    levels: _ArrivalLevels,
) -> _FirstArrivals:
    """Return which arrival is the first on counted nodes: no target stays there, and others arrive later."""
    model = variables.model
    staying = variables.count_staying(targets, counted)
    if staying.constant:
        return _FirstArrivals()
    first_pods = {cell: model.new_bool_var("") for cell in holders}
    has_first = model.new_bool_var("")
    model.add(cp_model.LinearExpr.sum(list(first_pods.values())) == has_first)
    if staying.terms:
        variables.require(staying.build_expression() <= 0, has_first)
    level = model.new_int_var(0, levels.top, "")
    for cell, is_first in first_pods.items():
        variables.require(variables.count_arriving((cell[0],), (cell[1],)).build_expression() >= 1, is_first)
        variables.require(levels.get_level(cell) == level, is_first)
    for cell, arrives in _list_arrivals(variables, targets, counted).items():
        conditions = [has_first, *([negate(first_pods[cell])] if cell in first_pods else []), arrives]
        variables.require(levels.get_level(cell) >= level + 1, *conditions)
        variables.add_stay_before_arrival(cell)
    _keep_first_valid(variables, attraction, targets, first_pods, counted)
    return _FirstArrivals(first_pods, has_first)


def _keep_first_valid(
    variables: PlacementVariables,
    attraction: AttractionRule,
    targets: tuple[int, ...],
    first_pods: dict[ClassOnNode, cp_model.IntVar],
    counted: tuple[int, ...],
) -> None:
    """Require that in the end the first pod has other targets in its domains, or is the only target."""
    is_only_target = variables.model.new_bool_var("")
    variables.require(variables.count_placed(targets, counted).build_expression() <= 1, is_only_target)
    for topology in attraction.topologies:
        domain_of = variables.layout.problem.rules.topologies[topology]
        for (_, node), is_first in first_pods.items():
            if domain_of[node] >= 0:
                nodes = variables.layout.rules.domains[topology][int(domain_of[node])]
                variables.require(
                    variables.count_placed(targets, nodes).build_expression() >= 2, is_first, is_only_target.negated()
                )

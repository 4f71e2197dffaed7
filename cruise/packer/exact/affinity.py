"""What a model requires of pods that others attract: each arrival finds it there, in some order of coming and going."""

from dataclasses import dataclass, field

import numpy as np
from ortools.sat.python import cp_model

from cruise.packer.exact.variables import BoolLiteral, PlacementVariables, is_constant_false, negate
from cruise.packer.problem import AttractionRule, IntArray
from cruise.packer.rules.by_class import build_rules_by_class
from cruise.packer.rules.preemption import LeavingPods

ClassOnNode = tuple[int, int]


def add_affinity_constraints(cells: PlacementVariables) -> None:
    """Add the attractions that copies can break.

    Where classes want each other, or their own first pod, arrivals get levels: each one has company of a lower level.
    """
    problem = cells.layout.problem
    if not problem.rules.attractions:
        return
    ranks = cells.layout.rules.ranks
    levels = _ArrivalLevels(cells, ranks)
    concerned = {
        int(ranks[a.holder])
        for a in problem.rules.attractions
        if a.holder in cells.nodes_of or any(t in cells.nodes_of for t in a.targets.tolist())
    }
    for attraction in problem.rules.attractions:
        if ranks[attraction.holder] in concerned:
            _ground(cells, attraction, levels)


@dataclass(frozen=True, slots=True, eq=False)
class _FirstArrivals:
    """Which arrival is the first of all targets, and whether there is one at all."""

    first_pods: dict[ClassOnNode, cp_model.IntVar] = field(default_factory=dict)
    exists: cp_model.IntVar | int = 0


class _ArrivalLevels:
    """When the copies of a class that arrive on a node do so, as far as it matters, and which are there before."""

    def __init__(self, cells: PlacementVariables, ranks: IntArray) -> None:
        problem = cells.layout.problem
        self.ranks, self.leaving = ranks, LeavingPods(problem, build_rules_by_class(problem))
        self.top = max(len(cells.arrive), 1)
        self._model = cells.model
        self._known: dict[ClassOnNode, cp_model.IntVar] = {}

    def get_level(self, cell: ClassOnNode) -> cp_model.IntVar:
        if cell not in self._known:
            self._known[cell] = self._model.new_int_var(0, self.top, "")
        return self._known[cell]


def _arriving(
    cells: PlacementVariables, classes: tuple[int, ...], nodes: tuple[int, ...]
) -> dict[ClassOnNode, BoolLiteral]:
    found = {(c, n): cells.get_arriving((c,), (n,)) for c in classes for n in nodes}
    return {cell: literal for cell, literal in found.items() if not is_constant_false(literal)}


def _ground(cells: PlacementVariables, attraction: AttractionRule, levels: _ArrivalLevels) -> None:
    holder, targets = attraction.holder, tuple(sorted(attraction.targets.tolist()))
    everywhere = tuple(range(cells.layout.problem.node_count))
    holders = _arriving(cells, (holder,), everywhere)
    if not holders:
        return
    first = _FirstArrivals()
    if attraction.allows_first_pod:
        # A pod in no domain of any topology does not keep another from being the first.
        counted = (cells.layout.problem.rules.topologies[list(attraction.topologies)] >= 0).any(axis=0)
        first = _founders(cells, attraction, targets, holders, tuple(np.flatnonzero(counted).tolist()), levels)
    for topology in attraction.topologies:
        domain_of = cells.layout.problem.rules.topologies[topology]
        for domain, nodes in cells.layout.rules.domains[topology].items():
            here = {cell: literal for cell, literal in holders.items() if domain_of[cell[1]] == domain}
            if here:
                _give_company(cells, attraction, topology, nodes, here, first, levels)


def _give_company(
    cells: PlacementVariables,
    attraction: AttractionRule,
    topology: int,
    nodes: tuple[int, ...],
    here: dict[ClassOnNode, BoolLiteral],
    first: _FirstArrivals,
    levels: _ArrivalLevels,
) -> None:
    """Each arrival in a domain is a founder or finds company there, and has company in the end."""
    model, targets = cells.model, tuple(sorted(attraction.targets.tolist()))
    stays = cells.get_staying(targets, nodes)
    if stays.constant:
        return
    reasons: list[cp_model.IntVar] = []
    level = model.new_int_var(0, levels.top, "")
    if stays.terms:
        stayer = model.new_bool_var("")
        cells.require(stays.expression() >= 1, stayer)
        reasons.append(stayer)
    tied = False
    for cell in _arriving(cells, targets, nodes):
        witness = model.new_bool_var("")
        cells.require(cells.get_arrivals((cell[0],), (cell[1],)).expression() >= 1, witness)
        if levels.ranks[cell[0]] == levels.ranks[attraction.holder]:
            cells.require(levels.get_level(cell) + 1 <= level, witness)
            tied = True
        reasons.append(witness)
    company = model.new_bool_var("")
    cells.require(cp_model.LinearExpr.sum(reasons) >= 1 if reasons else False, company)
    # What leaves is company until then, but where a pod is the first no other is there any more.
    leaver = model.new_bool_var("")
    cells.require(first.exists <= 0, leaver)
    in_the_end = cells.get_held(targets, nodes).expression() >= 1 + int(attraction.allows_first_pod)
    for cell, arrives in here.items():
        conditions = [arrives, *([negate(first.first_pods[cell])] if cell in first.first_pods else [])]
        if tied and levels.leaving.find_companions(attraction, topology, cell[1]):
            cells.require(in_the_end, *conditions)
            conditions.append(leaver.negated())
        cells.require(company >= 1, *conditions)
        if tied:
            cells.require(levels.get_level(cell) >= level, *conditions)


def _founders(
    cells: PlacementVariables,
    attraction: AttractionRule,
    targets: tuple[int, ...],
    holders: dict[ClassOnNode, BoolLiteral],
    counted: tuple[int, ...],
    levels: _ArrivalLevels,
) -> _FirstArrivals:
    """Which arrival is the first of all targets on counted nodes, if any: none stays there, and others come later."""
    model = cells.model
    stays = cells.get_staying(targets, counted)
    if stays.constant:
        return _FirstArrivals()
    founders = {cell: model.new_bool_var("") for cell in holders}
    some = model.new_bool_var("")
    model.add(cp_model.LinearExpr.sum(list(founders.values())) == some)
    if stays.terms:
        cells.require(stays.expression() <= 0, some)
    level = model.new_int_var(0, levels.top, "")
    for cell, founder in founders.items():
        cells.require(cells.get_arrivals((cell[0],), (cell[1],)).expression() >= 1, founder)
        cells.require(levels.get_level(cell) == level, founder)
    for cell, arrives in _arriving(cells, targets, counted).items():
        conditions = [some, *([negate(founders[cell])] if cell in founders else []), arrives]
        cells.require(levels.get_level(cell) >= level + 1, *conditions)
        cells.add_stay_before_arrival(cell)
    _keep_first(cells, attraction, targets, founders, counted)
    return _FirstArrivals(founders, some)


def _keep_first(
    cells: PlacementVariables,
    attraction: AttractionRule,
    targets: tuple[int, ...],
    founders: dict[ClassOnNode, cp_model.IntVar],
    counted: tuple[int, ...],
) -> None:
    """In the end the first one has others around it, or is the only target in any domain."""
    lone = cells.model.new_bool_var("")
    cells.require(cells.get_held(targets, counted).expression() <= 1, lone)
    for topology in attraction.topologies:
        domain_of = cells.layout.problem.rules.topologies[topology]
        for (_, node), founder in founders.items():
            if domain_of[node] >= 0:
                nodes = cells.layout.rules.domains[topology][int(domain_of[node])]
                cells.require(cells.get_held(targets, nodes).expression() >= 2, founder, lone.negated())

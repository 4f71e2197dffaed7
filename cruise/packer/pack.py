"""Packs a problem: a quick packing first, then the best one in the budget, by the method that suits each part."""

from dataclasses import replace

import numpy as np

from cruise.packer.answer import (
    Packing,
    PackingNote,
    PackingNoteCode,
    ReportFunction,
    compute_figures,
    ignore_packing,
)
from cruise.packer.budget import BudgetMeter, SolveBudget
from cruise.packer.columns.bounds import ObjectiveEntryBound
from cruise.packer.columns.primal_heuristics import AnnealingSearch
from cruise.packer.consolidation import compute_min_price, drain_nodes
from cruise.packer.exact.incumbent import Incumbent, build_incumbent, compute_copies_key
from cruise.packer.greedy import add_non_preempting_pods, pack_quickly
from cruise.packer.kernels.price_agreement import NodeChanges
from cruise.packer.large.priced import solve_from_prices
from cruise.packer.large.solving import place_by_ejection_and_gathering, solve_by_ejection
from cruise.packer.problem import IntArray, PackingObjective, PackingProblem, PlacementRules
from cruise.packer.relaxed.bounds import RelaxedBounds
from cruise.packer.rules.by_class import merge_exclusions
from cruise.packer.rules.preemption import match_pods_to_nodes, may_have_undue_profit
from cruise.packer.subproblems import CombinedPacking, SubproblemState, split_problem
from cruise.packer.verification import find_rule_violations

# Up to so many classes times nodes, a part is solved exactly; above, by ejections.
_EXACT_CELLS = 40_000
_EXACT_CELLS_WITH_RULES = 20_000
# Above so many cells with rules, the exact solver starts from ejections, which get this share of the time.
_START_CELLS, _EJECTIONS_START_SHARE = 2_000, 0.1
# After ejections, up to so many cells are solved without rules as well.
_CELLS_WITHOUT_RULES, _MIN_SECONDS_WITHOUT_RULES = 300_000, 1.5
# Share of the budget for search: the rest is for verification and overruns.
_SEARCH_SHARE = 0.95
# Shares of a part's budget: for plans without evictions, for ejections alone.
_WITHOUT_EVICTIONS_SHARE, _EJECTIONS_SHARE = 0.3, 0.5
# Share of a large part's budget for the search; the rest is for price bounds.
_LARGE_SHARE = 0.85
# With pending pods that never preempt: the share for plans in which they come last, and of that for plans without
# preemption.
_WITHOUT_CHAINS_SHARE, _WITHOUT_PREEMPTION_SHARE = 0.5, 0.5
# Share of the remaining budget for price bounds, if the part is also solved without rules.
_PRICES_SHARE = 0.8
# Of the price budget, the share for bounds; the rest is for plans that start from prices.
_BOUNDS_SHARE = 0.6
# Share of the remaining search for undoing moves once all pods are placed: plans from prices move fewer.
_UNDO_MOVES_SHARE = 0.05
# Of the bounds, the share for the entries of the key; the rest is for evictions of all priorities.
_ENTRIES_SHARE = 0.5
# With node prices, shares of the remaining budget: for placing pending pods, for a bound, for draining nodes.
_PLACING_SHARE, _BOUNDING_SHARE, _DRAINING_SHARE = 0.3, 0.15, 0.6


def pack(problem: PackingProblem, budget: SolveBudget, report: ReportFunction) -> Packing:
    """Return the best packing found within the budget, never worse than the present one; report each better one."""
    quick = pack_quickly(problem)
    report(quick)
    combined = CombinedPacking(problem, split_problem(problem), quick.pod_node, report)
    open_parts = [part for part in combined.pieces if not part.is_proved]
    # Small parts first: the others get the rest of their share.
    open_parts.sort(key=lambda part: part.problem.pod_count)
    remaining_pods = float(sum(part.problem.pod_count for part in open_parts))
    with BudgetMeter(budget.deadline_seconds, budget.work_units, budget.threads).get_part(_SEARCH_SHARE) as meter:
        for part in open_parts:
            pods = part.problem.pod_count
            with meter.get_part(pods / remaining_pods) as part_meter:
                _solve_part(part, part_meter, budget.seed)
            remaining_pods -= pods
    return _verify(combined, quick)


def _verify(combined: CombinedPacking, quick: Packing) -> Packing:
    """Return the packing if it obeys every rule, else the quick one with a note."""
    violations = find_rule_violations(combined.problem, combined.packing.pod_node)
    if violations:
        return replace(quick, notes=(*quick.notes, PackingNote(PackingNoteCode.PACKING_DROPPED, violations[0])))
    return replace(combined.packing, notes=combined.notes)


def _solve_part(state: SubproblemState, meter: BudgetMeter, seed: int) -> None:
    problem = state.problem
    cells = problem.class_count * problem.node_count
    if problem.objective is PackingObjective.CONSOLIDATION:
        _solve_fleet(state, meter, seed)
        return
    if cells > (_EXACT_CELLS_WITH_RULES if problem.rules.are_binding else _EXACT_CELLS):
        _solve_large(state, meter, seed)
        return
    without_evictions: Packing | None = None
    if problem.objective is PackingObjective.OPERATOR and (problem.pod_node >= 0).any():
        with meter.get_part(_WITHOUT_EVICTIONS_SHARE) as part_meter:
            # A packing without evictions is better than any other that places as many.
            unmoved = replace(problem, movable=np.zeros_like(problem.movable))
            without_evictions = solve_subproblem(unmoved, problem.pod_node, part_meter, seed, state.offer_packing)
    if problem.rules.are_binding and cells > _START_CELLS and not state.is_proved:
        with meter.get_part(_EJECTIONS_START_SHARE) as part_meter:
            state.offer_packing(solve_by_ejection(problem, state.pod_node, part_meter, ignore_packing, seed))
    if not state.is_proved and not meter.is_exhausted():
        solve_subproblem(problem, state.pod_node, meter, seed, state.update_bound)
    if without_evictions is not None:
        state.prove_evictions_needed(without_evictions)


def _solve_large(state: SubproblemState, meter: BudgetMeter, seed: int) -> None:
    problem = state.problem
    cells = problem.class_count * problem.node_count
    solves_without_rules = cells <= _CELLS_WITHOUT_RULES
    with meter.get_part(_EJECTIONS_SHARE if solves_without_rules else _LARGE_SHARE) as part_meter:
        if may_have_undue_profit(problem):
            with part_meter.get_part(_WITHOUT_CHAINS_SHARE) as first_meter:
                _solve_without_chains(state, first_meter, seed)
        state.offer_packing(
            solve_by_ejection(problem, state.pod_node, part_meter, state.offer_packing, seed, _UNDO_MOVES_SHARE)
        )
    state.count_evictions()
    _improve_by_prices(state, meter, seed, 1.0 if not solves_without_rules else _PRICES_SHARE)
    # Building the model takes a moment that no deadline interrupts.
    is_late = cells > _EXACT_CELLS and meter.get_remaining_seconds() < _MIN_SECONDS_WITHOUT_RULES
    if state.is_proved or meter.is_exhausted() or is_late or not solves_without_rules:
        return
    # Without rules the problem may be small enough for a proof, or its packing may obey them anyway.
    without_rules = replace(problem, rules=PlacementRules(problem.rules.topologies))
    state.update_relaxed_bound(solve_subproblem(without_rules, state.pod_node, meter, seed, state.update_relaxed_bound))


def _solve_without_chains(state: SubproblemState, meter: BudgetMeter, seed: int) -> None:
    """Find a packing in which no pod that never preempts gains capacity through a chain of moves.

    Either no pod is preempted, or these pods come last and use what is free then.
    """
    problem = state.problem
    no_nodes = np.zeros((1, problem.node_count), dtype=np.bool_)
    without_preemption = replace(problem, preemptible=np.zeros_like(problem.preemptible))
    without_non_preempting = replace(
        problem,
        node_mask_of_class=np.where(problem.preempt, problem.node_mask_of_class, len(problem.allowed_nodes)),
        allowed_nodes=np.concatenate([problem.allowed_nodes, no_nodes]),
    )
    with meter.get_part(_WITHOUT_PREEMPTION_SHARE) as part_meter:
        state.offer_packing(solve_by_ejection(without_preemption, problem.pod_node, part_meter, ignore_packing, seed))
    packing = solve_by_ejection(without_non_preempting, problem.pod_node, meter, ignore_packing, seed)
    state.offer_assignment(add_non_preempting_pods(problem, packing.pod_node))


def _improve_by_prices(state: SubproblemState, meter: BudgetMeter, seed: int, share: float) -> None:
    """Bound a part's packing by prices, and search for a better one from what they tell about nodes."""
    problem = state.problem
    with meter.get_part(share) as all_meter:
        is_all_placed = bool((state.pod_node >= 0).all())
        with all_meter.get_part(_BOUNDS_SHARE if is_all_placed else 1.0) as part_meter:
            changes = _bound_by_prices(state, part_meter)
        if changes is None or state.is_proved or all_meter.is_exhausted():
            return
        found = solve_from_prices(problem, changes, state.known.bound, all_meter, seed).pod_node
        if not find_rule_violations(problem, found):
            state.offer_assignment(found)


def _bound_by_prices(state: SubproblemState, meter: BudgetMeter) -> NodeChanges | None:
    """Bound how many more pods could be placed, and how few evictions are needed.

    Returns the node changes of the last bound; None if nothing was open.
    """
    if state.is_proved or meter.is_exhausted():
        return None
    bounds, problem, pod_node = RelaxedBounds(state.problem, meter.threads), state.problem, state.pod_node
    key = compute_figures(problem, pod_node).get_key(problem.objective)
    has_priorities = problem.objective is PackingObjective.PAPER and len(np.unique(problem.priorities)) > 1
    with meter.get_part(_ENTRIES_SHARE if has_priorities else 1.0) as part_meter:
        state.apply_bound(key, bounds.compute(key, state.known.bound, part_meter))
    if has_priorities:
        evicted = int(((problem.pod_node >= 0) & (pod_node != problem.pod_node)).sum())
        state.count_eviction(bounds.compute_min_evicted(compute_figures(problem, pod_node).placed, evicted, meter))
    return bounds.node_changes


def _solve_fleet(state: SubproblemState, meter: BudgetMeter, seed: int) -> None:
    """Place pending pods as if nodes had no price; then drain nodes, bound their price, and search for a proof."""
    from cruise.packer.exact.model import solve_exact

    problem = state.problem
    if (problem.pod_node < 0).any():
        with meter.get_part(_PLACING_SHARE) as part_meter:
            _place_pending(state, part_meter, seed)
    is_all_placed = bool((state.pod_node >= 0).all())
    with meter.get_part(_BOUNDING_SHARE) as part_meter:
        min_price = compute_min_price(problem, part_meter, all_placed=is_all_placed)
    key = compute_figures(problem, state.pod_node).get_key(problem.objective)
    state.apply_bound(key, (*state.known.bound[:-2], min(-min_price, state.known.bound[-2]), 0))
    is_exact = problem.class_count * problem.node_count <= _EXACT_CELLS_WITH_RULES
    with meter.get_part(_DRAINING_SHARE if is_exact else 1.0) as part_meter:
        drain_nodes(problem, state.pod_node, part_meter, seed, state.offer_packing)
    if state.is_proved or meter.is_exhausted() or not is_exact:
        return
    solve_exact(problem, state.pod_node, meter, state.update_bound, relaxed=state.known.bound)


def _place_pending(state: SubproblemState, meter: BudgetMeter, seed: int) -> None:
    """Place pending pods of a part with node prices, and bound how many can be placed."""
    problem = state.problem
    without_prices = replace(problem, objective=PackingObjective.OPERATOR, node_prices=None)
    cells = problem.class_count * problem.node_count
    if cells > (_EXACT_CELLS_WITH_RULES if problem.rules.are_binding else _EXACT_CELLS):
        packing = place_by_ejection_and_gathering(without_prices, state.pod_node, meter, ignore_packing, seed)
    else:
        packing = solve_subproblem(without_prices, state.pod_node, meter, seed, ignore_packing)
    if state.offer_assignment(packing.pod_node):
        key = compute_figures(problem, packing.pod_node).get_key(problem.objective)
        state.apply_bound(key, (*packing.bound[:-1], *state.known.bound[-2:]))


# Share for annealing before the first bound, and share of the rest before CP-SAT.
_ANNEALING_SHARE, _CP_SAT_SHARE = 0.2, 0.9
# Shares of the rest: for the bound of an entry, for packings at that bound, and of that for branching.
_BOUND_SHARE, _SEARCH_AT_BOUND_SHARE, _BRANCHING_SHARE = 0.15, 0.6, 0.8
# Share for the last entry, because only CP-SAT follows, which rarely finds more.
_LAST_SHARE = 0.9
_MAX_FAILED_ROUNDS, _LAST_ROUNDS = 6, 1_000
_REPAIRS = 4
_ROUNDS_BETWEEN_BRANCHING, _MAX_ROUNDS = 4, 60


def solve_subproblem(
    problem: PackingProblem, start: IntArray, meter: BudgetMeter, seed: int, report: ReportFunction
) -> Packing:
    """Return the best packing that the meter allows, never worse than `start` or the present one; report better ones.

    `start[pod]` is a node or -1, and obeys every rule. Nodes have no price. With work units and no deadline, the answer
    is reproducible.
    """
    incumbent = build_incumbent(merge_exclusions(problem), start, report)
    search = IncumbentSearch(incumbent, seed)
    search.run(meter)
    if not incumbent.is_proved and not meter.is_exhausted():
        # Loading CP-SAT takes longer than most parts need without it.
        from cruise.packer.exact.model import maximise_all_objectives

        with meter.get_part(_CP_SAT_SHARE) as part_meter:
            maximise_all_objectives(incumbent, part_meter)
        search.continue_search(meter)
    packing = incumbent.build_packing()
    report(packing)
    return packing


class IncumbentSearch:
    """Improves the incumbent and lowers its bound."""

    def __init__(self, incumbent: Incumbent, seed: int) -> None:
        self.incumbent, self._seed = incumbent, seed
        self._search = AnnealingSearch(incumbent.layout.problem, seed)
        self._entries = range(len(incumbent.key))

    def build_entry_bound(self, entry: int) -> ObjectiveEntryBound:
        """Return the bound of an entry for packings as good as the incumbent before it."""
        return ObjectiveEntryBound(self.incumbent.layout.problem, self.incumbent.assignment, entry, self._seed)

    def anneal(self, entry: int, meter: BudgetMeter, start: IntArray | None = None) -> IntArray:
        """Return the assignment after a round of annealing, from the incumbent or from `start`."""
        return self._search.anneal(self.incumbent.assignment, entry, meter, start)

    def run(self, meter: BudgetMeter) -> None:
        """Anneal for every entry; then bound the open ones, and search for packings at the bound, one by one."""
        incumbent = self.incumbent
        with meter.get_part(_ANNEALING_SHARE) as annealing_meter:
            for entry in self._entries:
                with annealing_meter.get_part(1 / (len(self._entries) - entry)) as part_meter:
                    self._anneal(entry, part_meter, _MAX_FAILED_ROUNDS)
        for entry in self._entries:
            self._anneal(entry, meter, 1)
            before: tuple[int, ...] | None = None
            # The bound is computed again if the entries before have improved.
            while incumbent.key[:entry] != before and incumbent.is_open(entry) and not meter.is_exhausted():
                before = incumbent.key[:entry]
                entry_bound = self.build_entry_bound(entry)
                with meter.get_part(_BOUND_SHARE) as part_meter:
                    incumbent.lower_bound(entry, entry_bound.improve_bound(part_meter))
                with meter.get_part(
                    _LAST_SHARE if entry == self._entries[-1] else _SEARCH_AT_BOUND_SHARE
                ) as part_meter:
                    self._search_at_bound(entry, entry_bound, part_meter)

    def continue_search(self, meter: BudgetMeter) -> None:
        """Anneal for the open entries with the remaining budget."""
        for _ in range(_LAST_ROUNDS):
            for entry in self._entries:
                self._anneal(entry, meter, 1)

    def _anneal(self, entry: int, meter: BudgetMeter, max_failed_rounds: int) -> None:
        """Anneal for an open entry until some rounds in a row find nothing better."""
        incumbent, failed_rounds = self.incumbent, 0
        while failed_rounds < max_failed_rounds and incumbent.is_open(entry) and not meter.is_exhausted():
            failed_rounds = 0 if self._offer_if_valid(self.anneal(entry, meter)) else failed_rounds + 1

    def _offer_if_valid(self, found: IntArray) -> bool:
        """Offer an assignment to the incumbent if it is better and obeys the rules that annealing ignores."""
        layout = self.incumbent.layout
        if compute_copies_key(layout, found) <= self.incumbent.key or find_rule_violations(
            layout.problem, match_pods_to_nodes(layout.problem, found)
        ):
            return False
        self.incumbent.offer(found)
        return True

    def _search_at_bound(self, entry: int, entry_bound: ObjectiveEntryBound, meter: BudgetMeter) -> None:
        """Search for packings at the bound by diving and annealing near what that finds, and at times by branching."""
        incumbent, before = self.incumbent, self.incumbent.key[:entry]
        for round_number in range(_MAX_ROUNDS):
            if incumbent.key[: entry + 1] >= (*before, incumbent.bound[entry]) or meter.is_exhausted():
                return
            start = entry_bound.search_whole_patterns(incumbent.assignment, meter)
            incumbent.lower_bound(entry, entry_bound.improve_bound(meter))
            if start is not None:
                self._offer_if_valid(self.anneal(entry, meter, start))
            if round_number % _ROUNDS_BETWEEN_BRANCHING == 0:
                with meter.get_part(_BRANCHING_SHARE) as part_meter:
                    self._branch(entry, entry_bound, part_meter)

    def _branch(self, entry: int, entry_bound: ObjectiveEntryBound, meter: BudgetMeter) -> None:
        """Search for a packing at the bound by branching, until one is found or the result is inconclusive."""
        incumbent, bound = self.incumbent, entry_bound.improve_bound(meter)
        while incumbent.key[entry] < bound <= incumbent.bound[entry] and not meter.is_exhausted():
            start, is_refuted = entry_bound.branch(meter)
            is_reached = start is not None and self._repair(entry, start, bound, meter)
            if is_reached or not is_refuted:
                return
            bound = entry_bound.lower_refuted_bound()
            incumbent.lower_bound(entry, bound)

    def _repair(self, entry: int, start: IntArray, bound: int, meter: BudgetMeter) -> bool:
        """Anneal near an assignment that may break rules; return whether the bound is reached then."""
        incumbent = self.incumbent
        self._offer_if_valid(start)
        for _ in range(_REPAIRS):
            if incumbent.key[entry] < bound:
                self._offer_if_valid(self.anneal(entry, meter, start))
        return incumbent.key[entry] >= bound

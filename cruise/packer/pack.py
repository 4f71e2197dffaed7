"""The packer: a whole packing at once, then the best that the budget allows, by whichever way fits each part of it."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from cruise.packer.answer import (
    Packing,
    PackingNote,
    PackingNoteCode,
    ReportFunction,
    build_packing,
    compute_counting_bound,
    compute_figures,
)
from cruise.packer.budget import BudgetMeter
from cruise.packer.columns.annealing import AnnealingSearch
from cruise.packer.columns.bounds import EntryBound
from cruise.packer.exact.model import Incumbent, build_incumbent, compute_copies_key
from cruise.packer.greedy import add_non_preempting_pods, assign_greedily
from cruise.packer.problem import IntArray, PackingObjective, PackingProblem, PlacementRules
from cruise.packer.rules.by_class import fold_exclusions, restrict_to_reachable_nodes
from cruise.packer.rules.preemption import match_pods_to_nodes, may_have_undue_profit
from cruise.packer.subproblems import CombinedPacking, SubproblemState, split_problem
from cruise.packer.verification import find_rule_violations

# The compiled solvers are imported where they are needed: the quick way answers without them.
if TYPE_CHECKING:
    from cruise.packer.budget import BudgetMeter, SolveBudget
    from cruise.packer.kernels.price_agreement import NodeChanges

# Up to so many classes times nodes, a part is solved as a whole; beyond, by ejections.
_DENSE_CELLS = 40_000
_RULED_CELLS = 20_000
# Beyond so many with rules, the exact way goes on from a packing by ejections, which has this share of the time.
_FEW_CELLS, _FIRST_SHARE = 2_000, 0.1
# After ejections, up to so many are tried without rules.
_RELAXED_CELLS, _LEAST_SECONDS = 300_000, 1.5
# Of the budget, for all search: the rest is for judging and for what ends a little late.
_SEARCH_SHARE = 0.95
# Of a part's: for plans without any eviction, for ejections alone.
_RESCUE_SHARE, _EJECTIONS_SHARE = 0.3, 0.5
# Of a large part's, for the search alone: what it leaves is for bounds by prices.
_LARGE_SHARE = 0.85
# Of that, where pods wait that never preempt: for plans in which they come last, half of it for plans that preempt
# nothing.
_WITHOUT_SHARE, _CALM_SHARE = 0.5, 0.5
# Of what a large part has left that is searched without its rules as well: for bounds by prices.
_PRICES_SHARE = 0.8
# Of what prices have, for bounds: the rest is for plans that begin with what they say of nodes.
_BOUNDS_SHARE = 0.6
# Of what the search has left once all have a place, for undoing moves: plans by prices have fewer of them.
_HOMING_SHARE = 0.05
# Of these, for the entries that decide; the rest is for evictions of all priorities.
_ENTRIES_SHARE = 0.5
# Where nodes have prices, of what is left each: for placing what waits, for a bound, for emptying nodes.
_PLACING_SHARE, _BOUNDING_SHARE, _EMPTYING_SHARE = 0.3, 0.15, 0.6


def pack_quickly(problem: PackingProblem) -> Packing:
    """A whole feasible packing without compiled code, never worse than what runs now: milliseconds for small ones."""
    pod_node = assign_greedily(problem)
    bound = compute_counting_bound(problem)
    now, after = compute_figures(problem, problem.pod_node), compute_figures(problem, pod_node)
    faults = find_rule_violations(problem, pod_node)
    if faults:
        return build_packing(
            problem, problem.pod_node.copy(), bound, (PackingNote(PackingNoteCode.PACKING_DROPPED, faults[0]),)
        )
    worse = after.get_key(problem.objective) < now.get_key(problem.objective)
    return build_packing(problem, problem.pod_node.copy() if worse else pod_node, bound)


def pack(problem: PackingProblem, budget: "SolveBudget", report: ReportFunction) -> Packing:
    """The best packing found within the budget, never worse than what runs now; each better one is reported."""
    from cruise.packer.budget import BudgetMeter

    quick = pack_quickly(problem)
    report(quick)
    whole = CombinedPacking(problem, split_problem(problem), quick.pod_node, report)
    waiting = [piece for piece in whole.pieces if not piece.is_proved]
    # Small parts first: what they leave of their share goes to the others.
    waiting.sort(key=lambda piece: piece.problem.pod_count)
    left = float(sum(piece.problem.pod_count for piece in waiting))
    with BudgetMeter(budget.deadline_seconds, budget.work_units, budget.threads).get_part(_SEARCH_SHARE) as meter:
        for piece in waiting:
            pods = piece.problem.pod_count
            with meter.get_part(pods / left) as part:
                _solve_part(piece, part, budget.seed)
            left -= pods
    return _judged(whole, quick)


def _judged(whole: CombinedPacking, quick: Packing) -> Packing:
    """The whole's packing if it obeys every rule, else the quick one with a note."""
    faults = find_rule_violations(whole.problem, whole.packing.pod_node)
    if faults:
        return replace(quick, notes=(*quick.notes, PackingNote(PackingNoteCode.PACKING_DROPPED, faults[0])))
    return replace(whole.packing, notes=whole.notes)


def _solve_part(piece: SubproblemState, meter: "BudgetMeter", seed: int) -> None:
    problem = piece.problem
    cells = problem.class_count * problem.node_count
    if problem.objective is PackingObjective.FLEET:
        _solve_fleet(piece, meter, seed)
        return
    if cells > (_RULED_CELLS if problem.rules.are_binding else _DENSE_CELLS):
        _solve_large(piece, meter, seed)
        return
    pass

    rooted: Packing | None = None
    if problem.objective is PackingObjective.OPERATOR and (problem.pod_node >= 0).any():
        with meter.get_part(_RESCUE_SHARE) as part:
            # What takes no eviction is better than anything else that places as much.
            unmoved = replace(problem, movable=np.zeros_like(problem.movable))
            rooted = solve_subproblem(unmoved, problem.pod_node, part, seed, piece.set_assignment)
    if problem.rules.are_binding and cells > _FEW_CELLS and not piece.is_proved:
        from cruise.packer.large.solving import solve_by_ejection

        with meter.get_part(_FIRST_SHARE) as part:
            piece.set_assignment(solve_by_ejection(problem, piece.pod_node, part, _ignore, seed))
    if not piece.is_proved and not meter.is_exhausted():
        solve_subproblem(problem, piece.pod_node, meter, seed, piece.update_bound)
    if rooted is not None:
        piece.prove_no_rescue(rooted)


def _solve_large(piece: SubproblemState, meter: "BudgetMeter", seed: int) -> None:
    from cruise.packer.large.solving import solve_by_ejection

    pass

    problem = piece.problem
    cells = problem.class_count * problem.node_count
    relaxes = cells <= _RELAXED_CELLS
    with meter.get_part(_EJECTIONS_SHARE if relaxes else _LARGE_SHARE) as part:
        if may_have_undue_profit(problem):
            with part.get_part(_WITHOUT_SHARE) as first:
                _solve_without_chains(piece, first, seed)
        piece.set_assignment(
            solve_by_ejection(problem, piece.pod_node, part, piece.set_assignment, seed, _HOMING_SHARE)
        )
    piece.count_evictions()
    _go_by_prices(piece, meter, seed, 1.0 if not relaxes else _PRICES_SHARE)
    # What is laid out for that takes a moment that no clock interrupts.
    hasty = cells > _DENSE_CELLS and meter.get_remaining_seconds() < _LEAST_SECONDS
    if piece.is_proved or meter.is_exhausted() or hasty or not relaxes:
        return
    # Without its rules it may be small enough for a proof, or the answer obey them all the same.
    free = replace(problem, rules=PlacementRules(problem.rules.topologies))
    piece.update_relaxed_bound(solve_subproblem(free, piece.pod_node, meter, seed, piece.update_relaxed_bound))


def _solve_without_chains(piece: SubproblemState, meter: "BudgetMeter", seed: int) -> None:
    """Find an answer in which no pod gets room by a chain for which nothing may be preempted.

    Either nothing is preempted at all, or those pods come last, to what is free then.
    """
    from cruise.packer.large.solving import solve_by_ejection

    problem = piece.problem
    nowhere = np.zeros((1, problem.node_count), dtype=np.bool_)
    calm = replace(problem, preemptible=np.zeros_like(problem.preemptible))
    without = replace(
        problem,
        node_mask_of_class=np.where(problem.preempt, problem.node_mask_of_class, len(problem.allowed_nodes)),
        allowed_nodes=np.concatenate([problem.allowed_nodes, nowhere]),
    )
    with meter.get_part(_CALM_SHARE) as part:
        piece.set_assignment(solve_by_ejection(calm, problem.pod_node, part, _ignore, seed))
    rest = solve_by_ejection(without, problem.pod_node, meter, _ignore, seed)
    piece.offer_assignment(add_non_preempting_pods(problem, rest.pod_node))


def _go_by_prices(piece: SubproblemState, meter: "BudgetMeter", seed: int, share: float) -> None:
    """Bound a part's answer by prices, in a share of the time, and look for a better one by what they say of nodes."""
    from cruise.packer.large.priced import solve_from_prices

    problem = piece.problem
    with meter.get_part(share) as both:
        placed = bool((piece.pod_node >= 0).all())
        with both.get_part(_BOUNDS_SHARE if placed else 1.0) as part:
            changes = _bound_by_prices(piece, part)
        if changes is None or piece.is_proved or both.is_exhausted():
            return
        found = solve_from_prices(problem, changes, piece.known.bound, both, seed).pod_node
        if not find_rule_violations(problem, found):
            piece.offer_assignment(found)


def _bound_by_prices(piece: SubproblemState, meter: "BudgetMeter") -> "NodeChanges | None":
    """Find out what is open about a part's answer: how many more could be placed, how few evictions could do.

    The changes of nodes that the last bound came of, None where nothing was open.
    """
    from cruise.packer.relaxed.bounds import RelaxedBounds

    if piece.is_proved or meter.is_exhausted():
        return None
    bounds, problem, pod_node = RelaxedBounds(piece.problem, meter.threads), piece.problem, piece.pod_node
    key = compute_figures(problem, pod_node).get_key(problem.objective)
    several = problem.objective is PackingObjective.PAPER and len(np.unique(problem.priorities)) > 1
    with meter.get_part(_ENTRIES_SHARE if several else 1.0) as part:
        piece.bound(key, bounds.compute(key, piece.known.bound, part))
    if several:
        evicted = int(((problem.pod_node >= 0) & (pod_node != problem.pod_node)).sum())
        piece.count_eviction(bounds.compute_min_evicted(compute_figures(problem, pod_node).get_placed, evicted, meter))
    return bounds.get_node_changes


def _solve_fleet(piece: SubproblemState, meter: "BudgetMeter", seed: int) -> None:
    """Place what waits as if nodes cost nothing; then empty nodes, bound their price, and look for a proof."""
    from cruise.packer.consolidation import compute_min_price, drain_nodes
    from cruise.packer.exact.model import solve_exact

    problem = piece.problem
    if (problem.pod_node < 0).any():
        with meter.get_part(_PLACING_SHARE) as part:
            _place(piece, part, seed)
    placed = bool((piece.pod_node >= 0).all())
    with meter.get_part(_BOUNDING_SHARE) as part:
        least = compute_min_price(problem, part, all_placed=placed)
    key = compute_figures(problem, piece.pod_node).get_key(problem.objective)
    piece.bound(key, (*piece.known.bound[:-2], min(-least, piece.known.bound[-2]), 0))
    exact = problem.class_count * problem.node_count <= _RULED_CELLS
    with meter.get_part(_EMPTYING_SHARE if exact else 1.0) as part:
        drain_nodes(problem, piece.pod_node, part, seed, piece.set_assignment)
    if piece.is_proved or meter.is_exhausted() or not exact:
        return
    solve_exact(problem, piece.pod_node, meter, piece.update_bound, relaxed=piece.known.bound)


def _place(piece: SubproblemState, meter: "BudgetMeter", seed: int) -> None:
    """Place pods that wait, in a part whose nodes have prices, and learn how many can be."""
    problem = piece.problem
    free = replace(problem, objective=PackingObjective.OPERATOR, node_prices=None)
    cells = problem.class_count * problem.node_count
    if cells > (_RULED_CELLS if problem.rules.are_binding else _DENSE_CELLS):
        from cruise.packer.large.solving import place_by_ejection_and_gathering

        packing = place_by_ejection_and_gathering(free, piece.pod_node, meter, _ignore, seed)
    else:
        pass

        packing = solve_subproblem(free, piece.pod_node, meter, seed, _ignore)
    if piece.offer_assignment(packing.pod_node):
        key = compute_figures(problem, packing.pod_node).get_key(problem.objective)
        piece.bound(key, (*packing.bound[:-1], *piece.known.bound[-2:]))


def _ignore(packing: Packing) -> None:
    """Packings that may break a rule are not reported."""


# The best packing of a small part: annealing, bounds of single entries and branching, then CP-SAT for the rest.

# For annealing every entry in turn before anything is bounded, and for all that comes before CP-SAT's model.
_FIRST_SHARE_small, _OTHERS_SHARE = 0.2, 0.9
# Of what is left, for a bound of one entry, for packings at that bound, and of that for a proof that there is none.
_BOUND_SHARE, _SEEKING_SHARE, _CLOSING_SHARE = 0.15, 0.6, 0.8
# Nothing comes after the last entry but what rarely finds more.
_LAST_SHARE = 0.9
_ROUNDS_IN_VAIN, _LAST_ROUNDS = 6, 1_000
_REPAIRS = 4
_TURNS_A_CLOSING, _MOST_TURNS = 4, 60


def solve_subproblem(
    problem: PackingProblem, start: IntArray, meter: BudgetMeter, seed: int, report: ReportFunction
) -> Packing:
    """Pack as well as the meter lets, never worse than `start` or than what runs now; each better one is reported.

    `start[pod]` is a node or -1, and obeys every rule. Nodes have no price. With work units, and no deadline, the
    answer repeats exactly.
    """
    incumbent = build_incumbent(restrict_to_reachable_nodes(fold_exclusions(problem)), start, report)
    climb = IncumbentSearch(incumbent, seed)
    climb.run(meter)
    if not incumbent.is_proved and not meter.is_exhausted():
        # It takes longer to load than most parts take that do without it.
        from cruise.packer.exact.model import maximise_and_prove

        with meter.get_part(_OTHERS_SHARE) as part:
            maximise_and_prove(incumbent, part)
        climb.continue_search(meter)
    packing = incumbent.packing()
    report(packing)
    return packing


class IncumbentSearch:
    """The ways to a better incumbent, and to a lower bound of it."""

    def __init__(self, incumbent: Incumbent, seed: int) -> None:
        self.incumbent, self._seed = incumbent, seed
        self._search = AnnealingSearch(incumbent.layout.problem, seed)
        self._entries = range(len(incumbent.key))

    def build_next_question(self, entry: int) -> EntryBound:
        """What bounds an entry beside the incumbent."""
        return EntryBound(self.incumbent.layout.problem, self.incumbent.assignment, entry, self._seed)

    def anneal_start(self, entry: int, meter: BudgetMeter, start: IntArray | None = None) -> IntArray:
        """What a round of annealing makes of the incumbent, or of a start near to it."""
        return self._search.anneal(self.incumbent.assignment, entry, meter, start)

    def run(self, meter: BudgetMeter) -> None:
        """Anneal for every entry; then bound those that are open, and look for packings at the bound, one by one."""
        incumbent = self.incumbent
        with meter.get_part(_FIRST_SHARE_small) as first:
            for entry in self._entries:
                with first.get_part(1 / (len(self._entries) - entry)) as part:
                    self._anneal(entry, part, _ROUNDS_IN_VAIN)
        for entry in self._entries:
            self._anneal(entry, meter, 1)
            before: tuple[int, ...] | None = None
            # A question about what was as good in the entries before is asked anew where these are better by now.
            while incumbent.key[:entry] != before and incumbent.get_open_entries(entry) and not meter.is_exhausted():
                before = incumbent.key[:entry]
                found = self.build_next_question(entry)
                with meter.get_part(_BOUND_SHARE) as part:
                    incumbent.lower(entry, found.improve_bound(part))
                with meter.get_part(_LAST_SHARE if entry == self._entries[-1] else _SEEKING_SHARE) as part:
                    self._seek(entry, found, part)

    def continue_search(self, meter: BudgetMeter) -> None:
        """Anneal for the entries that are open: what is left may bring a better packing yet."""
        for _ in range(_LAST_ROUNDS):
            for entry in self._entries:
                self._anneal(entry, meter, 1)

    def _anneal(self, entry: int, meter: BudgetMeter, patience: int) -> None:
        """Anneal for an entry that is open, until that finds nothing better for a while."""
        incumbent, vain = self.incumbent, 0
        while vain < patience and incumbent.get_open_entries(entry) and not meter.is_exhausted():
            vain = 0 if self._judge(self.anneal_start(entry, meter)) else vain + 1

    def _judge(self, found: IntArray) -> bool:
        """Take what was found if it is better, and obeys what annealing does not know as well."""
        layout = self.incumbent.layout
        if compute_copies_key(layout, found) <= self.incumbent.key or find_rule_violations(
            layout.problem, match_pods_to_nodes(layout.problem, found)
        ):
            return False
        self.incumbent.offer(found)
        return True

    def _seek(self, entry: int, found: EntryBound, meter: BudgetMeter) -> None:
        """Look for packings at the bound, by dives and annealing, and now and then for a proof that there is none."""
        incumbent, before = self.incumbent, self.incumbent.key[:entry]
        for turn in range(_MOST_TURNS):
            if incumbent.key[: entry + 1] >= (*before, incumbent.bound[entry]) or meter.is_exhausted():
                return
            start = found.search_whole_patterns(incumbent.assignment, meter)
            incumbent.lower(entry, found.improve_bound(meter))
            if start is not None:
                self._judge(self.anneal_start(entry, meter, start))
            self._anneal(entry, meter, 1)
            if turn % _TURNS_A_CLOSING == 0:
                with meter.get_part(_CLOSING_SHARE) as part:
                    self._close(entry, found, part)

    def _close(self, entry: int, found: EntryBound, meter: BudgetMeter) -> None:
        """Look for a packing at the bound by branching, until one is found or that says nothing."""
        incumbent, bound = self.incumbent, found.improve_bound(meter)
        while incumbent.key[entry] < bound <= incumbent.bound[entry] and not meter.is_exhausted():
            start, refuted = found.branch(meter)
            reached = start is not None and self._repair(entry, start, bound, meter)
            if reached or not refuted:
                return
            bound = found.refute()
            incumbent.lower(entry, bound)

    def _repair(self, entry: int, start: IntArray, bound: int, meter: BudgetMeter) -> bool:
        """Anneal near an assignment that may break rules; whether the bound is reached then."""
        incumbent = self.incumbent
        self._judge(start)
        for _ in range(_REPAIRS):
            if incumbent.key[entry] < bound:
                self._judge(self.anneal_start(entry, meter, start))
        return incumbent.key[entry] >= bound

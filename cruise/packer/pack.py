"""The packer: a whole packing at once, then the best that the budget allows, by whichever way fits each part of it."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from cruise.packer.answer import Note, NoteCode, Packing, Report, figures_of, packing_of
from cruise.packer.bounds import counted_bound
from cruise.packer.faults import find_faults
from cruise.packer.parts import parts_of
from cruise.packer.problem import Objective, Problem, Rules
from cruise.packer.quick import quick_assignment, with_timid
from cruise.packer.rules.profiting import chains_may_profit
from cruise.packer.whole import Piece, Whole

# The compiled solvers are imported where they are needed: the quick way answers without them.
if TYPE_CHECKING:
    from cruise.packer.budget import Budget, Meter
    from cruise.packer.kernels.changes import Changes

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


def quick_packing(problem: Problem) -> Packing:
    """A whole feasible packing without compiled code, never worse than what runs now: milliseconds for small ones."""
    pod_node = quick_assignment(problem)
    bound = counted_bound(problem)
    now, after = figures_of(problem, problem.pod_node), figures_of(problem, pod_node)
    faults = find_faults(problem, pod_node)
    if faults:
        return packing_of(problem, problem.pod_node.copy(), bound, (Note(NoteCode.PACKING_DROPPED, faults[0]),))
    worse = after.key(problem.objective) < now.key(problem.objective)
    return packing_of(problem, problem.pod_node.copy() if worse else pod_node, bound)


def pack(problem: Problem, budget: "Budget", report: Report) -> Packing:
    """The best packing found within the budget, never worse than what runs now; each better one is reported."""
    from cruise.packer.budget import Meter

    quick = quick_packing(problem)
    report(quick)
    whole = Whole(problem, parts_of(problem), quick.pod_node, report)
    waiting = [piece for piece in whole.pieces if not piece.proved]
    # Small parts first: what they leave of their share goes to the others.
    waiting.sort(key=lambda piece: piece.problem.pod_count)
    left = float(sum(piece.problem.pod_count for piece in waiting))
    with Meter(budget.deadline_seconds, budget.work_units, budget.threads).part(_SEARCH_SHARE) as meter:
        for piece in waiting:
            pods = piece.problem.pod_count
            with meter.part(pods / left) as part:
                _solve_part(piece, part, budget.seed)
            left -= pods
    return _judged(whole, quick)


def _judged(whole: Whole, quick: Packing) -> Packing:
    """The whole's packing if it obeys every rule, else the quick one with a note."""
    faults = find_faults(whole.problem, whole.packing.pod_node)
    if faults:
        return replace(quick, notes=(*quick.notes, Note(NoteCode.PACKING_DROPPED, faults[0])))
    return replace(whole.packing, notes=whole.notes)


def _solve_part(piece: Piece, meter: "Meter", seed: int) -> None:
    problem = piece.problem
    cells = problem.class_count * problem.node_count
    if problem.objective is Objective.FLEET:
        _solve_fleet(piece, meter, seed)
        return
    if cells > (_RULED_CELLS if problem.rules.bind else _DENSE_CELLS):
        _solve_large(piece, meter, seed)
        return
    from cruise.packer.small import solve_small

    rooted: Packing | None = None
    if problem.objective is Objective.OPERATOR and (problem.pod_node >= 0).any():
        with meter.part(_RESCUE_SHARE) as part:
            # What takes no eviction is better than anything else that places as much.
            unmoved = replace(problem, movable=np.zeros_like(problem.movable))
            rooted = solve_small(unmoved, problem.pod_node, part, seed, piece.take)
    if problem.rules.bind and cells > _FEW_CELLS and not piece.proved:
        from cruise.packer.large.solving import solve_large

        with meter.part(_FIRST_SHARE) as part:
            piece.take(solve_large(problem, piece.pod_node, part, _ignore, seed))
    if not piece.proved and not meter.over():
        solve_small(problem, piece.pod_node, meter, seed, piece.learn)
    if rooted is not None:
        piece.refute_rescue(rooted)


def _solve_large(piece: Piece, meter: "Meter", seed: int) -> None:
    from cruise.packer.large.solving import solve_large
    from cruise.packer.small import solve_small

    problem = piece.problem
    cells = problem.class_count * problem.node_count
    relaxes = cells <= _RELAXED_CELLS
    with meter.part(_EJECTIONS_SHARE if relaxes else _LARGE_SHARE) as part:
        if chains_may_profit(problem):
            with part.part(_WITHOUT_SHARE) as first:
                _solve_without_chains(piece, first, seed)
        piece.take(solve_large(problem, piece.pod_node, part, piece.take, seed, _HOMING_SHARE))
    piece.count_evictions()
    _go_by_prices(piece, meter, seed, 1.0 if not relaxes else _PRICES_SHARE)
    # What is laid out for that takes a moment that no clock interrupts.
    hasty = cells > _DENSE_CELLS and meter.remaining_seconds() < _LEAST_SECONDS
    if piece.proved or meter.over() or hasty or not relaxes:
        return
    # Without its rules it may be small enough for a proof, or the answer obey them all the same.
    free = replace(problem, rules=Rules(problem.rules.topologies))
    piece.learn_relaxed(solve_small(free, piece.pod_node, meter, seed, piece.learn_relaxed))


def _solve_without_chains(piece: Piece, meter: "Meter", seed: int) -> None:
    """Find an answer in which no pod gets room by a chain for which nothing may be preempted.

    Either nothing is preempted at all, or those pods come last, to what is free then.
    """
    from cruise.packer.large.solving import solve_large

    problem = piece.problem
    nowhere = np.zeros((1, problem.node_count), dtype=np.bool_)
    calm = replace(problem, preemptible=np.zeros_like(problem.preemptible))
    without = replace(
        problem,
        sites=np.where(problem.preempt, problem.sites, len(problem.admits)),
        admits=np.concatenate([problem.admits, nowhere]),
    )
    with meter.part(_CALM_SHARE) as part:
        piece.take(solve_large(calm, problem.pod_node, part, _ignore, seed))
    rest = solve_large(without, problem.pod_node, meter, _ignore, seed)
    piece.offer(with_timid(problem, rest.pod_node))


def _go_by_prices(piece: Piece, meter: "Meter", seed: int, share: float) -> None:
    """Bound a part's answer by prices, in a share of the time, and look for a better one by what they say of nodes."""
    from cruise.packer.large.priced import solve_priced

    problem = piece.problem
    with meter.part(share) as both:
        placed = bool((piece.pod_node >= 0).all())
        with both.part(_BOUNDS_SHARE if placed else 1.0) as part:
            changes = _bound_by_prices(piece, part)
        if changes is None or piece.proved or both.over():
            return
        found = solve_priced(problem, changes, piece.known.bound, both, seed).pod_node
        if not find_faults(problem, found):
            piece.offer(found)


def _bound_by_prices(piece: Piece, meter: "Meter") -> "Changes | None":
    """Find out what is open about a part's answer: how many more could be placed, how few evictions could do.

    The changes of nodes that the last bound came of, None where nothing was open.
    """
    from cruise.packer.relaxed.bounding import Bounds

    if piece.proved or meter.over():
        return None
    bounds, problem, pod_node = Bounds(piece.problem, meter.threads), piece.problem, piece.pod_node
    key = figures_of(problem, pod_node).key(problem.objective)
    several = problem.objective is Objective.PAPER and len(np.unique(problem.priorities)) > 1
    with meter.part(_ENTRIES_SHARE if several else 1.0) as part:
        piece.bound(key, bounds.of(key, piece.known.bound, part))
    if several:
        evicted = int(((problem.pod_node >= 0) & (pod_node != problem.pod_node)).sum())
        piece.evict(bounds.least_evicted(figures_of(problem, pod_node).placed, evicted, meter))
    return bounds.changes


def _solve_fleet(piece: Piece, meter: "Meter", seed: int) -> None:
    """Place what waits as if nodes cost nothing; then empty nodes, bound their price, and look for a proof."""
    from cruise.packer.constrained.solving import solve_constrained
    from cruise.packer.fleet.bounding import least_price
    from cruise.packer.fleet.emptying import empty_nodes

    problem = piece.problem
    if (problem.pod_node < 0).any():
        with meter.part(_PLACING_SHARE) as part:
            _place(piece, part, seed)
    placed = bool((piece.pod_node >= 0).all())
    with meter.part(_BOUNDING_SHARE) as part:
        least = least_price(problem, part, all_placed=placed)
    key = figures_of(problem, piece.pod_node).key(problem.objective)
    piece.bound(key, (*piece.known.bound[:-2], min(-least, piece.known.bound[-2]), 0))
    exact = problem.class_count * problem.node_count <= _RULED_CELLS
    with meter.part(_EMPTYING_SHARE if exact else 1.0) as part:
        empty_nodes(problem, piece.pod_node, part, seed, piece.take)
    if piece.proved or meter.over() or not exact:
        return
    solve_constrained(problem, piece.pod_node, meter, piece.learn, relaxed=piece.known.bound)


def _place(piece: Piece, meter: "Meter", seed: int) -> None:
    """Place pods that wait, in a part whose nodes have prices, and learn how many can be."""
    problem = piece.problem
    free = replace(problem, objective=Objective.OPERATOR, fleet=None)
    cells = problem.class_count * problem.node_count
    if cells > (_RULED_CELLS if problem.rules.bind else _DENSE_CELLS):
        from cruise.packer.large.solving import place_large

        packing = place_large(free, piece.pod_node, meter, _ignore, seed)
    else:
        from cruise.packer.small import solve_small

        packing = solve_small(free, piece.pod_node, meter, seed, _ignore)
    if piece.offer(packing.pod_node):
        key = figures_of(problem, packing.pod_node).key(problem.objective)
        piece.bound(key, (*packing.bound[:-1], *piece.known.bound[-2:]))


def _ignore(packing: Packing) -> None:
    """Packings that may break a rule are not reported."""

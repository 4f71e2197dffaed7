"""Plans from prices: nodes change as those changes do that agreed on the prices which bound them best."""

import numpy as np

from cruise.packer.answer import Packing, build_packing
from cruise.packer.budget import BudgetMeter
from cruise.packer.kernels.price_agreement import NodeChanges
from cruise.packer.large.solving import EjectionSearch, RearrangementSearch
from cruise.packer.problem import IntArray, PackingProblem, compute_loads
from cruise.packer.rules.by_class import build_rules_by_class

# So many beginnings; the best of what comes of them is rearranged in as much time again.
_BEGINNINGS, _SHARE = 3, 0.5


def solve_from_prices(
    problem: PackingProblem, changes: NodeChanges, bound: tuple[int, ...], meter: BudgetMeter, seed: int
) -> Packing:
    """The best packing that comes of what nodes have shares of, once what lacks a place has found one.

    It may be worse than one that is known, and it is what runs now where rules between pods would have to be obeyed
    from the beginning on. The search ends where it meets the bound.
    """
    rules, draws = problem.rules, np.random.default_rng(seed)
    now = best = build_packing(problem, problem.pod_node, bound)
    if rules.exclusions or rules.attractions or rules.spreads:
        return best
    with meter.get_part(_SHARE) as share:
        for left in range(_BEGINNINGS, 0, -1):
            if share.is_exhausted():
                break
            with share.get_part(1 / left) as part:
                begin = _beginning(problem, changes, None if left == _BEGINNINGS else draws)
                found = EjectionSearch(problem, begin, now, part, _ignore, smallest_first=False).run()
                if found is not now:
                    found = RearrangementSearch(problem, found.pod_node, found, part, _ignore).run(seed)
            if found.planned.get_key(problem.objective) > best.planned.get_key(problem.objective):
                best = found
    if best is now:
        return best
    return RearrangementSearch(problem, best.pod_node, best, meter, _ignore).run(seed)


def _beginning(problem: PackingProblem, changes: NodeChanges, draws: np.random.Generator | None) -> IntArray:
    """Where pods are once each node has changed as it has the greatest share, or one that is drawn by shares.

    What left and does not arrive has no place; what may leave in one go is kept to.
    """
    classes, at = problem.pod_class, problem.pod_node.copy()
    limits, left = build_rules_by_class(problem).limits, [limit.allowed for limit in problem.rules.eviction_limits]
    chosen = _chosen(problem, changes, draws)
    here: dict[tuple[int, int], list[int]] = {}
    for pod in np.flatnonzero(np.isin(at, [g for g, _ in chosen])).tolist():
        here.setdefault((int(at[pod]), int(classes[pod])), []).append(pod)
    waiting: dict[int, list[int]] = {}
    arriving: list[tuple[int, int, int]] = []
    for g, k in chosen:
        length = changes.length[g, k]
        every = zip(changes.of[g, k, :length].tolist(), changes.more[g, k, :length].tolist(), strict=True)
        # Behind the classes there are limits.
        moves = [(c, more) for c, more in every if c < problem.class_count]
        leaving = [(c, -more) for c, more in moves if more < 0]
        most = problem.rules.max_evicted_by_node
        if most is not None and sum(copies for _, copies in leaving) > most[g]:
            continue
        if any(left[limit] < copies for c, copies in leaving for limit in limits.get(c, ())):
            continue
        for c, copies in leaving:
            for limit in limits.get(c, ()):
                left[limit] -= copies
            pods = here[g, c][:copies]
            at[pods] = -1
            waiting.setdefault(c, []).extend(pods)
        arriving += [(g, c, more) for c, more in moves if more > 0]
    # What was waiting before takes what is free first: the others may go home.
    for pod in np.flatnonzero(problem.pod_node < 0).tolist():
        waiting.setdefault(int(classes[pod]), []).append(pod)
    for g, c, more in arriving:
        pods = waiting.get(c, [])
        for _ in range(min(more, len(pods))):
            at[pods.pop()] = g
    return at


def _chosen(problem: PackingProblem, changes: NodeChanges, draws: np.random.Generator | None) -> list[tuple[int, int]]:
    """The change of each node that changes, those of the greatest shares first."""
    loads, peaks = compute_loads(problem, problem.pod_node)
    chosen: list[tuple[float, int, int]] = []
    # What arrives on a node that is too full already has rules of its own.
    for g in np.flatnonzero((loads + peaks <= problem.capacities).all(axis=1)).tolist():
        shares = np.maximum(changes.share[g, : changes.known[g]], 0.0)
        k = int(np.argmax(shares) if draws is None else draws.choice(len(shares), p=shares / shares.sum()))
        if changes.length[g, k]:
            chosen.append((-float(shares[k]), g, k))
    return [(g, k) for _, g, k in sorted(chosen)]


def _ignore(packing: Packing) -> None:
    """What comes of prices is reported once it is better than what is known."""

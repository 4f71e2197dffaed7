"""Builds plans from prices: nodes change like the known changes that agreed on the best prices."""

import numpy as np

from cruise.packer.answer import Packing, build_packing, ignore_packing
from cruise.packer.budget import BudgetMeter
from cruise.packer.kernels.price_agreement import NodeChanges
from cruise.packer.large.solving import EjectionSearch, RearrangementSearch
from cruise.packer.problem import IntArray, PackingProblem, compute_loads
from cruise.packer.rules.by_class import build_rules_by_class

# So many starts; the best result is rearranged in as much time again.
_STARTS, _SHARE = 3, 0.5


def solve_from_prices(
    problem: PackingProblem, changes: NodeChanges, bound: tuple[int, ...], meter: BudgetMeter, seed: int
) -> Packing:
    """Return the best packing found from the shares of node changes, with the remaining pods placed by ejections.

    It may be worse than a known one, and is the present packing if rules between pods must be obeyed. The search ends
    at the bound.
    """
    rules, draws = problem.rules, np.random.default_rng(seed)
    current = best = build_packing(problem, problem.pod_node, bound)
    if rules.exclusions or rules.attractions or rules.spreads:
        return best
    with meter.get_part(_SHARE) as share:
        for starts_left in range(_STARTS, 0, -1):
            if share.is_exhausted():
                break
            with share.get_part(1 / starts_left) as part:
                start = _draw_start(problem, changes, None if starts_left == _STARTS else draws)
                found = EjectionSearch(problem, start, current, part, ignore_packing).run()
                if found is not current:
                    found = RearrangementSearch(problem, found.pod_node, found, part, ignore_packing).run(seed)
            if found.planned.get_key(problem.objective) > best.planned.get_key(problem.objective):
                best = found
    if best is current:
        return best
    return RearrangementSearch(problem, best.pod_node, best, meter, ignore_packing).run(seed)


def _draw_start(problem: PackingProblem, changes: NodeChanges, draws: np.random.Generator | None) -> IntArray:
    """Return where pods are after each node has made its most likely change, or a random one by shares.

    Pods that leave and arrive nowhere are unplaced; eviction limits are obeyed.
    """
    classes, pod_node = problem.pod_class, problem.pod_node.copy()
    limits, remaining_evictions = (
        build_rules_by_class(problem).limits,
        [limit.allowed for limit in problem.rules.eviction_limits],
    )
    chosen = _choose_changes(problem, changes, draws)
    pods_by_class: dict[tuple[int, int], list[int]] = {}
    for pod in np.flatnonzero(np.isin(pod_node, [g for g, _ in chosen])).tolist():
        pods_by_class.setdefault((int(pod_node[pod]), int(classes[pod])), []).append(pod)
    unplaced: dict[int, list[int]] = {}
    arriving: list[tuple[int, int, int]] = []
    for g, k in chosen:
        length = changes.length[g, k]
        parts = zip(
            changes.pod_class[g, k, :length].tolist(), changes.added_copies[g, k, :length].tolist(), strict=True
        )
        # Numbers after the classes are limits.
        moves = [(c, more) for c, more in parts if c < problem.class_count]
        leaving = [(c, -more) for c, more in moves if more < 0]
        max_evicted = problem.rules.max_evicted_by_node
        if max_evicted is not None and sum(copies for _, copies in leaving) > max_evicted[g]:
            continue
        if any(remaining_evictions[limit] < copies for c, copies in leaving for limit in limits.get(c, ())):
            continue
        for c, copies in leaving:
            for limit in limits.get(c, ()):
                remaining_evictions[limit] -= copies
            pods = pods_by_class[g, c][:copies]
            pod_node[pods] = -1
            unplaced.setdefault(c, []).extend(pods)
        arriving += [(g, c, more) for c, more in moves if more > 0]
    # Pods that were pending are placed first, because the others may return to their home nodes.
    for pod in np.flatnonzero(problem.pod_node < 0).tolist():
        unplaced.setdefault(int(classes[pod]), []).append(pod)
    for g, c, more in arriving:
        pods = unplaced.get(c, [])
        for _ in range(min(more, len(pods))):
            pod_node[pods.pop()] = g
    return pod_node


def _choose_changes(
    problem: PackingProblem, changes: NodeChanges, draws: np.random.Generator | None
) -> list[tuple[int, int]]:
    """Return the change of each node that changes, those with the largest shares first."""
    loads, peaks = compute_loads(problem, problem.pod_node)
    chosen: list[tuple[float, int, int]] = []
    # Overcommitted nodes have separate rules for arrivals.
    for g in np.flatnonzero((loads + peaks <= problem.capacities).all(axis=1)).tolist():
        shares = np.maximum(changes.share[g, : changes.change_count[g]], 0.0)
        k = int(np.argmax(shares) if draws is None else draws.choice(len(shares), p=shares / shares.sum()))
        if changes.length[g, k]:
            chosen.append((-float(shares[k]), g, k))
    return [(g, k) for _, g, k in sorted(chosen)]

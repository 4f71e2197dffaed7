"""A whole feasible plan at once: keep what runs, then place what waits, priority after priority."""

import numpy as np

from cruise.decisions.packing.certificate import Solution, certify, named_bounds
from cruise.decisions.packing.instance import FloatArray, Instance, IntArray
from cruise.decisions.packing.plan import most_possible, plan_of, vector_of
from cruise.decisions.packing.residual import Residual, residual_of


def greedy_solution(instance: Instance) -> Solution:
    """A whole feasible plan in milliseconds; its bounds are what exists."""
    residual = residual_of(instance)
    plan = plan_of(instance, residual.whole(start(residual)))
    return certify(plan, vector_of(instance, instance.running), named_bounds(instance, most_possible(instance)))


def complete(residual: Residual, assignment: IntArray, from_tier: int = 0) -> IntArray:
    """Add copies to a feasible assignment, from a tier on: first those that may stay, then the others, best fit.

    Within a tier the largest demand goes first. A copy prefers a node where nothing that runs has to give way.
    """
    taken = assignment.copy()
    free = residual.room - taken.T @ residual.demands
    scale = np.maximum(residual.room.sum(axis=0), 1).astype(np.float64)
    sizes = (residual.demands / scale).sum(axis=1)
    for tier in sorted({int(t) for t in residual.tiers if t >= from_tier}):
        mine = np.flatnonzero(residual.tiers == tier)
        mine = mine[np.argsort(-sizes[mine], kind="stable")]
        for c in mine.tolist():
            _keep(residual, taken, free, c)
        later = np.flatnonzero(residual.tiers > tier)
        claimed = np.maximum(residual.running[later] - taken[later], 0).T @ residual.demands[later]
        for c in mine.tolist():
            waiting = int(residual.counts[c] - taken[c].sum())
            for _ in range(waiting):
                node = _best_node(residual, taken, free, claimed, scale, c)
                if node < 0:
                    break
                taken[c, node] += 1
                free[node] -= residual.demands[c]
    return taken


def start(residual: Residual) -> IntArray:
    """The plan of a fresh start: never worse than what runs now."""
    return complete(residual, np.zeros_like(residual.running))


def _keep(residual: Residual, taken: IntArray, free: IntArray, c: int) -> None:
    demand = residual.demands[c]
    wanted = np.minimum(residual.running[c], residual.limits[c]) - taken[c]
    fits = np.full(len(free), np.iinfo(np.int64).max)
    for r in np.flatnonzero(demand).tolist():
        fits = np.minimum(fits, free[:, r] // demand[r])
    stay = np.clip(np.minimum(wanted, fits), 0, None)
    # Copies placed elsewhere before may leave fewer than could stay.
    over = int(stay.sum() + taken[c].sum() - residual.counts[c])
    for node in np.flatnonzero(stay).tolist():
        if over <= 0:
            break
        drop = min(over, int(stay[node]))
        stay[node] -= drop
        over -= drop
    taken[c] += stay
    free -= stay[:, None] * demand[None, :]


def _best_node(
    residual: Residual, taken: IntArray, free: IntArray, claimed: IntArray, scale: FloatArray, c: int
) -> int:
    demand = residual.demands[c]
    allowed = taken[c] < residual.limits[c]
    for available in (free - claimed, free):
        open_nodes = np.flatnonzero(allowed & (available >= demand).all(axis=1))
        if len(open_nodes):
            left = ((available[open_nodes] - demand) / scale).sum(axis=1)
            return int(open_nodes[np.argmin(left)])
    return -1

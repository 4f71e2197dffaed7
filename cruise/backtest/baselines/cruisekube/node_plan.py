"""CruiseKube's strategy for the pods of a node: which are evicted, and how headroom is shared, as its code has it.

Source: truefoundry/cruisekube at 94de669,
`pkg/task/applystrategies/adjust_amongst_pods_distributed_strategy.go` and `…/utils.go`. All nodes are planned at once.

Kept as they are: `rest` = prediction - base may be negative, though base was rounded up and the prediction was not;
where a node's rests add up to 0 its shares are no numbers, and nothing is applied; a DaemonSet's pod is held to its
current request when the fit is checked, not when headroom is shared; where what cannot be evicted does not fit, every
other pod of the node goes.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cruise.domain.arrays import BoolArray, Float64Array, Int64Array

EVICTED_FIRST = 4
EVICTED_LATER = 3


@dataclass(frozen=True, slots=True)
class Demand:
    """One resource of P pods: base and rest, those that the fit is checked with, and what each node has for them."""

    base: Float64Array
    rest: Float64Array
    fit_base: Float64Array
    fit_rest: Float64Array
    available: Float64Array

    def take(self, pods: BoolArray) -> "Demand":
        """Return the demand of some of the pods."""
        return Demand(self.base[pods], self.rest[pods], self.fit_base[pods], self.fit_rest[pods], self.available)


@dataclass(frozen=True, slots=True)
class Shares:
    """One resource of the surviving pods: what each gets, and the base and headroom of each node."""

    final: Float64Array
    base: Float64Array
    headroom: Float64Array


def rank_evictions(
    node: Int64Array, ranking: Int64Array, fixed: BoolArray, memory: Demand, cpu: Demand
) -> tuple[Int64Array, BoolArray]:
    """Return the places of the pods to evict, in order, and which survive: memory is looked at first, then CPU.

    `node` has each pod's node; `fixed` pods (of DaemonSets) are never evicted and come last. The higher ranking goes
    first, and within it the larger rest.
    """
    stays = np.ones(len(node), dtype=np.bool_)
    evicted: list[int] = []
    for demand in (memory, cpu):
        for tight in np.flatnonzero(~_fits(node, demand, stays)).tolist():
            here = np.flatnonzero((node == tight) & stays)
            order = here[np.lexsort((-demand.fit_rest[here], -ranking[here], fixed[here]))]
            candidates = int(np.count_nonzero(~fixed[order]))
            gone = order[: _how_many_go(order, candidates, demand, float(demand.available[tight]))]
            stays[gone] = False
            evicted.extend(gone.tolist())
    return np.array(evicted, dtype=np.int64), stays


def share_headroom(node: Int64Array, demand: Demand) -> Shares:
    """Return base + the node's largest rest × the pod's part of all rests, for pods that all survive."""
    count = len(demand.available)
    bases = sums_by_node(node, demand.base, count)
    rests = sums_by_node(node, demand.rest, count)
    largest = _largest_by_node(node, demand.rest, count)
    with np.errstate(divide="ignore", invalid="ignore"):
        more = np.where(bases[node] > 0, largest[node] * (demand.rest / rests[node]), 0.0)
    return Shares(demand.base + more, bases, largest)


def sums_by_node(node: Int64Array, values: NDArray[np.number], count: int) -> Float64Array:
    """Return the sum of each of `count` nodes' values."""
    return np.bincount(node, weights=values, minlength=count).astype(np.float64, copy=False)


def _fits(node: Int64Array, demand: Demand, stays: BoolArray) -> BoolArray:
    count = len(demand.available)
    spare = demand.available - sums_by_node(node, np.where(stays, demand.fit_base, 0.0), count)
    return (spare >= 0) & (_largest_by_node(node, np.where(stays, demand.fit_rest, 0.0), count) <= spare)


def _largest_by_node(node: Int64Array, values: Float64Array, count: int) -> Float64Array:
    largest = np.zeros(count)
    np.maximum.at(largest, node, values)
    return largest


def _how_many_go(order: Int64Array, candidates: int, demand: Demand, available: float) -> int:
    """Return how many of a node's pods, from the first, have to go until the others fit: all candidates if none do."""
    left = demand.fit_base[order][::-1].cumsum()[::-1]
    largest = np.maximum.accumulate(np.maximum(demand.fit_rest[order], 0.0)[::-1])[::-1]
    fitting = np.flatnonzero((left <= available) & (largest <= available - left))
    return min(int(fitting[0]), candidates) if fitting.size else candidates

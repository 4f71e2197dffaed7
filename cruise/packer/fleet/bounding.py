"""What no packing's nodes cost less than: which nodes have to be there for all that has a place to have one."""

import math
from collections.abc import Iterator

import numpy as np

from cruise.packer.arrays import BoolArray, IntArray
from cruise.packer.budget import Meter
from cruise.packer.problem import Problem, loads_of

# Up to so many sites have rows of their own, those of the largest demand.
_MOST_SITES = 16
# For each resource and site: how many pods there are above each share, and how they fill parts of a node.
_PARTS = (1, 2, 3, 4, 5, 7, 9)
_THRESHOLDS = (3, 4, 5, 8, 16)
# A resource whose demand is below this share of what all nodes have is no reason to keep one.
_SCARCE = 0.02


def kept_in_use(problem: Problem) -> BoolArray:
    """The nodes that no plan empties: something occupies them that stays, or more than may be evicted from there."""
    assert problem.fleet is not None
    here = (problem.pod_node >= 0) & problem.fleet.occupies[problem.pod_class]
    stuck = here & ~problem.movable[problem.pod_class]
    kept = np.zeros(problem.node_count, dtype=np.bool_)
    kept[problem.pod_node[stuck]] = True
    most = problem.rules.most_evicted
    if most is not None:
        kept |= np.bincount(problem.pod_node[here], minlength=problem.node_count) > most
    return kept


def least_price(problem: Problem, meter: Meter, *, all_placed: bool) -> int:
    """What the nodes in use cost at least: whole ones, whose room holds the sums of all that needs a place.

    `all_placed`: in packings in which all that waits has a place; all that runs has one in any case. The sums are those
    of demands, and of dual feasible functions of them: of pods above half of a node each needs its own.
    """
    # It takes longer to load than most problems take that do without it.
    from cruise.packer.cpsat import least_cover

    assert problem.fleet is not None
    prices, kept = problem.fleet.prices, kept_in_use(problem)
    rows = [(need, offers) for need, offers in _covers(problem, all_placed) if need > 0]
    rows += [(int(here.sum()) - allowed, here) for here, allowed in _evictions(problem)]
    kinds, counts = np.unique(np.vstack([prices, kept, *(offers for _, offers in rows)]), axis=1, return_counts=True)
    bound = least_cover(
        kinds[0], np.where(kinds[1], counts, 0), counts, list(kinds[2:]), [need for need, _ in rows], meter
    )
    sure = int(prices[kept].sum())
    return sure if bound is None else max(sure, math.ceil(bound - 1e-6))


# A sum that the nodes in use have to offer, and what each node offers.
_Cover = tuple[int, IntArray]


def _covers(problem: Problem, all_placed: bool) -> Iterator[_Cover]:
    """What all pods that occupy nodes, and those of them that may go to some only, need of each resource."""
    assert problem.fleet is not None
    runs = problem.pod_node >= 0
    stuck = runs & ~problem.movable[problem.pod_class]
    sure = runs & ~stuck & (~problem.preemptible[problem.pod_class] | all_placed)
    wanted = (sure | (~runs & all_placed)) & problem.fleet.occupies[problem.pod_class]
    now, _ = loads_of(problem, problem.pod_node)
    fixed, _ = loads_of(problem, np.where(stuck, problem.pod_node, -1))
    # What runs on a node that is too full may stay there.
    room = np.maximum(np.maximum(problem.capacities, now) - fixed, 0)
    total = np.maximum(room.sum(axis=0), 1)
    for classes, nodes in _regions(problem, wanted):
        pods = wanted & classes[problem.pod_class]
        demands = problem.demands[problem.pod_class[pods]]
        for resource in np.flatnonzero(demands.sum(axis=0) > _SCARCE * total).tolist():
            offers = np.where(nodes, room[:, resource], 0)
            yield int(demands[:, resource].sum()), offers
            largest = int(offers.max(initial=0))
            if largest:
                yield from _transformed(demands[:, resource], offers, largest)


def _regions(problem: Problem, wanted: BoolArray) -> Iterator[tuple[BoolArray, BoolArray]]:
    """Yield sets of classes with all nodes where one of them can be: all of them, and those of single sites."""
    used = np.unique(problem.sites[problem.pod_class[wanted]])
    yield np.ones(problem.class_count, dtype=np.bool_), np.ones(problem.node_count, dtype=np.bool_)
    weight = np.zeros(problem.admits.shape[0])
    total = np.maximum(problem.capacities.sum(axis=0), 1)
    shares = (problem.demands / total).max(axis=1)
    np.add.at(weight, problem.sites[problem.pod_class[wanted]], shares[problem.pod_class[wanted]])
    for site in sorted(used.tolist(), key=lambda one: -weight[one])[:_MOST_SITES]:
        there = problem.admits[site]
        if there.all():
            continue
        within = ~(problem.admits & ~there).any(axis=1)
        classes = within[problem.sites]
        homes = problem.pod_node[wanted & classes[problem.pod_class] & (problem.pod_node >= 0)]
        nodes = there.copy()
        nodes[homes] = True
        if not nodes.all():
            yield classes, nodes


def _transformed(sizes: IntArray, offers: IntArray, largest: int) -> Iterator[_Cover]:
    """Yield sums of functions that never grow when sizes are added up: what fits a node still fits it by them."""
    for parts in _PARTS:
        # Of a node in parts + 1, a pod takes as many as it fills wholly.
        def filled(amounts: IntArray, parts: int = parts) -> IntArray:
            exact = (parts + 1) * amounts % largest == 0
            return np.where(exact, amounts * parts, (parts + 1) * amounts // largest * largest)

        yield int(filled(sizes).sum()), filled(offers)
    for part in _THRESHOLDS:
        # Small pods count nothing, and what leaves no more than that beside it counts for a whole node.
        def rounded(amounts: IntArray, part: int = part) -> IntArray:
            rest = largest - amounts
            return np.where(amounts * part < largest, 0, np.where(rest * part < largest, largest, amounts))

        yield int(rounded(sizes).sum()), rounded(offers)


def _evictions(problem: Problem) -> Iterator[tuple[IntArray, int]]:
    """Yield for each limit how many of its pods occupy each node, and how many may be evicted."""
    assert problem.fleet is not None
    here = (problem.pod_node >= 0) & problem.fleet.occupies[problem.pod_class] & problem.movable[problem.pod_class]
    for limit in problem.rules.eviction_limits:
        mine = here & np.isin(problem.pod_class, limit.members)
        yield np.bincount(problem.pod_node[mine], minlength=problem.node_count), limit.allowed

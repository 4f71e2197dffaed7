"""The smallest set of obstacles without which some node would take a pod."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from cruise.decisions.packing.building.obstacle import rank
from cruise.domain.arrays import BoolArray


class Way(NamedTuple):
    """The nodes that have room once some obstacles are dropped."""

    nodes: BoolArray
    dropped: frozenset[str]


class Blocked(NamedTuple):
    """Obstacles that together keep a pod from every node, and the nodes that would take it without them."""

    obstacles: tuple[str, ...]
    nodes: BoolArray


def smallest(node_count: int, masks: Mapping[str, BoolArray], ways: Iterable[Way]) -> Blocked:
    """Choose the smallest set, of equally small ones the one of the lowest ranks.

    `masks` has for each obstacle the nodes that it closes by itself; `ways` tells what room on a node costs.
    """
    bits: dict[str, int] = {}
    closed = np.zeros(node_count, dtype=np.int64)
    for obstacle, mask in masks.items():
        closed[mask] |= 1 << bits.setdefault(obstacle, len(bits))
    best: tuple[tuple[int, list[int]], int] | None = None
    found: list[tuple[BoolArray, int]] = []
    for way in ways:
        dropped = sum(1 << bits.setdefault(obstacle, len(bits)) for obstacle in way.dropped)
        found.append((way.nodes, dropped))
        for code in np.unique(closed[way.nodes] | dropped).tolist():
            ranks = sorted(rank(obstacle) for obstacle, bit in bits.items() if code >> bit & 1)
            if best is None or (len(ranks), ranks) < best[0]:
                best = (len(ranks), ranks), code
    if best is None:
        return Blocked((), np.zeros(node_count, dtype=np.bool_))
    nodes = np.zeros(node_count, dtype=np.bool_)
    for where, dropped in found:
        nodes |= where & ((closed | dropped) == best[1])
    names = sorted((obstacle for obstacle, bit in bits.items() if best[1] >> bit & 1), key=lambda one: (rank(one), one))
    return Blocked(tuple(names), nodes)

"""Which steps saw a scrape: a value that repeats may be one that was not read again.

A server answers with the last value for five minutes, so a missed scrape looks like rest. All containers of a node
come from one scrape, and their figures hardly ever all stand still for a minute: where something of the node moved,
what did not move was idle; where nothing moved, the step has no scrape of its own. A node whose every figure stands
still for longer than a server repeats itself is truly at rest, and stays so until something moves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cruise.domain.arrays import BoolArray, Float64Array, Int64Array
from cruise.domain.usage import ContainerKey

# How far back a server looks for a value; what lies further apart says nothing about the steps between.
HOLE_SECONDS = 300
_NEVER = np.iinfo(np.int64).min // 2


class Targets:
    """Numbers for what is scraped together: the containers of a node, or of a pod where nodes are not labelled."""

    def __init__(self) -> None:
        self._number_of: dict[str | tuple[str, str], int] = {}

    def __len__(self) -> int:
        return len(self._number_of)

    def nodes(self, chosen: BoolArray) -> dict[str, int]:
        """Return the chosen targets that are nodes, with their numbers."""
        return {name: number for name, number in self._number_of.items() if isinstance(name, str) and chosen[number]}

    def numbers(self, keys: Sequence[ContainerKey], nodes: Sequence[str]) -> Int64Array:
        """Return the number of each container's target, given now where it has none."""
        number_of = self._number_of
        return np.fromiter(
            (
                number_of.setdefault(node or (key.namespace, key.pod), len(number_of))
                for key, node in zip(keys, nodes, strict=True)
            ),
            np.int64,
            len(keys),
        )


@dataclass(frozen=True, slots=True)
class Scrapes:
    """One row a target, one column a step: whether it was scraped there, and the last column until then that moved.

    `ages` tells by how many steps the scrape preceded its column, 0 where all did by as much; it has the columns before
    the read as well.
    """

    scraped: BoolArray
    last_move: Int64Array
    ages: Float64Array


def moved(values: Float64Array, before: Float64Array) -> BoolArray:
    """Tell where series have another value than a step earlier; `before` is what precedes the first step."""
    earlier = np.column_stack((before, values[:, :-1]))
    return np.asarray((values != earlier) & ~np.isnan(values), dtype=np.bool_)


def fell_back(values: Float64Array, before: Float64Array) -> BoolArray:
    """Tell where a counter is a little lower than a step earlier: the answer of a replica that is behind.

    A counter that starts anew falls by more than half; one that had barely begun is not told apart, and waits until it
    is above what it was.
    """
    earlier = np.column_stack((before, values[:, :-1]))
    return np.asarray((values < earlier) & (2 * values >= earlier), dtype=np.bool_)


def scrapes_of(
    families: Sequence[tuple[Int64Array, BoolArray]], last_move_before: Int64Array, span: int, lead: int
) -> Scrapes:
    """Put together what moved: pairs of each series' target, and where the series moved.

    `last_move_before` has the column of each target's last move before the first one, or 0 where there is none: there
    its values are first seen.
    """
    columns = families[0][1].shape[1]
    found = np.zeros((len(last_move_before), columns), dtype=np.bool_)
    for numbers, rows in families:
        if len(numbers):
            order = np.argsort(numbers, kind="stable")
            present, starts = np.unique(numbers[order], return_index=True)
            found[present] |= np.logical_or.reduceat(rows[order], starts, axis=0)
    places = np.arange(columns)
    moves = np.column_stack((last_move_before, np.where(found, places, _NEVER)))
    last_move = np.maximum.accumulate(moves, axis=1)[:, 1:]
    return Scrapes(found | (places - last_move > span), last_move, np.zeros((len(found), lead + columns)))


def with_ages(scrapes: Scrapes, ages: Mapping[int, Float64Array]) -> Scrapes:
    """Return the scrapes with those of some targets as they are known: by how many steps they preceded each column."""
    scraped, last_move, all_ages = scrapes.scraped.copy(), scrapes.last_move.copy(), scrapes.ages.copy()
    lead, places = all_ages.shape[1] - scraped.shape[1], np.arange(scraped.shape[1])
    for target, known in ages.items():
        scraped[target] = known[lead:] < 1
        before = -1 - np.floor(known[lead - 1]) if lead and not np.isnan(known[lead - 1]) else 0
        moves = np.where(scraped[target], places, before).astype(np.int64)
        last_move[target] = np.maximum.accumulate(moves)
        all_ages[target] = np.nan_to_num(known)
    return Scrapes(scraped, last_move, all_ages)

"""Every assignment of copies to nodes of a tiny problem, and the best key among them.

Assignments stand in arrays whose last two axes are classes and nodes.
"""

from collections.abc import Iterator
from itertools import product
from math import prod

import numpy as np

from cruise.packer.problem import BoolArray, IntArray, PackingObjective, PackingProblem, count_copies
from cruise.packer.rules.preemption import match_pods_to_nodes
from cruise.packer.verification import find_rule_violations

MOST_AT_ONCE = 10_000


def find_best_key(problem: PackingProblem) -> tuple[int, ...]:
    """The greatest key over every assignment that obeys the rules; classes that do not preempt are not judged."""
    running = count_copies(problem, problem.pod_node)
    sound = (some[is_valid(problem, running, some)] for some in every_assignment(problem))
    return max(max(map(tuple, keys_of(problem, some).tolist())) for some in sound if len(some))


def best_key_without_faults(problem: PackingProblem) -> tuple[int, ...]:
    """The greatest key over every assignment without a fault, of which the best are looked at first."""
    every = np.concatenate(list(every_assignment(problem)))
    keys = keys_of(problem, every)
    best_first = np.lexsort(keys.T[::-1])[::-1]
    chosen = next(
        place for place in best_first if not find_rule_violations(problem, match_pods_to_nodes(problem, every[place]))
    )
    return tuple(keys[chosen].tolist())


def every_assignment(problem: PackingProblem) -> Iterator[IntArray]:
    """Every assignment that keeps to the limits of single classes, some at a time."""
    rows = _rows(problem)
    lengths = tuple(map(len, rows))
    for first in range(0, prod(lengths), MOST_AT_ONCE):
        places = np.unravel_index(np.arange(first, min(first + MOST_AT_ONCE, prod(lengths))), lengths)
        yield np.stack([row[place] for row, place in zip(rows, places, strict=True)], axis=1)


def count_assignments(problem: PackingProblem) -> int:
    """How many that are."""
    return prod(map(len, _rows(problem)))


def is_valid(problem: PackingProblem, running: IntArray, x: IntArray) -> BoolArray:
    """Return whether nothing arrives where this takes more than there is."""
    widest = np.where((x > 0)[..., None], problem.headroom[:, None, :], 0).max(axis=-3)
    used = np.einsum("...cn,cr->...nr", x, problem.demands) + widest
    wanted = np.einsum("...cn,cr->...nr", x > running, problem.demands + problem.headroom) > 0
    return np.asarray(~(wanted & (used > problem.capacities)).any(axis=(-2, -1)))


def key_of(problem: PackingProblem, x: IntArray) -> tuple[int, ...]:
    """The key of an assignment, figure by figure."""
    return tuple(keys_of(problem, x).tolist())


def keys_of(problem: PackingProblem, x: IntArray) -> IntArray:
    """The keys of assignments, on the last axis."""
    running = count_copies(problem, problem.pod_node)
    placed, stayed = x.sum(axis=-1), np.minimum(x, running).sum(axis=-1)
    places, figures = [], []
    for priority in sorted(set(problem.priorities.tolist()), reverse=True):
        mine = problem.priorities == priority
        places.append(placed[..., mine].sum(axis=-1))
        figures += [places[-1], stayed[..., mine].sum(axis=-1)]
    if problem.objective is PackingObjective.PAPER:
        return np.stack(figures, axis=-1)
    if problem.node_prices is not None and problem.objective is PackingObjective.CONSOLIDATION:
        in_use = (x[..., problem.node_prices.keeps_node_in_use, :] > 0).any(axis=-2)
        places.append(-(in_use @ problem.node_prices.prices))
    return np.stack([*places, -((running.sum(axis=-1) - stayed) @ problem.weights)], axis=-1)


def _rows(problem: PackingProblem) -> list[IntArray]:
    """How the copies of each class may be spread over the nodes, whatever the others do."""
    running = count_copies(problem, problem.pod_node)
    counts = np.bincount(problem.pod_class, minlength=problem.class_count)
    rows = []
    for c in range(problem.class_count):
        admitted = np.where(problem.allowed_nodes[problem.node_mask_of_class[c]], problem.max_on_node[c], 0)
        tops = np.minimum(np.maximum(admitted, running[c]), counts[c])
        lows = np.zeros_like(tops) if problem.movable[c] else running[c]
        least = 0 if problem.preemptible[c] else int(running[c].sum())
        spans = [range(int(low), int(top) + 1) for low, top in zip(lows, tops, strict=True)]
        allowed = [copies for copies in product(*spans) if least <= sum(copies) <= counts[c]]
        rows.append(np.array(allowed, dtype=np.int64).reshape(len(allowed), problem.node_count))
    return rows

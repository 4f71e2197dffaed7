"""The best key of a tiny problem by trying every assignment of copies to nodes."""

from collections.abc import Iterator
from itertools import product

import numpy as np

from cruise.packer.arrays import IntArray
from cruise.packer.problem import Objective, Problem, copies_of


def best_key(problem: Problem) -> tuple[int, ...]:
    """The greatest key over every assignment that obeys the rules; classes that do not preempt are not judged."""
    running = copies_of(problem, problem.pod_node)
    return max(key_of(problem, x) for x in every_assignment(problem) if is_sound(problem, running, x))


def every_assignment(problem: Problem) -> Iterator[IntArray]:
    """Every assignment that keeps to the limits of single classes."""
    running = copies_of(problem, problem.pod_node)
    counts = np.bincount(problem.pod_class, minlength=problem.class_count)
    rows: list[list[tuple[int, ...]]] = []
    for c in range(problem.class_count):
        admitted = np.where(problem.admits[problem.sites[c]], problem.most_on_node[c], 0)
        tops = np.minimum(np.maximum(admitted, running[c]), counts[c])
        lows = np.zeros_like(tops) if problem.movable[c] else running[c]
        least = 0 if problem.preemptible[c] else int(running[c].sum())
        spans = [range(int(low), int(top) + 1) for low, top in zip(lows, tops, strict=True)]
        rows.append([copies for copies in product(*spans) if least <= sum(copies) <= counts[c]])
    for chosen in product(*rows):
        yield np.array(chosen, dtype=np.int64).reshape(problem.class_count, problem.node_count)


def is_sound(problem: Problem, running: IntArray, x: IntArray) -> bool:
    """Tell whether nothing arrives where this takes more than there is."""
    for n in range(problem.node_count):
        here = np.flatnonzero(x[:, n])
        used = x[:, n] @ problem.demands + problem.headroom[here].max(axis=0, initial=0)
        arrived = np.flatnonzero(x[:, n] > running[:, n])
        wanted = (problem.demands[arrived] + problem.headroom[arrived]).sum(axis=0) > 0
        if (wanted & (used > problem.capacities[n])).any():
            return False
    return True


def key_of(problem: Problem, x: IntArray) -> tuple[int, ...]:
    """The key of an assignment, figure by figure."""
    running = copies_of(problem, problem.pod_node)
    places, figures, weight = [], [], 0
    for priority in sorted({int(p) for p in problem.priorities}, reverse=True):
        mine = [c for c in range(problem.class_count) if problem.priorities[c] == priority]
        placed = sum(int(x[c].sum()) for c in mine)
        stayed = sum(int(np.minimum(x[c], running[c]).sum()) for c in mine)
        places.append(placed)
        figures += [placed, stayed]
    for c in range(problem.class_count):
        weight += int(problem.weights[c]) * int((running[c] - np.minimum(x[c], running[c])).sum())
    if problem.objective is Objective.PAPER:
        return tuple(figures)
    return (*places, *([-_price(problem, x)] if problem.objective is Objective.FLEET else []), -weight)


def _price(problem: Problem, x: IntArray) -> int:
    assert problem.fleet is not None
    occupying = [c for c in range(problem.class_count) if problem.fleet.occupies[c]]
    return sum(int(problem.fleet.prices[n]) for n in range(problem.node_count) if any(x[c, n] for c in occupying))

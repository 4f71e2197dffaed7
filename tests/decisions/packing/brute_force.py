"""The best vector of a tiny instance by trying everything."""

from itertools import product

import numpy as np

from cruise.packer.dense.instance import Instance
from tests.packer.dense.plans import Vector, vector_of


def best_vector(instance: Instance) -> Vector:
    """Lexicographically greatest vector over every assignment that keeps to the rules."""
    stuck = np.where(instance.movable[:, None], 0, instance.running)
    room = [
        [max(int(capacity), int(load)) for capacity, load in zip(capacities, loads, strict=True)]
        for capacities, loads in zip(instance.capacities, stuck.T @ instance.demands, strict=True)
    ]
    assignment = np.zeros_like(instance.running)
    best: list[Vector] = []

    def descend(c: int) -> None:
        if c == instance.class_count:
            vector = vector_of(instance, assignment)
            if not best or vector > best[0]:
                best[:] = [vector]
            return
        tops = np.minimum(np.maximum(instance.most[c], instance.running[c]), instance.counts[c])
        for copies in product(*(range(int(low), int(top) + 1) for low, top in zip(stuck[c], tops, strict=True))):
            if sum(copies) > instance.counts[c]:
                continue
            assignment[c] = copies
            if fits(c):
                descend(c + 1)
        assignment[c] = 0

    def fits(last: int) -> bool:
        """Whether the classes so far, and what cannot move of the later ones, fit."""
        held = np.concatenate([assignment[: last + 1], stuck[last + 1 :]])
        used = held.T @ instance.demands
        return all(
            used[n, r] <= room[n][r] for n in range(instance.node_count) for r in range(instance.demands.shape[1])
        )

    descend(0)
    return best[0]

"""Annealing under rules between pods, from the best packing that is known."""

import numpy as np

from cruise.packer.arrays import IntArray
from cruise.packer.budget import Meter
from cruise.packer.dense.bonding import bonds_of
from cruise.packer.dense.classing import instance_of
from cruise.packer.dense.residual import residual_of
from cruise.packer.dense.search import search_of
from cruise.packer.problem import Problem

_ITERATIONS = 400_000
# By turns: some of the last steps need a wide detour, and others a patient look around.
_HEATS = (0.3, 0.06, 0.5, 0.1)
_POLISH_ITERATIONS, _POLISH_HEAT = 200_000, 0.1


class RuledSearch:
    """A search for better packings of a problem; `assignment[class, node]` are copies, and obey every rule."""

    def __init__(self, problem: Problem, assignment: IntArray, seed: int) -> None:
        instance = instance_of(problem)
        residual = residual_of(instance)
        state = np.random.default_rng(seed).integers(1, 2**63, 1, dtype=np.uint64)
        tables = bonds_of(problem, residual)
        self._search = search_of(residual, len(instance.tiers()), state, residual.part(assignment), tables)
        self._rounds = 0

    def anneal(self, assignment: IntArray, entry: int, meter: Meter, start: IntArray | None = None) -> IntArray:
        """What a round about an entry of the key finds that is better than an assignment: itself, or one to be judged.

        It begins there, or at `start`, which may break rules: near to where that is.
        """
        search = self._search
        residual = search.residual
        search.best = residual.part(assignment)
        search.best_vector = residual.vector(search.best)
        if start is None:
            heat = _HEATS[self._rounds % len(_HEATS)]
            self._rounds += 1
            search.run(search.best, _ITERATIONS, meter, heat, residual.entries.tier[entry])
        else:
            search.run(residual.part(start), _POLISH_ITERATIONS, meter, _POLISH_HEAT, residual.entries.tier[entry])
        return residual.whole(search.best)

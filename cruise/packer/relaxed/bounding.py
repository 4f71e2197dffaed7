"""What no plan surpasses beside one that is known: entry by entry of what decides, each by a dual of its own."""

import numpy as np

from cruise.packer.arrays import IntArray
from cruise.packer.budget import ALONE, Meter, Threads
from cruise.packer.kernels.changes import Changes
from cruise.packer.problem import Objective, Problem
from cruise.packer.relaxed.ascent import least
from cruise.packer.relaxed.dual import Dual
from cruise.packer.relaxed.question import fewest_missing, least_weight

# Counting bounds how many have a place about as well as prices do: what stays has so many times as long.
_LONGER = 4


class Bounds:
    """Bounds of a problem that hold for plans that are as good as a known one in what counts more."""

    def __init__(self, problem: Problem, threads: Threads = ALONE) -> None:
        self.problem = problem
        self._dual = Dual(problem, threads)
        tiers = np.unique(problem.priorities)[::-1]
        self._tier: IntArray = np.searchsorted(-tiers, -problem.priorities)
        self._pods = np.bincount(self._tier[problem.pod_class], minlength=len(tiers))
        # Of equal weights the greatest common part counts: bounds are whole numbers of it.
        self._unit = max(int(np.gcd.reduce(problem.weights)), 1) if len(problem.weights) else 1

    @property
    def changes(self) -> Changes:
        """The changes of nodes that the last bound came of."""
        return self._dual.changes

    def of(self, key: tuple[int, ...], known: tuple[int, ...], meter: Meter) -> tuple[int, ...]:
        """Bounds of each entry beside a plan of this key, no worse than those that are known."""
        bounds, each = list(known), 2 if self.problem.objective is Objective.PAPER else 1
        tiers = len(self._pods)
        placed = key[: each * tiers : each]
        open_entries = [entry for entry, (mine, most) in enumerate(zip(key, known, strict=True)) if mine < most]
        turns = [1 if self._counts_placed(entry, each) else _LONGER for entry in open_entries]
        for number, entry in enumerate(open_entries):
            with meter.part(turns[number] / sum(turns[number:])) as part:
                bounds[entry] = min(known[entry], self._most(key, placed, entry, each, part))
        return tuple(bounds)

    def least_evicted(self, placed: tuple[int, ...], evicted: int, meter: Meter) -> int:
        """How many pods every plan evicts that places as many of each priority; `evicted` is what a known one does."""
        question = least_weight(self.problem, placed, np.ones(self.problem.class_count, dtype=np.int64))
        return least(self._dual, question, evicted, meter)

    def _counts_placed(self, entry: int, each: int) -> bool:
        return entry < each * len(self._pods) and entry % each == 0

    def _most(self, key: tuple[int, ...], placed: tuple[int, ...], entry: int, each: int, meter: Meter) -> int:
        problem, tier = self.problem, entry // each
        if entry >= each * len(self._pods):
            question = least_weight(problem, placed, problem.weights // self._unit)
            return -self._unit * least(self._dual, question, -key[entry] // self._unit, meter)
        if self._counts_placed(entry, each):
            question = fewest_missing(problem, placed[:tier])
            missing = int(self._pods[tier]) - key[entry]
            return int(self._pods[tier]) - least(self._dual, question, missing, meter)
        ran = int((self._tier[problem.pod_class[problem.pod_node >= 0]] == tier).sum())
        question = least_weight(problem, placed[: tier + 1], (self._tier == tier).astype(np.int64))
        return ran - least(self._dual, question, ran - key[entry], meter)

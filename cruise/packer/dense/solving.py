"""The packer: the best plan for an instance, entry after entry of what decides, and the proof that it is."""

from collections.abc import Callable

import numpy as np

from cruise.packer.arrays import IntArray
from cruise.packer.budget import Budget, Meter
from cruise.packer.dense.answering import answer_phase
from cruise.packer.dense.certificate import Solution, certify
from cruise.packer.dense.entries import most_possible
from cruise.packer.dense.greedy import start
from cruise.packer.dense.instance import Instance
from cruise.packer.dense.residual import residual_of
from cruise.packer.dense.search import Search, search_of

_LAST_ITERATIONS = 400_000
_TIER_ITERATIONS = 200_000
# Of what is left, a tier before the last may use this share.
_TIER_SHARE = 0.6
_COUNT_SHARE = 0.6
_ROUNDS = 6

# Called with an assignment, and with the bounds on the entries of its vector.
Listener = Callable[[IntArray, IntArray], None]


def _nobody(_assignment: IntArray, _bounds: IntArray) -> None:
    """Report nothing."""


def solve(
    instance: Instance, budget: Budget, incumbent: IntArray | None = None, listen: Listener = _nobody
) -> Solution:
    """The best plan found within the budget, with the bounds that were proved.

    It is never worse than what runs now, nor than the assignment `incumbent`. `listen` hears of better ones.
    """
    run = _Run(instance, budget, incumbent, listen)
    for block in run.search.residual.entries.blocks:
        run.answer(block)
        run.tell()
    return certify(instance, run.assignment(), run.bounds)


class _Run:
    """One solve: the search with its best plan, and the bounds so far."""

    def __init__(self, instance: Instance, budget: Budget, incumbent: IntArray | None, listen: Listener) -> None:
        self.meter = Meter(budget.deadline_seconds, budget.work_units)
        self.generator = np.random.default_rng(budget.seed)
        draws = self.generator.integers(1, 2**63, 1, dtype=np.uint64)
        residual = residual_of(instance)
        self.search = search_of(residual, len(instance.tiers()), draws, start(residual))
        if incumbent is not None:
            self.search.offer(residual.part(incumbent))
        self.most, self.bounds = most_possible(instance), most_possible(instance)
        self.nailed: frozenset[int] = frozenset()
        self.listen = listen
        self.reported: list[int] = []

    def assignment(self) -> IntArray:
        """The best plan of the whole instance."""
        return self.search.residual.whole(self.search.best)

    def tell(self) -> None:
        """Let the listener know what is better by now than what it heard last, plan or bound."""
        news = [*self.search.best_vector.tolist(), *self.bounds.tolist()]
        if news != self.reported:
            self.reported = news
            self.listen(self.assignment(), self.bounds)

    def open(self, entry: int) -> bool:
        """Whether an entry may still be bettered, and there is time for it."""
        return (
            bool(self.search.best_vector[entry] < min(self.bounds[entry], self.most[entry])) and not self.meter.over()
        )

    def answer(self, block: tuple[int, ...]) -> None:
        """Better the entries of a tier, and bound them."""
        entries = self.search.residual.entries
        last = block[-1] == len(entries.tier) - 1
        if any(self.open(entry) for entry in block):
            tier = entries.tier[block[0]]
            self.search = _refocused(self.search, self.nailed)
            self.search.run(
                self.search.best, _LAST_ITERATIONS if last else _TIER_ITERATIONS, self.meter, from_tier=tier
            )
            self.tell()
            with self.meter.part(1.0 if last else _TIER_SHARE) as mine:
                self._answer(block, mine)
        settled = self.search.best_vector[block[-1]] == self.most[block[-1]]
        if settled and entries.stays[block[-1]]:
            self.nailed |= {entries.tier[block[-1]]}

    def _answer(self, block: tuple[int, ...], meter: Meter) -> None:
        """Ask for each entry in turn, even where one before stays open, and again while time is left."""
        for entry in block * _ROUNDS:
            if not self.open(entry) or meter.over():
                continue
            with meter.part(1.0 if entry == block[-1] else _COUNT_SHARE) as part:
                bound = answer_phase(self.search, entry, self.generator, part, self.tell)
            # Once an entry before is bettered, a bound holds for all the fewer plans.
            self.bounds[entry] = min(self.bounds[entry], bound)


def _refocused(search: Search, nailed: frozenset[int]) -> Search:
    """The same best plan, on what is left to decide once the tiers are nailed."""
    residual = residual_of(search.residual.instance, nailed)
    assignment = residual.part(search.residual.whole(search.best))
    return search_of(residual, search.tier_count, search.state, assignment)

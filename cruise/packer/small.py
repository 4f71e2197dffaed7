"""The best packing of a small part: annealing, bounds of single entries and branching, then CP-SAT for the rest."""

from cruise.packer.answer import Packing, Report
from cruise.packer.arrays import IntArray
from cruise.packer.budget import Meter
from cruise.packer.constrained.incumbent import Incumbent, incumbent_of, key_of
from cruise.packer.dense.bounding import EntryBound
from cruise.packer.dense.search import Search
from cruise.packer.faults import find_faults
from cruise.packer.problem import Problem
from cruise.packer.rules.folding import folded
from cruise.packer.rules.matching import pod_node_of
from cruise.packer.rules.reaching import reachable

# For annealing every entry in turn before anything is bounded, and for all that comes before CP-SAT's model.
_FIRST_SHARE, _OTHERS_SHARE = 0.2, 0.9
# Of what is left, for a bound of one entry, for packings at that bound, and of that for a proof that there is none.
_BOUND_SHARE, _SEEKING_SHARE, _CLOSING_SHARE = 0.15, 0.6, 0.8
# Nothing comes after the last entry but what rarely finds more.
_LAST_SHARE = 0.9
_ROUNDS_IN_VAIN, _LAST_ROUNDS = 6, 1_000
_REPAIRS = 4
_TURNS_A_CLOSING, _MOST_TURNS = 4, 60


def solve_small(problem: Problem, start: IntArray, meter: Meter, seed: int, report: Report) -> Packing:
    """Pack as well as the meter lets, never worse than `start` or than what runs now; each better one is reported.

    `start[pod]` is a node or -1, and obeys every rule. Nodes have no price. With work units, and no deadline, the
    answer repeats exactly.
    """
    incumbent = incumbent_of(reachable(folded(problem)), start, report)
    climb = Climb(incumbent, seed)
    climb.run(meter)
    if not incumbent.proved and not meter.over():
        # It takes longer to load than most parts take that do without it.
        from cruise.packer.constrained.solving import prove

        with meter.part(_OTHERS_SHARE) as part:
            prove(incumbent, part)
        climb.go_on(meter)
    packing = incumbent.packing()
    report(packing)
    return packing


class Climb:
    """The ways to a better incumbent, and to a lower bound of it."""

    def __init__(self, incumbent: Incumbent, seed: int) -> None:
        self.incumbent, self._seed = incumbent, seed
        self._search = Search(incumbent.layout.problem, seed)
        self._entries = range(len(incumbent.key))

    def question(self, entry: int) -> EntryBound:
        """What bounds an entry beside the incumbent."""
        return EntryBound(self.incumbent.layout.problem, self.incumbent.assignment, entry, self._seed)

    def annealed(self, entry: int, meter: Meter, start: IntArray | None = None) -> IntArray:
        """What a round of annealing makes of the incumbent, or of a start near to it."""
        return self._search.anneal(self.incumbent.assignment, entry, meter, start)

    def run(self, meter: Meter) -> None:
        """Anneal for every entry; then bound those that are open, and look for packings at the bound, one by one."""
        incumbent = self.incumbent
        with meter.part(_FIRST_SHARE) as first:
            for entry in self._entries:
                with first.part(1 / (len(self._entries) - entry)) as part:
                    self._anneal(entry, part, _ROUNDS_IN_VAIN)
        for entry in self._entries:
            self._anneal(entry, meter, 1)
            before: tuple[int, ...] | None = None
            # A question about what was as good in the entries before is asked anew where these are better by now.
            while incumbent.key[:entry] != before and incumbent.open(entry) and not meter.over():
                before = incumbent.key[:entry]
                found = self.question(entry)
                with meter.part(_BOUND_SHARE) as part:
                    incumbent.lower(entry, found.bound(part))
                with meter.part(_LAST_SHARE if entry == self._entries[-1] else _SEEKING_SHARE) as part:
                    self._seek(entry, found, part)

    def go_on(self, meter: Meter) -> None:
        """Anneal for the entries that are open: what is left may bring a better packing yet."""
        for _ in range(_LAST_ROUNDS):
            for entry in self._entries:
                self._anneal(entry, meter, 1)

    def _anneal(self, entry: int, meter: Meter, patience: int) -> None:
        """Anneal for an entry that is open, until that finds nothing better for a while."""
        incumbent, vain = self.incumbent, 0
        while vain < patience and incumbent.open(entry) and not meter.over():
            vain = 0 if self._judge(self.annealed(entry, meter)) else vain + 1

    def _judge(self, found: IntArray) -> bool:
        """Take what was found if it is better, and obeys what annealing does not know as well."""
        layout = self.incumbent.layout
        if key_of(layout, found) <= self.incumbent.key or find_faults(
            layout.problem, pod_node_of(layout.problem, found)
        ):
            return False
        self.incumbent.offer(found)
        return True

    def _seek(self, entry: int, found: EntryBound, meter: Meter) -> None:
        """Look for packings at the bound, by dives and annealing, and now and then for a proof that there is none."""
        incumbent, before = self.incumbent, self.incumbent.key[:entry]
        for turn in range(_MOST_TURNS):
            if incumbent.key[: entry + 1] >= (*before, incumbent.bound[entry]) or meter.over():
                return
            start = found.dive(incumbent.assignment, meter)
            incumbent.lower(entry, found.bound(meter))
            if start is not None:
                self._judge(self.annealed(entry, meter, start))
            self._anneal(entry, meter, 1)
            if turn % _TURNS_A_CLOSING == 0:
                with meter.part(_CLOSING_SHARE) as part:
                    self._close(entry, found, part)

    def _close(self, entry: int, found: EntryBound, meter: Meter) -> None:
        """Look for a packing at the bound by branching, until one is found or that says nothing."""
        incumbent, bound = self.incumbent, found.bound(meter)
        while incumbent.key[entry] < bound <= incumbent.bound[entry] and not meter.over():
            start, refuted = found.branch(meter)
            reached = start is not None and self._repair(entry, start, bound, meter)
            if reached or not refuted:
                return
            bound = found.refute()
            incumbent.lower(entry, bound)

    def _repair(self, entry: int, start: IntArray, bound: int, meter: Meter) -> bool:
        """Anneal near an assignment that may break rules; whether the bound is reached then."""
        incumbent = self.incumbent
        self._judge(start)
        for _ in range(_REPAIRS):
            if incumbent.key[entry] < bound:
                self._judge(self.annealed(entry, meter, start))
        return incumbent.key[entry] >= bound

"""The best packing under all rules: by annealing and bounds that know them in part, then by CP-SAT with a proof."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from cruise.packer.answer import Note, NoteCode, Packing, Report
from cruise.packer.arrays import IntArray
from cruise.packer.budget import Budget, Meter
from cruise.packer.constrained.incumbent import Incumbent, incumbent_of, key_of
from cruise.packer.constrained.layout import layout_of, pods_of, with_returns
from cruise.packer.constrained.model import SECONDS_A_VARIABLE, Answer, Model
from cruise.packer.cpsat import EFFORT_UNIT
from cruise.packer.faults import find_faults
from cruise.packer.problem import Problem, copies_of

_SHARE_OF_THE_WHOLE, _SHARE_OF_AN_ENTRY, _SHARE_OF_BUILDING = 0.7, 0.4, 0.3
# Of what is left, for a bound of one entry, for packings at that bound, and of that for a proof that there is none.
_SHARE_OF_A_BOUND, _SHARE_OF_SEEKING, _SHARE_OF_CLOSING = 0.15, 0.6, 0.8
# Nothing comes after the last entry but what rarely finds more.
_SHARE_OF_THE_LAST = 0.9
_ROUNDS_IN_VAIN, _LAST_ROUNDS = 6, 1_000
_REPAIRS = 4
_TURNS_A_CLOSING, _MOST_TURNS = 4, 60


class EntryBound(Protocol):
    """What no assignment surpasses in an entry that is as good as another one in those before."""

    def bound(self, meter: Meter) -> int:
        """The bound, as far as the meter lets find out."""

    def branch(self, meter: Meter) -> tuple[IntArray | None, bool]:
        """An assignment at the bound, which may break rules, or whether it is refuted that there is any."""

    def dive(self, assignment: IntArray, meter: Meter) -> IntArray | None:
        """An assignment near the bound, which may break rules and lowers the bound; None for none."""

    def refute(self) -> int:
        """Take note that none reaches it; what the bound is then."""


@dataclass(frozen=True, slots=True)
class Ways:
    """Ways that know rules in part: `bounding` an entry beside an assignment, and `annealing` from one for an entry.

    Annealing finds a better assignment, which may break a rule all the same, or that one again; near to another.
    """

    bounding: Callable[[IntArray, int], EntryBound]
    annealing: Callable[[IntArray, int, Meter, IntArray | None], IntArray]


def solve_constrained(
    problem: Problem,
    start: IntArray,
    budget: Budget,
    report: Report,
    *,
    relaxed: tuple[int, ...] = (),
    ways: Ways | None = None,
) -> Packing:
    """Pack as well as the budget lets, never worse than `start` or than what runs now.

    `start[pod]` is a node or -1, and obeys every rule. `relaxed` is the bound of the same problem without some of its
    rules. With work units, and no deadline, the answer repeats exactly.
    """
    layout = layout_of(problem)
    meter = Meter(budget.deadline_seconds, budget.work_units)
    incumbent = incumbent_of(layout, layout.running, report, relaxed)
    incumbent.offer(copies_of(problem, start))
    variables = int((layout.running > layout.stuck).sum() + (layout.most > 0).sum())
    if ways is not None:
        _go(ways, incumbent, meter)
    if not incumbent.proved and _pays(variables, meter):
        with meter.part(1.0 if ways is None else _SHARE_OF_THE_WHOLE) as part:
            _prove(incumbent, part)
    if ways is not None:
        # What is left may bring a better packing yet.
        for _ in range(_LAST_ROUNDS):
            for entry in range(len(incumbent.key)):
                _anneal(incumbent, entry, meter, ways, 1)
    return incumbent.packing()


def _pays(variables: int, meter: Meter) -> bool:
    """Whether a model of so many variables is built in a small part of what is left."""
    building = variables * SECONDS_A_VARIABLE / _SHARE_OF_BUILDING
    return not meter.over() and building < min(meter.remaining_seconds(), meter.work_left / EFFORT_UNIT)


def _go(ways: Ways, incumbent: Incumbent, meter: Meter) -> None:
    """Anneal for every entry; then bound those that are open, and look for packings at the bound, one by one."""
    entries = range(len(incumbent.key))
    for entry in entries:
        _anneal(incumbent, entry, meter, ways, _ROUNDS_IN_VAIN)
    for entry in entries:
        before: tuple[int, ...] | None = None
        # A question about what was as good in the entries before is asked anew where these are better by now.
        while incumbent.key[:entry] != before and incumbent.key[entry] < incumbent.bound[entry] and not meter.over():
            before = incumbent.key[:entry]
            found = ways.bounding(incumbent.assignment, entry)
            with meter.part(_SHARE_OF_A_BOUND) as part:
                incumbent.lower(entry, found.bound(part))
            with meter.part(_SHARE_OF_THE_LAST if entry == entries[-1] else _SHARE_OF_SEEKING) as part:
                _seek(incumbent, entry, found, part, ways)


def _anneal(incumbent: Incumbent, entry: int, meter: Meter, ways: Ways, patience: int) -> None:
    """Anneal for an entry that is open, until that finds nothing better for a while."""
    vain = 0
    while vain < patience and incumbent.key[entry] < incumbent.bound[entry] and not meter.over():
        vain = 0 if _judge(incumbent, ways.annealing(incumbent.assignment, entry, meter, None)) else vain + 1


def _judge(incumbent: Incumbent, found: IntArray) -> bool:
    """Take what annealing found if it is better, and obeys what annealing does not know as well."""
    layout = incumbent.layout
    if key_of(layout, found) <= incumbent.key or find_faults(layout.problem, pods_of(layout, found)):
        return False
    incumbent.offer(found)
    return True


def _seek(incumbent: Incumbent, entry: int, found: EntryBound, meter: Meter, ways: Ways) -> None:
    """Look for packings at the bound, by dives and annealing, and now and then for a proof that there is none."""
    before = incumbent.key[:entry]
    for turn in range(_MOST_TURNS):
        if incumbent.key[: entry + 1] >= (*before, incumbent.bound[entry]) or meter.over():
            return
        start = found.dive(incumbent.assignment, meter)
        incumbent.lower(entry, found.bound(meter))
        if start is not None:
            _judge(incumbent, ways.annealing(incumbent.assignment, entry, meter, start))
        _anneal(incumbent, entry, meter, ways, 1)
        if turn % _TURNS_A_CLOSING == 0:
            with meter.part(_SHARE_OF_CLOSING) as part:
                _close(incumbent, entry, found, part, ways)


def _close(incumbent: Incumbent, entry: int, found: EntryBound, meter: Meter, ways: Ways) -> None:
    """Look for a packing at the bound by branching, until one is found or that says nothing."""
    bound = found.bound(meter)
    while incumbent.key[entry] < bound <= incumbent.bound[entry] and not meter.over():
        start, refuted = found.branch(meter)
        reached = start is not None and _repair(incumbent, entry, start, bound, meter, ways)
        if reached or not refuted:
            return
        bound = found.refute()
        incumbent.lower(entry, bound)


def _repair(incumbent: Incumbent, entry: int, start: IntArray, bound: int, meter: Meter, ways: Ways) -> bool:
    """Anneal near an assignment that may break rules; whether the bound is reached then."""
    _judge(incumbent, start)
    for _ in range(_REPAIRS):
        if incumbent.key[entry] < bound:
            _judge(incumbent, ways.annealing(incumbent.assignment, entry, meter, start))
    return incumbent.key[entry] >= bound


def _prove(incumbent: Incumbent, meter: Meter) -> None:
    """Maximise one entry of the key after the other, those before held at what is reached.

    Where copies may return, what bounds an entry is a model of its own: it finds nothing.
    """
    fixed = key_of(incumbent.layout, incumbent.layout.stuck)
    model = Model(incumbent.layout)
    meter.spend(model.effort)
    if not model.complete_hint(incumbent.assignment, meter):
        return
    returns = with_returns(incumbent.layout)
    bounding = model if returns is None else Model(returns)
    last = len(incumbent.key) - 1
    for entry in range(last + 1):
        if incumbent.key[entry] < incumbent.bound[entry] and not meter.over():
            for one in dict.fromkeys((model, bounding)):
                one.cap(entry, incumbent.bound[entry] - fixed[entry])
            with meter.part(1.0 if entry == last else _SHARE_OF_AN_ENTRY) as own:
                answer = model.maximise(entry, own, incumbent.offer)
                if answer.assignment is not None:
                    incumbent.offer(answer.assignment)
                if answer.bound is not None and bounding is not model:
                    answer = _bounded(incumbent, entry, answer.bound, bounding, own)
            if answer.bound is not None:
                incumbent.lower(entry, answer.bound + fixed[entry])
        if incumbent.proved or meter.over():
            return
        for one in dict.fromkeys((model, bounding)):
            one.demand(entry, incumbent.key[entry] - fixed[entry])


def _bounded(incumbent: Incumbent, entry: int, without: int, bounding: Model, meter: Meter) -> Answer:
    """The bound of a model in which copies return, and a note where it is more than without."""
    bounding.complete_hint(incumbent.assignment, meter)
    answer = bounding.maximise(entry, meter, _ignore)
    if answer.bound is None or answer.bound > without:
        incumbent.notes = (Note(NoteCode.OTHER_ORDERS),)
    return answer


def _ignore(assignment: IntArray) -> None:
    """What returns is none of an assignment that is carried out."""

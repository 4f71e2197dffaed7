"""The best packing under all rules by CP-SAT, entry after entry of the key, with a proof."""

from cruise.packer.answer import Note, NoteCode, Packing, Report
from cruise.packer.arrays import IntArray
from cruise.packer.budget import Meter
from cruise.packer.constrained.incumbent import Incumbent, incumbent_of, key_of
from cruise.packer.constrained.layout import Layout, with_returns
from cruise.packer.constrained.model import SECONDS_A_VARIABLE, Answer, Model
from cruise.packer.cpsat import EFFORT_UNIT
from cruise.packer.problem import Problem

_ENTRY_SHARE, _BUILDING_SHARE = 0.4, 0.3


def solve_constrained(
    problem: Problem, start: IntArray, meter: Meter, report: Report, relaxed: tuple[int, ...] = ()
) -> Packing:
    """Pack as well as the meter lets, never worse than `start` or than what runs now.

    `start[pod]` is a node or -1, and obeys every rule. `relaxed` is the bound of the same problem without some of its
    rules. With work units, and no deadline, the answer repeats exactly.
    """
    incumbent = incumbent_of(problem, start, report, relaxed)
    if not incumbent.proved:
        prove(incumbent, meter)
    return incumbent.packing()


def prove(incumbent: Incumbent, meter: Meter) -> None:
    """Maximise one entry of the key after the other, those before held at what is reached.

    Where copies may return, what bounds an entry is a model of its own: it finds nothing. Nothing is done where
    building the model alone would take much of what is left.
    """
    layout = incumbent.layout
    if not _pays(layout, meter):
        return
    fixed = key_of(layout, layout.stuck)
    model = Model(layout)
    meter.spend(model.effort)
    if not model.complete_hint(incumbent.assignment, meter):
        return
    returns = with_returns(layout)
    bounding = model if returns is None else Model(returns)
    last = len(incumbent.key) - 1
    for entry in range(last + 1):
        if incumbent.open(entry) and not meter.over():
            for one in dict.fromkeys((model, bounding)):
                one.cap(entry, incumbent.bound[entry] - fixed[entry])
            with meter.part(1.0 if entry == last else _ENTRY_SHARE) as own:
                bound = _maximised(incumbent, entry, model, bounding, own)
            if bound is not None:
                incumbent.lower(entry, bound + fixed[entry])
        if incumbent.proved or meter.over():
            return
        for one in dict.fromkeys((model, bounding)):
            one.demand(entry, incumbent.key[entry] - fixed[entry])


def _maximised(incumbent: Incumbent, entry: int, model: Model, bounding: Model, meter: Meter) -> int | None:
    """Offer the best in an entry of the key that a model finds; the bound that another one gives."""
    answer = model.maximise(entry, meter, incumbent.offer)
    if answer.assignment is not None:
        incumbent.offer(answer.assignment)
    if answer.bound is not None and bounding is not model:
        answer = _bounded(incumbent, entry, answer.bound, bounding, meter)
    return answer.bound


def _pays(layout: Layout, meter: Meter) -> bool:
    """Whether a model is built in a small part of what is left."""
    variables = int((layout.running > layout.stuck).sum() + (layout.most > 0).sum())
    building = variables * SECONDS_A_VARIABLE / _BUILDING_SHARE
    return not meter.over() and building < min(meter.remaining_seconds(), meter.work_left / EFFORT_UNIT)


def _bounded(incumbent: Incumbent, entry: int, without: int, bounding: Model, meter: Meter) -> Answer:
    """The bound of a model in which copies return, and a note where it is more than without."""
    bounding.complete_hint(incumbent.assignment, meter)
    answer = bounding.maximise(entry, meter, _ignore)
    if answer.bound is None or answer.bound > without:
        incumbent.notes = (Note(NoteCode.OTHER_ORDERS),)
    return answer


def _ignore(assignment: IntArray) -> None:
    """What returns is none of an assignment that is carried out."""

"""What there is to say of a plan besides its figures, for people."""

from collections.abc import Mapping

from cruise.interfaces.amounts import count_text
from cruise.packer.answer import Note, NoteCode

_WORDS: Mapping[NoteCode, str] = {
    NoteCode.NO_TIME: "no time to search: answered by the quick method",
    NoteCode.OVERRAN: "stopped at the time limit: the best plan until then",
    NoteCode.STILL_COMPILING: "solver still compiling: answered by the quick method",
    NoteCode.COMPILES_ONCE: "the solver is compiled once after an installation: --time-limit 120 waits for that",
    NoteCode.SOLVER_NOT_STARTED: "the solver could not be started ({detail}): answered by the quick method",
    NoteCode.SOLVER_ENDED: "the solver ended unexpectedly ({detail}): answered by the quick method",
    NoteCode.EVICTIONS_NEEDED: "no plan without evictions places as many: proved",
    NoteCode.EVICTIONS_UNPROVED: "more would be placed by evictions, but it is not proved that this takes evictions",
    NoteCode.PACKING_DROPPED: "a packing was dropped: {detail}",
    NoteCode.PLAN_DROPPED: "a better packing was found, but dropped: {detail}",
    NoteCode.STATED: "{detail}",
    NoteCode.NODES_KEPT: ("some nodes stay in use: no order was found in which kube-scheduler would let every pod in"),
    NoteCode.OTHER_ORDERS: (
        "what is proved is of plans in which each rule holds in the end, and pods count volumes that they share: "
        "kube-scheduler may let more pods in, one after the other"
    ),
}


def note_words(note: Note) -> str:
    """Say what a note says, without a full stop."""
    are = "is" if note.count == 1 else "are"
    match note.code:
        case NoteCode.LEFT_OUT:
            return f"{count_text(note.count, 'pending pod')} {are} left out: {note.detail}"
        case NoteCode.NODES_MISSING:
            where = "a node that is" if note.count == 1 else "nodes that are"
            return f"{count_text(note.count, 'pod')} {are} bound to {where} not there"
        case code:
            return _WORDS[code].format(detail=note.detail)

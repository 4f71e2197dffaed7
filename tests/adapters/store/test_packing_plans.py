"""Packing plans as documents: those that releases before this one stored are read as well."""

from dataclasses import replace

import msgspec

from cruise.adapters.store.packing_plans import read_halt, read_notes, read_unplaced, stored_proposal
from cruise.domain.packing import Phase
from cruise.domain.unplaced import Finding, Pattern, Unplaced
from cruise.interfaces.packing.halt_words import plan_halt_words
from cruise.interfaces.packing.note_words import note_words
from cruise.interfaces.packing.unplaced_words import unplaced_words
from tests.interfaces.packing.packing_plans import PLAN


def test_what_was_stored_in_words_is_read_as_stated() -> None:
    document = {"namespace": "shop", "pod": "a", "blocked_by": ["cpu"], "words": "no node has it", "impossible": True}
    one = read_unplaced(document)
    assert one == Unplaced("shop", "a", ("cpu",), Finding(Pattern.STATED, stated="no node has it"), True)
    assert unplaced_words(one) == "no node has it"


def test_releases_before_this_one_find_lists_of_what_the_stages_do() -> None:
    proposal = PLAN.proposal
    document = stored_proposal(msgspec.to_builtins(proposal), proposal)
    found = [[one["pod"] for one in document[name]] for name in ("placed", "moves", "preempted", "resizes")]
    assert found == [["late-1"], ["web-1"], ["low"], ["api-1"]]


def test_notes_that_were_stored_in_words_keep_them() -> None:
    [note] = read_notes({"notes": ["a packing was dropped"]})
    assert note_words(note) == "a packing was dropped"


def test_why_a_plan_goes_no_further_is_read_in_words_too() -> None:
    words = plan_halt_words(replace(PLAN, phase=Phase.SHOWN, halt=read_halt({"detail": "paused: shown only"})))
    assert words == "paused: shown only"
    assert read_halt({"detail": ""}) is None
    assert read_halt({"halt": {"code": "binding", "subject": "shop/web-1"}}) == PLAN.halt

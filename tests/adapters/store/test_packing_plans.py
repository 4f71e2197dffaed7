"""Packing plans as documents: those that releases before this one stored are read as well."""

from cruise.adapters.store.packing_plans import read_notes, read_unplaced
from cruise.domain.unplaced import Finding, Pattern, Unplaced
from cruise.interfaces.packing.note_words import note_words
from cruise.interfaces.packing.unplaced_words import unplaced_words


def test_what_was_stored_in_words_is_read_as_stated() -> None:
    document = {"namespace": "shop", "pod": "a", "blocked_by": ["cpu"], "words": "no node has it", "impossible": True}
    one = read_unplaced(document)
    assert one == Unplaced("shop", "a", ("cpu",), Finding(Pattern.STATED, stated="no node has it"), True)
    assert unplaced_words(one) == "no node has it"


def test_notes_that_were_stored_in_words_keep_them() -> None:
    [note] = read_notes({"notes": ["a packing was dropped"]})
    assert note_words(note) == "a packing was dropped"

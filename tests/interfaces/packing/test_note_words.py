import pytest

from cruise.interfaces.packing.note_words import note_words
from cruise.packer.answer import Note, NoteCode


@pytest.mark.parametrize("code", NoteCode)
def test_every_note_has_words_with_what_is_behind_it(code):
    words = note_words(Note(code, "what is behind it", 2))
    assert words
    assert "{" not in words
    assert not words.endswith(".")


@pytest.mark.parametrize(
    ("note", "words"),
    [
        (Note(NoteCode.LEFT_OUT, "volume", 1), "1 pending pod is left out: volume"),
        (Note(NoteCode.LEFT_OUT, "volume", 1_200), "1,200 pending pods are left out: volume"),
        (Note(NoteCode.NODES_MISSING, count=1), "1 pod is bound to a node that is not there"),
        (Note(NoteCode.NODES_MISSING, count=2), "2 pods are bound to nodes that are not there"),
    ],
)
def test_one_pod_and_several_are_spoken_of_as_such(note, words):
    assert note_words(note) == words

import pytest

from cruise.interfaces.packing.descriptions import describe_note
from cruise.packer.answer import PackingNote, PackingNoteCode


@pytest.mark.parametrize("code", PackingNoteCode)
def test_every_note_has_words_with_what_is_behind_it(code):
    words = describe_note(PackingNote(code, "what is behind it", 2))
    assert words
    assert "{" not in words
    assert not words.endswith(".")


@pytest.mark.parametrize(
    ("note", "words"),
    [
        (PackingNote(PackingNoteCode.PODS_IGNORED, "volume", 1), "1 pending pod is ignored: volume"),
        (PackingNote(PackingNoteCode.PODS_IGNORED, "volume", 1_200), "1,200 pending pods are ignored: volume"),
        (PackingNote(PackingNoteCode.NODES_MISSING, count=1), "1 pod is bound to a node that is unknown"),
        (PackingNote(PackingNoteCode.NODES_MISSING, count=2), "2 pods are bound to nodes that are unknown"),
    ],
)
def test_one_pod_and_several_are_spoken_of_as_such(note, words):
    assert describe_note(note) == words

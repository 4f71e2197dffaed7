import json
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from cruise.interfaces.text import escape_json, escape_lines, escape_text


@given(st.text())
def test_nothing_is_left_that_has_no_shape(text):
    for shown in (escape_text(text), escape_lines(text).replace("\n", "")):
        assert [one for one in shown if unicodedata.category(one) in ("Cc", "Cs", "Zl", "Zp")] == []
        assert [one for one in shown if unicodedata.bidirectional(one) in ("RLO", "LRO", "RLE", "LRE", "PDF")] == []
        assert [one for one in shown if unicodedata.bidirectional(one) in ("RLI", "LRI", "FSI", "PDI")] == []


def test_user_text_is_unchanged():
    for text in ("web-7d9f8b6c5d", "größe µs → 130m × 2 – “so”", "日本語", "C:\\path", ""):
        assert (escape_text(text), escape_lines(text)) == (text, text)


def test_escapes_are_shown():
    assert escape_text("\x1b[31m\x9b\x7f\u202e\n\t") == "\\x1b[31m\\x9b\\x7f\\u202e\\n\\t"
    assert escape_lines("a\nb\x1b") == "a\nb\\x1b"


def test_what_is_long_is_cut():
    assert escape_text("x" * 3000) == "x" * 1999 + "…"
    assert escape_text("abcdef", 4) == "abc…"


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"]))
    )
)
def test_a_document_says_the_same(value):
    document = json.dumps(value, ensure_ascii=False, indent=1).encode()
    written = escape_json(document)
    assert json.loads(written) == json.loads(document)
    assert escape_lines(written.decode()) == written.decode()

"""Lists split into runs: the items do not depend on layout, chunks and guesses."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.kube_json.reading.json_list import ItemListReader, MalformedJsonError

LAYOUTS: list[dict[str, Any]] = [
    {"separators": (",", ":")},
    {},
    {"indent": 4},
    {"indent": 1, "sort_keys": True},
    {"indent": "\t", "ensure_ascii": False},
]

# Text that looks like structure, so that only a reader of quotes and escapes distinguishes them.
tricky_text = st.text(alphabet='"\\{}[],:é\n a', max_size=8) | st.sampled_from(['},{"kind":"', '"}', "\\", '\\"', "],"])
values = st.recursive(
    tricky_text | st.integers() | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(tricky_text, inner, max_size=3),
    max_leaves=5,
)
items_of_a_list = st.lists(
    st.fixed_dictionaries({"apiVersion": tricky_text, "kind": values, "rest": values}), max_size=6
)


def chunked(text: bytes, size: int) -> list[bytes]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def parse(text: memoryview) -> list[Any] | None:
    try:
        return list(json.loads(bytes(text)))
    except ValueError:
        return None


def read_all(
    chunks: list[bytes], parse: Callable[[memoryview], list[Any] | None] = parse
) -> tuple[list[Any], dict[str, object]]:
    items = ItemListReader(chunks)
    found: list[Any] = []
    for run, parsed in items.read_runs(parse):
        assert (run is None) != (parsed is None)
        if run is not None:
            assert b"".join(chunks)[run.byte : run.byte + len(run.text)] == run.text
        found += json.loads(b"[" + run.text + b"]") if run is not None else parsed or []
    return found, items.fields


@given(
    items=items_of_a_list,
    before=st.dictionaries(st.sampled_from(["metadata", "x"]), values),
    layout=st.sampled_from(LAYOUTS),
    size=st.sampled_from([1, 3, 10, 50, 200, 1 << 20]),
)
def test_items_and_fields_survive_a_round_trip(items, before, layout, size):
    document = {"apiVersion": "v1", **before, "items": items, "kind": "List", "y": before}
    found, fields = read_all(chunked(json.dumps(document, **layout).encode(), size))
    assert found == items
    del document["items"]
    assert {name: json.dumps(value) for name, value in fields.items()}.keys() == document.keys()
    assert fields["kind"] == "List"


@given(
    items=items_of_a_list,
    layout=st.sampled_from(LAYOUTS),
    size=st.sampled_from([30, 200, 1 << 20]),
    answers=st.lists(st.booleans()),
)
def test_a_run_that_does_not_parse_is_returned_whole(items, layout, size, answers):
    remaining = iter(answers)

    def moody(text: memoryview) -> list[Any] | None:
        return parse(text) if next(remaining, True) else None

    document = {"items": items, "kind": "List"}
    found, _ = read_all(chunked(json.dumps(document, **layout).encode(), size), moody)
    assert found == items


@given(items=items_of_a_list, layout=st.sampled_from(LAYOUTS), size=st.sampled_from([7, 1 << 20]), data=st.data())
def test_a_truncated_list_never_passes(items, layout, size, data):
    whole = json.dumps({"kind": "List", "items": items}, **layout).encode()
    length = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(MalformedJsonError) as broken:
        read_all(chunked(whole[:length], size))
    assert 0 <= broken.value.byte <= length


def test_a_wrong_guess_only_costs_a_search():
    # The last item of the first chunk contains text that looks like the boundary of two items.
    item = {"apiVersion": "v1", "kind": "Pod", "inner": [{"apiVersion": "v1", "kind": "x"}] * 3}
    text = json.dumps({"items": [item] * 40, "kind": "List"}, separators=(",", ":")).encode()
    for size in range(150, 600, 7):
        assert read_all(chunked(text, size))[0] == [item] * 40


DEEP, LONG = b"[" * 20_000 + b"]" * 20_000, b"1" * 6000


@pytest.mark.parametrize(
    ("text", "problem", "byte"),
    [
        (b"", "empty", 0),
        (b" \n ", "empty", 0),
        (b"hello", "not a JSON object", 0),
        (b"[1]", "not a JSON object", 0),
        (b"\xff\xfe{\x00}\x00", "UTF-16 text; write the file as UTF-8", 0),
        (b"{}", "no list: it has no items", 0),
        (b'{"kind":"Pod","spec":{}}', "no list: it has no items", 0),
        (b'{"kind":"Po', "truncated: the text ends before the list", 11),
        (b'{"kind":"Pod"', "truncated: the text ends before the list", 13),
        (b'{"kind":}', "not JSON: expecting value", 8),
        (b'{"items":[', "truncated: the text ends inside the list", 10),
        (b'{"items":[{"a":1}', "truncated: the text ends inside the list", 17),
        (b'{"items":[{"a":1},{"b', "truncated: the text ends inside the list", 21),
        (b'{"items":[{"a":1},]}', "not JSON: expected {", 18),
        (b'{"items":[1]}', "not JSON: expected { or ]", 10),
        (b'{"items":[]', "truncated: the text ends after the list", 11),
        (b'{"items":[],"kind":"Li', "truncated: the text ends after the list", 22),
        (b'{"items":[]} {"items":[]}', "text after the list; a file has one list", 13),
        (b'{"items":[],,}', "not JSON: expecting property name enclosed in double quotes", 12),
        (b'{"a":' + DEEP + b',"items":[]}', "nested too deeply", 5),
        (b'{"a":' + LONG + b',"items":[]}', "a number with too many digits", 5),
        (b'{"items":[],"a":' + DEEP + b"}", "nested too deeply", 11),
        (b'{"items":[],"a":' + LONG + b"}", "a number with too many digits", 11),
    ],
)
def test_errors_name_their_byte(text, problem, byte):
    for size in (1, 4, 1 << 20) if len(text) < 100 else (1000, 1 << 20):
        with pytest.raises(MalformedJsonError) as broken:
            read_all(chunked(text, size))
        assert (broken.value.problem, broken.value.byte) == (problem, byte)


def test_a_byte_order_mark_is_no_content():
    assert read_all([b'\xef\xbb\xbf{"items":[{"a":1}],"kind":"List"}'])[0] == [{"a": 1}]

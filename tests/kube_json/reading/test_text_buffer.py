"""The ends of objects, compared with reading byte by byte, and the reuse of memory."""

from hypothesis import given
from hypothesis import strategies as st

from cruise.kube_json.reading.json_list import TextBuffer, find_end_of_items

structure = st.text(alphabet='"\\{}[],a ', max_size=60).map(str.encode)


def filled(*chunks: bytes) -> TextBuffer:
    window = TextBuffer()
    for chunk in chunks:
        window.append(chunk)
    return window


def end_byte_by_byte(text: bytes) -> int:
    end = depth = 0
    quoted = escaped = False
    for at, letter in enumerate(text.decode()):
        if escaped:
            escaped = False
        elif letter == "\\":
            # Outside of strings no JSON has one; there, too, it takes the next mark's meaning away.
            escaped = True
        elif letter == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif letter == "{":
            depth += 1
        elif letter == "}":
            depth -= 1
            end = at + 1 if depth == 0 else end
        elif letter == "]" and depth == 0:
            break
    return end


@given(
    st.lists(st.sampled_from(['{"a":1}', '{"}":"\\\\"}', '{"\\"{":[{}]}', "]", ",", " ", '{"a":[1', '"']), max_size=12)
)
def test_the_last_whole_item_ends_where_a_reading_byte_by_byte_ends(pieces):
    text = "".join(pieces).encode()
    window = filled(text)
    assert find_end_of_items(window) == (window.start + end if (end := end_byte_by_byte(text)) else 0)


@given(st.lists(st.tuples(structure, st.integers(0, 60)), max_size=20))
def test_what_was_appended_and_not_dropped_is_there(steps):
    window, expected, dropped = TextBuffer(), b"", 0
    for chunk, count in steps:
        window.append(chunk)
        expected += chunk
        count = min(count, len(expected))
        window.drop_until(window.start + count)
        expected, dropped = expected[count:], dropped + count
        assert bytes(window.memory[window.start : window.end]) == expected
        assert window.byte == dropped
        assert window.start >= 1
        assert window.end < len(window.memory)


def test_memory_does_not_grow_with_what_passes_through():
    window = TextBuffer()
    for _ in range(1000):
        window.append(b"x" * 1000)
        window.drop_until(window.end - 10)
    assert len(window.memory) < 3000


def test_brackets_are_placeholders_only_while_parsing():
    window = filled(b'{"a":1},{"b":2}')
    assert window.parse_until(window.start + 7, bytes) == b'[{"a":1}]'
    assert bytes(window.memory[window.start : window.end]) == b'{"a":1},{"b":2}'

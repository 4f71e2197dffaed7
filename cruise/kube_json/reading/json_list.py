"""Split a large JSON list into runs of whole items while it is read, so that it is never in memory as a whole.

The document is an object with an array `items` of objects; other code decodes the items.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from cruise.errors import UNPARSABLE_ERRORS

T = TypeVar("T")

_QUOTE, _BACKSLASH, _CLOSE_BRACKET, _OPEN_BRACE, _CLOSE_BRACE = b'"\\]{}'
_SPACE = re.compile(rb"[ \t\r\n]*")


class TextBuffer:
    """Text that was read and not used yet, in memory that is reused, because new pages would cost more than a copy.

    It is between `start` and `end` of `memory`, with a spare byte on either side.
    """

    def __init__(self) -> None:
        self.memory = bytearray(2)
        self.start = self.end = 1
        self.byte = 0  # offset of `start` in the document

    def append(self, chunk: bytes) -> None:
        """Add a chunk."""
        if self.end + len(chunk) >= len(self.memory):
            kept = self.memory[self.start : self.end]
            self.memory[1 : 1 + len(kept)] = kept
            self.start, self.end = 1, 1 + len(kept)
            lacking = self.end + len(chunk) + 1 - len(self.memory)
            if lacking > 0:
                self.memory.extend(bytes(lacking))
        self.memory[self.end : self.end + len(chunk)] = chunk
        self.end += len(chunk)

    def drop_until(self, place: int) -> None:
        """Move `start` to `place`."""
        self.byte += place - self.start
        self.start = place

    def skip_space(self) -> bytes:
        """Drop white space and return the next byte, or nothing at the end."""
        match = _SPACE.match(self.memory, self.start, self.end)
        if match is not None:
            self.drop_until(match.end())
        return bytes(self.memory[self.start : self.start + 1]) if self.start < self.end else b""

    def parse_until(self, place: int, parse: Callable[[memoryview], T | None]) -> T | None:
        """Parse the items before `place` as an array; brackets temporarily replace the bytes around them."""
        next_byte = self.memory[place]
        self.memory[self.start - 1], self.memory[place] = b"[]"
        with memoryview(self.memory) as whole, whole[self.start - 1 : place + 1] as array:
            parsed = parse(array)
        self.memory[place] = next_byte
        return parsed


def find_end_of_items(window: TextBuffer) -> int:
    """Return the end of the last whole item of the list in the window, 0 if there is none."""
    if window.start == window.end:
        return 0
    data = np.frombuffer(window.memory, np.uint8, window.end - window.start, window.start)
    # Bit 5 turns brackets into braces; 7B-7D then also has the backslash, and otherwise only the bar.
    marked = ((data | 0x20) - np.uint8(_OPEN_BRACE)) <= _CLOSE_BRACE - _OPEN_BRACE
    marked |= data == _QUOTE
    places = np.flatnonzero(marked)
    marks = data[places]
    quotes = marks == _QUOTE
    if window.memory.find(b"\\", window.start, window.end) >= 0:
        quotes &= ~_is_escaped(places, marks == _BACKSLASH)
    outside = (np.cumsum(quotes) & 1) == 0
    closing = (marks == _CLOSE_BRACE) & outside
    depth = np.cumsum(((marks == _OPEN_BRACE) & outside).astype(np.int32) - closing)
    on_top_level = depth == 0
    ends_of_list = np.flatnonzero((marks == _CLOSE_BRACKET) & outside & on_top_level)
    ends_of_items = np.flatnonzero(closing & on_top_level)
    if ends_of_list.size:
        ends_of_items = ends_of_items[: np.searchsorted(ends_of_items, ends_of_list[0])]
    return window.start + int(places[ends_of_items[-1]]) + 1 if ends_of_items.size else 0


def _is_escaped(places: NDArray[np.int64], backslashes: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which marks follow an odd number of backslashes."""
    index = np.arange(places.size, dtype=np.int64)
    follows = np.zeros(places.size, dtype=np.bool_)
    follows[1:] = backslashes[:-1] & (np.diff(places) == 1)
    run_start = np.maximum.accumulate(np.where(follows, 0, index))
    is_odd: NDArray[np.bool_] = (index - run_start) % 2 == 1
    return is_odd


LONGEST_ITEM = 16 << 20
"""Bytes; no object of a cluster is as large (etcd allows 1.5 MB)."""

_BOUNDARY = re.compile(rb'\}[ \t\r\n]*,[ \t\r\n]*\{[ \t\r\n]*"[^"\\]*"[ \t\r\n]*:')
_SECOND_KEY = re.compile(rb'[ \t\r\n]*"[^"\\]*"[ \t\r\n]*,[ \t\r\n]*("[^"\\]*")')
_DECODER = json.JSONDecoder()
_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


class MalformedJsonError(Exception):
    """Text that is not the expected JSON list; `byte` is the offset of the error."""

    def __init__(self, problem: str, byte: int) -> None:
        super().__init__(problem)
        self.problem = problem
        self.byte = byte


def describe_unparsable(error: Exception) -> str:
    """Describe one of UNPARSABLE_ERRORS that is not a JSONDecodeError."""
    return "nested too deeply" if isinstance(error, RecursionError) else "a number with too many digits"


@dataclass(frozen=True, slots=True)
class ItemRun:
    """Whole items of the list, separated by commas; `byte` is their offset in the document."""

    text: bytes
    byte: int


@dataclass(frozen=True, slots=True)
class _ItemBoundary:
    """The text between two items up to the later one's first key, and its second key if known."""

    text: bytes
    second_key: bytes | None

    @staticmethod
    def locate(window: TextBuffer, end: int) -> "_ItemBoundary | None":
        """Return the boundary after the item that ends at `end`, None if no item follows."""
        boundary = _BOUNDARY.match(window.memory, end - 1, window.end)
        if boundary is None:
            return None
        second = _SECOND_KEY.match(window.memory, boundary.end(), window.end)
        return _ItemBoundary(bytes(boundary.group()), bytes(second.group(1)) if second else None)

    def last_end(self, window: TextBuffer) -> int:
        """Return the end of the last item that such a boundary follows, 0 if there is none."""
        memory, at = window.memory, window.end
        while (at := memory.rfind(self.text, window.start, at)) >= 0:
            second = _SECOND_KEY.match(memory, at + len(self.text), window.end)
            if self.second_key is None or (second and second.group(1) == self.second_key):
                return at + 1
        return 0


class ItemListReader:
    """The items of one document, in runs; `fields` are the other fields of the document read so far.

    Finding the ends of items costs more than decoding them. So the end of a run is guessed by the text that separated
    earlier items, and is right if the run parses as an array. Otherwise the end is searched.
    """

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self.fields: dict[str, object] = {}
        self._chunks = iter(chunks)
        self._window = TextBuffer()
        self._may_follow = b"{]"
        self._boundary: _ItemBoundary | None = None

    def read_runs(self, parse: Callable[[memoryview], T | None]) -> Iterator[tuple[ItemRun | None, T | None]]:
        """Yield the result of `parse` for each run of items as a JSON array, or the run itself if it returns None.

        Afterwards `fields` is complete. `parse` may get a rejected run twice, with different ends. Raises
        MalformedJsonError.
        """
        window = self._window
        self._read_head()
        while self._next_mark() != b"]":
            end = self._boundary.last_end(window) if self._boundary else 0
            parsed = window.parse_until(end, parse) if end else None
            if parsed is None:
                end = find_end_of_items(window)
                if end:
                    self._boundary = _ItemBoundary.locate(window, end)
                    parsed = window.parse_until(end, parse)
            if end:
                run = ItemRun(bytes(window.memory[window.start : end]), window.byte) if parsed is None else None
                yield run, parsed
                window.drop_until(end)
                self._may_follow = b",]"
            else:
                self._read_more()
        self._read_tail()

    def _read_more(self) -> None:
        window = self._window
        if window.end - window.start > LONGEST_ITEM:
            raise MalformedJsonError(f"an item of more than {LONGEST_ITEM >> 20} MiB", window.byte)
        chunk = next(self._chunks, None)
        if chunk is None:
            raise MalformedJsonError(
                "truncated: the text ends inside the list", window.byte + window.end - window.start
            )
        window.append(chunk)

    def _next_mark(self) -> bytes:
        """Drop the text before the next item or the end of the list, and return its first byte."""
        while True:
            mark = self._window.skip_space()
            if mark not in self._may_follow:
                wanted = " or ".join(chr(mark) for mark in self._may_follow)
                raise MalformedJsonError(f"not JSON: expected {wanted}", self._window.byte)
            if mark != b",":
                return mark
            self._window.drop_until(self._window.start + 1)
            self._may_follow = b"{"

    def _read_head(self) -> None:
        """Read up to the opening bracket of `items`."""
        text = b""
        for chunk in self._chunks:
            text += chunk
            if text.startswith(_UTF16_MARKS):
                raise MalformedJsonError("UTF-16 text; write the file as UTF-8", 0)
            # Byte order marks have up to three bytes.
            found = self._scan_head(text) if len(text) > 2 else None
            if found is not None:
                self._window.append(text)
                self._window.drop_until(self._window.start + found)
                return
            if len(text) > LONGEST_ITEM:
                raise MalformedJsonError(f"no list within the first {LONGEST_ITEM >> 20} MiB", 0)
        if not text.strip():
            raise MalformedJsonError("empty", 0)
        self.fields |= _parse_document(text)
        raise MalformedJsonError("no list: it has no items", 0)

    def _scan_head(self, text: bytes) -> int | None:
        """Read fields until `items`; return the offset of the first item, None if more text is needed.

        Latin-1 makes every byte one character; the names and values that are used are ASCII.
        """
        document = text.decode("latin-1")
        at = _skip_space(text, len(_UTF8_MARK) if text.startswith(_UTF8_MARK) else 0)
        if at >= len(text):
            return None
        if text[at : at + 1] != b"{":
            raise MalformedJsonError("not a JSON object", at)
        at += 1
        while True:
            parsed = _parse_value(document, _skip_space(text, at))
            if parsed is None:
                return None
            name, at = parsed
            colon = _skip_space(text, at)
            value = _skip_space(text, colon + 1)
            if text[colon : colon + 1] != b":" or not text[value : value + 1]:
                return None
            if name == "items" and text[value : value + 1] == b"[":
                return value + 1
            parsed = _parse_value(document, value)
            comma = _skip_space(text, parsed[1]) if parsed else len(text)
            if parsed is None or text[comma : comma + 1] != b",":
                return None
            self.fields[str(name)], at = parsed[0], comma + 1

    def _read_tail(self) -> None:
        """Read the fields after the list."""
        window = self._window
        tail, byte = bytes(window.memory[window.start + 1 : window.end]), window.byte + 1
        for chunk in self._chunks:
            tail += chunk
            if len(tail) > LONGEST_ITEM:
                raise MalformedJsonError("too much text after the list", byte)
        try:
            rest = json.loads('{"items":[]' + tail.decode("latin-1"))
        except json.JSONDecodeError as error:
            if _ends_early(error):
                raise MalformedJsonError("truncated: the text ends after the list", byte + len(tail)) from error
            at = byte + max(0, error.pos - len('{"items":[]'))
            raise MalformedJsonError(_describe_error(error), at) from error
        except UNPARSABLE_ERRORS as error:
            raise MalformedJsonError(describe_unparsable(error), byte) from error
        del rest["items"]
        self.fields |= rest


def _parse_value(text: str, at: int) -> tuple[object, int] | None:
    """Return the JSON value at an offset and its end, None if more text is needed."""
    try:
        return _DECODER.raw_decode(text, at)
    except json.JSONDecodeError:
        return None
    except UNPARSABLE_ERRORS as error:
        raise MalformedJsonError(describe_unparsable(error), at) from error


def _skip_space(text: bytes, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _ends_early(error: json.JSONDecodeError) -> bool:
    """Return whether the only error of a text is that it ends."""
    return error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated string")


def _describe_error(error: json.JSONDecodeError) -> str:
    """Describe the error of a text that does not end early."""
    if error.msg == "Extra data":
        return "text after the list; a file has one list"
    return f"not JSON: {error.msg[:1].lower()}{error.msg[1:]}"


def _parse_document(text: bytes) -> dict[str, object]:
    """Return the fields of a document without items; MalformedJsonError if it is not JSON."""
    try:
        document = json.loads(text.removeprefix(_UTF8_MARK).decode("latin-1"))
    except json.JSONDecodeError as error:
        if _ends_early(error):
            raise MalformedJsonError("truncated: the text ends before the list", len(text)) from error
        raise MalformedJsonError(_describe_error(error), error.pos) from error
    except UNPARSABLE_ERRORS as error:
        raise MalformedJsonError(describe_unparsable(error), 0) from error
    return document if isinstance(document, dict) else {}

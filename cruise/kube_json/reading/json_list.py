"""A large JSON list cut into runs of whole items while it is read, so that it is never in memory as a whole.

The document is an object with an array `items` of objects; what is inside an item is left to its decoder.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

# A window over text that is read in chunks, and where JSON objects end in it. Only quotes, backslashes, braces and closing brackets are looked at, for the whole window at a time.

T = TypeVar("T")

_QUOTE, _BACKSLASH, _CLOSE_BRACKET, _OPEN_BRACE, _CLOSE_BRACE = b'"\\]{}'
_SPACE = re.compile(rb"[ \t\r\n]*")


class TextBuffer:
    """Text read and not yet used, in memory that is used again and again: fresh pages would cost more than the copy.

    It lies between `start` and `end` of `memory`, always with a spare byte on either side.
    """

    def __init__(self) -> None:
        self.memory = bytearray(2)
        self.start = self.end = 1
        self.byte = 0  # where `start` stands in the document

    def append(self, chunk: bytes) -> None:
        """Take in what was read next."""
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
        """Let the window start at `place`."""
        self.byte += place - self.start
        self.start = place

    def skip_space(self) -> bytes:
        """Drop white space; return the first byte behind it, nothing at the end."""
        match = _SPACE.match(self.memory, self.start, self.end)
        if match is not None:
            self.drop_until(match.end())
        return bytes(self.memory[self.start : self.start + 1]) if self.start < self.end else b""

    def parse_until(self, place: int, parse: Callable[[memoryview], T | None]) -> T | None:
        """Parse the items in front of `place` as an array, whose brackets stand in for what is around them."""
        behind = self.memory[place]
        self.memory[self.start - 1], self.memory[place] = b"[]"
        with memoryview(self.memory) as whole, whole[self.start - 1 : place + 1] as array:
            parsed = parse(array)
        self.memory[place] = behind
        return parsed


def find_end_of_items(window: TextBuffer) -> int:
    """Return where the last whole item in the window ends that still belongs to the list, 0 if none does."""
    if window.start == window.end:
        return 0
    data = np.frombuffer(window.memory, np.uint8, window.end - window.start, window.start)
    # With bit 5 set, brackets become braces; 7B-7D then also has the backslash, and nothing but a bar besides.
    marked = ((data | 0x20) - np.uint8(_OPEN_BRACE)) <= _CLOSE_BRACE - _OPEN_BRACE
    marked |= data == _QUOTE
    places = np.flatnonzero(marked)
    marks = data[places]
    quotes = marks == _QUOTE
    if window.memory.find(b"\\", window.start, window.end) >= 0:
        quotes &= ~_escaped(places, marks == _BACKSLASH)
    outside = (np.cumsum(quotes) & 1) == 0
    closing = (marks == _CLOSE_BRACE) & outside
    depth = np.cumsum(((marks == _OPEN_BRACE) & outside).astype(np.int32) - closing)
    on_top = depth == 0
    ends_of_list = np.flatnonzero((marks == _CLOSE_BRACKET) & outside & on_top)
    ends_of_items = np.flatnonzero(closing & on_top)
    if ends_of_list.size:
        ends_of_items = ends_of_items[: np.searchsorted(ends_of_items, ends_of_list[0])]
    return window.start + int(places[ends_of_items[-1]]) + 1 if ends_of_items.size else 0


def _escaped(places: NDArray[np.int64], backslashes: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Tell which marks stand behind an odd number of backslashes in a row."""
    index = np.arange(places.size, dtype=np.int64)
    follows = np.zeros(places.size, dtype=np.bool_)
    follows[1:] = backslashes[:-1] & (np.diff(places) == 1)
    run_start = np.maximum.accumulate(np.where(follows, 0, index))
    odd: NDArray[np.bool_] = (index - run_start) % 2 == 1
    return odd


LONGEST_ITEM = 16 << 20
"""Bytes; no object of a cluster comes near (etcd takes 1.5 MB), so a longer item is no list's item."""

_SEAM = re.compile(rb'\}[ \t\r\n]*,[ \t\r\n]*\{[ \t\r\n]*"[^"\\]*"[ \t\r\n]*:')
_SECOND_KEY = re.compile(rb'[ \t\r\n]*"[^"\\]*"[ \t\r\n]*,[ \t\r\n]*("[^"\\]*")')
_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


class MalformedJson(Exception):
    """Text that is not the JSON list it should be; `byte` is where it goes wrong, counted from 0."""

    def __init__(self, problem: str, byte: int) -> None:
        super().__init__(problem)
        self.problem = problem
        self.byte = byte


@dataclass(frozen=True, slots=True)
class ItemRun:
    """Whole items of the list with commas between them; `byte` is where the text starts in the document."""

    text: bytes
    byte: int


@dataclass(frozen=True, slots=True)
class _ItemBoundary:
    """What stands between two items, up to the later one's first key, and that one's second key if it is known."""

    text: bytes
    second_key: bytes | None

    @staticmethod
    def locate(window: TextBuffer, end: int) -> "_ItemBoundary | None":
        """Learn the seam behind the item that ends at `end`; None where no item follows."""
        seam = _SEAM.match(window.memory, end - 1, window.end)
        if seam is None:
            return None
        second = _SECOND_KEY.match(window.memory, seam.end(), window.end)
        return _ItemBoundary(bytes(seam.group()), bytes(second.group(1)) if second else None)

    def last_end(self, window: TextBuffer) -> int:
        """Return where the last item ends that such a seam follows, 0 if none does."""
        memory, at = window.memory, window.end
        while (at := memory.rfind(self.text, window.start, at)) >= 0:
            second = _SECOND_KEY.match(memory, at + len(self.text), window.end)
            if self.second_key is None or (second and second.group(1) == self.second_key):
                return at + 1
        return 0


class ItemListReader:
    """The items of one document, in runs; `fields` are the document's other fields as far as they were read.

    To look up where items end costs more than to decode them. So the end of a run is guessed first, by what stood
    between items before, and the guess holds if the run parses: what is a whole array once it stands in brackets ends
    between two items. Only where it does not, the end is looked up.
    """

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self.fields: dict[str, object] = {}
        self._chunks = iter(chunks)
        self._window = TextBuffer()
        self._may_follow = b"{]"
        self._seam: _ItemBoundary | None = None

    def runs(self, parse: Callable[[memoryview], T | None]) -> Iterator[tuple[ItemRun | None, T | None]]:
        """Yield what `parse` makes of each run of items as a JSON array, or the run itself where that is None.

        Afterwards `fields` is complete. A run that `parse` cannot use may be shown to it twice, with different ends.
        Raises MalformedJson.
        """
        window = self._window
        self._read_head()
        while self._next_mark() != b"]":
            end = self._seam.last_end(window) if self._seam else 0
            parsed = window.parse_until(end, parse) if end else None
            if parsed is None:
                end = find_end_of_items(window)
                if end:
                    self._seam = _ItemBoundary.locate(window, end)
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
            raise MalformedJson(f"an item of more than {LONGEST_ITEM >> 20} MiB", window.byte)
        chunk = next(self._chunks, None)
        if chunk is None:
            raise MalformedJson("truncated: the text ends inside the list", window.byte + window.end - window.start)
        window.append(chunk)

    def _next_mark(self) -> bytes:
        """Drop what stands in front of the next item or the end of the list; return that one's first byte."""
        while True:
            mark = self._window.skip_space()
            if mark not in self._may_follow:
                wanted = " or ".join(chr(mark) for mark in self._may_follow)
                raise MalformedJson(f"not JSON: {wanted} belongs", self._window.byte)
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
                raise MalformedJson("UTF-16 text; write the file as UTF-8", 0)
            # Byte order marks have up to three bytes.
            found = self._scan_head(text) if len(text) > 2 else None
            if found is not None:
                self._window.append(text)
                self._window.drop_until(self._window.start + found)
                return
            if len(text) > LONGEST_ITEM:
                raise MalformedJson(f"no list within the first {LONGEST_ITEM >> 20} MiB", 0)
        if not text.strip():
            raise MalformedJson("empty", 0)
        self.fields |= _whole_document(text)
        raise MalformedJson("no list: it has no items", 0)

    def _scan_head(self, text: bytes) -> int | None:
        """Read fields into `fields` until `items`; return where its first item starts, None if that is not yet here.

        Latin-1 makes every byte one character; names and values that matter here are ASCII.
        """
        document = text.decode("latin-1")
        at = _skip_space(text, len(_UTF8_MARK) if text.startswith(_UTF8_MARK) else 0)
        if at >= len(text):
            return None
        if text[at : at + 1] != b"{":
            raise MalformedJson("not a JSON object", at)
        decoder, at = json.JSONDecoder(), at + 1
        while True:
            try:
                name, at = decoder.raw_decode(document, _skip_space(text, at))
            except json.JSONDecodeError:
                return None
            colon = _skip_space(text, at)
            value = _skip_space(text, colon + 1)
            if text[colon : colon + 1] != b":" or not text[value : value + 1]:
                return None
            if name == "items" and text[value : value + 1] == b"[":
                return value + 1
            try:
                self.fields[str(name)], at = decoder.raw_decode(document, value)
            except json.JSONDecodeError:
                return None
            comma = _skip_space(text, at)
            if text[comma : comma + 1] != b",":
                return None
            at = comma + 1

    def _read_tail(self) -> None:
        """Read the fields behind the list's closing bracket."""
        window = self._window
        tail, byte = bytes(window.memory[window.start + 1 : window.end]), window.byte + 1
        for chunk in self._chunks:
            tail += chunk
            if len(tail) > LONGEST_ITEM:
                raise MalformedJson("more text behind the list than belongs there", byte)
        try:
            rest = json.loads('{"items":[]' + tail.decode("latin-1"))
        except json.JSONDecodeError as error:
            if _ends_early(error):
                raise MalformedJson("truncated: the text ends behind the list", byte + len(tail)) from error
            at = byte + max(0, error.pos - len('{"items":[]'))
            raise MalformedJson(_reason(error), at) from error
        del rest["items"]
        self.fields |= rest


def _skip_space(text: bytes, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _ends_early(error: json.JSONDecodeError) -> bool:
    """Tell whether a text is wrong only in that it ends."""
    return error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated string")


def _reason(error: json.JSONDecodeError) -> str:
    """Say what is wrong with a text that does not end early."""
    if error.msg == "Extra data":
        return "more text behind the list, where a file has one list"
    return f"not JSON: {error.msg[:1].lower()}{error.msg[1:]}"


def _whole_document(text: bytes) -> dict[str, object]:
    """Return the fields of a document that has no items. Raises MalformedJson where it is no JSON object."""
    try:
        document = json.loads(text.removeprefix(_UTF8_MARK).decode("latin-1"))
    except json.JSONDecodeError as error:
        if _ends_early(error):
            raise MalformedJson("truncated: the text ends before the list", len(text)) from error
        raise MalformedJson(_reason(error), error.pos) from error
    return document if isinstance(document, dict) else {}

"""A large JSON list cut into runs of whole items while it is read, so that it is never in memory as a whole.

The document is an object with an array `items` of objects. Only quotes, backslashes, braces and closing brackets are
looked at, for a whole chunk at a time; what is inside an item is left to its decoder.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")

LONGEST_ITEM = 64 << 20
"""Bytes; no object of a cluster comes near (etcd takes 1.5 MB), so a longer item is no list's item."""

_QUOTE, _BACKSLASH, _CLOSE_BRACKET, _OPEN_BRACE, _CLOSE_BRACE = b'"\\]{}'
_SEAM = re.compile(rb'\}[ \t\r\n]*,[ \t\r\n]*\{[ \t\r\n]*"[^"\\]*"[ \t\r\n]*:')
_SECOND_KEY = re.compile(rb'[ \t\r\n]*"[^"\\]*"[ \t\r\n]*,[ \t\r\n]*("[^"\\]*")')
_SPACE = re.compile(rb"[ \t\r\n]*")
_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


class BrokenJson(Exception):
    """Text that is not the JSON list it should be; `byte` is where it goes wrong, counted from 0."""

    def __init__(self, problem: str, byte: int) -> None:
        super().__init__(problem)
        self.problem = problem
        self.byte = byte


@dataclass(frozen=True, slots=True)
class Run:
    """Whole items of the list with commas between them; `byte` is where the text starts in the document."""

    text: bytes
    byte: int


@dataclass(frozen=True, slots=True)
class _Seam:
    """What stands between two items, up to the later one's first key, and that one's second key if it is known."""

    text: bytes
    second_key: bytes | None

    @staticmethod
    def at(text: bytearray, end: int) -> "_Seam | None":
        """Learn the seam behind the item that ends at `end`; None where no item follows."""
        seam = _SEAM.match(text, end - 1)
        if seam is None:
            return None
        second = _SECOND_KEY.match(text, seam.end())
        return _Seam(bytes(seam.group()), bytes(second.group(1)) if second else None)

    def last_end(self, text: bytearray) -> int:
        """Return where the last item ends that such a seam follows, 0 if none does."""
        at = text.rfind(self.text)
        while at >= 0:
            second = _SECOND_KEY.match(text, at + len(self.text))
            if self.second_key is None or (second and second.group(1) == self.second_key):
                return at + 1
            at = text.rfind(self.text, 0, at)
        return 0


class ItemList:
    """The items of one document, in runs; `fields` are the document's other fields as far as they were read.

    To look up where items end costs more than to decode them. So the end of a run is guessed first, by what stood
    between items before, and the guess holds if the run parses: what is a whole array once it stands in brackets ends
    between two items. Only where it does not, the end is looked up.
    """

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self.fields: dict[str, object] = {}
        self._chunks = iter(chunks)
        # What was read and not yielded, behind the bracket that makes it an array without a copy; `_byte` is where
        # it stands in the document.
        self._text = bytearray(b"[")
        self._byte = 0
        self._may_follow = b"{]"
        self._seam: _Seam | None = None

    def runs(self, parse: Callable[[memoryview], T | None]) -> Iterator[tuple[Run | None, T | None]]:
        """Yield what `parse` makes of each run of items as a JSON array, or the run itself where that is None.

        Afterwards `fields` is complete. A run that `parse` cannot use may be shown to it twice, with different ends.
        Raises BrokenJson.
        """
        self._text += self._read_head()
        while True:
            if self._next_mark() == b"]":
                self._read_tail(bytes(self._text[2:]), self._byte + 1)
                return
            end = self._seam.last_end(self._text) if self._seam else 0
            parsed = self._parsed_until(end, parse) if end else None
            if parsed is None:
                end = _end_of_whole_items(self._text)
                if end:
                    self._seam = _Seam.at(self._text, end)
                    parsed = self._parsed_until(end, parse)
            if end:
                yield (None if parsed is not None else Run(bytes(self._text[1:end]), self._byte)), parsed
                self._drop(end)
                self._may_follow = b",]"
                continue
            if len(self._text) > LONGEST_ITEM:
                raise BrokenJson(f"an item of more than {LONGEST_ITEM >> 20} MiB", self._byte)
            chunk = next(self._chunks, None)
            if chunk is None:
                raise BrokenJson("truncated: the text ends inside the list", self._byte + len(self._text) - 1)
            self._text += chunk

    def _next_mark(self) -> bytes:
        """Drop what stands in front of the next item or the end of the list; return that one's first byte."""
        while True:
            self._drop(_skip_space(self._text, 1))
            mark = bytes(self._text[1:2])
            if mark not in self._may_follow:
                wanted = " or ".join(chr(mark) for mark in self._may_follow)
                raise BrokenJson(f"not JSON: {wanted} belongs", self._byte)
            if mark != b",":
                return mark
            self._drop(2)
            self._may_follow = b"{"

    def _drop(self, end: int) -> None:
        del self._text[1:end]
        self._byte += end - 1

    def _parsed_until(self, end: int, parse: Callable[[memoryview], T | None]) -> T | None:
        """Parse the items in front of `end`, for as long as a closing bracket stands there."""
        behind = self._text[end : end + 1]
        self._text[end : end + 1] = b"]"
        with memoryview(self._text) as whole, whole[: end + 1] as array:
            parsed = parse(array)
        self._text[end : end + 1] = behind
        return parsed

    def _read_head(self) -> bytes:
        """Read up to the opening bracket of `items`; return what was read behind it."""
        text = b""
        for chunk in self._chunks:
            text += chunk
            if text.startswith(_UTF16_MARKS):
                raise BrokenJson("UTF-16 text; write the file as UTF-8", 0)
            # Byte order marks have up to three bytes.
            found = self._scan_head(text) if len(text) > 2 else None
            if found is not None:
                self._byte = found
                return text[found:]
            if len(text) > LONGEST_ITEM:
                break
        if not text.strip():
            raise BrokenJson("empty", 0)
        self.fields |= _whole_document(text)
        raise BrokenJson("no list: it has no items", 0)

    def _scan_head(self, text: bytes) -> int | None:
        """Read fields into `fields` until `items`; return where its first item starts, None if that is not yet here.

        Latin-1 makes every byte one character; names and values that matter here are ASCII.
        """
        document = text.decode("latin-1")
        at = _skip_space(text, len(_UTF8_MARK) if text.startswith(_UTF8_MARK) else 0)
        if at >= len(text):
            return None
        if text[at] != _OPEN_BRACE:
            raise BrokenJson("not a JSON object", at)
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

    def _read_tail(self, tail: bytes, byte: int) -> None:
        """Read the fields behind the list."""
        for chunk in self._chunks:
            tail += chunk
            if len(tail) > LONGEST_ITEM:
                raise BrokenJson("more text behind the list than belongs there", byte)
        try:
            rest = json.loads('{"items":[]' + tail.decode("latin-1"))
        except json.JSONDecodeError as error:
            if _ends_early(error):
                raise BrokenJson("truncated: the text ends behind the list", byte + len(tail)) from error
            at = byte + max(0, error.pos - len('{"items":[]'))
            raise BrokenJson(f"not JSON: {error.msg[:1].lower()}{error.msg[1:]}", at) from error
        del rest["items"]
        self.fields |= rest


def _skip_space(text: bytes | bytearray, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _ends_early(error: json.JSONDecodeError) -> bool:
    """Tell whether a text is wrong only in that it ends."""
    return error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated string")


def _whole_document(text: bytes) -> dict[str, object]:
    """Return the fields of a document that has no items. Raises BrokenJson where it is no JSON object."""
    try:
        document = json.loads(text.removeprefix(_UTF8_MARK).decode("latin-1"))
    except json.JSONDecodeError as error:
        if _ends_early(error):
            raise BrokenJson("truncated: the text ends before the list", len(text)) from error
        raise BrokenJson(f"not JSON: {error.msg[:1].lower()}{error.msg[1:]}", error.pos) from error
    return document if isinstance(document, dict) else {}


def _end_of_whole_items(text: bytearray) -> int:
    """Return where the last whole item of `text` ends that still belongs to the list, 0 if none does.

    `text` is a bracket and what starts with a whole item.
    """
    data = np.frombuffer(text, dtype=np.uint8, offset=1)
    # With bit 5 set, brackets become braces; 7B-7D then also has the backslash, and nothing but a bar besides.
    marked = ((data | 0x20) - np.uint8(_OPEN_BRACE)) <= _CLOSE_BRACE - _OPEN_BRACE
    marked |= data == _QUOTE
    places = np.flatnonzero(marked)
    marks = data[places]
    quotes = marks == _QUOTE
    if b"\\" in text:
        quotes &= ~_escaped(places, marks == _BACKSLASH)
    outside = (np.cumsum(quotes) & 1) == 0
    closing = (marks == _CLOSE_BRACE) & outside
    depth = np.cumsum(((marks == _OPEN_BRACE) & outside).astype(np.int32) - closing)
    on_top = depth == 0
    ends_of_list = np.flatnonzero((marks == _CLOSE_BRACKET) & outside & on_top)
    ends_of_items = np.flatnonzero(closing & on_top)
    if ends_of_list.size:
        ends_of_items = ends_of_items[: np.searchsorted(ends_of_items, ends_of_list[0])]
    return int(places[ends_of_items[-1]]) + 2 if ends_of_items.size else 0


def _escaped(places: NDArray[np.int64], backslashes: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Tell which marks stand behind an odd number of backslashes in a row."""
    index = np.arange(places.size, dtype=np.int64)
    follows = np.zeros(places.size, dtype=np.bool_)
    follows[1:] = backslashes[:-1] & (np.diff(places) == 1)
    run_start = np.maximum.accumulate(np.where(follows, 0, index))
    odd: NDArray[np.bool_] = (index - run_start) % 2 == 1
    return odd

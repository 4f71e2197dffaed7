"""A large JSON list cut into runs of whole items while it is read, so that it is never in memory as a whole.

The document is an object with an array `items` of objects. Only quotes, backslashes, braces and closing brackets are
looked at, for a whole chunk at a time; what is inside an item is left to its decoder.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LONGEST_ITEM = 64 << 20
"""Bytes; no object of a cluster comes near (etcd takes 1.5 MB), so a longer item is no list's item."""

_QUOTE, _BACKSLASH, _CLOSE_BRACKET, _OPEN_BRACE, _CLOSE_BRACE = b'"\\]{}'
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


class ItemList:
    """The items of one document, in runs; `fields` are the document's other fields as far as they were read."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self.fields: dict[str, object] = {}
        self._chunks = iter(chunks)
        self._byte = 0

    def runs(self) -> Iterator[Run]:
        """Yield the items; afterwards `fields` is complete. Raises BrokenJson."""
        rest = self._read_head()
        after_item = False
        while True:
            start = _skip_space(rest, 0)
            # A comma belongs between two items; the decoder sees it only within a run.
            if after_item and rest[start : start + 1] == b",":
                start = _skip_space(rest, start + 1)
            elif after_item and rest[start : start + 1] not in (b"", b"]"):
                raise BrokenJson("not JSON: a comma or the end of the list belongs", self._byte + start)
            if rest[start : start + 1] == b"]":
                self._read_tail(rest[start + 1 :], self._byte + start + 1)
                return
            end = _end_of_whole_items(rest)
            if end:
                yield Run(rest[start:end], self._byte + start)
                self._byte += end
                rest, after_item = rest[end:], True
                continue
            if start < len(rest) and rest[start] != _OPEN_BRACE:
                raise BrokenJson("not JSON: an item of the list must be an object", self._byte + start)
            if len(rest) > LONGEST_ITEM:
                raise BrokenJson(f"an item of more than {LONGEST_ITEM >> 20} MiB", self._byte + start)
            chunk = next(self._chunks, None)
            if chunk is None:
                raise BrokenJson("truncated: the text ends inside the list", self._byte + len(rest))
            rest += chunk

    def _read_head(self) -> bytes:
        """Read up to the opening bracket of `items`; return what was read behind it."""
        text = b""
        for chunk in self._chunks:
            text += chunk
            if text.startswith(_UTF16_MARKS):
                raise BrokenJson("UTF-16 text; write the file as UTF-8", 0)
            found = self._scan_head(text)
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
            at = byte + max(0, error.pos - len('{"items":[]'))
            if at >= byte + len(tail.rstrip()):
                raise BrokenJson("truncated: the text ends behind the list", byte + len(tail)) from error
            raise BrokenJson(f"not JSON: {error.msg[:1].lower()}{error.msg[1:]}", at) from error
        del rest["items"]
        self.fields |= rest


def _skip_space(text: bytes, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _whole_document(text: bytes) -> dict[str, object]:
    """Return the fields of a document that has no items. Raises BrokenJson where it is no JSON object."""
    try:
        document = json.loads(text.removeprefix(_UTF8_MARK).decode("latin-1"))
    except json.JSONDecodeError as error:
        if error.pos >= len(text.rstrip()):
            raise BrokenJson("truncated: the text ends before the list", len(text)) from error
        raise BrokenJson(f"not JSON: {error.msg[:1].lower()}{error.msg[1:]}", error.pos) from error
    return document if isinstance(document, dict) else {}


def _end_of_whole_items(text: bytes) -> int:
    """Return where the last whole item of `text` ends that still belongs to the list, 0 if none does.

    `text` starts between two items.
    """
    data = np.frombuffer(text, dtype=np.uint8)
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
    return int(places[ends_of_items[-1]]) + 1 if ends_of_items.size else 0


def _escaped(places: NDArray[np.int64], backslashes: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Tell which marks stand behind an odd number of backslashes in a row."""
    index = np.arange(places.size, dtype=np.int64)
    follows = np.zeros(places.size, dtype=np.bool_)
    follows[1:] = backslashes[:-1] & (np.diff(places) == 1)
    run_start = np.maximum.accumulate(np.where(follows, 0, index))
    odd: NDArray[np.bool_] = (index - run_start) % 2 == 1
    return odd

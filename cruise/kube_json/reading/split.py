"""A large JSON list cut into runs of whole items while it is read, so that it is never in memory as a whole.

The document is an object with an array `items` of objects; what is inside an item is left to its decoder.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from cruise.kube_json.reading.window import Window, end_of_whole_items

T = TypeVar("T")

LONGEST_ITEM = 16 << 20
"""Bytes; no object of a cluster comes near (etcd takes 1.5 MB), so a longer item is no list's item."""

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
    def at(window: Window, end: int) -> "_Seam | None":
        """Learn the seam behind the item that ends at `end`; None where no item follows."""
        seam = _SEAM.match(window.memory, end - 1, window.end)
        if seam is None:
            return None
        second = _SECOND_KEY.match(window.memory, seam.end(), window.end)
        return _Seam(bytes(seam.group()), bytes(second.group(1)) if second else None)

    def last_end(self, window: Window) -> int:
        """Return where the last item ends that such a seam follows, 0 if none does."""
        memory, at = window.memory, window.end
        while (at := memory.rfind(self.text, window.start, at)) >= 0:
            second = _SECOND_KEY.match(memory, at + len(self.text), window.end)
            if self.second_key is None or (second and second.group(1) == self.second_key):
                return at + 1
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
        self._window = Window()
        self._may_follow = b"{]"
        self._seam: _Seam | None = None

    def runs(self, parse: Callable[[memoryview], T | None]) -> Iterator[tuple[Run | None, T | None]]:
        """Yield what `parse` makes of each run of items as a JSON array, or the run itself where that is None.

        Afterwards `fields` is complete. A run that `parse` cannot use may be shown to it twice, with different ends.
        Raises BrokenJson.
        """
        window = self._window
        self._read_head()
        while self._next_mark() != b"]":
            end = self._seam.last_end(window) if self._seam else 0
            parsed = window.parse_until(end, parse) if end else None
            if parsed is None:
                end = end_of_whole_items(window)
                if end:
                    self._seam = _Seam.at(window, end)
                    parsed = window.parse_until(end, parse)
            if end:
                run = Run(bytes(window.memory[window.start : end]), window.byte) if parsed is None else None
                yield run, parsed
                window.drop_until(end)
                self._may_follow = b",]"
            else:
                self._read_more()
        self._read_tail()

    def _read_more(self) -> None:
        window = self._window
        if window.end - window.start > LONGEST_ITEM:
            raise BrokenJson(f"an item of more than {LONGEST_ITEM >> 20} MiB", window.byte)
        chunk = next(self._chunks, None)
        if chunk is None:
            raise BrokenJson("truncated: the text ends inside the list", window.byte + window.end - window.start)
        window.append(chunk)

    def _next_mark(self) -> bytes:
        """Drop what stands in front of the next item or the end of the list; return that one's first byte."""
        while True:
            mark = self._window.skip_space()
            if mark not in self._may_follow:
                wanted = " or ".join(chr(mark) for mark in self._may_follow)
                raise BrokenJson(f"not JSON: {wanted} belongs", self._window.byte)
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
                raise BrokenJson("UTF-16 text; write the file as UTF-8", 0)
            # Byte order marks have up to three bytes.
            found = self._scan_head(text) if len(text) > 2 else None
            if found is not None:
                self._window.append(text)
                self._window.drop_until(self._window.start + found)
                return
            if len(text) > LONGEST_ITEM:
                raise BrokenJson(f"no list within the first {LONGEST_ITEM >> 20} MiB", 0)
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
        if text[at : at + 1] != b"{":
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

    def _read_tail(self) -> None:
        """Read the fields behind the list's closing bracket."""
        window = self._window
        tail, byte = bytes(window.memory[window.start + 1 : window.end]), window.byte + 1
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
            raise BrokenJson(_reason(error), at) from error
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
    """Return the fields of a document that has no items. Raises BrokenJson where it is no JSON object."""
    try:
        document = json.loads(text.removeprefix(_UTF8_MARK).decode("latin-1"))
    except json.JSONDecodeError as error:
        if _ends_early(error):
            raise BrokenJson("truncated: the text ends before the list", len(text)) from error
        raise BrokenJson(_reason(error), error.pos) from error
    return document if isinstance(document, dict) else {}

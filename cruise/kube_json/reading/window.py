"""A window over text that is read in chunks, and where JSON objects end in it.

Only quotes, backslashes, braces and closing brackets are looked at, for the whole window at a time.
"""

import re
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")

_QUOTE, _BACKSLASH, _CLOSE_BRACKET, _OPEN_BRACE, _CLOSE_BRACE = b'"\\]{}'
_SPACE = re.compile(rb"[ \t\r\n]*")


class Window:
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


def end_of_whole_items(window: Window) -> int:
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

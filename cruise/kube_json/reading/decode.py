"""Runs of items decoded into structs, and a slow way for runs that do not decode as a whole."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import msgspec

from cruise.errors import UNDECODABLE, BadInput
from cruise.kube_json.reading.split import BrokenJson, ItemList, Run

T = TypeVar("T")

_SEPARATOR = re.compile(r"[ \t\r\n]*(,?)[ \t\r\n]*")


def decode_items(
    items: ItemList,
    decoder_of: Callable[[Mapping[str, object]], msgspec.json.Decoder[list[T]]],
    one_by_one: Callable[[object], T | None],
) -> Iterator[T]:
    """Yield the structs of a document's items.

    `decoder_of` chooses by the document's fields read so far, and may refuse them. Where a whole run does not decode,
    every item is parsed by itself and given to `one_by_one`, which passes over it (None), repairs it or raises
    BadInput that names it. So items in front of a fault are yielded before the BrokenJson with its place.
    """

    def parse(text: memoryview) -> list[T] | None:
        try:
            return decoder_of(items.fields).decode(text)
        except UNDECODABLE:
            return None

    for run, decoded in items.runs(parse):
        if decoded is not None:
            yield from decoded
        elif run is not None:
            yield from (item for item in map(one_by_one, _parse_items(run)) if item is not None)


def _parse_items(run: Run) -> Iterator[object]:
    try:
        text = run.text.decode()
    except UnicodeDecodeError as error:
        raise BrokenJson("not UTF-8 text", run.byte + error.start) from error
    # Python's own parser also takes NaN and Infinity, which then are refused by name where they stand.
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        try:
            item, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            byte = run.byte + len(text[: error.pos].encode())
            raise BrokenJson(f"not JSON: {error.msg[:1].lower()}{error.msg[1:]}", byte) from error
        except RecursionError as error:
            raise BrokenJson("nested too deeply", run.byte + len(text[:at].encode())) from error
        yield item
        separator = _SEPARATOR.match(text, at)
        end = separator.end() if separator else at
        if end < len(text) and not (separator and separator.group(1)):
            raise BrokenJson("not JSON: a comma belongs", run.byte + len(text[:end].encode()))
        at = end


def broken_input(error: BrokenJson, after: str, fix: str) -> BadInput:
    """Say where a document breaks, behind which item, and what to do; `after` may be empty."""
    behind = f", after {after}" if after else ""
    return BadInput(f"{error.problem} (byte {error.byte}{behind}); {fix}")

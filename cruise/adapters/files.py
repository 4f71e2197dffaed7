"""Snapshot and usage files: from disk or standard input, gzipped or not, read in small pieces."""

import sys
import zlib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.packing_plan import NodeType
from cruise.domain.usage import StatisticsTable
from cruise.errors import BadInputError, pause_garbage_collection
from cruise.kube_json.reading.snapshot import read_node_types, read_snapshot
from cruise.kube_json.usage_file import read_usage

STANDARD_INPUT = "-"
_CHUNK_BYTES = 1 << 20
_GZIP_MARK = b"\x1f\x8b"


def load_snapshot(path: str) -> ClusterSnapshot:
    """Read a snapshot file, or standard input for `-`. Raises BadInputError, one line that names file, place and fix."""
    with pause_garbage_collection(kept=True):
        return read_snapshot(read_chunks(path), format_path(path))


def load_usage(
    path: str, snapshot: ClusterSnapshot | None = None, now: datetime | None = None
) -> tuple[StatisticsTable, datetime]:
    """Read a usage file and the time it is judged at, as `read_usage` does. Raises BadInputError as that does."""
    with pause_garbage_collection(kept=True):
        return read_usage(read_chunks(path), format_path(path), snapshot, now)


def load_node_types(path: str) -> tuple[NodeType, ...]:
    """Read a file of node types, or standard input for `-`. Raises BadInputError, one line with place and fix."""
    name = format_path(path)
    try:
        text = b"".join(read_chunks(path))
    except BadInputError as error:
        raise BadInputError(f"{name}: {error}") from error
    return read_node_types(text, name)


def format_path(path: str) -> str:
    """Name a file as messages do."""
    return "standard input" if path == STANDARD_INPUT else path or "an empty name"


def read_chunks(path: str) -> Iterator[bytes]:
    """Yield a file's content in pieces, unpacked where it is gzip, whatever its name.

    Raises BadInputError for what cannot be read; the caller adds its name.
    """
    if path == STANDARD_INPUT:
        yield from _unpacked(sys.stdin.buffer)
        return
    try:
        with Path(path).open("rb") as file:
            yield from _unpacked(file)
    except FileNotFoundError as error:
        raise BadInputError("no such file") from error
    except IsADirectoryError as error:
        raise BadInputError("is a directory; name the file in it" if path else "is no file; name one") from error
    except OSError as error:
        raise BadInputError(f"cannot be read: {error.strerror}") from error


def _unpacked(file: BinaryIO) -> Iterator[bytes]:
    chunks = iter(lambda: file.read(_CHUNK_BYTES), b"")
    first = next(chunks, b"")
    # A pipe may hand over a single byte at first.
    while len(first) < len(_GZIP_MARK) and (more := next(chunks, b"")):
        first += more
    if first.startswith(_GZIP_MARK):
        yield from _gunzipped(first, chunks)
        return
    yield first
    yield from chunks


def _gunzipped(first: bytes, chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Unpack gzip data of one or more members, never more than one chunk at a time."""
    unpacker, packed = zlib.decompressobj(zlib.MAX_WBITS | 16), first
    try:
        while packed:
            yield unpacker.decompress(packed, _CHUNK_BYTES)
            packed = unpacker.unconsumed_tail
            if unpacker.eof:
                packed = unpacker.unused_data or next(chunks, b"")
                # Padding with zeros behind the last member is common.
                if packed.strip(b"\0"):
                    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
                else:
                    return
            elif not packed:
                packed = next(chunks, b"")
    except zlib.error as error:
        raise BadInputError(f"is gzip, but damaged ({error}); write it again") from error
    raise BadInputError("is gzip, but ends early; write it again")

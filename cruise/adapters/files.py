"""Snapshot and usage files: from disk or standard input, gzipped or not, read in chunks."""

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
_GZIP_MAGIC = b"\x1f\x8b"


def load_snapshot(path: str) -> ClusterSnapshot:
    """Read a snapshot file, or standard input for `-`. Raises BadInputError: one line with file, position and fix."""
    with pause_garbage_collection(kept=True):
        return read_snapshot(read_chunks(path), describe_input_file(path))


def load_usage(
    path: str, snapshot: ClusterSnapshot | None = None, now: datetime | None = None
) -> tuple[StatisticsTable, datetime]:
    """Read a usage file and the time that it is evaluated at. Raises BadInputError as `read_usage` does."""
    with pause_garbage_collection(kept=True):
        return read_usage(read_chunks(path), describe_input_file(path), snapshot, now)


def load_node_types(path: str) -> tuple[NodeType, ...]:
    """Read a file of node types, or standard input for `-`. Raises BadInputError: one line with position and fix."""
    name = describe_input_file(path)
    try:
        text = b"".join(read_chunks(path))
    except BadInputError as error:
        raise BadInputError(f"{name}: {error}") from error
    return read_node_types(text, name)


def describe_input_file(path: str) -> str:
    """Return the name of a file for messages."""
    return "standard input" if path == STANDARD_INPUT else path or "an empty name"


def read_chunks(path: str) -> Iterator[bytes]:
    """Yield the content of a file in chunks, decompressed if it is gzip.

    Raises BadInputError without the file's name, which the caller adds.
    """
    if path == STANDARD_INPUT:
        yield from _decompress(sys.stdin.buffer)
        return
    try:
        with Path(path).open("rb") as file:
            yield from _decompress(file)
    except FileNotFoundError as error:
        raise BadInputError("no such file") from error
    except IsADirectoryError as error:
        raise BadInputError("is a directory; give a file" if path else "is not a file name") from error
    except OSError as error:
        raise BadInputError(f"cannot be read: {error.strerror}") from error


def _decompress(file: BinaryIO) -> Iterator[bytes]:
    chunks = iter(lambda: file.read(_CHUNK_BYTES), b"")
    first = next(chunks, b"")
    # The first read of a pipe may return a single byte.
    while len(first) < len(_GZIP_MAGIC) and (more := next(chunks, b"")):
        first += more
    if first.startswith(_GZIP_MAGIC):
        yield from _decompress_gzip(first, chunks)
        return
    yield first
    yield from chunks


def _decompress_gzip(first: bytes, chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Decompress gzip data of one or more members, at most one chunk at a time."""
    decompressor, data = zlib.decompressobj(zlib.MAX_WBITS | 16), first
    try:
        while data:
            yield decompressor.decompress(data, _CHUNK_BYTES)
            data = decompressor.unconsumed_tail
            if decompressor.eof:
                data = decompressor.unused_data or next(chunks, b"")
                # The last member may be followed by zeros.
                if data.strip(b"\0"):
                    decompressor = zlib.decompressobj(zlib.MAX_WBITS | 16)
                else:
                    return
            elif not data:
                data = next(chunks, b"")
    except zlib.error as error:
        raise BadInputError(f"is damaged gzip ({error}); create it again") from error
    raise BadInputError("is gzip that ends early; create it again")

"""Samples and counters as bytes: names and matrices together, compressed.

The bytes of a matrix are stored plane by plane (all first bytes, then all second ones): neighbours are alike in
their upper bytes, which is what compresses.
"""

import zlib
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import DTypeLike, NDArray

from cruise.domain.usage import ContainerKey, CounterTail, SampleBlock

_LEVEL = 1  # half the time of the default for a tenth more bytes


class _PackedBlock(msgspec.Struct, array_like=True, frozen=True):
    keys: Sequence[ContainerKey]
    times: bytes
    cpu_demand_millicores: bytes
    memory_bytes: bytes
    psi_known: bytes
    refused: bytes = b""


class _PackedTail(msgspec.Struct, array_like=True, frozen=True):
    at: int
    keys: Sequence[ContainerKey]
    series: Sequence[str]
    cpu_seconds: bytes
    cpu_waiting_seconds: bytes
    changed_at: bytes | None = None  # tails of earlier versions have none


_encode = msgspec.msgpack.Encoder().encode
_decode_block = msgspec.msgpack.Decoder(_PackedBlock).decode
_decode_tail = msgspec.msgpack.Decoder(_PackedTail).decode


def pack_block(block: SampleBlock) -> bytes:
    """Return a sample block as bytes."""
    packed = _PackedBlock(
        block.keys,
        _planes(block.times, "<i8"),
        _planes(block.cpu_demand_millicores, "<f4"),
        _planes(block.memory_bytes, "<f8"),
        _planes(block.psi_known, "?"),
        b"" if block.refused is None else _planes(block.refused, "?"),
    )
    return zlib.compress(_encode(packed), _LEVEL)


def unpack_block(packed: bytes, pool: dict[ContainerKey, ContainerKey] | None = None) -> SampleBlock:
    """Return the sample block that `pack_block` packed.

    Blocks that share a `pool` share their keys: an hour of blocks names every container a dozen times.
    """
    block = _decode_block(zlib.decompress(packed))
    keys = block.keys if pool is None else [pool.setdefault(key, key) for key in block.keys]
    shape = (len(block.keys), -1) if block.keys else (0, len(block.times) // 8)
    return SampleBlock(
        keys=keys,
        times=_joined(block.times, "<i8"),
        cpu_demand_millicores=_joined(block.cpu_demand_millicores, "<f4").reshape(shape),
        memory_bytes=_joined(block.memory_bytes, "<f8").reshape(shape),
        psi_known=_joined(block.psi_known, "?"),
        refused=_joined(block.refused, "?").reshape(shape) if block.refused else None,
    )


def pack_tail(tail: CounterTail) -> bytes:
    """Return a partition's last counters as bytes."""
    packed = _PackedTail(
        tail.at,
        tail.keys,
        tail.series,
        _planes(tail.cpu_seconds, "<f8"),
        _planes(tail.cpu_waiting_seconds, "<f8"),
        _planes(tail.changed_at, "<i8"),
    )
    return zlib.compress(_encode(packed), _LEVEL)


def unpack_tail(packed: bytes) -> CounterTail:
    """Return the counters that `pack_tail` packed."""
    tail = _decode_tail(zlib.decompress(packed))
    return CounterTail(
        at=tail.at,
        keys=tail.keys,
        series=tail.series,
        cpu_seconds=_joined(tail.cpu_seconds, "<f8"),
        cpu_waiting_seconds=_joined(tail.cpu_waiting_seconds, "<f8"),
        changed_at=np.full(len(tail.keys), tail.at) if tail.changed_at is None else _joined(tail.changed_at, "<i8"),
    )


def _planes(values: NDArray[Any], dtype: DTypeLike) -> bytes:
    flat = np.ascontiguousarray(values, dtype=dtype).reshape(-1)
    return flat.view(np.uint8).reshape(-1, flat.itemsize).T.tobytes()


def _joined(planes: bytes, dtype: DTypeLike) -> NDArray[Any]:
    width = np.dtype(dtype).itemsize
    return np.frombuffer(planes, np.uint8).reshape(width, -1).T.reshape(-1).view(dtype)

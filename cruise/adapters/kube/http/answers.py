"""Answers as they come over the network: lines of a watch, and the network's own failures as cruise's errors."""

import os
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import TypeVar

import aiohttp
import msgspec

from cruise.errors import UNDECODABLE, Unavailable

T = TypeVar("T")

# The connection ended before the answer did: whether the request was heard is not known.
BROKEN = (aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError, ConnectionResetError, BrokenPipeError)


async def lines_of(response: aiohttp.ClientResponse, request: str, silence_seconds: float) -> AsyncIterator[bytes]:
    """Yield the whole lines of an answer. Raises Unavailable where it ends within a line, or is silent for so long."""
    # Split by hand: the library limits a line's length, and an event may hold an object of any size.
    rest: list[bytes] = []
    with translated(request, silence_seconds):
        async for piece in response.content.iter_any():
            first, *others = piece.split(b"\n")
            rest.append(first)
            for other in others:
                line = b"".join(rest)
                rest = [other]
                if line:
                    yield line
    if any(rest):
        raise Unavailable(f"{request}: the watch broke off in the middle of a line")


@contextmanager
def translated(request: str, seconds: float) -> Iterator[None]:
    """Turn what the network does to a request into Unavailable; `request` names it, `seconds` is its time-out."""
    try:
        yield
    except TimeoutError as error:
        raise Unavailable(f"{request}: the API server did not answer within {seconds:g} s") from error
    except aiohttp.ClientPayloadError as error:
        raise Unavailable(f"{request}: the answer broke off") from error
    except aiohttp.ClientConnectorDNSError as error:
        raise Unavailable(f"the API server cannot be reached: the host name {error.host} is not known") from error
    except aiohttp.ClientConnectorCertificateError as error:
        place, why = f"{error.host}:{error.port}", _words_of(error.certificate_error)
        raise Unavailable(f"the certificate of the API server at {place} is not accepted: {why}") from error
    except aiohttp.ClientConnectorError as error:
        why = _words_of(error.os_error)
        raise Unavailable(f"the API server cannot be reached at {error.host}:{error.port}: {why}") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise Unavailable(f"{request}: the API server cannot be reached: {why}") from error


def _words_of(error: BaseException) -> str:
    """Return the network's or TLS's own message, without Python's wrapping."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError):
        return f"no TLS there ({error.reason})"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return " ".join(str(error).split()) or type(error).__name__


def decoded(answer: bytes, shape: type[T], what: str) -> T:
    """Return an answer as `shape`. Raises Unavailable, which names `what` the answer should have been."""
    try:
        return msgspec.json.decode(answer, type=shape)
    except UNDECODABLE as error:
        raise Unavailable(f"{what} cannot be read: {error}") from error

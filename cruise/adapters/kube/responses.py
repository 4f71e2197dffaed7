"""Answers of the API server as cruise's errors: HTTP codes, Status objects and failures of the network."""

import os
import re
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import aiohttp
import msgspec

from cruise.errors import (
    DECODE_ERRORS,
    ConflictError,
    CruiseError,
    ExpiredVersionError,
    NotFoundError,
    RefusedError,
    ThrottledError,
    UnavailableError,
)
from cruise.kube_json.object_errors import convert_to_single_line

T = TypeVar("T")

# The connection ended before the answer did; the server may have received the request.
CONNECTION_ERRORS = (aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError, ConnectionResetError, BrokenPipeError)


async def read_lines(
    response: aiohttp.ClientResponse, request: str, idle_timeout_seconds: float
) -> AsyncIterator[bytes]:
    """Yield the whole lines of an answer.

    Raises UnavailableError if it ends within a line, or if no byte arrives for `idle_timeout_seconds`.
    """
    # aiohttp limits the length of a line, and an event may contain an object of any size.
    rest: list[bytes] = []
    with translate_network_errors(request, idle_timeout_seconds):
        async for piece in response.content.iter_any():
            first, *others = piece.split(b"\n")
            rest.append(first)
            for other in others:
                line = b"".join(rest)
                rest = [other]
                if line:
                    yield line
    if any(rest):
        raise UnavailableError(f"{request}: the watch ended within a line")


@contextmanager
def translate_network_errors(request: str, seconds: float) -> Iterator[None]:
    """Turn failures of the network into UnavailableError; `request` and its timeout are for the message."""
    try:
        yield
    except TimeoutError as error:
        raise UnavailableError(f"{request}: the API server did not answer within {seconds:g} s") from error
    except aiohttp.ClientPayloadError as error:
        raise UnavailableError(f"{request}: the answer was incomplete") from error
    except aiohttp.ClientConnectorDNSError as error:
        raise UnavailableError(f"the API server cannot be reached: the host name {error.host} is not known") from error
    except aiohttp.ClientConnectorCertificateError as error:
        place, why = f"{error.host}:{error.port}", _describe(error.certificate_error)
        raise UnavailableError(f"the certificate of the API server at {place} is not accepted: {why}") from error
    except aiohttp.ClientConnectorError as error:
        why = _describe(error.os_error)
        raise UnavailableError(f"the API server cannot be reached at {error.host}:{error.port}: {why}") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise UnavailableError(f"{request}: the API server cannot be reached: {why}") from error


def _describe(error: BaseException) -> str:
    """Return the message of the operating system or of TLS, without Python's prefix."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError):
        return f"the port does not serve TLS ({error.reason})"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return " ".join(str(error).split()) or type(error).__name__


def decode_answer(answer: bytes, shape: type[T], what: str) -> T:
    """Decode an answer. Raises UnavailableError that names `what` was requested."""
    try:
        return msgspec.json.decode(answer, type=shape)
    except DECODE_ERRORS as error:
        raise UnavailableError(f"{what} cannot be read: {error}") from error


_MAX_MESSAGE_LENGTH = 300
_LONGEST_SEARCHED = 16_384


class _Cause(msgspec.Struct, frozen=True):
    reason: str | None = None


class _Details(msgspec.Struct, frozen=True, rename="camel"):
    causes: tuple[_Cause, ...] | None = None
    retry_after_seconds: float | None = None


class ApiStatus(msgspec.Struct, frozen=True):
    """The Status object of the API server; a rejection if `status` is Failure."""

    kind: str | None = None
    status: str | None = None
    message: str | None = None
    reason: str | None = None
    details: _Details | None = None
    code: int | None = None


_status = msgspec.json.Decoder(ApiStatus)


@dataclass(frozen=True, slots=True)
class ErrorMapping:
    """The error for a rejection with this HTTP code and a text that matches; `cause` is for programs."""

    code: int
    text: str
    cause: str
    error: type[CruiseError] = RefusedError


# Several rejections share a machine-readable cause, and some have none: only the text distinguishes them. Texts change
# between versions: if none matches, the server's own cause is used.
ERROR_MAPPINGS: Sequence[ErrorMapping] = (
    # pods/resize
    ErrorMapping(
        422, r"metadata\.uid: Invalid value", "Uid", ConflictError
    ),  # an immutable field to the server, a fence to us
    ErrorMapping(422, r"QOS Class may not change", "QosClassChange"),
    ErrorMapping(422, r"resource (?:requests|limits) cannot be removed", "ResourceRemoved"),
    ErrorMapping(422, r"memory limits cannot be (?:decreased|added)", "MemoryLimitDecreased"),  # 1.33 only
    ErrorMapping(422, r"node without support for resize", "NodeWithoutResize"),
    ErrorMapping(422, r"static pods cannot be resized", "StaticPod"),
    ErrorMapping(422, r"windows pods cannot be resized", "UnsupportedPlatform"),
    ErrorMapping(422, r"pod-level resources", "PodLevelResources"),
    ErrorMapping(422, r"non-sidecar init containers", "InitContainer"),
    ErrorMapping(422, r"node allocatable resource claims", "ResourceClaims"),
    ErrorMapping(422, r"only cpu and memory resources", "OtherResource"),
    ErrorMapping(422, r"containers may not be (?:added|removed|renamed|reordered)", "ContainerSet"),
    ErrorMapping(422, r"must be less than or equal to \S+ limit", "RequestAboveLimit"),
    ErrorMapping(403, r"requires features .* not available on node", "NodeWithoutFeature"),
    # any write
    ErrorMapping(401, r"", "Unauthorized"),
    ErrorMapping(403, r"[Uu]ser \".*\" cannot \S+ (?:resource|path) ", "Forbidden"),
    ErrorMapping(403, r"exceeded quota|status unknown for quota", "QuotaExceeded"),
    ErrorMapping(403, r"(?:minimum|maximum) \S+ usage per|max limit to request ratio per", "LimitRange"),
    ErrorMapping(403, r"ValidatingAdmissionPolicy|admission webhook .* denied the request", "AdmissionDenied"),
    ErrorMapping(403, r"not yet ready to handle request", "", UnavailableError),  # admission, while the server starts
    ErrorMapping(422, r"ValidatingAdmissionPolicy", "AdmissionDenied"),
    ErrorMapping(
        500, r"failed calling webhook", "WebhookFailed", ThrottledError
    ),  # concerns some objects, not the whole server
    # pods/eviction
    ErrorMapping(500, r"more than one PodDisruptionBudget", "MultipleDisruptionBudgets"),
    ErrorMapping(504, r"PodDisruptionBudget", "DisruptionBudget", ThrottledError),  # others write the same budget
    ErrorMapping(403, r"\bpoddisruptionbudgets?\b", "DisruptionBudget"),
)
_DEFAULT_ERRORS: Mapping[int, type[CruiseError]] = {
    404: NotFoundError,
    408: UnavailableError,
    409: ConflictError,
    410: ExpiredVersionError,
    425: UnavailableError,
    429: ThrottledError,
}


# An admission plugin denied what is forbidden without a cause and without a missing permission.
_DEFAULT_CAUSES: Mapping[str | None, str] = {"Forbidden": "AdmissionDenied"}


def find_failure_status(body: bytes) -> ApiStatus | None:
    """Return the failed Status in an answer, whatever its HTTP code; None for any other answer."""
    try:
        status = _status.decode(body)
    except DECODE_ERRORS:
        return None
    return status if status.kind == "Status" and status.status == "Failure" else None


def create_error(code: int, body: bytes, request: str, retry_after: str | None = None) -> CruiseError:
    """Return the error for an answer; `request` is its name, such as `PATCH /api/v1/…`."""
    return create_error_from_status(
        find_failure_status(body) or ApiStatus(), request, code, _parse_retry_after(retry_after)
    )


def create_error_from_status(
    status: ApiStatus, request: str, code: int | None = None, retry_after_seconds: float | None = None
) -> CruiseError:
    """Return the error for a failed Status; its code has precedence over the HTTP code, which may be 200."""
    status_code = status.code or code or 500
    text = status.message or f"the API server answered {status_code} to {request}"
    details = status.details or _Details()
    server_cause = next((cause.reason for cause in details.causes or () if cause.reason), None)
    # A search takes time in proportion to the square of the length.
    searched = text[:_LONGEST_SEARCHED]
    mapping = next((one for one in ERROR_MAPPINGS if one.code == status_code and re.search(one.text, searched)), None)
    cause = (
        mapping.cause
        if mapping
        else server_cause or _DEFAULT_CAUSES.get(status.reason, status.reason) or f"HTTP {status_code}"
    )
    kind = (
        mapping.error
        if mapping
        else _DEFAULT_ERRORS.get(status_code, RefusedError if 400 <= status_code < 500 else UnavailableError)
    )
    line = _shorten(f"the API server does not accept the credentials ({request})" if status_code == 401 else text)
    if kind is RefusedError:
        return RefusedError(line, cause)
    if kind is ThrottledError:
        after = details.retry_after_seconds if retry_after_seconds is None else retry_after_seconds
        return ThrottledError(line, after, cause)
    return kind(line)


def _parse_retry_after(retry_after: str | None) -> float | None:
    return float(retry_after) if retry_after is not None and retry_after.isdecimal() else None


def _shorten(text: str) -> str:
    line = convert_to_single_line(" ".join(text.split()))
    return line if len(line) <= _MAX_MESSAGE_LENGTH else f"{line[:_MAX_MESSAGE_LENGTH]}…"

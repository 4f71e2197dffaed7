"""What the API server's refusals mean: HTTP codes and Status objects in, errors of cruise out."""

import re
from collections.abc import Mapping, Sequence

import msgspec

from cruise.errors import Conflict, CruiseError, Expired, NotFound, Refused, Throttled, Unavailable

MULTIPLE_BUDGETS = "MultipleDisruptionBudgets"
_LONGEST_QUOTE = 300


class _Cause(msgspec.Struct, frozen=True):
    reason: str | None = None
    message: str | None = None
    field: str | None = None


class _Details(msgspec.Struct, frozen=True, rename="camel"):
    causes: tuple[_Cause, ...] | None = None
    retry_after_seconds: float | None = None


class Status(msgspec.Struct, frozen=True):
    """The API server's answer where it is not an object: a refusal, if `status` is Failure."""

    kind: str | None = None
    status: str | None = None
    message: str | None = None
    reason: str | None = None
    details: _Details | None = None
    code: int | None = None


_NO_DETAILS = _Details()
_status = msgspec.json.Decoder(Status)

# The causes of refusals, by HTTP code and by what their text says. The server's own cause is kept where none applies:
# several of these refusals share one, and texts change from version to version.
CAUSES: Sequence[tuple[int, str, str]] = (
    (422, r"QOS Class may not change", "QosClassChange"),
    (422, r"resource (?:requests|limits) cannot be removed", "ResourceRemoved"),
    (422, r"memory limits cannot be (?:decreased|added)", "MemoryLimitDecreased"),
    (422, r"node without support for resize", "NodeWithoutResize"),
    (422, r"static pods? cannot be resized|static pods", "StaticPod"),
    (422, r"windows pods cannot be resized", "UnsupportedPlatform"),
    (422, r"non-sidecar init containers", "InitContainer"),
    (422, r"node allocatable resource claims", "ResourceClaims"),
    (422, r"pod-level resources", "PodLevelResources"),
    (422, r"only cpu and memory resources are mutable", "OtherResource"),
    (422, r"must be less than or equal to \S+ limit", "RequestAboveLimit"),
    (403, r"exceeded quota", "QuotaExceeded"),
    (403, r"(?:minimum|maximum) \S+ usage per|max limit to request ratio per", "LimitRange"),
    (403, r"cannot \S+ (?:resource|path) \"", "Unauthorised"),
)


def failure_of(body: bytes) -> Status | None:
    """Return the refusal that an answer holds, whatever its HTTP code says; None for any other answer."""
    try:
        status = _status.decode(body)
    except msgspec.DecodeError:
        return None
    return status if status.kind == "Status" and status.status == "Failure" else None


def error_of(code: int, body: bytes, asked: str, retry_after: str | None = None) -> CruiseError:
    """Return the error for an answer with that HTTP code; `asked` says what was asked, such as `PATCH /api/v1/…`."""
    status = failure_of(body) or Status()
    return error_of_status(status, asked, code, _seconds(retry_after))


def error_of_status(
    status: Status, asked: str, code: int | None = None, retry_after_seconds: float | None = None
) -> CruiseError:
    """Return the error for a refusal; a code in the Status counts for more than HTTP's, which may be of success."""
    told = status.code or code or 500
    text = _shortened(status.message) if status.message else f"the API server answered {told} to {asked}"
    details = status.details or _NO_DETAILS
    cause = next((cause.reason for cause in details.causes or () if cause.reason), "")
    if told == 429:
        after = details.retry_after_seconds if retry_after_seconds is None else retry_after_seconds
        return Throttled(text, after, cause)
    if told in _PLAIN:
        return _PLAIN[told](text)
    if told == 401:
        return Refused(f"{asked}: the API server does not accept the credentials", "Unauthorized")
    if told == 500 and "more than one PodDisruptionBudget" in text:
        return Refused(text, MULTIPLE_BUDGETS)
    if 400 <= told < 500 and told not in _PASSING:
        return Refused(text, _cause(told, status.message or "", cause or status.reason or f"HTTP{told}"))
    return Unavailable(text)


_PLAIN: Mapping[int, type[CruiseError]] = {404: NotFound, 409: Conflict, 410: Expired}
# 408 and 425 say nothing about what was asked.
_PASSING = frozenset({408, 425})


def _cause(code: int, text: str, told: str) -> str:
    return next((cause for known, pattern, cause in CAUSES if known == code and re.search(pattern, text)), told)


def _seconds(retry_after: str | None) -> float | None:
    return float(retry_after) if retry_after is not None and retry_after.isdecimal() else None


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_QUOTE else f"{line[:_LONGEST_QUOTE]}…"

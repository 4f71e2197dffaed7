"""What the API server's refusals mean: HTTP codes and Status objects in, errors of cruise out."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from cruise.errors import UNDECODABLE, Conflict, CruiseError, Expired, NotFound, Refused, Throttled, Unavailable

_LONGEST_QUOTE = 300


class _Cause(msgspec.Struct, frozen=True):
    reason: str | None = None


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


_status = msgspec.json.Decoder(Status)


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a refusal with that HTTP code, whose text matches `text`, is to cruise; `cause` is for programs."""

    code: int
    text: str
    cause: str
    error: type[CruiseError] = Refused


# Several refusals share a machine-readable cause and field, and some have none: only the text distinguishes them.
# Texts change from version to version: where none applies, the server's own cause stays.
MEANINGS: Sequence[Meaning] = (
    # pods/resize
    Meaning(422, r"metadata\.uid: Invalid value", "Uid", Conflict),  # an immutable field to the server, a fence to us
    Meaning(422, r"QOS Class may not change", "QosClassChange"),
    Meaning(422, r"resource (?:requests|limits) cannot be removed", "ResourceRemoved"),
    Meaning(422, r"memory limits cannot be (?:decreased|added)", "MemoryLimitDecreased"),  # 1.33 only
    Meaning(422, r"node without support for resize", "NodeWithoutResize"),
    Meaning(422, r"static pods cannot be resized", "StaticPod"),
    Meaning(422, r"windows pods cannot be resized", "UnsupportedPlatform"),
    Meaning(422, r"pod-level resources", "PodLevelResources"),
    Meaning(422, r"non-sidecar init containers", "InitContainer"),
    Meaning(422, r"node allocatable resource claims", "ResourceClaims"),
    Meaning(422, r"only cpu and memory resources", "OtherResource"),
    Meaning(422, r"containers may not be (?:added|removed|renamed|reordered)", "ContainerSet"),
    Meaning(422, r"must be less than or equal to \S+ limit", "RequestAboveLimit"),
    Meaning(403, r"requires features .* not available on node", "NodeWithoutFeature"),
    # any write
    Meaning(401, r"", "Unauthorized"),
    Meaning(403, r"[Uu]ser \".*\" cannot \S+ (?:resource|path) ", "Forbidden"),
    Meaning(403, r"exceeded quota|status unknown for quota", "QuotaExceeded"),
    Meaning(403, r"(?:minimum|maximum) \S+ usage per|max limit to request ratio per", "LimitRange"),
    Meaning(403, r"ValidatingAdmissionPolicy|admission webhook .* denied the request", "AdmissionDenied"),
    Meaning(403, r"not yet ready to handle request", "", Unavailable),  # admission, while the server starts
    Meaning(422, r"ValidatingAdmissionPolicy", "AdmissionDenied"),
    Meaning(500, r"failed calling webhook", "WebhookFailed", Throttled),  # concerns some objects, not the whole server
    # pods/eviction
    Meaning(500, r"more than one PodDisruptionBudget", "MultipleDisruptionBudgets"),
    Meaning(504, r"PodDisruptionBudget", "DisruptionBudget", Throttled),  # others write the same budget
    Meaning(403, r"\bpoddisruptionbudgets?\b", "DisruptionBudget"),
)
_USUAL: Mapping[int, type[CruiseError]] = {
    404: NotFound,
    408: Unavailable,
    409: Conflict,
    410: Expired,
    425: Unavailable,
    429: Throttled,
}


# What is forbidden without a cause, and not for want of a right, some admission plugin has denied.
_USUAL_REASONS: Mapping[str | None, str] = {"Forbidden": "AdmissionDenied"}


def failure_of(body: bytes) -> Status | None:
    """Return the refusal that an answer holds, whatever its HTTP code says; None for any other answer."""
    try:
        status = _status.decode(body)
    except UNDECODABLE:
        return None
    return status if status.kind == "Status" and status.status == "Failure" else None


def error_of(code: int, body: bytes, request: str, retry_after: str | None = None) -> CruiseError:
    """Return the error for an answer with that HTTP code; `request` is its name, such as `PATCH /api/v1/…`."""
    return error_of_status(failure_of(body) or Status(), request, code, _seconds(retry_after))


def error_of_status(
    status: Status, request: str, code: int | None = None, retry_after_seconds: float | None = None
) -> CruiseError:
    """Return the error for a refusal; a code in the Status counts for more than HTTP's, which may be of success."""
    number = status.code or code or 500
    text = status.message or f"the API server answered {number} to {request}"
    details = status.details or _Details()
    stated = next((cause.reason for cause in details.causes or () if cause.reason), None)
    meaning = next((one for one in MEANINGS if one.code == number and re.search(one.text, text)), None)
    cause = meaning.cause if meaning else stated or _USUAL_REASONS.get(status.reason, status.reason) or f"HTTP {number}"
    kind = meaning.error if meaning else _USUAL.get(number, Refused if 400 <= number < 500 else Unavailable)
    line = _shortened(f"the API server does not accept the credentials ({request})" if number == 401 else text)
    if kind is Refused:
        return Refused(line, cause)
    if kind is Throttled:
        after = details.retry_after_seconds if retry_after_seconds is None else retry_after_seconds
        return Throttled(line, after, cause)
    return kind(line)


def _seconds(retry_after: str | None) -> float | None:
    return float(retry_after) if retry_after is not None and retry_after.isdecimal() else None


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_QUOTE else f"{line[:_LONGEST_QUOTE]}…"

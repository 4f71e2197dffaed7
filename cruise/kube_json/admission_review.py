"""Decode AdmissionReview v1 requests, encode responses, and limit what is read of a review."""

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import astuple

from cruise.errors import DECODE_ERRORS, BadInputError
from cruise.kube_json.object_errors import convert_to_single_line, decode_struct
from cruise.kube_json.wire.pod_json import ContainerSpec, JsonStruct, LabelSelectorJson, Metadata, PodObject, PodSpec

API_VERSION = "admission.k8s.io/v1"
_KIND = "AdmissionReview"
_ABSENT = Raw(b"")
_BEFORE_UID = f'{{"apiVersion":"{API_VERSION}","kind":"{_KIND}","response":{{"uid":'.encode()
# JSON never has this byte, so joined parts stay distinct.
_BETWEEN = b"\0"
# Longer warnings do not fit a header line.
_LONGEST_WARNING = 200


class ReviewRequest(JsonStruct, frozen=True):
    """The request of a review; `object` is the submitted pod's JSON, to be patched."""

    uid: str = ""
    kind: "GroupVersionKind | None" = None
    sub_resource: str | None = None
    operation: str = ""
    namespace: str | None = None
    dry_run: bool | None = None
    object: Raw = _ABSENT

    @property
    def creates_pod(self) -> bool:
        """Whether a pod is being created, not one of its subresources."""
        return self.operation == "CREATE" and self.kind == POD_KIND and not self.sub_resource


class GroupVersionKind(JsonStruct, frozen=True):
    """The kind of the object in a review."""

    group: str = ""
    version: str = ""
    kind: str = ""


class _AdmissionReviewJson(JsonStruct, frozen=True):
    request: ReviewRequest
    api_version: str = ""
    kind: str = ""


POD_KIND = GroupVersionKind("", "v1", "Pod")


def _define_raw_struct(struct: type[Struct], last: str | None = None, **parts: type) -> type[Struct]:
    """Return a struct with the same fields, kept as undecoded JSON text except for `parts`.

    It is encoded with only the fields that were present.
    """
    fields: list[tuple[str, Any, Any]] = []
    for field in sorted(msgspec.structs.fields(struct), key=lambda field: field.name == last):
        if field.name in parts:
            fields.append(
                (field.name, parts[field.name] if field.required else parts[field.name] | None, field.default)
            )
        else:
            fields.append((field.name, Raw, _ABSENT))
    return msgspec.defstruct(f"Raw{struct.__name__}", fields, bases=(JsonStruct,), frozen=True, omit_defaults=True)


# The fields of a pod that are read. The last ones change no answer: volumes, which differ between pods, and the
# namespace, which is the request's. A pod in creation has no status.
RawContainer = _define_raw_struct(ContainerSpec)
RawMetadata = _define_raw_struct(Metadata, last="namespace")
_Containers = tuple[RawContainer, ...]  # type: ignore[valid-type]
RawSpec = _define_raw_struct(PodSpec, last="volumes", containers=_Containers, init_containers=_Containers)


class RawPodJson(JsonStruct, frozen=True, omit_defaults=True):
    """A pod with the fields that are read, as JSON text."""

    metadata: RawMetadata  # type: ignore[valid-type]
    spec: RawSpec  # type: ignore[valid-type]
    kind: Raw = _ABSENT
    status: Raw = _ABSENT


class ReviewRequestSummary(JsonStruct, frozen=True):
    """The request of a review of a pod in creation, with the pod's fields undecoded."""

    object: RawPodJson
    uid: str
    kind: GroupVersionKind
    operation: str
    sub_resource: str | None = None
    namespace: str | None = None
    dry_run: bool | None = None

    def to_request(self) -> ReviewRequest:
        """Return the request with the fields that are read of the pod; a patch changes no others.

        Containers keep their index.
        """
        part = Raw(_encode(self.object))
        return ReviewRequest(self.uid, self.kind, self.sub_resource, self.operation, self.namespace, self.dry_run, part)


class _RawReview(JsonStruct, frozen=True):
    request: ReviewRequestSummary
    api_version: str
    kind: str


_decode_raw = msgspec.json.Decoder(_RawReview)
_decode = msgspec.json.Decoder(_AdmissionReviewJson)
_decode_pod = msgspec.json.Decoder(PodObject)
_decode_object = msgspec.json.Decoder(dict[str, Any])
_encode = msgspec.json.Encoder().encode
_UID = re.compile(rb'"uid"\s*:\s*"([0-9A-Za-z_.:-]{1,128})"')


def decode_summary(body: bytes) -> tuple[ReviewRequestSummary, bytes] | None:
    """Return the request of a review of a pod in creation, and a digest of everything that the answer depends on.

    Reviews with equal digests get equal answers under the same decisions: pods of one template differ only in fields
    that are not read. None for any other review.
    """
    try:
        review = _decode_raw.decode(body)
    except DECODE_ERRORS:
        return None
    request = review.request
    if (
        request.operation != "CREATE"
        or request.sub_resource
        or request.kind != POD_KIND
        or review.kind != _KIND
        or review.api_version != API_VERSION
        or not request.namespace
    ):
        return None
    return request, _digest(request.namespace, request.object)


def compute_digest_without_names(request: ReviewRequestSummary) -> bytes:
    """Return a digest of everything that an answer depends on, except for the pod's labels and owners.

    Revisions of a workload mostly differ only in these.
    """
    metadata = msgspec.structs.replace(request.object.metadata, labels=_ABSENT, owner_references=_ABSENT)
    return _digest(request.namespace, msgspec.structs.replace(request.object, metadata=metadata))


def _digest(namespace: str | None, pod: RawPodJson) -> bytes:
    spec = astuple(pod.spec)
    containers, init_containers = spec[:2]
    parts: list[bytes | Raw] = [(namespace or "").encode(), pod.kind, *astuple(pod.metadata)[:-1], *spec[2:-1]]
    for one in containers:
        parts += astuple(one)
    if init_containers:
        parts.append(b"init")
        for one in init_containers:
            parts += astuple(one)
    return blake2b(_BETWEEN.join(parts), digest_size=20).digest()


def decode_request(body: bytes) -> ReviewRequest:
    """Return the request of a review; BadInputError for anything else."""
    review = decode_struct(_decode, body, _KIND)
    if review.kind != _KIND or review.api_version != API_VERSION:
        stated = convert_to_single_line(f"{review.api_version} {review.kind}".strip())[:60]
        raise BadInputError(f'"{stated}" is not supported; send {API_VERSION} {_KIND}')
    return review.request


def get_created_pod(request: ReviewRequest) -> PodObject:
    """Return the pod of a request, in the request's namespace and without status; BadInputError names the place."""
    return decode_pod_in_namespace(decode_struct(_decode_pod, request.object, "Pod"), request.namespace)


def decode_submitted_pod(request: ReviewRequest) -> dict[str, Any]:
    """Return the submitted pod's JSON; BadInputError."""
    return decode_struct(_decode_object, request.object, "Pod")


def decode_pod_in_namespace(document: PodObject, namespace: str | None) -> PodObject:
    """Return a pod in creation with the request's namespace and without status."""
    metadata = msgspec.structs.replace(document.metadata, namespace=namespace or None)
    return msgspec.structs.replace(document, metadata=metadata, status=None)


def find_uid(body: bytes) -> str:
    """Return the first uid in a body that is not a review; in a review that is the request's."""
    found = _UID.search(body)
    return found.group(1).decode("ascii") if found else ""


class ReviewResponse:
    """A response without its uid: the pod is allowed, with a JSON Patch or unchanged."""

    __slots__ = ("_after",)

    def __init__(self, patch: bytes = b"", warnings: Sequence[str] = ()) -> None:
        after = b',"allowed":true'
        if patch:
            after += b',"patchType":"JSONPatch","patch":"' + b64encode(patch) + b'"'
        if warnings:
            after += b',"warnings":' + _encode([_as_warning(warning) for warning in warnings])
        self._after = after + b"}}"

    @property
    def size(self) -> int:
        """The size in bytes."""
        return len(self._after)

    def render_for_request(self, uid: str) -> bytes:
        """Return the response to the request with that uid."""
        return _BEFORE_UID + _encode(uid) + self._after


def _as_warning(text: str) -> str:
    """Return a warning that fits an HTTP header: short and in ASCII."""
    plain = convert_to_single_line(text).encode("ascii", "replace").decode("ascii")
    return plain if len(plain) <= _LONGEST_WARNING else f"{plain[: _LONGEST_WARNING - 3]}..."


# Limits: the API server validates pods after webhooks, so a user may send anything, and must not delay others.

# Shorter texts have few elements.
_SHORT_BYTES = 16 << 10


@dataclass(frozen=True, slots=True)
class ReviewLimits:
    """The maximum of each part of a review; larger reviews are allowed unchanged.

    `json_elements` are those of all lists and objects, `terms` the affinity terms, their expressions and values. Labels
    count as annotations.
    """

    review_bytes: int = 1 << 20
    json_elements: int = 10_000
    containers: int = 100
    terms: int = 1_000
    annotations: int = 1_000
    tolerations: int = 200


class ReviewTooLargeError(BadInputError):
    """A review above a limit; `reason` is its label in metrics."""

    def __init__(self, reason: str, found: str) -> None:
        super().__init__(f"it has {found}, more than are read")
        self.reason = reason


def check_element_counts(review: bytes, limits: ReviewLimits) -> None:
    """Raise ReviewTooLargeError if decoding the review would take long."""
    # Commas separate elements; those in texts also count, which is harmless.
    if len(review) > _SHORT_BYTES and review.count(b",") > limits.json_elements:
        raise ReviewTooLargeError("too-large", f"over {limits.json_elements} elements")


def check_pod_size(pod: PodObject, limits: ReviewLimits) -> None:
    """Raise ReviewTooLargeError if deciding on the pod would take long."""
    spec, metadata = pod.spec, pod.metadata
    if len(spec.containers) + len(spec.init_containers or ()) > limits.containers:
        raise ReviewTooLargeError("too-many-containers", f"over {limits.containers} containers")
    if len(metadata.annotations or ()) + len(metadata.labels or ()) > limits.annotations:
        raise ReviewTooLargeError("too-many-annotations", f"over {limits.annotations} annotations and labels")
    if len(spec.tolerations or ()) > limits.tolerations:
        raise ReviewTooLargeError("too-many-tolerations", f"over {limits.tolerations} tolerations")
    if _exceeds(_count_terms(spec), limits.terms):
        raise ReviewTooLargeError(
            "too-many-affinity-terms", f"over {limits.terms} affinity terms, expressions and values"
        )


def _exceeds(counts: Iterable[int], most: int) -> bool:
    total = 0
    for count in counts:
        total += count
        if total > most:
            return True
    return False


def _count_terms(spec: PodSpec) -> Iterator[int]:
    yield len(spec.node_selector or ())
    for constraint in spec.topology_spread_constraints or ():
        yield 1 + len(constraint.match_label_keys or ())
        yield from _count_expressions(constraint.label_selector)
    if spec.affinity is None:
        return
    node_affinity = spec.affinity.node_affinity
    required = node_affinity.required_during_scheduling_ignored_during_execution if node_affinity is not None else None
    for term in required.node_selector_terms if required is not None else ():
        yield 1
        for expression in (*(term.match_expressions or ()), *(term.match_fields or ())):
            yield 1 + len(expression.values or ())
    for pod_affinity in (spec.affinity.pod_affinity, spec.affinity.pod_anti_affinity):
        for pod_term in (
            pod_affinity.required_during_scheduling_ignored_during_execution if pod_affinity is not None else ()
        ) or ():
            yield 1 + len(pod_term.namespaces or ())
            yield len(pod_term.match_label_keys or ()) + len(pod_term.mismatch_label_keys or ())
            yield from _count_expressions(pod_term.label_selector)
            yield from _count_expressions(pod_term.namespace_selector)


def _count_expressions(selector: LabelSelectorJson | None) -> Iterator[int]:
    if selector is not None:
        yield len(selector.match_labels or ())
        yield from (1 + len(expression.values or ()) for expression in selector.match_expressions or ())

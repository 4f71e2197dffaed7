"""AdmissionReview v1: kube-apiserver's request about a pod in creation, and the response to it."""

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
from cruise.kube_json.object_errors import decode_struct, to_single_line
from cruise.kube_json.wire.pod_json import ContainerSpec, JsonStruct, LabelSelectorJson, Metadata, PodObject, PodSpec

API_VERSION = "admission.k8s.io/v1"
_KIND = "AdmissionReview"
_ABSENT = Raw(b"")
_BEFORE_UID = f'{{"apiVersion":"{API_VERSION}","kind":"{_KIND}","response":{{"uid":'.encode()
# JSON never has this byte, so parts that are joined by it stay distinct.
_BETWEEN = b"\0"
# More than a header line takes, and than a person reads.
_LONGEST_WARNING = 200


class ReviewRequest(JsonStruct, frozen=True):
    """The request of a review; `object` is the pod's JSON as it came, to be patched."""

    uid: str = ""
    kind: "GroupVersionKind | None" = None
    sub_resource: str | None = None
    operation: str = ""
    namespace: str | None = None
    dry_run: bool | None = None
    object: Raw = _ABSENT

    @property
    def creates_pod(self) -> bool:
        """Tell whether a pod itself is being created, and not one of its subresources."""
        return self.operation == "CREATE" and self.kind == POD_KIND and not self.sub_resource


class GroupVersionKind(JsonStruct, frozen=True):
    """What the object of a review is."""

    group: str = ""
    version: str = ""
    kind: str = ""


class _AdmissionReviewJson(JsonStruct, frozen=True):
    request: ReviewRequest
    api_version: str = ""
    kind: str = ""


POD_KIND = GroupVersionKind("", "v1", "Pod")


def _unread(shape: type[Struct], last: str | None = None, **parts: type) -> type[Struct]:
    """Return a struct with the same fields, each left as JSON text that is not read, but for `parts`.

    What it is encoded to has those fields alone that were there.
    """
    fields: list[tuple[str, Any, Any]] = []
    for field in sorted(msgspec.structs.fields(shape), key=lambda field: field.name == last):
        if field.name in parts:
            fields.append(
                (field.name, parts[field.name] if field.required else parts[field.name] | None, field.default)
            )
        else:
            fields.append((field.name, Raw, _ABSENT))
    return msgspec.defstruct(f"Raw{shape.__name__}", fields, bases=(JsonStruct,), frozen=True, omit_defaults=True)


# All that is read of a pod. Last stands what no answer depends on: volumes, of which each pod has one of a name of its
# own, and the namespace, which is the request's. A pod in creation has no status.
RawContainer = _unread(ContainerSpec)
RawMetadata = _unread(Metadata, last="namespace")
_Containers = tuple[RawContainer, ...]  # type: ignore[valid-type]
RawSpec = _unread(PodSpec, last="volumes", containers=_Containers, init_containers=_Containers)


class RawPodJson(JsonStruct, frozen=True, omit_defaults=True):
    """A pod with everything that is read of it, as JSON text."""

    metadata: RawMetadata  # type: ignore[valid-type]
    spec: RawSpec  # type: ignore[valid-type]
    kind: Raw = _ABSENT
    status: Raw = _ABSENT


class ReviewRequestSummary(JsonStruct, frozen=True):
    """The request of a review of a pod in creation at first sight."""

    object: RawPodJson
    uid: str
    kind: GroupVersionKind
    operation: str
    sub_resource: str | None = None
    namespace: str | None = None
    dry_run: bool | None = None

    def to_request(self) -> ReviewRequest:
        """Return the request with what is read of the pod, a part of it; a patch touches nothing else.

        Containers stand where they stand in the pod as it came.
        """
        part = Raw(_encode(self.object))
        return ReviewRequest(self.uid, self.kind, self.sub_resource, self.operation, self.namespace, self.dry_run, part)


class _RawReview(JsonStruct, frozen=True):
    request: ReviewRequestSummary
    api_version: str
    kind: str


_glance = msgspec.json.Decoder(_RawReview)
_decode = msgspec.json.Decoder(_AdmissionReviewJson)
_decode_pod = msgspec.json.Decoder(PodObject)
_decode_object = msgspec.json.Decoder(dict[str, Any])
_encode = msgspec.json.Encoder().encode
_UID = re.compile(rb'"uid"\s*:\s*"([0-9A-Za-z_.:-]{1,128})"')


def decode_summary(body: bytes) -> tuple[ReviewRequestSummary, bytes] | None:
    """Return the request of a review of a pod in creation, and a digest of all that its answer depends on.

    Reviews with equal digests have the same answer under the same decisions: pods of one template differ only in what
    is not read. None for anything that needs a closer look.
    """
    try:
        review = _glance.decode(body)
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
    """Return a digest of all that an answer depends on, but for the pod's labels and owners.

    These tell the revisions of a workload apart, which are written alike mostly.
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
    """Return the request of a review. Raises BadInputError for what is no AdmissionReview v1."""
    review = decode_struct(_decode, body, _KIND)
    if review.kind != _KIND or review.api_version != API_VERSION:
        stated = to_single_line(f"{review.api_version} {review.kind}".strip())[:60]
        raise BadInputError(f'"{stated}" is not known here; send {API_VERSION} {_KIND}')
    return review.request


def get_created_pod(question: ReviewRequest) -> PodObject:
    """Return the pod that a request is about, in the request's namespace and without any status.

    Raises BadInputError that names the place.
    """
    return decode_pod_in_namespace(decode_struct(_decode_pod, question.object, "Pod"), question.namespace)


def decode_submitted_pod(question: ReviewRequest) -> dict[str, Any]:
    """Return the pod's JSON as it came. Raises BadInputError."""
    return decode_struct(_decode_object, question.object, "Pod")


def decode_pod_in_namespace(document: PodObject, namespace: str | None) -> PodObject:
    """Return a pod in creation as it will be: in the request's namespace, with nothing to report yet."""
    metadata = msgspec.structs.replace(document.metadata, namespace=namespace or None)
    return msgspec.structs.replace(document, metadata=metadata, status=None)


def find_uid(body: bytes) -> str:
    """Return the first uid that stands in a body which is no review; in a review that is the request's own."""
    found = _UID.search(body)
    return found.group(1).decode("ascii") if found else ""


class ReviewResponse:
    """An answer but for the uid: the pod may be created, with a patch (the bytes of a JSON Patch) or as it is."""

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
        """Tell how many bytes it takes."""
        return len(self._after)

    def for_uid(self, uid: str) -> bytes:
        """Return the whole response to the request of that uid."""
        return _BEFORE_UID + _encode(uid) + self._after


def _as_warning(text: str) -> str:
    """Return a warning as it may stand in an HTTP header: short and in ASCII."""
    plain = to_single_line(text).encode("ascii", "replace").decode("ascii")
    return plain if len(plain) <= _LONGEST_WARNING else f"{plain[: _LONGEST_WARNING - 3]}..."


# How much of a pod in creation is read: a pod of a thousand times the usual size is no reason to keep others waiting. The API server validates pods only after webhooks have seen them, so a namespace's user may send anything.

# Shorter texts have few elements, whatever is in them.
_SHORT_BYTES = 16 << 10


@dataclass(frozen=True, slots=True)
class ReviewLimits:
    """The most that a review may have, of each; what has more is answered unchanged.

    `elements` are those of all lists and objects together, `terms` what says where the pod may run: terms, their
    expressions and the values of these. Labels count as annotations.
    """

    review_bytes: int = 1 << 20
    json_elements: int = 10_000
    containers: int = 100
    terms: int = 1_000
    annotations: int = 1_000
    tolerations: int = 200


class ReviewTooLarge(BadInputError):
    """More than is read; `reason` is the word that it is counted under."""

    def __init__(self, reason: str, found: str) -> None:
        super().__init__(f"it has {found}, of which fewer are read")
        self.reason = reason


def check_elements(review: bytes, bounds: ReviewLimits) -> None:
    """See that reading a review takes little time. Raises ReviewTooLarge."""
    # Of two elements in a row each but the last has a comma; those in texts count too, which does no harm.
    if len(review) > _SHORT_BYTES and review.count(b",") > bounds.json_elements:
        raise ReviewTooLarge("too-large", f"over {bounds.json_elements} elements")


def check_pod(pod: PodObject, bounds: ReviewLimits) -> None:
    """See that deciding on a pod takes little time. Raises ReviewTooLarge."""
    spec, metadata = pod.spec, pod.metadata
    if len(spec.containers) + len(spec.init_containers or ()) > bounds.containers:
        raise ReviewTooLarge("too-many-containers", f"over {bounds.containers} containers")
    if len(metadata.annotations or ()) + len(metadata.labels or ()) > bounds.annotations:
        raise ReviewTooLarge("too-many-annotations", f"over {bounds.annotations} annotations and labels")
    if len(spec.tolerations or ()) > bounds.tolerations:
        raise ReviewTooLarge("too-many-tolerations", f"over {bounds.tolerations} tolerations")
    if _exceeds(_terms(spec), bounds.terms):
        raise ReviewTooLarge("too-many-affinity-terms", f"over {bounds.terms} affinity terms, expressions and values")


def _exceeds(counts: Iterable[int], most: int) -> bool:
    total = 0
    for count in counts:
        total += count
        if total > most:
            return True
    return False


def _terms(spec: PodSpec) -> Iterator[int]:
    yield len(spec.node_selector or ())
    for constraint in spec.topology_spread_constraints or ():
        yield 1 + len(constraint.match_label_keys or ())
        yield from _expressions(constraint.label_selector)
    if spec.affinity is None:
        return
    of_nodes = spec.affinity.node_affinity
    required = of_nodes.required_during_scheduling_ignored_during_execution if of_nodes is not None else None
    for term in required.node_selector_terms if required is not None else ():
        yield 1
        for expression in (*(term.match_expressions or ()), *(term.match_fields or ())):
            yield 1 + len(expression.values or ())
    for of_pods in (spec.affinity.pod_affinity, spec.affinity.pod_anti_affinity):
        for beside in (
            of_pods.required_during_scheduling_ignored_during_execution if of_pods is not None else ()
        ) or ():
            yield 1 + len(beside.namespaces or ())
            yield len(beside.match_label_keys or ()) + len(beside.mismatch_label_keys or ())
            yield from _expressions(beside.label_selector)
            yield from _expressions(beside.namespace_selector)


def _expressions(selector: LabelSelectorJson | None) -> Iterator[int]:
    if selector is not None:
        yield len(selector.match_labels or ())
        yield from (1 + len(expression.values or ()) for expression in selector.match_expressions or ())

"""AdmissionReview v1: kube-apiserver's request about a pod in creation, and the response to it."""

import re
from base64 import b64encode
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import astuple

from cruise.errors import UNDECODABLE, BadInput
from cruise.kube_json.refusals import decoded, one_line
from cruise.kube_json.wire.pod_json import ContainerSpec, Metadata, PodObject, PodSpec, Wire

API_VERSION = "admission.k8s.io/v1"
_KIND = "AdmissionReview"
_ABSENT = Raw(b"")
_BEFORE_UID = f'{{"apiVersion":"{API_VERSION}","kind":"{_KIND}","response":{{"uid":'.encode()
# JSON never has this byte, so parts that are joined by it stay distinct.
_BETWEEN = b"\0"
# More than a header line takes, and than a person reads.
_LONGEST_WARNING = 200


class Question(Wire, frozen=True):
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


class GroupVersionKind(Wire, frozen=True):
    """What the object of a review is."""

    group: str = ""
    version: str = ""
    kind: str = ""


class _Review(Wire, frozen=True):
    request: Question
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
    return msgspec.defstruct(f"Raw{shape.__name__}", fields, bases=(Wire,), frozen=True, omit_defaults=True)


# All that is read of a pod. Last stands what no answer depends on: volumes, of which each pod has one of a name of its
# own, and the namespace, which is the request's. A pod in creation has no status.
RawContainer = _unread(ContainerSpec)
RawMetadata = _unread(Metadata, last="namespace")
_Containers = tuple[RawContainer, ...]  # type: ignore[valid-type]
RawSpec = _unread(PodSpec, last="volumes", containers=_Containers, init_containers=_Containers)


class RawPod(Wire, frozen=True, omit_defaults=True):
    """A pod with everything that is read of it, as JSON text."""

    metadata: RawMetadata  # type: ignore[valid-type]
    spec: RawSpec  # type: ignore[valid-type]
    kind: Raw = _ABSENT
    status: Raw = _ABSENT


class SeenQuestion(Wire, frozen=True):
    """The request of a review of a pod in creation at first sight."""

    object: RawPod
    uid: str
    kind: GroupVersionKind
    operation: str
    sub_resource: str | None = None
    namespace: str | None = None
    dry_run: bool | None = None

    def question(self) -> Question:
        """Return the request with what is read of the pod, a part of it; a patch touches nothing else.

        Containers stand where they stand in the pod as it came.
        """
        part = Raw(_encode(self.object))
        return Question(self.uid, self.kind, self.sub_resource, self.operation, self.namespace, self.dry_run, part)


class _RawReview(Wire, frozen=True):
    request: SeenQuestion
    api_version: str
    kind: str


_glance = msgspec.json.Decoder(_RawReview)
_decode = msgspec.json.Decoder(_Review)
_decode_pod = msgspec.json.Decoder(PodObject)
_decode_object = msgspec.json.Decoder(dict[str, Any])
_encode = msgspec.json.Encoder().encode
_UID = re.compile(rb'"uid"\s*:\s*"([0-9A-Za-z_.:-]{1,128})"')


def glance(body: bytes) -> tuple[SeenQuestion, bytes] | None:
    """Return the request of a review of a pod in creation, and a digest of all that its answer depends on.

    Reviews with equal digests have the same answer under the same decisions: pods of one template differ only in what
    is not read. None for anything that needs a closer look.
    """
    try:
        review = _glance.decode(body)
    except UNDECODABLE:
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


def digest_but_names(request: SeenQuestion) -> bytes:
    """Return a digest of all that an answer depends on, but for the pod's labels and owners.

    These tell the revisions of a workload apart, which are written alike mostly.
    """
    metadata = msgspec.structs.replace(request.object.metadata, labels=_ABSENT, owner_references=_ABSENT)
    return _digest(request.namespace, msgspec.structs.replace(request.object, metadata=metadata))


def _digest(namespace: str | None, pod: RawPod) -> bytes:
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


def decode_question(body: bytes) -> Question:
    """Return the request of a review. Raises BadInput for what is no AdmissionReview v1."""
    review = decoded(_decode, body, _KIND)
    if review.kind != _KIND or review.api_version != API_VERSION:
        stated = one_line(f"{review.api_version} {review.kind}".strip())[:60]
        raise BadInput(f'"{stated}" is not known here; send {API_VERSION} {_KIND}')
    return review.request


def pod_in_creation(question: Question) -> PodObject:
    """Return the pod that a request is about, in the request's namespace and without any status.

    Raises BadInput that names the place.
    """
    return placed(decoded(_decode_pod, question.object, "Pod"), question.namespace)


def submitted(question: Question) -> dict[str, Any]:
    """Return the pod's JSON as it came. Raises BadInput."""
    return decoded(_decode_object, question.object, "Pod")


def placed(document: PodObject, namespace: str | None) -> PodObject:
    """Return a pod in creation as it will be: in the request's namespace, with nothing to report yet."""
    metadata = msgspec.structs.replace(document.metadata, namespace=namespace or None)
    return msgspec.structs.replace(document, metadata=metadata, status=None)


def uid_in(body: bytes) -> str:
    """Return the first uid that stands in a body which is no review; in a review that is the request's own."""
    found = _UID.search(body)
    return found.group(1).decode("ascii") if found else ""


class Answer:
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

    def to(self, uid: str) -> bytes:
        """Return the whole response to the request of that uid."""
        return _BEFORE_UID + _encode(uid) + self._after


def _as_warning(text: str) -> str:
    """Return a warning as it may stand in an HTTP header: short and in ASCII."""
    plain = one_line(text).encode("ascii", "replace").decode("ascii")
    return plain if len(plain) <= _LONGEST_WARNING else f"{plain[: _LONGEST_WARNING - 3]}..."

"""AdmissionReview v1: what kube-apiserver asks about a pod that is being created, and the answer to it."""

import re
from base64 import b64encode
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from cruise.errors import BadInput
from cruise.kube_json.refusals import explained, one_line
from cruise.kube_json.wire.pod_json import PodObject, Wire

T = TypeVar("T")

API_VERSION = "admission.k8s.io/v1"
_KIND = "AdmissionReview"
_ABSENT = Raw(b"")
# JSON never holds this byte, so what is joined by it can be told apart again.
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


class RawContainer(Wire, frozen=True):
    """The fields of a container that decisions can depend on, unread."""

    name: Raw = _ABSENT
    ports: Raw = _ABSENT
    resources: Raw = _ABSENT
    resize_policy: Raw = _ABSENT
    restart_policy: Raw = _ABSENT


class RawMetadata(Wire, frozen=True):
    """The fields of a pod's metadata that decisions can depend on, unread; the namespace is the request's."""

    name: Raw = _ABSENT
    uid: Raw = _ABSENT
    resource_version: Raw = _ABSENT
    labels: Raw = _ABSENT
    annotations: Raw = _ABSENT
    creation_timestamp: Raw = _ABSENT
    deletion_timestamp: Raw = _ABSENT
    owner_references: Raw = _ABSENT


class RawSpec(Wire, frozen=True):
    """The fields of a pod's spec that decisions can depend on, unread.

    Volumes are not among them: no size depends on them, and each pod has one of a name of its own.
    """

    containers: tuple[RawContainer, ...]
    init_containers: tuple[RawContainer, ...] | None = None
    node_name: Raw = _ABSENT
    priority: Raw = _ABSENT
    overhead: Raw = _ABSENT
    resources: Raw = _ABSENT
    os: Raw = _ABSENT
    node_selector: Raw = _ABSENT
    affinity: Raw = _ABSENT
    tolerations: Raw = _ABSENT
    scheduling_gates: Raw = _ABSENT
    priority_class_name: Raw = _ABSENT
    preemption_policy: Raw = _ABSENT
    host_network: Raw = _ABSENT
    topology_spread_constraints: Raw = _ABSENT
    resource_claims: Raw = _ABSENT


class RawPod(Wire, frozen=True):
    """A pod with everything that decisions can depend on, unread; the status of a pod in creation is nothing."""

    metadata: RawMetadata
    spec: RawSpec
    kind: Raw = _ABSENT


class _RawQuestion(Wire, frozen=True):
    object: RawPod
    uid: str
    kind: GroupVersionKind
    operation: str
    sub_resource: str | None = None
    namespace: str | None = None


class _RawReview(Wire, frozen=True):
    request: _RawQuestion
    api_version: str
    kind: str


_glance = msgspec.json.Decoder(_RawReview)
_decode = msgspec.json.Decoder(_Review)
_decode_pod = msgspec.json.Decoder(PodObject)
_decode_object = msgspec.json.Decoder(dict[str, Any])
_UID = re.compile(rb'"uid"\s*:\s*"([0-9A-Za-z_.:-]{1,128})"')


def glance(body: bytes) -> tuple[str, bytes] | None:
    """Return the uid of a review of a pod in creation, and a digest of all that its answer depends on.

    Reviews with equal digests have the same answer under the same decisions: pods of one template differ only in what
    is not read. None for anything that needs a closer look.
    """
    try:
        review = _glance.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
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
    pod = request.object
    metadata, spec = pod.metadata, pod.spec
    parts: list[bytes | Raw] = [
        request.namespace.encode(),
        pod.kind,
        metadata.name,
        metadata.uid,
        metadata.resource_version,
        metadata.labels,
        metadata.annotations,
        metadata.creation_timestamp,
        metadata.deletion_timestamp,
        metadata.owner_references,
        spec.node_name,
        spec.priority,
        spec.overhead,
        spec.resources,
        spec.os,
        spec.node_selector,
        spec.affinity,
        spec.tolerations,
        spec.scheduling_gates,
        spec.priority_class_name,
        spec.preemption_policy,
        spec.host_network,
        spec.topology_spread_constraints,
        spec.resource_claims,
    ]
    _add_parts(parts, spec.containers)
    if spec.init_containers:
        parts.append(b"init")
        _add_parts(parts, spec.init_containers)
    return request.uid, blake2b(_BETWEEN.join(parts), digest_size=20).digest()


def _add_parts(parts: list[bytes | Raw], containers: Sequence[RawContainer]) -> None:
    for one in containers:
        parts += (one.name, one.ports, one.resources, one.resize_policy, one.restart_policy)


def decode_question(body: bytes) -> Question:
    """Return the request of a review. Raises BadInput for what is no AdmissionReview v1."""
    try:
        review = _decode.decode(body)
    except msgspec.ValidationError as error:
        raise BadInput(one_line(f"{_KIND}: {explained(error)}")) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(one_line(f"the body is not JSON: {error}")) from error
    if review.kind != _KIND or review.api_version != API_VERSION:
        stated = one_line(f"{review.api_version} {review.kind}".strip())[:60]
        raise BadInput(f'"{stated}" is not known here; send {API_VERSION} {_KIND}')
    return review.request


def pod_in_creation(question: Question) -> PodObject:
    """Return the pod that a request is about, in the request's namespace and without any status.

    Raises BadInput that names the place.
    """
    return placed(_decoded(_decode_pod, question.object), question.namespace)


def submitted(question: Question) -> dict[str, Any]:
    """Return the pod's JSON as it came. Raises BadInput."""
    return _decoded(_decode_object, question.object)


def placed(document: PodObject, namespace: str | None) -> PodObject:
    """Return a pod in creation as it will be: in the request's namespace, with nothing to report yet."""
    metadata = msgspec.structs.replace(document.metadata, namespace=namespace or None)
    return msgspec.structs.replace(document, metadata=metadata, status=None)


def _decoded(decoder: msgspec.json.Decoder[T], text: Raw) -> T:
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        raise BadInput(one_line(f"Pod: {explained(error)}")) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(one_line(f"Pod: not JSON: {error}")) from error


def uid_in(body: bytes) -> str:
    """Return the first uid that stands in a body which is no review; in a review that is the request's own."""
    found = _UID.search(body)
    return found.group(1).decode("ascii") if found else ""


class Answer:
    """An answer but for the uid: the pod may be created, with a patch (the bytes of a JSON Patch) or as it is."""

    __slots__ = ("_after", "_before")

    def __init__(self, patch: bytes = b"", warnings: Sequence[str] = ()) -> None:
        fields: dict[str, object] = {"allowed": True}
        if patch:
            fields |= {"patchType": "JSONPatch", "patch": b64encode(patch).decode("ascii")}
        if warnings:
            fields["warnings"] = [_as_warning(warning) for warning in warnings]
        head = f'{{"apiVersion":"{API_VERSION}","kind":"{_KIND}","response":{{"uid":'
        self._before = head.encode()
        self._after = b"," + msgspec.json.encode(fields)[1:] + b"}"

    def to(self, uid: str) -> bytes:
        """Return the whole response to the request of that uid."""
        return self._before + msgspec.json.encode(uid) + self._after


def _as_warning(text: str) -> str:
    """Return a warning as it may stand in an HTTP header: short and in ASCII."""
    plain = one_line(text).encode("ascii", "replace").decode("ascii")
    return plain if len(plain) <= _LONGEST_WARNING else f"{plain[: _LONGEST_WARNING - 3]}..."

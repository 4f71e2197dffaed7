"""Pages of lists and lines of watches, decoded straight into slim structs.

What does not fit its struct is set apart with its name, so that one odd object never blinds for all the others.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from cruise.errors import UNDECODABLE, BadInput
from cruise.kube_json.refusals import explained, label_of, one_line
from cruise.kube_json.wire.object_json import AnyObject
from cruise.kube_json.wire.pod_json import Wire

T = TypeVar("T", bound=AnyObject)
S = TypeVar("S")

_GONE = 410


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An object that cannot be decoded: its name, a pod's node where that can be read, and the problem in one line."""

    namespace: str
    name: str
    uid: str
    node: str | None
    problem: str


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list; `resume` is empty on the last one."""

    items: list[T]
    unreadable: list[Unreadable]
    version: str
    resume: str


@dataclass(frozen=True, slots=True)
class Changed(Generic[T]):
    """An object as it is now."""

    item: T | Unreadable
    version: str


@dataclass(frozen=True, slots=True)
class Deleted(Generic[T]):
    """An object as it was when it went."""

    item: T | Unreadable
    version: str


@dataclass(frozen=True, slots=True)
class Bookmark:
    """All changes up to a version have been sent."""

    version: str


@dataclass(frozen=True, slots=True)
class Broken:
    """The watch ends here; `expired` says that its version is too old to go on from."""

    expired: bool
    message: str


Event = Changed[T] | Deleted[T] | Bookmark | Broken


class _ListMetadata(Wire, frozen=True):
    resource_version: str = ""
    resume: str = msgspec.field(name="continue", default="")


class _List(Wire, Generic[S], frozen=True):
    metadata: _ListMetadata
    items: list[S] | None = None


class _Line(Wire, Generic[S], frozen=True):
    type: str
    object: S


class _Failure(Wire, frozen=True):
    code: int = 0
    reason: str = ""
    message: str = ""


class _PlaceOnly(Wire, frozen=True):
    node_name: str | None = None


class _Name(Wire, frozen=True):
    name: str
    namespace: str = ""
    uid: str = ""


class _NameOnly(Wire, frozen=True):
    """What an object is recognised by, whatever else is wrong with it."""

    metadata: _Name
    spec: _PlaceOnly | None = None


class _VersionOnly(Wire, frozen=True):
    metadata: _ListMetadata


_RAW_LINE = msgspec.json.Decoder(_Line[msgspec.Raw])
_RAW_LIST = msgspec.json.Decoder(_List[msgspec.Raw])


class StreamDecoder(Generic[T]):
    """Decodes lists and watches of one kind, whose objects need not say their kind."""

    def __init__(self, shape: type[T]) -> None:
        self.kind = str(shape.__struct_config__.tag)
        self._item = msgspec.json.Decoder(shape)
        self._list: msgspec.json.Decoder[_List[T]] = msgspec.json.Decoder(_List[shape])  # type: ignore[valid-type]
        self._line: msgspec.json.Decoder[_Line[T]] = msgspec.json.Decoder(_Line[shape])  # type: ignore[valid-type]

    def page(self, text: bytes) -> Page[T]:
        """Decode a list's page. Raises BadInput where it is no list."""
        try:
            listed = self._list.decode(text)
        except msgspec.ValidationError:
            return self._page_item_by_item(text)
        except UNDECODABLE as error:
            raise BadInput(one_line(f"a list of kind {self.kind}: {error}")) from error
        return Page(listed.items or [], [], listed.metadata.resource_version, listed.metadata.resume)

    def event(self, line: bytes) -> Event[T]:
        """Decode a line of a watch. Raises BadInput where it is no event."""
        try:
            sent = self._line.decode(line)
        except msgspec.ValidationError:
            return self._odd_event(line)
        except UNDECODABLE as error:
            raise BadInput(one_line(f"a watch of kind {self.kind}: {error}")) from error
        version = sent.object.metadata.resource_version or ""
        return _event(sent.type, sent.object, version) or self._odd_event(line)

    def _page_item_by_item(self, text: bytes) -> Page[T]:
        try:
            listed = _RAW_LIST.decode(text)
        except UNDECODABLE as error:
            raise BadInput(one_line(f"a list of kind {self.kind}: {error}")) from error
        found: list[T] = []
        odd: list[Unreadable] = []
        for raw in listed.items or ():
            item = self._one(raw)
            if isinstance(item, Unreadable):
                odd.append(item)
            else:
                found.append(item)
        return Page(found, odd, listed.metadata.resource_version, listed.metadata.resume)

    def _odd_event(self, line: bytes) -> Event[T]:
        try:
            sent = _RAW_LINE.decode(line)
            if sent.type == "ERROR":
                failure = msgspec.json.decode(sent.object, type=_Failure)
                expired = failure.code == _GONE or failure.reason in ("Expired", "Gone")
                return Broken(expired, failure.message or failure.reason or f"code {failure.code}")
            version = msgspec.json.decode(sent.object, type=_VersionOnly).metadata.resource_version
        except UNDECODABLE as error:
            raise BadInput(one_line(f"a watch of kind {self.kind}: {error}")) from error
        if sent.type == "BOOKMARK":
            return Bookmark(version)
        event = _event(sent.type, self._one(sent.object), version)
        if event is None:
            raise BadInput(one_line(f"a watch of kind {self.kind}: {sent.type} is no event"))
        return event

    def _one(self, raw: msgspec.Raw) -> T | Unreadable:
        try:
            return self._item.decode(raw)
        except UNDECODABLE as error:
            return _unreadable(raw, self.kind, explained(error))


def _event(kind: str, item: T | Unreadable, version: str) -> Event[T] | None:
    """Return the event of a line, None for a type that says something else."""
    match kind:
        case "ADDED" | "MODIFIED":
            return Changed(item, version)
        case "DELETED":
            return Deleted(item, version)
        case "BOOKMARK":
            return Bookmark(version)
        case _:
            return None


def unreadable(document: AnyObject, node: str | None, problem: str) -> Unreadable:
    """Set a decoded object apart, whose values make no sense."""
    metadata = document.metadata
    return Unreadable(metadata.namespace or "", metadata.name, metadata.uid or "", node, problem)


def _unreadable(raw: msgspec.Raw, kind: str, problem: str) -> Unreadable:
    try:
        known = msgspec.json.decode(raw, type=_NameOnly)
    except UNDECODABLE as error:
        raise BadInput(one_line(f"an object of kind {kind} without a name that can be read: {problem}")) from error
    metadata = known.metadata
    label = label_of(kind, metadata.namespace, metadata.name)
    node = known.spec.node_name if known.spec else None
    return Unreadable(metadata.namespace, metadata.name, metadata.uid, node, one_line(f"{label}: {problem}"))

"""Pages of lists and lines of watches, decoded straight into slim structs.

What does not fit its struct is set apart with its name, so that one odd object never blinds for all the others.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from cruise.errors import DECODE_ERRORS, BadInputError
from cruise.kube_json.refusals import explain_validation_error, format_object_label, to_single_line
from cruise.kube_json.wire.object_json import AnyObject
from cruise.kube_json.wire.pod_json import JsonStruct

T = TypeVar("T", bound=AnyObject)
S = TypeVar("S")

_GONE = 410


@dataclass(frozen=True, slots=True)
class UnreadableObject:
    """An object that cannot be decoded: its name, a pod's node where that can be read, and the problem in one line."""

    namespace: str
    name: str
    uid: str
    node: str | None
    problem: str


@dataclass(frozen=True, slots=True)
class ListPage(Generic[T]):
    """One page of a list; `resume` is empty on the last one."""

    items: list[T]
    unreadable: list[UnreadableObject]
    version: str
    continue_token: str


@dataclass(frozen=True, slots=True)
class ChangedEvent(Generic[T]):
    """An object as it is now."""

    item: T | UnreadableObject
    version: str


@dataclass(frozen=True, slots=True)
class DeletedEvent(Generic[T]):
    """An object as it was when it went."""

    item: T | UnreadableObject
    version: str


@dataclass(frozen=True, slots=True)
class BookmarkEvent:
    """All changes up to a version have been sent."""

    version: str


@dataclass(frozen=True, slots=True)
class WatchError:
    """The watch ends here; `expired` says that its version is too old to go on from."""

    expired: bool
    message: str


WatchEvent = ChangedEvent[T] | DeletedEvent[T] | BookmarkEvent | WatchError


class _ListMetadata(JsonStruct, frozen=True):
    resource_version: str = ""
    resume: str = msgspec.field(name="continue", default="")


class _List(JsonStruct, Generic[S], frozen=True):
    metadata: _ListMetadata
    items: list[S] | None = None


class _Line(JsonStruct, Generic[S], frozen=True):
    type: str
    object: S


class _Failure(JsonStruct, frozen=True):
    code: int = 0
    reason: str = ""
    message: str = ""


class _NodeNameOnly(JsonStruct, frozen=True):
    node_name: str | None = None


class _Name(JsonStruct, frozen=True):
    name: str
    namespace: str = ""
    uid: str = ""


class _MetadataOnly(JsonStruct, frozen=True):
    """What an object is recognised by, whatever else is wrong with it."""

    metadata: _Name
    spec: _NodeNameOnly | None = None


class _VersionOnly(JsonStruct, frozen=True):
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

    def page(self, text: bytes) -> ListPage[T]:
        """Decode a list's page. Raises BadInputError where it is no list."""
        try:
            listed = self._list.decode(text)
        except msgspec.ValidationError:
            return self._page_item_by_item(text)
        except DECODE_ERRORS as error:
            raise BadInputError(to_single_line(f"a list of kind {self.kind}: {error}")) from error
        return ListPage(listed.items or [], [], listed.metadata.resource_version, listed.metadata.resume)

    def event(self, line: bytes) -> WatchEvent[T]:
        """Decode a line of a watch. Raises BadInputError where it is no event."""
        try:
            sent = self._line.decode(line)
        except msgspec.ValidationError:
            return self._odd_event(line)
        except DECODE_ERRORS as error:
            raise BadInputError(to_single_line(f"a watch of kind {self.kind}: {error}")) from error
        version = sent.object.metadata.resource_version or ""
        return _event(sent.type, sent.object, version) or self._odd_event(line)

    def _page_item_by_item(self, text: bytes) -> ListPage[T]:
        try:
            listed = _RAW_LIST.decode(text)
        except DECODE_ERRORS as error:
            raise BadInputError(to_single_line(f"a list of kind {self.kind}: {error}")) from error
        found: list[T] = []
        odd: list[UnreadableObject] = []
        for raw in listed.items or ():
            item = self._one(raw)
            if isinstance(item, UnreadableObject):
                odd.append(item)
            else:
                found.append(item)
        return ListPage(found, odd, listed.metadata.resource_version, listed.metadata.resume)

    def _odd_event(self, line: bytes) -> WatchEvent[T]:
        try:
            sent = _RAW_LINE.decode(line)
            if sent.type == "ERROR":
                failure = msgspec.json.decode(sent.object, type=_Failure)
                expired = failure.code == _GONE or failure.reason in ("Expired", "Gone")
                return WatchError(expired, failure.message or failure.reason or f"code {failure.code}")
            version = msgspec.json.decode(sent.object, type=_VersionOnly).metadata.resource_version
        except DECODE_ERRORS as error:
            raise BadInputError(to_single_line(f"a watch of kind {self.kind}: {error}")) from error
        if sent.type == "BOOKMARK":
            return BookmarkEvent(version)
        event = _event(sent.type, self._one(sent.object), version)
        if event is None:
            raise BadInputError(to_single_line(f"a watch of kind {self.kind}: {sent.type} is no event"))
        return event

    def _one(self, raw: msgspec.Raw) -> T | UnreadableObject:
        try:
            return self._item.decode(raw)
        except DECODE_ERRORS as error:
            return _unreadable(raw, self.kind, explain_validation_error(error))


def _event(kind: str, item: T | UnreadableObject, version: str) -> WatchEvent[T] | None:
    """Return the event of a line, None for a type that says something else."""
    match kind:
        case "ADDED" | "MODIFIED":
            return ChangedEvent(item, version)
        case "DELETED":
            return DeletedEvent(item, version)
        case "BOOKMARK":
            return BookmarkEvent(version)
        case _:
            return None


def create_unreadable(document: AnyObject, node: str | None, problem: str) -> UnreadableObject:
    """Set a decoded object apart, whose values make no sense."""
    metadata = document.metadata
    return UnreadableObject(metadata.namespace or "", metadata.name, metadata.uid or "", node, problem)


def _unreadable(raw: msgspec.Raw, kind: str, problem: str) -> UnreadableObject:
    try:
        known = msgspec.json.decode(raw, type=_MetadataOnly)
    except DECODE_ERRORS as error:
        raise BadInputError(
            to_single_line(f"an object of kind {kind} without a name that can be read: {problem}")
        ) from error
    metadata = known.metadata
    label = format_object_label(kind, metadata.namespace, metadata.name)
    node = known.spec.node_name if known.spec else None
    return UnreadableObject(
        metadata.namespace, metadata.name, metadata.uid, node, to_single_line(f"{label}: {problem}")
    )

"""Decode pages of lists and lines of watches into structs.

An object that does not fit its struct is returned separately with its name, so that the others stay readable.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from cruise.errors import DECODE_ERRORS, BadInputError
from cruise.kube_json.object_errors import convert_to_single_line, explain_validation_error, format_object_label
from cruise.kube_json.wire.object_json import AnyObject
from cruise.kube_json.wire.pod_json import JsonStruct

ObjectT = TypeVar("ObjectT", bound=AnyObject)
ItemT = TypeVar("ItemT")

_HTTP_GONE = 410


@dataclass(frozen=True, slots=True)
class UnreadableObject:
    """An object that cannot be decoded: its name, a pod's node if readable, and the problem in one line."""

    namespace: str
    name: str
    uid: str
    node: str | None
    problem: str


@dataclass(frozen=True, slots=True)
class ListPage(Generic[ObjectT]):
    """One page of a list; `continue_token` is empty on the last page."""

    items: list[ObjectT]
    unreadable: list[UnreadableObject]
    version: str
    continue_token: str


@dataclass(frozen=True, slots=True)
class ChangedEvent(Generic[ObjectT]):
    """An added or modified object."""

    item: ObjectT | UnreadableObject
    version: str


@dataclass(frozen=True, slots=True)
class DeletedEvent(Generic[ObjectT]):
    """The last state of a deleted object."""

    item: ObjectT | UnreadableObject
    version: str


@dataclass(frozen=True, slots=True)
class BookmarkEvent:
    """All changes up to a version were sent."""

    version: str


@dataclass(frozen=True, slots=True)
class WatchError:
    """The end of a watch; `expired`: its version is too old to continue from."""

    expired: bool
    message: str


WatchEvent = ChangedEvent[ObjectT] | DeletedEvent[ObjectT] | BookmarkEvent | WatchError


class _ListMetadata(JsonStruct, frozen=True):
    resource_version: str = ""
    continue_token: str = msgspec.field(name="continue", default="")


class _List(JsonStruct, Generic[ItemT], frozen=True):
    metadata: _ListMetadata
    items: list[ItemT] | None = None


class _WatchLine(JsonStruct, Generic[ItemT], frozen=True):
    type: str
    object: ItemT


class _StatusJson(JsonStruct, frozen=True):
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
    """The identity of an object that is otherwise unreadable."""

    metadata: _Name
    spec: _NodeNameOnly | None = None


class _VersionOnly(JsonStruct, frozen=True):
    metadata: _ListMetadata


_RAW_LINE = msgspec.json.Decoder(_WatchLine[msgspec.Raw])
_RAW_LIST = msgspec.json.Decoder(_List[msgspec.Raw])


class StreamDecoder(Generic[ObjectT]):
    """Decodes lists and watches of one kind; the objects need not state it."""

    def __init__(self, struct: type[ObjectT]) -> None:
        self.kind = str(struct.__struct_config__.tag)
        self._item = msgspec.json.Decoder(struct)
        self._list: msgspec.json.Decoder[_List[ObjectT]] = msgspec.json.Decoder(_List[struct])  # type: ignore[valid-type]
        self._line: msgspec.json.Decoder[_WatchLine[ObjectT]] = msgspec.json.Decoder(_WatchLine[struct])  # type: ignore[valid-type]

    def decode_page(self, text: bytes) -> ListPage[ObjectT]:
        """Decode a page of a list; BadInputError if it is not a list."""
        try:
            listed = self._list.decode(text)
        except msgspec.ValidationError:
            return self._page_item_by_item(text)
        except DECODE_ERRORS as error:
            raise BadInputError(convert_to_single_line(f"a list of kind {self.kind}: {error}")) from error
        return ListPage(listed.items or [], [], listed.metadata.resource_version, listed.metadata.continue_token)

    def decode_event(self, line: bytes) -> WatchEvent[ObjectT]:
        """Decode a line of a watch; BadInputError if it is not an event."""
        try:
            sent = self._line.decode(line)
        except msgspec.ValidationError:
            return self._decode_other_event(line)
        except DECODE_ERRORS as error:
            raise BadInputError(convert_to_single_line(f"a watch of kind {self.kind}: {error}")) from error
        version = sent.object.metadata.resource_version or ""
        return _create_event(sent.type, sent.object, version) or self._decode_other_event(line)

    def _page_item_by_item(self, text: bytes) -> ListPage[ObjectT]:
        try:
            listed = _RAW_LIST.decode(text)
        except DECODE_ERRORS as error:
            raise BadInputError(convert_to_single_line(f"a list of kind {self.kind}: {error}")) from error
        found: list[ObjectT] = []
        unreadable: list[UnreadableObject] = []
        for raw in listed.items or ():
            item = self._decode_item(raw)
            if isinstance(item, UnreadableObject):
                unreadable.append(item)
            else:
                found.append(item)
        return ListPage(found, unreadable, listed.metadata.resource_version, listed.metadata.continue_token)

    def _decode_other_event(self, line: bytes) -> WatchEvent[ObjectT]:
        try:
            sent = _RAW_LINE.decode(line)
            if sent.type == "ERROR":
                failure = msgspec.json.decode(sent.object, type=_StatusJson)
                expired = failure.code == _HTTP_GONE or failure.reason in ("Expired", "Gone")
                return WatchError(expired, failure.message or failure.reason or f"code {failure.code}")
            version = msgspec.json.decode(sent.object, type=_VersionOnly).metadata.resource_version
        except DECODE_ERRORS as error:
            raise BadInputError(convert_to_single_line(f"a watch of kind {self.kind}: {error}")) from error
        if sent.type == "BOOKMARK":
            return BookmarkEvent(version)
        event = _create_event(sent.type, self._decode_item(sent.object), version)
        if event is None:
            raise BadInputError(convert_to_single_line(f"a watch of kind {self.kind}: {sent.type} is not an event"))
        return event

    def _decode_item(self, raw: msgspec.Raw) -> ObjectT | UnreadableObject:
        try:
            return self._item.decode(raw)
        except DECODE_ERRORS as error:
            return _describe_unreadable(raw, self.kind, explain_validation_error(error))


def _create_event(kind: str, item: ObjectT | UnreadableObject, version: str) -> WatchEvent[ObjectT] | None:
    """Return the event, None for an unknown type."""
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
    """Return a decoded object with invalid values as unreadable."""
    metadata = document.metadata
    return UnreadableObject(metadata.namespace or "", metadata.name, metadata.uid or "", node, problem)


def _describe_unreadable(raw: msgspec.Raw, kind: str, problem: str) -> UnreadableObject:
    try:
        known = msgspec.json.decode(raw, type=_MetadataOnly)
    except DECODE_ERRORS as error:
        raise BadInputError(
            convert_to_single_line(f"an object of kind {kind} without a name that can be read: {problem}")
        ) from error
    metadata = known.metadata
    label = format_object_label(kind, metadata.namespace, metadata.name)
    node = known.spec.node_name if known.spec else None
    return UnreadableObject(
        metadata.namespace, metadata.name, metadata.uid, node, convert_to_single_line(f"{label}: {problem}")
    )

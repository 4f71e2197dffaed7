"""Read a cluster from the output of `kubectl get … -A -o json`, and files of node types."""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar, get_args

import msgspec

from cruise.domain.annotations import INSTANCE_TYPE
from cruise.domain.cluster import ClusterSnapshot, Node
from cruise.domain.packing_plan import NodeType
from cruise.domain.policy import parse_size
from cruise.domain.resources import ResourceName
from cruise.errors import DECODE_ERRORS, UNPARSABLE_ERRORS, BadInputError
from cruise.kube_json.object_errors import (
    convert_to_single_line,
    convert_to_struct,
    decode_struct,
    format_document_label,
    format_object_label,
)
from cruise.kube_json.objects.owners import is_foreign_api_group
from cruise.kube_json.objects.quantities import read_amounts, read_extended, read_memory
from cruise.kube_json.objects.scheduling import read_taints
from cruise.kube_json.reading.json_list import (
    ItemListReader,
    ItemRun,
    MalformedJsonError,
    describe_unparsable,
)
from cruise.kube_json.reading.object_collection import ObjectCollection
from cruise.kube_json.wire import object_json
from cruise.kube_json.wire.object_json import NodeTaint
from cruise.kube_json.wire.pod_json import QuantityMap

T = TypeVar("T")

_SEPARATOR = re.compile(r"[ \t\r\n]*(,?)[ \t\r\n]*")


def decode_items(
    items: ItemListReader,
    get_decoder: Callable[[Mapping[str, object]], msgspec.json.Decoder[list[T]]],
    decode_one: Callable[[object], T | None],
) -> Iterator[T]:
    """Yield the structs of a document's items.

    `get_decoder` chooses by the document's fields read so far, and may reject them. If a run does not decode, each of
    its items is parsed separately and passed to `decode_one`, which returns None to skip it, repairs it, or raises
    BadInputError with its name. So the items before an error are yielded before MalformedJsonError.
    """

    def parse(text: memoryview) -> list[T] | None:
        try:
            return get_decoder(items.fields).decode(text)
        except DECODE_ERRORS:
            return None

    for run, decoded in items.read_runs(parse):
        if decoded is not None:
            yield from decoded
        elif run is not None:
            yield from (item for item in map(decode_one, _parse_items(run)) if item is not None)


def _parse_items(run: ItemRun) -> Iterator[object]:
    try:
        text = run.text.decode()
    except UnicodeDecodeError as error:
        raise MalformedJsonError("not UTF-8 text", run.byte + error.start) from error
    # Python's parser accepts NaN and Infinity, which are then rejected with their place.
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        try:
            item, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            byte = run.byte + len(text[: error.pos].encode())
            raise MalformedJsonError(f"not JSON: {error.msg[:1].lower()}{error.msg[1:]}", byte) from error
        except UNPARSABLE_ERRORS as error:
            raise MalformedJsonError(describe_unparsable(error), run.byte + len(text[:at].encode())) from error
        yield item
        separator = _SEPARATOR.match(text, at)
        end = separator.end() if separator else at
        if end < len(text) and not (separator and separator.group(1)):
            raise MalformedJsonError("not JSON: expected a comma", run.byte + len(text[:end].encode()))
        at = end


def describe_broken_input(error: MalformedJsonError, after: str, fix: str) -> BadInputError:
    """Return an error with the byte, the item before it, and the fix; `after` may be empty."""
    behind = f", after {after}" if after else ""
    return BadInputError(f"{error.problem} (byte {error.byte}{behind}); {fix}")


_HINT = "print it with: kubectl get no,po,rs,deploy,sts,ds,job,cj,pdb,hpa,limits,quota,ns -Ao json"
_STRUCTS: Mapping[str, type[object_json.AnyObject]] = {
    str(struct.__struct_config__.tag): struct for struct in get_args(object_json.AnyObject)
}
# Other API groups have different kinds with these names. OpenKruise's StatefulSets and DaemonSets are compatible.
_AMBIGUOUS_STRUCTS = (
    object_json.CronJobObject,
    object_json.DeploymentObject,
    object_json.JobObject,
    object_json.NodeObject,
    object_json.ReplicaSetObject,
)
_AMBIGUOUS_KINDS = frozenset(str(struct.__struct_config__.tag) for struct in _AMBIGUOUS_STRUCTS)
_Decoder = msgspec.json.Decoder[list[object_json.AnyObject]]


def _decoder(item: Any) -> _Decoder:  # noqa: ANN401 - a type, or a union of types
    return msgspec.json.Decoder(list[item])


_MIXED_DECODER = _decoder(object_json.AnyObject)
_KIND_DECODERS = {f"{kind}List": _decoder(struct) for kind, struct in _STRUCTS.items()}


def read_snapshot(chunks: Iterable[bytes], name: str) -> ClusterSnapshot:
    """Read a `v1` List, or a list of one kind, from the chunks of a document with a name.

    Kinds that cruise does not read are skipped. BadInputError has one line with file, place and fix.
    """
    items, collection = ItemListReader(chunks), ObjectCollection()
    last: object_json.AnyObject | None = None
    try:
        try:
            for document in _documents(items):
                collection.add(document)
                last = document
        except MalformedJsonError as error:
            _check_document_kind(items.fields)
            raise describe_broken_input(error, _format_label(last), _HINT) from error
        _check_document_kind(items.fields)
        if "kind" not in items.fields:
            raise BadInputError(f"is not a List: it has no kind; {_HINT}")
        return collection.build_snapshot()
    except BadInputError as error:
        raise BadInputError(convert_to_single_line(f"{name}: {error}")) from error


def _check_document_kind(fields: Mapping[str, object]) -> None:
    """Reject a document by its kind as soon as it is read."""
    kind = fields.get("kind", "List")
    if not isinstance(kind, str) or not kind.endswith("List"):
        raise BadInputError(f"is a {kind}, not a List; {_HINT}")


def _documents(items: ItemListReader) -> Iterator[object_json.AnyObject]:
    def get_decoder(fields: Mapping[str, object]) -> _Decoder:
        _check_document_kind(fields)
        return _KIND_DECODERS.get(_list_kind(fields), _MIXED_DECODER)

    def decode_one(document: object) -> object_json.AnyObject | None:
        if not isinstance(document, dict):
            raise BadInputError(f"items: {document!r:.40} is not an object; {_HINT}")
        kind = _kind(document, _list_kind(items.fields))
        is_read = kind in _STRUCTS and not (
            kind in _AMBIGUOUS_KINDS and is_foreign_api_group(str(document.get("apiVersion", "")))
        )
        return convert_to_struct({**document, "kind": kind}, _STRUCTS[kind]) if is_read else None

    for document in decode_items(items, get_decoder, decode_one):
        if not (isinstance(document, _AMBIGUOUS_STRUCTS) and is_foreign_api_group(document.api_version)):
            yield document


def _list_kind(fields: Mapping[str, object]) -> str:
    return str(fields.get("kind", "List"))


def _kind(document: Mapping[str, Any], list_kind: str) -> str:
    """Return an item's kind; items of a list of one kind need not state it."""
    kind = document.get("kind") or list_kind.removesuffix("List")
    if not isinstance(kind, str) or not kind:
        raise BadInputError(f"{format_document_label(document)}: has no kind; {_HINT}")
    return kind


def _format_label(document: object_json.AnyObject | None) -> str:
    if document is None:
        return ""
    metadata = document.metadata
    return format_object_label(str(document.__struct_config__.tag), metadata.namespace, metadata.name)


# Files of node types.

API_VERSION, KIND = "cruise.io/v1", "NodeTypes"
# Scaled prices of many nodes are added in 64 bits.
_MAXIMUM_PRICE = 1e6


class _NodeTypeJson(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    allocatable: QuantityMap
    price: float
    limit: int | None = None
    labels: dict[str, str] = {}
    taints: tuple[NodeTaint, ...] = ()


class _NodeTypesJson(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    api_version: str
    kind: str
    items: list[_NodeTypeJson]


_NODE_TYPES_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_NodeTypesJson)


def read_node_types(text: bytes, name: str) -> tuple[NodeType, ...]:
    """Read a document with a name; BadInputError has one line with file, place and fix."""
    document = decode_struct(_NODE_TYPES_DECODER, text, name)
    if (document.api_version, document.kind) != (API_VERSION, KIND):
        raise BadInputError(
            convert_to_single_line(
                f'{name}: is not a list of node types; begin it with {{"apiVersion":"{API_VERSION}","kind":"{KIND}"'
            )
        )
    found: dict[str, NodeType] = {}
    for number, item in enumerate(document.items):
        place = f"{name}: items[{number}]"
        if item.name in found:
            raise BadInputError(convert_to_single_line(f"{place}.name: {item.name} is in the list twice; remove one"))
        found[item.name] = _read_node_type(item, place)
    if not found:
        raise BadInputError(convert_to_single_line(f"{name}: items is empty; add a node type"))
    return tuple(found.values())


def _read_node_type(item: _NodeTypeJson, place: str) -> NodeType:
    if not (math.isfinite(item.price) and item.price > 0):
        raise BadInputError(f"{place}.price: {item.price:g} is not a price; write a number above 0")
    if item.price > _MAXIMUM_PRICE:
        raise BadInputError(
            f"{place}.price: {item.price:g} is too large; use a larger unit for all prices, up to {_MAXIMUM_PRICE:g}"
        )
    if item.limit is not None and item.limit < 0:
        raise BadInputError(f"{place}.limit: {item.limit} is negative; write a number of 0 or more")
    where = f"{place}.allocatable"
    for resource in ResourceName:
        stated = item.allocatable.get(resource)
        if stated is None:
            raise BadInputError(f"{where}.{resource}: is missing; write what pods can request of such a node")
        try:
            parse_size(resource, str(stated))
        except ValueError as error:
            raise BadInputError(f"{where}.{resource}: {error}") from error
    pods = read_memory(item.allocatable.get("pods"), f"{where}.pods")
    template = Node(
        name="",
        allocatable=read_amounts(item.allocatable, where).resources,
        allocatable_pods=110 if pods is None else pods,
        allocatable_extended=dict(sorted(read_extended(item.allocatable, where).items())),
        labels={INSTANCE_TYPE: item.name, **item.labels},
        taints=read_taints(item.taints),
    )
    return NodeType(item.name, template, item.price, item.limit)

"""A whole cluster from what `kubectl get nodes,pods,… -A -o json` prints."""

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
from cruise.errors import DECODE_ERRORS, BadInputError
from cruise.kube_json.objects.owners import is_foreign_api_group
from cruise.kube_json.objects.quantities import read_amounts, read_extended, read_memory
from cruise.kube_json.objects.scheduling import read_taints
from cruise.kube_json.reading.json_list import ItemListReader, ItemRun, MalformedJson
from cruise.kube_json.reading.object_collection import ObjectCollection
from cruise.kube_json.refusals import (
    convert_to_struct,
    decode_struct,
    format_document_label,
    format_object_label,
    to_single_line,
)
from cruise.kube_json.wire import object_json
from cruise.kube_json.wire.object_json import NodeTaint
from cruise.kube_json.wire.pod_json import QuantityMap

# Runs of items decoded into structs, and a slow way for runs that do not decode as a whole.

T = TypeVar("T")

_SEPARATOR = re.compile(r"[ \t\r\n]*(,?)[ \t\r\n]*")


def decode_items(
    items: ItemListReader,
    decoder_of: Callable[[Mapping[str, object]], msgspec.json.Decoder[list[T]]],
    one_by_one: Callable[[object], T | None],
) -> Iterator[T]:
    """Yield the structs of a document's items.

    `decoder_of` chooses by the document's fields read so far, and may refuse them. Where a whole run does not decode,
    every item is parsed by itself and given to `one_by_one`, which passes over it (None), repairs it or raises
    BadInputError that names it. So items in front of a fault are yielded before the MalformedJson with its place.
    """

    def parse(text: memoryview) -> list[T] | None:
        try:
            return decoder_of(items.fields).decode(text)
        except DECODE_ERRORS:
            return None

    for run, decoded in items.runs(parse):
        if decoded is not None:
            yield from decoded
        elif run is not None:
            yield from (item for item in map(one_by_one, _parse_items(run)) if item is not None)


def _parse_items(run: ItemRun) -> Iterator[object]:
    try:
        text = run.text.decode()
    except UnicodeDecodeError as error:
        raise MalformedJson("not UTF-8 text", run.byte + error.start) from error
    # Python's own parser also takes NaN and Infinity, which then are refused by name where they stand.
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        try:
            item, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            byte = run.byte + len(text[: error.pos].encode())
            raise MalformedJson(f"not JSON: {error.msg[:1].lower()}{error.msg[1:]}", byte) from error
        except RecursionError as error:
            raise MalformedJson("nested too deeply", run.byte + len(text[:at].encode())) from error
        yield item
        separator = _SEPARATOR.match(text, at)
        end = separator.end() if separator else at
        if end < len(text) and not (separator and separator.group(1)):
            raise MalformedJson("not JSON: a comma belongs", run.byte + len(text[:end].encode()))
        at = end


def describe_broken_input(error: MalformedJson, after: str, fix: str) -> BadInputError:
    """Say where a document breaks, behind which item, and what to do; `after` may be empty."""
    behind = f", after {after}" if after else ""
    return BadInputError(f"{error.problem} (byte {error.byte}{behind}); {fix}")


_HOW = "print it with: kubectl get nodes,pods,replicasets,deployments,… -A -o json"
_SHAPES: Mapping[str, type[object_json.AnyObject]] = {
    str(shape.__struct_config__.tag): shape for shape in get_args(object_json.AnyObject)
}
# Other API groups have kinds of these names, which are something else. OpenKruise's StatefulSets and DaemonSets are not
# among them: they are what Kubernetes' own are, and more.
_SHAPES_OF_LOOKALIKES = (
    object_json.CronJobObject,
    object_json.DeploymentObject,
    object_json.JobObject,
    object_json.NodeObject,
    object_json.ReplicaSetObject,
)
_LOOKALIKES = frozenset(str(shape.__struct_config__.tag) for shape in _SHAPES_OF_LOOKALIKES)
_Decoder = msgspec.json.Decoder[list[object_json.AnyObject]]


def _decoder(item: Any) -> _Decoder:  # noqa: ANN401 - a type, or a union of types
    return msgspec.json.Decoder(list[item])


_MIXED = _decoder(object_json.AnyObject)
_OF_KIND = {f"{kind}List": _decoder(shape) for kind, shape in _SHAPES.items()}


def read_snapshot(chunks: Iterable[bytes], name: str) -> ClusterSnapshot:
    """Read a `v1` List, or a list of one kind, from the chunks of one document called `name`.

    Kinds that cruise does not read are passed over. Raises BadInputError, one line that names file, place and fix.
    """
    items, gathering = ItemListReader(chunks), ObjectCollection()
    last: object_json.AnyObject | None = None
    try:
        try:
            for document in _documents(items):
                gathering.add(document)
                last = document
        except MalformedJson as error:
            _refuse_other_documents(items.fields)
            raise describe_broken_input(error, _label(last), _HOW) from error
        _refuse_other_documents(items.fields)
        if "kind" not in items.fields:
            raise BadInputError(f"is not a List: it has no kind; {_HOW}")
        return gathering.snapshot()
    except BadInputError as error:
        raise BadInputError(to_single_line(f"{name}: {error}")) from error


def _refuse_other_documents(fields: Mapping[str, object]) -> None:
    """Refuse a document by its kind, as soon as that was read."""
    kind = fields.get("kind", "List")
    if not isinstance(kind, str) or not kind.endswith("List"):
        raise BadInputError(f"is a {kind}, not a List; {_HOW}")


def _documents(items: ItemListReader) -> Iterator[object_json.AnyObject]:
    def decoder_of(fields: Mapping[str, object]) -> _Decoder:
        _refuse_other_documents(fields)
        return _OF_KIND.get(_list_kind(fields), _MIXED)

    def decode_one(document: object) -> object_json.AnyObject | None:
        if not isinstance(document, dict):
            raise BadInputError(f"items: {document!r:.40} is not an object; {_HOW}")
        kind = _kind(document, _list_kind(items.fields))
        is_read = kind in _SHAPES and not (
            kind in _LOOKALIKES and is_foreign_api_group(str(document.get("apiVersion", "")))
        )
        return convert_to_struct({**document, "kind": kind}, _SHAPES[kind]) if is_read else None

    for document in decode_items(items, decoder_of, decode_one):
        if not (isinstance(document, _SHAPES_OF_LOOKALIKES) and is_foreign_api_group(document.api_version)):
            yield document


def _list_kind(fields: Mapping[str, object]) -> str:
    return str(fields.get("kind", "List"))


def _kind(document: Mapping[str, Any], list_kind: str) -> str:
    """Return an item's kind; in a list of one kind the items need not say it."""
    kind = document.get("kind") or list_kind.removesuffix("List")
    if not isinstance(kind, str) or not kind:
        raise BadInputError(f"{format_document_label(document)}: has no kind; {_HOW}")
    return kind


def _label(document: object_json.AnyObject | None) -> str:
    if document is None:
        return ""
    metadata = document.metadata
    return format_object_label(str(document.__struct_config__.tag), metadata.namespace, metadata.name)


# Files of the kinds of nodes that may be ordered, with their prices.

API_VERSION, KIND = "cruise.io/v1", "NodeTypes"
# Of many nodes whole parts of prices are added up, in 64 bits.
_MOST = 1e6


class _Type(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    allocatable: QuantityMap
    price: float
    limit: int | None = None
    labels: dict[str, str] = {}
    taints: tuple[NodeTaint, ...] = ()


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    api_version: str
    kind: str
    items: list[_Type]


_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_Document)


def read_node_types(text: bytes, name: str) -> tuple[NodeType, ...]:
    """Read a document called `name`. Raises BadInputError, one line that names file, place and fix."""
    document = decode_struct(_DECODER, text, name)
    if (document.api_version, document.kind) != (API_VERSION, KIND):
        raise BadInputError(
            to_single_line(
                f'{name}: is no list of node types; begin it with {{"apiVersion":"{API_VERSION}","kind":"{KIND}"'
            )
        )
    found: dict[str, NodeType] = {}
    for number, item in enumerate(document.items):
        place = f"{name}: items[{number}]"
        if item.name in found:
            raise BadInputError(to_single_line(f"{place}.name: {item.name} is there twice; name each type once"))
        found[item.name] = _type(item, place)
    if not found:
        raise BadInputError(to_single_line(f"{name}: items is empty; name at least one type"))
    return tuple(found.values())


def _type(item: _Type, place: str) -> NodeType:
    if not (math.isfinite(item.price) and item.price > 0):
        raise BadInputError(f"{place}.price: {item.price:g} is no price; write a number above 0")
    if item.price > _MOST:
        raise BadInputError(
            f"{place}.price: {item.price:g} is too much; state all prices in a larger unit, up to {_MOST:g}"
        )
    if item.limit is not None and item.limit < 0:
        raise BadInputError(f"{place}.limit: {item.limit} is negative; write how many more there may be")
    where = f"{place}.allocatable"
    for resource in ResourceName:
        stated = item.allocatable.get(resource)
        if stated is None:
            raise BadInputError(f"{where}.{resource}: is missing; write what pods have of such a node")
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

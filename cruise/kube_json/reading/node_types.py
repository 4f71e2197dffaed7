"""Files of the kinds of nodes that may be ordered, with their prices."""

import math
from typing import Any

import msgspec

from cruise.domain.annotations import INSTANCE_TYPE
from cruise.domain.cluster import Node
from cruise.domain.machine_sizes import read_size
from cruise.domain.packing import NodeType
from cruise.domain.resources import ResourceName
from cruise.errors import BadInput
from cruise.kube_json.objects.placement import read_taints
from cruise.kube_json.objects.quantity import read_amounts, read_extended, read_memory
from cruise.kube_json.refusals import decoded, one_line
from cruise.kube_json.wire.object_json import NodeTaint
from cruise.kube_json.wire.pod_json import QuantityMap

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
    """Read a document called `name`. Raises BadInput, one line that names file, place and fix."""
    document = decoded(_DECODER, text, name)
    if (document.api_version, document.kind) != (API_VERSION, KIND):
        raise BadInput(
            one_line(f'{name}: is no list of node types; begin it with {{"apiVersion":"{API_VERSION}","kind":"{KIND}"')
        )
    found: dict[str, NodeType] = {}
    for number, item in enumerate(document.items):
        place = f"{name}: items[{number}]"
        if item.name in found:
            raise BadInput(one_line(f"{place}.name: {item.name} is there twice; name each type once"))
        found[item.name] = _type(item, place)
    if not found:
        raise BadInput(one_line(f"{name}: items is empty; name at least one type"))
    return tuple(found.values())


def _type(item: _Type, place: str) -> NodeType:
    if not (math.isfinite(item.price) and item.price > 0):
        raise BadInput(f"{place}.price: {item.price:g} is no price; write a number above 0")
    if item.price > _MOST:
        raise BadInput(f"{place}.price: {item.price:g} is too much; state all prices in a larger unit, up to {_MOST:g}")
    if item.limit is not None and item.limit < 0:
        raise BadInput(f"{place}.limit: {item.limit} is negative; write how many more there may be")
    where = f"{place}.allocatable"
    for resource in ResourceName:
        stated = item.allocatable.get(resource)
        if stated is None:
            raise BadInput(f"{where}.{resource}: is missing; write what pods have of such a node")
        try:
            read_size(resource, str(stated))
        except ValueError as error:
            raise BadInput(f"{where}.{resource}: {error}") from error
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

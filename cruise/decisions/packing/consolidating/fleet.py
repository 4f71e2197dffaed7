"""A cluster with the nodes that could be ordered for it, and what each node costs."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from cruise.decisions.guidance.daemons import belongs_to_node
from cruise.domain.annotations import HOSTNAME, INSTANCE_TYPE
from cruise.domain.cluster import Node, Pod, Snapshot
from cruise.domain.packing import NodeType
from cruise.domain.requests import counted_requests
from cruise.domain.resources import Resources
from cruise.domain.scheduling import lasting_taints
from cruise.errors import BadInput

# Prices are whole numbers to the packer: of this part of the unit that types state them in.
_PRICE_PARTS = 1_000_000
# Of one type no more nodes than that are looked at, and this much more than what sums of requests need.
_MOST_NEW, _MORE, _SOME = 200, 1.5, 4
_NO_DAEMONS = Resources(0, 0), 0


@dataclass(frozen=True, slots=True)
class Fleet:
    """A snapshot with `types[node]` new nodes in it, and the price of every node in it, in whole parts.

    `priced` tells whether prices are stated; else every node costs 1.
    """

    snapshot: Snapshot
    prices: Mapping[str, int]
    types: Mapping[str, str]
    priced: bool

    def price(self, parts: int) -> float | None:
        """Return a price in the unit of the types; None where none is stated."""
        return parts / _PRICE_PARTS if self.priced else None


def with_new_nodes(snapshot: Snapshot, types: Sequence[NodeType] | None) -> Fleet:
    """Add the nodes that could be ordered: of the stated types, else of those that there are, where pods wait.

    A node that there is costs what its type does, by its label node.kubernetes.io/instance-type. Raises BadInput for
    one of no stated type.
    """
    waiting = [pod for pod in snapshot.pods if pod.node is None and not pod.terminal and not pod.terminating]
    if types is None:
        prices = {node.name: 1 for node in snapshot.nodes}
        offered = _types_of(snapshot) if waiting else ()
    else:
        of_type = {one.name: one for one in types}
        prices = {node.name: _parts(_type_of(node, of_type)) for node in snapshot.nodes}
        offered = tuple(types)
    concerned = waiting if types is None else [pod for pod in snapshot.pods if not pod.terminal]
    names = {node.name for node in snapshot.nodes}
    added: list[Node] = []
    kinds: dict[str, str] = {}
    daemons = _daemons(snapshot)
    for one in offered:
        taken, count = daemons.get(one.template.labels.get(INSTANCE_TYPE, one.name)) or daemons.get("", _NO_DAEMONS)
        empty = replace(
            one.template,
            allocatable=_without(one.template.allocatable, taken),
            allocatable_pods=max(one.template.allocatable_pods - count, 0),
        )
        for node in _new_nodes(replace(one, template=empty), concerned, names):
            added.append(node)
            kinds[node.name] = one.name
            prices[node.name] = 1 if types is None else _parts(one)
    nodes = tuple(sorted((*snapshot.nodes, *added), key=lambda node: node.name))
    return Fleet(replace(snapshot, nodes=nodes), prices, kinds, types is not None)


def _type_of(node: Node, types: Mapping[str, NodeType]) -> NodeType:
    name = node.labels.get(INSTANCE_TYPE)
    if name is None:
        raise BadInput(f"Node {node.name} has no label {INSTANCE_TYPE}, so its price is not known; add the label")
    if name not in types:
        raise BadInput(f"Node {node.name} is of instance type {name}, which is not among the node types; add it")
    return types[name]


def _parts(one: NodeType) -> int:
    return max(round(one.price * _PRICE_PARTS), 1)


def _types_of(snapshot: Snapshot) -> tuple[NodeType, ...]:
    """The kinds of nodes that there are: equal but for their names."""
    kinds: dict[tuple[object, ...], Node] = {}
    for node in snapshot.nodes:
        if node.ready and not node.unschedulable:
            own = frozenset(item for item in node.labels.items() if item[0] != HOSTNAME and item[1] != node.name)
            taints = lasting_taints(node.taints)
            kind = (node.allocatable, node.allocatable_pods, tuple(node.allocatable_extended.items()), own, taints)
            kinds.setdefault(kind, node)
    names: dict[str, int] = {}
    found = []
    for node in kinds.values():
        name = node.labels.get(INSTANCE_TYPE) or f"as {node.name}"
        names[name] = names.get(name, 0) + 1
        if names[name] > 1:
            name = f"{name}, as {node.name}"
        labels = {key: value for key, value in node.labels.items() if key != HOSTNAME and value != node.name}
        found.append(NodeType(name, replace(node, labels=labels, taints=tuple(lasting_taints(node.taints)))))
    return tuple(found)


def _daemons(snapshot: Snapshot) -> dict[str, tuple[Resources, int]]:
    """What the pods take that are there for a node's sake, and how many they are, by instance type and in all.

    That is the most on any node; the entry of all is under the empty name.
    """
    on_node: dict[str, tuple[Resources, int]] = {}
    for pod in snapshot.pods:
        if pod.node is not None and not pod.terminal and belongs_to_node(pod):
            taken, count = on_node.get(pod.node, (Resources(0, 0), 0))
            on_node[pod.node] = taken + counted_requests(pod), count + 1
    most: dict[str, tuple[Resources, int]] = {}
    for node in snapshot.nodes:
        taken, count = on_node.get(node.name, (Resources(0, 0), 0))
        for name in {"", node.labels.get(INSTANCE_TYPE, "")}:
            known, number = most.get(name, (Resources(0, 0), 0))
            most[name] = known.at_least(taken), max(number, count)
    return most


def _sum_of(pods: Iterable[Pod]) -> Resources:
    total = Resources(0, 0)
    for pod in pods:
        total += counted_requests(pod)
    return total


def _without(amounts: Resources, taken: Resources) -> Resources:
    return Resources(
        max(amounts.cpu_millicores - taken.cpu_millicores, 0), max(amounts.memory_bytes - taken.memory_bytes, 0)
    )


def _new_nodes(one: NodeType, pods: Sequence[Pod], names: set[str]) -> Iterable[Node]:
    """Yield as many nodes of a type as some pods could need."""
    wanted = [pod for pod in pods if not belongs_to_node(pod)]
    total, offered = _sum_of(wanted), one.template.allocatable
    by_sums = max(
        total.cpu_millicores / max(offered.cpu_millicores, 1),
        total.memory_bytes / max(offered.memory_bytes, 1),
        len(wanted) / max(one.template.allocatable_pods, 1),
    )
    most = min(len(wanted), math.ceil(by_sums * _MORE) + _SOME, _MOST_NEW)
    most = most if one.limit is None else min(most, one.limit)
    number = 0
    while most > 0:
        number += 1
        name = f"new-{one.name}-{number}"
        if name in names:
            continue
        most -= 1
        yield replace(one.template, name=name, labels={**one.template.labels, HOSTNAME: name})

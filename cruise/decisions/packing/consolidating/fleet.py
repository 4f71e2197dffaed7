"""A cluster with the nodes that could be ordered for it, and what each node costs."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice

from cruise.decisions.guidance.daemons import belongs_to_node
from cruise.decisions.packing.consolidating.node_pools import PoolTypes, machine_of, pool_types
from cruise.domain.annotations import HOSTNAME, INSTANCE_TYPE, NODE_POOL
from cruise.domain.cluster import Node, Pod, Snapshot
from cruise.domain.packing import Measure, NodeType, Proposal
from cruise.domain.requests import counted_requests
from cruise.domain.resources import NO_RESOURCES, Resources
from cruise.domain.scheduling import lasting_taints
from cruise.errors import BadInput

# Prices are whole numbers to the packer: of this part of the unit that types state them in.
_PRICE_PARTS = 1_000_000
# Clouds ask seven to eight times as much for a core as for a GiB of memory.
_BYTES_LIKE_A_CORE = 8 << 30
# Of one type no more nodes than that are looked at, and this much more than what sums of requests need.
_MOST_NEW, _MORE, _SOME = 200, 1.5, 4
# And no more than that of all types together, as long as each has some.
_MOST_IN_ALL = 3_000
_NO_DAEMONS = NO_RESOURCES, 0


@dataclass(frozen=True, slots=True)
class Fleet:
    """A snapshot with new nodes in it, each of its type in `types`, and the price of every node, in whole parts.

    `measure` is what the prices are: stated ones, sizes, or 1 for every node. `silent` has the NodePools that offer no
    type, and why.
    """

    snapshot: Snapshot
    prices: Mapping[str, int]
    types: Mapping[str, NodeType]
    measure: Measure
    silent: tuple[tuple[str, str], ...] = ()

    def price(self, parts: int) -> float | None:
        """Return a price in the unit of the measure; None where that is the number of nodes."""
        return None if self.measure is Measure.NUMBER else parts / _PRICE_PARTS

    def with_those_added(self, plan: Proposal) -> Snapshot:
        """Return the snapshot with those of the new nodes that the plan puts pods on."""
        used = {arrival.target for arrival in (*plan.placed, *plan.moves)}
        nodes = tuple(node for node in self.snapshot.nodes if node.name not in self.types or node.name in used)
        return replace(self.snapshot, nodes=nodes)


def with_new_nodes(snapshot: Snapshot, types: Sequence[NodeType] | None) -> Fleet:
    """Add the nodes that could be ordered: of the stated types, else where pods wait of those that there are.

    What NodePools order is of those that were seen, with their labels and taints and within their limits. A node that
    there is costs what its type does, by its label node.kubernetes.io/instance-type; without stated types nodes cost
    by size where NodePools may order some, else all the same. Raises BadInput for one of no stated type.
    """
    waiting = [pod for pod in snapshot.pods if pod.node is None and not pod.terminal and not pod.terminating]
    concerned = waiting if types is None else [pod for pod in snapshot.pods if not pod.terminal]
    pools = pool_types(snapshot, concerned) if concerned else PoolTypes((), ())
    if types is None:
        measure = Measure.SIZE if pools.types else Measure.NUMBER
        prices = {node.name: _of_size(node) if pools.types else 1 for node in snapshot.nodes}
        offered = (*pools.types, *_types_of(snapshot)) if waiting else ()
    else:
        of_type, measure = {one.name: one for one in types}, Measure.PRICE
        prices = {node.name: _parts(_type_of(node, of_type)) for node in snapshot.nodes}
        offered = _priced(pools.types, of_type)
    names = {node.name for node in snapshot.nodes}
    added: list[Node] = []
    kinds: dict[str, NodeType] = {}
    daemons = _daemons(snapshot)
    most = min(_MOST_NEW, max(_MOST_IN_ALL // max(len(offered), 1), _SOME))
    for one in offered:
        taken, places = daemons.get(one.template.labels.get(INSTANCE_TYPE, one.name)) or daemons.get("", _NO_DAEMONS)
        empty = replace(
            one.template,
            allocatable=(one.template.allocatable - taken).at_least(NO_RESOURCES),
            allocatable_pods=max(one.template.allocatable_pods - places, 0),
        )
        price = {Measure.NUMBER: 1, Measure.SIZE: _of_size(one.template), Measure.PRICE: _parts(one)}[measure]
        for node in _new_nodes(replace(one, template=empty), concerned, names, most):
            added.append(node)
            names.add(node.name)
            kinds[node.name], prices[node.name] = one, price
    nodes = tuple(sorted((*snapshot.nodes, *added), key=lambda node: node.name))
    return Fleet(replace(snapshot, nodes=nodes), prices, kinds, measure, pools.silent)


def _priced(offered: Sequence[NodeType], stated: Mapping[str, NodeType]) -> tuple[NodeType, ...]:
    """Return the types of NodePools at their stated prices, and the stated types that no NodePool orders."""
    found = []
    for one in offered:
        if one.name in stated:
            most = [limit for limit in (one.limit, stated[one.name].limit) if limit is not None]
            found.append(replace(one, price=stated[one.name].price, limit=min(most, default=None)))
    of_pools = {one.name for one in found}
    return (*found, *(one for one in stated.values() if one.name not in of_pools))


def _of_size(node: Node) -> int:
    """Return a price by size: of a core, or of as much memory as clouds sell at the price of a core."""
    machine = machine_of(node)
    cores = machine["cpu"] / 1000 + machine["memory"] / _BYTES_LIKE_A_CORE
    return max(round(cores * _PRICE_PARTS), 1)


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
    """The kinds of nodes that there are: equal but for their names, and of none of the NodePools."""
    kinds: dict[tuple[object, ...], Node] = {}
    for node in snapshot.nodes:
        if node.takes_pods and not node.unschedulable and not (snapshot.node_pools and NODE_POOL in node.labels):
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
            taken, places = on_node.get(pod.node, (NO_RESOURCES, 0))
            on_node[pod.node] = taken + counted_requests(pod), places + 1
    most: dict[str, tuple[Resources, int]] = {}
    for node in snapshot.nodes:
        taken, places = on_node.get(node.name, (NO_RESOURCES, 0))
        for name in {"", node.labels.get(INSTANCE_TYPE, "")}:
            known, number = most.get(name, (NO_RESOURCES, 0))
            most[name] = known.at_least(taken), max(number, places)
    return most


def _new_nodes(one: NodeType, pods: Sequence[Pod], names: set[str], most: int) -> Iterator[Node]:
    """Yield as many nodes of a type as some pods could need, `most` at most."""
    wanted = [pod for pod in pods if not belongs_to_node(pod)]
    total, offered = sum(map(counted_requests, wanted), NO_RESOURCES), one.template.allocatable
    by_sums = max(
        total.cpu_millicores / max(offered.cpu_millicores, 1),
        total.memory_bytes / max(offered.memory_bytes, 1),
        len(wanted) / max(one.template.allocatable_pods, 1),
    )
    most = min(len(wanted), math.ceil(by_sums * _MORE) + _SOME, most)
    most = most if one.limit is None else min(most, one.limit)
    kind = f"{one.pool}-{one.name}" if one.pool else one.name
    fresh = (name for number in count(1) if (name := f"new-{kind}-{number}") not in names)
    for name in islice(fresh, max(most, 0)):
        yield replace(one.template, name=name, labels={**one.template.labels, HOSTNAME: name})

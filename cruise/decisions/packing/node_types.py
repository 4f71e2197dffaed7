"""A cluster with the nodes that could be ordered for it, and what each node costs."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice, product

from cruise.decisions.pod_policy.evictability import is_node_bound_pod
from cruise.domain.annotations import HOSTNAME, INSTANCE_TYPE, NODE_POOL, ZONE
from cruise.domain.cluster import ClusterSnapshot, Node, Pod
from cruise.domain.cluster_policies import NodePool
from cruise.domain.packing_plan import NodeCostMeasure, NodeType, PackingProposal
from cruise.domain.pod_resources import count_pod_requests
from cruise.domain.reasons import ReasonDetail
from cruise.domain.resources import NO_RESOURCES, Resources
from cruise.domain.scheduling import (
    UNCONSTRAINED,
    UNCONSTRAINED_SCHEDULING,
    LabelRequirement,
    SelectorOperator,
    get_permanent_taints,
)
from cruise.errors import BadInputError

# Node types from Karpenter's NodePools: of machines that were seen, as many as limits leave room for.

# Where and how a machine is bought: one of a type that was seen elsewhere is the same machine.
_CAPACITY_TYPE = "karpenter.sh/capacity-type"
_BOUGHT_BY = ZONE, _CAPACITY_TYPE


@dataclass(frozen=True, slots=True)
class NodePoolTypes:
    """The types that NodePools may order, and the detail for which each of the `silent` ones has none."""

    types: tuple[NodeType, ...]
    pools_without_types: tuple[tuple[str, str], ...]


def list_node_pool_types(snapshot: ClusterSnapshot, waiting: Sequence[Pod]) -> NodePoolTypes:
    """Return a type for each NodePool and each instance type that was seen with its settings and meets what it asks.

    A NodePool does not say how large machines are: nodes and NodeClaims do. Where no waiting pod could tell one zone
    from another, a type is offered in one of them.
    """
    seen = _machines(snapshot)
    classes = {pool.name: pool.node_class or pool.name for pool in snapshot.node_pools}
    placed = any(pod.placement is not UNCONSTRAINED_SCHEDULING or pod.constraints != UNCONSTRAINED for pod in waiting)
    types: list[NodeType] = []
    silent: list[tuple[str, str]] = []
    for pool in sorted(snapshot.node_pools, key=lambda one: (-one.weight, one.name)):
        if pool.unusable_reason:
            silent.append((pool.name, pool.unusable_reason))
            continue
        alike = [node for node in seen if classes.get(node.labels[NODE_POOL]) == classes[pool.name]]
        found = list(_list_types_of_pool(pool, alike, snapshot.nodes, placed))
        if not found:
            silent.append((pool.name, ReasonDetail.INSTANCE_TYPE_UNKNOWN.value))
        elif all(one.limit == 0 for one in found):
            silent.append((pool.name, ReasonDetail.POOL_LIMITS_USED.value))
        types += [one for one in found if one.limit != 0]
    return NodePoolTypes(tuple(types), tuple(silent))


def get_node_capacity(node: Node) -> Mapping[str, int]:
    """Return what a node counts against the limits of its NodePool: its capacity, not what pods have of it."""
    cpu, memory = node.cpu_capacity_millicores, node.memory_capacity_bytes
    return {
        **node.allocatable_extended,
        "pods": node.allocatable_pods,
        "cpu": node.allocatable.cpu_millicores if cpu is None else cpu,
        "memory": node.allocatable.memory_bytes if memory is None else memory,
        "nodes": 1,
    }


def compute_remaining_limits(pool: NodePool, nodes: Iterable[Node]) -> dict[str, int]:
    """Return what is left of each limit beside what Karpenter counts as used, or beside its nodes if that is more."""
    there: dict[str, int] = {}
    for node in nodes:
        if node.labels.get(NODE_POOL) == pool.name:
            for name, amount in get_node_capacity(node).items():
                there[name] = there.get(name, 0) + amount
    used = {name: max(there.get(name, 0), pool.used.get(name, 0)) for name in pool.limits}
    return {name: max(limit - used[name], 0) for name, limit in pool.limits.items()}


def _machines(snapshot: ClusterSnapshot) -> list[Node]:
    """Return the nodes of Karpenter's, then what it has ordered; what reports no size says nothing."""
    return [
        node
        for node in (*snapshot.nodes, *snapshot.removed_nodes, *snapshot.node_claims)
        if NODE_POOL in node.labels and INSTANCE_TYPE in node.labels and node.allocatable.cpu_millicores
    ]


def _list_types_of_pool(
    pool: NodePool, alike: Sequence[Node], nodes: Sequence[Node], placed: bool
) -> Iterator[NodeType]:
    left = compute_remaining_limits(pool, nodes)
    own = [node for node in alike if node.labels[NODE_POOL] == pool.name]
    by_type: dict[str, Node] = {}
    for node in (*own, *alike):
        by_type.setdefault(node.labels[INSTANCE_TYPE], node)
    for instance, node in sorted(by_type.items()):
        machine = get_node_capacity(node)
        limit = min((room // machine[name] for name, room in left.items() if machine.get(name)), default=None)
        for labels in _labels(pool, node, own or alike, placed):
            template = replace(node, labels=labels, taints=pool.taints, unschedulable=False, ready=True)
            yield NodeType(instance, template, limit=limit, pool=pool.name)


def _labels(pool: NodePool, node: Node, own: Sequence[Node], placed: bool) -> Iterator[Mapping[str, str]]:
    """Yield what a machine like a node could be labelled in a NodePool, for each way in which it could be bought."""
    kept = {name: text for name, text in node.labels.items() if name != HOSTNAME and text != node.name}
    kept |= pool.labels
    choices = [_choices(name, kept.get(name, ""), pool, own) for name in _BOUGHT_BY]
    offered = 0
    for chosen in product(*choices):
        labels = dict(kept)
        for name, text in zip(_BOUGHT_BY, chosen, strict=True):
            if text and text != kept.get(name):
                # Providers have labels of their own for the same place.
                labels = {one: text if value == kept.get(name) else value for one, value in labels.items()}
                labels[name] = text
        labels |= {one.key: one.values[0] for one in pool.requirements if _states(one, labels)}
        if all(one.is_met_by(labels) for one in pool.requirements) and (placed or not offered):
            offered += 1
            yield labels


def _choices(name: str, there: str, pool: NodePool, own: Sequence[Node]) -> list[str]:
    """Return the values of a label that a NodePool may choose, the one that is there first."""
    stated = [one.values for one in pool.requirements if one.key == name and one.operator is SelectorOperator.IN]
    seen = {text for node in own if (text := node.labels.get(name))}
    found = sorted(set(stated[0]) if stated else seen)
    return [there, *(text for text in found if text != there)]


def _states(requirement: LabelRequirement, labels: Mapping[str, str]) -> bool:
    """Tell whether Karpenter gives a node a label for a requirement: one that machines do not have by themselves."""
    domain = requirement.key.partition("/")[0]
    of_machines = "/" in requirement.key and (domain.endswith("kubernetes.io") or "karpenter" in domain)
    return requirement.operator is SelectorOperator.IN and requirement.key not in labels and not of_machines


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
class NodeFleet:
    """A snapshot with new nodes in it, each of its type in `types`, and the price of every node, in whole parts.

    `measure` is what the prices are: stated ones, sizes, or 1 for every node. `silent` has the NodePools that offer no
    type, and why.
    """

    snapshot: ClusterSnapshot
    prices: Mapping[str, int]
    types: Mapping[str, NodeType]
    measure: NodeCostMeasure
    pools_without_types: tuple[tuple[str, str], ...] = ()

    def get_price(self, parts: int) -> float | None:
        """Return a price in the unit of the measure; None where that is the number of nodes."""
        return None if self.measure is NodeCostMeasure.NUMBER else parts / _PRICE_PARTS

    def with_added_nodes(self, plan: PackingProposal) -> ClusterSnapshot:
        """Return the snapshot with those of the new nodes that the plan puts pods on."""
        used = {arrival.target for arrival in (*plan.placed, *plan.moves)}
        nodes = tuple(node for node in self.snapshot.nodes if node.name not in self.types or node.name in used)
        return replace(self.snapshot, nodes=nodes)


def add_candidate_nodes(snapshot: ClusterSnapshot, types: Sequence[NodeType] | None) -> NodeFleet:
    """Add the nodes that could be ordered: of the stated types, else where pods wait of those that there are.

    What NodePools order is of those that were seen, with their labels and taints and within their limits. A node that
    there is costs what its type does, by its label node.kubernetes.io/instance-type; without stated types nodes cost
    by size where NodePools may order some, else all the same. Raises BadInputError for one of no stated type.
    """
    waiting = [pod for pod in snapshot.pods if pod.node is None and not pod.is_finished and not pod.terminating]
    concerned = waiting if types is None else [pod for pod in snapshot.pods if not pod.is_finished]
    pools = list_node_pool_types(snapshot, concerned) if concerned else NodePoolTypes((), ())
    if types is None:
        measure = NodeCostMeasure.SIZE if pools.types else NodeCostMeasure.NUMBER
        prices = {node.name: _of_size(node) if pools.types else 1 for node in snapshot.nodes}
        offered = (*pools.types, *_list_types(snapshot)) if waiting else ()
    else:
        of_type, measure = {one.name: one for one in types}, NodeCostMeasure.PRICE
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
        price = {
            NodeCostMeasure.NUMBER: 1,
            NodeCostMeasure.SIZE: _of_size(one.template),
            NodeCostMeasure.PRICE: _parts(one),
        }[measure]
        for node in _new_nodes(replace(one, template=empty), concerned, names, most):
            added.append(node)
            names.add(node.name)
            kinds[node.name], prices[node.name] = one, price
    nodes = tuple(sorted((*snapshot.nodes, *added), key=lambda node: node.name))
    return NodeFleet(replace(snapshot, nodes=nodes), prices, kinds, measure, pools.pools_without_types)


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
    machine = get_node_capacity(node)
    cores = machine["cpu"] / 1000 + machine["memory"] / _BYTES_LIKE_A_CORE
    return max(round(cores * _PRICE_PARTS), 1)


def _type_of(node: Node, types: Mapping[str, NodeType]) -> NodeType:
    name = node.labels.get(INSTANCE_TYPE)
    if name is None:
        raise BadInputError(f"Node {node.name} has no label {INSTANCE_TYPE}, so its price is not known; add the label")
    if name not in types:
        raise BadInputError(f"Node {node.name} is of instance type {name}, which is not among the node types; add it")
    return types[name]


def _parts(one: NodeType) -> int:
    return max(round(one.price * _PRICE_PARTS), 1)


def _list_types(snapshot: ClusterSnapshot) -> tuple[NodeType, ...]:
    """The kinds of nodes that there are: equal but for their names, and of none of the NodePools."""
    kinds: dict[tuple[object, ...], Node] = {}
    for node in snapshot.nodes:
        if node.takes_pods and not node.unschedulable and not (snapshot.node_pools and NODE_POOL in node.labels):
            own = frozenset(item for item in node.labels.items() if item[0] != HOSTNAME and item[1] != node.name)
            taints = get_permanent_taints(node.taints)
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
        found.append(NodeType(name, replace(node, labels=labels, taints=tuple(get_permanent_taints(node.taints)))))
    return tuple(found)


def _daemons(snapshot: ClusterSnapshot) -> dict[str, tuple[Resources, int]]:
    """What the pods take that are there for a node's sake, and how many they are, by instance type and in all.

    That is the most on any node; the entry of all is under the empty name.
    """
    on_node: dict[str, tuple[Resources, int]] = {}
    for pod in snapshot.pods:
        if pod.node is not None and not pod.is_finished and is_node_bound_pod(pod):
            taken, places = on_node.get(pod.node, (NO_RESOURCES, 0))
            on_node[pod.node] = taken + count_pod_requests(pod), places + 1
    most: dict[str, tuple[Resources, int]] = {}
    for node in snapshot.nodes:
        taken, places = on_node.get(node.name, (NO_RESOURCES, 0))
        for name in {"", node.labels.get(INSTANCE_TYPE, "")}:
            known, number = most.get(name, (NO_RESOURCES, 0))
            most[name] = known.at_least(taken), max(number, places)
    return most


def _new_nodes(one: NodeType, pods: Sequence[Pod], names: set[str], most: int) -> Iterator[Node]:
    """Yield as many nodes of a type as some pods could need, `most` at most."""
    wanted = [pod for pod in pods if not is_node_bound_pod(pod)]
    total, offered = sum(map(count_pod_requests, wanted), NO_RESOURCES), one.template.allocatable
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


# What NodePools' limits make of a plan: each type of one keeps within them by itself, all types together may not.


def limit_new_nodes_to_pools(fleet: NodeFleet, used: Sequence[str]) -> NodeFleet | None:
    """Return the fleet with no more new nodes than limits allow together; None where the used ones keep within them.

    `used` are the new nodes of a plan, those that matter most first: these stay as far as there is room.
    """
    if len(_kept(fleet, used)) == len(used):
        return None
    kept = _kept(fleet, [*used, *sorted(fleet.types.keys() - set(used))])
    nodes = tuple(node for node in fleet.snapshot.nodes if node.name not in fleet.types or node.name in kept)
    return replace(fleet, snapshot=replace(fleet.snapshot, nodes=nodes))


def _kept(fleet: NodeFleet, names: Sequence[str]) -> set[str]:
    """Return as many of some new nodes as keep within their NodePools' limits, those in front first."""
    there = [node for node in fleet.snapshot.nodes if node.name not in fleet.types]
    left = {pool.name: compute_remaining_limits(pool, there) for pool in fleet.snapshot.node_pools}
    kept = set()
    for name in names:
        one = fleet.types[name]
        machine, room = get_node_capacity(one.template), left.get(one.pool, {})
        if all(amount >= machine.get(resource, 0) for resource, amount in room.items()):
            left[one.pool] = {resource: amount - machine.get(resource, 0) for resource, amount in room.items()}
            kept.add(name)
    return kept

"""Adds the nodes that could be ordered to a cluster, with the price of every node."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice, product

from cruise.decisions.pod_policy.evictability import is_node_bound_pod
from cruise.domain.annotations import CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, NODE_POOL, ZONE
from cruise.domain.autoscalers import NodePool
from cruise.domain.cluster import ClusterSnapshot, Node, Pod
from cruise.domain.packing_plan import NodeCostMeasure, NodeType, PackingProposal
from cruise.domain.pod_resources import count_pod_requests
from cruise.domain.reasons import ReasonDetailCode
from cruise.domain.resources import NO_RESOURCES, Resources
from cruise.domain.scheduling import (
    UNCONSTRAINED,
    UNCONSTRAINED_SCHEDULING,
    LabelRequirement,
    SelectorOperator,
    get_permanent_taints,
)
from cruise.errors import BadInputError

# Labels of the zone and purchase option; otherwise machines of an instance type are equal.
_PURCHASE_LABELS = ZONE, CAPACITY_TYPE


@dataclass(frozen=True, slots=True)
class NodePoolTypes:
    """The types that NodePools may order, and why each of `pools_without_types` has none."""

    types: tuple[NodeType, ...]
    pools_without_types: tuple[tuple[str, str], ...]


def list_node_pool_types(snapshot: ClusterSnapshot, pending: Sequence[Pod]) -> NodePoolTypes:
    """Return the known instance types that meet the requirements of each NodePool.

    A NodePool does not say how large machines are, so the sizes come from nodes and NodeClaims. If no pending pod
    distinguishes zones, a type is offered in one zone.
    """
    machines = _list_machines(snapshot)
    classes = {pool.name: pool.node_class or pool.name for pool in snapshot.node_pools}
    has_constraints = any(
        pod.placement is not UNCONSTRAINED_SCHEDULING or pod.constraints != UNCONSTRAINED for pod in pending
    )
    types: list[NodeType] = []
    without_types: list[tuple[str, str]] = []
    for pool in sorted(snapshot.node_pools, key=lambda pool_type: (-pool_type.weight, pool_type.name)):
        if pool.unusable_reason:
            without_types.append((pool.name, pool.unusable_reason))
            continue
        alike = [node for node in machines if classes.get(node.labels[NODE_POOL]) == classes[pool.name]]
        pool_types = list(_list_types_of_pool(pool, alike, snapshot.nodes, has_constraints))
        if not pool_types:
            without_types.append((pool.name, ReasonDetailCode.INSTANCE_TYPE_UNKNOWN.value))
        elif all(pool_type.limit == 0 for pool_type in pool_types):
            without_types.append((pool.name, ReasonDetailCode.POOL_LIMITS_USED.value))
        types += [pool_type for pool_type in pool_types if pool_type.limit != 0]
    return NodePoolTypes(tuple(types), tuple(without_types))


def get_node_capacity(node: Node) -> Mapping[str, int]:
    """Return what a node counts toward the limits of its NodePool: its capacity, not its allocatable."""
    cpu, memory = node.cpu_capacity_millicores, node.memory_capacity_bytes
    return {
        **node.allocatable_extended,
        "pods": node.allocatable_pods,
        "cpu": node.allocatable.cpu_millicores if cpu is None else cpu,
        "memory": node.allocatable.memory_bytes if memory is None else memory,
        "nodes": 1,
    }


def compute_remaining_limits(pool: NodePool, nodes: Iterable[Node]) -> dict[str, int]:
    """Return what is left of a NodePool's limits: minus what Karpenter reports as used, or its nodes' sum if larger."""
    on_nodes: dict[str, int] = {}
    for node in nodes:
        if node.labels.get(NODE_POOL) == pool.name:
            for name, amount in get_node_capacity(node).items():
                on_nodes[name] = on_nodes.get(name, 0) + amount
    used = {name: max(on_nodes.get(name, 0), pool.used.get(name, 0)) for name in pool.limits}
    return {name: max(limit - used[name], 0) for name, limit in pool.limits.items()}


def _list_machines(snapshot: ClusterSnapshot) -> list[Node]:
    """Return Karpenter's nodes and NodeClaims that report a size."""
    return [
        node
        for node in (*snapshot.nodes, *snapshot.removed_nodes, *snapshot.node_claims)
        if NODE_POOL in node.labels and INSTANCE_TYPE in node.labels and node.allocatable.cpu_millicores
    ]


def _list_types_of_pool(
    pool: NodePool, alike: Sequence[Node], nodes: Sequence[Node], has_constraints: bool
) -> Iterator[NodeType]:
    remaining = compute_remaining_limits(pool, nodes)
    own = [node for node in alike if node.labels[NODE_POOL] == pool.name]
    by_type: dict[str, Node] = {}
    for node in (*own, *alike):
        by_type.setdefault(node.labels[INSTANCE_TYPE], node)
    for instance, node in sorted(by_type.items()):
        machine = get_node_capacity(node)
        limit = min((amount // machine[name] for name, amount in remaining.items() if machine.get(name)), default=None)
        for labels in _list_label_sets(pool, node, own or alike, has_constraints):
            template = replace(node, labels=labels, taints=pool.taints, unschedulable=False, ready=True)
            yield NodeType(instance, template, limit=limit, pool=pool.name)


def _list_label_sets(
    pool: NodePool, node: Node, own: Sequence[Node], has_constraints: bool
) -> Iterator[Mapping[str, str]]:
    """Yield the labels that a machine like a node may have in a NodePool, for each way to buy it."""
    base_labels = {name: value for name, value in node.labels.items() if name != HOSTNAME and value != node.name}
    base_labels |= pool.labels
    value_choices = [_list_label_values(name, base_labels.get(name, ""), pool, own) for name in _PURCHASE_LABELS]
    offered_count = 0
    for values in product(*value_choices):
        labels = dict(base_labels)
        for name, value in zip(_PURCHASE_LABELS, values, strict=True):
            if value and value != base_labels.get(name):
                # Providers set their own labels to the same zone.
                labels = {one: value if text == base_labels.get(name) else text for one, text in labels.items()}
                labels[name] = value
        labels |= {
            requirement.key: requirement.values[0]
            for requirement in pool.requirements
            if _is_set_by_karpenter(requirement, labels)
        }
        if all(requirement.is_met_by(labels) for requirement in pool.requirements) and (
            has_constraints or not offered_count
        ):
            offered_count += 1
            yield labels


def _list_label_values(name: str, current: str, pool: NodePool, own: Sequence[Node]) -> list[str]:
    """Return the values of a label that a NodePool may choose, the current one first."""
    allowed = [one.values for one in pool.requirements if one.key == name and one.operator is SelectorOperator.IN]
    seen = {value for node in own if (value := node.labels.get(name))}
    values = sorted(set(allowed[0]) if allowed else seen)
    return [current, *(value for value in values if value != current)]


def _is_set_by_karpenter(requirement: LabelRequirement, labels: Mapping[str, str]) -> bool:
    """Return whether Karpenter labels a node for a requirement: one that machines do not have themselves."""
    domain = requirement.key.partition("/")[0]
    is_machine_label = "/" in requirement.key and (domain.endswith("kubernetes.io") or "karpenter" in domain)
    return requirement.operator is SelectorOperator.IN and requirement.key not in labels and not is_machine_label


# The packer counts prices in whole millionths of the unit in which types state them.
_PRICE_UNITS = 1_000_000
# Clouds charge about as much for a core as for 8 GiB of memory.
_BYTES_PER_CORE_PRICE = 8 << 30
# New nodes of one type: at most _MAX_NEW, and at most _MORE times what the sums of requests need, plus _SOME.
_MAX_NEW, _MORE, _SOME = 200, 1.5, 4
# New nodes of all types together, as long as each type has _SOME.
_MAX_NEW_OF_ALL_TYPES = 3_000
_NO_NODE_BOUND_PODS = NO_RESOURCES, 0


@dataclass(frozen=True, slots=True)
class CandidateNodes:
    """A snapshot with candidate nodes, the type of each in `types`, and the price of every node in whole units.

    `measure`: prices are stated, by size, or 1 for each node. `pools_without_types` has the NodePools that
    offer no type, and why.
    """

    snapshot: ClusterSnapshot
    prices: Mapping[str, int]
    types: Mapping[str, NodeType]
    measure: NodeCostMeasure
    pools_without_types: tuple[tuple[str, str], ...] = ()

    def get_price(self, units: int) -> float | None:
        """Return a price in the unit of the measure; None if that is the number of nodes."""
        return None if self.measure is NodeCostMeasure.NUMBER else units / _PRICE_UNITS

    def with_added_nodes(self, plan: PackingProposal) -> ClusterSnapshot:
        """Return the snapshot with only those candidate nodes on which the plan places pods."""
        used = {arrival.target for arrival in (*plan.placed, *plan.moves)}
        nodes = tuple(node for node in self.snapshot.nodes if node.name not in self.types or node.name in used)
        return replace(self.snapshot, nodes=nodes)


def add_candidate_nodes(snapshot: ClusterSnapshot, types: Sequence[NodeType] | None) -> CandidateNodes:
    """Add the nodes that could be ordered: of the stated types, or like existing nodes if pods are pending.

    NodePools order known instance types with their labels and taints, within their limits. An existing node costs what
    its type costs, by its label node.kubernetes.io/instance-type. Without stated types, nodes cost by size if NodePools
    may order some, and equally otherwise. Raises BadInputError for a node of no stated type.
    """
    pending = [pod for pod in snapshot.pods if pod.node is None and not pod.is_finished and not pod.terminating]
    pods = pending if types is None else [pod for pod in snapshot.pods if not pod.is_finished]
    pools = list_node_pool_types(snapshot, pods) if pods else NodePoolTypes((), ())
    if types is None:
        measure = NodeCostMeasure.SIZE if pools.types else NodeCostMeasure.NUMBER
        prices = {node.name: _compute_size_price(node) if pools.types else 1 for node in snapshot.nodes}
        offered_types = (*pools.types, *_list_types(snapshot)) if pending else ()
    else:
        types_by_name, measure = {node_type.name: node_type for node_type in types}, NodeCostMeasure.PRICE
        prices = {node.name: _get_price_units(_get_node_type(node, types_by_name)) for node in snapshot.nodes}
        offered_types = _apply_stated_prices(pools.types, types_by_name)
    names = {node.name for node in snapshot.nodes}
    added: list[Node] = []
    types_of_nodes: dict[str, NodeType] = {}
    node_bound_pods = _sum_node_bound_pods(snapshot)
    max_per_type = min(_MAX_NEW, max(_MAX_NEW_OF_ALL_TYPES // max(len(offered_types), 1), _SOME))
    for node_type in offered_types:
        reserved, slots = node_bound_pods.get(
            node_type.template.labels.get(INSTANCE_TYPE, node_type.name)
        ) or node_bound_pods.get("", _NO_NODE_BOUND_PODS)
        empty = replace(
            node_type.template,
            allocatable=(node_type.template.allocatable - reserved).max_with(NO_RESOURCES),
            allocatable_pods=max(node_type.template.allocatable_pods - slots, 0),
        )
        price = {
            NodeCostMeasure.NUMBER: 1,
            NodeCostMeasure.SIZE: _compute_size_price(node_type.template),
            NodeCostMeasure.PRICE: _get_price_units(node_type),
        }[measure]
        for node in _create_nodes(replace(node_type, template=empty), pods, names, max_per_type):
            added.append(node)
            names.add(node.name)
            types_of_nodes[node.name], prices[node.name] = node_type, price
    nodes = tuple(sorted((*snapshot.nodes, *added), key=lambda node: node.name))
    return CandidateNodes(replace(snapshot, nodes=nodes), prices, types_of_nodes, measure, pools.pools_without_types)


def _apply_stated_prices(offered: Sequence[NodeType], stated: Mapping[str, NodeType]) -> tuple[NodeType, ...]:
    """Return the types of NodePools at their stated prices, and the stated types of no NodePool."""
    priced = []
    for node_type in offered:
        if node_type.name in stated:
            limits = [limit for limit in (node_type.limit, stated[node_type.name].limit) if limit is not None]
            priced.append(replace(node_type, price=stated[node_type.name].price, limit=min(limits, default=None)))
    names = {node_type.name for node_type in priced}
    return (*priced, *(node_type for node_type in stated.values() if node_type.name not in names))


def _compute_size_price(node: Node) -> int:
    """Return a price by size: 1 for each core, and 1 for the memory that clouds sell at that price."""
    machine = get_node_capacity(node)
    cores = machine["cpu"] / 1000 + machine["memory"] / _BYTES_PER_CORE_PRICE
    return max(round(cores * _PRICE_UNITS), 1)


def _get_node_type(node: Node, types: Mapping[str, NodeType]) -> NodeType:
    name = node.labels.get(INSTANCE_TYPE)
    if name is None:
        raise BadInputError(f"Node {node.name} has no label {INSTANCE_TYPE}, so its price is not known; add the label")
    if name not in types:
        raise BadInputError(f"Node {node.name} is of instance type {name}, which is not among the node types; add it")
    return types[name]


def _get_price_units(one: NodeType) -> int:
    return max(round(one.price * _PRICE_UNITS), 1)


def _list_types(snapshot: ClusterSnapshot) -> tuple[NodeType, ...]:
    """Return the distinct types of existing nodes that belong to no NodePool."""
    distinct: dict[tuple[object, ...], Node] = {}
    for node in snapshot.nodes:
        if node.accepts_pods and not node.unschedulable and not (snapshot.node_pools and NODE_POOL in node.labels):
            labels_of_type = frozenset(
                item for item in node.labels.items() if item[0] != HOSTNAME and item[1] != node.name
            )
            taints = get_permanent_taints(node.taints)
            key = (
                node.allocatable,
                node.allocatable_pods,
                tuple(node.allocatable_extended.items()),
                labels_of_type,
                taints,
            )
            distinct.setdefault(key, node)
    names: dict[str, int] = {}
    types = []
    for node in distinct.values():
        name = node.labels.get(INSTANCE_TYPE) or f"like {node.name}"
        names[name] = names.get(name, 0) + 1
        if names[name] > 1:
            name = f"{name}, like {node.name}"
        labels = {key: value for key, value in node.labels.items() if key != HOSTNAME and value != node.name}
        types.append(NodeType(name, replace(node, labels=labels, taints=tuple(get_permanent_taints(node.taints)))))
    return tuple(types)


def _sum_node_bound_pods(snapshot: ClusterSnapshot) -> dict[str, tuple[Resources, int]]:
    """Return the largest requests and number of node-bound pods on a node, by instance type; "" for any type."""
    on_node: dict[str, tuple[Resources, int]] = {}
    for pod in snapshot.pods:
        if pod.node is not None and not pod.is_finished and is_node_bound_pod(pod):
            requests, count = on_node.get(pod.node, (NO_RESOURCES, 0))
            on_node[pod.node] = requests + count_pod_requests(pod), count + 1
    largest: dict[str, tuple[Resources, int]] = {}
    for node in snapshot.nodes:
        requests, count = on_node.get(node.name, (NO_RESOURCES, 0))
        for name in {"", node.labels.get(INSTANCE_TYPE, "")}:
            max_requests, max_count = largest.get(name, (NO_RESOURCES, 0))
            largest[name] = max_requests.max_with(requests), max(max_count, count)
    return largest


def _create_nodes(node_type: NodeType, pods: Sequence[Pod], names: set[str], max_count: int) -> Iterator[Node]:
    """Yield as many new nodes of a type as the pods could need, at most `most`."""
    movable_pods = [pod for pod in pods if not is_node_bound_pod(pod)]
    total, allocatable = sum(map(count_pod_requests, movable_pods), NO_RESOURCES), node_type.template.allocatable
    by_sums = max(
        total.cpu_millicores / max(allocatable.cpu_millicores, 1),
        total.memory_bytes / max(allocatable.memory_bytes, 1),
        len(movable_pods) / max(node_type.template.allocatable_pods, 1),
    )
    max_count = min(len(movable_pods), math.ceil(by_sums * _MORE) + _SOME, max_count)
    max_count = max_count if node_type.limit is None else min(max_count, node_type.limit)
    prefix = f"{node_type.pool}-{node_type.name}" if node_type.pool else node_type.name
    # A type may be named after a node of it (`like worker-1`), but names of nodes have no spaces.
    prefix = prefix.replace(", ", "-").replace(" ", "-")
    free_names = (name for number in count(1) if (name := f"new-{prefix}-{number}") not in names)
    for name in islice(free_names, max(max_count, 0)):
        yield replace(node_type.template, name=name, labels={**node_type.template.labels, HOSTNAME: name})


def limit_new_nodes_to_pools(candidate_nodes: CandidateNodes, used: Sequence[str]) -> CandidateNodes | None:
    """Return the nodes with fewer candidates where NodePools exceed their limits together; None if they do not.

    `used` are the new nodes of a plan, the most important first: these stay as far as limits allow.
    """
    if len(_keep_within_limits(candidate_nodes, used)) == len(used):
        return None
    within_limits = _keep_within_limits(candidate_nodes, [*used, *sorted(candidate_nodes.types.keys() - set(used))])
    nodes = tuple(
        node
        for node in candidate_nodes.snapshot.nodes
        if node.name not in candidate_nodes.types or node.name in within_limits
    )
    return replace(candidate_nodes, snapshot=replace(candidate_nodes.snapshot, nodes=nodes))


def _keep_within_limits(candidate_nodes: CandidateNodes, names: Sequence[str]) -> set[str]:
    """Return those of the new nodes that stay within the limits of their NodePools, in order."""
    existing = [node for node in candidate_nodes.snapshot.nodes if node.name not in candidate_nodes.types]
    remaining = {pool.name: compute_remaining_limits(pool, existing) for pool in candidate_nodes.snapshot.node_pools}
    kept = set()
    for name in names:
        node_type = candidate_nodes.types[name]
        machine, limits = get_node_capacity(node_type.template), remaining.get(node_type.pool, {})
        if all(amount >= machine.get(resource, 0) for resource, amount in limits.items()):
            remaining[node_type.pool] = {
                resource: amount - machine.get(resource, 0) for resource, amount in limits.items()
            }
            kept.add(name)
    return kept

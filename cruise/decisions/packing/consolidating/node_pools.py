"""Node types from Karpenter's NodePools: of machines that were seen, as many as limits leave room for."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from cruise.domain.annotations import HOSTNAME, INSTANCE_TYPE, NODE_POOL, ZONE
from cruise.domain.cluster import Node, Pod, Snapshot
from cruise.domain.colocation import UNCONSTRAINED
from cruise.domain.details import Detail
from cruise.domain.node_pools import NodePool
from cruise.domain.packing import NodeType
from cruise.domain.scheduling import ANYWHERE, Operator, Requirement

# Where and how a machine is bought: one of a type that was seen elsewhere is the same machine.
_CAPACITY_TYPE = "karpenter.sh/capacity-type"
_BOUGHT_BY = ZONE, _CAPACITY_TYPE


@dataclass(frozen=True, slots=True)
class PoolTypes:
    """The types that NodePools may order, and the detail for which each of the `silent` ones has none."""

    types: tuple[NodeType, ...]
    silent: tuple[tuple[str, str], ...]


def pool_types(snapshot: Snapshot, waiting: Sequence[Pod]) -> PoolTypes:
    """Return a type for each NodePool and each instance type that was seen with its settings and meets what it asks.

    A NodePool does not say how large machines are: nodes and NodeClaims do. Where no waiting pod could tell one zone
    from another, a type is offered in one of them.
    """
    seen = _machines(snapshot)
    classes = {pool.name: pool.node_class or pool.name for pool in snapshot.node_pools}
    placed = any(pod.placement is not ANYWHERE or pod.constraints != UNCONSTRAINED for pod in waiting)
    types: list[NodeType] = []
    silent: list[tuple[str, str]] = []
    for pool in sorted(snapshot.node_pools, key=lambda one: (-one.weight, one.name)):
        if pool.closed:
            silent.append((pool.name, pool.closed))
            continue
        alike = [node for node in seen if classes.get(node.labels[NODE_POOL]) == classes[pool.name]]
        found = list(_types_of(pool, alike, snapshot.nodes, placed))
        if not found:
            silent.append((pool.name, Detail.MACHINE_UNSEEN.value))
        elif all(one.limit == 0 for one in found):
            silent.append((pool.name, Detail.POOL_LIMITS_USED.value))
        types += [one for one in found if one.limit != 0]
    return PoolTypes(tuple(types), tuple(silent))


def machine_of(node: Node) -> Mapping[str, int]:
    """Return what a node counts against the limits of its NodePool: its capacity, not what pods have of it."""
    cpu, memory = node.cpu_capacity_millicores, node.memory_capacity_bytes
    return {
        **node.allocatable_extended,
        "pods": node.allocatable_pods,
        "cpu": node.allocatable.cpu_millicores if cpu is None else cpu,
        "memory": node.allocatable.memory_bytes if memory is None else memory,
        "nodes": 1,
    }


def left_of(pool: NodePool, nodes: Iterable[Node]) -> dict[str, int]:
    """Return what is left of each limit beside what Karpenter counts as used, or beside its nodes if that is more."""
    there: dict[str, int] = {}
    for node in nodes:
        if node.labels.get(NODE_POOL) == pool.name:
            for name, amount in machine_of(node).items():
                there[name] = there.get(name, 0) + amount
    used = {name: max(there.get(name, 0), pool.used.get(name, 0)) for name in pool.limits}
    return {name: max(limit - used[name], 0) for name, limit in pool.limits.items()}


def _machines(snapshot: Snapshot) -> list[Node]:
    """Return the nodes of Karpenter's, then what it has ordered; what reports no size says nothing."""
    return [
        node
        for node in (*snapshot.nodes, *snapshot.former_nodes, *snapshot.node_claims)
        if NODE_POOL in node.labels and INSTANCE_TYPE in node.labels and node.allocatable.cpu_millicores
    ]


def _types_of(pool: NodePool, alike: Sequence[Node], nodes: Sequence[Node], placed: bool) -> Iterator[NodeType]:
    left = left_of(pool, nodes)
    own = [node for node in alike if node.labels[NODE_POOL] == pool.name]
    by_type: dict[str, Node] = {}
    for node in (*own, *alike):
        by_type.setdefault(node.labels[INSTANCE_TYPE], node)
    for instance, node in sorted(by_type.items()):
        machine = machine_of(node)
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
        if all(one.met_by(labels) for one in pool.requirements) and (placed or not offered):
            offered += 1
            yield labels


def _choices(name: str, there: str, pool: NodePool, own: Sequence[Node]) -> list[str]:
    """Return the values of a label that a NodePool may choose, the one that is there first."""
    stated = [one.values for one in pool.requirements if one.key == name and one.operator is Operator.IN]
    seen = {text for node in own if (text := node.labels.get(name))}
    found = sorted(set(stated[0]) if stated else seen)
    return [there, *(text for text in found if text != there)]


def _states(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Tell whether Karpenter gives a node a label for a requirement: one that machines do not have by themselves."""
    domain = requirement.key.partition("/")[0]
    of_machines = "/" in requirement.key and (domain.endswith("kubernetes.io") or "karpenter" in domain)
    return requirement.operator is Operator.IN and requirement.key not in labels and not of_machines

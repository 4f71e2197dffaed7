"""Variants of a cluster: with other names, more capacity or fewer constraints."""

import random
from collections.abc import Callable
from dataclasses import replace

from cruise.domain.cluster import ClusterSnapshot, Node, Pod
from cruise.domain.scheduling import LabelRequirement, NodeSelectorTerm, PersistentVolumeClaim
from tests.decisions.packing.clusters import DISK, HOST, ZONE

Change = Callable[[ClusterSnapshot], ClusterSnapshot]


def rename_objects(snapshot: ClusterSnapshot, source: random.Random) -> ClusterSnapshot:
    """The cluster with other names of pods and nodes, so that their order changes."""
    numbers = source.sample(range(100, 999), len(snapshot.nodes) + len(snapshot.pods))
    nodes = {node.name: f"n{number}" for node, number in zip(snapshot.nodes, numbers, strict=False)}
    names = numbers[len(snapshot.nodes) :]
    pods = [
        replace(_pod_elsewhere(pod, nodes), name=f"p{number}", uid=f"uid-{number}")
        for pod, number in zip(snapshot.pods, names, strict=True)
    ]
    around = snapshot.storage_and_namespaces
    claims = {key: _claim_elsewhere(claim, nodes) for key, claim in around.claims.items()}
    limits = {nodes[name]: limit for name, limit in around.attach_limits.items()}
    return replace(
        snapshot,
        nodes=tuple(sorted((replace(n, name=nodes[n.name]) for n in snapshot.nodes), key=lambda node: node.name)),
        pods=tuple(sorted(pods, key=lambda pod: (pod.namespace, pod.name))),
        storage_and_namespaces=replace(around, claims=claims, attach_limits=limits),
    )


def add_node(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """One more node like the first open one, outside all topologies: a new domain may make a pod unschedulable."""
    open_nodes = [node for node in snapshot.nodes if node.ready and not node.unschedulable] or snapshot.nodes
    like = open_nodes[0]
    labels = {key: value for key, value in like.labels.items() if key not in (HOST, ZONE, DISK)}
    return replace(snapshot, nodes=(*snapshot.nodes, replace(like, name="n9", labels=labels)))


def _pods_with(change: Callable[[Pod], Pod]) -> Change:
    return lambda snapshot: replace(snapshot, pods=tuple(change(pod) for pod in snapshot.pods))


def _nodes_with(change: Callable[[Node], Node]) -> Change:
    return lambda snapshot: replace(snapshot, nodes=tuple(change(node) for node in snapshot.nodes))


def _constraints_without(**fields: tuple[()]) -> Change:
    return _pods_with(
        lambda pod: replace(pod, constraints=replace(pod.constraints, **fields))  # type: ignore[arg-type]
    )


def _rankings(pod: Pod) -> dict[str, str]:
    return {key: value for key, value in pod.annotations.items() if key == "cruise.io/eviction-ranking"}


# Of each kind one that leaves every plan as valid as it was.
RELAXATIONS: dict[str, Change] = {
    "affinity": _constraints_without(affinity=()),
    "anti-affinity": _constraints_without(anti_affinity=()),
    "spread": _constraints_without(spread=()),
    "host ports": _constraints_without(host_ports=()),
    "disruption budgets": lambda snapshot: replace(snapshot, budgets=()),
    "quotas": lambda snapshot: replace(snapshot, quotas={}, limit_ranges={}),
    "attach limits": lambda s: replace(s, storage_and_namespaces=replace(s.storage_and_namespaces, attach_limits={})),
    "never preempts": _pods_with(lambda pod: replace(pod, may_preempt=True)),
    "extended resources": _pods_with(lambda pod: replace(pod, extended_requests=())),
    "cordons": _nodes_with(lambda node: replace(node, unschedulable=False)),
    "places for pods": _nodes_with(lambda node: replace(node, allocatable_pods=110)),
    "do-not-disrupt": _pods_with(lambda pod: replace(pod, annotations=_rankings(pod))),
    "namespaces' modes": lambda snapshot: replace(snapshot, namespace_annotations={}),
}


def _pod_elsewhere(pod: Pod, nodes: dict[str, str]) -> Pod:
    placement = pod.placement
    terms = None if placement.terms is None else tuple(_term_elsewhere(term, nodes) for term in placement.terms)
    node = None if pod.node is None else nodes.get(pod.node, pod.node)
    return replace(pod, node=node, placement=replace(placement, terms=terms))


def _claim_elsewhere(claim: PersistentVolumeClaim, nodes: dict[str, str]) -> PersistentVolumeClaim:
    terms = None if claim.terms is None else tuple(_term_elsewhere(term, nodes) for term in claim.terms)
    return replace(claim, terms=terms)


def _term_elsewhere(term: NodeSelectorTerm, nodes: dict[str, str]) -> NodeSelectorTerm:
    def named(one: LabelRequirement) -> LabelRequirement:
        return replace(one, values=tuple(nodes.get(value, value) for value in one.values))

    return replace(term, fields=tuple(named(one) for one in term.fields))

"""What kube-scheduler's filters say about one pod among the others: affinity, anti-affinity, topology spread."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain

from cruise.decisions.scheduling.filters import (
    check_attach_limits,
    check_host_ports,
    check_node,
    check_resources,
    check_volumes,
)
from cruise.decisions.scheduling.placements import PodPlacements, get_pod_key
from cruise.domain.cluster import Node, Pod
from cruise.domain.scheduling import PodAffinityTerm, SchedulingConstraints, TopologySpreadConstraint


@dataclass(frozen=True, slots=True)
class TopologyDomains:
    """The domains of a topology: that of each node which counts, and how many there are."""

    by_node: Mapping[str, str]
    count: int


def check_affinity(board: PodPlacements, pod: Pod, node: Node) -> Iterator[str]:
    """Say which required pod affinity is not met.

    A neighbour counts only if it meets all terms at once. Where none is in any domain, the first pod of a group that
    meets its own terms may start it on any node that has the topologies.
    """
    terms = pod.constraints.affinity
    if not terms:
        return
    lacking = [term.topology_key for term in terms if term.topology_key not in node.labels]
    if lacking:
        yield f"lacks the label {lacking[0]} of its pod affinity"
        return
    if is_first_of_affinity_group(board, pod):
        return
    wanted = _nodes_with(board, terms)
    for term in terms:
        if node.labels[term.topology_key] not in _domains(board, wanted, term.topology_key):
            yield f"has no pod of its affinity in the same {term.topology_key}"


def is_first_of_affinity_group(board: PodPlacements, pod: Pod) -> bool:
    """Tell whether a pod meets its own required affinity, and no pod in any of its domains does."""
    terms = pod.constraints.affinity
    if not terms or not all(
        board.storage_and_namespaces.term_matches_pod(term, pod.namespace, pod.labels) for term in terms
    ):
        return False
    wanted = _nodes_with(board, terms)
    return not any(_domains(board, wanted, term.topology_key) for term in terms)


def check_anti_affinity(board: PodPlacements, pod: Pod, node: Node) -> Iterator[str]:
    """Say which anti-affinity is broken: its own against pods there, or theirs against it."""
    for term in pod.constraints.anti_affinity:
        domain = node.labels.get(term.topology_key)
        if domain is not None and domain in _domains(board, _nodes_with(board, (term,)), term.topology_key):
            yield f"has a pod of its anti-affinity in the same {term.topology_key}"
    for term, holders in board.find_anti_affinity_against(pod.namespace, pod.labels):
        domain = node.labels.get(term.topology_key)
        if domain is None or not board.storage_and_namespaces.term_matches_pod(term, pod.namespace, pod.labels):
            continue
        if domain in _domains(board, holders, term.topology_key):
            yield f"has a pod whose anti-affinity means it in the same {term.topology_key}"


class TopologySpreadFilter:
    """Topology spread over the nodes of a board; which nodes count is found once for pods that ask the same."""

    def __init__(self, board: PodPlacements) -> None:
        self._board = board
        self._domains: dict[
            tuple[SchedulingConstraints, frozenset[str], TopologySpreadConstraint], TopologyDomains
        ] = {}

    def check(self, pod: Pod, node: Node) -> Iterator[str]:
        """Say which constraint would be skewed too far; pods that are ending do not count."""
        keys = frozenset(constraint.topology_key for constraint in pod.constraints.spread)
        for constraint in pod.constraints.spread:
            key = constraint.topology_key
            if key not in node.labels:
                yield f"lacks the label {key} of its topology spread"
                continue
            domains = self._domains_of(pod.placement, keys, constraint)
            counts: Counter[str] = Counter()
            for name, many in self._matching(constraint, pod).items():
                if many > 0 and name in domains.by_node:
                    counts[domains.by_node[name]] += many
            empty = len(counts) < domains.count or domains.count < constraint.min_domains
            least = 0 if empty else min(counts.values(), default=0)
            itself = int(constraint.matches(pod.labels))
            skew = counts[node.labels[key]] + itself - least
            if skew > constraint.max_skew:
                yield f"would skew its spread over {key} by {skew}, of {constraint.max_skew}"

    def _domains_of(
        self, placement: SchedulingConstraints, keys: frozenset[str], constraint: TopologySpreadConstraint
    ) -> TopologyDomains:
        """The nodes that count, with their domain; none lacks a key of any of the pod's constraints."""
        # What a constraint selects does not matter here, and differs from workload to workload.
        key = (placement, keys, replace(constraint, selector=None, max_skew=1, min_domains=1))
        known = self._domains.get(key)
        if known is None:
            of_node = {
                node.name: node.labels[constraint.topology_key]
                for node in self._board.nodes.values()
                if keys <= node.labels.keys() and _counts(constraint, placement, node)
            }
            known = self._domains[key] = TopologyDomains(of_node, len(set(of_node.values())))
        return known

    def _matching(self, constraint: TopologySpreadConstraint, pod: Pod) -> Counter[str]:
        found: Counter[str] = Counter()
        if constraint.selector is not None:
            for _, nodes in self._board.find_matching_groups(pod.namespace, constraint.selector, with_ending=False):
                found.update(nodes)
        return found


def _counts(constraint: TopologySpreadConstraint, placement: SchedulingConstraints, node: Node) -> bool:
    if constraint.honours_node_affinity and not placement.allows_node(node.name, node.labels):
        return False
    return not constraint.honours_node_taints or placement.tolerates_all(node.taints)


def _nodes_with(board: PodPlacements, terms: tuple[PodAffinityTerm, ...]) -> Counter[str]:
    """How many pods that all the terms mean are on each node."""
    found: Counter[str] = Counter()
    first = terms[0].selector
    if first is None:
        return found
    by_selector = any(term.namespace_selector is not None for term in terms)
    for namespace in board.namespaces() if by_selector else sorted(terms[0].namespaces):
        for labels, nodes in board.find_matching_groups(namespace, first, with_ending=True):
            if all(board.storage_and_namespaces.term_matches_pod(term, namespace, labels) for term in terms):
                found.update(nodes)
    return found


def _domains(board: PodPlacements, nodes: Counter[str], key: str) -> set[str]:
    """The domains of a topology in which any of the counted pods are; a node without the label is in none."""
    return {
        board.nodes[name].labels[key]
        for name, many in nodes.items()
        if many > 0 and name in board.nodes and key in board.nodes[name].labels
    }


# Whether kube-scheduler would let a pod onto a node: all of its filters over one board.


class SchedulerFilters:
    """All of kube-scheduler's filters over one board."""

    def __init__(self, board: PodPlacements) -> None:
        self._board = board
        self._spreads = TopologySpreadFilter(board)

    def check(self, pod: Pod, node: Node) -> Iterator[str]:
        """Say everything that keeps the pod from the node, as things stand on the board.

        A pod has to pass with the pods that are nominated for the node, and without them: they may still go elsewhere.
        """
        refused = False
        for why in self._refuse(pod, node):
            refused = True
            yield why
        expected = [] if refused else self._board.get_pods_expected_on(node.name, pod)
        if expected:
            for one in expected:
                self._board.add(one, node.name)
            refusals = list(self._refuse(pod, node))
            for one in expected:
                self._board.remove(get_pod_key(one))
            names = ", ".join(f"{one.namespace}/{one.name}" for one in expected)
            yield from (f"{why}, with {names} nominated for it" for why in refusals)

    def _refuse(self, pod: Pod, node: Node) -> Iterator[str]:
        filters = (
            check_node,
            check_resources,
            check_host_ports,
            check_volumes,
            check_attach_limits,
            check_affinity,
            check_anti_affinity,
        )
        return chain(*(filter_of(self._board, pod, node) for filter_of in filters), self._spreads.check(pod, node))

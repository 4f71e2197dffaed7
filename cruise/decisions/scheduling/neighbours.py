"""What kube-scheduler's filters say about one pod among the others: affinity, anti-affinity, topology spread."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from cruise.decisions.scheduling.board import Board
from cruise.domain.cluster import Node, Pod
from cruise.domain.colocation import PodTerm, SpreadConstraint
from cruise.domain.scheduling import Placement


@dataclass(frozen=True, slots=True)
class Domains:
    """The domains of a topology: that of each node which counts, and how many there are."""

    of_node: Mapping[str, str]
    count: int


def refuse_by_affinity(board: Board, pod: Pod, node: Node) -> Iterator[str]:
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
    if starts_its_group(board, pod):
        return
    wanted = _nodes_with(board, terms)
    for term in terms:
        if node.labels[term.topology_key] not in _domains(board, wanted, term.topology_key):
            yield f"has no pod of its affinity in the same {term.topology_key}"


def starts_its_group(board: Board, pod: Pod) -> bool:
    """Tell whether a pod meets its own required affinity, and no pod in any of its domains does."""
    terms = pod.constraints.affinity
    if not terms or not all(board.surroundings.mean(term, pod.namespace, pod.labels) for term in terms):
        return False
    wanted = _nodes_with(board, terms)
    return not any(_domains(board, wanted, term.topology_key) for term in terms)


def refuse_by_anti_affinity(board: Board, pod: Pod, node: Node) -> Iterator[str]:
    """Say which anti-affinity is broken: its own against pods there, or theirs against it."""
    for term in pod.constraints.anti_affinity:
        domain = node.labels.get(term.topology_key)
        if domain is not None and domain in _domains(board, _nodes_with(board, (term,)), term.topology_key):
            yield f"has a pod of its anti-affinity in the same {term.topology_key}"
    for term, holders in board.anti_affinity_against(pod.namespace, pod.labels):
        domain = node.labels.get(term.topology_key)
        if domain is None or not board.surroundings.mean(term, pod.namespace, pod.labels):
            continue
        if domain in _domains(board, holders, term.topology_key):
            yield f"has a pod whose anti-affinity means it in the same {term.topology_key}"


class Spreads:
    """Topology spread over the nodes of a board; which nodes count is found once for pods that ask the same."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._domains: dict[tuple[Placement, frozenset[str], SpreadConstraint], Domains] = {}

    def refuse(self, pod: Pod, node: Node) -> Iterator[str]:
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
                if many > 0 and name in domains.of_node:
                    counts[domains.of_node[name]] += many
            empty = len(counts) < domains.count or domains.count < constraint.min_domains
            least = 0 if empty else min(counts.values(), default=0)
            itself = int(constraint.counts(pod.labels))
            skew = counts[node.labels[key]] + itself - least
            if skew > constraint.max_skew:
                yield f"would skew its spread over {key} by {skew}, of {constraint.max_skew}"

    def _domains_of(self, placement: Placement, keys: frozenset[str], constraint: SpreadConstraint) -> Domains:
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
            known = self._domains[key] = Domains(of_node, len(set(of_node.values())))
        return known

    def _matching(self, constraint: SpreadConstraint, pod: Pod) -> Counter[str]:
        found: Counter[str] = Counter()
        if constraint.selector is not None:
            for _, nodes in self._board.crowds_selected(pod.namespace, constraint.selector, with_ending=False):
                found.update(nodes)
        return found


def _counts(constraint: SpreadConstraint, placement: Placement, node: Node) -> bool:
    if constraint.honours_node_affinity and not placement.admits(node.name, node.labels):
        return False
    return not constraint.honours_node_taints or placement.tolerates_all(node.taints)


def _nodes_with(board: Board, terms: tuple[PodTerm, ...]) -> Counter[str]:
    """How many pods that all the terms mean are on each node."""
    found: Counter[str] = Counter()
    first = terms[0].selector
    if first is None:
        return found
    by_selector = any(term.namespace_selector is not None for term in terms)
    for namespace in board.namespaces() if by_selector else sorted(terms[0].namespaces):
        for labels, nodes in board.crowds_selected(namespace, first, with_ending=True):
            if all(board.surroundings.mean(term, namespace, labels) for term in terms):
                found.update(nodes)
    return found


def _domains(board: Board, nodes: Counter[str], key: str) -> set[str]:
    """The domains of a topology in which any of the counted pods are; a node without the label is in none."""
    return {
        board.nodes[name].labels[key]
        for name, many in nodes.items()
        if many > 0 and name in board.nodes and key in board.nodes[name].labels
    }

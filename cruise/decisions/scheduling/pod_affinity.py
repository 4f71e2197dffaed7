"""Implements kube-scheduler's filters that depend on other pods: affinity, anti-affinity and topology spread."""

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
class DomainsByNode:
    """The domain of each node that counts for a topology, and the number of domains."""

    by_node: Mapping[str, str]
    count: int


def check_affinity(placements: PodPlacements, pod: Pod, node: Node) -> Iterator[str]:
    """Yield which required pod affinity is not met.

    A pod must match all terms to count. If no pod does in any domain, the first pod of a group that matches its own
    terms may be placed on any node that has the topology labels.
    """
    terms = pod.constraints.affinity
    if not terms:
        return
    missing = [term.topology_key for term in terms if term.topology_key not in node.labels]
    if missing:
        yield f"lacks the label {missing[0]} of its pod affinity"
        return
    if is_first_of_affinity_group(placements, pod):
        return
    matching = _count_matching_pods(placements, terms)
    for term in terms:
        if node.labels[term.topology_key] not in _get_domains_of_pods(placements, matching, term.topology_key):
            yield f"has no pod of its affinity in the same {term.topology_key}"


def is_first_of_affinity_group(placements: PodPlacements, pod: Pod) -> bool:
    """Return whether a pod matches its own required affinity, and no pod in any domain does."""
    terms = pod.constraints.affinity
    if not terms or not all(
        placements.storage_and_namespaces.term_matches_pod(term, pod.namespace, pod.labels) for term in terms
    ):
        return False
    matching = _count_matching_pods(placements, terms)
    return not any(_get_domains_of_pods(placements, matching, term.topology_key) for term in terms)


def check_anti_affinity(placements: PodPlacements, pod: Pod, node: Node) -> Iterator[str]:
    """Yield which anti-affinity is violated: that of the pod, or that of other pods against it."""
    for term in pod.constraints.anti_affinity:
        domain = node.labels.get(term.topology_key)
        if domain is not None and domain in _get_domains_of_pods(
            placements, _count_matching_pods(placements, (term,)), term.topology_key
        ):
            yield f"has a pod of its anti-affinity in the same {term.topology_key}"
    for term, holders in placements.find_anti_affinity_against(pod.namespace, pod.labels):
        domain = node.labels.get(term.topology_key)
        if domain is None or not placements.storage_and_namespaces.term_matches_pod(term, pod.namespace, pod.labels):
            continue
        if domain in _get_domains_of_pods(placements, holders, term.topology_key):
            yield f"has a pod whose anti-affinity means it in the same {term.topology_key}"


class TopologySpreadFilter:
    """The topology spread filter; the eligible nodes are computed once for pods with the same constraints."""

    def __init__(self, placements: PodPlacements) -> None:
        self._placements = placements
        self._get_domains_of_pods: dict[
            tuple[SchedulingConstraints, frozenset[str], TopologySpreadConstraint], DomainsByNode
        ] = {}

    def check(self, pod: Pod, node: Node) -> Iterator[str]:
        """Yield which constraint would be violated; terminating pods do not count."""
        keys = frozenset(constraint.topology_key for constraint in pod.constraints.spread)
        for constraint in pod.constraints.spread:
            key = constraint.topology_key
            if key not in node.labels:
                yield f"lacks the label {key} of its topology spread"
                continue
            domains = self._get_domains(pod.placement, keys, constraint)
            counts: Counter[str] = Counter()
            for name, count in self._count_matching(constraint, pod).items():
                if count > 0 and name in domains.by_node:
                    counts[domains.by_node[name]] += count
            has_empty_domain = len(counts) < domains.count or domains.count < constraint.min_domains
            minimum = 0 if has_empty_domain else min(counts.values(), default=0)
            own_count = int(constraint.matches(pod.labels))
            skew = counts[node.labels[key]] + own_count - minimum
            if skew > constraint.max_skew:
                yield f"would skew its spread over {key} by {skew}, of {constraint.max_skew}"

    def _get_domains(
        self, placement: SchedulingConstraints, keys: frozenset[str], constraint: TopologySpreadConstraint
    ) -> DomainsByNode:
        """Return the domains of the eligible nodes, which have all topology labels of the pod's constraints."""
        # The selector does not matter here, and differs between workloads.
        key = (placement, keys, replace(constraint, selector=None, max_skew=1, min_domains=1))
        known = self._get_domains_of_pods.get(key)
        if known is None:
            domain_of_node = {
                node.name: node.labels[constraint.topology_key]
                for node in self._placements.nodes.values()
                if keys <= node.labels.keys() and _is_eligible(constraint, placement, node)
            }
            known = self._get_domains_of_pods[key] = DomainsByNode(domain_of_node, len(set(domain_of_node.values())))
        return known

    def _count_matching(self, constraint: TopologySpreadConstraint, pod: Pod) -> Counter[str]:
        found: Counter[str] = Counter()
        if constraint.selector is not None:
            for _, nodes in self._placements.find_matching_groups(
                pod.namespace, constraint.selector, include_terminating=False
            ):
                found.update(nodes)
        return found


def _is_eligible(constraint: TopologySpreadConstraint, placement: SchedulingConstraints, node: Node) -> bool:
    if constraint.honours_node_affinity and not placement.allows_node(node.name, node.labels):
        return False
    return not constraint.honours_node_taints or placement.tolerates_all(node.taints)


def _count_matching_pods(placements: PodPlacements, terms: tuple[PodAffinityTerm, ...]) -> Counter[str]:
    """Return how many pods on each node match all the terms."""
    counts: Counter[str] = Counter()
    first = terms[0].selector
    if first is None:
        return counts
    by_selector = any(term.namespace_selector is not None for term in terms)
    for namespace in placements.get_namespaces() if by_selector else sorted(terms[0].namespaces):
        for labels, nodes in placements.find_matching_groups(namespace, first, include_terminating=True):
            if all(placements.storage_and_namespaces.term_matches_pod(term, namespace, labels) for term in terms):
                counts.update(nodes)
    return counts


def _get_domains_of_pods(placements: PodPlacements, counts: Counter[str], key: str) -> set[str]:
    """Return the domains of the counted pods; a node without the label is in none."""
    return {
        placements.nodes[name].labels[key]
        for name, count in counts.items()
        if count > 0 and name in placements.nodes and key in placements.nodes[name].labels
    }


class SchedulerFilters:
    """All filters of kube-scheduler for one set of placements."""

    def __init__(self, placements: PodPlacements) -> None:
        self._placements = placements
        self._spreads = TopologySpreadFilter(placements)

    def check(self, pod: Pod, node: Node) -> Iterator[str]:
        """Yield every reason to reject the pod on the node.

        A pod has to pass with the pods that are nominated for the node and without them, because they may still be
        bound elsewhere.
        """
        is_rejected = False
        for rejection in self._run_filters(pod, node):
            is_rejected = True
            yield rejection
        nominated = [] if is_rejected else self._placements.get_nominated_pods_on(node.name, pod)
        if nominated:
            for one in nominated:
                self._placements.add(one, node.name)
            rejections = list(self._run_filters(pod, node))
            for one in nominated:
                self._placements.remove(get_pod_key(one))
            names = ", ".join(f"{one.namespace}/{one.name}" for one in nominated)
            yield from (f"{rejection}, with {names} nominated for it" for rejection in rejections)

    def _run_filters(self, pod: Pod, node: Node) -> Iterator[str]:
        filters = (
            check_node,
            check_resources,
            check_host_ports,
            check_volumes,
            check_attach_limits,
            check_affinity,
            check_anti_affinity,
        )
        return chain(*(filter_of(self._placements, pod, node) for filter_of in filters), self._spreads.check(pod, node))

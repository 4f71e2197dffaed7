"""Indexes which pods are on which nodes while a plan is replayed."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from cruise.domain.cluster import DEFAULT_SCHEDULER, ClusterSnapshot, Node, Pod
from cruise.domain.scheduling import (
    AttachedVolume,
    LabelSelector,
    PersistentVolumeClaim,
    PodAffinityTerm,
    SelectorOperator,
    StorageAndNamespaces,
)

# kube-scheduler's NodeVolumeLimits counts attached volumes like this.


def get_attached_volumes(claims: Iterable[PersistentVolumeClaim | None]) -> set[AttachedVolume]:
    """Return the volumes that a pod with these claims attaches to its node."""
    return {
        (claim.driver, claim.volume or f"{claim.namespace}/{claim.name}")
        for claim in claims
        if claim is not None and claim.driver is not None
    }


def get_attached_volumes_of_running_pod(storage_and_namespaces: StorageAndNamespaces, pod: Pod) -> set[AttachedVolume]:
    """Return the volumes that a pod has attached to its present node."""
    return get_attached_volumes(
        storage_and_namespaces.claims.get((pod.namespace, name)) for name in pod.constraints.claims
    )


def find_leftover_attachments(snapshot: ClusterSnapshot) -> Mapping[str, frozenset[AttachedVolume]]:
    """Return by node the volumes of VolumeAttachments that no pod on the node uses any more.

    The volume of a running pod is detached when the pod is deleted, so it counts with the pod only.
    """
    attached = snapshot.storage_and_namespaces.attached
    if not attached:
        return {}
    used: defaultdict[str, set[AttachedVolume]] = defaultdict(set)
    for pod in snapshot.pods:
        if pod.constraints.claims and pod.node is not None and pod.node in attached and not pod.is_finished:
            used[pod.node] |= get_attached_volumes_of_running_pod(snapshot.storage_and_namespaces, pod)
    return {node: left for node, volumes in attached.items() if (left := volumes - used[node])}


# Both indexes only leave out what cannot match; the caller evaluates the selector.

Labels = frozenset[tuple[str, str]]
Item = TypeVar("Item")


def get_required_labels(selector: LabelSelector) -> list[list[tuple[str, str]]]:
    """Return for each requirement that names values the labels of which the selector needs one."""
    return [
        [(requirement.key, value) for value in requirement.values]
        for requirement in selector.requirements
        if requirement.operator is SelectorOperator.IN
    ]


class SelectorIndex(Generic[Item]):
    """Finds items with a selector by labels."""

    def __init__(self) -> None:
        self._by_label: defaultdict[tuple[str, str], dict[Item, None]] = defaultdict(dict)
        self._by_none: dict[Item, None] = {}

    def add(self, selector: LabelSelector, item: Item) -> None:
        """Add an item."""
        choices = get_required_labels(selector)
        if not choices:
            self._by_none[item] = None
            return
        # Mostly one label distinguishes selectors, and they share the others.
        for label in min(choices, key=self._count_items):
            self._by_label[label][item] = None

    def find_candidates(self, labels: Mapping[str, str]) -> Iterator[Item]:
        """Return the items whose selector may match the labels."""
        found = dict(self._by_none)
        for label in labels.items():
            if label in self._by_label:
                found |= self._by_label[label]
        return iter(found)

    def _count_items(self, labels: Sequence[tuple[str, str]]) -> int:
        return sum(len(self._by_label[label]) for label in labels if label in self._by_label)


class LabelIndex(Generic[Item]):
    """Finds items with labels by selector."""

    def __init__(self) -> None:
        self._all: dict[Item, None] = {}
        self._by_label: defaultdict[tuple[str, str], dict[Item, None]] = defaultdict(dict)

    def add(self, labels: Labels, item: Item) -> None:
        """Add an item."""
        self._all[item] = None
        for label in labels:
            self._by_label[label][item] = None

    def find_candidates(self, selector: LabelSelector) -> Iterator[Item]:
        """Return the items whose labels the selector may match."""
        choices = get_required_labels(selector)
        if not choices:
            return iter(self._all)
        rarest = min(choices, key=lambda labels: sum(len(self._by_label.get(label, ())) for label in labels))
        found: dict[Item, None] = {}
        for label in rarest:
            found |= self._by_label.get(label, {})
        return iter(found)


PodKey = tuple[str, str]


def get_pod_key(pod: Pod) -> PodKey:
    """Return the namespace and name by which plans identify a pod."""
    return (pod.namespace, pod.name)


def is_waiting_for_scheduling(pod: Pod) -> bool:
    """Return whether a pod is pending and kube-scheduler may bind it."""
    excluded = pod.is_finished or pod.terminating or pod.scheduling_gated
    return pod.node is None and not excluded and pod.scheduler == DEFAULT_SCHEDULER


class PodPlacements:
    """The pods on nodes, without finished ones; terminating pods count until they no longer exist.

    `leftover_attachments` has by node the volumes that are still attached for pods that no longer exist.
    """

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self.nodes: dict[str, Node] = {node.name: node for node in snapshot.nodes}
        self.storage_and_namespaces: StorageAndNamespaces = snapshot.storage_and_namespaces
        self._node_of_pod: dict[PodKey, str] = {}
        self._on_node: defaultdict[str, dict[PodKey, Pod]] = defaultdict(dict)
        self._pods_by_namespace: defaultdict[str, _LabelledPods] = defaultdict(_LabelledPods)
        self._terms: dict[PodAffinityTerm, Counter[str]] = {}
        self._terms_on_namespace: defaultdict[str, SelectorIndex[PodAffinityTerm]] = defaultdict(SelectorIndex)
        self._terms_by_selector: SelectorIndex[PodAffinityTerm] = SelectorIndex()
        self._claims: defaultdict[PodKey, Counter[str]] = defaultdict(Counter)
        self._nominated: defaultdict[str, list[Pod]] = defaultdict(list)
        self.leftover_attachments = find_leftover_attachments(snapshot)
        for pod in snapshot.pods:
            if pod.nominated_node and is_waiting_for_scheduling(pod):
                self._nominated[pod.nominated_node].append(pod)
            if pod.node is not None and not pod.is_finished:
                self.add(pod, pod.node)

    def add(self, pod: Pod, node: str) -> None:
        """Place a pod on a node."""
        self._node_of_pod[get_pod_key(pod)] = node
        self._on_node[node][get_pod_key(pod)] = pod
        self._count(pod, node, 1)

    def remove(self, key: PodKey) -> Pod:
        """Remove a pod from its node."""
        node = self._node_of_pod.pop(key)
        pod = self._on_node[node].pop(key)
        self._count(pod, node, -1)
        return pod

    def get_node(self, key: PodKey) -> str | None:
        """Return the node of a pod; None if it is on none."""
        return self._node_of_pod.get(key)

    def get_pods_on(self, node: str) -> Iterator[Pod]:
        """Return the pods on a node."""
        return iter(self._on_node[node].values())

    def get_nominated_pods_on(self, node: str, pod: Pod) -> list[Pod]:
        """Return the nominated pods that kube-scheduler counts as if they were on a node: none of lower priority."""
        return [
            one
            for one in self._nominated.get(node, ())
            if one.priority >= pod.priority
            and get_pod_key(one) != get_pod_key(pod)
            and get_pod_key(one) not in self._node_of_pod
        ]

    def get_claim_users(self, claim: PodKey) -> Counter[str]:
        """Return how many pods on each node use a claim."""
        return +self._claims[claim] if claim in self._claims else Counter()

    def find_matching_groups(
        self, namespace: str, selector: LabelSelector, include_terminating: bool
    ) -> Iterator[tuple[dict[str, str], Counter[str]]]:
        """Yield each set of labels in a namespace that a selector matches, with the number of its pods on each node."""
        labelled_pods = self._pods_by_namespace.get(namespace)
        if labelled_pods is None:
            return
        for labels in labelled_pods.index.find_candidates(selector):
            if selector.matches(dict(labels)):
                yield dict(labels), labelled_pods.not_terminating[labels]
                if include_terminating:
                    yield dict(labels), labelled_pods.terminating[labels]

    def get_namespaces(self) -> list[str]:
        """Return the namespaces of pods on nodes."""
        return list(self._pods_by_namespace)

    def find_anti_affinity_against(
        self, namespace: str, labels: Mapping[str, str]
    ) -> Iterator[tuple[PodAffinityTerm, Counter[str]]]:
        """Yield each anti-affinity term that may match such a pod, with the number of its holders on each node."""
        found = dict.fromkeys(self._terms_by_selector.find_candidates(labels))
        if namespace in self._terms_on_namespace:
            found |= dict.fromkeys(self._terms_on_namespace[namespace].find_candidates(labels))
        for term in found:
            yield term, self._terms[term]

    def _count(self, pod: Pod, node: str, step: int) -> None:
        self._pods_by_namespace[pod.namespace].count(pod, node, step)
        for term in pod.constraints.anti_affinity:
            if term not in self._terms:
                self._index_term(term)
            self._terms[term][node] += step
        for claim in pod.constraints.claims:
            self._claims[(pod.namespace, claim)][node] += step

    def _index_term(self, term: PodAffinityTerm) -> None:
        self._terms[term] = Counter()
        if term.selector is None:
            return
        for namespace in term.namespaces:
            self._terms_on_namespace[namespace].add(term.selector, term)
        if term.namespace_selector is not None:
            self._terms_by_selector.add(term.selector, term)


class _LabelledPods:
    """The pods of a namespace by their labels: how many are on each node, terminating ones separately."""

    def __init__(self) -> None:
        self.index: LabelIndex[Labels] = LabelIndex()
        self.not_terminating: dict[Labels, Counter[str]] = {}
        self.terminating: dict[Labels, Counter[str]] = {}

    def count(self, pod: Pod, node: str, step: int) -> None:
        """Add (step 1) or remove (step -1) a pod."""
        labels = frozenset(pod.labels.items())
        if labels not in self.not_terminating:
            self.not_terminating[labels], self.terminating[labels] = Counter(), Counter()
            self.index.add(labels, labels)
        (self.terminating if pod.terminating else self.not_terminating)[labels][node] += step

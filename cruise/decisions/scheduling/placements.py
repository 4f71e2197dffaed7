"""Which pods are on which nodes while a plan is replayed, indexed by node, by namespace and labels, and by term."""

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

# Which volumes are attached to nodes, as kube-scheduler's NodeVolumeLimits counts them.


def get_attached_volumes(claims: Iterable[PersistentVolumeClaim | None]) -> set[AttachedVolume]:
    """Return what a pod with these claims has attached to its node."""
    return {
        (claim.driver, claim.volume or f"{claim.namespace}/{claim.name}")
        for claim in claims
        if claim is not None and claim.driver is not None
    }


def get_attached_volumes_of_running_pod(surroundings: StorageAndNamespaces, pod: Pod) -> set[AttachedVolume]:
    """Return what a pod has attached to the node that it is on."""
    return get_attached_volumes(surroundings.claims.get((pod.namespace, name)) for name in pod.constraints.claims)


def find_leftover_attachments(snapshot: ClusterSnapshot) -> Mapping[str, frozenset[AttachedVolume]]:
    """Return by node the volumes that VolumeAttachments still name and that no pod there uses any more.

    A volume that a pod there uses is detached once that pod is gone, so it counts with the pod alone.
    """
    attached = snapshot.storage_and_namespaces.attached
    if not attached:
        return {}
    used: defaultdict[str, set[AttachedVolume]] = defaultdict(set)
    for pod in snapshot.pods:
        if pod.constraints.claims and pod.node is not None and pod.node in attached and not pod.is_finished:
            used[pod.node] |= get_attached_volumes_of_running_pod(snapshot.storage_and_namespaces, pod)
    return {node: left for node, volumes in attached.items() if (left := volumes - used[node])}


# Which selectors may select given labels, and which labels a selector may select, without trying every pair. Both only leave out what cannot match: the selector itself decides about the rest.

Labels = frozenset[tuple[str, str]]
Item = TypeVar("Item")


def get_required_labels(selector: LabelSelector) -> list[list[tuple[str, str]]]:
    """For each requirement of a selector that names values, the labels of which it needs one."""
    return [
        [(requirement.key, value) for value in requirement.values]
        for requirement in selector.requirements
        if requirement.operator is SelectorOperator.IN
    ]


class SelectorIndex(Generic[Item]):
    """Things with a selector, found by labels."""

    def __init__(self) -> None:
        self._by_label: defaultdict[tuple[str, str], dict[Item, None]] = defaultdict(dict)
        self._by_none: dict[Item, None] = {}

    def add(self, selector: LabelSelector, item: Item) -> None:
        """Remember an item."""
        choices = get_required_labels(selector)
        if not choices:
            self._by_none[item] = None
            return
        # Mostly one label tells selectors apart, and they share the others.
        for label in min(choices, key=self._crowd):
            self._by_label[label][item] = None

    def candidates(self, labels: Mapping[str, str]) -> Iterator[Item]:
        """The items whose selector may select the labels, each once."""
        found = dict(self._by_none)
        for label in labels.items():
            if label in self._by_label:
                found |= self._by_label[label]
        return iter(found)

    def _crowd(self, labels: Sequence[tuple[str, str]]) -> int:
        return sum(len(self._by_label[label]) for label in labels if label in self._by_label)


class LabelIndex(Generic[Item]):
    """Things with labels, found by selectors."""

    def __init__(self) -> None:
        self._all: dict[Item, None] = {}
        self._by_label: defaultdict[tuple[str, str], dict[Item, None]] = defaultdict(dict)

    def add(self, labels: Labels, item: Item) -> None:
        """Remember an item."""
        self._all[item] = None
        for label in labels:
            self._by_label[label][item] = None

    def candidates(self, selector: LabelSelector) -> Iterator[Item]:
        """The items whose labels the selector may select, each once."""
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
    """Namespace and name, by which plans speak of a pod."""
    return (pod.namespace, pod.name)


def is_waiting_for_scheduling(pod: Pod) -> bool:
    """Tell whether a pod is pending and kube-scheduler may place it."""
    over = pod.is_finished or pod.terminating or pod.scheduling_gated
    return pod.node is None and not over and pod.scheduler == DEFAULT_SCHEDULER


class PodPlacements:
    """The pods that hold room on nodes; finished ones hold none. Terminating pods do until they are gone.

    `left_attached` has by node the volumes that are still attached there for pods that are gone.
    """

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self.nodes: dict[str, Node] = {node.name: node for node in snapshot.nodes}
        self.storage_and_namespaces: StorageAndNamespaces = snapshot.storage_and_namespaces
        self._place: dict[PodKey, str] = {}
        self._on_node: defaultdict[str, dict[PodKey, Pod]] = defaultdict(dict)
        self._crowds: defaultdict[str, _LabelledPods] = defaultdict(_LabelledPods)
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
        """Put a pod on a node."""
        self._place[get_pod_key(pod)] = node
        self._on_node[node][get_pod_key(pod)] = pod
        self._count(pod, node, 1)

    def remove(self, key: PodKey) -> Pod:
        """Take a pod off its node."""
        node = self._place.pop(key)
        pod = self._on_node[node].pop(key)
        self._count(pod, node, -1)
        return pod

    def get_node(self, key: PodKey) -> str | None:
        """The node that a pod is on, None if it is on none."""
        return self._place.get(key)

    def get_pods_on(self, node: str) -> Iterator[Pod]:
        """The pods that hold room on a node."""
        return iter(self._on_node[node].values())

    def get_pods_expected_on(self, node: str, pod: Pod) -> list[Pod]:
        """The nominated pods that kube-scheduler counts on a node as if they were there: none of lower priority."""
        return [
            one
            for one in self._nominated.get(node, ())
            if one.priority >= pod.priority
            and get_pod_key(one) != get_pod_key(pod)
            and get_pod_key(one) not in self._place
        ]

    def get_claim_users(self, claim: PodKey) -> Counter[str]:
        """How many pods on each node use a claim."""
        return +self._claims[claim] if claim in self._claims else Counter()

    def find_matching_groups(
        self, namespace: str, selector: LabelSelector, with_ending: bool
    ) -> Iterator[tuple[dict[str, str], Counter[str]]]:
        """Each set of labels that a selector selects among a namespace's pods, with how many have it on each node."""
        crowd = self._crowds.get(namespace)
        if crowd is None:
            return
        for labels in crowd.index.candidates(selector):
            if selector.matches(dict(labels)):
                yield dict(labels), crowd.not_terminating[labels]
                if with_ending:
                    yield dict(labels), crowd.terminating[labels]

    def namespaces(self) -> list[str]:
        """The namespaces of pods on nodes."""
        return list(self._crowds)

    def find_anti_affinity_against(
        self, namespace: str, labels: Mapping[str, str]
    ) -> Iterator[tuple[PodAffinityTerm, Counter[str]]]:
        """Each anti-affinity term on nodes that may mean such a pod, with how many pods hold it on each."""
        found = dict.fromkeys(self._terms_by_selector.candidates(labels))
        if namespace in self._terms_on_namespace:
            found |= dict.fromkeys(self._terms_on_namespace[namespace].candidates(labels))
        for term in found:
            yield term, self._terms[term]

    def _count(self, pod: Pod, node: str, step: int) -> None:
        self._crowds[pod.namespace].count(pod, node, step)
        for term in pod.constraints.anti_affinity:
            if term not in self._terms:
                self._learn(term)
            self._terms[term][node] += step
        for claim in pod.constraints.claims:
            self._claims[(pod.namespace, claim)][node] += step

    def _learn(self, term: PodAffinityTerm) -> None:
        self._terms[term] = Counter()
        if term.selector is None:
            return
        for namespace in term.namespaces:
            self._terms_on_namespace[namespace].add(term.selector, term)
        if term.namespace_selector is not None:
            self._terms_by_selector.add(term.selector, term)


class _LabelledPods:
    """The pods of one namespace, those with the same labels together: how many on each node, ending ones apart."""

    def __init__(self) -> None:
        self.index: LabelIndex[Labels] = LabelIndex()
        self.not_terminating: dict[Labels, Counter[str]] = {}
        self.terminating: dict[Labels, Counter[str]] = {}

    def count(self, pod: Pod, node: str, step: int) -> None:
        """Add or take a pod."""
        labels = frozenset(pod.labels.items())
        if labels not in self.not_terminating:
            self.not_terminating[labels], self.terminating[labels] = Counter(), Counter()
            self.index.add(labels, labels)
        (self.terminating if pod.terminating else self.not_terminating)[labels][node] += step

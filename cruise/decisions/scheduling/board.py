"""Which pods are on which nodes while a plan is replayed, indexed by node, by namespace and labels, and by term."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from cruise.decisions.scheduling.attachments import left_attached
from cruise.decisions.scheduling.lookup import LabelIndex, Labels, SelectorIndex
from cruise.domain.cluster import DEFAULT_SCHEDULER, Node, Pod, Snapshot
from cruise.domain.colocation import PodTerm, Surroundings
from cruise.domain.scheduling import LabelSelector

PodKey = tuple[str, str]


def key_of(pod: Pod) -> PodKey:
    """Namespace and name, by which plans speak of a pod."""
    return (pod.namespace, pod.name)


def waits_for_a_node(pod: Pod) -> bool:
    """Tell whether a pod is pending and kube-scheduler may place it."""
    over = pod.terminal or pod.terminating or pod.scheduling_gated
    return pod.node is None and not over and pod.scheduler == DEFAULT_SCHEDULER


class Board:
    """The pods that hold room on nodes; finished ones hold none. Terminating pods do until they are gone.

    `left_attached` has by node the volumes that are still attached there for pods that are gone.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.nodes: dict[str, Node] = {node.name: node for node in snapshot.nodes}
        self.surroundings: Surroundings = snapshot.surroundings
        self._place: dict[PodKey, str] = {}
        self._on_node: defaultdict[str, dict[PodKey, Pod]] = defaultdict(dict)
        self._crowds: defaultdict[str, _Crowd] = defaultdict(_Crowd)
        self._terms: dict[PodTerm, Counter[str]] = {}
        self._terms_on_namespace: defaultdict[str, SelectorIndex[PodTerm]] = defaultdict(SelectorIndex)
        self._terms_by_selector: SelectorIndex[PodTerm] = SelectorIndex()
        self._claims: defaultdict[PodKey, Counter[str]] = defaultdict(Counter)
        self._nominated: defaultdict[str, list[Pod]] = defaultdict(list)
        self.left_attached = left_attached(snapshot)
        for pod in snapshot.pods:
            if pod.nominated_node and waits_for_a_node(pod):
                self._nominated[pod.nominated_node].append(pod)
            if pod.node is not None and not pod.terminal:
                self.add(pod, pod.node)

    def add(self, pod: Pod, node: str) -> None:
        """Put a pod on a node."""
        self._place[key_of(pod)] = node
        self._on_node[node][key_of(pod)] = pod
        self._count(pod, node, 1)

    def remove(self, key: PodKey) -> Pod:
        """Take a pod off its node."""
        node = self._place.pop(key)
        pod = self._on_node[node].pop(key)
        self._count(pod, node, -1)
        return pod

    def place_of(self, key: PodKey) -> str | None:
        """The node that a pod is on, None if it is on none."""
        return self._place.get(key)

    def pods_on(self, node: str) -> Iterator[Pod]:
        """The pods that hold room on a node."""
        return iter(self._on_node[node].values())

    def expected_on(self, node: str, pod: Pod) -> list[Pod]:
        """The nominated pods that kube-scheduler counts on a node as if they were there: none of lower priority."""
        return [
            one
            for one in self._nominated.get(node, ())
            if one.priority >= pod.priority and key_of(one) != key_of(pod) and key_of(one) not in self._place
        ]

    def users_of(self, claim: PodKey) -> Counter[str]:
        """How many pods on each node use a claim."""
        return +self._claims[claim] if claim in self._claims else Counter()

    def crowds_selected(
        self, namespace: str, selector: LabelSelector, with_ending: bool
    ) -> Iterator[tuple[dict[str, str], Counter[str]]]:
        """Each set of labels that a selector selects among a namespace's pods, with how many have it on each node."""
        crowd = self._crowds.get(namespace)
        if crowd is None:
            return
        for labels in crowd.index.candidates(selector):
            if selector.selects(dict(labels)):
                yield dict(labels), crowd.staying[labels]
                if with_ending:
                    yield dict(labels), crowd.ending[labels]

    def namespaces(self) -> list[str]:
        """The namespaces of pods on nodes."""
        return list(self._crowds)

    def anti_affinity_against(
        self, namespace: str, labels: Mapping[str, str]
    ) -> Iterator[tuple[PodTerm, Counter[str]]]:
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

    def _learn(self, term: PodTerm) -> None:
        self._terms[term] = Counter()
        if term.selector is None:
            return
        for namespace in term.namespaces:
            self._terms_on_namespace[namespace].add(term.selector, term)
        if term.namespace_selector is not None:
            self._terms_by_selector.add(term.selector, term)


class _Crowd:
    """The pods of one namespace, those with the same labels together: how many on each node, ending ones apart."""

    def __init__(self) -> None:
        self.index: LabelIndex[Labels] = LabelIndex()
        self.staying: dict[Labels, Counter[str]] = {}
        self.ending: dict[Labels, Counter[str]] = {}

    def count(self, pod: Pod, node: str, step: int) -> None:
        """Add or take a pod."""
        labels = frozenset(pod.labels.items())
        if labels not in self.staying:
            self.staying[labels], self.ending[labels] = Counter(), Counter()
            self.index.add(labels, labels)
        (self.ending if pod.terminating else self.staying)[labels][node] += step

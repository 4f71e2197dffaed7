"""Which pods are on which nodes while a plan is replayed, indexed by node, by namespace and labels, and by term."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from cruise.domain.cluster import Node, Pod, Snapshot
from cruise.domain.colocation import PodTerm, Surroundings

PodKey = tuple[str, str]
Labels = frozenset[tuple[str, str]]


def key_of(pod: Pod) -> PodKey:
    """Namespace and name, by which plans speak of a pod."""
    return (pod.namespace, pod.name)


class Board:
    """The pods that hold room on nodes; finished ones hold none. Terminating pods do until they are gone."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.nodes: dict[str, Node] = {node.name: node for node in snapshot.nodes}
        self.surroundings: Surroundings = snapshot.surroundings
        self._place: dict[PodKey, str] = {}
        self._on_node: defaultdict[str, dict[PodKey, Pod]] = defaultdict(dict)
        self._crowds: defaultdict[str, dict[Labels, Counter[str]]] = defaultdict(dict)
        self._ending: defaultdict[str, dict[Labels, Counter[str]]] = defaultdict(dict)
        self._terms: dict[PodTerm, Counter[str]] = {}
        self._terms_on_namespace: defaultdict[str, dict[PodTerm, None]] = defaultdict(dict)
        self._terms_by_selector: dict[PodTerm, None] = {}
        self._claims: Counter[PodKey] = Counter()
        for pod in snapshot.pods:
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

    def users_of(self, claim: PodKey) -> int:
        """How many pods on nodes use a claim."""
        return self._claims[claim]

    def crowds_in(self, namespace: str, with_ending: bool) -> Iterator[tuple[dict[str, str], Counter[str]]]:
        """Each set of labels among a namespace's pods on nodes, with how many pods have it on each node."""
        for labels, nodes in self._crowds[namespace].items():
            yield dict(labels), nodes
        if with_ending:
            for labels, nodes in self._ending[namespace].items():
                yield dict(labels), nodes

    def namespaces(self) -> list[str]:
        """The namespaces of pods on nodes."""
        return [*self._crowds, *(self._ending.keys() - self._crowds.keys())]

    def anti_affinity_against(self, namespace: str) -> Iterator[tuple[PodTerm, Counter[str]]]:
        """Each anti-affinity term on nodes that may mean pods of a namespace, with how many pods hold it on each."""
        for term in self._terms_on_namespace[namespace] | self._terms_by_selector:
            yield term, self._terms[term]

    def _count(self, pod: Pod, node: str, step: int) -> None:
        crowds = self._ending if pod.terminating else self._crowds
        crowds[pod.namespace].setdefault(frozenset(pod.labels.items()), Counter())[node] += step
        for term in pod.constraints.anti_affinity:
            self._terms.setdefault(term, Counter())[node] += step
            for namespace in term.namespaces:
                self._terms_on_namespace[namespace][term] = None
            if term.namespace_selector is not None:
                self._terms_by_selector[term] = None
        for claim in pod.constraints.claims:
            self._claims[(pod.namespace, claim)] += step

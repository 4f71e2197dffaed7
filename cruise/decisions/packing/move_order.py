"""Simulates the placements while a plan is carried out, and queues the pods that must leave or arrive."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

import numpy as np

from cruise.domain.arrays import Int64Array
from cruise.packer.problem import PackingProblem
from cruise.packer.rules.by_class import RulesByClass, build_rules_by_class
from cruise.packer.rules.domain_counts import RuleCounts
from cruise.packer.rules.preemption import violates_preemption_policy


@dataclass(frozen=True, slots=True, eq=False)
class PodChanges:
    """Pods by index, ascending: `placed` were pending, `moved` ran elsewhere, `preempted` lose their place."""

    pod_node: Int64Array
    placed: tuple[int, ...]
    moved: tuple[int, ...]
    preempted: tuple[int, ...]


def match_pods_to_places(problem: PackingProblem, pod_node: Int64Array) -> PodChanges:
    """Assign the places of a packing to pods of the same class so that most stay, and fewest are preempted.

    A solver may have exchanged pods of a class, which it does not distinguish.
    """
    target = problem.pod_node.copy()
    changed = np.unique(problem.pod_class[pod_node != problem.pod_node])
    pods_of_changed = np.flatnonzero(np.isin(problem.pod_class, changed))
    by_class: dict[int, list[int]] = defaultdict(list)
    for pod, pod_class in zip(pods_of_changed.tolist(), problem.pod_class[pods_of_changed].tolist(), strict=True):
        by_class[pod_class].append(pod)
    for pods in by_class.values():
        _match_class(pods, problem.pod_node, pod_node, target)
    if violates_preemption_policy(problem, target):
        # Then pods are distinguished by the node that they leave.
        target = pod_node
    return find_pod_changes(problem, target)


def find_pod_changes(problem: PackingProblem, pod_node: Int64Array) -> PodChanges:
    """Return which pods are placed, moved and preempted by an assignment."""
    before, after = problem.pod_node, pod_node
    return PodChanges(
        pod_node=pod_node,
        placed=tuple(np.flatnonzero((before < 0) & (after >= 0)).tolist()),
        moved=tuple(np.flatnonzero((before >= 0) & (after >= 0) & (before != after)).tolist()),
        preempted=tuple(np.flatnonzero((before >= 0) & (after < 0)).tolist()),
    )


def _match_class(pods: list[int], before: Int64Array, wanted: Int64Array, target: Int64Array) -> None:
    places: dict[int, int] = defaultdict(int)
    for pod in pods:
        if wanted[pod] >= 0:
            places[int(wanted[pod])] += 1
    waiting: list[int] = []
    # A pod that the solver leaves in place comes first, because its name may be in the report.
    for pod in sorted(pods, key=lambda pod: wanted[pod] != before[pod]):
        node = int(before[pod])
        if node >= 0 and places[node] > 0:
            places[node] -= 1
            target[pod] = node
        else:
            waiting.append(pod)
    unmatched: list[int] = []
    for pod in sorted(waiting, key=lambda pod: (before[pod] < 0, wanted[pod] < 0, pod)):
        node = int(wanted[pod])
        if before[pod] >= 0 and node >= 0 and places[node] > 0:
            places[node] -= 1
            target[pod] = node
        else:
            unmatched.append(pod)
    # Running pods first: then a pod moves instead of being preempted. The solver decides from which nodes pods are
    # preempted, because not every pod may profit from that.
    free_places = [node for node in sorted(places) for _ in range(places[node])]
    for number, pod in enumerate(unmatched):
        target[pod] = free_places[number] if number < len(free_places) else -1


# The first columns are CPU, memory and pod slots, which depend on decided sizes.
_SIZED_COLUMNS = 3


class InterimPlacement:
    """The node of each pod at a moment of a plan, the use of each node, and the counts for rules between pods.

    `current[pod, resource]` is what a pod counts for on its first node, `on_target` wherever it arrives.
    """

    def __init__(
        self, problem: PackingProblem, arriving: frozenset[int], current: Int64Array, on_target: Int64Array
    ) -> None:
        self._problem = problem
        self._current = current
        self._on_target = on_target
        self._source: list[int] = problem.pod_node.tolist()
        self._class_of: list[int] = problem.pod_class.tolist()
        self.node_of: list[int] = list(self._source)
        rules = build_rules_by_class(problem)
        self._counts = RuleCounts(problem, rules, problem.pod_node)
        self._depends_on = {pod_class: _depends_on(rules, pod_class) for pod_class in arriving}
        self._dependents: dict[int, set[int]] = {}
        for pod_class, others in self._depends_on.items():
            for other in others:
                self._dependents.setdefault(other, set()).add(pod_class)
        # In the columns after these, headroom is what the pods of a node need once together.
        self._shared_once = problem.headroom[:, _SIZED_COLUMNS:]
        self._sharing_count = np.zeros_like(problem.capacities[:, _SIZED_COLUMNS:]) if self._shared_once.any() else None
        self._used = np.zeros_like(problem.capacities)
        running = problem.pod_node >= 0
        np.add.at(self._used, problem.pod_node[running], current[running])
        if self._sharing_count is not None:
            np.add.at(self._sharing_count, problem.pod_node[running], self._shared_once[problem.pod_class[running]])
        self._count_on_node = Counter(
            (pod_class, node)
            for pod_class, node in zip(self._class_of, self.node_of, strict=True)
            if node >= 0 and pod_class in arriving
        )

    def get_class(self, pod: int) -> int:
        """Return the class of a pod."""
        return self._class_of[pod]

    def get_dependencies(self, pod_class: int) -> Set[int]:
        """Return the classes whose pods may decide whether a pod of this class is accepted."""
        return self._depends_on.get(pod_class, frozenset())

    def get_dependents(self, pod_class: int) -> Set[int]:
        """Return the classes whose acceptance may depend on pods of this class."""
        return self._dependents.get(pod_class, frozenset())

    def evict(self, pod: int) -> None:
        """Remove a pod from its node."""
        self._counts.evict(pod)
        self._change(pod, self.node_of[pod], -1)
        self.node_of[pod] = -1

    def place(self, pod: int, node: int) -> None:
        """Put a pod on a node."""
        self.node_of[pod] = node
        self._counts.place(pod, node)
        self._change(pod, node, 1)

    def accepts(self, pod: int, node: int) -> bool:
        """Return whether kube-scheduler's filters would accept the pod on the node now."""
        pod_class, problem = self._class_of[pod], self._problem
        requests = self._on_target[pod]
        if not problem.allowed_nodes[problem.node_mask_of_class[pod_class], node]:
            return False
        if ((self._used[node] + requests > problem.capacities[node]) & (requests > 0)).any():
            return False
        if self._sharing_count is not None and self._lacks_shared(pod_class, node, requests[_SIZED_COLUMNS:]):
            return False
        if self._count_on_node[pod_class, node] >= problem.max_on_node[pod_class]:
            return False
        return self._counts.allows(pod_class, node)

    def _lacks_shared(self, pod_class: int, node: int, requests: Int64Array) -> bool:
        """Return whether shared resources are too small with one more pod of the class."""
        assert self._sharing_count is not None
        shared = self._shared_once[pod_class]
        once = (self._sharing_count[node] + shared) > 0
        exceeded = self._used[node, _SIZED_COLUMNS:] + requests + once > self._problem.capacities[node, _SIZED_COLUMNS:]
        return bool((exceeded & ((requests > 0) | (shared > 0))).any())

    def _change(self, pod: int, node: int, sign: int) -> None:
        pod_class = self._class_of[pod]
        amounts = self._current if node == self._source[pod] else self._on_target
        self._used[node] += sign * amounts[pod]
        if self._sharing_count is not None:
            self._sharing_count[node] += sign * self._shared_once[pod_class]
        self._count_on_node[pod_class, node] += sign


def _depends_on(rules: RulesByClass, pod_class: int) -> frozenset[int]:
    named = [others for _, _, others in rules.excluded.get(pod_class, ())]
    named += [rule.targets for _, rule in rules.attracted.get(pod_class, ())]
    named += [rule.targets for _, rule in rules.spread.get(pod_class, ())]
    return frozenset(other for others in named for other in others.tolist())


class MoveQueue:
    """The pods, by index, that must still leave or arrive, with their nodes; arrivals are in order of importance."""

    def __init__(self, interim: InterimPlacement, changes: PodChanges, priorities: Sequence[int]) -> None:
        self._interim = interim
        self.target: list[int] = changes.pod_node.tolist()
        self.to_move = frozenset(changes.moved)
        arriving = [*changes.placed, *changes.moved]
        # Pending pods come before running ones.
        arriving.sort(key=lambda pod: (-priorities[pod], pod in self.to_move, pod))
        self._rank = {pod: rank for rank, pod in enumerate(arriving)}
        self.to_place = dict.fromkeys(arriving)
        self.to_evict = dict.fromkeys([*changes.preempted, *changes.moved])
        self.source = {pod: interim.node_of[pod] for pod in self.to_evict}
        self._arriving_on_node, self._arriving_of_class = (
            defaultdict[int, set[int]](set),
            defaultdict[int, set[int]](set),
        )
        for pod in arriving:
            self._arriving_on_node[self.target[pod]].add(pod)
            self._arriving_of_class[interim.get_class(pod)].add(pod)
        self._leaving_of_class, self._leaving_node = (
            defaultdict[int, list[int]](list),
            defaultdict[int, list[int]](list),
        )
        for pod, node in self.source.items():
            self._leaving_of_class[interim.get_class(pod)].append(pod)
            self._leaving_node[node].append(pod)

    def complete(self, pod: int) -> None:
        """Remove a pod that has left or arrived."""
        self.to_evict.pop(pod, None)
        if pod in self.to_place:
            del self.to_place[pod]
            self._arriving_on_node[self.target[pod]].discard(pod)
            self._arriving_of_class[self._interim.get_class(pod)].discard(pod)

    def get_in_order(self, pods: Iterable[int]) -> list[int]:
        """Return which of the pods must still arrive, the most important first."""
        return sorted(set(pods) & self.to_place.keys(), key=self._rank.__getitem__)

    def get_unblocked_by(self, pods: Iterable[int]) -> set[int]:
        """Return the pods that may be accepted now that these pods have left or arrived."""
        unblocked: set[int] = set()
        for pod in pods:
            unblocked |= self._arriving_on_node[self.source.get(pod, -1)]
            for pod_class in self._interim.get_dependents(self._interim.get_class(pod)):
                unblocked |= self._arriving_of_class[pod_class]
        return unblocked

    def get_pods_leaving_node(self, node: int) -> list[int]:
        """Return the pods that must still leave a node."""
        self._leaving_node[node] = [pod for pod in self._leaving_node[node] if pod in self.to_evict]
        return self._leaving_node[node]

    def get_pods_of_class_leaving(self, pod_class: int) -> list[int]:
        """Return the pods of a class that must still leave their nodes."""
        return [pod for pod in self._leaving_of_class[pod_class] if pod in self.to_evict]

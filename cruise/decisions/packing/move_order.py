"""Which pods are on which node while a plan is carried out, and whether one more pod would be let in."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

import numpy as np

from cruise.domain.resources import Int64Array
from cruise.packer.problem import PackingProblem
from cruise.packer.rules.by_class import RulesByClass, build_rules_by_class
from cruise.packer.rules.domain_counts import RuleCounts
from cruise.packer.rules.preemption import has_undue_profit

# Which pod goes where, once it is known how many of a class are on each node.


@dataclass(frozen=True, slots=True, eq=False)
class PodChanges:
    """Pods by index, ascending: `placed` were pending, `moved` ran elsewhere, `preempted` lose their place."""

    pod_node: Int64Array
    placed: tuple[int, ...]
    moved: tuple[int, ...]
    preempted: tuple[int, ...]


def match_pods_to_places(problem: PackingProblem, pod_node: Int64Array) -> PodChanges:
    """Give a packing's places to pods of the same class so that the most stay, and then as few as can are preempted.

    A solver may have exchanged pods of a class with each other: they are all the same to it.
    """
    target = problem.pod_node.copy()
    changed = np.unique(problem.pod_class[pod_node != problem.pod_node])
    mine = np.flatnonzero(np.isin(problem.pod_class, changed))
    by_class: dict[int, list[int]] = defaultdict(list)
    for pod, pod_class in zip(mine.tolist(), problem.pod_class[mine].tolist(), strict=True):
        by_class[pod_class].append(pod)
    for pods in by_class.values():
        _match_class(pods, problem.pod_node, pod_node, target)
    if has_undue_profit(problem, target):
        # Preempted and moved pods are then told apart by the node that they leave.
        target = pod_node
    return find_pod_changes(problem, target)


def find_pod_changes(problem: PackingProblem, pod_node: Int64Array) -> PodChanges:
    """Say what it takes to get to an assignment, pod by pod."""
    was, now = problem.pod_node, pod_node
    return PodChanges(
        pod_node=pod_node,
        placed=tuple(np.flatnonzero((was < 0) & (now >= 0)).tolist()),
        moved=tuple(np.flatnonzero((was >= 0) & (now >= 0) & (was != now)).tolist()),
        preempted=tuple(np.flatnonzero((was >= 0) & (now < 0)).tolist()),
    )


def _match_class(pods: list[int], was: Int64Array, wanted: Int64Array, target: Int64Array) -> None:
    places: dict[int, int] = defaultdict(int)
    for pod in pods:
        if wanted[pod] >= 0:
            places[int(wanted[pod])] += 1
    waiting: list[int] = []
    # A pod that the solver leaves in place comes first: it may be the one that a person looks for.
    for pod in sorted(pods, key=lambda pod: wanted[pod] != was[pod]):
        node = int(was[pod])
        if node >= 0 and places[node] > 0:
            places[node] -= 1
            target[pod] = node
        else:
            waiting.append(pod)
    rest: list[int] = []
    for pod in sorted(waiting, key=lambda pod: (was[pod] < 0, wanted[pod] < 0, pod)):
        node = int(wanted[pod])
        if was[pod] >= 0 and node >= 0 and places[node] > 0:
            places[node] -= 1
            target[pod] = node
        else:
            rest.append(pod)
    # Running pods first: a move gives back what a preemption takes. From which nodes something is preempted is the
    # solver's to say, since not every pod may profit from that.
    left = [node for node in sorted(places) for _ in range(places[node])]
    for place, pod in enumerate(rest):
        target[pod] = left[place] if place < len(left) else -1


# CPU, memory and places: what each pod takes for itself, or by sizes that are decided.
_SIZED = 3


class InterimPlacement:
    """The moment: where each pod is, what is taken on each node, and the counts of rules between pods.

    `now[pod, resource]` is what a pod counts for where it is at first, `there` wherever it arrives.
    """

    def __init__(self, problem: PackingProblem, arriving: frozenset[int], now: Int64Array, there: Int64Array) -> None:
        self._problem = problem
        self._now = now
        self._there = there
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
        # Beside CPU and memory, headroom is what pods on a node take once together.
        self._shares = problem.headroom[:, _SIZED:]
        self._sharing = np.zeros_like(problem.capacities[:, _SIZED:]) if self._shares.any() else None
        self._used = np.zeros_like(problem.capacities)
        here = problem.pod_node >= 0
        np.add.at(self._used, problem.pod_node[here], now[here])
        if self._sharing is not None:
            np.add.at(self._sharing, problem.pod_node[here], self._shares[problem.pod_class[here]])
        self._copies = Counter(
            (pod_class, node)
            for pod_class, node in zip(self._class_of, self.node_of, strict=True)
            if node >= 0 and pod_class in arriving
        )

    def get_class(self, pod: int) -> int:
        """Return a pod's class."""
        return self._class_of[pod]

    def get_dependencies(self, pod_class: int) -> Set[int]:
        """Return the classes on whose pods the arrival of one of this class may depend."""
        return self._depends_on.get(pod_class, frozenset())

    def get_dependents(self, pod_class: int) -> Set[int]:
        """Return the classes whose arrival may depend on pods of this one."""
        return self._dependents.get(pod_class, frozenset())

    def evict(self, pod: int) -> None:
        """Take a pod off its node."""
        self._counts.evict(pod)
        self._change(pod, self.node_of[pod], -1)
        self.node_of[pod] = -1

    def place(self, pod: int, node: int) -> None:
        """Put a pod on a node."""
        self.node_of[pod] = node
        self._counts.place(pod, node)
        self._change(pod, node, 1)

    def accepts(self, pod: int, node: int) -> bool:
        """Tell whether kube-scheduler's filters would let the pod onto the node now."""
        pod_class, problem = self._class_of[pod], self._problem
        wanted = self._there[pod]
        if not problem.allowed_nodes[problem.node_mask_of_class[pod_class], node]:
            return False
        if ((self._used[node] + wanted > problem.capacities[node]) & (wanted > 0)).any():
            return False
        if self._sharing is not None and self._lacks_for_all(pod_class, node, wanted[_SIZED:]):
            return False
        if self._copies[pod_class, node] >= problem.max_on_node[pod_class]:
            return False
        return self._counts.allows(pod_class, node)

    def _lacks_for_all(self, pod_class: int, node: int, wanted: Int64Array) -> bool:
        """Tell whether what pods share is too much beside the rest, once one of the class is among them."""
        assert self._sharing is not None
        shares = self._shares[pod_class]
        once = (self._sharing[node] + shares) > 0
        over = self._used[node, _SIZED:] + wanted + once > self._problem.capacities[node, _SIZED:]
        return bool((over & ((wanted > 0) | (shares > 0))).any())

    def _change(self, pod: int, node: int, by: int) -> None:
        pod_class = self._class_of[pod]
        amounts = self._now if node == self._source[pod] else self._there
        self._used[node] += by * amounts[pod]
        if self._sharing is not None:
            self._sharing[node] += by * self._shares[pod_class]
        self._copies[pod_class, node] += by


def _depends_on(rules: RulesByClass, pod_class: int) -> frozenset[int]:
    named = [others for _, _, others in rules.excluded.get(pod_class, ())]
    named += [rule.targets for _, rule in rules.attracted.get(pod_class, ())]
    named += [rule.targets for _, rule in rules.spread.get(pod_class, ())]
    return frozenset(other for others in named for other in others.tolist())


# What is left to do of a plan: the pods that are to arrive and to leave, and where they come from and go.


class MoveQueue:
    """Pods by index. `waiting` ones arrive, the most important first; `leaving` those still on their old nodes."""

    def __init__(self, standing: InterimPlacement, changes: PodChanges, priorities: Sequence[int]) -> None:
        self._standing = standing
        self.target: list[int] = changes.pod_node.tolist()
        self.to_move = frozenset(changes.moved)
        waiting = [*changes.placed, *changes.moved]
        # Pending ones come before those that run already.
        waiting.sort(key=lambda pod: (-priorities[pod], pod in self.to_move, pod))
        self._rank = {pod: rank for rank, pod in enumerate(waiting)}
        self.to_place = dict.fromkeys(waiting)
        self.to_evict = dict.fromkeys([*changes.preempted, *changes.moved])
        self.source = {pod: standing.node_of[pod] for pod in self.to_evict}
        self._to_node, self._of_class = defaultdict[int, set[int]](set), defaultdict[int, set[int]](set)
        for pod in waiting:
            self._to_node[self.target[pod]].add(pod)
            self._of_class[standing.get_class(pod)].add(pod)
        self._leaving_of_class, self._from_node = defaultdict[int, list[int]](list), defaultdict[int, list[int]](list)
        for pod, node in self.source.items():
            self._leaving_of_class[standing.get_class(pod)].append(pod)
            self._from_node[node].append(pod)

    def complete(self, pod: int) -> None:
        """Strike off a pod that has left, or arrived."""
        self.to_evict.pop(pod, None)
        if pod in self.to_place:
            del self.to_place[pod]
            self._to_node[self.target[pod]].discard(pod)
            self._of_class[self._standing.get_class(pod)].discard(pod)

    def get_in_order(self, pods: Iterable[int]) -> list[int]:
        """Return those of the pods that still wait, the most important first."""
        return sorted(set(pods) & self.to_place.keys(), key=self._rank.__getitem__)

    def get_unblocked_by(self, pods: Iterable[int]) -> set[int]:
        """Return the waiting pods that may be let in now that some pods have changed places."""
        found: set[int] = set()
        for pod in pods:
            found |= self._to_node[self.source.get(pod, -1)]
            for pod_class in self._standing.get_dependents(self._standing.get_class(pod)):
                found |= self._of_class[pod_class]
        return found

    def get_leaving_node(self, node: int) -> list[int]:
        """Return the pods that are still to leave a node."""
        self._from_node[node] = [pod for pod in self._from_node[node] if pod in self.to_evict]
        return self._from_node[node]

    def get_leaving_class(self, pod_class: int) -> list[int]:
        """Return the pods of a class that are still to leave their nodes."""
        return [pod for pod in self._leaving_of_class[pod_class] if pod in self.to_evict]

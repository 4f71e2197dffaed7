"""The best plan of a tiny cluster by exhaustive search over the domain's objects.

A plan is valid if every pod that arrives is let in by kube-scheduler with everything else in its final place, if
required affinity has an order in which each pod finds its neighbours, and if cruise may take away whom it takes away.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from cruise.decisions.packing.eviction_rules import EvictionRules
from cruise.decisions.packing.plan_replay import BaseAndHeadroom
from cruise.decisions.packing.verification import FULL_MODE_POLICY
from cruise.decisions.scheduling.filters import check_host_ports, check_volumes
from cruise.decisions.scheduling.placements import PodKey, PodPlacements, get_pod_key, is_waiting_for_scheduling
from cruise.decisions.scheduling.pod_affinity import SchedulerFilters, check_affinity, check_anti_affinity
from cruise.domain.annotations import HOSTNAME, EffectivePolicy
from cruise.domain.cluster import ClusterSnapshot, Container, Pod
from cruise.domain.packing_plan import UNLIMITED, EvictionAllowance
from cruise.domain.pod_resources import accepts_pod_despite_cordon, count_pod_requests
from cruise.domain.policy import EvictionRanking
from cruise.domain.resources import NO_RESOURCES, Resources, StatedResources
from cruise.packer.problem import PackingObjective

Key = tuple[int, ...]
Places = dict[PodKey, str | None]
Demands = Mapping[PodKey, BaseAndHeadroom]


@dataclass(frozen=True)
class BestPlan:
    """The best key of the objective, and a plan that has it."""

    key: Key
    places: Places


def best_plan(
    snapshot: ClusterSnapshot,
    objective: PackingObjective,
    demands: Demands | None = None,
    *,
    still: bool = False,
    allowance: EvictionAllowance = UNLIMITED,
) -> BestPlan:
    """The best valid plan within an allowance; with `still` among those that leave every running pod where it is."""
    return _Search(snapshot, objective, demands, still=still, allowance=allowance).best()


def can_be_placed(
    snapshot: ClusterSnapshot, pod: PodKey, objective: PackingObjective, demands: Demands | None = None
) -> bool:
    """Return whether any valid plan places a pod, at whatever price."""
    return _Search(snapshot, objective, demands, pod).best().key == (1,)


def key_of_now(snapshot: ClusterSnapshot, objective: PackingObjective) -> Key:
    """The key of leaving everything as it is."""
    search = _Search(snapshot, objective, None)
    return search.key({get_pod_key(pod): pod.node for pod in search.pods})


def is_single(snapshot: ClusterSnapshot, pod: Pod) -> bool:
    """Return whether a pod is one of a kind: of a StatefulSet, of no workload, or the only replica."""
    if pod.workload is None or pod.workload.kind == "StatefulSet":
        return True
    workload = snapshot.workloads.get((pod.namespace, pod.workload))
    replicas = None if workload is None else workload.replicas
    if replicas is None:
        alike = [p for p in snapshot.pods if (p.namespace, p.workload) == (pod.namespace, pod.workload)]
        replicas = sum(not other.is_finished for other in alike)
    return replicas <= 1


class _Search:
    """Depth first over pods by priority, cut off where even the rest at its best would not be better."""

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        objective: PackingObjective,
        demands: Demands | None,
        target: PodKey | None = None,
        still: bool = False,
        allowance: EvictionAllowance = UNLIMITED,
    ) -> None:
        self.still = still
        self.allowance = allowance
        self.snapshot = snapshot
        self.objective = objective
        self.target = target
        self.leaving = EvictionRules(snapshot, FULL_MODE_POLICY, {})
        self.nodes = {node.name: node for node in snapshot.nodes}
        taken = [pod for pod in snapshot.pods if self._takes_part(pod)]
        self.tiers = sorted({pod.priority for pod in taken}, reverse=True)
        self.top = max((pod.priority for pod in taken if pod.node is None and pod.may_preempt), default=None)
        self.sized = demands or {}
        # Those that cannot go anywhere first, since all others have to bear with them.
        free = {get_pod_key(pod): len(self._choices(pod)) > 1 for pod in taken}
        self.pods = sorted(taken, key=lambda p: (not free[get_pod_key(p)], p.priority, p.node is not None))[::-1]
        self.compute_demand = {get_pod_key(pod): self.sized.get(get_pod_key(pod)) or _fixed(pod) for pod in self.pods}
        self.choices = [self._choices(pod) for pod in self.pods]
        self.budgets = [
            {(b.namespace, b.name) for b in self.leaving.disruption_budgets.find_for_pod(pod)} for pod in self.pods
        ]
        self.allowed = {(b.namespace, b.name): b.disruptions_allowed for b in snapshot.budgets}
        self.twins = [self._twin(number) for number in range(len(self.pods))]
        self.gains = [
            {choice: self._gain(pod, choice) for choice in choices}
            for pod, choices in zip(self.pods, self.choices, strict=True)
        ]
        self.clashes: dict[tuple[int, str, int, str], bool] = {}
        self.found: BestPlan | None = None

    def best(self) -> BestPlan:
        """Try all."""
        width = len(self._gain(self.pods[0], None)) if self.pods else len(self._nothing())
        ceilings: list[Key] = [(0,) * width]
        for gains in self.gains[::-1]:
            columns = zip(*gains.values(), strict=True)
            ceilings.append(tuple(a + max(column) for a, column in zip(ceilings[-1], columns, strict=True)))
        self.ceilings = ceilings[::-1]
        self._descend(0, {}, (0,) * width)
        assert self.found is not None
        return self.found

    def key(self, places: Places) -> Key:
        """The objective's key of a plan."""
        total: Key = self._nothing()
        for pod in self.pods:
            total = _add(total, self._gain(pod, places[get_pod_key(pod)]))
        return total

    def _takes_part(self, pod: Pod) -> bool:
        if pod.node is not None:
            return not pod.is_finished and pod.node in self.nodes
        # No plan decides about a pod whose rules concern unknown nodes.
        is_open = is_waiting_for_scheduling(pod) and not self._depends_on_unknown_nodes(pod)
        return is_open and self.leaving.explain_unusable_claims(pod) is None

    def _choices(self, pod: Pod) -> list[str | None]:
        elsewhere = [name for name in self.nodes if name != pod.node]
        if self._depends_on_unknown_nodes(pod):
            return [pod.node]
        if pod.node is None:
            return [*self._open_to(pod, elsewhere), None]
        if self.still or self.leaving.explain_not_evictable(pod) is not None:
            return [pod.node]
        paper = self.objective is PackingObjective.PAPER
        goes = self.top is not None and (pod.priority < self.top or (paper and pod.priority == self.top))
        may_go: list[str | None] = [None] if goes else []
        return [pod.node, *self._open_to(pod, elsewhere), *may_go]

    def _depends_on_unknown_nodes(self, pod: Pod) -> bool:
        """Return whether its rules, or others' about it, concern pods on nodes whose domains nobody knows."""
        selects = self.snapshot.storage_and_namespaces.term_matches_pod
        for other in self.snapshot.pods:
            if other.node is None or other.node in self.nodes or other.is_finished:
                continue
            spread = other.namespace == pod.namespace and not other.terminating
            if spread and any(one.matches(other.labels) for one in pod.constraints.spread):
                return True
            apart = [term for term in pod.constraints.anti_affinity if term.topology_key != HOSTNAME]
            if any(selects(term, other.namespace, other.labels) for term in (*pod.constraints.affinity, *apart)):
                return True
            apart = [term for term in other.constraints.anti_affinity if term.topology_key != HOSTNAME]
            if any(selects(term, pod.namespace, pod.labels) for term in apart):
                return True
        return False

    def _open_to(self, pod: Pod, names: list[str]) -> Iterator[str]:
        """The nodes that take the pod when they are empty, affinity and spread apart."""
        alone = replace(self._as_sized(pod), constraints=replace(pod.constraints, affinity=(), spread=()))
        scheduler = SchedulerFilters(PodPlacements(replace(self.snapshot, pods=())))
        taking = (name for name in names if accepts_pod_despite_cordon(self.nodes[name], pod))
        return (name for name in taking if not any(scheduler.check(alone, self.nodes[name])))

    def _nothing(self) -> Key:
        if self.target is not None:
            return (0,)
        return (0,) * (2 * len(self.tiers) if self.objective is PackingObjective.PAPER else len(self.tiers) + 1)

    def _gain(self, pod: Pod, place: str | None) -> Key:
        if self.target is not None:
            return (int(get_pod_key(pod) == self.target and place is not None),)
        stays = pod.node is not None and place == pod.node
        if self.objective is PackingObjective.PAPER:
            pairs = [(int(place is not None), int(stays)) if t == pod.priority else (0, 0) for t in self.tiers]
            return tuple(figure for pair in pairs for figure in pair)
        evicted = 0 if pod.node is None or stays else self._weight(pod)
        return (*(int(place is not None and t == pod.priority) for t in self.tiers), -evicted)

    def _weight(self, pod: Pod) -> int:
        guidance = self.leaving.get_effective_policy(pod)
        ranking = guidance.ranking if isinstance(guidance, EffectivePolicy) else None
        if ranking is None:
            alone = is_single(self.snapshot, pod)
            ranking = EvictionRanking.MEDIUM if alone else EvictionRanking.LOW
        more = {EvictionRanking.MEDIUM: 1, EvictionRanking.HIGH: 2}.get(ranking, 0)
        return 1 + more + int(bool(self.leaving.disruption_budgets.find_for_pod(pod)))

    def _twin(self, number: int) -> int | None:
        """The pod before this one that differs in nothing but its name, if both are pending."""
        pod = self.pods[number]
        for before in range(number - 1, -1, -1):
            other = self.pods[before]
            if (
                pod.node is None
                and replace(other, name=pod.name, uid=pod.uid) == pod
                and get_pod_key(other) != self.target
            ):
                same = self.compute_demand[get_pod_key(pod)] == self.compute_demand[get_pod_key(other)]
                return before if same else None
        return None

    def _descend(self, number: int, places: Places, total: Key) -> None:
        if self.found is not None and _add(total, self.ceilings[number]) <= self.found.key:
            return
        if number == len(self.pods):
            if self._valid(places):
                self.found = BestPlan(total, dict(places))
            return
        pod, choices = self.pods[number], self.choices[number]
        twin = self.twins[number]
        if twin is not None:
            choices = self.choices[twin][self.choices[twin].index(places[get_pod_key(self.pods[twin])]) :]
        for choice in choices:
            places[get_pod_key(pod)] = choice
            if self._may_still_hold(number, places):
                self._descend(number + 1, places, _add(total, self.gains[number][choice]))
        del places[get_pod_key(pod)]

    def _may_still_hold(self, number: int, places: Places) -> bool:
        """What cannot get better with more pods: room, and budgets for evictions."""
        pod = self.pods[number]
        place = places[get_pod_key(pod)]
        if pod.node is not None and place != pod.node:
            gone = [self.budgets[i] for i in range(number + 1) if self._leaves(self.pods[i], places)]
            if any(sum(name in names for names in gone) > self.allowed[name] for name in self.budgets[number]):
                return False
            if self._overdraws(pod, [other for other in self.pods[: number + 1] if self._leaves(other, places)]):
                return False
        if place is None:
            return True
        return self._has_room(place, self.pods[: number + 1], places) and not self._keeps_apart(number, place, places)

    def _keeps_apart(self, number: int, place: str, places: Places) -> bool:
        """Whether one of two pods, the later to come, would not be let in because of the other."""
        mine = self.pods[number].node != place
        for before in range(number):
            other = places[get_pod_key(self.pods[before])]
            if other is None:
                continue
            if mine and self._clashes(number, place, before, other):
                return True
            if other != self.pods[before].node and self._clashes(before, other, number, place):
                return True
        return False

    def _clashes(self, new: int, place: str, old: int, other: str) -> bool:
        asked = (new, place, old, other)
        if asked not in self.clashes:
            board = PodPlacements(replace(self.snapshot, pods=()))
            board.add(self.pods[old], other)
            refusals = (check_host_ports, check_volumes, check_anti_affinity)
            pod, node = self.pods[new], self.nodes[place]
            self.clashes[asked] = any(any(refuse(board, pod, node)) for refuse in refusals)
        return self.clashes[asked]

    def _overdraws(self, pod: Pod, gone: list[Pod]) -> bool:
        """Whether more leave than may in all, from the pod's node, or of its workload."""
        given, ref = self.allowance, pod.workload
        left = [
            (given.total, len(gone)),
            (given.get_for_node(pod.node or ""), sum(one.node == pod.node for one in gone)),
        ]
        if ref is not None:
            alike = sum((one.namespace, one.workload) == (pod.namespace, ref) for one in gone)
            left.append((given.get_for_workload(pod.namespace, ref), alike))
        return any(allowed is not None and many > allowed for allowed, many in left)

    def _leaves(self, pod: Pod, places: Places) -> bool:
        return pod.node is not None and places[get_pod_key(pod)] != pod.node

    def _has_room(self, name: str, pods: list[Pod], places: Places) -> bool:
        """Whether a node that gets arrivals holds all bases and the largest headroom, at the sizes of arrivals."""
        here = [pod for pod in pods if places[get_pod_key(pod)] == name]
        arriving = [pod for pod in here if pod.node != name]
        if not arriving:
            return True
        if len(here) > self.nodes[name].allocatable_pods:
            return False
        demands = [self.compute_demand[get_pod_key(pod)] for pod in here]
        needs = [self.compute_demand[get_pod_key(pod)] for pod in arriving]
        room = self.nodes[name].allocatable
        for of in (_cpu, _memory):
            total = sum(of(d.base) for d in demands) + max(of(d.headroom) for d in demands)
            if total > of(room) and any(of(d.base) or of(d.headroom) for d in needs):
                return False
        return True

    def _valid(self, places: Places) -> bool:
        if not all(self._has_room(name, self.pods, places) for name in self.nodes):
            return False
        preempted_from = {pod.node for pod in self.pods if pod.node is not None and places[get_pod_key(pod)] is None}
        arriving = [
            (pod, places[get_pod_key(pod)]) for pod in self.pods if places[get_pod_key(pod)] not in (None, pod.node)
        ]
        moves = [(pod.node, place) for pod, place in arriving if pod.node is not None]
        while more := {source for source, place in moves if place in preempted_from} - preempted_from:
            preempted_from |= more
        if any(place in preempted_from and not pod.may_preempt for pod, place in arriving):
            return False
        if any(self._takes_the_place_of_its_like(pod, place, places) for pod, place in arriving):
            return False
        left = {get_pod_key(pod) for pod in self.pods if self._leaves(pod, places)}
        running = [pod for pod in self.snapshot.pods if pod.node is not None]
        staying = [pod for pod in running if get_pod_key(pod) not in left]
        leaving = [pod for pod in running if get_pod_key(pod) in left]
        return self._final_state_holds(staying, arriving) and self._grounded(staying, leaving, arriving)

    def _takes_the_place_of_its_like(self, mover: Pod, place: str | None, places: Places) -> bool:
        """Whether a pod moves where one that differs in nothing but its name leaves: in vain, since that could stay."""
        return mover.node is not None and any(
            other.node == place and self._leaves(other, places) and self._alike(mover, other) for other in self.pods
        )

    def _alike(self, one: Pod, other: Pod) -> bool:
        """Whether two pods differ in nothing but their names, and those of claims that may be used alike."""
        unclaimed = [replace(pod, constraints=replace(pod.constraints, claims=())) for pod in (one, other)]
        same = replace(unclaimed[0], name=other.name, uid=other.uid, node=other.node) == unclaimed[1]
        return same and self._volumes(one) == self._volumes(other)

    def _volumes(self, pod: Pod) -> list[object]:
        """The constraints of a pod's claims: allowed nodes, limited attachments, exclusive volumes."""
        around = self.snapshot.storage_and_namespaces
        limited = {driver for limits in around.attach_limits.values() for driver in limits}
        asked: list[object] = []
        for name in pod.constraints.claims:
            claim = around.claims.get((pod.namespace, name))
            if claim is not None:
                asked += [claim.terms] if claim.terms is not None else []
                asked += [claim.driver] if claim.driver in limited else []
                users = sum(
                    other.namespace == pod.namespace and name in other.constraints.claims for other in self.pods
                )
                asked += [claim.name] if claim.single_pod and users > 1 else []
        return asked

    def _final_state_holds(self, staying: list[Pod], arriving: list[tuple[Pod, str | None]]) -> bool:
        board = PodPlacements(replace(self.snapshot, pods=tuple(self._as_sized(pod) for pod in staying)))
        scheduler = SchedulerFilters(board)
        for pod, place in arriving:
            board.add(self._as_sized(pod), place or "")
        for pod, place in arriving:
            board.remove(get_pod_key(pod))
            if any(scheduler.check(self._as_sized(pod), self.nodes[place or ""])):
                return False
            board.add(self._as_sized(pod), place or "")
        return True

    def _as_sized(self, pod: Pod) -> Pod:
        """The pod asking for its base, where it is sized: what is shared is looked at apart."""
        if get_pod_key(pod) not in self.sized:
            return pod
        base = self.sized[get_pod_key(pod)].base
        asking = Container("app", requests=StatedResources(base.cpu_millicores, base.memory_bytes))
        return replace(pod, containers=(asking,), overhead=NO_RESOURCES, pod_level=None)

    def _grounded(self, staying: list[Pod], leaving: list[Pod], arriving: list[tuple[Pod, str | None]]) -> bool:
        """Whether some order of evictions and arrivals satisfies the affinity of each pod, or makes it the first."""
        board = PodPlacements(replace(self.snapshot, pods=(*staying, *leaving)))
        return self._can_follow(board, [get_pod_key(pod) for pod in leaving], arriving, set())

    def _can_follow(
        self,
        board: PodPlacements,
        there: list[PodKey],
        waiting: list[tuple[Pod, str | None]],
        seen: set[tuple[frozenset[PodKey], frozenset[PodKey]]],
    ) -> bool:
        """Whether the rest can come, where some that are to leave are still there."""
        state = frozenset(there), frozenset(get_pod_key(pod) for pod, _ in waiting)
        if not waiting or state in seen:
            return not waiting
        seen.add(state)
        for pod, place in waiting:
            if get_pod_key(pod) in there or any(check_affinity(board, pod, self.nodes[place or ""])):
                continue
            board.add(pod, place or "")
            done = self._can_follow(board, there, [one for one in waiting if one[0] is not pod], seen)
            board.remove(get_pod_key(pod))
            if done:
                return True
        for key in there:
            node = board.get_node(key) or ""
            pod = board.remove(key)
            done = self._can_follow(board, [other for other in there if other != key], waiting, seen)
            board.add(pod, node)
            if done:
                return True
        return False


def _fixed(pod: Pod) -> BaseAndHeadroom:
    return BaseAndHeadroom(count_pod_requests(pod), NO_RESOURCES)


def _cpu(resources: Resources) -> int:
    return resources.cpu_millicores


def _memory(resources: Resources) -> int:
    return resources.memory_bytes


def _add(one: Key, other: Key) -> Key:
    return tuple(a + b for a, b in zip(one, other, strict=True))

"""Finds pods that other orders of arrival could place, so that nothing is proved about them.

kube-scheduler checks the rules of a pod only when it binds that pod. The packer knows plans at whose end all rules hold
for all pods. So more pods may be placed if pods that count for a rule arrive after the pods that have it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cruise.decisions.packing.node_masks import PlacementObstacle
from cruise.decisions.packing.problem import BuiltProblem
from cruise.decisions.packing.resources import ATTACH_PREFIX, find_pods_that_may_use_nominated_capacity
from cruise.decisions.scheduling.filters import iterate_claims
from cruise.decisions.scheduling.placements import (
    PodKey,
    PodPlacements,
    find_leftover_attachments,
    get_attached_volumes,
    get_pod_key,
)
from cruise.decisions.scheduling.pod_affinity import SchedulerFilters
from cruise.domain.arrays import Int64Array
from cruise.domain.cluster import Pod
from cruise.domain.packing_plan import PackingSizes, PlannedPlacement, PlannedPreemption, PlanStage
from cruise.domain.pod_resources import accepts_pod_despite_cordon
from cruise.domain.reasons import UnplacedPod
from cruise.packer.problem import PackingProblem

# A search ends after so many questions about a pod and a node; larger groups are not searched.
_MAX_GROUP, _MAX_QUESTIONS = 12, 4_000


def find_alternating_arrivals(
    built: BuiltProblem, stages: Sequence[PlanStage], still_open: frozenset[PodKey]
) -> tuple[PlanStage, ...] | None:
    """Return the stages with more pods in the first one, if some order places them; None if none does.

    All pods of the first stage are still placed, perhaps on another node, and later stages are unchanged.
    """
    if not still_open or built.sizes is not PackingSizes.FIXED or built.problem.node_prices is not None:
        return None
    has_first_stage = bool(stages) and not stages[0].evictions
    first, later_stages = (stages[0].arrivals, stages[1:]) if has_first_stage else ((), tuple(stages))
    pods = {get_pod_key(pod): pod for pod in built.pods}
    arrivals = {one.key: one for one in first}
    group = _find_related_pods(built, pods, [*sorted(still_open), *arrivals], still_open)
    has_preemptions = any(
        isinstance(eviction, PlannedPreemption) for stage in later_stages for eviction in stage.evictions
    )
    if len(group) > _MAX_GROUP or (has_preemptions and not all(pods[key].may_preempt for key in group)):
        return None
    placements = PodPlacements(built.snapshot)
    others = tuple(one for one in first if one.key not in group)
    for one in others:
        placements.add(pods[one.key], one.target)
    required = {key: one.target for key, one in arrivals.items() if key in group}
    search = _AlternationSearch(placements, [pods[key] for key in group], required)
    found = search.find_best()
    if len(found) <= len(required):
        return None
    alternating = tuple(PlannedPlacement(pod.namespace, pod.name, pod.uid, None, node) for pod, node in found)
    new_stages = (PlanStage((), (), (*others, *alternating)), *later_stages)
    return new_stages if _is_accepted(built, new_stages) else None


def _find_related_pods(
    built: BuiltProblem, pods: dict[PodKey, Pod], keys: Sequence[PodKey], still_open: frozenset[PodKey]
) -> list[PodKey]:
    """Return the open pods, and those of the keys whose rules relate them to these."""
    related = [key for key in keys if key in still_open]
    for key in related:
        if len(related) > _MAX_GROUP:
            break
        related += [other for other in keys if other not in related and _is_related(built, pods[key], pods[other])]
    return related


def _is_related(built: BuiltProblem, one: Pod, other: Pod) -> bool:
    if one.namespace == other.namespace and set(one.constraints.claims) & set(other.constraints.claims):
        return True
    for holder, target in ((one, other), (other, one)):
        constraints = holder.constraints
        terms = (*constraints.affinity, *constraints.anti_affinity)
        if any(
            built.snapshot.storage_and_namespaces.term_matches_pod(term, target.namespace, target.labels)
            for term in terms
        ):
            return True
        if holder.namespace == target.namespace and any(spread.matches(target.labels) for spread in constraints.spread):
            return True
    return False


def _is_accepted(built: BuiltProblem, stages: Sequence[PlanStage]) -> bool:
    """Return whether each pod is accepted when it arrives, and no eviction breaks what held before the first one."""
    placements = PodPlacements(built.snapshot)
    filters = SchedulerFilters(placements)
    pods = {get_pod_key(pod): pod for pod in built.pods}
    must_hold: list[PlannedPlacement] = []
    for number, stage in enumerate(stages):
        for eviction in stage.evictions:
            placements.remove(eviction.key)
        for one in stage.arrivals:
            if not _accepts(placements, filters, pods[one.key], one.target):
                return False
            placements.add(pods[one.key], one.target)
        if number == 0:
            must_hold = [one for one in stage.arrivals if _would_be_accepted_again(placements, filters, one)]
    return all(_would_be_accepted_again(placements, filters, one) for one in must_hold)


def _accepts(placements: PodPlacements, filters: SchedulerFilters, pod: Pod, node: str) -> bool:
    return not any(filters.check(pod, placements.nodes[node]))


def _would_be_accepted_again(placements: PodPlacements, filters: SchedulerFilters, arrival: PlannedPlacement) -> bool:
    """Return whether a pod that arrived would be accepted again, with all other pods in place."""
    pod = placements.remove(arrival.key)
    is_accepted = _accepts(placements, filters, pod, arrival.target)
    placements.add(pod, arrival.target)
    return is_accepted


@dataclass(frozen=True, slots=True)
class _AlternatingPod:
    """A pod to place, the number of its equals, and the nodes to try, that of the plan first."""

    pod: Pod
    equal_number: int
    nodes: tuple[str, ...]


class _AlternationSearch:
    """Searches orders and places depth first, until all pods are placed or the search becomes too long."""

    def __init__(self, placements: PodPlacements, pods: Sequence[Pod], required: dict[PodKey, str]) -> None:
        self._placements = placements
        self._filters = SchedulerFilters(placements)
        self._required = required
        self._questions = 0
        self._seen: set[frozenset[tuple[tuple[int, str], int]]] = set()
        self._best: tuple[tuple[Pod, str], ...] = ()
        self._best_key: tuple[int, ...] = ()
        self._priorities = sorted({pod.priority for pod in pods}, reverse=True)
        distinct: list[Pod] = []
        alternating = []
        # Pods that have rules come first, because they may not be accepted after the pods that count for these.
        for pod in sorted(pods, key=lambda one: not (one.constraints.spread or one.constraints.affinity)):
            number = next((n for n, one in enumerate(distinct) if _is_equal(one, pod)), len(distinct))
            if number == len(distinct):
                distinct.append(pod)
            planned_nodes = [required[get_pod_key(pod)]] if get_pod_key(pod) in required else []
            open_nodes = [name for name, node in placements.nodes.items() if accepts_pod_despite_cordon(node, pod)]
            alternating.append(_AlternatingPod(pod, number, tuple(dict.fromkeys([*planned_nodes, *open_nodes]))))
        self._all = tuple(alternating)

    def find_best(self) -> tuple[tuple[Pod, str], ...]:
        """Return the pods in order with their nodes: all required ones, and the most important others."""
        self._descend((), self._all)
        return self._best

    def _descend(self, placed: tuple[tuple[Pod, str], ...], remaining: tuple[_AlternatingPod, ...]) -> bool:
        """Continue after the placed pods; return whether the search is finished."""
        placed_keys = {get_pod_key(pod) for pod, _ in placed}
        if self._required.keys() <= placed_keys:
            counts = Counter(pod.priority for pod, _ in placed)
            key = tuple(counts[priority] for priority in self._priorities)
            if key > self._best_key:
                self._best_key, self._best = key, placed
        if not remaining or self._questions > _MAX_QUESTIONS:
            return True
        for chosen, node in self._list_choices(remaining):
            rest = tuple(one for one in remaining if one is not chosen)
            self._placements.add(chosen.pod, node)
            state_counts = Counter(
                (one.equal_number, self._placements.get_node(get_pod_key(one.pod)) or "") for one in self._all
            )
            state = frozenset(state_counts.items())
            is_finished = False
            if state not in self._seen:
                self._seen.add(state)
                is_finished = self._descend((*placed, (chosen.pod, node)), rest)
            self._placements.remove(get_pod_key(chosen.pod))
            if is_finished:
                return True
        return False

    def _list_choices(self, remaining: tuple[_AlternatingPod, ...]) -> Iterator[tuple[_AlternatingPod, str]]:
        tried: set[tuple[int, bool]] = set()
        for candidate in remaining:
            key = (candidate.equal_number, get_pod_key(candidate.pod) in self._required)
            if key in tried:
                continue
            tried.add(key)
            for name in candidate.nodes:
                self._questions += 1
                if _accepts(self._placements, self._filters, candidate.pod, name):
                    yield candidate, name


def _is_equal(one: Pod, other: Pod) -> bool:
    return replace(one, name=other.name, uid=other.uid) == other


def find_order_dependent_pods(built: BuiltProblem, unplaced: Iterable[UnplacedPod]) -> frozenset[PodKey]:
    """Return the pods that stay pending because of rules which another order, or a shared volume, might satisfy.

    If the order matters at all, these are all pods that some plan might place. kube-scheduler also does not reserve
    nominated capacity against higher priorities, and counts a leftover attachment only until a pod uses the volume
    again.
    """
    pods = {get_pod_key(pod): pod for pod in built.pods}
    open_pods: set[PodKey] = set()
    known: dict[tuple[object, ...], bool] = {}
    order_matters = depends_on_arrival_order(built.problem)
    has_attach_limits = any(name.startswith(ATTACH_PREFIX) for name in built.problem.resources)
    uses_leftover_volume = has_attach_limits and _uses_leftover_volume(built)
    open_pods |= {
        get_pod_key(pod) for pod in find_pods_that_may_use_nominated_capacity(built.snapshot, pods.values())
    } & {one.key for one in unplaced}
    for one in unplaced:
        pod = pods.get(one.key)
        if pod is None:
            continue
        key = (pod.namespace, id(pod.labels), id(pod.constraints), one.blocked_by, one.impossible)
        if key not in known:
            known[key] = (
                (order_matters and not one.impossible)
                or (
                    has_attach_limits
                    and bool(pod.constraints.claims)
                    and (uses_leftover_volume or _shares_volumes(built, pod))
                )
                or _is_open(built, pod, one.blocked_by)
            )
        if known[key]:
            open_pods.add(get_pod_key(pod))
    return frozenset(open_pods)


def find_pods_scheduled_afterwards(
    built: BuiltProblem, stages: Sequence[PlanStage], unplaced: Iterable[int]
) -> frozenset[PodKey]:
    """Return the unplaced pods, by index, that kube-scheduler accepts once the plan is carried out.

    Such a pod breaks a rule of a pod that arrived before it, or takes the place of an equal pod that was evicted.
    """
    problem = built.problem
    placements = PodPlacements(built.snapshot)
    pods = {get_pod_key(pod): pod for pod in built.pods}
    for eviction in (one for stage in stages for one in stage.evictions):
        placements.remove(eviction.key)
    for one in (one for stage in stages for one in stage.arrivals):
        placements.add(pods[one.key], one.target)
    filters = SchedulerFilters(placements)
    known: dict[int, bool] = {}
    accepted: set[PodKey] = set()
    for index in unplaced:
        pod, pod_class = built.pods[index], int(problem.pod_class[index])
        if pod_class not in known:
            known[pod_class] = pod.may_preempt and any(not any(filters.check(pod, node)) for node in built.nodes)
        if known[pod_class]:
            accepted.add(get_pod_key(pod))
    return frozenset(accepted)


def depends_on_arrival_order(problem: PackingProblem) -> bool:
    """Return whether pending pods change what the rules of other pending pods count, if they arrive first.

    That is so for a spread that counts pods which do not have it, and for the first pod of a group that contains
    others.
    """
    has_pending = np.bincount(problem.pod_class[problem.pod_node < 0], minlength=problem.class_count) > 0
    has_running = np.bincount(problem.pod_class[problem.pod_node >= 0], minlength=problem.class_count) > 0
    holders_by_rule: dict[tuple[object, ...], tuple[set[int], Int64Array]] = {}
    for spread in problem.rules.spreads:
        measure = (spread.max_skew, spread.min_domains, spread.eligible.tobytes())
        holders_by_rule.setdefault((spread.topology, spread.targets.tobytes(), *measure), (set(), spread.targets))[
            0
        ].add(spread.holder)
    for attraction in problem.rules.attractions:
        if attraction.allows_first_pod and not has_running[attraction.targets].any():
            holders_by_rule.setdefault(
                (attraction.topologies, attraction.targets.tobytes()), (set(), attraction.targets)
            )[0].add(attraction.holder)
    return any(
        has_pending[list(holders)].any() and any(has_pending[c] and c not in holders for c in targets.tolist())
        for holders, targets in holders_by_rule.values()
    )


def _is_open(built: BuiltProblem, pod: Pod, obstacles: Sequence[str]) -> bool:
    return (PlacementObstacle.TOPOLOGY_SPREAD in obstacles and _is_counted_by_another_spread(built, pod)) or (
        PlacementObstacle.AFFINITY in obstacles and _may_be_first_of_group(built, pod)
    )


def _is_counted_by_another_spread(built: BuiltProblem, pod: Pod) -> bool:
    """Return whether this pod and another one that may still arrive count for a spread that only one of them has."""
    for index, other in enumerate(built.pods):
        is_immovable = other.node is not None and built.immovable_reasons[index] is not None
        if is_immovable or other.namespace != pod.namespace or other.constraints.spread == pod.constraints.spread:
            continue
        for holder, counted in ((pod, other), (other, pod)):
            if any(spread.matches(counted.labels) for spread in holder.constraints.spread):
                return True
    return False


def _may_be_first_of_group(built: BuiltProblem, pod: Pod) -> bool:
    """Return whether a pod may be the first that its affinity matches, while others of them are pending."""
    terms, storage_and_namespaces = pod.constraints.affinity, built.snapshot.storage_and_namespaces

    def is_matched(other: Pod) -> bool:
        return all(storage_and_namespaces.term_matches_pod(term, other.namespace, other.labels) for term in terms)

    matched = [other for other in built.pods if is_matched(other)] if is_matched(pod) else []
    return len(matched) > 1 and all(other.node is None for other in matched)


def _uses_leftover_volume(built: BuiltProblem) -> bool:
    """Return whether a pod of the problem uses a volume that is left attached to a node."""
    storage_and_namespaces = built.snapshot.storage_and_namespaces
    leftover = {volume for volumes in find_leftover_attachments(built.snapshot).values() for volume in volumes}
    return bool(leftover) and any(
        leftover & get_attached_volumes(claim for _, claim in iterate_claims(storage_and_namespaces, pod))
        for pod in built.pods
        if pod.constraints.claims
    )


def _shares_volumes(built: BuiltProblem, pod: Pod) -> bool:
    """Return whether the pod needs several shared volumes of a driver, of which the model counts only one once."""
    storage_and_namespaces = built.snapshot.storage_and_namespaces
    drivers = {claim.driver for _, claim in iterate_claims(storage_and_namespaces, pod) if claim is not None}
    users = Counter(
        volume
        for other in built.pods
        if other.constraints.claims
        for volume in {
            (claim.driver, claim.namespace, claim.volume or claim.name)
            for _, claim in iterate_claims(storage_and_namespaces, other)
            if claim is not None and claim.driver in drivers
        }
    )
    shared = Counter(driver for (driver, *_), user_count in users.items() if user_count > 1)
    return any(user_count > 1 for user_count in shared.values())

"""Finds pods that other orders of arrival could place, so that nothing is proved about them.

kube-scheduler checks the rules of a pod only when it binds that pod. The packer knows plans at whose end all rules hold
for all pods. More pods may be placed if pods that count for a rule arrive after the pods that have it.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

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
from cruise.domain.packing_plan import PlanStage
from cruise.domain.reasons import UnplacedPod
from cruise.packer.problem import PackingProblem


def find_order_dependent_pods(built: BuiltProblem, unplaced: Iterable[UnplacedPod]) -> frozenset[PodKey]:
    """Return the pods that stay pending because of rules which another order, or a shared volume, might satisfy.

    If the order matters, these are all pods that some plan might place. kube-scheduler also does not reserve
    nominated capacity against higher priorities, and counts a leftover attachment only until a pod uses the volume
    again.
    """
    pods = {get_pod_key(pod): pod for pod in built.pods}
    open_pods: set[PodKey] = set()
    known: dict[tuple[object, ...], bool] = {}
    order_matters = has_rules_that_depend_on_arrival_order(built.problem)
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


def has_rules_that_depend_on_arrival_order(problem: PackingProblem) -> bool:
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

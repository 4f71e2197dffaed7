"""Pods that might come by plans which the packer does not look at, so that nothing is proved about these.

The packer knows plans at whose end every rule holds for all pods that came. kube-scheduler asks a pod's rules when it
binds that pod and never again: what comes later may break them. And it attaches a volume to a node once for all pods
there, where the packer does so for one of a driver's volumes alone. Room that it keeps for a pod it keeps from no
higher priority, where the packer keeps it from all. A volume that is left attached to a node counts there twice for a
pod that comes to use it, and once as soon as that pod is there.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from cruise.decisions.packing.building import Built
from cruise.decisions.packing.building.amounts import ATTACH
from cruise.decisions.packing.building.kept_room import may_take_kept_room
from cruise.decisions.packing.building.obstacle import Obstacle
from cruise.decisions.scheduling.attachments import attached_for, left_attached
from cruise.decisions.scheduling.board import Board, PodKey, key_of
from cruise.decisions.scheduling.claims import claims_of
from cruise.decisions.scheduling.scheduler import Scheduler
from cruise.domain.arrays import Int64Array
from cruise.domain.cluster import Pod
from cruise.domain.packing import Stage
from cruise.domain.unplaced import Unplaced
from cruise.packer.problem import Problem


def open_by_other_plans(built: Built, unplaced: Iterable[Unplaced]) -> frozenset[PodKey]:
    """Return the pods that stay pending for rules which another order, or a shared volume, might leave unbroken.

    Where order matters at all, that is every pod that might come by any plan: others may come elsewhere.
    """
    pods = {key_of(pod): pod for pod in built.pods}
    found: set[PodKey] = set()
    known: dict[tuple[object, ...], bool] = {}
    matters = order_matters(built.problem)
    limited = any(name.startswith(ATTACH) for name in built.problem.resources)
    returns = limited and _volume_returns(built)
    found |= {key_of(pod) for pod in may_take_kept_room(built.snapshot, pods.values())} & {one.key for one in unplaced}
    for one in unplaced:
        pod = pods.get(one.key)
        if pod is None:
            continue
        alike = (pod.namespace, id(pod.labels), id(pod.constraints), one.blocked_by, one.impossible)
        if alike not in known:
            known[alike] = (
                (matters and not one.impossible)
                or (limited and bool(pod.constraints.claims) and (returns or _shares_volumes(built, pod)))
                or _is_open(built, pod, one.blocked_by)
            )
        if known[alike]:
            found.add(key_of(pod))
    return frozenset(found)


def come_afterwards(built: Built, stages: Sequence[Stage], out: Iterable[int]) -> frozenset[PodKey]:
    """Return which of the pods that a plan leaves out, by index, kube-scheduler lets in when it is carried out.

    Such a pod breaks a rule of one that came before it, or stands where its like had to leave.
    """
    problem = built.problem
    board = Board(built.snapshot)
    pods = {key_of(pod): pod for pod in built.pods}
    for leave in (one for stage in stages for one in stage.leaves):
        board.remove(leave.key)
    for one in (one for stage in stages for one in stage.arrivals):
        board.add(pods[one.key], one.target)
    scheduler = Scheduler(board)
    known: dict[int, bool] = {}
    found: set[PodKey] = set()
    for index in out:
        pod, like = built.pods[index], int(problem.pod_class[index])
        if like not in known:
            known[like] = pod.preempts and any(not any(scheduler.refuse(pod, node)) for node in built.nodes)
        if known[like]:
            found.add(key_of(pod))
    return frozenset(found)


def order_matters(problem: Problem) -> bool:
    """Tell whether pods wait of which one changes by coming first what the rules of another one say.

    That is so for a spread that counts pods which do not hold it, and for the first of a group with others in it.
    """
    waiting = np.bincount(problem.pod_class[problem.pod_node < 0], minlength=problem.class_count) > 0
    runs = np.bincount(problem.pod_class[problem.pod_node >= 0], minlength=problem.class_count) > 0
    alike: dict[tuple[object, ...], tuple[set[int], Int64Array]] = {}
    for spread in problem.rules.spreads:
        measure = (spread.max_skew, spread.min_domains, spread.eligible.tobytes())
        alike.setdefault((spread.topology, spread.targets.tobytes(), *measure), (set(), spread.targets))[0].add(
            spread.holder
        )
    for draw in problem.rules.attractions:
        if draw.may_be_first and not runs[draw.targets].any():
            alike.setdefault((draw.topologies, draw.targets.tobytes()), (set(), draw.targets))[0].add(draw.holder)
    return any(
        waiting[list(holders)].any() and any(waiting[c] and c not in holders for c in targets.tolist())
        for holders, targets in alike.values()
    )


def _is_open(built: Built, pod: Pod, obstacles: Sequence[str]) -> bool:
    return (Obstacle.TOPOLOGY_SPREAD in obstacles and _is_spread_beside_others(built, pod)) or (
        Obstacle.AFFINITY in obstacles and _may_found(built, pod)
    )


def _is_spread_beside_others(built: Built, pod: Pod) -> bool:
    """Tell whether pods that may still come count for a spread that is not their own, this pod being one of the two."""
    for index, other in enumerate(built.pods):
        stays = other.node is not None and built.unmovable[index] is not None
        if stays or other.namespace != pod.namespace or other.constraints.spread == pod.constraints.spread:
            continue
        for holder, counted in ((pod, other), (other, pod)):
            if any(spread.counts(counted.labels) for spread in holder.constraints.spread):
                return True
    return False


def _may_found(built: Built, pod: Pod) -> bool:
    """Tell whether the pod may be the first of those that its affinity means, while others of them wait as well."""
    terms, surroundings = pod.constraints.affinity, built.snapshot.surroundings

    def is_meant(other: Pod) -> bool:
        return all(surroundings.mean(term, other.namespace, other.labels) for term in terms)

    meant = [other for other in built.pods if is_meant(other)] if is_meant(pod) else []
    return len(meant) > 1 and all(other.node is None for other in meant)


def _volume_returns(built: Built) -> bool:
    """Tell whether a volume that is left attached to a node is one that a pod of the problem uses."""
    surroundings = built.snapshot.surroundings
    left = {volume for volumes in left_attached(built.snapshot).values() for volume in volumes}
    return bool(left) and any(
        left & attached_for(claim for _, claim in claims_of(surroundings, pod))
        for pod in built.pods
        if pod.constraints.claims
    )


def _shares_volumes(built: Built, pod: Pod) -> bool:
    """Tell whether several volumes of a driver that the pod needs are shared, of which one alone counts once."""
    surroundings = built.snapshot.surroundings
    drivers = {claim.driver for _, claim in claims_of(surroundings, pod) if claim is not None}
    users = Counter(
        volume
        for other in built.pods
        if other.constraints.claims
        for volume in {
            (claim.driver, claim.namespace, claim.volume or claim.name)
            for _, claim in claims_of(surroundings, other)
            if claim is not None and claim.driver in drivers
        }
    )
    shared = Counter(driver for (driver, *_), many in users.items() if many > 1)
    return any(many > 1 for many in shared.values())

"""Pods that come before anything is evicted, in such an order that more of them come than rules allow in the end.

kube-scheduler asks a pod's rules when it binds that pod and never again. Where nothing has to leave for pods that wait,
an order that lets all of them in costs no pod anything, although a replacement of one might not find a place again.
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
from cruise.domain.cluster import Pod
from cruise.domain.packing_plan import PackingSizes, PlannedPlacement, PlannedPreemption, PlanStage
from cruise.domain.pod_resources import accepts_pod_despite_cordon
from cruise.domain.reasons import UnplacedPod
from cruise.domain.resources import Int64Array
from cruise.packer.problem import PackingProblem

# Larger groups are left as the packer has them, and so many questions about a pod and a node end a search.
_MOST_TOGETHER, _MOST_QUESTIONS = 12, 4_000


def find_alternating_arrivals(
    built: BuiltProblem, stages: Sequence[PlanStage], still_open: frozenset[PodKey]
) -> tuple[PlanStage, ...] | None:
    """Return the stages with pods that are open in the first one, where some order lets them in; None where none does.

    All that was to come comes still, though perhaps to another node, and what follows is let in as before.
    """
    if not still_open or built.sizes is not PackingSizes.FIXED or built.problem.node_prices is not None:
        return None
    begins = bool(stages) and not stages[0].evictions
    first, later = (stages[0].arrivals, stages[1:]) if begins else ((), tuple(stages))
    pods = {get_pod_key(pod): pod for pod in built.pods}
    coming = {one.key: one for one in first}
    group = _concerned(built, pods, [*sorted(still_open), *coming], still_open)
    preempts = any(isinstance(leave, PlannedPreemption) for stage in later for leave in stage.evictions)
    if len(group) > _MOST_TOGETHER or (preempts and not all(pods[key].preemption_allowed for key in group)):
        return None
    board = PodPlacements(built.snapshot)
    others = tuple(one for one in first if one.key not in group)
    for one in others:
        board.add(pods[one.key], one.target)
    wanted = {key: one.target for key, one in coming.items() if key in group}
    turns = _AlternationSearch(board, [pods[key] for key in group], wanted)
    found = turns.find_best()
    if len(found) <= len(wanted):
        return None
    came = tuple(PlannedPlacement(pod.namespace, pod.name, pod.uid, None, node) for pod, node in found)
    longer = (PlanStage((), (), (*others, *came)), *later)
    return longer if _is_let_in(built, longer) else None


def _concerned(
    built: BuiltProblem, pods: dict[PodKey, Pod], keys: Sequence[PodKey], still_open: frozenset[PodKey]
) -> list[PodKey]:
    """Return the open pods, and those of the keys that rules tie to them."""
    found = [key for key in keys if key in still_open]
    for key in found:
        if len(found) > _MOST_TOGETHER:
            break
        found += [other for other in keys if other not in found and _is_tied(built, pods[key], pods[other])]
    return found


def _is_tied(built: BuiltProblem, one: Pod, other: Pod) -> bool:
    if one.namespace == other.namespace and set(one.constraints.claims) & set(other.constraints.claims):
        return True
    for holder, meant in ((one, other), (other, one)):
        asks = holder.constraints
        terms = (*asks.affinity, *asks.anti_affinity)
        if any(
            built.snapshot.storage_and_namespaces.term_matches_pod(term, meant.namespace, meant.labels)
            for term in terms
        ):
            return True
        if holder.namespace == meant.namespace and any(spread.matches(meant.labels) for spread in asks.spread):
            return True
    return False


def _is_let_in(built: BuiltProblem, stages: Sequence[PlanStage]) -> bool:
    """Tell whether each pod is let in when its turn comes, and no eviction undoes what held before the first of all."""
    board = PodPlacements(built.snapshot)
    scheduler = SchedulerFilters(board)
    pods = {get_pod_key(pod): pod for pod in built.pods}
    held: list[PlannedPlacement] = []
    for number, stage in enumerate(stages):
        for leave in stage.evictions:
            board.remove(leave.key)
        for one in stage.arrivals:
            if not _lets_in(board, scheduler, pods[one.key], one.target):
                return False
            board.add(pods[one.key], one.target)
        if number == 0:
            held = [one for one in stage.arrivals if _holds(board, scheduler, one)]
    return all(_holds(board, scheduler, one) for one in held)


def _lets_in(board: PodPlacements, scheduler: SchedulerFilters, pod: Pod, node: str) -> bool:
    return not any(scheduler.check(pod, board.nodes[node]))


def _holds(board: PodPlacements, scheduler: SchedulerFilters, arrival: PlannedPlacement) -> bool:
    """Tell whether a pod that arrived would be let in again, beside all others that are there now."""
    pod = board.remove(arrival.key)
    lets_in = _lets_in(board, scheduler, pod, arrival.target)
    board.add(pod, arrival.target)
    return lets_in


@dataclass(frozen=True, slots=True)
class _AlternatingPod:
    """A pod that is to come, its likes by number, and the nodes to try, that of the plan first."""

    pod: Pod
    like: int
    nodes: tuple[str, ...]


class _AlternationSearch:
    """Depth first over orders and places, until all have come or too much was tried."""

    def __init__(self, board: PodPlacements, pods: Sequence[Pod], wanted: dict[PodKey, str]) -> None:
        self._board = board
        self._scheduler = SchedulerFilters(board)
        self._wanted = wanted
        self._questions = 0
        self._seen: set[frozenset[tuple[tuple[int, str], int]]] = set()
        self._best: tuple[tuple[Pod, str], ...] = ()
        self._best_key: tuple[int, ...] = ()
        self._tiers = sorted({pod.priority for pod in pods}, reverse=True)
        likes: list[Pod] = []
        turns = []
        # What rules hold comes before what they only mean, as it cannot come after.
        for pod in sorted(pods, key=lambda one: not (one.constraints.spread or one.constraints.affinity)):
            like = next((n for n, one in enumerate(likes) if _alike(one, pod)), len(likes))
            if like == len(likes):
                likes.append(pod)
            first = [wanted[get_pod_key(pod)]] if get_pod_key(pod) in wanted else []
            open_nodes = [name for name, node in board.nodes.items() if accepts_pod_despite_cordon(node, pod)]
            turns.append(_AlternatingPod(pod, like, tuple(dict.fromkeys([*first, *open_nodes]))))
        self._all = tuple(turns)

    def find_best(self) -> tuple[tuple[Pod, str], ...]:
        """Return which pods come where, in order: all that are wanted, and of the others the most important."""
        self._descend((), self._all)
        return self._best

    def _descend(self, came: tuple[tuple[Pod, str], ...], waiting: tuple[_AlternatingPod, ...]) -> bool:
        """Go on from the pods that came; tell whether the search is over."""
        here = {get_pod_key(pod) for pod, _ in came}
        if self._wanted.keys() <= here:
            counts = Counter(pod.priority for pod, _ in came)
            key = tuple(counts[tier] for tier in self._tiers)
            if key > self._best_key:
                self._best_key, self._best = key, came
        if not waiting or self._questions > _MOST_QUESTIONS:
            return True
        for turn, node in self._next(waiting):
            rest = tuple(one for one in waiting if one is not turn)
            self._board.add(turn.pod, node)
            likes = Counter((one.like, self._board.get_node(get_pod_key(one.pod)) or "") for one in self._all)
            state = frozenset(likes.items())
            over = False
            if state not in self._seen:
                self._seen.add(state)
                over = self._descend((*came, (turn.pod, node)), rest)
            self._board.remove(get_pod_key(turn.pod))
            if over:
                return True
        return False

    def _next(self, waiting: tuple[_AlternatingPod, ...]) -> Iterator[tuple[_AlternatingPod, str]]:
        tried: set[tuple[int, bool]] = set()
        for turn in waiting:
            kind = (turn.like, get_pod_key(turn.pod) in self._wanted)
            if kind in tried:
                continue
            tried.add(kind)
            for name in turn.nodes:
                self._questions += 1
                if _lets_in(self._board, self._scheduler, turn.pod, name):
                    yield turn, name


def _alike(one: Pod, other: Pod) -> bool:
    return replace(one, name=other.name, uid=other.uid) == other


# Pods that might come by plans which the packer does not look at, so that nothing is proved about these. The packer knows plans at whose end every rule holds for all pods that came. kube-scheduler asks a pod's rules when it binds that pod and never again: what comes later may break them. And it attaches a volume to a node once for all pods there, where the packer does so for one of a driver's volumes alone. Room that it keeps for a pod it keeps from no higher priority, where the packer keeps it from all. A volume that is left attached to a node counts there twice for a pod that comes to use it, and once as soon as that pod is there.


def find_pods_open_to_other_orders(built: BuiltProblem, unplaced: Iterable[UnplacedPod]) -> frozenset[PodKey]:
    """Return the pods that stay pending for rules which another order, or a shared volume, might leave unbroken.

    Where order matters at all, that is every pod that might come by any plan: others may come elsewhere.
    """
    pods = {get_pod_key(pod): pod for pod in built.pods}
    found: set[PodKey] = set()
    known: dict[tuple[object, ...], bool] = {}
    matters = does_order_matter(built.problem)
    limited = any(name.startswith(ATTACH_PREFIX) for name in built.problem.resources)
    returns = limited and _volume_returns(built)
    found |= {get_pod_key(pod) for pod in find_pods_that_may_use_nominated_capacity(built.snapshot, pods.values())} & {
        one.key for one in unplaced
    }
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
            found.add(get_pod_key(pod))
    return frozenset(found)


def find_pods_scheduled_afterwards(
    built: BuiltProblem, stages: Sequence[PlanStage], out: Iterable[int]
) -> frozenset[PodKey]:
    """Return which of the pods that a plan leaves out, by index, kube-scheduler lets in when it is carried out.

    Such a pod breaks a rule of one that came before it, or stands where its like had to leave.
    """
    problem = built.problem
    board = PodPlacements(built.snapshot)
    pods = {get_pod_key(pod): pod for pod in built.pods}
    for leave in (one for stage in stages for one in stage.evictions):
        board.remove(leave.key)
    for one in (one for stage in stages for one in stage.arrivals):
        board.add(pods[one.key], one.target)
    scheduler = SchedulerFilters(board)
    known: dict[int, bool] = {}
    found: set[PodKey] = set()
    for index in out:
        pod, like = built.pods[index], int(problem.pod_class[index])
        if like not in known:
            known[like] = pod.preemption_allowed and any(not any(scheduler.check(pod, node)) for node in built.nodes)
        if known[like]:
            found.add(get_pod_key(pod))
    return frozenset(found)


def does_order_matter(problem: PackingProblem) -> bool:
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
        if draw.allows_first_pod and not runs[draw.targets].any():
            alike.setdefault((draw.topologies, draw.targets.tobytes()), (set(), draw.targets))[0].add(draw.holder)
    return any(
        waiting[list(holders)].any() and any(waiting[c] and c not in holders for c in targets.tolist())
        for holders, targets in alike.values()
    )


def _is_open(built: BuiltProblem, pod: Pod, obstacles: Sequence[str]) -> bool:
    return (PlacementObstacle.TOPOLOGY_SPREAD in obstacles and _is_spread_beside_others(built, pod)) or (
        PlacementObstacle.AFFINITY in obstacles and _may_found(built, pod)
    )


def _is_spread_beside_others(built: BuiltProblem, pod: Pod) -> bool:
    """Tell whether pods that may still come count for a spread that is not their own, this pod being one of the two."""
    for index, other in enumerate(built.pods):
        stays = other.node is not None and built.immovable_reasons[index] is not None
        if stays or other.namespace != pod.namespace or other.constraints.spread == pod.constraints.spread:
            continue
        for holder, counted in ((pod, other), (other, pod)):
            if any(spread.matches(counted.labels) for spread in holder.constraints.spread):
                return True
    return False


def _may_found(built: BuiltProblem, pod: Pod) -> bool:
    """Tell whether the pod may be the first of those that its affinity means, while others of them wait as well."""
    terms, surroundings = pod.constraints.affinity, built.snapshot.storage_and_namespaces

    def is_meant(other: Pod) -> bool:
        return all(surroundings.term_matches_pod(term, other.namespace, other.labels) for term in terms)

    meant = [other for other in built.pods if is_meant(other)] if is_meant(pod) else []
    return len(meant) > 1 and all(other.node is None for other in meant)


def _volume_returns(built: BuiltProblem) -> bool:
    """Tell whether a volume that is left attached to a node is one that a pod of the problem uses."""
    surroundings = built.snapshot.storage_and_namespaces
    left = {volume for volumes in find_leftover_attachments(built.snapshot).values() for volume in volumes}
    return bool(left) and any(
        left & get_attached_volumes(claim for _, claim in iterate_claims(surroundings, pod))
        for pod in built.pods
        if pod.constraints.claims
    )


def _shares_volumes(built: BuiltProblem, pod: Pod) -> bool:
    """Tell whether several volumes of a driver that the pod needs are shared, of which one alone counts once."""
    surroundings = built.snapshot.storage_and_namespaces
    drivers = {claim.driver for _, claim in iterate_claims(surroundings, pod) if claim is not None}
    users = Counter(
        volume
        for other in built.pods
        if other.constraints.claims
        for volume in {
            (claim.driver, claim.namespace, claim.volume or claim.name)
            for _, claim in iterate_claims(surroundings, other)
            if claim is not None and claim.driver in drivers
        }
    )
    shared = Counter(driver for (driver, *_), many in users.items() if many > 1)
    return any(many > 1 for many in shared.values())

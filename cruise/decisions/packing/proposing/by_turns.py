"""Pods that come before anything is evicted, in such an order that more of them come than rules allow in the end.

kube-scheduler asks a pod's rules when it binds that pod and never again. Where nothing has to leave for pods that wait,
an order that lets all of them in costs no pod anything, although a replacement of one might not find a place again.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from cruise.decisions.packing.building import Built
from cruise.decisions.scheduling.board import Board, PodKey, key_of
from cruise.decisions.scheduling.scheduler import Scheduler
from cruise.domain.cluster import Pod
from cruise.domain.cordons import is_open_to
from cruise.domain.packing import Arrival, Preemption, Sizes, Stage

# Larger groups are left as the packer has them, and so many questions about a pod and a node end a search.
_MOST_TOGETHER, _MOST_QUESTIONS = 12, 4_000


def let_in_by_turns(built: Built, stages: Sequence[Stage], still_open: frozenset[PodKey]) -> tuple[Stage, ...] | None:
    """Return the stages with pods that are open in the first one, where some order lets them in; None where none does.

    All that was to come comes still, though perhaps to another node, and what follows is let in as before.
    """
    if not still_open or built.sizes is not Sizes.FIXED or built.problem.fleet is not None:
        return None
    begins = bool(stages) and not stages[0].leaves
    first, later = (stages[0].arrivals, stages[1:]) if begins else ((), tuple(stages))
    pods = {key_of(pod): pod for pod in built.pods}
    coming = {one.key: one for one in first}
    group = _concerned(built, pods, [*sorted(still_open), *coming], still_open)
    preempts = any(isinstance(leave, Preemption) for stage in later for leave in stage.leaves)
    if len(group) > _MOST_TOGETHER or (preempts and not all(pods[key].preempts for key in group)):
        return None
    board = Board(built.snapshot)
    others = tuple(one for one in first if one.key not in group)
    for one in others:
        board.add(pods[one.key], one.target)
    wanted = {key: one.target for key, one in coming.items() if key in group}
    turns = _Turns(board, [pods[key] for key in group], wanted)
    found = turns.best()
    if len(found) <= len(wanted):
        return None
    came = tuple(Arrival(pod.namespace, pod.name, pod.uid, None, node) for pod, node in found)
    longer = (Stage((), (), (*others, *came)), *later)
    return longer if _is_let_in(built, longer) else None


def _concerned(
    built: Built, pods: dict[PodKey, Pod], keys: Sequence[PodKey], still_open: frozenset[PodKey]
) -> list[PodKey]:
    """Return the open pods, and those of the keys that rules tie to them."""
    found = [key for key in keys if key in still_open]
    for key in found:
        if len(found) > _MOST_TOGETHER:
            break
        found += [other for other in keys if other not in found and _is_tied(built, pods[key], pods[other])]
    return found


def _is_tied(built: Built, one: Pod, other: Pod) -> bool:
    if one.namespace == other.namespace and set(one.constraints.claims) & set(other.constraints.claims):
        return True
    for holder, meant in ((one, other), (other, one)):
        asks = holder.constraints
        terms = (*asks.affinity, *asks.anti_affinity)
        if any(built.snapshot.surroundings.mean(term, meant.namespace, meant.labels) for term in terms):
            return True
        if holder.namespace == meant.namespace and any(spread.counts(meant.labels) for spread in asks.spread):
            return True
    return False


def _is_let_in(built: Built, stages: Sequence[Stage]) -> bool:
    """Tell whether each pod is let in when its turn comes, and no eviction undoes what held before the first of all."""
    board = Board(built.snapshot)
    scheduler = Scheduler(board)
    pods = {key_of(pod): pod for pod in built.pods}
    held: list[Arrival] = []
    for number, stage in enumerate(stages):
        for leave in stage.leaves:
            board.remove(leave.key)
        for one in stage.arrivals:
            if not _lets_in(board, scheduler, pods[one.key], one.target):
                return False
            board.add(pods[one.key], one.target)
        if number == 0:
            held = [one for one in stage.arrivals if _holds(board, scheduler, one)]
    return all(_holds(board, scheduler, one) for one in held)


def _lets_in(board: Board, scheduler: Scheduler, pod: Pod, node: str) -> bool:
    return not any(scheduler.refuse(pod, board.nodes[node]))


def _holds(board: Board, scheduler: Scheduler, arrival: Arrival) -> bool:
    """Tell whether a pod that arrived would be let in again, beside all others that are there now."""
    pod = board.remove(arrival.key)
    lets_in = _lets_in(board, scheduler, pod, arrival.target)
    board.add(pod, arrival.target)
    return lets_in


@dataclass(frozen=True, slots=True)
class _Turn:
    """A pod that is to come, its likes by number, and the nodes to try, that of the plan first."""

    pod: Pod
    like: int
    nodes: tuple[str, ...]


class _Turns:
    """Depth first over orders and places, until all have come or too much was tried."""

    def __init__(self, board: Board, pods: Sequence[Pod], wanted: dict[PodKey, str]) -> None:
        self._board = board
        self._scheduler = Scheduler(board)
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
            first = [wanted[key_of(pod)]] if key_of(pod) in wanted else []
            open_nodes = [name for name, node in board.nodes.items() if is_open_to(node, pod)]
            turns.append(_Turn(pod, like, tuple(dict.fromkeys([*first, *open_nodes]))))
        self._all = tuple(turns)

    def best(self) -> tuple[tuple[Pod, str], ...]:
        """Return which pods come where, in order: all that are wanted, and of the others the most important."""
        self._descend((), self._all)
        return self._best

    def _descend(self, came: tuple[tuple[Pod, str], ...], waiting: tuple[_Turn, ...]) -> bool:
        """Go on from the pods that came; tell whether the search is over."""
        here = {key_of(pod) for pod, _ in came}
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
            likes = Counter((one.like, self._board.place_of(key_of(one.pod)) or "") for one in self._all)
            state = frozenset(likes.items())
            over = False
            if state not in self._seen:
                self._seen.add(state)
                over = self._descend((*came, (turn.pod, node)), rest)
            self._board.remove(key_of(turn.pod))
            if over:
                return True
        return False

    def _next(self, waiting: tuple[_Turn, ...]) -> Iterator[tuple[_Turn, str]]:
        tried: set[tuple[int, bool]] = set()
        for turn in waiting:
            kind = (turn.like, key_of(turn.pod) in self._wanted)
            if kind in tried:
                continue
            tried.add(kind)
            for name in turn.nodes:
                self._questions += 1
                if _lets_in(self._board, self._scheduler, turn.pod, name):
                    yield turn, name


def _alike(one: Pod, other: Pod) -> bool:
    return replace(one, name=other.name, uid=other.uid) == other

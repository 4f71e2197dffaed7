"""What the packer answers: a node for every pod, what that achieves, and what is proved about it."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from cruise.packer.arrays import IntArray
from cruise.packer.problem import Objective, Problem, price_of


class Status(StrEnum):
    """What is known about a packing."""

    OPTIMAL = "optimal"
    ALREADY_OPTIMAL = "already-optimal"
    FEASIBLE = "feasible"
    NO_IMPROVEMENT = "no-improvement"

    @property
    def proved(self) -> bool:
        """Tell whether no packing is better."""
        return self in (Status.OPTIMAL, Status.ALREADY_OPTIMAL)


@dataclass(frozen=True, slots=True, order=True)
class TierFigures:
    """What a plan achieves for one priority: copies placed, and copies left where they are."""

    priority: int
    placed: int
    stayed: int


@dataclass(frozen=True, slots=True)
class Figures:
    """What an assignment achieves: for each priority from the highest, the weight of evictions, the nodes' price."""

    tiers: tuple[TierFigures, ...]
    eviction_weight: int
    price: int = 0

    @property
    def placed(self) -> tuple[int, ...]:
        """How many pods of each priority have a place."""
        return tuple(tier.placed for tier in self.tiers)

    def key(self, objective: Objective) -> tuple[int, ...]:
        """What decides which of two is better: the greater one, entry by entry."""
        if objective is Objective.PAPER:
            return tuple(figure for tier in self.tiers for figure in (tier.placed, tier.stayed))
        price = (-self.price,) if objective is Objective.FLEET else ()
        return (*self.placed, *price, -self.eviction_weight)


class NoteCode(StrEnum):
    """What there may be to say of a packing or a plan besides its figures."""

    # of the search
    NO_TIME = "no-time"
    OVERRAN = "overran"
    STILL_COMPILING = "still-compiling"
    COMPILES_ONCE = "compiles-once"
    SOLVER_NOT_STARTED = "solver-not-started"
    SOLVER_ENDED = "solver-ended"
    # of what was found
    EVICTIONS_NEEDED = "evictions-needed"
    EVICTIONS_UNPROVED = "evictions-unproved"
    PACKING_DROPPED = "packing-dropped"
    PLAN_DROPPED = "plan-dropped"
    NODES_KEPT = "nodes-kept"
    OTHER_ORDERS = "other-orders"
    # in words, as an earlier release left it
    STATED = "stated"
    # of the cluster
    LEFT_OUT = "left-out"
    NODES_MISSING = "nodes-missing"


@dataclass(frozen=True, slots=True)
class Note:
    """One such thing; `detail` is what is behind it, `count` how many pods it is about, where that says something."""

    code: NoteCode
    detail: str = ""
    count: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """An assignment that obeys every rule of its problem; `pod_node[pod]` is -1 where a pod has no place.

    `bound` has for each entry of the figures' key what no assignment surpasses that is as good in the entries before.
    `needs_evictions` tells that it is proved that none without evictions is as good, even where more stays open.
    `least_evicted` pods at least are evicted by every plan that places as many of each priority. `notes` say
    what was left out, and why.
    """

    pod_node: IntArray
    now: Figures
    after: Figures
    bound: tuple[int, ...]
    status: Status
    needs_evictions: bool = False
    notes: tuple[Note, ...] = ()
    least_evicted: int = 0


# Called with every packing that is better, or whose bound is, than the one before.
Report = Callable[[Packing], None]


def figures_of(problem: Problem, pod_node: IntArray) -> Figures:
    """What an assignment achieves."""
    priorities = problem.priorities[problem.pod_class]
    placed, ran = pod_node >= 0, problem.pod_node >= 0
    stayed = ran & (pod_node == problem.pod_node)
    tiers = tuple(
        TierFigures(priority, int((mine & placed).sum()), int((mine & stayed).sum()))
        for priority in np.unique(problem.priorities)[::-1].tolist()
        for mine in (priorities == priority,)
    )
    weight = int(problem.weights[problem.pod_class[ran & ~stayed]].sum())
    return Figures(tiers, weight, price_of(problem, pod_node))


def packing_of(problem: Problem, pod_node: IntArray, bound: tuple[int, ...], notes: tuple[Note, ...] = ()) -> Packing:
    """The packing that an assignment and its bound make."""
    now, after = figures_of(problem, problem.pod_node), figures_of(problem, pod_node)
    better = after.key(problem.objective) > now.key(problem.objective)
    proved = after.key(problem.objective) == bound
    if better:
        status = Status.OPTIMAL if proved else Status.FEASIBLE
    else:
        status = Status.ALREADY_OPTIMAL if proved else Status.NO_IMPROVEMENT
    needs_evictions = problem.objective is Objective.OPERATOR and bound[-1] < 0
    return Packing(pod_node, now, after, bound, status, needs_evictions, notes, _least_evicted(problem, now, bound))


def _least_evicted(problem: Problem, now: Figures, bound: tuple[int, ...]) -> int:
    """How many pods a plan evicts that places as many, as far as the bound of one entry says so."""
    if problem.objective is Objective.OPERATOR:
        return -(bound[-1] // max(int(problem.weights.max(initial=1)), 1))
    if problem.objective is Objective.PAPER and len(now.tiers) == 1:
        return now.tiers[0].stayed - bound[1]
    return 0

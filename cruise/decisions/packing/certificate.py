"""What a solve claims about its plan, and how far from proved the rest is."""

from dataclasses import dataclass

from cruise.decisions.packing.instance import Instance, IntArray
from cruise.decisions.packing.plan import Plan, Vector
from cruise.domain.packing import Status

__all__ = ["Solution", "Status", "TierBound", "certify", "named_bounds"]


@dataclass(frozen=True, slots=True)
class TierBound:
    """What no plan surpasses that is at least as good for every higher priority (and, for stays, in places here)."""

    priority: int
    placed: int
    stayed: int


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """A plan, how it compares with what runs now, and the bounds behind that, the highest priority first."""

    plan: Plan
    status: Status
    now: Vector
    bounds: tuple[TierBound, ...]

    @property
    def proved(self) -> bool:
        """Whether no plan is better."""
        return self.status in (Status.OPTIMAL, Status.ALREADY_OPTIMAL)

    @property
    def counts_proved(self) -> bool:
        """Whether no plan as good for the higher priorities places more of any priority."""
        pairs = zip(self.plan.vector, self.bounds, strict=True)
        return all(figures.placed == bound.placed for figures, bound in pairs)


def named_bounds(instance: Instance, bounds: IntArray) -> tuple[TierBound, ...]:
    """The bounds on places and stays of each tier in turn, with their priorities."""
    figures = bounds.tolist()
    return tuple(
        TierBound(priority, figures[2 * tier], figures[2 * tier + 1]) for tier, priority in enumerate(instance.tiers())
    )


def certify(plan: Plan, now: Vector, bounds: tuple[TierBound, ...]) -> Solution:
    """The solution that a plan and its bounds make."""
    pairs = list(zip(plan.vector, bounds, strict=True))
    proved = all((figures.placed, figures.stayed) == (bound.placed, bound.stayed) for figures, bound in pairs)
    if plan.vector > now:
        status = Status.OPTIMAL if proved else Status.FEASIBLE
    else:
        status = Status.ALREADY_OPTIMAL if proved else Status.NO_IMPROVEMENT
    return Solution(plan, status, now, bounds)

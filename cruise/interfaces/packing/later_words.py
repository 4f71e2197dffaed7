"""What eviction budgets leave to later plans, in words."""

from dataclasses import dataclass

from cruise.domain.packing import Budget, Go, Larger, Later, Spent
from cruise.interfaces.amounts import count_text
from cruise.interfaces.packing.requirement_words import joined, listed

_ORDINALS = ("second", "third", "fourth", "fifth")
_SETTINGS = {
    Budget.HOUR: "max_evictions_per_hour",
    Budget.NODE: "max_evictions_per_node",
    Budget.WORKLOAD: "max_evictions_per_workload",
}


@dataclass(frozen=True, slots=True)
class LargerPlan:
    """What takes more evictions in one go than budgets allow, and the settings that would allow them."""

    placed: int
    evictions: int
    needs: dict[str, int]


@dataclass(frozen=True, slots=True)
class LaterPlans:
    """What eviction budgets leave to later plans: those spent, what each go would add, and what none does."""

    spent: tuple[Spent, ...]
    goes: tuple[Go, ...]
    larger: LargerPlan | None
    words: str


def later_words(later: Later | None) -> list[str]:
    """Say where budgets end a plan, what further plans add, and which budgets keep the rest out for good."""
    said: list[str] = []
    if later is None:
        return said
    if later.goes:
        first = count_text(later.goes[0].placed, "more pod")
        counts = [first, *(f"{one.placed:,} more" for one in later.goes[1:])]
        goes = joined(
            [
                f"{count} with a {ordinal} go ({count_text(one.evictions, 'eviction')})"
                for count, ordinal, one in zip(counts, _ORDINALS, later.goes, strict=False)
            ]
        )
        ends = "ends" if len(later.spent) == 1 and later.spent[0].allowed == 1 else "end"
        spent = joined([_spent_words(one) for one in later.spent])
        said.append(
            f"{spent} {ends} the plan here; {goes}." if spent else f"Once budgets have filled up again: {goes}."
        )
    if later.larger is not None:
        said.append(_larger_words(later.larger))
    return said


def later_plans(later: Later) -> LaterPlans:
    """Return the same for documents."""
    larger = None
    if later.larger is not None:
        needs = {_SETTINGS[budget]: many for budget, many in later.larger.needs}
        larger = LargerPlan(later.larger.placed, later.larger.evictions, needs)
    return LaterPlans(later.spent, later.goes, larger, " ".join(later_words(later)))


def _spent_words(one: Spent) -> str:
    """Write a budget: `20 evictions an hour`, `1 eviction from n1 or n2 at once`."""
    evictions = count_text(one.allowed, "eviction")
    several = len(one.of) > 1
    names = f"{listed(list(one.of), 'and')}{' each' if several else ''}"
    match one.budget:
        case Budget.HOUR:
            return f"{evictions} left in this hour"
        case Budget.NODE:
            return f"{evictions} in one go from {names}"
        case Budget.WORKLOAD:
            return f"{evictions} in one go of {names}"
        case Budget.DISRUPTION:
            return f"{evictions} under PodDisruptionBudget{'s' if several else ''} {names}"


def _larger_words(larger: Larger) -> str:
    verb = "takes" if larger.placed == 1 else "take"
    begin = f"{count_text(larger.placed, 'pod')} {verb} {count_text(larger.evictions, 'eviction')} in one go"
    needs = joined([f"{_SETTINGS[budget]} of {many:,}" for budget, many in larger.needs])
    if not needs:
        return f"{begin}, which budgets do not allow now: pods that are not ready count as well."
    return f"{begin}: with {needs} that would be a plan."

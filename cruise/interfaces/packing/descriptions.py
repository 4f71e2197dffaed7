"""What eviction budgets leave to later plans, in words."""

from collections.abc import Mapping
from dataclasses import dataclass

from cruise.domain.packing_plan import (
    EvictionBudgetKind,
    LargerBudgetPlan,
    PackingPlan,
    PlanPhase,
    PlanRound,
    RemainingRounds,
    SpentBudget,
)
from cruise.domain.reasons import PlanCondition, PlanStatusReason
from cruise.interfaces.packing.unschedulable import format_first_names, join_words
from cruise.interfaces.text import format_count
from cruise.packer.answer import PackingNote, PackingNoteCode

# Why there is no plan, or why a plan goes no further, in words.

_CONDITION_DESCRIPTIONS: Mapping[PlanStatusReason, str] = {
    PlanStatusReason.API_ERROR: "{detail}",
    PlanStatusReason.FAILED: "failed: {detail}",
    PlanStatusReason.MODE: "mode {subject}",
    PlanStatusReason.PAUSED: "paused",
    PlanStatusReason.NO_PENDING_PODS: "no pod waits",
    PlanStatusReason.OTHER_PLAN_ACTIVE: "a plan is under way",
    PlanStatusReason.NO_STATISTICS: "no statistics yet",
    PlanStatusReason.STALE_STATISTICS: "no statistics since {subject}",
    PlanStatusReason.NO_MOVE_ORDER: "no order was found in which kube-scheduler would let every pod in",
    PlanStatusReason.NODE_TOO_SMALL: "the pods on node {subject} cannot be made as small as planned",
    PlanStatusReason.VERIFICATION_FAILED: "no plan: {detail}",
    PlanStatusReason.NOTHING_TO_DO: "nothing to do",
    PlanStatusReason.NOT_PROVED: "it is not proved that this takes evictions",
    PlanStatusReason.SWITCHED_OFF: "packing is switched off",
    PlanStatusReason.NO_EVICTIONS: "mode {subject} evicts no pods",
    PlanStatusReason.PENDING_PODS_FIRST: "pods wait for nodes",
    PlanStatusReason.NO_NODE_REMOVABLE: "no node can be spared",
    PlanStatusReason.NO_POD_MOVED: "no pod may be moved now",
    PlanStatusReason.PLACEMENT_HINT: "waits until the webhook knows which pods to steer",
    PlanStatusReason.RECREATION: "waits until {subject} is created anew",
    PlanStatusReason.RESIZE: "waits until the resize of {subject} is actual",
    PlanStatusReason.DISRUPTION_BUDGET: "waits until PodDisruptionBudget {subject} allows an eviction",
    PlanStatusReason.POD_BINDING: "waits until {subject} is bound",
    PlanStatusReason.EVICTION_IN_PROGRESS: "waits until the evicted pods are gone",
    PlanStatusReason.SKIPPED: "{detail}: {subject}",
    PlanStatusReason.TOO_OLD: "older than the next pass",
    PlanStatusReason.POD_NOT_FOUND: "pod {subject} is gone",
    PlanStatusReason.NODE_NOT_FOUND: "node {subject} is gone",
    PlanStatusReason.NODE_UNSCHEDULABLE: "node {subject} takes no pods",
    PlanStatusReason.NODE_FULL: "node {subject} has no room any more for the pods that are to arrive",
    PlanStatusReason.SCHEDULED_WITHOUT_PLAN: "pod {subject} has found a node by itself",
    PlanStatusReason.PLAN_INVALID: "{detail}",
    PlanStatusReason.CANNOT_RESIZE: "node {detail} cannot resize {subject} as planned",
    PlanStatusReason.NO_NODE_FOR_POD: "kube-scheduler finds no node for {subject}",
    PlanStatusReason.EVICTION_REFUSED: "the eviction of {subject} was refused: {detail}",
    PlanStatusReason.RESIZE_REFUSED: "the resize of {subject} was refused: {detail}",
}
# What says by itself that a plan is not carried out.
_COMPLETE = (PlanStatusReason.NOTHING_TO_DO, PlanStatusReason.API_ERROR)


def describe_condition(halt: PlanCondition | None) -> str:
    """Say what a halt says, without a full stop; empty for none."""
    if halt is None:
        return ""
    more = f" (and {halt.similar_count} more)" if halt.similar_count else ""
    return _CONDITION_DESCRIPTIONS[halt.code].format(subject=halt.subject, detail=halt.detail) + more


def describe_plan_condition(plan: PackingPlan) -> str:
    """Say why a plan was dropped, is only shown or waits; empty where it goes on."""
    words = describe_condition(plan.condition)
    shown_only = (
        plan.phase is PlanPhase.ADVISORY and plan.condition is not None and plan.condition.code not in _COMPLETE
    )
    return f"{words}: shown only" if shown_only else words


_ORDINALS = ("second", "third", "fourth", "fifth")
_SETTINGS = {
    EvictionBudgetKind.HOUR: "max_evictions_per_hour",
    EvictionBudgetKind.NODE: "max_evictions_per_node",
    EvictionBudgetKind.WORKLOAD: "max_evictions_per_workload",
}


@dataclass(frozen=True, slots=True)
class LargerPlanDocument:
    """What takes more evictions in one go than budgets allow, and the settings that would allow them."""

    placed: int
    evictions: int
    needs: dict[str, int]


@dataclass(frozen=True, slots=True)
class RemainingRoundsDocument:
    """What eviction budgets leave to later plans: those spent, what each go would add, and what none does."""

    spent: tuple[SpentBudget, ...]
    rounds: tuple[PlanRound, ...]
    with_larger_budgets: LargerPlanDocument | None
    message: str


def describe_remaining_rounds(later: RemainingRounds | None) -> list[str]:
    """Say where budgets end a plan, what further plans add, and which budgets keep the rest out for good."""
    said: list[str] = []
    if later is None:
        return said
    if later.rounds:
        first = format_count(later.rounds[0].placed, "more pod")
        counts = [first, *(f"{one.placed:,} more" for one in later.rounds[1:])]
        goes = join_words(
            [
                f"{count} with a {ordinal} go ({format_count(one.evictions, 'eviction')})"
                for count, ordinal, one in zip(counts, _ORDINALS, later.rounds, strict=False)
            ]
        )
        ends = "ends" if len(later.spent) == 1 and later.spent[0].allowed == 1 else "end"
        spent = join_words([_spent_words(one) for one in later.spent])
        said.append(
            f"{spent} {ends} the plan here; {goes}." if spent else f"Once budgets have filled up again: {goes}."
        )
    if later.with_larger_budgets is not None:
        said.append(_larger_words(later.with_larger_budgets))
    return said


def build_remaining_rounds_document(later: RemainingRounds) -> RemainingRoundsDocument:
    """Return the same for documents."""
    larger = None
    if later.with_larger_budgets is not None:
        needs = {_SETTINGS[budget]: many for budget, many in later.with_larger_budgets.needs}
        larger = LargerPlanDocument(later.with_larger_budgets.placed, later.with_larger_budgets.evictions, needs)
    return RemainingRoundsDocument(later.spent, later.rounds, larger, " ".join(describe_remaining_rounds(later)))


def _spent_words(one: SpentBudget) -> str:
    """Write a budget: `20 evictions an hour`, `1 eviction from n1 or n2 at once`."""
    evictions = format_count(one.allowed, "eviction")
    several = len(one.subjects) > 1
    names = f"{format_first_names(list(one.subjects), 'and')}{' each' if several else ''}"
    match one.budget:
        case EvictionBudgetKind.HOUR:
            return f"{evictions} left in this hour"
        case EvictionBudgetKind.NODE:
            return f"{evictions} in one go from {names}"
        case EvictionBudgetKind.WORKLOAD:
            return f"{evictions} in one go of {names}"
        case EvictionBudgetKind.DISRUPTION:
            return f"{evictions} under PodDisruptionBudget{'s' if several else ''} {names}"


def _larger_words(larger: LargerBudgetPlan) -> str:
    verb = "takes" if larger.placed == 1 else "take"
    begin = f"{format_count(larger.placed, 'pod')} {verb} {format_count(larger.evictions, 'eviction')} in one go"
    needs = join_words([f"{_SETTINGS[budget]} of {many:,}" for budget, many in larger.needs])
    if not needs:
        return f"{begin}, which budgets do not allow now: pods that are not ready count as well."
    return f"{begin}: with {needs} that would be a plan."


# What there is to say of a plan besides its figures, for people.

_NOTE_DESCRIPTIONS: Mapping[PackingNoteCode, str] = {
    PackingNoteCode.NO_TIME: "no time to search: answered by the quick method",
    PackingNoteCode.OVER_TIME: "stopped at the time limit: the best plan until then",
    PackingNoteCode.STILL_COMPILING: "solver still compiling: answered by the quick method",
    PackingNoteCode.COMPILES_ONCE: "the solver is compiled once after an installation: --time-limit 120 waits for that",
    PackingNoteCode.SOLVER_NOT_STARTED: "the solver could not be started ({detail}): answered by the quick method",
    PackingNoteCode.SOLVER_ENDED: "the solver ended unexpectedly ({detail}): answered by the quick method",
    PackingNoteCode.EVICTIONS_NEEDED: "no plan without evictions places as many: proved",
    PackingNoteCode.EVICTIONS_NOT_PROVED: "more would be placed by evictions, but it is not proved that this takes evictions",
    PackingNoteCode.PACKING_DROPPED: "a packing was dropped: {detail}",
    PackingNoteCode.PLAN_DROPPED: "a better packing was found, but dropped: {detail}",
    PackingNoteCode.NODES_KEPT: (
        "some nodes stay in use: no order was found in which kube-scheduler would let every pod in"
    ),
    PackingNoteCode.OTHER_ORDERS: (
        "what is proved is of plans in which each rule holds in the end, and pods count volumes that they share: "
        "kube-scheduler may let more pods in, one after the other"
    ),
}


def describe_note(note: PackingNote) -> str:
    """Say what a note says, without a full stop."""
    are = "is" if note.count == 1 else "are"
    match note.code:
        case PackingNoteCode.PODS_IGNORED:
            return f"{format_count(note.count, 'pending pod')} {are} left out: {note.detail}"
        case PackingNoteCode.NODES_MISSING:
            where = "a node that is" if note.count == 1 else "nodes that are"
            return f"{format_count(note.count, 'pod')} {are} bound to {where} not there"
        case code:
            return _NOTE_DESCRIPTIONS[code].format(detail=note.detail)

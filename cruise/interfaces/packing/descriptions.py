"""Describes plan conditions, notes and the remaining rounds of a plan for people."""

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
from cruise.interfaces.packing.unschedulable import format_first_names
from cruise.interfaces.text import format_count, join_words
from cruise.packer.answer import PackingNote, PackingNoteCode

_CONDITION_DESCRIPTIONS: Mapping[PlanStatusReason, str] = {
    PlanStatusReason.API_ERROR: "{detail}",
    PlanStatusReason.FAILED: "failed: {detail}",
    PlanStatusReason.MODE: "mode {subject}",
    PlanStatusReason.PAUSED: "paused",
    PlanStatusReason.NO_PENDING_PODS: "no pod is pending",
    PlanStatusReason.OTHER_PLAN_ACTIVE: "a plan is in progress",
    PlanStatusReason.NO_STATISTICS: "no statistics yet",
    PlanStatusReason.STALE_STATISTICS: "no statistics since {subject}",
    PlanStatusReason.NO_MOVE_ORDER: "no order was found in which kube-scheduler would bind every pod",
    PlanStatusReason.NODE_TOO_SMALL: "the pods on node {subject} cannot be resized to the planned sizes",
    PlanStatusReason.VERIFICATION_FAILED: "no plan: {detail}",
    PlanStatusReason.NOTHING_TO_DO: "nothing to do",
    PlanStatusReason.NOT_PROVED: "it is not proved that evictions are needed",
    PlanStatusReason.SWITCHED_OFF: "packing is switched off",
    PlanStatusReason.NO_EVICTIONS: "mode {subject} evicts no pods",
    PlanStatusReason.PENDING_PODS_FIRST: "pods are pending",
    PlanStatusReason.NO_NODE_REMOVABLE: "no node can be drained",
    PlanStatusReason.NO_POD_MOVED: "no pod may be moved now",
    PlanStatusReason.PLACEMENT_HINT: "waits until the webhook has the placement hints",
    PlanStatusReason.RECREATION: "waits until {subject} is created again",
    PlanStatusReason.RESIZE: "waits until the resize of {subject} is actual",
    PlanStatusReason.DISRUPTION_BUDGET: "waits until PodDisruptionBudget {subject} allows an eviction",
    PlanStatusReason.POD_BINDING: "waits until {subject} is bound",
    PlanStatusReason.EVICTION_IN_PROGRESS: "waits until the evicted pods are deleted",
    PlanStatusReason.SKIPPED: "{detail}: {subject}",
    PlanStatusReason.TOO_OLD: "older than the next pass",
    PlanStatusReason.POD_NOT_FOUND: "pod {subject} no longer exists",
    PlanStatusReason.NODE_NOT_FOUND: "node {subject} no longer exists",
    PlanStatusReason.NODE_UNSCHEDULABLE: "node {subject} is unschedulable",
    PlanStatusReason.NODE_FULL: "node {subject} has too little free capacity for the pods that must arrive",
    PlanStatusReason.SCHEDULED_WITHOUT_PLAN: "pod {subject} was scheduled without the plan",
    PlanStatusReason.PLAN_INVALID: "{detail}",
    PlanStatusReason.CANNOT_RESIZE: "node {detail} cannot resize {subject} as planned",
    PlanStatusReason.NO_NODE_FOR_POD: "kube-scheduler finds no node for {subject}",
    PlanStatusReason.EVICTION_REFUSED: "the eviction of {subject} was rejected: {detail}",
    PlanStatusReason.RESIZE_REFUSED: "the resize of {subject} was rejected: {detail}",
}
# Conditions that tell by themselves that the plan is not carried out.
_COMPLETE = (PlanStatusReason.NOTHING_TO_DO, PlanStatusReason.API_ERROR)


def describe_condition(condition: PlanCondition | None) -> str:
    """Describe a condition without a full stop; empty for None."""
    if condition is None:
        return ""
    similar = f" (and {condition.similar_count} more)" if condition.similar_count else ""
    return _CONDITION_DESCRIPTIONS[condition.code].format(subject=condition.subject, detail=condition.detail) + similar


def describe_plan_condition(plan: PackingPlan) -> str:
    """Describe why a plan was dropped, is advisory or waits; empty if it continues."""
    description = describe_condition(plan.condition)
    is_advisory = (
        plan.phase is PlanPhase.ADVISORY and plan.condition is not None and plan.condition.code not in _COMPLETE
    )
    return f"{description}: shown only" if is_advisory else description


_ORDINALS = ("second", "third", "fourth", "fifth")
_SETTINGS = {
    EvictionBudgetKind.HOUR: "max_evictions_per_hour",
    EvictionBudgetKind.NODE: "max_evictions_per_node",
    EvictionBudgetKind.WORKLOAD: "max_evictions_per_workload",
}


@dataclass(frozen=True, slots=True)
class LargerPlanDocument:
    """What needs more evictions in one round than budgets allow, and the settings that would allow them."""

    placed: int
    evictions: int
    needs: dict[str, int]


@dataclass(frozen=True, slots=True)
class RemainingRoundsDocument:
    """What eviction budgets leave to later rounds: spent budgets, the rounds, and what no round does."""

    spent: tuple[SpentBudget, ...]
    rounds: tuple[PlanRound, ...]
    with_larger_budgets: LargerPlanDocument | None
    message: str


def describe_remaining_rounds(remaining: RemainingRounds | None) -> list[str]:
    """Describe which budgets end a plan, what further rounds add, and which settings keep the rest out."""
    sentences: list[str] = []
    if remaining is None:
        return sentences
    if remaining.rounds:
        first = format_count(remaining.rounds[0].placed, "more pod")
        counts = [first, *(f"{plan_round.placed:,} more" for plan_round in remaining.rounds[1:])]
        rounds = join_words(
            [
                f"{count} in a {ordinal} round ({format_count(plan_round.evictions, 'eviction')})"
                for count, ordinal, plan_round in zip(counts, _ORDINALS, remaining.rounds, strict=False)
            ]
        )
        ends = "ends" if len(remaining.spent) == 1 and remaining.spent[0].allowed == 1 else "end"
        spent = join_words([_describe_spent_budget(plan_round) for plan_round in remaining.spent])
        sentences.append(
            f"{spent} {ends} the plan here; {rounds}." if spent else f"Once budgets are renewed: {rounds}."
        )
    if remaining.with_larger_budgets is not None:
        sentences.append(_describe_larger_plan(remaining.with_larger_budgets))
    return sentences


def build_remaining_rounds_document(remaining: RemainingRounds) -> RemainingRoundsDocument:
    """Return the remaining rounds as a document."""
    larger = None
    if remaining.with_larger_budgets is not None:
        needs = {_SETTINGS[budget]: count for budget, count in remaining.with_larger_budgets.needs}
        larger = LargerPlanDocument(
            remaining.with_larger_budgets.placed, remaining.with_larger_budgets.evictions, needs
        )
    return RemainingRoundsDocument(
        remaining.spent, remaining.rounds, larger, " ".join(describe_remaining_rounds(remaining))
    )


def _describe_spent_budget(spent: SpentBudget) -> str:
    """Write a budget: `20 evictions left in this hour`, `1 eviction in one round from n1 and n2 each`."""
    evictions = format_count(spent.allowed, "eviction")
    is_plural = len(spent.subjects) > 1
    names = f"{format_first_names(list(spent.subjects), 'and')}{' each' if is_plural else ''}"
    match spent.budget:
        case EvictionBudgetKind.HOUR:
            return f"{evictions} left in this hour"
        case EvictionBudgetKind.NODE:
            return f"{evictions} in one round from {names}"
        case EvictionBudgetKind.WORKLOAD:
            return f"{evictions} in one round of {names}"
        case EvictionBudgetKind.DISRUPTION:
            return f"{evictions} under PodDisruptionBudget{'s' if is_plural else ''} {names}"


def _describe_larger_plan(larger: LargerBudgetPlan) -> str:
    verb = "takes" if larger.placed == 1 else "take"
    beginning = f"{format_count(larger.placed, 'pod')} {verb} {format_count(larger.evictions, 'eviction')} in one round"
    needs = join_words([f"{_SETTINGS[budget]} of {count:,}" for budget, count in larger.needs])
    if not needs:
        return f"{beginning}, which budgets do not allow now: pods that are not ready count as well."
    return f"{beginning}: with {needs} it would be planned."


_NOTE_DESCRIPTIONS: Mapping[PackingNoteCode, str] = {
    PackingNoteCode.NO_TIME: "no time to search: answered by the quick method",
    PackingNoteCode.OVER_TIME: "stopped at the time limit: the best plan until then",
    PackingNoteCode.STILL_COMPILING: "solver still compiling: answered by the quick method",
    PackingNoteCode.COMPILES_ONCE: "the solver is compiled once after an installation: --time-limit 120 waits for that",
    PackingNoteCode.SOLVER_NOT_STARTED: "the solver could not be started ({detail}): answered by the quick method",
    PackingNoteCode.SOLVER_ENDED: "the solver ended unexpectedly ({detail}): answered by the quick method",
    PackingNoteCode.EVICTIONS_NEEDED: "no plan without evictions places as many: proved",
    PackingNoteCode.EVICTIONS_NOT_PROVED: (
        "more pods would be placed with evictions, but it is not proved that evictions are needed"
    ),
    PackingNoteCode.PACKING_DROPPED: "a packing was dropped: {detail}",
    PackingNoteCode.PLAN_DROPPED: "a better packing was found, but dropped: {detail}",
    PackingNoteCode.NODES_KEPT: (
        "some nodes stay in use: no order was found in which kube-scheduler would bind every pod"
    ),
    PackingNoteCode.OTHER_ORDERS: (
        "the proof is for plans in which all rules hold in the end and shared volumes count for each pod; "
        "kube-scheduler may bind more pods one after the other"
    ),
}


def describe_note(note: PackingNote) -> str:
    """Describe a note without a full stop."""
    are = "is" if note.count == 1 else "are"
    match note.code:
        case PackingNoteCode.PODS_IGNORED:
            return f"{format_count(note.count, 'pending pod')} {are} ignored: {note.detail}"
        case PackingNoteCode.NODES_MISSING:
            where = "a node that is" if note.count == 1 else "nodes that are"
            return f"{format_count(note.count, 'pod')} {are} bound to {where} unknown"
        case code:
            return _NOTE_DESCRIPTIONS[code].format(detail=note.detail)

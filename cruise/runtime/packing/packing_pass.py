"""The packing pass: plans for pods that are pending after rightsizing; a plan is verified and stored."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

import structlog

from cruise.decisions.packing.consolidation import summarize_node_count_change
from cruise.decisions.packing.execution import start_plan
from cruise.decisions.packing.problem import UsageInputs
from cruise.decisions.packing.proposal import MoveOrderFailure
from cruise.decisions.packing.remaining_plan import find_spent_budgets, predict_cluster_after_plan
from cruise.decisions.scheduling.placements import is_waiting_for_scheduling
from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.domain.packing_plan import (
    UNLIMITED,
    EvictionAllowance,
    EvictionBudgetKind,
    LargerBudgetPlan,
    PackingPlan,
    PackingProposal,
    PlanPhase,
    PlanRound,
    RemainingRounds,
)
from cruise.domain.policy import Mode, Policy
from cruise.domain.reasons import PlanCondition, PlanStatusReason, UnschedulableCode
from cruise.errors import CruiseError
from cruise.packer.answer import Packing, PackingNote, PackingNoteCode
from cruise.packer.problem import PackingProblem
from cruise.runtime.packing.planning import PlanningInputs, PlanningResult, find_objections, plan_packing
from cruise.runtime.ports import PassContext, StorePort
from cruise.runtime.usage.usage_state import UsageState
from cruise.runtime.writing.evictions import BUDGET_WINDOW, EvictionBudgets

# Share of the plan's search time, in addition to it.
_LATER_SHARE = 0.5
# The cluster will have changed before more rounds could start.
_MOST_GOES = 4
# Share of the remaining time for each round, and the shortest time of one.
_SHARE, _MIN_ROUND_SECONDS = 0.5, 0.2

# Makes a plan from inputs within some seconds; None if there is none.
MakePlan = Callable[[PlanningInputs, float], Awaitable[PackingProposal | None]]


def get_full_eviction_allowance(inputs: PlanningInputs) -> EvictionAllowance:
    """Return the evictions that a plan may have if there were none before it; pods that are not ready still count."""
    return EvictionBudgets(inputs.snapshot, inputs.policy, inputs.usage.now).get_allowance(())


async def plan_remaining_rounds(
    inputs: PlanningInputs,
    proposal: PackingProposal,
    make: MakePlan,
    seconds: float,
    monotonic: Callable[[], float] = time.monotonic,
) -> RemainingRounds | None:
    """Plan further rounds after a plan, while each adds something, in half of the plan's `seconds`.

    Returns None if the eviction budgets left out none of the plan's pending pods.
    """
    waiting = {
        one.key
        for one in proposal.unplaced
        if not one.impossible and one.reason.code is not UnschedulableCode.NOT_EVALUATED
    }
    spent = find_spent_budgets(inputs.snapshot, proposal, inputs.allowance)
    end, rounds, larger = monotonic() + seconds * _LATER_SHARE, list[PlanRound](), None
    # The same budgets would not let another pod in.
    plan_again = bool(spent) or inputs.allowance != get_full_eviction_allowance(inputs)
    inputs = replace(inputs, snapshot=predict_cluster_after_plan(inputs.snapshot, proposal))
    while plan_again and waiting and len(rounds) < _MOST_GOES and (left := end - monotonic()) > _MIN_ROUND_SECONDS:
        after = await make(replace(inputs, allowance=get_full_eviction_allowance(inputs)), left * _SHARE)
        plan_again = after is not None and bool(_count_placed(after, waiting))
        if after is not None and plan_again:
            rounds.append(PlanRound(_count_placed(after, waiting), len(after.evicted)))
            waiting -= {one.key for one in after.placed}
            inputs = replace(inputs, snapshot=predict_cluster_after_plan(inputs.snapshot, after))
    if waiting and not plan_again and (left := end - monotonic()) > _MIN_ROUND_SECONDS:
        free = await make(replace(inputs, allowance=UNLIMITED), left)
        larger = (
            None if free is None or not _count_placed(free, waiting) else _allow_more_evictions(inputs, free, waiting)
        )
    return RemainingRounds(spent, tuple(rounds), larger) if rounds or larger is not None else None


def _count_placed(proposal: PackingProposal, waiting: set[tuple[str, str]]) -> int:
    return sum(one.key in waiting for one in proposal.placed)


def _allow_more_evictions(
    inputs: PlanningInputs, proposal: PackingProposal, waiting: set[tuple[str, str]]
) -> LargerBudgetPlan:
    policy, gone = inputs.policy, [pod for pod in inputs.snapshot.pods if pod.uid in proposal.evicted]
    of_nodes = Counter(pod.node for pod in gone)
    of_workloads = Counter((pod.namespace, pod.workload) for pod in gone)
    needs = (
        (EvictionBudgetKind.HOUR, len(gone), policy.max_evictions_per_hour),
        (EvictionBudgetKind.NODE, max(of_nodes.values(), default=0), policy.max_evictions_per_node),
        (EvictionBudgetKind.WORKLOAD, max(of_workloads.values(), default=0), policy.max_evictions_per_workload),
    )
    more = tuple((budget, many) for budget, many, allowed in needs if many > allowed)
    return LargerBudgetPlan(_count_placed(proposal, waiting), len(gone), more)


log = structlog.get_logger()
T = TypeVar("T")

_MIN_PLAN_SECONDS = 0.5


class PackingSolver(Protocol):
    """Solves packing problems: the warm process, or in tests a function of this process."""

    def pack(self, problem: PackingProblem, seconds: float, /) -> Awaitable[Packing]:
        """Return the best packing found within `seconds` that obeys every rule."""


@dataclass(frozen=True, slots=True)
class PackingPassResult:
    """The result of a packing pass: a plan, or why there is none; `waiting` is the number of pending pods."""

    at: datetime
    waiting: int
    plan: PackingPlan | None = None
    condition: PlanCondition | None = None


async def run_packing_pass(
    inputs: PassContext,
    solver: PackingSolver,
    *,
    seconds: float,
    min_pending: timedelta | None = None,
    enabled: bool = True,
    known_usage: UsageState | None = None,
    monotonic: Callable[[], float] = time.monotonic,
) -> PackingPassResult:
    """Make and store a plan if pods are unschedulable for longer than `min_pending`, by default one pass interval.

    `seconds` is the time limit of solving; `known_usage` has the statistics of the process's last usage pass. In mode
    `observe` the plan is that of mode `full`, and is only shown. No plan is made while another is in progress. Raises
    Unavailable if the cluster, the database or the solver is unreachable.
    """
    store, policy, now = inputs.store, inputs.policy, inputs.now
    snapshot = await inputs.cluster.snapshot()
    waiting = find_unschedulable_pods(snapshot, now, policy.pass_interval if min_pending is None else min_pending)
    if not waiting:
        return PackingPassResult(now, 0, condition=PlanCondition(PlanStatusReason.NO_PENDING_PODS))
    if policy.mode in (Mode.OFF, Mode.INITIAL):
        return PackingPassResult(now, len(waiting), condition=PlanCondition(PlanStatusReason.MODE, policy.mode.label))
    last = await store.read_packing_plan()
    if last is not None and last.phase is PlanPhase.IN_PROGRESS:
        return PackingPassResult(now, len(waiting), last, PlanCondition(PlanStatusReason.OTHER_PLAN_ACTIVE))
    planning_inputs = await gather_inputs(snapshot, store, known_usage or UsageState(), policy, now)
    made = await convert_errors_to_conditions(
        _make_best_plan(planning_inputs, solver, seconds, monotonic), "packing pass"
    )
    if isinstance(made, PlanCondition):
        return PackingPassResult(now, len(waiting), condition=made)
    advisory_reason = PlanCondition(PlanStatusReason.NOT_PROVED) if made.evicts_unproved else None
    if not enabled:
        advisory_reason = PlanCondition(PlanStatusReason.SWITCHED_OFF)
    if await store.is_paused():
        advisory_reason = PlanCondition(PlanStatusReason.PAUSED)
    plan = start_plan(made.plan, now, now, made.seconds, policy.mode, advisory_reason=advisory_reason)
    await store.write_packing_plan(plan)
    _log(plan, len(waiting))
    return PackingPassResult(now, len(waiting), plan)


async def convert_errors_to_conditions(work: Awaitable[T], name: str) -> T | PlanCondition:
    """Return the result of a pass, or a condition for an unexpected exception. Raises CruiseError."""
    try:
        return await work
    except CruiseError:
        raise
    except Exception as mistake:
        # An unexpected property of one cluster's pods must not stop the other passes.
        log.error(f"{name} failed", error=repr(mistake), exc_info=True)
        return PlanCondition(PlanStatusReason.FAILED, detail=repr(mistake))


async def _make_best_plan(
    inputs: PlanningInputs, solver: PackingSolver, seconds: float, monotonic: Callable[[], float]
) -> PlanningResult[PackingProposal] | PlanCondition:
    """Return the plan to carry out or show, and what further rounds would add; or why there is none."""

    async def plan_again(there: PlanningInputs, within: float) -> PackingProposal | None:
        found = await make_plan(there, solver, within, monotonic)
        return None if isinstance(found, PlanCondition) or found.evicts_unproved else found.plan

    made = await make_plan(inputs, solver, seconds, monotonic)
    if isinstance(made, PlanCondition):
        return made
    if made.evicts_unproved:
        without = replace(inputs, policy=replace(inputs.policy, mode=Mode.RESIZE))
        rescue = await make_plan(without, solver, max(_MIN_PLAN_SECONDS, seconds - made.seconds), monotonic)
        # Otherwise the plan is only shown.
        if isinstance(rescue, PlanningResult) and rescue.plan.placed:
            plan = replace(rescue.plan, notes=(*rescue.plan.notes, PackingNote(PackingNoteCode.EVICTIONS_NOT_PROVED)))
            made = replace(rescue, plan=plan, seconds=made.seconds + rescue.seconds)
    later = await plan_remaining_rounds(inputs, made.plan, plan_again, seconds, monotonic)
    return replace(made, plan=replace(made.plan, remaining_rounds=later))


async def make_plan(
    inputs: PlanningInputs, solver: PackingSolver, seconds: float, monotonic: Callable[[], float]
) -> PlanningResult[PackingProposal] | PlanCondition:
    """Return a verified plan, or why there is none."""

    async def pack(problem: PackingProblem, taken: float) -> tuple[Packing, float]:
        began = monotonic()
        packing = await solver.pack(problem, max(_MIN_PLAN_SECONDS, seconds - taken))
        return packing, monotonic() - began

    found = await plan_packing(inputs, pack)
    if isinstance(found.plan, MoveOrderFailure):
        log.warning("no packing plan", why=str(found.plan.reason))
        return found.plan.reason
    made = PlanningResult(found.built, found.packing, found.plan, found.seconds)
    if inputs.candidate_nodes is not None:
        made = replace(
            made,
            plan=replace(
                made.plan,
                node_count_change=summarize_node_count_change(
                    made.built, made.planned_packing, made.plan, inputs.candidate_nodes
                ),
            ),
        )
    objections = await asyncio.to_thread(find_objections, made.plan, made.built, inputs.allowance)
    if objections:
        # A plan that fails verification is a defect of cruise: it is not shown.
        log.error("packing plan dropped", objections=list(objections[:10]), count=len(objections))
        return PlanCondition(PlanStatusReason.VERIFICATION_FAILED, detail=objections[0])
    return made


def find_unschedulable_pods(snapshot: ClusterSnapshot, now: datetime, min_pending: timedelta) -> list[Pod]:
    """Return the pods that kube-scheduler could not schedule for longer than `min_pending`."""
    return [
        pod
        for pod in snapshot.pods
        if is_waiting_for_scheduling(pod)
        and pod.unschedulable_since is not None
        and now - pod.unschedulable_since >= min_pending
    ]


async def gather_inputs(
    snapshot: ClusterSnapshot, store: StorePort, known: UsageState, policy: Policy, now: datetime
) -> PlanningInputs:
    """Read the inputs of plans in addition to the cluster, with the rest of the eviction budgets."""
    usage = UsageInputs(
        await known.get_statistics(store), now, await store.read_paused_workloads(), await store.read_refused_resizes()
    )
    spent = await store.read_evictions_since(now - BUDGET_WINDOW)
    return PlanningInputs(
        snapshot, policy.planning_policy, usage, EvictionBudgets(snapshot, policy, now).get_allowance(spent)
    )


def _log(plan: PackingPlan, waiting: int) -> None:
    proposal = plan.proposal
    log.info(
        "packing pass",
        plan=plan.id,
        status=proposal.status.value,
        waiting=waiting,
        placed=len(proposal.placed),
        moves=len(proposal.moves),
        preempted=len(proposal.preempted),
        resizes=len(proposal.resizes),
        seconds=round(plan.seconds, 3),
        phase=plan.phase.value,
        halt=None if plan.condition is None else str(plan.condition),
    )

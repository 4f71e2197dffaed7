"""The packing pass: pods that are pending after rightsizing in, a plan for them out, proved, judged and stored."""

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
from cruise.decisions.packing.proposal import NoMoveOrder
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
from cruise.runtime.ports import ClusterPort, StorePort
from cruise.runtime.usage.usage_state import UsageState
from cruise.runtime.writing.evictions import BUDGET_WINDOW, EvictionBudgets

# What further plans would add to one that eviction budgets end.

# Of the time that a plan is searched for, beside it.
_LATER_SHARE = 0.5
# More are hardly ever waited for: the cluster will be another by then.
_MOST_GOES = 4
# Of the time that is left, for each of them; and the least that one is tried in.
_SHARE, _LEAST_SECONDS = 0.5, 0.2

# Plans for a scene in so many seconds; None where no plan comes of it.
MakePlan = Callable[[PlanningInputs, float], Awaitable[PackingProposal | None]]


def get_full_eviction_allowance(scene: PlanningInputs) -> EvictionAllowance:
    """Return what a plan may evict where nothing was evicted before it; pods that do not serve count all the same."""
    return EvictionBudgets(scene.snapshot, scene.policy, scene.usage.now).get_allowance(())


async def plan_remaining_rounds(
    scene: PlanningInputs,
    proposal: PackingProposal,
    make: MakePlan,
    seconds: float,
    monotonic: Callable[[], float] = time.monotonic,
) -> RemainingRounds | None:
    """Plan on from where a plan ends, for as long as that adds something, and half of the `seconds` of the plan last.

    None where the plan leaves no pod that budgets could have kept out.
    """
    waiting = {
        one.key
        for one in proposal.unplaced
        if not one.impossible and one.reason.code is not UnschedulableCode.NOT_EVALUATED
    }
    spent = find_spent_budgets(scene.snapshot, proposal, scene.allowance)
    end, goes, larger = monotonic() + seconds * _LATER_SHARE, list[PlanRound](), None
    # The same budgets again do for no other pod what they did not do for this plan.
    again = bool(spent) or scene.allowance != get_full_eviction_allowance(scene)
    scene = replace(scene, snapshot=predict_cluster_after_plan(scene.snapshot, proposal))
    while again and waiting and len(goes) < _MOST_GOES and (left := end - monotonic()) > _LEAST_SECONDS:
        after = await make(replace(scene, allowance=get_full_eviction_allowance(scene)), left * _SHARE)
        again = after is not None and bool(_placed(after, waiting))
        if after is not None and again:
            goes.append(PlanRound(_placed(after, waiting), len(after.evicted)))
            waiting -= {one.key for one in after.placed}
            scene = replace(scene, snapshot=predict_cluster_after_plan(scene.snapshot, after))
    if waiting and not again and (left := end - monotonic()) > _LEAST_SECONDS:
        free = await make(replace(scene, allowance=UNLIMITED), left)
        larger = None if free is None or not _placed(free, waiting) else _larger(scene, free, waiting)
    return RemainingRounds(spent, tuple(goes), larger) if goes or larger is not None else None


def _placed(proposal: PackingProposal, waiting: set[tuple[str, str]]) -> int:
    return sum(one.key in waiting for one in proposal.placed)


def _larger(scene: PlanningInputs, proposal: PackingProposal, waiting: set[tuple[str, str]]) -> LargerBudgetPlan:
    policy, gone = scene.policy, [pod for pod in scene.snapshot.pods if pod.uid in proposal.evicted]
    of_nodes = Counter(pod.node for pod in gone)
    of_workloads = Counter((pod.namespace, pod.workload) for pod in gone)
    needs = (
        (EvictionBudgetKind.HOUR, len(gone), policy.max_evictions_per_hour),
        (EvictionBudgetKind.NODE, max(of_nodes.values(), default=0), policy.max_evictions_per_node),
        (EvictionBudgetKind.WORKLOAD, max(of_workloads.values(), default=0), policy.max_evictions_per_workload),
    )
    more = tuple((budget, many) for budget, many, allowed in needs if many > allowed)
    return LargerBudgetPlan(_placed(proposal, waiting), len(gone), more)


log = structlog.get_logger()
T = TypeVar("T")

_LEAST_SECONDS_packing_pass = 0.5


class PackingSolver(Protocol):
    """What solves packing problems: the warm process, or in tests something in this one."""

    def pack(self, problem: PackingProblem, seconds: float, /) -> Awaitable[Packing]:
        """Return a packing that obeys every rule, the best that was found within `seconds`."""
        ...


@dataclass(frozen=True, slots=True)
class PackingPassResult:
    """What one packing pass came to: a plan, or why there is none; `waiting` pods were the reason for it."""

    at: datetime
    waiting: int
    plan: PackingPlan | None = None
    condition: PlanCondition | None = None


async def run_packing_pass(
    cluster: ClusterPort,
    store: StorePort,
    solver: PackingSolver,
    policy: Policy,
    now: datetime,
    *,
    seconds: float,
    patience: timedelta | None = None,
    enabled: bool = True,
    known_usage: UsageState | None = None,
    monotonic: Callable[[], float] = time.monotonic,
) -> PackingPassResult:
    """Make and store a plan where pods have been unschedulable for longer than `patience`, by default one node pass.

    `seconds` is how long solving may take; `known_usage` has the statistics of the process's last usage pass. In mode
    `observe` the plan is that of mode `full`, and only shown. Where a plan is under way already, none is made. Raises
    Unavailable where cluster, store or solver are out of reach.
    """
    snapshot = await cluster.snapshot()
    waiting = find_unschedulable_pods(snapshot, now, policy.pass_interval if patience is None else patience)
    if not waiting:
        return PackingPassResult(now, 0, condition=PlanCondition(PlanStatusReason.NO_PENDING_PODS))
    if policy.mode in (Mode.OFF, Mode.INITIAL):
        return PackingPassResult(now, len(waiting), condition=PlanCondition(PlanStatusReason.MODE, policy.mode.label))
    last = await store.packing()
    if last is not None and last.phase is PlanPhase.IN_PROGRESS:
        return PackingPassResult(now, len(waiting), last, PlanCondition(PlanStatusReason.OTHER_PLAN_ACTIVE))
    scene = await gather_inputs(snapshot, store, known_usage or UsageState(), policy, now)
    made = await convert_errors_to_conditions(_best_of(scene, solver, seconds, monotonic), "packing pass")
    if isinstance(made, PlanCondition):
        return PackingPassResult(now, len(waiting), condition=made)
    why_not = PlanCondition(PlanStatusReason.NOT_PROVED) if made.evicts_unproved else None
    if not enabled:
        why_not = PlanCondition(PlanStatusReason.SWITCHED_OFF)
    if await store.paused():
        why_not = PlanCondition(PlanStatusReason.PAUSED)
    plan = start_plan(made.plan, now, now, made.seconds, policy.mode, advisory_reason=why_not)
    await store.save_packing(plan)
    _log(plan, len(waiting))
    return PackingPassResult(now, len(waiting), plan)


async def convert_errors_to_conditions(work: Awaitable[T], name: str) -> T | PlanCondition:
    """Return what the work of a pass came to, or a mistake of ours. Raises what the world refuses."""
    try:
        return await work
    except CruiseError:
        raise
    except Exception as mistake:
        # What is odd about one cluster's pods must not keep the other passes from their work.
        log.error(f"{name} failed", error=repr(mistake), exc_info=True)
        return PlanCondition(PlanStatusReason.FAILED, detail=repr(mistake))


async def _best_of(
    scene: PlanningInputs, solver: PackingSolver, seconds: float, monotonic: Callable[[], float]
) -> PlanningResult[PackingProposal] | PlanCondition:
    """Return the plan to be carried out or shown, and what further ones would add; or why there is none."""

    async def again(there: PlanningInputs, within: float) -> PackingProposal | None:
        found = await make_plan(there, solver, within, monotonic)
        return None if isinstance(found, PlanCondition) or found.evicts_unproved else found.plan

    made = await make_plan(scene, solver, seconds, monotonic)
    if isinstance(made, PlanCondition):
        return made
    if made.evicts_unproved:
        without = replace(scene, policy=replace(scene.policy, mode=Mode.RESIZE))
        rescue = await make_plan(without, solver, max(_LEAST_SECONDS_packing_pass, seconds - made.seconds), monotonic)
        # Else the plan is only shown.
        if isinstance(rescue, PlanningResult) and rescue.plan.placed:
            plan = replace(rescue.plan, notes=(*rescue.plan.notes, PackingNote(PackingNoteCode.EVICTIONS_NOT_PROVED)))
            made = replace(rescue, plan=plan, seconds=made.seconds + rescue.seconds)
    later = await plan_remaining_rounds(scene, made.plan, again, seconds, monotonic)
    return replace(made, plan=replace(made.plan, remaining_rounds=later))


async def make_plan(
    scene: PlanningInputs, solver: PackingSolver, seconds: float, monotonic: Callable[[], float]
) -> PlanningResult[PackingProposal] | PlanCondition:
    """Return a plan that the judge lets through, or why there is none."""

    async def pack(problem: PackingProblem, taken: float) -> tuple[Packing, float]:
        began = monotonic()
        packing = await solver.pack(problem, max(_LEAST_SECONDS_packing_pass, seconds - taken))
        return packing, monotonic() - began

    found = await plan_packing(scene, pack)
    if isinstance(found.plan, NoMoveOrder):
        log.warning("no packing plan", why=str(found.plan.reason))
        return found.plan.reason
    made = PlanningResult(found.built, found.packing, found.plan, found.seconds)
    if scene.fleet is not None:
        made = replace(
            made,
            plan=replace(
                made.plan,
                node_count_change=summarize_node_count_change(made.built, made.planned_packing, made.plan, scene.fleet),
            ),
        )
    objections = await asyncio.to_thread(find_objections, made.plan, made.built, scene.allowance)
    if objections:
        # A plan that the judge does not let through is a mistake of ours: it is not shown.
        log.error("packing plan dropped", objections=list(objections[:10]), count=len(objections))
        return PlanCondition(PlanStatusReason.VERIFICATION_FAILED, detail=objections[0])
    return made


def find_unschedulable_pods(snapshot: ClusterSnapshot, now: datetime, patience: timedelta) -> list[Pod]:
    """Return the pods that kube-scheduler has found no node for, for longer than `patience`."""
    return [
        pod
        for pod in snapshot.pods
        if is_waiting_for_scheduling(pod)
        and pod.unschedulable_since is not None
        and now - pod.unschedulable_since >= patience
    ]


async def gather_inputs(
    snapshot: ClusterSnapshot, store: StorePort, known: UsageState, policy: Policy, now: datetime
) -> PlanningInputs:
    """Read what plans are made from beside the cluster itself, with what is left of the eviction budgets."""
    usage = UsageInputs(await known.statistics(store), now, await store.overrides(), await store.refused_resizes())
    spent = await store.evictions_since(now - BUDGET_WINDOW)
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

"""The packing pass: pods that are pending after rightsizing in, a plan for them out, proved, judged and stored."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

import structlog

from cruise.decisions.packing.building import Usage
from cruise.decisions.packing.consolidating import fleet_change
from cruise.decisions.packing.execution import begun
from cruise.decisions.packing.proposing import NoOrder
from cruise.decisions.scheduling.board import waits_for_a_node
from cruise.domain.cluster import Pod, Snapshot
from cruise.domain.halts import Halt, HaltCode
from cruise.domain.packing import PackingPlan, Phase, Proposal
from cruise.domain.policy import Mode, Policy
from cruise.errors import CruiseError
from cruise.packer.answer import Note, NoteCode, Packing
from cruise.packer.problem import Problem
from cruise.runtime.packing.later_goes import later_of
from cruise.runtime.packing.planning import Made, Scene, objections_to, planned
from cruise.runtime.ports import Cluster, Store
from cruise.runtime.usage.state import UsageState
from cruise.runtime.writing.evictions import BUDGET_WINDOW, EvictionBudgets

log = structlog.get_logger()
T = TypeVar("T")

_LEAST_SECONDS = 0.5


class Solver(Protocol):
    """What solves packing problems: the warm process, or in tests something in this one."""

    def pack(self, problem: Problem, seconds: float, /) -> Awaitable[Packing]:
        """Return a packing that obeys every rule, the best that was found within `seconds`."""
        ...


@dataclass(frozen=True, slots=True)
class PackingPass:
    """What one packing pass came to: a plan, or why there is none; `waiting` pods were the reason for it."""

    at: datetime
    waiting: int
    plan: PackingPlan | None = None
    why: Halt | None = None


async def packing_pass(
    cluster: Cluster,
    store: Store,
    solver: Solver,
    policy: Policy,
    now: datetime,
    *,
    seconds: float,
    patience: timedelta | None = None,
    enabled: bool = True,
    known_usage: UsageState | None = None,
    monotonic: Callable[[], float] = time.monotonic,
) -> PackingPass:
    """Make and store a plan where pods have been unschedulable for longer than `patience`, by default one node pass.

    `seconds` is how long solving may take; `known_usage` has the statistics of the process's last usage pass. In mode
    `observe` the plan is that of mode `full`, and only shown. Where a plan is under way already, none is made. Raises
    Unavailable where cluster, store or solver are out of reach.
    """
    snapshot = await cluster.snapshot()
    waiting = waiting_pods(snapshot, now, policy.pass_interval if patience is None else patience)
    if not waiting:
        return PackingPass(now, 0, why=Halt(HaltCode.NO_POD_WAITS))
    if policy.mode in (Mode.OFF, Mode.INITIAL):
        return PackingPass(now, len(waiting), why=Halt(HaltCode.MODE, policy.mode.label))
    last = await store.packing()
    if last is not None and last.phase is Phase.UNDER_WAY:
        return PackingPass(now, len(waiting), last, Halt(HaltCode.PLAN_UNDER_WAY))
    scene = await gathered(snapshot, store, known_usage or UsageState(), policy, now)
    made = await mistakes_as_reasons(_best_of(scene, solver, seconds, monotonic), "packing pass")
    if isinstance(made, Halt):
        return PackingPass(now, len(waiting), why=made)
    why_not = Halt(HaltCode.UNPROVED) if made.evicts_unproved else None
    if not enabled:
        why_not = Halt(HaltCode.SWITCHED_OFF)
    if await store.paused():
        why_not = Halt(HaltCode.PAUSED)
    plan = begun(made.plan, now, now, made.seconds, policy.mode, why_not=why_not)
    await store.save_packing(plan)
    _log(plan, len(waiting))
    return PackingPass(now, len(waiting), plan)


async def mistakes_as_reasons(work: Awaitable[T], name: str) -> T | Halt:
    """Return what the work of a pass came to, or a mistake of ours. Raises what the world refuses."""
    try:
        return await work
    except CruiseError:
        raise
    except Exception as mistake:
        # What is odd about one cluster's pods must not keep the other passes from their work.
        log.error(f"{name} failed", error=repr(mistake), exc_info=True)
        return Halt(HaltCode.FAILED, detail=repr(mistake))


async def _best_of(
    scene: Scene, solver: Solver, seconds: float, monotonic: Callable[[], float]
) -> Made[Proposal] | Halt:
    """Return the plan to be carried out or shown, and what further ones would add; or why there is none."""

    async def again(there: Scene, within: float) -> Proposal | None:
        found = await make(there, solver, within, monotonic)
        return None if isinstance(found, Halt) or found.evicts_unproved else found.plan

    made = await make(scene, solver, seconds, monotonic)
    if isinstance(made, Halt):
        return made
    if made.evicts_unproved:
        without = replace(scene, policy=replace(scene.policy, mode=Mode.RESIZE))
        rescue = await make(without, solver, max(_LEAST_SECONDS, seconds - made.seconds), monotonic)
        # Else the plan is only shown.
        if isinstance(rescue, Made) and rescue.plan.placed:
            plan = replace(rescue.plan, notes=(*rescue.plan.notes, Note(NoteCode.EVICTIONS_UNPROVED)))
            made = replace(rescue, plan=plan, seconds=made.seconds + rescue.seconds)
    later = await later_of(scene, made.plan, again, seconds, monotonic)
    return replace(made, plan=replace(made.plan, later=later))


async def make(scene: Scene, solver: Solver, seconds: float, monotonic: Callable[[], float]) -> Made[Proposal] | Halt:
    """Return a plan that the judge lets through, or why there is none."""

    async def pack(problem: Problem, taken: float) -> tuple[Packing, float]:
        began = monotonic()
        packing = await solver.pack(problem, max(_LEAST_SECONDS, seconds - taken))
        return packing, monotonic() - began

    found = await planned(scene, pack)
    if isinstance(found.plan, NoOrder):
        log.warning("no packing plan", why=str(found.plan.why))
        return found.plan.why
    made = Made(found.built, found.packing, found.plan, found.seconds)
    if scene.fleet is not None:
        made = replace(
            made, plan=replace(made.plan, fleet=fleet_change(made.built, made.reached, made.plan, scene.fleet))
        )
    objections = await asyncio.to_thread(objections_to, made.plan, made.built, scene.allowance)
    if objections:
        # A plan that the judge does not let through is a mistake of ours: it is not shown.
        log.error("packing plan dropped", objections=list(objections[:10]), count=len(objections))
        return Halt(HaltCode.UNSOUND, detail=objections[0])
    return made


def waiting_pods(snapshot: Snapshot, now: datetime, patience: timedelta) -> list[Pod]:
    """Return the pods that kube-scheduler has found no node for, for longer than `patience`."""
    return [
        pod
        for pod in snapshot.pods
        if waits_for_a_node(pod) and pod.unschedulable_since is not None and now - pod.unschedulable_since >= patience
    ]


async def gathered(snapshot: Snapshot, store: Store, known: UsageState, policy: Policy, now: datetime) -> Scene:
    """Read what plans are made from beside the cluster itself, with what is left of the eviction budgets."""
    usage = Usage(await known.statistics(store), now, await store.overrides(), await store.refused_targets())
    spent = await store.evictions_since(now - BUDGET_WINDOW)
    return Scene(snapshot, policy.of_plans, usage, EvictionBudgets(snapshot, policy, now).allowance(spent))


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
        halt=None if plan.halt is None else str(plan.halt),
    )

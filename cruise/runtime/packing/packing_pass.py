"""The packing pass: pods that are pending after rightsizing in, a plan for them out, proved, judged and stored."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

import structlog

from cruise.decisions.packing.building import Built, Usage, build_problem
from cruise.decisions.packing.consolidating import Fleet, fleet_change
from cruise.decisions.packing.execution import begun
from cruise.decisions.packing.judging import Demand, find_objections
from cruise.decisions.packing.proposing import NoOrder, propose
from cruise.decisions.packing.proposing.propose import arrives_at
from cruise.decisions.scheduling.board import PodKey, key_of, waits_for_a_node
from cruise.domain.cluster import Pod, Snapshot
from cruise.domain.halts import Halt, HaltCode
from cruise.domain.packing import Allowance, PackingPlan, Phase, Proposal, Sizes
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import Resources
from cruise.errors import CruiseError
from cruise.packer.answer import Note, NoteCode, Packing
from cruise.packer.problem import Objective, Problem
from cruise.runtime.packing.later_goes import LATER_SHARE, later_of
from cruise.runtime.ports import Cluster, Store
from cruise.runtime.usage.state import UsageState
from cruise.runtime.writing.evictions import BUDGET_WINDOW, EvictionBudgets

log = structlog.get_logger()
T = TypeVar("T")

_MOST_PROBLEMS = 4
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


@dataclass(frozen=True, slots=True)
class Scene:
    """What a problem is built from; with a `fleet` it is one of as few nodes as can be."""

    snapshot: Snapshot
    usage: Usage
    policy: Policy
    allowance: Allowance
    fleet: Fleet | None = None
    keep_domains: bool = False


@dataclass(frozen=True, slots=True)
class Made:
    """A plan with what it was made from, and how long solving took."""

    proposal: Proposal
    seconds: float
    built: Built
    packing: Packing

    @property
    def evicts_unproved(self) -> bool:
        """Tell whether pods would be evicted although another plan might need none."""
        return bool(self.proposal.moves or self.proposal.preempted) and not self.packing.needs_evictions


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
    plan = begun(made.proposal, now, now, made.seconds, policy.mode, why_not=why_not)
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


async def _best_of(scene: Scene, solver: Solver, seconds: float, monotonic: Callable[[], float]) -> Made | Halt:
    """Return the plan to be carried out or shown, and what further ones would add; or why there is none."""
    made = await make(scene, solver, seconds, monotonic)
    if isinstance(made, Halt):
        return made
    if made.evicts_unproved:
        made = await _without_evictions(made, scene, solver, seconds, monotonic)
    return await _with_later(made, scene, solver, seconds, monotonic)


async def _without_evictions(
    made: Made, scene: Scene, solver: Solver, seconds: float, monotonic: Callable[[], float]
) -> Made:
    """Return a plan without evictions if it places a pod, else the one that was made, which is then only shown."""
    without = replace(scene, policy=replace(scene.policy, mode=Mode.RESIZE))
    rescue = await make(without, solver, max(_LEAST_SECONDS, seconds - made.seconds), monotonic)
    if isinstance(rescue, Halt) or not rescue.proposal.placed:
        return made
    proposal = replace(rescue.proposal, notes=(*rescue.proposal.notes, Note(NoteCode.EVICTIONS_UNPROVED)))
    return replace(rescue, proposal=proposal, seconds=made.seconds + rescue.seconds)


async def _with_later(made: Made, scene: Scene, solver: Solver, seconds: float, monotonic: Callable[[], float]) -> Made:
    """Return a plan with what further ones would add to it, as far as half as much time as it had suffices for that."""

    async def again(snapshot: Snapshot, allowance: Allowance, within: float) -> Proposal | None:
        found = await make(replace(scene, snapshot=snapshot, allowance=allowance), solver, within, monotonic)
        return None if isinstance(found, Halt) or found.evicts_unproved else found.proposal

    proposal, policy, now = made.proposal, scene.policy, scene.usage.now
    within = seconds * LATER_SHARE
    later = await later_of(scene.snapshot, proposal, policy, now, scene.allowance, again, within, monotonic)
    return replace(made, proposal=replace(proposal, later=later))


async def make(scene: Scene, solver: Solver, seconds: float, monotonic: Callable[[], float]) -> Made | Halt:
    """Return a plan that the judge lets through, or why there is none."""
    took, unsizable = 0.0, scene.usage.unsizable
    for left in reversed(range(_MOST_PROBLEMS)):
        scene = replace(scene, usage=replace(scene.usage, unsizable=unsizable))
        built = await asyncio.to_thread(_built, scene)
        began = monotonic()
        packing = await solver.pack(built.problem, max(_LEAST_SECONDS, seconds - took))
        took += monotonic() - began
        proposal, objections = await asyncio.to_thread(_proposed, scene, built, packing)
        if not isinstance(proposal, NoOrder) or proposal.unsizable <= unsizable or not left:
            break
        # Some keep the sizes that they have, which is found out only where all are sized together.
        unsizable |= proposal.unsizable
    if objections:
        # A plan that the judge does not let through is a mistake of ours: it is not shown.
        log.error("packing plan dropped", objections=list(objections[:10]), count=len(objections))
        return Halt(HaltCode.UNSOUND, detail=objections[0])
    if isinstance(proposal, NoOrder):
        log.warning("no packing plan", why=str(proposal.why))
        return proposal.why
    return Made(proposal, took, built, packing)


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
    return Scene(snapshot, usage, policy.of_plans, EvictionBudgets(snapshot, policy, now).allowance(spent))


def _built(scene: Scene) -> Built:
    return build_problem(
        scene.snapshot,
        policy=scene.policy,
        sizes=Sizes.RIGHTSIZED,
        usage=scene.usage,
        objective=Objective.OPERATOR,
        allowance=scene.allowance,
        prices=None if scene.fleet is None else scene.fleet.prices,
        keep_domains=scene.keep_domains,
    )


def _proposed(scene: Scene, built: Built, packing: Packing) -> tuple[Proposal | NoOrder, Sequence[str]]:
    proposal = propose(built, packing)
    if isinstance(proposal, NoOrder):
        return proposal, ()
    if scene.fleet is not None:
        reached = arrives_at(built, packing, proposal)
        proposal = replace(proposal, fleet=fleet_change(built, reached, proposal, scene.fleet))
    objections = find_objections(
        scene.snapshot,
        proposal,
        demands=demands_of(built),
        policy=scene.policy,
        stored=scene.usage.stored,
        allowance=scene.allowance,
    )
    return proposal, objections


def demands_of(built: Built) -> dict[PodKey, Demand]:
    """Return what each pod of a problem needs on its node, for the judge."""
    problem = built.problem
    cpu, memory = problem.resources.index("cpu"), problem.resources.index("memory")
    of_class = [
        Demand(Resources(int(base[cpu]), int(base[memory])), Resources(int(share[cpu]), int(share[memory])))
        for base, share in zip(problem.demands, problem.headroom, strict=True)
    ]
    return {key_of(pod): of_class[number] for pod, number in zip(built.pods, problem.pod_class.tolist(), strict=True)}


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

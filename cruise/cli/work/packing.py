"""The work of `cruise pack`: from files to a packing plan without objections."""

import asyncio
import math
import os
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

from cruise.cli.terminal import show_progress, show_spinner
from cruise.decisions.packing.consolidation import summarize_node_count_change
from cruise.decisions.packing.problem import BuiltProblem
from cruise.decisions.packing.proposal import NoMoveOrder, build_proposal
from cruise.domain.packing_plan import EvictionAllowance, NodeCountChange, PackingProposal, RemainingRounds
from cruise.errors import UnavailableError
from cruise.interfaces.packing.descriptions import describe_condition
from cruise.interfaces.packing.table import format_progress
from cruise.packer.answer import Packing, PackingNote, PackingNoteCode, build_alternative_packing, build_packing
from cruise.packer.greedy import pack_quickly
from cruise.runtime.packing.kernel_cache import choose_cache_directory, count_compiled
from cruise.runtime.packing.packing_pass import get_full_eviction_allowance, plan_remaining_rounds
from cruise.runtime.packing.planning import (
    FoundPlan,
    PlanningInputs,
    PlanningResult,
    SearchRound,
    build_node_count_change,
    find_fewest_nodes,
    find_objections,
    plan_packing,
)
from cruise.runtime.packing.solver_client import SolverProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    from cruise.packer.problem import PackingProblem

_COLUMNS = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
_LARGE_CLUSTER_PODS = 5_000


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """How long to search (infinite for an amount of work instead), and with which seed."""

    seconds: float
    work_units: float
    seed: int


@dataclass(frozen=True, slots=True)
class PackingRequest:
    """What a plan is asked for: of what, found how, and perhaps within eviction budgets."""

    inputs: PlanningInputs
    search: SearchSettings
    within_budgets: bool = False

    @property
    def is_large(self) -> bool:
        """Whether each step takes long enough to be shown."""
        return len(self.inputs.snapshot.pods) >= _LARGE_CLUSTER_PODS


def plan_in_new_process(wish: PackingRequest) -> tuple[PackingProposal, float]:
    """Search in a process of its own, and show on a terminal how far it has got; return the seconds too.

    Raises Unavailable.
    """
    scene = wish.inputs
    if wish.within_budgets:
        wish = replace(wish, inputs=replace(scene, allowance=get_full_eviction_allowance(scene)))
    return asyncio.run(_in_a_process(wish))


async def _in_a_process(wish: PackingRequest) -> tuple[PackingProposal, float]:
    async with SolverProcess() as worker:
        return await plan_with_process(worker, wish)


async def plan_with_process(worker: SolverProcess, wish: PackingRequest) -> tuple[PackingProposal, float]:
    """Search in a process that is there: build, solve, propose, judge. Raises Unavailable."""
    change: NodeCountChange | None = None
    later: RemainingRounds | None = None
    scene = wish.inputs

    async def search(turn: SearchRound) -> FoundPlan:
        return await _found(wish, worker, turn)

    async def again(there: PlanningInputs, seconds: float) -> PackingProposal | None:
        after = replace(wish, inputs=there, search=replace(wish.search, seconds=seconds))
        return (await _found(after, worker, SearchRound(there.snapshot))).plan

    if scene.fleet is None:
        found = await search(SearchRound(scene.snapshot))
        later = (
            await plan_remaining_rounds(scene, found.plan, again, wish.search.seconds) if wish.within_budgets else None
        )
    else:
        found, there = await find_fewest_nodes(search, scene.fleet)
        if wish.is_large:
            change = summarize_node_count_change(found.built, found.planned_packing, found.plan, there)
        else:
            change = await build_node_count_change(search, found, there, wish.search.seconds)
    with show_spinner("checking the plan", wish.is_large):
        plan = found.plan
        if PackingNote(PackingNoteCode.STILL_COMPILING) in plan.notes:
            plan = replace(plan, notes=(*plan.notes, PackingNote(PackingNoteCode.COMPILES_ONCE)))
        plan = replace(plan, node_count_change=change, remaining_rounds=later)
        return _judged(found.built, plan, scene.allowance), found.seconds


async def _found(wish: PackingRequest, worker: SolverProcess, turn: SearchRound) -> FoundPlan:
    """Plan in a share of what is left of the time."""
    search = wish.search
    until = (
        search.seconds if turn.share == 1.0 else turn.used_seconds + (search.seconds - turn.used_seconds) * turn.share
    )

    async def pack(problem: "PackingProblem", taken: float) -> tuple[Packing, float]:
        left = until if until == math.inf else until - turn.used_seconds - taken
        with show_progress("starting the solver", *_COLUMNS) as show:
            packing, seconds = await _packed(worker, problem, replace(search, seconds=left), show)
        if turn.bound is not None:
            packing = build_packing(problem, packing.pod_node, turn.bound, packing.notes)
        return packing, seconds

    scene = replace(wish.inputs, snapshot=turn.snapshot, keep_domains=turn.in_zones)
    came = await plan_packing(scene, pack, partial(show_spinner, worth_telling=wish.is_large))
    plan = _in_order(came.built, came.packing, came.plan) if isinstance(came.plan, NoMoveOrder) else came.plan
    return PlanningResult(came.built, came.packing, plan, turn.used_seconds + came.seconds)


async def _packed(
    worker: SolverProcess, problem: "PackingProblem", search: SearchSettings, show: "Callable[..., None]"
) -> tuple[Packing, float]:
    """Pack, and show how far that is; return the seconds too."""
    last, best = 0.0, ""

    def on_progress(better: Packing, seconds: float) -> None:
        nonlocal last, best
        last, best = seconds, format_progress(better, problem.objective, problem.pod_count)
        update()

    def update() -> None:
        show(description="; ".join(filter(None, (best, _preparation(worker)))))

    async def count_kernels() -> None:
        while not worker.is_warm:
            await asyncio.sleep(1.0)
            update()

    counting = asyncio.ensure_future(count_kernels())
    try:
        packing = await worker.pack(
            problem, search.seconds, on_progress, work_units=search.work_units, seed=search.seed
        )
    finally:
        counting.cancel()
    return packing, last


def _preparation(worker: SolverProcess) -> str:
    """Return what the solver still waits for, empty where it solves."""
    if worker.is_warm:
        return ""
    if worker.compiling and (cache := choose_cache_directory(os.environ)) is not None:
        compiled, kernels = count_compiled(cache)
        return f"compiling the solver once after an installation ({compiled} of {kernels} kernels)"
    return "loading the solver"


def _in_order(built: BuiltProblem, packing: Packing, refused: NoMoveOrder) -> PackingProposal:
    """Return the plan of the quick method, or one that changes nothing, where a packing has no order."""
    why = describe_condition(refused.reason)
    note = PackingNote(PackingNoteCode.PLAN_DROPPED, why)
    problem = built.problem
    for pod_node in (pack_quickly(problem).pod_node, problem.pod_node):
        plan = build_proposal(built, build_alternative_packing(problem, packing, pod_node, (*packing.notes, note)))
        if not isinstance(plan, NoMoveOrder):
            return plan
    raise UnavailableError(f"no plan can be carried out: {why}")


def _judged(built: BuiltProblem, proposal: PackingProposal, allowance: EvictionAllowance) -> PackingProposal:
    objections = find_objections(proposal, built, allowance)
    if objections:
        more = f" (and {len(objections) - 1:,} more)" if len(objections) > 1 else ""
        raise UnavailableError(f"the plan that was found is not sound, so it is not shown: {objections[0]}{more}")
    return proposal

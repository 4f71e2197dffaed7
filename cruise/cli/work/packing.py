"""Compute a packing plan in a solver process, and verify it."""

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
from cruise.decisions.packing.proposal import MoveOrderFailure, build_proposal
from cruise.domain.packing_plan import EvictionAllowance, NodeCountChange, PackingProposal, RemainingRounds
from cruise.errors import UnavailableError
from cruise.interfaces.packing.descriptions import describe_condition
from cruise.interfaces.packing.table import format_best_packing
from cruise.packer.answer import Packing, PackingNote, PackingNoteCode, build_alternative_packing, build_packing
from cruise.packer.greedy import pack_quickly
from cruise.runtime.packing.kernel_cache import choose_cache_directory, count_compiled_kernels
from cruise.runtime.packing.packing_pass import get_full_eviction_allowance, plan_remaining_rounds
from cruise.runtime.packing.planning import (
    FoundPlan,
    PlanningInputs,
    PlanningResult,
    SearchRound,
    build_node_count_change,
    find_objections,
    minimize_nodes,
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
    """How long to search (infinite with `work_units`), and the seed."""

    seconds: float
    work_units: float
    seed: int


@dataclass(frozen=True, slots=True)
class PackingRequest:
    """What to plan, how long to search, and whether within eviction budgets."""

    inputs: PlanningInputs
    search: SearchSettings
    within_budgets: bool = False

    @property
    def is_large(self) -> bool:
        """Whether steps take long enough to show progress."""
        return len(self.inputs.snapshot.pods) >= _LARGE_CLUSTER_PODS


def plan_in_new_process(request: PackingRequest) -> tuple[PackingProposal, float]:
    """Plan in a new solver process with progress on a terminal; return the seconds too. Raises UnavailableError."""
    inputs = request.inputs
    if request.within_budgets:
        request = replace(request, inputs=replace(inputs, allowance=get_full_eviction_allowance(inputs)))
    return asyncio.run(_plan_in_process(request))


async def _plan_in_process(request: PackingRequest) -> tuple[PackingProposal, float]:
    async with SolverProcess() as worker:
        return await plan_with_solver_process(worker, request)


async def plan_with_solver_process(worker: SolverProcess, request: PackingRequest) -> tuple[PackingProposal, float]:
    """Plan in an existing solver process: build, solve, order and verify. Raises UnavailableError."""
    change: NodeCountChange | None = None
    remaining_rounds: RemainingRounds | None = None
    inputs = request.inputs

    async def search(search_round: SearchRound) -> FoundPlan:
        return await _find_plan(request, worker, search_round)

    async def plan_again(later_inputs: PlanningInputs, seconds: float) -> PackingProposal | None:
        later_request = replace(request, inputs=later_inputs, search=replace(request.search, seconds=seconds))
        return (await _find_plan(later_request, worker, SearchRound(later_inputs.snapshot))).plan

    if inputs.candidate_nodes is None:
        found = await search(SearchRound(inputs.snapshot))
        remaining_rounds = (
            await plan_remaining_rounds(inputs, found.plan, plan_again, request.search.seconds)
            if request.within_budgets
            else None
        )
    else:
        found, candidate_nodes = await minimize_nodes(search, inputs.candidate_nodes)
        if request.is_large:
            change = summarize_node_count_change(found.built, found.planned_packing, found.plan, candidate_nodes)
        else:
            change = await build_node_count_change(search, found, candidate_nodes, request.search.seconds)
    with show_spinner("checking the plan", request.is_large):
        plan = found.plan
        if PackingNote(PackingNoteCode.STILL_COMPILING) in plan.notes:
            plan = replace(plan, notes=(*plan.notes, PackingNote(PackingNoteCode.COMPILES_ONCE)))
        plan = replace(plan, node_count_change=change, remaining_rounds=remaining_rounds)
        return _require_valid(found.built, plan, inputs.allowance), found.seconds


async def _find_plan(request: PackingRequest, worker: SolverProcess, search_round: SearchRound) -> FoundPlan:
    """Plan within a share of the remaining time."""
    search = request.search
    deadline = (
        search.seconds
        if search_round.share == 1.0
        else search_round.used_seconds + (search.seconds - search_round.used_seconds) * search_round.share
    )

    async def pack(problem: "PackingProblem", taken: float) -> tuple[Packing, float]:
        remaining = deadline if deadline == math.inf else deadline - search_round.used_seconds - taken
        with show_progress("starting the solver", *_COLUMNS) as show:
            packing, seconds = await _pack_with_progress(worker, problem, replace(search, seconds=remaining), show)
        if search_round.bound is not None:
            packing = build_packing(problem, packing.pod_node, search_round.bound, packing.notes)
        return packing, seconds

    inputs = replace(request.inputs, snapshot=search_round.snapshot, keep_domains=search_round.keeps_zones)
    result = await plan_packing(inputs, pack, partial(show_spinner, visible=request.is_large))
    plan = (
        _build_fallback_plan(result.built, result.packing, result.plan)
        if isinstance(result.plan, MoveOrderFailure)
        else result.plan
    )
    return PlanningResult(result.built, result.packing, plan, search_round.used_seconds + result.seconds)


async def _pack_with_progress(
    worker: SolverProcess, problem: "PackingProblem", search: SearchSettings, show: "Callable[..., None]"
) -> tuple[Packing, float]:
    """Pack with progress on a terminal; return the seconds too."""
    last, best = 0.0, ""

    def on_progress(better: Packing, seconds: float) -> None:
        nonlocal last, best
        last, best = seconds, format_best_packing(better, problem.objective, problem.pod_count)
        update()

    def update() -> None:
        show(description="; ".join(filter(None, (best, _describe_preparation(worker)))))

    async def count_kernels() -> None:
        while not worker.is_warm:
            await asyncio.sleep(1.0)
            update()

    counter = asyncio.ensure_future(count_kernels())
    try:
        packing = await worker.pack(
            problem, search.seconds, on_progress, work_units=search.work_units, seed=search.seed
        )
    finally:
        counter.cancel()
    return packing, last


def _describe_preparation(worker: SolverProcess) -> str:
    """Return what the solver waits for, or an empty text."""
    if worker.is_warm:
        return ""
    if worker.compiling and (cache := choose_cache_directory(os.environ)) is not None:
        compiled, kernels = count_compiled_kernels(cache)
        return f"compiling the solver once after an installation ({compiled} of {kernels} kernels)"
    return "loading the solver"


def _build_fallback_plan(built: BuiltProblem, packing: Packing, no_order: MoveOrderFailure) -> PackingProposal:
    """Return the plan of the quick method, or one without changes, if a packing has no move order."""
    reason = describe_condition(no_order.reason)
    note = PackingNote(PackingNoteCode.PLAN_DROPPED, reason)
    problem = built.problem
    for pod_node in (pack_quickly(problem).pod_node, problem.pod_node):
        plan = build_proposal(built, build_alternative_packing(problem, packing, pod_node, (*packing.notes, note)))
        if not isinstance(plan, MoveOrderFailure):
            return plan
    raise UnavailableError(f"no plan can be carried out: {reason}")


def _require_valid(built: BuiltProblem, proposal: PackingProposal, allowance: EvictionAllowance) -> PackingProposal:
    objections = find_objections(proposal, built, allowance)
    if objections:
        more = f" (and {len(objections) - 1:,} more)" if len(objections) > 1 else ""
        raise UnavailableError(f"the plan is invalid and not shown: {objections[0]}{more}")
    return proposal

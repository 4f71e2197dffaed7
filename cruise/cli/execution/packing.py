"""The work of `cruise pack`: from files to a packing plan without objections."""

import asyncio
import math
import os
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

from cruise.cli.terminal import busy, progress
from cruise.decisions.packing.building import Built
from cruise.decisions.packing.consolidating import fleet_change
from cruise.decisions.packing.proposing import NoOrder, propose
from cruise.domain.packing import Allowance, FleetChange, Later, Proposal
from cruise.errors import Unavailable
from cruise.interfaces.packing.halt_words import halt_words
from cruise.interfaces.packing.progress import progress_text
from cruise.packer.answer import Note, NoteCode, Packing, packing_of
from cruise.packer.bounds import beside
from cruise.packer.pack import quick_packing
from cruise.runtime.packing.fewest_nodes import Found, Turn, change_of, find_fewest_nodes
from cruise.runtime.packing.kernel_cache import choose_cache, count_compiled
from cruise.runtime.packing.later_goes import later_of, whole_allowance
from cruise.runtime.packing.planning import Made, Scene, objections_to, planned
from cruise.runtime.packing.worker import PackWorker

if TYPE_CHECKING:
    from collections.abc import Callable

    from cruise.packer.problem import Problem

_COLUMNS = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
_LARGE_CLUSTER_PODS = 5_000


@dataclass(frozen=True, slots=True)
class Search:
    """How long to search (infinite for an amount of work instead), and with which seed."""

    seconds: float
    work_units: float
    seed: int


@dataclass(frozen=True, slots=True)
class Wish:
    """What a plan is asked for: of what, found how, and perhaps within eviction budgets."""

    scene: Scene
    search: Search
    within_budgets: bool = False

    @property
    def large(self) -> bool:
        """Whether each step takes long enough to be shown."""
        return len(self.scene.snapshot.pods) >= _LARGE_CLUSTER_PODS


def plan_packing(wish: Wish) -> tuple[Proposal, float]:
    """Search in a process of its own, and show on a terminal how far it has got; return the seconds too.

    Raises Unavailable.
    """
    scene = wish.scene
    if wish.within_budgets:
        wish = replace(wish, scene=replace(scene, allowance=whole_allowance(scene)))
    return asyncio.run(_in_a_process(wish))


async def _in_a_process(wish: Wish) -> tuple[Proposal, float]:
    async with PackWorker() as worker:
        return await plan_with(worker, wish)


async def plan_with(worker: PackWorker, wish: Wish) -> tuple[Proposal, float]:
    """Search in a process that is there: build, solve, propose, judge. Raises Unavailable."""
    change: FleetChange | None = None
    later: Later | None = None
    scene = wish.scene

    async def search(turn: Turn) -> Found:
        return await _found(wish, worker, turn)

    async def again(there: Scene, seconds: float) -> Proposal | None:
        after = replace(wish, scene=there, search=replace(wish.search, seconds=seconds))
        return (await _found(after, worker, Turn(there.snapshot))).plan

    if scene.fleet is None:
        found = await search(Turn(scene.snapshot))
        later = await later_of(scene, found.plan, again, wish.search.seconds) if wish.within_budgets else None
    else:
        found, there = await find_fewest_nodes(search, scene.fleet)
        if wish.large:
            change = fleet_change(found.built, found.reached, found.plan, there)
        else:
            change = await change_of(search, found, there, wish.search.seconds)
    with busy("checking the plan", wish.large):
        plan = found.plan
        if Note(NoteCode.STILL_COMPILING) in plan.notes:
            plan = replace(plan, notes=(*plan.notes, Note(NoteCode.COMPILES_ONCE)))
        plan = replace(plan, fleet=change, later=later)
        return _judged(found.built, plan, scene.allowance), found.seconds


async def _found(wish: Wish, worker: PackWorker, turn: Turn) -> Found:
    """Plan in a share of what is left of the time."""
    search = wish.search
    until = search.seconds if turn.share == 1.0 else turn.taken + (search.seconds - turn.taken) * turn.share

    async def pack(problem: "Problem", taken: float) -> tuple[Packing, float]:
        left = until if until == math.inf else until - turn.taken - taken
        with progress("starting the solver", *_COLUMNS) as show:
            packing, seconds = await _packed(worker, problem, replace(search, seconds=left), show)
        if turn.bound is not None:
            packing = packing_of(problem, packing.pod_node, turn.bound, packing.notes)
        return packing, seconds

    scene = replace(wish.scene, snapshot=turn.snapshot, keep_domains=turn.in_zones)
    came = await planned(scene, pack, partial(busy, worth_telling=wish.large))
    plan = _in_order(came.built, came.packing, came.plan) if isinstance(came.plan, NoOrder) else came.plan
    return Made(came.built, came.packing, plan, turn.taken + came.seconds)


async def _packed(
    worker: PackWorker, problem: "Problem", search: Search, show: "Callable[..., None]"
) -> tuple[Packing, float]:
    """Pack, and show how far that is; return the seconds too."""
    last, best = 0.0, ""

    def on_progress(better: Packing, seconds: float) -> None:
        nonlocal last, best
        last, best = seconds, progress_text(better, problem.objective, problem.pod_count)
        update()

    def update() -> None:
        show(description="; ".join(filter(None, (best, _preparation(worker)))))

    async def count_kernels() -> None:
        while not worker.warm:
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


def _preparation(worker: PackWorker) -> str:
    """Return what the solver still waits for, empty where it solves."""
    if worker.warm:
        return ""
    if worker.compiling and (cache := choose_cache(os.environ)) is not None:
        compiled, kernels = count_compiled(cache)
        return f"compiling the solver once after an installation ({compiled} of {kernels} kernels)"
    return "loading the solver"


def _in_order(built: Built, packing: Packing, refused: NoOrder) -> Proposal:
    """Return the plan of the quick method, or one that changes nothing, where a packing has no order."""
    why = halt_words(refused.why)
    note = Note(NoteCode.PLAN_DROPPED, why)
    problem = built.problem
    for pod_node in (quick_packing(problem).pod_node, problem.pod_node):
        plan = propose(built, beside(problem, packing, pod_node, (*packing.notes, note)))
        if not isinstance(plan, NoOrder):
            return plan
    raise Unavailable(f"no plan can be carried out: {why}")


def _judged(built: Built, proposal: Proposal, allowance: Allowance) -> Proposal:
    objections = objections_to(proposal, built, allowance)
    if objections:
        more = f" (and {len(objections) - 1:,} more)" if len(objections) > 1 else ""
        raise Unavailable(f"the plan that was found is not sound, so it is not shown: {objections[0]}{more}")
    return proposal

"""The work of `cruise pack`: from files to a packing plan without objections."""

import asyncio
import math
import os
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

from cruise.cli.terminal import busy, progress
from cruise.decisions.packing.building import Built, Usage, build_problem
from cruise.decisions.packing.consolidating import Fleet, fleet_change
from cruise.decisions.packing.judging import find_objections
from cruise.decisions.packing.proposing import NoOrder, propose
from cruise.domain.packing import UNLIMITED, Allowance, FleetChange, Later, Proposal, Sizes
from cruise.errors import Unavailable
from cruise.interfaces.packing.halt_words import halt_words
from cruise.interfaces.packing.progress import progress_text
from cruise.packer.answer import Note, NoteCode, Packing, packing_of
from cruise.packer.pack import quick_packing
from cruise.runtime.packing.fewest_nodes import Found, Turn, change_of, find_fewest_nodes, found_of
from cruise.runtime.packing.kernel_cache import choose_cache, count_compiled
from cruise.runtime.packing.later_goes import LATER_SHARE, later_of, whole_allowance
from cruise.runtime.packing.packing_pass import demands_of
from cruise.runtime.packing.worker import PackWorker

if TYPE_CHECKING:
    from collections.abc import Callable

    from cruise.domain.cluster import Snapshot
    from cruise.domain.policy import Policy

_COLUMNS = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
_LARGE_CLUSTER_PODS = 5_000
# How often a problem is put anew where some pods turn out to keep the sizes they have.
_MOST_PROBLEMS = 4


@dataclass(frozen=True, slots=True)
class Search:
    """How long to search (infinite for an amount of work instead), and with which seed."""

    seconds: float
    work_units: float
    seed: int


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, and the seconds that solving took."""

    proposal: Proposal
    seconds: float


@dataclass(frozen=True, slots=True)
class Wish:
    """What a plan is asked for: decided from what, at which sizes, of a `fleet` with the fewest nodes in use."""

    snapshot: "Snapshot"
    usage: Usage | None
    policy: "Policy"
    sizes: Sizes
    search: Search
    fleet: Fleet | None
    within_budgets: bool
    allowance: Allowance = UNLIMITED

    @property
    def now(self) -> datetime:
        """When it is; budgets of which nothing was spent do not depend on it."""
        return datetime(1970, 1, 2, tzinfo=UTC) if self.usage is None else self.usage.now

    @property
    def large(self) -> bool:
        """Whether each step takes long enough to be shown."""
        return len(self.snapshot.pods) >= _LARGE_CLUSTER_PODS


def plan_packing(wish: Wish) -> Planned:
    """Search in a process of its own, and show on a terminal how far it has got. Raises Unavailable."""
    if wish.within_budgets:
        wish = replace(wish, allowance=whole_allowance(wish.snapshot, wish.policy, wish.now))
    return asyncio.run(_planned(wish))


async def _planned(wish: Wish) -> Planned:
    async with PackWorker() as worker:
        return await plan_with(worker, wish)


async def plan_with(worker: PackWorker, wish: Wish) -> Planned:
    """Search in a process that is there: build, solve, propose, judge. Raises Unavailable."""
    change: FleetChange | None = None
    later: Later | None = None

    async def search(turn: Turn) -> Found:
        return await _found(replace(wish, snapshot=turn.snapshot), worker, turn)

    if wish.fleet is None:
        found = await search(Turn(wish.snapshot))
        later = await _later_of(wish, found, worker) if wish.within_budgets else None
    else:
        found, there = await find_fewest_nodes(search, wish.fleet)
        if wish.large:
            change = fleet_change(found.built, found.packing, found.plan, there)
        else:
            change = await change_of(search, found, there, wish.search.seconds)
    with busy("checking the plan", wish.large):
        plan = found.plan
        if Note(NoteCode.STILL_COMPILING) in plan.notes:
            plan = replace(plan, notes=(*plan.notes, Note(NoteCode.COMPILES_ONCE)))
        plan = replace(plan, fleet=change, later=later)
        return Planned(_judged(found.built, plan, wish.allowance), found.seconds)


async def _later_of(wish: Wish, found: Found, worker: PackWorker) -> Later | None:
    """Say what further plans add, as far as half as much time as the plan had suffices for that."""

    async def make(snapshot: "Snapshot", allowance: Allowance, seconds: float) -> Proposal | None:
        search = replace(wish.search, seconds=seconds)
        after = replace(wish, snapshot=snapshot, search=search, allowance=allowance)
        return (await _found(after, worker, Turn(snapshot))).plan

    seconds = wish.search.seconds * LATER_SHARE
    return await later_of(wish.snapshot, found.plan, wish.policy, wish.now, wish.allowance, make, seconds)


async def _found(wish: Wish, worker: PackWorker, turn: Turn) -> Found:
    """Plan in a share of what is left of the time."""
    usage, search, taken, bound = wish.usage, wish.search, turn.taken, turn.bound
    prices = None if wish.fleet is None else wish.fleet.prices
    until = search.seconds if turn.share == 1.0 else taken + (search.seconds - taken) * turn.share
    for left in reversed(range(_MOST_PROBLEMS)):
        with busy("putting the cluster into numbers", wish.large):
            built = build_problem(
                wish.snapshot,
                wish.policy,
                wish.sizes,
                usage,
                allowance=wish.allowance,
                prices=prices,
                keep_domains=turn.in_zones,
            )
        with progress("starting the solver", *_COLUMNS) as show:
            packing, seconds = await _packed(worker, built, replace(search, seconds=until), taken, show)
        taken += seconds
        if bound is not None:
            packing = packing_of(built.problem, packing.pod_node, bound, packing.notes)
        with busy("putting the plan in order", wish.large):
            found = propose(built, packing)
        if not isinstance(found, NoOrder) or not found.unsizable or usage is None or not left:
            break
        usage = replace(usage, unsizable=usage.unsizable | found.unsizable)
    plan = _in_order(built, packing, found) if isinstance(found, NoOrder) else found
    return found_of(built, packing, plan, taken)


async def _packed(
    worker: PackWorker, built: Built, search: Search, taken: float, show: "Callable[..., None]"
) -> tuple[Packing, float]:
    """Pack in what is left of the time; return the seconds too."""
    problem, last, best = built.problem, 0.0, ""

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

    left = search.seconds if search.seconds == math.inf else search.seconds - taken
    counting = asyncio.ensure_future(count_kernels())
    try:
        packing = await worker.pack(problem, left, on_progress, work_units=search.work_units, seed=search.seed)
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
        plan = propose(built, packing_of(problem, pod_node, packing.bound, (*packing.notes, note)))
        if not isinstance(plan, NoOrder):
            return plan
    raise Unavailable(f"no plan can be carried out: {why}")


def _judged(built: Built, proposal: Proposal, allowance: Allowance) -> Proposal:
    demands = demands_of(built) if built.sizes is Sizes.RIGHTSIZED else None
    objections = find_objections(built.snapshot, proposal, demands=demands, policy=built.policy, allowance=allowance)
    if objections:
        more = f" (and {len(objections) - 1:,} more)" if len(objections) > 1 else ""
        raise Unavailable(f"the plan that was found is not sound, so it is not shown: {objections[0]}{more}")
    return proposal

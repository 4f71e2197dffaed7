"""The work of `cruise pack`: from files to a packing plan without objections."""

import asyncio
import math
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

from cruise.cli.terminal import busy, progress
from cruise.decisions.packing.building import Built, Usage, build_problem
from cruise.decisions.packing.judging import find_objections
from cruise.decisions.packing.proposing import NoOrder, propose
from cruise.domain.packing import Proposal, Sizes
from cruise.errors import Unavailable
from cruise.interfaces.packing.progress import progress_text
from cruise.packer.answer import Packing, packing_of
from cruise.packer.pack import quick_packing
from cruise.runtime.packing.kernel_cache import choose_cache, count_compiled
from cruise.runtime.packing.packing_pass import demands_of
from cruise.runtime.packing.worker import STILL_COMPILING, PackWorker

if TYPE_CHECKING:
    from collections.abc import Callable

    from cruise.domain.cluster import Snapshot
    from cruise.domain.policy import Policy

_COLUMNS = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
_LARGE_CLUSTER_PODS = 5_000
# How often a problem is put anew where some pods turn out to keep the sizes they have.
_MOST_PROBLEMS = 4
_COMPILE_ONCE = "the solver is compiled once after an installation: --time-limit 120 waits for that"


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


def plan_packing(snapshot: "Snapshot", usage: Usage | None, policy: "Policy", sizes: Sizes, search: Search) -> Planned:
    """Search in a process of its own, and show on a terminal how far it has got. Raises Unavailable."""
    return asyncio.run(_planned(snapshot, usage, policy, sizes, search))


async def _planned(
    snapshot: "Snapshot", usage: Usage | None, policy: "Policy", sizes: Sizes, search: Search
) -> Planned:
    large = len(snapshot.pods) >= _LARGE_CLUSTER_PODS
    taken = 0.0
    async with PackWorker() as worker:
        for left in reversed(range(_MOST_PROBLEMS)):
            with busy("putting the cluster into numbers", large):
                built = build_problem(snapshot, None, policy, sizes, usage)
            with progress("starting the solver", *_COLUMNS) as show:
                packing, seconds = await _packed(worker, built, search, taken, show)
            taken += seconds
            with busy("putting the plan in order", large):
                found = propose(built, packing)
            if not isinstance(found, NoOrder) or not found.unsizable or usage is None or not left:
                break
            usage = replace(usage, unsizable=usage.unsizable | found.unsizable)
    with busy("checking the plan", large):
        proposal = _in_order(built, packing, found) if isinstance(found, NoOrder) else found
        if STILL_COMPILING in proposal.notes:
            proposal = replace(proposal, notes=(*proposal.notes, _COMPILE_ONCE))
        return Planned(_judged(built, proposal), taken)


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
    note = f"a better packing was found, but dropped: {refused.reason}"
    problem = built.problem
    for pod_node in (quick_packing(problem).pod_node, problem.pod_node):
        plan = propose(built, packing_of(problem, pod_node, packing.bound, (*packing.notes, note)))
        if not isinstance(plan, NoOrder):
            return plan
    raise Unavailable(f"no plan can be carried out: {refused.reason}")


def _judged(built: Built, proposal: Proposal) -> Proposal:
    demands = demands_of(built) if built.sizes is Sizes.RIGHTSIZED else None
    objections = find_objections(built.snapshot, proposal, demands=demands, policy=built.policy)
    if objections:
        more = f" (and {len(objections) - 1:,} more)" if len(objections) > 1 else ""
        raise Unavailable(f"the plan that was found is not sound, so it is not shown: {objections[0]}{more}")
    return proposal

"""`cruise pack`: where pending pods could go, planned from files; nothing is contacted."""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from cruise.cli.collector import collector_off
from cruise.cli.options import (
    ConfigOption,
    Format,
    FormatOption,
    ModeName,
    NowOption,
    SnapshotOption,
    is_large,
    parse_time,
    policy_of,
)
from cruise.cli.terminal import busy, complain, print_parts, table_console, updating, write_document
from cruise.errors import BadInput, Unavailable

if TYPE_CHECKING:
    from cruise.decisions.packing.building import Built
    from cruise.decisions.packing.packing import Packing
    from cruise.decisions.packing.proposal import Proposal
    from cruise.domain.cluster import Snapshot

TIME_LIMIT_SECONDS = 10.0
_LARGE_CLUSTER_PODS = 5_000


class SizesName(StrEnum):
    """Whether pods keep the sizes that they ask for."""

    FIXED = "fixed"
    RIGHTSIZED = "rightsized"


def pack(
    snapshot: SnapshotOption,
    usage: Annotated[
        str | None,
        typer.Option(
            "--usage",
            metavar="FILE",
            help="A UsageStatistics file, for --sizes rightsized; .gz as well, - for standard input.",
            show_default=False,
        ),
    ] = None,
    sizes: Annotated[
        SizesName,
        typer.Option("--sizes", help="Keep every size, or size pods to base and shared headroom where that helps."),
    ] = SizesName.FIXED,
    time_limit: Annotated[
        float,
        typer.Option("--time-limit", metavar="S", help="Seconds to search in; 0 for what the quick method finds."),
    ] = TIME_LIMIT_SECONDS,
    work: Annotated[
        float | None,
        typer.Option(
            "--work",
            metavar="UNITS",
            min=1,
            help="Search for an amount of work instead of a time, about 1e9 a second: repeats to the letter.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, max=2**31 - 1, help="Seed of every draw.")] = 1,
    now: NowOption = None,
    format: FormatOption = Format.TABLE,
    config: ConfigOption = None,
) -> None:
    """Find places for pending pods: the most, the highest priority first.

    Then as few evictions as possible. Nothing is contacted and nothing is
    changed; decides as mode full would. The plan says what is proved:
    optimal and already-optimal are, feasible and no-improvement tell how
    far they may be off. The snapshot is what this prints:

      kubectl get no,po,rs,deploy,sts,ds,job,pdb,hpa,limits,quota,pv,pvc,sc,csinodes,pc,ns -A -o json

    Examples:
      cruise pack --snapshot cluster.json

      cruise pack --snapshot cluster.json --usage usage.json --sizes rightsized

      cruise pack --snapshot cluster.json --time-limit 60 --format json

      cruise pack --snapshot cluster.json --work 1e9 --seed 7
    """
    if not time_limit >= 0:
        raise BadInput(
            f"--time-limit: {time_limit:g} is no number of seconds; write e.g. 10, or 0 for the quick method"
        )
    if sizes is SizesName.RIGHTSIZED and usage is None:
        raise BadInput("--sizes rightsized needs --usage FILE: without measured use no size is known")
    search = _Search(math.inf if work is not None else time_limit, work or math.inf, seed)
    with collector_off():
        built = _build(snapshot, usage, sizes, now, config)
        solved = search.run(built)
        with busy("checking the plan", len(built.pods) >= _LARGE_CLUSTER_PODS):
            proposal = _proposal(built, solved.packing)
        _print(proposal, built.snapshot, solved.seconds, format)


def _build(snapshot: str, usage: str | None, sizes: SizesName, now: str | None, config: ConfigOption) -> "Built":
    """Read the files and put them into a problem. Raises BadInput."""
    from cruise.adapters.files import load_snapshot, load_usage
    from cruise.decisions.packing.building import Usage, build_problem
    from cruise.decisions.packing.proposal import Sizes

    policy, at = policy_of(config, ModeName.FULL), parse_time(now)
    large = is_large(snapshot)
    with busy(f"reading {snapshot}", large):
        cluster = load_snapshot(snapshot)
    known = None
    if usage is not None:
        with busy(f"reading {usage}", large):
            known = Usage(*load_usage(usage, cluster, at))
    with busy("putting the cluster into numbers", large):
        return build_problem(cluster, None, policy, Sizes(sizes.value), known)


@dataclass(frozen=True, slots=True)
class _Solved:
    packing: "Packing"
    seconds: float


@dataclass(frozen=True, slots=True)
class _Search:
    """How long and how to search."""

    seconds: float
    work_units: float
    seed: int

    def run(self, built: "Built") -> _Solved:
        """Search in a process of its own, and show how far it has got. Raises Unavailable."""
        import asyncio

        return asyncio.run(self._run(built))

    async def _run(self, built: "Built") -> _Solved:
        from cruise.interfaces.pack_progress import progress_text
        from cruise.runtime.pack_worker import PackWorker

        problem, taken = built.problem, 0.0
        with updating("starting the solver") as show:

            def on_progress(packing: "Packing", seconds: float) -> None:
                nonlocal taken
                taken = seconds
                show(progress_text(packing, problem.objective, problem.pod_count, seconds))

            async with PackWorker() as worker:
                packing = await worker.pack(
                    problem, self.seconds, on_progress, work_units=self.work_units, seed=self.seed
                )
        return _Solved(packing, taken)


def _proposal(built: "Built", packing: "Packing") -> "Proposal":
    """Return a plan that the judge has nothing to say against. Raises Unavailable."""
    from cruise.decisions.packing.judging.objections import find_objections

    proposal = _in_order(built, packing)
    objections = find_objections(built.snapshot, proposal, policy=built.policy)
    if objections:
        more = f" (and {len(objections) - 1} more)" if len(objections) > 1 else ""
        raise Unavailable(f"the plan that was found is not sound, so it is not shown: {objections[0]}{more}")
    return proposal


def _in_order(built: "Built", packing: "Packing") -> "Proposal":
    """Return the plan of a packing, of the quick method's where that has no order, or none that changes anything."""
    from cruise.decisions.packing.pack import quick_packing
    from cruise.decisions.packing.packing import packing_of
    from cruise.decisions.packing.proposing import NoOrder, propose

    found = propose(built, packing)
    if not isinstance(found, NoOrder):
        return found
    note = f"a better packing was found, but dropped: {found.reason}"
    problem = built.problem
    for other in (quick_packing(problem).pod_node, problem.pod_node):
        plan = propose(built, packing_of(problem, other, packing.bound, (*packing.notes, note)))
        if not isinstance(plan, NoOrder):
            return plan
    raise Unavailable(found.reason)


def _print(proposal: "Proposal", snapshot: "Snapshot", seconds: float, format: Format) -> None:
    from cruise.interfaces.pack_json import pack_json
    from cruise.interfaces.pack_table import pack_table

    pods = {(pod.namespace, pod.name): pod for pod in snapshot.pods}
    if format is Format.JSON:
        write_document(pack_json(proposal, pods, seconds))
        for note in proposal.notes:
            complain(f"note: {note}")
        return
    console = table_console()
    console.print("Decided as mode full; nothing was contacted.\n")
    print_parts(pack_table(proposal, snapshot, pods, seconds, console), console)

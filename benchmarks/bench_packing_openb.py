"""The arrivals of a real cluster with GPUs: pending pods placed by cruise and by the default scheduler's preemption.

All pods of the openb trace arrive in order and stay; the default scheduler without preemption places them until some
remain pending. Both start from that state: the scheduler with preemption, cruise with a plan.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.default_scheduler import Schedule, schedule
from benchmarks.openb_cluster import OPENB, Openb, read_openb
from benchmarks.table import BenchmarkRow
from cruise.decisions.packing.problem import BuiltProblem, build_packing_problem
from cruise.decisions.packing.proposal import MoveOrderFailure, build_proposal
from cruise.decisions.packing.verification import find_plan_objections
from cruise.domain.packing_plan import PackingProposal
from cruise.packer.answer import Packing, compute_figures
from cruise.packer.problem import IntArray
from cruise.runtime.packing.solver_client import SolverProcess

NAME = "packing-openb"
LIMITS_SECONDS = (1.0, 10.0)


@dataclass(frozen=True, slots=True, eq=False)
class DefaultScheduler:
    """The result of the default scheduler with preemption, and its time."""

    schedule: Schedule
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class CruisePacking:
    """The result of cruise: packing and plan, the seconds of each, and the solver process's peak memory."""

    limit_seconds: float
    packing: Packing
    proposal: PackingProposal
    seconds: float
    planning_seconds: float
    memory_mib: float | None


def run() -> list[BenchmarkRow]:
    """Measure both from the same state."""
    if not OPENB.exists():
        return [BenchmarkRow(NAME, "not measured: the trace is not in ../shared/data/openb", 0, "")]
    built = fill(read_openb())
    default = preempt(built)
    ours = asyncio.run(_pack_all(built))
    return [*_start_rows(built), *(row for one in ours for row in _rows(built, one, default))]


def fill(trace: Openb, arrivals: int | None = None) -> BuiltProblem:
    """Let the first pods arrive in order; the problem is to place those that remain pending."""
    coming = trace.arrivals[:arrivals]
    empty = build_packing_problem(trace.snapshot({pod.name: None for pod in coming}))
    alike = replace(empty.problem, priorities=np.zeros_like(empty.problem.priorities))
    done = schedule(alike, _ages(empty), preemption=False)
    names = [node.name for node in empty.nodes]
    places = zip(empty.pods, done.pod_node.tolist(), strict=True)
    return build_packing_problem(trace.snapshot({pod.name: names[node] if node >= 0 else None for pod, node in places}))


def preempt(built: BuiltProblem) -> DefaultScheduler:
    """Run the default scheduler with preemption."""
    begun = time.monotonic()
    done = schedule(built.problem, _ages(built), preemption=True)
    return DefaultScheduler(done, time.monotonic() - begun)


async def _pack_all(built: BuiltProblem) -> list[CruisePacking]:
    async with SolverProcess() as worker:
        assert await worker.wait_until_warm()
        return [await pack_within(worker, built, limit) for limit in LIMITS_SECONDS]


async def pack_within(worker: SolverProcess, built: BuiltProblem, limit_seconds: float) -> CruisePacking:
    """Solve, make a plan of the packing, and verify it."""
    begun = time.monotonic()
    packing = await worker.pack(built.problem, limit_seconds)
    solved = time.monotonic()
    proposal = build_proposal(built, packing)
    assert not isinstance(proposal, MoveOrderFailure), proposal.reason
    planned = time.monotonic()
    objections = find_plan_objections(built.snapshot, proposal, policy=built.policy)
    assert not objections, objections
    memory = _peak_mib(worker.process_id)
    return CruisePacking(limit_seconds, packing, proposal, solved - begun, planned - solved, memory)


def _ages(built: BuiltProblem) -> IntArray:
    """Return each pod's place in the order of arrival."""
    came = sorted(range(len(built.pods)), key=lambda pod: (built.pods[pod].created_at, built.pods[pod].name))
    ages = np.empty(len(came), dtype=np.int64)
    ages[came] = np.arange(len(came))
    return ages


def _peak_mib(process_id: int | None) -> float | None:
    if process_id is None:
        # It exceeded its time and was stopped.
        return None
    lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))


def _start_rows(built: BuiltProblem) -> Sequence[BenchmarkRow]:
    problem = built.problem
    used = np.zeros_like(problem.capacities)
    placed = problem.pod_node >= 0
    np.add.at(used, problem.pod_node[placed], problem.demands[problem.pod_class[placed]])
    taken = 100 * used.sum(axis=0) / problem.capacities.sum(axis=0)
    full = ", ".join(
        f"{name.rpartition('/')[2]} {share:.0f} %" for name, share in zip(problem.resources, taken, strict=True)
    )
    return [BenchmarkRow(NAME, f"{len(built.nodes):,} nodes: pending at the start", int((~placed).sum()), "pods", full)]


def _rows(built: BuiltProblem, ours: CruisePacking, default: DefaultScheduler) -> Sequence[BenchmarkRow]:
    problem, packing = built.problem, ours.packing
    theirs = compute_figures(problem, default.schedule.pod_node)
    wanted = {priority: 0 for priority in (tier.priority for tier in packing.planned.priorities)}
    for priority in problem.priorities[problem.pod_class].tolist():
        wanted[priority] += 1
    at = f"{ours.limit_seconds:g} s"
    step = 2
    rows = [
        BenchmarkRow(
            NAME,
            f"{at}: priority {mine.priority}, {wanted[mine.priority]:,} pods: placed",
            mine.placed,
            "pods",
            f"default {other.placed:,}, bound {bound:,}, before {now.placed:,}",
            mine.placed / other.placed if other.placed else None,
        )
        for mine, other, now, bound in zip(
            packing.planned.priorities,
            theirs.priorities,
            packing.current.priorities,
            packing.bound[::step],
            strict=True,
        )
    ]
    evicted = len(default.schedule.evicted)
    ran, pending = problem.pod_node >= 0, default.schedule.pod_node < 0
    gone = len(ours.proposal.preempted)
    return [
        *rows,
        BenchmarkRow(
            NAME, f"{at}: moves", len(ours.proposal.moves), "pods", f"default {evicted - int((ran & pending).sum())}"
        ),
        BenchmarkRow(NAME, f"{at}: preempted, without a place", gone, "pods", f"default {int((ran & pending).sum())}"),
        BenchmarkRow(NAME, f"{at}: evictions in all", len(ours.proposal.moves) + gone, "pods", f"default {evicted}"),
        BenchmarkRow(
            NAME,
            f"{at}: solving ({packing.status})",
            ours.seconds,
            "s",
            f"default {default.seconds:.2f} s",
            memory_mib=ours.memory_mib,
        ),
        BenchmarkRow(NAME, f"{at}: from a packing to a plan", ours.planning_seconds, "s"),
    ]

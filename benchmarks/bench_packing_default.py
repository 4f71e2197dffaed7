"""Packing clusters like the paper's: cruise compared with the paper's baseline, the scheduler with preemption."""

import time
from dataclasses import dataclass

import numpy as np

from benchmarks.default_scheduler import schedule
from benchmarks.packing_instances import PAPER_RANGE, InstanceShape, draw_pending, problem_of
from benchmarks.table import BenchmarkRow
from cruise.packer.answer import PackingStatus, compute_figures
from cruise.packer.budget import SolveBudget
from cruise.packer.pack import pack
from cruise.packer.warm_up import warm_up_kernels

NAME = "packing-default"
LIMIT_SECONDS = 1.0
SEEDS = range(101, 104)


@dataclass(frozen=True, slots=True)
class ComparedPair:
    """The results of both from the same state: pods placed per priority from the highest, and evictions."""

    shape: InstanceShape
    ours: tuple[int, ...]
    theirs: tuple[int, ...]
    our_evictions: int
    their_evictions: int
    proved: bool
    seconds: float


def run() -> list[BenchmarkRow]:
    """Compare on every shape and seed, one after the other."""
    warm_up_kernels()
    pairs = [compare(shape, seed) for shape in PAPER_RANGE for seed in SEEDS]
    return rows_of(pairs)


def compare(shape: InstanceShape, seed: int) -> ComparedPair:
    """Run both from the state in which the scheduler without preemption leaves pods pending."""
    problem = problem_of(draw_pending(shape, seed))
    default = schedule(problem, np.arange(problem.pod_count, dtype=np.int64), preemption=True, seed=seed)
    begun = time.monotonic()
    packing = pack(problem, SolveBudget(deadline_seconds=begun + LIMIT_SECONDS), lambda better: None)
    taken = time.monotonic() - begun
    left = (problem.pod_node >= 0) & (packing.pod_node != problem.pod_node)
    return ComparedPair(
        shape,
        tuple(tier.placed for tier in packing.planned.priorities),
        tuple(tier.placed for tier in compute_figures(problem, default.pod_node).priorities),
        int(left.sum()),
        len(default.evicted),
        packing.status in (PackingStatus.OPTIMAL, PackingStatus.ALREADY_OPTIMAL),
        taken,
    )


def rows_of(pairs: list[ComparedPair]) -> list[BenchmarkRow]:
    """The totals of all pairs."""
    count = len(pairs)
    better = sum(pair.ours > pair.theirs for pair in pairs)
    equal = sum(pair.ours == pair.theirs for pair in pairs)
    ours, theirs = (
        sum(sum(placed) for placed in side) for side in zip(*((p.ours, p.theirs) for p in pairs), strict=True)
    )
    mine, other = sum(p.our_evictions for p in pairs) / count, sum(p.their_evictions for p in pairs) / count
    proved = sum(pair.proved for pair in pairs)
    return [
        BenchmarkRow(NAME, f"all {count}: better than the default scheduler", better, "clusters", f"equal in {equal}"),
        BenchmarkRow(NAME, f"all {count}: worse", count - better - equal, "clusters", "0 wanted"),
        BenchmarkRow(NAME, f"all {count}: pods placed", ours, "pods", f"default {theirs:,}", ours / theirs),
        BenchmarkRow(
            NAME, f"all {count}: evictions, moves among them", mine, "a cluster", f"default {other:.1f}", mine / other
        ),
        BenchmarkRow(NAME, f"all {count}: proved within {LIMIT_SECONDS:g} s", 100 * proved / count, "%"),
        BenchmarkRow(NAME, f"all {count}: mean", sum(pair.seconds for pair in pairs) / count, "s"),
    ]

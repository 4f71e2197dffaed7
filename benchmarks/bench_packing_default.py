"""Packing paper-style clusters: cruise beside the default scheduler with preemption, the yardstick of the paper."""

import time
from dataclasses import dataclass

import numpy as np

from benchmarks.default_scheduler import schedule
from benchmarks.packing_instances import PAPER_RANGE, Shape, draw_pending, problem_of
from benchmarks.table import Row
from cruise.packer.answer import Status, figures_of
from cruise.packer.budget import Budget
from cruise.packer.pack import pack
from cruise.packer.warming import warm_up

NAME = "packing-default"
LIMIT_SECONDS = 1.0
SEEDS = range(101, 104)


@dataclass(frozen=True, slots=True)
class Pair:
    """Both from the same state: pods placed a priority from the highest, and evictions (moves among them)."""

    shape: Shape
    ours: tuple[int, ...]
    theirs: tuple[int, ...]
    our_evictions: int
    their_evictions: int
    proved: bool
    seconds: float


def run() -> list[Row]:
    """Compare on every shape and seed, one at a time."""
    warm_up()
    pairs = [compare(shape, seed) for shape in PAPER_RANGE for seed in SEEDS]
    return rows_of(pairs)


def compare(shape: Shape, seed: int) -> Pair:
    """Let both go on from where the scheduler without preemption left pods pending."""
    problem = problem_of(draw_pending(shape, seed))
    default = schedule(problem, np.arange(problem.pod_count, dtype=np.int64), preemption=True, seed=seed)
    begun = time.monotonic()
    packing = pack(problem, Budget(deadline_seconds=begun + LIMIT_SECONDS), lambda better: None)
    taken = time.monotonic() - begun
    left = (problem.pod_node >= 0) & (packing.pod_node != problem.pod_node)
    return Pair(
        shape,
        tuple(tier.placed for tier in packing.after.tiers),
        tuple(tier.placed for tier in figures_of(problem, default.pod_node).tiers),
        int(left.sum()),
        len(default.evicted),
        packing.status in (Status.OPTIMAL, Status.ALREADY_OPTIMAL),
        taken,
    )


def rows_of(pairs: list[Pair]) -> list[Row]:
    """What all pairs add up to."""
    count = len(pairs)
    better = sum(pair.ours > pair.theirs for pair in pairs)
    equal = sum(pair.ours == pair.theirs for pair in pairs)
    ours, theirs = (
        sum(sum(placed) for placed in side) for side in zip(*((p.ours, p.theirs) for p in pairs), strict=True)
    )
    mine, other = sum(p.our_evictions for p in pairs) / count, sum(p.their_evictions for p in pairs) / count
    proved = sum(pair.proved for pair in pairs)
    return [
        Row(NAME, f"all {count}: better than the default scheduler", better, "clusters", f"equal in {equal}"),
        Row(NAME, f"all {count}: worse", count - better - equal, "clusters", "0 wanted"),
        Row(NAME, f"all {count}: pods placed", ours, "pods", f"default {theirs:,}", ours / theirs),
        Row(NAME, f"all {count}: evictions, moves among them", mine, "a cluster", f"default {other:.1f}", mine / other),
        Row(NAME, f"all {count}: proved within {LIMIT_SECONDS:g} s", 100 * proved / count, "%"),
        Row(NAME, f"all {count}: mean", sum(pair.seconds for pair in pairs) / count, "s"),
    ]

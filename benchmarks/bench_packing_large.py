"""Packing large, nearly full clusters: pods placed, moves, time and memory."""

import time

import numpy as np

from benchmarks.large_clusters import LargeClusterShape, draw_large_cluster
from benchmarks.table import BenchmarkRow, forget_peak_memory, peak_memory_mib, resident_memory_mib
from cruise.packer.answer import Packing
from cruise.packer.budget import SolveBudget
from cruise.packer.pack import pack
from cruise.packer.problem import PackingProblem
from cruise.packer.verification import find_rule_violations
from cruise.packer.warm_up import warm_up_kernels

NAME = "packing-large"
SEED = 1
LIMIT_SECONDS = 10.0
LIMIT_ALL_PLACED_SECONDS, LIMIT_MEBIBYTES = 4.0, 256.0
SHAPES = (
    LargeClusterShape(100),
    LargeClusterShape(500),
    LargeClusterShape(1000),
    LargeClusterShape(5000),
    LargeClusterShape(5000, usage_percent=97.0),
    LargeClusterShape(5000, usage_percent=99.2),
    LargeClusterShape(5000, zones=3, pools=4),
)


def run() -> list[BenchmarkRow]:
    """Measure each cluster once, with compiled kernels."""
    warm_up_kernels()
    return [row for shape in SHAPES for row in _rows(shape)]


def _rows(shape: LargeClusterShape) -> list[BenchmarkRow]:
    problem = draw_large_cluster(shape, SEED)
    pending = int((problem.pod_node < 0).sum())
    forget_peak_memory()
    before = resident_memory_mib()
    started, started_processor = time.monotonic(), time.process_time()
    first_complete: list[tuple[float, float]] = []

    def listen(packing: Packing) -> None:
        if not first_complete and (packing.pod_node >= 0).all():
            first_complete.append((time.monotonic() - started, time.process_time() - started_processor))

    packing = pack(problem, SolveBudget(deadline_seconds=started + LIMIT_SECONDS), listen)
    taken = time.monotonic() - started
    memory_mib = peak_memory_mib() - before
    faults = find_rule_violations(problem, packing.pod_node)
    assert not faults, faults
    unplaced = int((packing.pod_node < 0).sum())
    # Pods that might be placed according to the bound.
    possible = max(sum(packing.bound[:-1]) - (problem.pod_count - pending), 0)
    wall, processor = first_complete[0] if first_complete else (taken, time.process_time() - started_processor)
    return [
        BenchmarkRow(
            NAME,
            f"{shape}: placed",
            pending - unplaced,
            "pods",
            f"{pending} pending, at most {possible} by the bound",
            (pending - unplaced) / max(possible, 1),
        ),
        BenchmarkRow(
            NAME,
            f"{shape}: until all placed",
            wall,
            "s",
            f"{LIMIT_ALL_PLACED_SECONDS:g} limit",
            wall / LIMIT_ALL_PLACED_SECONDS,
        ),
        BenchmarkRow(NAME, f"{shape}: until all placed, processor", processor, "s"),
        BenchmarkRow(NAME, f"{shape}: until the answer", taken, "s", f"{LIMIT_SECONDS:g} s given"),
        BenchmarkRow(NAME, f"{shape}: moves", _moves(problem, packing), "pods", _evictions(problem, packing)),
        BenchmarkRow(
            NAME,
            f"{shape}: memory above the problem",
            memory_mib,
            "MiB",
            f"{LIMIT_MEBIBYTES:g} limit",
            memory_mib / LIMIT_MEBIBYTES,
        ),
    ]


def _evictions(problem: PackingProblem, packing: Packing) -> str:
    least = -packing.bound[-1] // int(problem.weights.max())
    return f"{packing.status}, at least {least} by the bound"


def _moves(problem: PackingProblem, packing: Packing) -> int:
    ran = problem.pod_node >= 0
    return int(np.count_nonzero(ran & (packing.pod_node != problem.pod_node)))

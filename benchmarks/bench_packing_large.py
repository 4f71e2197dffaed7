"""Packing large, nearly full clusters: pods placed, moves, time and memory."""

import time

import numpy as np

from benchmarks.large_clusters import GroupOfPods, draw_pod_group
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
PROMISED_SECONDS, PROMISED_MEBIBYTES = 4.0, 256.0
CROWDS = (
    GroupOfPods(100),
    GroupOfPods(500),
    GroupOfPods(1000),
    GroupOfPods(5000),
    GroupOfPods(5000, usage_percent=97.0),
    GroupOfPods(5000, usage_percent=99.2),
    GroupOfPods(5000, zones=3, pools=4),
)


def run() -> list[BenchmarkRow]:
    """Measure each cluster once, with compiled kernels."""
    warm_up_kernels()
    return [row for crowd in CROWDS for row in _rows(crowd)]


def _rows(crowd: GroupOfPods) -> list[BenchmarkRow]:
    problem = draw_pod_group(crowd, SEED)
    pending = int((problem.pod_node < 0).sum())
    forget_peak_memory()
    before = resident_memory_mib()
    begun, spent = time.monotonic(), time.process_time()
    settled: list[tuple[float, float]] = []

    def listen(packing: Packing) -> None:
        if not settled and (packing.pod_node >= 0).all():
            settled.append((time.monotonic() - begun, time.process_time() - spent))

    packing = pack(problem, SolveBudget(deadline_seconds=begun + LIMIT_SECONDS), listen)
    taken = time.monotonic() - begun
    held = peak_memory_mib() - before
    faults = find_rule_violations(problem, packing.pod_node)
    assert not faults, faults
    left = int((packing.pod_node < 0).sum())
    # Pods that might be placed according to the bound.
    possible = max(sum(packing.bound[:-1]) - (problem.pod_count - pending), 0)
    wall, processor = settled[0] if settled else (taken, time.process_time() - spent)
    return [
        BenchmarkRow(
            NAME,
            f"{crowd}: placed",
            pending - left,
            "pods",
            f"{pending} pending, at most {possible} by the bound",
            (pending - left) / max(possible, 1),
        ),
        BenchmarkRow(
            NAME, f"{crowd}: until all placed", wall, "s", f"{PROMISED_SECONDS:g} promised", wall / PROMISED_SECONDS
        ),
        BenchmarkRow(NAME, f"{crowd}: until all placed, processor", processor, "s"),
        BenchmarkRow(NAME, f"{crowd}: until the answer", taken, "s", f"{LIMIT_SECONDS:g} s given"),
        BenchmarkRow(NAME, f"{crowd}: moves", _moves(problem, packing), "pods", _evictions(problem, packing)),
        BenchmarkRow(
            NAME,
            f"{crowd}: memory above the problem",
            held,
            "MiB",
            f"{PROMISED_MEBIBYTES:g} promised",
            held / PROMISED_MEBIBYTES,
        ),
    ]


def _evictions(problem: PackingProblem, packing: Packing) -> str:
    least = -packing.bound[-1] // int(problem.weights.max())
    return f"{packing.status}, at least {least} by the bound"


def _moves(problem: PackingProblem, packing: Packing) -> int:
    ran = problem.pod_node >= 0
    return int(np.count_nonzero(ran & (packing.pod_node != problem.pod_node)))

"""The gap between large plans and their bounds: pods that might be placed, and evictions that might be avoided."""

import math
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from benchmarks.large_clusters import LargeClusterShape, draw_large_cluster
from benchmarks.openb_cluster import OPENB
from benchmarks.table import BenchmarkRow
from benchmarks.unlike_clusters import ClusterDrawing, DrawnBudgets, FullCluster, draw_full
from cruise.packer.answer import compute_counting_bound, compute_min_evictions
from cruise.packer.budget import SolveBudget, ThreadPool
from cruise.packer.pack import pack
from cruise.packer.problem import PackingObjective, PackingProblem
from cruise.packer.warm_up import warm_up_kernels
from cruise.runtime.cores import count_usable_cores

NAME = "packing-bounds"
SEED = 1
# On a shared machine a processor second takes longer: BENCH_STRETCH is the factor.
STRETCH = float(os.environ.get("BENCH_STRETCH", "1"))
LIMIT_SECONDS = {200: 10.0, 500: 10.0, 1000: 10.0, 5000: 60.0}
CLUSTERS: tuple[LargeClusterShape | FullCluster, ...] = (
    *(LargeClusterShape(nodes) for nodes in LIMIT_SECONDS),
    *(LargeClusterShape(nodes, usage_percent=101.0) for nodes in (200, 500, 1000)),
    *(FullCluster(make, nodes, budgets=DrawnBudgets.USUAL) for make in ClusterDrawing for nodes in (200, 500, 1000)),
    FullCluster(ClusterDrawing.BIMODAL, 5000),
)


def run() -> list[BenchmarkRow]:
    """Measure each cluster once, with compiled kernels, and report the worst."""
    warm_up_kernels()
    drawn = [
        one
        for one in CLUSTERS
        if isinstance(one, LargeClusterShape) or one.make is not ClusterDrawing.OPENB or OPENB.exists()
    ]
    rows = [row for one in drawn for row in _rows(one)]
    worst = max((row for row in rows if row.ratio is not None), key=lambda row: row.ratio or 0.0)
    return [
        *rows,
        BenchmarkRow(NAME, f"the worst is {worst.measure}", worst.value, worst.unit, worst.comparison, worst.ratio),
    ]


def _rows(cluster: LargeClusterShape | FullCluster) -> Iterator[BenchmarkRow]:
    problem = _drawn(cluster)
    started, started_processor = time.monotonic(), time.process_time()
    deadline, cores = started + STRETCH * LIMIT_SECONDS[problem.node_count], count_usable_cores()
    with ThreadPoolExecutor(cores) as pool:
        budget = SolveBudget(deadline, math.inf, SEED, ThreadPool(cores, pool.map))
        packing = pack(problem, budget, lambda _: None)
    elapsed, processor = time.monotonic() - started, time.process_time() - started_processor
    placed = sum(packing.planned.placed)
    more, counted = sum(packing.bound[:-1]) - placed, sum(compute_counting_bound(problem)[:-1]) - placed
    waits = problem.pod_count - placed
    yield BenchmarkRow(
        NAME, f"{cluster}: at most placed beyond the plan", more, "pods", f"{counted} counted, {waits} wait"
    )
    evicted = int(np.count_nonzero((problem.pod_node >= 0) & (packing.pod_node != problem.pod_node)))
    weight = int(problem.weights.max())
    known = f"at least {packing.min_evicted}, {math.ceil(compute_min_evictions(problem) / weight)} counted"
    yield BenchmarkRow(NAME, f"{cluster}: evicted", evicted, "pods", known, (evicted + 1) / (packing.min_evicted + 1))
    yield BenchmarkRow(NAME, f"{cluster}: time", elapsed, "s", f"{processor:.1f} s of the processor")


def _drawn(cluster: LargeClusterShape | FullCluster) -> PackingProblem:
    if isinstance(cluster, LargeClusterShape):
        return draw_large_cluster(cluster, SEED)
    return draw_full(cluster, SEED, PackingObjective.OPERATOR)

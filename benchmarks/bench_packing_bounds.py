"""How far from the best large plans may be: what more could be placed, and how few evictions could do."""

import math
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from benchmarks.large_clusters import Crowd, draw_crowd
from benchmarks.openb_cluster import OPENB
from benchmarks.table import Row
from benchmarks.unlike_clusters import Budgets, Full, Make, draw_full
from cruise.packer.bounds import counted_bound, least_evictions
from cruise.packer.budget import Budget, Threads
from cruise.packer.pack import pack
from cruise.packer.problem import Objective, Problem
from cruise.packer.warming import warm_up
from cruise.runtime.cores import usable_cores

NAME = "packing-bounds"
SEED = 1
# A machine that others use gives a second of its processors in several: BENCH_STRETCH says in how many.
STRETCH = float(os.environ.get("BENCH_STRETCH", "1"))
LIMIT_SECONDS = {200: 10.0, 500: 10.0, 1000: 10.0, 5000: 60.0}
CLUSTERS: tuple[Crowd | Full, ...] = (
    *(Crowd(nodes) for nodes in LIMIT_SECONDS),
    *(Crowd(nodes, usage_percent=101.0) for nodes in (200, 500, 1000)),
    *(Full(make, nodes, budgets=Budgets.USUAL) for make in Make for nodes in (200, 500, 1000)),
    Full(Make.BIMODAL, 5000),
)


def run() -> list[Row]:
    """Measure each cluster once, the kernels warm, and name the worst."""
    warm_up()
    drawn = [one for one in CLUSTERS if isinstance(one, Crowd) or one.make is not Make.OPENB or OPENB.exists()]
    rows = [row for one in drawn for row in _rows(one)]
    worst = max((row for row in rows if row.ratio is not None), key=lambda row: row.ratio or 0.0)
    return [*rows, Row(NAME, f"the worst is {worst.measure}", worst.value, worst.unit, worst.beside, worst.ratio)]


def _rows(cluster: Crowd | Full) -> Iterator[Row]:
    problem = _drawn(cluster)
    begun, spent = time.monotonic(), time.process_time()
    deadline, cores = begun + STRETCH * LIMIT_SECONDS[problem.node_count], usable_cores()
    with ThreadPoolExecutor(cores) as pool:
        budget = Budget(deadline, math.inf, SEED, Threads(cores, pool.map))
        packing = pack(problem, budget, lambda _: None)
    taken, processor = time.monotonic() - begun, time.process_time() - spent
    placed = sum(packing.after.placed)
    more, counted = sum(packing.bound[:-1]) - placed, sum(counted_bound(problem)[:-1]) - placed
    waits = problem.pod_count - placed
    yield Row(NAME, f"{cluster}: at most placed beyond the plan", more, "pods", f"{counted} counted, {waits} wait")
    evicted = int(np.count_nonzero((problem.pod_node >= 0) & (packing.pod_node != problem.pod_node)))
    weight = int(problem.weights.max())
    beside = f"at least {packing.least_evicted}, {math.ceil(least_evictions(problem) / weight)} counted"
    yield Row(NAME, f"{cluster}: evicted", evicted, "pods", beside, (evicted + 1) / (packing.least_evicted + 1))
    yield Row(NAME, f"{cluster}: time", taken, "s", f"{processor:.1f} s of the processor")


def _drawn(cluster: Crowd | Full) -> Problem:
    if isinstance(cluster, Crowd):
        return draw_crowd(cluster, SEED)
    return draw_full(cluster, SEED, Objective.OPERATOR)

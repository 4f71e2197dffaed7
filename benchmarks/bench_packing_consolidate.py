"""Consolidation of half-empty clusters of five kinds and of a real trace: nodes needed, moves and proofs.

A random share of the pods of each full cluster runs, as after a day's peak. A PodDisruptionBudget that allows one
eviction allows the next one later, so eviction limits are 0 or absent.
"""

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from benchmarks.bench_packing_openb import fill
from benchmarks.openb_cluster import OPENB, read_openb
from benchmarks.table import BenchmarkRow
from benchmarks.unlike_clusters import ClusterDrawing, DrawnBudgets, FullCluster, draw_full
from cruise.packer.answer import Packing
from cruise.packer.budget import SolveBudget
from cruise.packer.pack import pack
from cruise.packer.problem import BoolArray, NodePrices, PackingObjective, PackingProblem, find_nodes_in_use
from cruise.packer.verification import find_rule_violations
from cruise.packer.warm_up import warm_up_kernels

NAME = "packing-consolidate"
SEED = 1
LIMIT_SECONDS = 10.0
SHARES = (0.5, 0.8)
MAKES = tuple(make for make in ClusterDrawing if make is not ClusterDrawing.OPENB)
# Pods that must not move keep most nodes, so the packer is measured with pods that all may.
SCENES = ((True, 0.5), (True, 0.8), (False, 0.5))


def run() -> list[BenchmarkRow]:
    """Measure each cluster once, with compiled kernels."""
    warm_up_kernels()
    clusters = [(str(make), draw_full(FullCluster(make, 200, 30, 2, DrawnBudgets.USUAL), SEED)) for make in MAKES]
    if OPENB.exists():
        clusters.append(("openb", fill(read_openb()).problem))
    rows = [
        row
        for name, problem in clusters
        for free, share in SCENES
        for row in _rows(f"{name}, {share:.0%} run{'' if free else ', some may not move'}", problem, share, free)
    ]
    missing = (
        [] if OPENB.exists() else [BenchmarkRow(NAME, "openb: not measured: no trace in ../shared/data/openb", 0, "")]
    )
    return [*rows, *missing]


def thinned(problem: PackingProblem, share: float, free: bool, seed: int) -> PackingProblem:
    """Return a consolidation problem in which a share of the running pods still runs, and no pod is pending.

    If they are `free`, all of them may move, without eviction limits.
    """
    runs = problem.pod_node >= 0
    stays = runs & (np.random.default_rng(seed).random(problem.pod_count) < share)
    limits = tuple(limit for limit in problem.rules.eviction_limits if not (limit.allowed or free))
    occupies: BoolArray = np.ones(problem.class_count, dtype=np.bool_)
    return replace(
        problem,
        movable=problem.movable | free,
        pod_class=problem.pod_class[stays],
        pod_node=problem.pod_node[stays],
        rules=replace(problem.rules, eviction_limits=limits),
        objective=PackingObjective.CONSOLIDATION,
        node_prices=NodePrices(np.ones(problem.node_count, dtype=np.int64), occupies),
    )


def _rows(scene: str, full: PackingProblem, share: float, free: bool) -> Iterator[BenchmarkRow]:
    problem = thinned(full, share, free, SEED)
    begun = time.process_time()
    packing = pack(problem, SolveBudget(time.monotonic() + LIMIT_SECONDS), lambda _: None)
    seconds = time.process_time() - begun
    assert not find_rule_violations(problem, packing.pod_node)
    before, after = (int(find_nodes_in_use(problem, nodes).sum()) for nodes in (problem.pod_node, packing.pod_node))
    least = _least(packing)
    comparison = f"{before} before, at least {least}{', proved' if after <= least else ''}"
    yield BenchmarkRow(NAME, f"{scene}: nodes", after, "nodes", comparison, after / max(least, 1))
    moves = int(np.count_nonzero(packing.pod_node != problem.pod_node))
    yield BenchmarkRow(NAME, f"{scene}: moves", moves, "pods", f"of {problem.pod_count:,}, for {before - after} nodes")
    yield BenchmarkRow(NAME, f"{scene}: processor time", seconds, "s", "")


def _least(packing: Packing) -> int:
    return -packing.bound[len(packing.planned.priorities)]

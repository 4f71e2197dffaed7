"""Full clusters of five makes, by the packer and by the simple way: pods that stay or lose their place, and moves."""

import time
from collections.abc import Iterator

import numpy as np

from benchmarks.ejection_heuristic import place_by_ejections
from benchmarks.openb_cluster import OPENB
from benchmarks.table import Row
from benchmarks.unlike_clusters import Budgets, Full, Make, draw_full
from cruise.packer.arrays import IntArray
from cruise.packer.budget import Budget
from cruise.packer.faults import find_faults
from cruise.packer.pack import pack
from cruise.packer.problem import Problem
from cruise.packer.warming import warm_up

NAME = "packing-unlike"
SEED = 1
LIMIT_SECONDS = 10.0
FULL = tuple(
    Full(make, nodes, pods_per_node, priorities, budgets)
    for make in Make
    for nodes, pods_per_node, priorities, budgets in (
        (200, 30, 1, Budgets.USUAL),
        (200, 30, 4, Budgets.USUAL),
        (200, 100, 6, Budgets.LOOSE),
        (500, 30, 4, Budgets.SHUT),
        (1000, 30, 2, Budgets.USUAL),
    )
)


def run() -> list[Row]:
    """Measure each cluster once, the kernels warm."""
    warm_up()
    place_by_ejections(draw_full(Full(Make.BIMODAL, 10), SEED))
    drawn = [full for full in FULL if full.make is not Make.OPENB or OPENB.exists()]
    return [row for full in drawn for row in _rows(full)]


def _rows(full: Full) -> Iterator[Row]:
    problem = draw_full(full, SEED)
    begun = time.monotonic()
    simple = place_by_ejections(problem)
    rival = time.monotonic() - begun
    assert not find_faults(problem, simple)
    begun = time.monotonic()
    packing = pack(problem, Budget(begun + LIMIT_SECONDS), lambda _: None)
    taken = time.monotonic() - begun
    ours, theirs = int((packing.pod_node < 0).sum()), int((simple < 0).sum())
    waited = int((problem.pod_node < 0).sum())
    beside = f"{theirs} by ejections alone, {waited} before; all fit"
    yield Row(NAME, f"{full}: without a place", ours, "pods", beside, (ours + 1) / (theirs + 1))
    yield Row(NAME, f"{full}: moves", _moves(problem, packing.pod_node), "pods", f"{_moves(problem, simple)} by these")
    yield Row(NAME, f"{full}: time", taken, "s", f"{rival:.1f} s by these")


def _moves(problem: Problem, pod_node: IntArray) -> int:
    return int(np.count_nonzero((problem.pod_node >= 0) & (pod_node >= 0) & (pod_node != problem.pod_node)))

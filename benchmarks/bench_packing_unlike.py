"""Full clusters of every kind, by the packer and by a simple heuristic: pods without a node, and moves."""

import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.ejection_heuristic import place_by_ejections
from benchmarks.openb_cluster import OPENB
from benchmarks.table import BenchmarkRow, forget_peak_memory, peak_memory_mib, resident_memory_mib
from benchmarks.unlike_clusters import ClusterDrawing, DrawnBudgets, FullCluster, draw_full
from cruise.packer.answer import compute_figures
from cruise.packer.budget import SolveBudget
from cruise.packer.pack import pack
from cruise.packer.problem import IntArray, PackingObjective, PackingProblem
from cruise.packer.verification import find_rule_violations
from cruise.packer.warm_up import warm_up_kernels

NAME = "packing-unlike"
SEED = 1
Shape = tuple[int, int, int, DrawnBudgets, int]
# The same for both.
LIMIT_SECONDS = 5.0
# For every kind a cluster that fits by construction; for kinds in turn two of: a little more than fits, a tenth less,
# many small pods, many nodes.
EVERY: tuple[Shape, ...] = (
    (200, 30, 1, DrawnBudgets.USUAL, 100),
    (200, 30, 4, DrawnBudgets.USUAL, 100),
    (500, 30, 4, DrawnBudgets.SHUT, 100),
)
IN_TURN: tuple[Shape, ...] = (
    (200, 30, 4, DrawnBudgets.USUAL, 101),
    (200, 100, 6, DrawnBudgets.LOOSE, 100),
    (1000, 30, 2, DrawnBudgets.USUAL, 100),
    (200, 30, 3, DrawnBudgets.USUAL, 90),
    (200, 250, 2, DrawnBudgets.USUAL, 100),
)


def run() -> list[BenchmarkRow]:
    """Measure each cluster once, with compiled kernels; the worst one is last."""
    return measure(NAME, draw_cluster(EVERY, IN_TURN, 2), LIMIT_SECONDS)


def draw_cluster(every: Sequence[Shape], in_turn: Sequence[Shape], share: int) -> list[FullCluster]:
    """Return every kind in each of the first shapes, and kinds in turn in the others."""
    makes = [make for make in ClusterDrawing if make is not ClusterDrawing.OPENB or OPENB.exists()]
    turns = itertools.cycle(in_turn)
    return [FullCluster(make, *shape) for make in makes for shape in (*every, *itertools.islice(turns, share))]


def measure(name: str, clusters: Sequence[FullCluster], limit_seconds: float) -> list[BenchmarkRow]:
    """Return the rows of each cluster, and the worst one."""
    warm_up_kernels()
    place_by_ejections(draw_full(FullCluster(ClusterDrawing.BIMODAL, 10), SEED))
    found = []
    for number, full in enumerate(clusters, 1):
        found.append(_both(full, limit_seconds))
        sys.stderr.write(f"  {number} of {len(clusters)}: {found[-1]}\n")
    rows = [row for one in found for row in one.rows(name)]
    behind = [one for one in found if one.ours.placed < one.theirs.placed]
    lost = max(sum(one.theirs.placed) - sum(one.ours.placed) for one in found)
    fitting = [one for one in found if one.full.percent <= 100]
    unfound = [one for one in fitting if one.left(one.ours)]
    worst = max(fitting, key=lambda one: one.left(one.ours))
    fullest = max(found, key=lambda one: one.left(one.ours))
    alike = [one for one in found if one.ours.placed == one.theirs.placed]
    moved = max((one.ours.moves - one.theirs.moves for one in alike), default=0)
    count = f"of {len(found)} clusters"
    return [
        *rows,
        BenchmarkRow(name, "behind these in what is placed, by priority", len(behind), "clusters", count),
        BenchmarkRow(name, "the worst: pods placed by these and not by cruise", max(lost, 0), "pods", count),
        BenchmarkRow(name, "a full packing exists and is not found", len(unfound), "clusters", f"of {len(fitting)}"),
        BenchmarkRow(name, "the worst of these: without a place", worst.left(worst.ours), "pods", str(worst.full)),
        BenchmarkRow(name, "the worst of all: without a place", fullest.left(fullest.ours), "pods", str(fullest.full)),
        BenchmarkRow(
            name, "the worst: moves that these do not need for the same", max(moved, 0), "pods", f"of {len(alike)}"
        ),
    ]


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """The result of one solver: pods placed per priority from the highest, moves, time and memory.

    `seconds` are processor time, `memory_mib` is without the problem itself.
    """

    placed: tuple[int, ...]
    moves: int
    seconds: float
    memory_mib: float


@dataclass(frozen=True, slots=True, eq=False)
class _Both:
    """The plans of both solvers for one cluster."""

    full: FullCluster
    problem: PackingProblem
    ours: _Plan
    theirs: _Plan

    def left(self, plan: _Plan) -> int:
        """Return the number of pods without a node."""
        return self.problem.pod_count - sum(plan.placed)

    def __str__(self) -> str:
        ours, theirs = self.ours, self.theirs
        return (
            f"{self.full}: {self.left(ours)} left by {ours.moves} moves in {ours.seconds:.1f} s, "
            f"by ejections alone {self.left(theirs)} by {theirs.moves} in {theirs.seconds:.1f} s"
        )

    def rows(self, name: str) -> Iterator[BenchmarkRow]:
        """Pods without a node, moves and time."""
        ours, theirs, waited = self.left(self.ours), self.left(self.theirs), int((self.problem.pod_node < 0).sum())
        fit = "; all fit" if self.full.percent <= 100 else ""
        comparison = f"{theirs} by ejections alone, {waited} before{fit}"
        yield BenchmarkRow(name, f"{self.full}: without a place", ours, "pods", comparison, (ours + 1) / (theirs + 1))
        yield BenchmarkRow(name, f"{self.full}: moves", self.ours.moves, "pods", f"{self.theirs.moves} by these")
        comparison = f"{self.theirs.seconds:.1f} s, {self.theirs.memory_mib:.0f} MiB by these"
        yield BenchmarkRow(
            name, f"{self.full}: processor time", self.ours.seconds, "s", comparison, memory_mib=self.ours.memory_mib
        )


def _both(full: FullCluster, limit_seconds: float) -> _Both:
    problem = draw_full(full, SEED, PackingObjective.OPERATOR)
    theirs = _timed(problem, lambda deadline: place_by_ejections(problem, deadline), limit_seconds)
    ours = _timed(
        problem, lambda deadline: pack(problem, SolveBudget(deadline), lambda _: None).pod_node, limit_seconds
    )
    return _Both(full, problem, ours, theirs)


def _timed(problem: PackingProblem, way: Callable[[float], IntArray], limit_seconds: float) -> _Plan:
    forget_peak_memory()
    resident, started_processor = resident_memory_mib(), time.process_time()
    pod_node = way(time.monotonic() + limit_seconds)
    elapsed, memory = time.process_time() - started_processor, peak_memory_mib() - resident
    assert not find_rule_violations(problem, pod_node)
    placed = tuple(tier.placed for tier in compute_figures(problem, pod_node).priorities)
    moved = (problem.pod_node >= 0) & (pod_node >= 0) & (pod_node != problem.pod_node)
    return _Plan(placed, int(moved.sum()), elapsed, memory)

"""Packing clusters like the paper's within a second: cruise compared with the paper's algorithm on new instances."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.packing_instances import (
    PAPER_RANGE,
    InstanceShape,
    draw_pending,
    draw_rightsized,
    problem_of,
    with_peaks,
)
from benchmarks.packing_paper import solve_as_paper
from benchmarks.table import BenchmarkRow
from cruise.packer.budget import SolveBudget
from cruise.packer.columns.instance import PackingInstance
from cruise.packer.pack import pack
from cruise.packer.verification import find_rule_violations
from cruise.packer.warm_up import warm_up_kernels

NAME = "packing"
LIMIT_SECONDS = 1.0
SEEDS = range(101, 106)
# The paper used a machine with 8 vCPU; here it has all cores of a small machine.
PAPER_WORKERS = 2
PROVED_SHARE, COUNTS_SHARE, MEAN_SECONDS = 0.90, 0.96, 0.4
RIGHTSIZED = (InstanceShape(16, 8, 1, 95), InstanceShape(16, 8, 4, 100), InstanceShape(32, 8, 4, 100))
DENSER = 0.14


@dataclass(frozen=True, slots=True)
class PackingRun:
    """The result for one instance."""

    proved: bool
    counts_proved: bool
    better: bool
    seconds: float
    placed: tuple[int, ...]

    @property
    def failed(self) -> bool:
        """Neither an improvement nor proved optimal."""
        return not self.better and not self.proved


def run() -> list[BenchmarkRow]:
    """Measure both on every shape and seed, one after the other."""
    warm_up_kernels()
    run_paper(draw_pending(PAPER_RANGE[0], 1), LIMIT_SECONDS)
    ours: dict[InstanceShape, list[PackingRun]] = {}
    papers: dict[InstanceShape, list[PackingRun]] = {}
    for shape in PAPER_RANGE:
        instances = [draw_pending(shape, seed) for seed in SEEDS]
        ours[shape] = [run_cruise(instance, LIMIT_SECONDS) for instance in instances]
        papers[shape] = [run_paper(instance, LIMIT_SECONDS) for instance in instances]
    rows = [row for shape in PAPER_RANGE for row in _shape_rows(shape, ours[shape], papers[shape])]
    rows += _total_rows([r for rs in ours.values() for r in rs], [r for rs in papers.values() for r in rs])
    return [*rows, *(row for shape in RIGHTSIZED for row in _density_rows(shape))]


def run_cruise(instance: PackingInstance, limit: float) -> PackingRun:
    """Solve by cruise, and check the packing."""
    problem = problem_of(instance)
    started = time.monotonic()
    packing = pack(problem, SolveBudget(deadline_seconds=started + limit), lambda _: None)
    elapsed = time.monotonic() - started
    faults = find_rule_violations(problem, packing.pod_node)
    assert not faults, faults
    key, now = packing.planned.get_key(problem.objective), packing.current.get_key(problem.objective)
    counts_proved = key[::2] == packing.bound[::2]
    return PackingRun(packing.status.is_proved, counts_proved, key > now, elapsed, packing.planned.placed)


def run_paper(instance: PackingInstance, limit: float) -> PackingRun:
    """Solve by the paper's algorithm."""
    started = time.monotonic()
    answer = solve_as_paper(instance, limit, PAPER_WORKERS)
    elapsed = time.monotonic() - started
    now = tuple(int(instance.running[instance.priorities == tier].sum()) for tier in instance.list_priorities())
    return PackingRun(answer.proved, answer.counts_proved, answer.placed > now, elapsed, answer.placed)


def _density_rows(shape: InstanceShape) -> list[BenchmarkRow]:
    """Return how many more pods fit on the same nodes if headroom is shared per node; every node is checked."""
    instances = [draw_rightsized(shape, seed) for seed in SEEDS]
    shared = [run_cruise(instance, LIMIT_SECONDS) for instance in instances]
    peaks = [run_cruise(with_peaks(instance), LIMIT_SECONDS) for instance in instances]
    shared_count, peak_count = sum(sum(r.placed) for r in shared), sum(sum(r.placed) for r in peaks)
    increase, name = 100 * (shared_count / peak_count - 1), f"{shape} rightsized"
    pods = sum(int(i.counts.sum()) for i in instances)
    comparison = f"{100 * DENSER:.0f} % promised; {shared_count} of {pods} pods, {peak_count} by peaks"
    return [
        BenchmarkRow(
            NAME, f"{name}: more pods than by sums of peaks", increase, "%", comparison, increase / (100 * DENSER)
        ),
        BenchmarkRow(
            NAME, f"{name}: proved", 100 * _share(shared, lambda r: r.proved), "%", f"mean {_mean(shared):.2f} s"
        ),
    ]


def _share(results: list[PackingRun], condition: Callable[[PackingRun], bool]) -> float:
    return sum(condition(result) for result in results) / len(results)


def _mean(results: list[PackingRun]) -> float:
    return sum(result.seconds for result in results) / len(results)


def _shape_rows(shape: InstanceShape, ours: list[PackingRun], papers: list[PackingRun]) -> list[BenchmarkRow]:
    paper = f"paper {100 * _share(papers, lambda r: r.proved):.0f} %, {_mean(papers):.2f} s"
    return [
        BenchmarkRow(NAME, f"{shape}: proved", 100 * _share(ours, lambda r: r.proved), "%", paper),
        BenchmarkRow(NAME, f"{shape}: mean", _mean(ours), "s", "", _mean(ours) / _mean(papers)),
    ]


def _total_rows(ours: list[PackingRun], papers: list[PackingRun]) -> list[BenchmarkRow]:
    def row(measure: str, condition: Callable[[PackingRun], bool], limit: float | None) -> BenchmarkRow:
        value, paper = 100 * _share(ours, condition), 100 * _share(papers, condition)
        limit_text = "" if limit is None else f"{100 * limit:.0f} % promised, "
        ratio = value / (100 * limit) if limit else None
        return BenchmarkRow(NAME, f"all {len(ours)}: {measure}", value, "%", f"{limit_text}paper {paper:.0f} %", ratio)

    fewer = sum(mine.placed < theirs.placed for mine, theirs in zip(ours, papers, strict=True))
    comparison = f"{MEAN_SECONDS:g} s promised, paper {_mean(papers):.2f} s"
    return [
        row("better and proved, or already proved", lambda r: r.proved, PROVED_SHARE),
        row("counts proved", lambda r: r.counts_proved, COUNTS_SHARE),
        row("better, or already proved", lambda r: not r.failed, None),
        row("failed", lambda r: r.failed, None),
        BenchmarkRow(NAME, f"all {len(ours)}: fewer placed than the paper's", fewer, "plans"),
        BenchmarkRow(NAME, f"all {len(ours)}: mean", _mean(ours), "s", comparison, _mean(ours) / MEAN_SECONDS),
        BenchmarkRow(NAME, f"all {len(ours)}: longest", max(r.seconds for r in ours), "s"),
    ]

"""Clusters with many rules between pods: proved packings and time, by kind."""

import time

from benchmarks.ruled_clusters import PodKind, RuledCluster, draw_ruled
from benchmarks.table import BenchmarkRow
from cruise.packer.budget import SolveBudget
from cruise.packer.pack import pack
from cruise.packer.verification import find_rule_violations
from cruise.packer.warm_up import warm_up_kernels

NAME = "packing-rules"
SEEDS = (1, 2)
# A limit of work instead of time, so that other programs on the machine do not matter.
LIMIT_SECONDS, WORK_A_SECOND = 10.0, 1e9
PROVED_SHARE = 0.80
# Priorities, and the share of all capacity that pods request.
FULL = ((1, 97), (4, 97), (2, 102))
NODES = (16, 32)


def run() -> list[BenchmarkRow]:
    """Measure every kind, one cluster after the other."""
    warm_up_kernels()
    return [row for nodes in NODES for row in _rows(nodes)]


def _rows(nodes: int) -> list[BenchmarkRow]:
    rows: list[BenchmarkRow] = []
    results: list[tuple[bool, float]] = []
    for kind in PodKind:
        mine = [_solve(RuledCluster(kind, nodes, 8, tiers, usage), seed) for tiers, usage in FULL for seed in SEEDS]
        rows += [_proved(f"{nodes}x8 {kind}", mine), _mean(f"{nodes}x8 {kind}", mine)]
        results += mine
    return [*rows, _proved(f"{nodes}x8, all {len(results)}", results), _mean(f"{nodes}x8, all {len(results)}", results)]


def _solve(ruled: RuledCluster, seed: int) -> tuple[bool, float]:
    """Return whether the packing is proved, and its processor time."""
    problem = draw_ruled(ruled, seed)
    started = time.process_time()
    packing = pack(problem, SolveBudget(work_units=LIMIT_SECONDS * WORK_A_SECOND), lambda _: None)
    elapsed = time.process_time() - started
    assert not find_rule_violations(problem, packing.pod_node)
    return packing.status.is_proved, elapsed


def _proved(what: str, results: list[tuple[bool, float]]) -> BenchmarkRow:
    share = sum(proved for proved, _ in results) / len(results)
    comparison = f"{100 * PROVED_SHARE:.0f} % promised in {LIMIT_SECONDS:g} s"
    return BenchmarkRow(NAME, f"{what}: proved", 100 * share, "%", comparison, share / PROVED_SHARE)


def _mean(what: str, results: list[tuple[bool, float]]) -> BenchmarkRow:
    return BenchmarkRow(NAME, f"{what}: mean, processor", sum(seconds for _, seconds in results) / len(results), "s")

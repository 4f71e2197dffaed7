"""Usage of many kinds under cruise at its defaults, beside VPA and beside requests as they were.

`CRUISE_BENCH_SHAPES` names some kinds, separated by commas, in place of all. `ratio` compares with VPA.
"""

import os
import sys
from collections.abc import Callable, Mapping

from benchmarks.table import BenchmarkRow
from benchmarks.usage_shapes import SHAPES, draw_recording
from cruise.backtest.backtest import backtest_policies
from cruise.backtest.replay.policy import ReplayOptions
from cruise.decisions.policy_costs import compute_policy_cost
from cruise.domain.backtest import ObjectivePrices, PolicyScore
from cruise.domain.resources import MEBIBYTE, Resources

NAME = "usage-shapes"
DAYS = 12
SEED = 1
COMPARED = ("as-requested", "vpa", "cruise")
OPTIONS = ReplayOptions(node=Resources(8000, 32 * 1024 * MEBIBYTE), with_both_consolidations=False)
FIGURES: Mapping[str, tuple[str, Callable[[PolicyScore], float]]] = {
    "CPU slack": ("%", lambda score: 100 * score.cpu.relative_slack),
    "memory slack": ("%", lambda score: 100 * score.memory.relative_slack if score.memory is not None else 0.0),
    "CPU short": ("% of intervals", lambda score: 100 * score.cpu.short_share),
    "memory short": (
        "% of intervals",
        lambda score: 100 * score.memory.short_share if score.memory is not None else 0.0,
    ),
    "starved": ("per mille", lambda score: 1000 * score.cpu.starved_share),
    "kills": ("per 1,000 container-days", lambda score: score.oom_per_1000_container_days),
    "own evictions": ("per 1,000 pod-days", lambda score: score.own_evictions_per_1000_pod_days),
    "resizes": ("per container-day", lambda score: score.resizes_per_container_day),
    "nodes": ("mean", lambda score: score.nodes_mean),
    "cost": ("$ per 1,000 container-days", lambda score: compute_policy_cost(score, ObjectivePrices()).total),
}


def run() -> list[BenchmarkRow]:
    """Replay each kind under all policies that are compared."""
    named = os.environ.get("CRUISE_BENCH_SHAPES")
    return [row for kind in (named.split(",") if named else SHAPES) for row in _measure(kind)]


def _measure(kind: str) -> list[BenchmarkRow]:
    print(f"bench: {NAME}: {kind}", file=sys.stderr)
    scores = backtest_policies(draw_recording(kind, SEED, DAYS), COMPARED, OPTIONS).policies
    rows = []
    for figure, (unit, get) in FIGURES.items():
        requested, vpa, cruise = (get(scores[name]) for name in COMPARED)
        against = f"VPA: {vpa:,.1f}, as requested: {requested:,.1f}"
        rows.append(BenchmarkRow(NAME, f"{kind}: {figure}", cruise, unit, against, cruise / vpa if vpa else None))
    return rows

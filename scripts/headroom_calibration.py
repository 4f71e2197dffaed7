"""How often demand passes what a headroom model leaves for it, on recorded usage: a table, and a picture for the docs.

    python scripts/headroom_calibration.py TRACE… --picture docs/headroom-calibration.svg [--half 1]

Series drawn at random make a node, and are drawn anew every day, as pods move; every model decides at every interval
from the statistics of that time, and is judged by the largest summed demand of the interval after it. `--half 0` takes
the series at even places of their sorted names, for tuning; `--half 1` those that nothing was tuned on.
"""

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from cruise.backtest.policies.statistics import ReplayedStatistics
from cruise.backtest.recordings.recording import Recording
from cruise.backtest.recordings.traces import load_trace
from cruise.decisions.sizing.headroom.joint_peak import JointPeak
from cruise.decisions.sizing.headroom.model import Headroom
from cruise.decisions.sizing.headroom.past_demand import PastDemand
from cruise.decisions.sizing.headroom.risk import Risk, forecast_of
from cruise.decisions.sizing.headroom.shared_max import SHARED_MAX
from cruise.decisions.sizing.recommendation import Demand
from cruise.domain.arrays import Float64Array, Int64Array
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName
from cruise.domain.usage import StatisticColumns
from cruise.runtime.sizing.score_history import ScoreHistory

PASS_SECONDS = 300
DAY_SECONDS = 86400
WEEK_SECONDS = 7 * DAY_SECONDS
NODES, PODS = 20, 20
RISKS = (1e-2, 1e-3, 1e-4)
OTHERS = ("shared-max", "joint-peak", "sum of peaks")


@dataclass(slots=True)
class Tally:
    """What became of one model's intervals: those of all nodes, from when on there is history, and in all."""

    intervals: int = 0
    short: int = 0
    warm_intervals: int = 0
    warm_short: int = 0
    demand: float = 0.0
    given: float = 0.0

    def add(
        self, headroom: Int64Array, base: Int64Array, largest: Float64Array, mean: Float64Array, warm: bool
    ) -> None:
        """Count one interval of every node."""
        short = int((largest > (base + headroom) * (1 + 1e-9)).sum())
        self.warm_intervals += len(base)
        self.warm_short += short
        if not warm:
            self.intervals += len(base)
            self.short += short
            self.demand += float(mean.sum())
            self.given += float((base + headroom).sum())

    @property
    def slack(self) -> float:
        """The share of what is given that is not used, once there is history."""
        return 1 - self.demand / self.given if self.given else math.nan


@dataclass(slots=True)
class Trial:
    """One resource of one trace under every model."""

    trace: str
    resource: ResourceName
    tallies: dict[str, Tally] = field(default_factory=dict)

    def tally(self, name: str) -> Tally:
        """Return a model's count."""
        return self.tallies.setdefault(name, Tally())


def half_of(recording: Recording, half: int) -> Recording:
    """Return every other series by sorted name."""
    names = [(one.namespace, str(one.workload), one.pod) for one in recording.containers]
    chosen = sorted(range(len(names)), key=names.__getitem__)[half::2]
    return replace(
        recording,
        containers=[recording.containers[one] for one in chosen],
        cpu_millicores=np.ascontiguousarray(recording.cpu_millicores[:, chosen]),
        memory_bytes=np.ascontiguousarray(recording.memory_bytes[:, chosen]),
    )


def trials_of(recording: Recording, seed: int = 0) -> list[Trial]:
    """Replay a recording's statistics and judge every model at every interval."""
    policy, count = Policy(), len(recording.containers)
    statistics = ReplayedStatistics(recording, policy)
    per_pass = PASS_SECONDS // recording.step_seconds
    passes = len(recording.cpu_millicores) // per_pass
    history_from = recording.start + min(passes * PASS_SECONDS // 2, WEEK_SECONDS)
    generator = np.random.default_rng(seed)
    resources = list(ResourceName) if recording.has_memory else [ResourceName.CPU]
    trials = {resource: Trial(recording.name, resource) for resource in resources}
    scores = ScoreHistory()
    members, day = np.empty((0, 0)), -1
    for number in range(passes - 1):
        past = slice(number * per_pass, (number + 1) * per_pass)
        coming = slice(past.stop, past.stop + per_pass)
        at = recording.start + recording.step_seconds * (past.stop - 1)
        statistics.observe(at, recording.cpu_millicores[past], recording.memory_bytes[past])
        if at // DAY_SECONDS != day:
            members, day = _draw(generator, count), at // DAY_SECONDS
        if at - recording.start < policy.new_workload_age.total_seconds():
            continue
        known, columns = statistics.of_containers(np.ones(count, dtype=np.bool_))
        usage, rows = statistics.recent()
        cpu, memory = statistics.peaks_of_hours()
        numbers = statistics.numbers[known]
        demand_then = PastDemand.of(usage, rows[known], numbers, {ResourceName.CPU: cpu, ResourceName.MEMORY: memory})
        for resource, trial in trials.items():
            samples = recording.cpu_millicores if resource is ResourceName.CPU else recording.memory_bytes
            used = np.nan_to_num(samples[coming][:, known].astype(np.float64)) @ members[known]
            demand = _demand(columns, resource)
            judged = _Judged(resource, demand, demand_then, members[known], used.max(axis=0), used.mean(axis=0))
            judged.count(trial, scores, at, at < history_from)
    return list(trials.values())


@dataclass(frozen=True, slots=True)
class _Judged:
    resource: ResourceName
    demand: Demand
    past: PastDemand
    members: Float64Array
    largest: Float64Array
    mean: Float64Array

    def count(self, trial: Trial, scores: ScoreHistory, at: int, warm: bool) -> None:
        base = (self.demand.base @ self.members).astype(np.int64)
        for name in OTHERS:
            trial.tally(name).add(self._other(name, base), base, self.largest, self.mean, warm)
        extras = self._sums(Risk(self.past, {}))
        for risk in RISKS:
            model = Risk(self.past, scores.margins(at, partial(_asked, risk)))
            headroom = model.of_nodes(self.resource, base, self._spikes(), extras)
            trial.tally(f"{risk:g}").add(headroom, base, self.largest, self.mean, warm)
        scores.add(self.resource, at + PASS_SECONDS, forecast_of(base, extras).scores(self.largest))

    def _other(self, name: str, base: Int64Array) -> Int64Array:
        if name == "sum of peaks":
            together: Int64Array = (self.demand.headroom @ self.members).astype(np.int64)
            return together
        model: Headroom = SHARED_MAX if name == "shared-max" else JointPeak(self.past)
        return model.of_nodes(self.resource, base, self._spikes(), self._sums(model))

    def _sums(self, model: Headroom) -> Float64Array:
        rows = np.arange(len(self.demand.base))
        sums: Float64Array = self.members.T @ model.extras(self.resource, rows, self.demand)
        return sums

    def _spikes(self) -> Int64Array:
        spikes: Int64Array = (self.members * self.demand.headroom[:, np.newaxis]).max(axis=0).astype(np.int64)
        return spikes


def _asked(risk: float, _: ResourceName) -> float:
    return risk


def _demand(columns: StatisticColumns, resource: ResourceName) -> Demand:
    if resource is ResourceName.CPU:
        base, peak = columns.cpu_base_millicores, columns.cpu_peak_millicores
    else:
        base, peak = columns.memory_base_bytes, columns.memory_peak_bytes
    nothing, everywhere = np.zeros_like(base), np.ones(len(base), dtype=np.bool_)
    return Demand(base, base, np.maximum(peak - base, 0), nothing, nothing, nothing, everywhere)


def _draw(generator: np.random.Generator, count: int) -> Float64Array:
    """Return which containers each node has: (containers, nodes)."""
    members = np.zeros((count, NODES))
    for node in range(NODES):
        members[generator.choice(count, min(PODS, max(2, count // 2)), replace=False), node] = 1
    return members


def table_of(trials: Sequence[Trial]) -> Iterator[str]:
    """Yield the lines of a Markdown table: observed share of short intervals / slack."""
    names = [*OTHERS, *(f"{risk:g}" for risk in RISKS)]
    yield "| trace | intervals | " + " | ".join([*OTHERS, *(f"risk {risk:g}" for risk in RISKS)]) + " |"
    yield "|---" * (len(names) + 2) + "|"
    for trial in trials:
        cells = [
            f"{one.short / max(one.intervals, 1):.5f} / {one.slack:.3f} ({one.warm_short / one.warm_intervals:.5f})"
            for one in map(trial.tallies.__getitem__, names)
        ]
        intervals = trial.tallies[names[0]].intervals
        yield f"| {trial.trace} {trial.resource.value} | {intervals} | " + " | ".join(cells) + " |"


COLOURS = ("#1b6ca8", "#c8553d", "#3f7d3a", "#7b4ea3", "#a0791a", "#2a9d8f", "#b0413e", "#5a6472", "#d17b0f")
WIDTH, HEIGHT, LEFT, TOP, SIDE = 760, 470, 70, 30, 400
LOWEST, HIGHEST = -5.0, -1.5


def picture_of(trials: Sequence[Trial]) -> str:
    """Return the calibration plot: asked against observed, both logarithmic; hollow marks are of too few intervals."""

    def across(value: float) -> float:
        return LEFT + (math.log10(value) - LOWEST) / (HIGHEST - LOWEST) * SIDE

    def down(value: float) -> float:
        return TOP + SIDE - (max(math.log10(value), LOWEST) - LOWEST) / (HIGHEST - LOWEST) * SIDE

    lowest, highest = 10**LOWEST, 10**HIGHEST
    ends = [(lowest, lowest), (highest, highest), (highest, highest / 2), (lowest * 2, lowest)]
    within = [(lowest, lowest * 2), (highest / 2, highest), *ends[1:3], *ends[3:], (lowest, lowest)]
    corners = " ".join(f"{across(x):.1f},{down(y):.1f}" for x, y in within)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        "<title>Asked against observed share of intervals in which demand passes what a node has</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<polygon points="{corners}" fill="#eef3ea"/>',
        f'<rect x="{LEFT}" y="{TOP}" width="{SIDE}" height="{SIDE}" fill="none" stroke="#888888"/>',
        f'<line x1="{across(lowest):.1f}" y1="{down(lowest):.1f}" x2="{across(highest):.1f}" '
        f'y2="{down(highest):.1f}" stroke="#555555"/>',
    ]
    for power in range(math.ceil(LOWEST), math.floor(HIGHEST) + 1):
        x, y, label = across(10.0**power), down(10.0**power), f"{10.0**power:g}"
        parts.append(f'<text x="{x:.1f}" y="{TOP + SIDE + 18}" text-anchor="middle">{label}</text>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
        parts.append(
            f'<path d="M{x:.1f} {TOP}V{TOP + SIDE}M{LEFT} {y:.1f}H{LEFT + SIDE}" stroke="#dddddd" stroke-width="0.7"/>'
        )
    middle = TOP + SIDE / 2
    parts.append(f'<text x="{LEFT + SIDE / 2}" y="{TOP + SIDE + 36}" text-anchor="middle">asked</text>')
    parts.append(f'<text x="18" y="{middle}" text-anchor="middle" transform="rotate(-90 18 {middle})">observed</text>')
    for place, trial in enumerate(trials):
        colour = COLOURS[place % len(COLOURS)]
        # Side by side, so that one mark does not hide another.
        aside = 1.05 ** (place - len(trials) / 2)
        for risk in RISKS:
            one = trial.tallies[f"{risk:g}"]
            observed = one.short / max(one.intervals, 1)
            filled = colour if one.intervals * risk >= 1 else "#ffffff"
            parts.append(
                f'<circle cx="{across(risk * aside):.1f}" cy="{down(max(observed, lowest)):.1f}" r="4.5" '
                f'fill="{filled}" stroke="{colour}" stroke-width="1.6"/>'
            )
        y = TOP + 14 + 20 * place
        parts.append(f'<circle cx="{LEFT + SIDE + 26}" cy="{y - 4}" r="4.5" fill="{colour}"/>')
        parts.append(f'<text x="{LEFT + SIDE + 38}" y="{y}">{trial.trace} {trial.resource.value}</text>')
    y = TOP + 14 + 20 * len(trials) + 12
    for line in (
        "line: observed as asked; shaded: within a factor of 2",
        "hollow: less than one short interval to be expected",
        f"at the bottom: none was short ({10**LOWEST:g} or less)",
    ):
        parts.append(f'<text x="{LEFT + SIDE + 20}" y="{y}" fill="#555555" font-size="11">{line}</text>')
        y += 17
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    """Read the traces, judge the models, print the table and draw the picture."""
    arguments = argparse.ArgumentParser(description="Judge headroom models by recorded usage.")
    arguments.add_argument("traces", type=Path, nargs="+")
    arguments.add_argument("--picture", type=Path)
    arguments.add_argument("--half", type=int, choices=(0, 1), default=1)
    asked = arguments.parse_args()
    trials = [trial for trace in asked.traces for trial in trials_of(half_of(load_trace(trace), asked.half))]
    print("\n".join(table_of(trials)))
    if asked.picture is not None:
        asked.picture.write_text(picture_of(trials))


if __name__ == "__main__":
    main()

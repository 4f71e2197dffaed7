"""How often demand passes what a headroom model leaves for it, on recorded usage: a table, and a picture for the docs.

    python -m benchmarks.headroom_calibration TRACE… --picture docs/headroom-calibration.svg [--half 1]

Every model decides at every interval, and is judged by the largest summed demand of the interval after it. `--half 0`
takes the series at even places of their sorted names, for tuning; `--half 1` those that nothing was tuned on. Model
risk learns from the trace alone; `headroom_promise` judges it with the scores of others.
"""

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks.headroom_outcomes import DAY_SECONDS, PASS_SECONDS, Outcomes, Tally, outcomes_of
from cruise.decisions.sizing.headroom.past_demand import PastDemand
from cruise.decisions.sizing.headroom.risk import Risk
from cruise.domain.arrays import Int64Array
from cruise.domain.resources import ResourceName
from cruise.runtime.sizing.score_history import ScoreHistory

WEEK_SECONDS = 7 * DAY_SECONDS
NODES, PODS = 20, (20,)
RISKS = (1e-2, 1e-3, 1e-4)
OTHERS = ("shared-max", "joint-peak", "sum of peaks")


@dataclass(slots=True)
class Trial:
    """One resource of one trace under every model: from when on there is history, and in all."""

    trace: str
    resource: ResourceName
    tallies: dict[str, Tally] = field(default_factory=dict)
    warm_tallies: dict[str, Tally] = field(default_factory=dict)

    def add(self, name: str, headroom: Int64Array, outcomes: Outcomes, number: int, warm: bool) -> None:
        """Count one interval of every node."""
        for tallies in (self.warm_tallies,) if warm else (self.warm_tallies, self.tallies):
            tallies.setdefault(name, Tally()).add(headroom, outcomes, number)


def trial_of(outcomes: Outcomes) -> Trial:
    """Judge every model at every interval."""
    resource, scores = outcomes.resource, ScoreHistory()
    trial = Trial(outcomes.trace, resource)
    whole = int(outcomes.at[-1]) - outcomes.start
    history_from = outcomes.start + min(whole // 2, WEEK_SECONDS)
    for number, at in enumerate(outcomes.at.tolist()):
        base, extras, single = outcomes.base[number], outcomes.extras[number], outcomes.single[number]
        warm = at < history_from
        together = extras[:, 0].astype(base.dtype)
        for name, headroom in zip(OTHERS, (single, outcomes.joint[number], together), strict=True):
            trial.add(name, headroom, outcomes, number, warm)
        for risk in RISKS:
            model = Risk(PastDemand.empty(0), scores.margins(at, partial(_asked, risk)))
            trial.add(f"{risk:g}", model.of_nodes(resource, base, single, extras), outcomes, number, warm)
        scores.add(resource, at + PASS_SECONDS, outcomes.scores(number))
    return trial


def _asked(risk: float, _: ResourceName) -> float:
    return risk


def table_of(trials: Sequence[Trial]) -> Iterator[str]:
    """Yield the lines of a Markdown table: observed share of short intervals / slack."""
    names = [*OTHERS, *(f"{risk:g}" for risk in RISKS)]
    yield "| trace | intervals | " + " | ".join([*OTHERS, *(f"risk {risk:g}" for risk in RISKS)]) + " |"
    yield "|---" * (len(names) + 2) + "|"
    for trial in trials:
        cells = [
            f"{one.share:.5f} / {one.slack:.3f} ({warm.share:.5f})"
            for one, warm in ((trial.tallies[name], trial.warm_tallies[name]) for name in names)
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
            filled = colour if one.intervals * risk >= 1 else "#ffffff"
            parts.append(
                f'<circle cx="{across(risk * aside):.1f}" cy="{down(max(one.share, lowest)):.1f}" r="4.5" '
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
    arguments.add_argument("--days", type=int, default=28, help="how much of a trace is judged")
    asked = arguments.parse_args()
    trials = [
        trial_of(one) for trace in asked.traces for one in outcomes_of(trace, NODES, asked.days, asked.half, PODS)
    ]
    print("\n".join(table_of(trials)))
    if asked.picture is not None:
        asked.picture.write_text(picture_of(trials))


if __name__ == "__main__":
    main()

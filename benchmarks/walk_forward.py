"""Tests how often the intervals of `cruise backtest --against` contain the following difference, for pairs of settings.

    python -m benchmarks.walk_forward DIR… [--jobs N]

Every pair of SETTINGS is compared on every trace. An interval is computed from the first 30, 40 … 70 % of a trace and
compared with the difference over as much time afterwards. Metrics that never differ are left out.
"""

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from types import MappingProxyType

from cruise.backtest.backtest import ReplayConfiguration
from cruise.backtest.comparison import compare_configurations
from cruise.backtest.replay.policy import ReplayOptions
from cruise.backtest.tasks import TraceRecordingSource
from cruise.cli.work.replay import ReplayRequest, replay_locally
from cruise.domain.backtest import BacktestResult, ComparedMetric
from cruise.domain.policy import Policy
from cruise.settings import load_settings

SETTINGS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "default": {},
        "seeds": {"CRUISE_RULES": "seeds"},
        "careful": {"CRUISE_HEADROOM_RISK": "0.001", "CRUISE_HEADROOM_CPU_RISK": "0.001"},
        "joint-peak": {"CRUISE_HEADROOM": "joint-peak"},
    }
)


def evaluate_forecasts(
    result: BacktestResult, seed: int = 0
) -> tuple[Counter[ComparedMetric], Counter[ComparedMetric]]:
    """Return the numbers of confirmed and of all forecasts of each metric, over all pairs of rows."""
    right: Counter[ComparedMetric] = Counter()
    made: Counter[ComparedMetric] = Counter()
    for here, against in combinations(result.policies, 2):
        for figure, found in compare_configurations(result, here, against, {}, seed).metrics.items():
            if found.low != found.high or found.confirmed_forecasts != found.forecasts:
                right[figure] += found.confirmed_forecasts
                made[figure] += found.forecasts
    return right, made


def markdown(results: Sequence[BacktestResult]) -> str:
    """Return a table with a row per trace and a column per metric."""
    lines = [f"| trace | days | {' | '.join(ComparedMetric)} | all |", f"|---|{'---:|' * (len(ComparedMetric) + 2)}"]
    for result in results:
        right, made = evaluate_forecasts(result)
        cells = [f"{right[figure]} of {made[figure]}" if made[figure] else "–" for figure in ComparedMetric]
        share = f"{right.total() / made.total():.0%}" if made.total() else "–"
        lines.append(f"| {result.trace} | {result.days:.3g} | {' | '.join(cells)} | {share} |")
    return "\n".join(lines)


def _policy(variables: Mapping[str, str]) -> Policy:
    return load_settings(variables).to_policy()


def main() -> None:
    """Replay and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    entries = [
        ReplayConfiguration(name, "cruise", ReplayOptions(policy=_policy(variables), with_both_consolidations=False))
        for name, variables in SETTINGS.items()
    ]
    sources = [TraceRecordingSource(directory, entries[0].options.pass_seconds) for directory in given.traces]
    replay = ReplayRequest(sources, entries, None, with_time_lines=False, with_hourly_counts=True)
    print(markdown(replay_locally(replay, given.jobs)))


if __name__ == "__main__":
    main()

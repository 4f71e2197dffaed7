"""How often the intervals of `cruise backtest --against` hold what comes next, on traces, for pairs of settings.

    python -m benchmarks.walk_forward DIR… [--jobs N]

Every pair of SETTINGS is compared on every trace. From the first 30, 40 … 70 % of a trace an interval is made, and what
came in as much time after is looked up in it. Figures that never differ are left out: they always hold.
"""

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from types import MappingProxyType

from cruise.backtest.difference.difference import difference_of
from cruise.backtest.fleet.running import Entry
from cruise.backtest.fleet.sources import TraceSource
from cruise.backtest.replay.options import ReplayOptions
from cruise.cli.execution.replay import Replay, replay_here
from cruise.domain.backtest import BacktestResult
from cruise.domain.backtest_difference import Figure
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


def held(result: BacktestResult, seed: int = 0) -> tuple[Counter[Figure], Counter[Figure]]:
    """Return how many forecasts of each figure held, and how many were made, over all pairs of rows."""
    right: Counter[Figure] = Counter()
    made: Counter[Figure] = Counter()
    for here, against in combinations(result.policies, 2):
        for figure, found in difference_of(result, here, against, {}, seed).figures.items():
            if found.low != found.high or found.held != found.forecasts:
                right[figure] += found.held
                made[figure] += found.forecasts
    return right, made


def markdown(results: Sequence[BacktestResult]) -> str:
    """Return a table with a row a trace and a column a figure."""
    lines = [f"| trace | days | {' | '.join(Figure)} | all |", f"|---|{'---:|' * (len(Figure) + 2)}"]
    for result in results:
        right, made = held(result)
        cells = [f"{right[figure]} of {made[figure]}" if made[figure] else "–" for figure in Figure]
        share = f"{right.total() / made.total():.0%}" if made.total() else "–"
        lines.append(f"| {result.trace} | {result.days:.3g} | {' | '.join(cells)} | {share} |")
    return "\n".join(lines)


def _policy(variables: Mapping[str, str]) -> Policy:
    return load_settings(variables).policy()


def main() -> None:
    """Replay and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    entries = [
        Entry(name, "cruise", ReplayOptions(policy=_policy(variables), both_judgements=False))
        for name, variables in SETTINGS.items()
    ]
    sources = [TraceSource(directory, entries[0].options.pass_seconds) for directory in given.traces]
    replay = Replay(sources, entries, None, with_time_lines=False, with_cells=True)
    print(markdown(replay_here(replay, given.jobs)))


if __name__ == "__main__":
    main()

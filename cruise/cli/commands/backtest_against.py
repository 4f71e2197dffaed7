"""`cruise backtest --against FILE`: compare two configurations, and check bounds."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cruise.cli.options import ReportFormat, require_writable, save_report, write_report
from cruise.cli.terminal import print_error
from cruise.errors import BadInputError
from cruise.interfaces.text import suggest_similar

if TYPE_CHECKING:
    from cruise.backtest.backtest import ReplayConfiguration
    from cruise.backtest.replay.policy import ReplayOptions
    from cruise.domain.backtest import BacktestResult, ComparedMetric
    from cruise.interfaces.backtest.comparison import ComparisonReport
    from cruise.interfaces.backtest.report import ReplayParameters

CURRENT, REFERENCE = "cruise", "reference"


def check_against_options(
    against: Path | None,
    bounds: Sequence[str] | None,
    confidence_interval: bool,
    markdown: Path | None,
    chosen: ReportFormat,
) -> None:
    """Raise BadInputError for options that need --against, or do not apply to it."""
    if against is None:
        for option, given in (
            ("--max-delta", bounds),
            ("--confidence-interval", confidence_interval or None),
            ("--markdown", markdown),
        ):
            if given is not None:
                raise BadInputError(f"{option} needs --against FILE")
    elif chosen is ReportFormat.HTML:
        raise BadInputError("--format html is not for --against; choose another, or --markdown FILE")
    if markdown is not None:
        require_writable(markdown, "--markdown")


def parse_max_delta(given: Sequence[str]) -> "dict[ComparedMetric, float]":
    """Parse --max-delta; BadInputError for an unknown metric or an invalid number."""
    from cruise.domain.backtest import RATIO_METRICS, ComparedMetric

    found = {}
    for text in given:
        name, equals, most = text.partition("=")
        if not equals:
            raise BadInputError(f'--max-delta: "{text}" has no bound; write e.g. oom-kills=0 or cpu-slack=1%')
        if name not in list(ComparedMetric):
            known = suggest_similar(name, ComparedMetric) or f"; there are {', '.join(ComparedMetric)}"
            raise BadInputError(f"--max-delta: there is no metric {name}{known}")
        metric = ComparedMetric(name)
        found[metric] = _parse_bound(text, most, metric in RATIO_METRICS)
    return found


def _parse_bound(text: str, most: str, share: bool) -> float:
    percent = most.endswith("%")
    if percent and not share:
        raise BadInputError(
            f'--max-delta: "{text}": only shares have percentage points; write a number, e.g. oom-kills=0'
        )
    try:
        found = float(most.removesuffix("%")) / (100 if percent else 1)
    except ValueError as error:
        raise BadInputError(
            f'--max-delta: "{text}": {most or "nothing"} is not a number; write e.g. oom-kills=0'
        ) from error
    if not abs(found) < float("inf"):
        raise BadInputError(f'--max-delta: "{text}": a bound is a finite number')
    if share and abs(found) > 1:
        raise BadInputError(f'--max-delta: "{text}": a share changes by at most 1; write {most}% for percentage points')
    return found


def load_reference_options(options: "ReplayOptions", file: Path) -> "ReplayOptions":
    """Return the options of the other configuration: the file over the defaults, without this environment."""
    from cruise.settings import load_settings

    settings = load_settings({}, file)
    return replace(options, policy=settings.to_policy(), pass_seconds=int(settings.pass_interval.total_seconds()))


def build_replay_configurations(current: "ReplayOptions", reference: "ReplayOptions") -> "list[ReplayConfiguration]":
    """Return the two replays; consolidation by requests is not compared."""
    from cruise.backtest.backtest import ReplayConfiguration

    return [
        ReplayConfiguration(name, "cruise", replace(options, with_both_consolidations=False))
        for name, options in ((CURRENT, current), (REFERENCE, reference))
    ]


def build_comparison_report(
    results: "Sequence[BacktestResult]",
    terms: "ReplayParameters",
    entries: "Sequence[ReplayConfiguration]",
    file: Path,
    bounds: "Mapping[ComparedMetric, float]",
    confidence_interval: bool,
) -> "ComparisonReport":
    """Compare the two replays of each recording."""
    from cruise.backtest.comparison import compare_configurations
    from cruise.interfaces.backtest.comparison import ComparisonReport

    found = [compare_configurations(result, CURRENT, REFERENCE, bounds, terms.seed) for result in results]
    current, reference = (entry.options.policy for entry in entries)
    return ComparisonReport(found, terms, current, reference, str(file), confidence_interval)


def print_comparison(report: "ComparisonReport", chosen: ReportFormat, markdown: Path | None) -> int:
    """Print the comparison and an error for each exceeded bound, and return the exit code."""
    from cruise.interfaces.backtest.comparison import (
        build_comparison_document,
        render_comparison_csv,
        render_comparison_markdown,
        render_comparison_table,
    )

    if markdown is not None:
        save_report(markdown, [render_comparison_markdown(report)], "--markdown")
    write_report(
        chosen,
        None,
        partial(render_comparison_table, report),
        partial(build_comparison_document, report),
        {ReportFormat.CSV: partial(render_comparison_csv, report)},
    )
    exceeded = report.find_exceeded_bounds()
    for line in exceeded:
        print_error(line)
    return 1 if exceeded else 0

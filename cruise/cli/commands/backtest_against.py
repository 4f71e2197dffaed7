"""`cruise backtest --against FILE`: what difference this configuration makes, and whether it stays within bounds."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cruise.cli.options import ReportFormat, require_writable, save_report, suggest_similar
from cruise.cli.terminal import create_table_console, print_error, print_report, write_document, write_json
from cruise.errors import BadInputError

if TYPE_CHECKING:
    from cruise.backtest.backtest import ReplayEntry
    from cruise.backtest.replay.policy import ReplayOptions
    from cruise.domain.backtest import BacktestResult, ComparedMetric
    from cruise.interfaces.backtest.comparison import ComparisonReport
    from cruise.interfaces.backtest.report import ReplayTerms

HERE, AGAINST = "cruise", "against"


def check_against_options(
    against: Path | None,
    bounds: Sequence[str] | None,
    whole_interval: bool,
    markdown: Path | None,
    chosen: ReportFormat,
) -> None:
    """Raise BadInputError for options that need --against, or do not go with it."""
    if against is None:
        for option, given in (
            ("--max-delta", bounds),
            ("--whole-interval", whole_interval or None),
            ("--markdown", markdown),
        ):
            if given is not None:
                raise BadInputError(f"{option} needs --against FILE: a difference is between two configurations")
    elif chosen is ReportFormat.HTML:
        raise BadInputError("--format html has no page for --against; choose another, or --markdown FILE")
    if markdown is not None:
        require_writable(markdown, "--markdown")


def parse_max_delta(given: Sequence[str]) -> "dict[ComparedMetric, float]":
    """Read --max-delta. Raises BadInputError for what is no figure, or no number."""
    from cruise.domain.backtest import RATIO_METRICS, ComparedMetric

    found = {}
    for text in given:
        name, equals, most = text.partition("=")
        if not equals:
            raise BadInputError(f'--max-delta: "{text}" has no bound; write e.g. kills=0 or cpu-slack=1%')
        if name not in list(ComparedMetric):
            known = suggest_similar(name, ComparedMetric) or f"; there are {', '.join(ComparedMetric)}"
            raise BadInputError(f"--max-delta: no figure is called {name}{known}")
        figure = ComparedMetric(name)
        found[figure] = _number(text, most, figure in RATIO_METRICS)
    return found


def _number(text: str, most: str, share: bool) -> float:
    percent = most.endswith("%")
    if percent and not share:
        raise BadInputError(
            f'--max-delta: "{text}": only shares are in percentage points; write a number, e.g. kills=0'
        )
    try:
        found = float(most.removesuffix("%")) / (100 if percent else 1)
    except ValueError as error:
        raise BadInputError(f'--max-delta: "{text}": {most or "nothing"} is no number; write e.g. kills=0') from error
    if not abs(found) < float("inf"):
        raise BadInputError(f'--max-delta: "{text}": a bound is a finite number')
    if share and abs(found) > 1:
        raise BadInputError(f'--max-delta: "{text}": a share changes by at most 1; write {most}% for percentage points')
    return found


def load_reference_options(options: "ReplayOptions", file: Path) -> "ReplayOptions":
    """Return the options of the other configuration: the file over the defaults, nothing of this environment."""
    from cruise.settings import load_settings

    other = load_settings({}, file)
    return replace(options, policy=other.to_policy(), pass_seconds=int(other.pass_interval.total_seconds()))


def build_entries(here: "ReplayOptions", against: "ReplayOptions") -> "list[ReplayEntry]":
    """Return the two rows; consolidation by requests is in no figure that is compared."""
    from cruise.backtest.backtest import ReplayEntry

    return [
        ReplayEntry(name, "cruise", replace(options, with_both_consolidations=False))
        for name, options in ((HERE, here), (AGAINST, against))
    ]


def build_comparison_report(
    results: "Sequence[BacktestResult]",
    terms: "ReplayTerms",
    two: "Sequence[ReplayEntry]",
    file: Path,
    bounds: "Mapping[ComparedMetric, float]",
    whole_interval: bool,
) -> "ComparisonReport":
    """Compare the two rows of each result."""
    from cruise.backtest.comparison import compare_configurations
    from cruise.interfaces.backtest.comparison import ComparisonReport

    found = [compare_configurations(result, HERE, AGAINST, bounds, terms.seed) for result in results]
    here, against = (entry.options.policy for entry in two)
    return ComparisonReport(found, terms, here, against, str(file), whole_interval)


def print_comparison(report: "ComparisonReport", chosen: ReportFormat, markdown: Path | None) -> int:
    """Print the difference, complain about each bound that is broken, and return the exit code."""
    from cruise.interfaces.backtest.comparison import (
        render_comparison_csv,
        render_comparison_json,
        render_comparison_markdown,
        render_comparison_table,
        render_comparison_yaml,
    )

    if markdown is not None:
        save_report(markdown, [render_comparison_markdown(report)], "--markdown")
    match chosen:
        case ReportFormat.JSON:
            write_json([render_comparison_json(report)])
        case ReportFormat.YAML:
            write_document([render_comparison_yaml(report)])
        case ReportFormat.CSV:
            write_document([render_comparison_csv(report)])
        case _:
            console = create_table_console()
            print_report(render_comparison_table(report, console), console)
    broken = report.find_exceeded_bounds()
    for line in broken:
        print_error(line)
    return 1 if broken else 0

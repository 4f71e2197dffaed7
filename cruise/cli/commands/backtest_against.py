"""`cruise backtest --against FILE`: what difference this configuration makes, and whether it stays within bounds."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cruise.cli.options import ReportFormat, near
from cruise.cli.saving import require_writable, save
from cruise.cli.terminal import complain, print_parts, table_console, write_document, write_json
from cruise.errors import BadInput

if TYPE_CHECKING:
    from cruise.backtest.fleet.running import Entry
    from cruise.backtest.replay.options import ReplayOptions
    from cruise.domain.backtest import BacktestResult
    from cruise.domain.backtest_difference import Figure
    from cruise.interfaces.backtest.difference import DifferenceReport
    from cruise.interfaces.backtest.report import ReplayTerms

HERE, AGAINST = "cruise", "against"


def check_options(
    against: Path | None,
    bounds: Sequence[str] | None,
    whole_interval: bool,
    markdown: Path | None,
    chosen: ReportFormat,
) -> None:
    """Raise BadInput for options that need --against, or do not go with it."""
    if against is None:
        for option, given in (
            ("--max-delta", bounds),
            ("--whole-interval", whole_interval or None),
            ("--markdown", markdown),
        ):
            if given is not None:
                raise BadInput(f"{option} needs --against FILE: a difference is between two configurations")
    elif chosen is ReportFormat.HTML:
        raise BadInput("--format html has no page for --against; choose another, or --markdown FILE")
    if markdown is not None:
        require_writable(markdown, "--markdown")


def parse_bounds(given: Sequence[str]) -> "dict[Figure, float]":
    """Read --max-delta. Raises BadInput for what is no figure, or no number."""
    from cruise.domain.backtest_difference import SHARES, Figure

    found = {}
    for text in given:
        name, equals, most = text.partition("=")
        if not equals:
            raise BadInput(f'--max-delta: "{text}" has no bound; write e.g. kills=0 or cpu-slack=1%')
        if name not in list(Figure):
            known = near(name, Figure) or f"; there are {', '.join(Figure)}"
            raise BadInput(f"--max-delta: no figure is called {name}{known}")
        figure = Figure(name)
        found[figure] = _number(text, most, figure in SHARES)
    return found


def _number(text: str, most: str, share: bool) -> float:
    percent = most.endswith("%")
    if percent and not share:
        raise BadInput(f'--max-delta: "{text}": only shares are in percentage points; write a number, e.g. kills=0')
    try:
        found = float(most.removesuffix("%")) / (100 if percent else 1)
    except ValueError as error:
        raise BadInput(f'--max-delta: "{text}": {most or "nothing"} is no number; write e.g. kills=0') from error
    if not abs(found) < float("inf"):
        raise BadInput(f'--max-delta: "{text}": a bound is a finite number')
    if share and abs(found) > 1:
        raise BadInput(f'--max-delta: "{text}": a share changes by at most 1; write {most}% for percentage points')
    return found


def against_options(options: "ReplayOptions", file: Path) -> "ReplayOptions":
    """Return the options of the other configuration: the file over the defaults, nothing of this environment."""
    from cruise.settings import load_settings

    other = load_settings({}, file)
    return replace(options, policy=other.policy(), pass_seconds=int(other.pass_interval.total_seconds()))


def entries(here: "ReplayOptions", against: "ReplayOptions") -> "list[Entry]":
    """Return the two rows; consolidation by requests is in no figure that is compared."""
    from cruise.backtest.fleet.running import Entry

    return [
        Entry(name, "cruise", replace(options, both_judgements=False))
        for name, options in ((HERE, here), (AGAINST, against))
    ]


def report_of(
    results: "Sequence[BacktestResult]",
    terms: "ReplayTerms",
    two: "Sequence[Entry]",
    file: Path,
    bounds: "Mapping[Figure, float]",
    whole_interval: bool,
) -> "DifferenceReport":
    """Compare the two rows of each result."""
    from cruise.backtest.difference.difference import difference_of
    from cruise.interfaces.backtest.difference import DifferenceReport

    found = [difference_of(result, HERE, AGAINST, bounds, terms.seed) for result in results]
    here, against = (entry.options.policy for entry in two)
    return DifferenceReport(found, terms, here, against, str(file), whole_interval)


def tell(report: "DifferenceReport", chosen: ReportFormat, markdown: Path | None) -> int:
    """Print the difference, complain about each bound that is broken, and return the exit code."""
    from cruise.interfaces.backtest.difference import (
        difference_csv,
        difference_json,
        difference_markdown,
        difference_table,
        difference_yaml,
    )

    if markdown is not None:
        save(markdown, [difference_markdown(report)], "--markdown")
    match chosen:
        case ReportFormat.JSON:
            write_json([difference_json(report)])
        case ReportFormat.YAML:
            write_document([difference_yaml(report)])
        case ReportFormat.CSV:
            write_document([difference_csv(report)])
        case _:
            console = table_console()
            print_parts(difference_table(report, console), console)
    broken = report.broken()
    for line in broken:
        complain(line)
    return 1 if broken else 0

"""Two configurations compared: as documents for programs, a table for people, and Markdown for a pull request."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import yaml
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from cruise.domain.backtest_difference import Difference, Figure
from cruise.domain.policy import Policy
from cruise.interfaces.backtest.difference_words import (
    HEADINGS,
    METHOD,
    bound_line,
    caveats,
    changed_settings,
    rows,
    settings_line,
)
from cruise.interfaces.backtest.report import ReplayTerms, figure, result_shape
from cruise.interfaces.backtest.words import recording_line, terms_line
from cruise.interfaces.shapes import Shape, camel

_STYLES = {"BROKEN": "bold red", "NOT RECORDED": "bold red", "open": "yellow", "holds": "green"}
_NARROW_WITHOUT = 1  # the last column: how forecasts did
_WIDE_COLUMNS = 100


@dataclass(frozen=True, slots=True)
class DifferenceReport:
    """What was found for each recording; `other` is what the other configuration is called."""

    differences: Sequence[Difference]
    terms: ReplayTerms
    here: Policy
    against: Policy
    other: str
    whole_interval: bool

    def broken(self) -> list[str]:
        """Return a line for each bound that is broken."""
        return [
            bound_line(difference, one)
            for difference in self.differences
            for one in difference.broken(self.whole_interval)
        ]


def difference_json(report: DifferenceReport) -> bytes:
    """Return the report as one JSON document: that of the recording, or `traces` with one for each of several."""
    return msgspec.json.encode(_document(report)) + b"\n"


def difference_yaml(report: DifferenceReport) -> bytes:
    """Return the report as one YAML document."""
    return yaml.dump(_document(report), Dumper=yaml.SafeDumper, sort_keys=False, allow_unicode=True, width=160).encode()


def difference_csv(report: DifferenceReport) -> bytes:
    """Return one line for each figure of each recording; what is not known stays empty."""
    text = io.StringIO()
    writer: csv.DictWriter[str] | None = None
    for difference in report.differences:
        for name, figures in _figures(difference).items():
            line = {"trace": difference.result.trace, "figure": name, **figures}
            if writer is None:
                writer = csv.DictWriter(text, list(line), lineterminator="\n")
                writer.writeheader()
            writer.writerow(line)
    return text.getvalue().encode()


def _document(report: DifferenceReport) -> Shape:
    documents: list[Shape] = [_difference(difference, report) for difference in report.differences]
    return documents[0] if len(documents) == 1 else {"traces": documents}


def _difference(difference: Difference, report: DifferenceReport) -> Shape:
    changed = changed_settings(report.here, report.against)
    return {
        **result_shape(difference.result, report.terms),
        "difference": {
            "against": report.other,
            "settings": [{"setting": name, "against": before, "here": now} for name, before, now in changed],
            "skippedHours": difference.skipped_hours,
            "figures": dict(_figures(difference)),
            "broken": [camel(one.replace("-", "_")) for one in difference.broken(report.whole_interval)],
        },
    }


def _figures(difference: Difference) -> dict[str, dict[str, Shape]]:
    return {
        camel(name.replace("-", "_")): _figure(difference, name)
        for name in Figure
        if name in difference.figures or name in difference.bounds
    }


def _figure(difference: Difference, name: Figure) -> dict[str, Shape]:
    found, judged = difference.figures.get(name), difference.bounds.get(name)
    return {
        "against": figure(found.against) if found is not None else None,
        "here": figure(found.here) if found is not None else None,
        "delta": figure(found.delta) if found is not None else None,
        "low": figure(found.low) if found is not None else None,
        "high": figure(found.high) if found is not None else None,
        "bound": figure(judged.bound) if judged is not None else None,
        "verdict": str(judged.verdict) if judged is not None else None,
        "blockHours": difference.block_hours.get(name),
        "forecasts": found.forecasts if found is not None else 0,
        "forecastsHeld": found.held if found is not None else 0,
    }


def difference_table(report: DifferenceReport, console: Console) -> Iterator[RenderableType]:
    """Yield the parts of the report for a terminal."""
    wide = console.width >= _WIDE_COLUMNS
    shown = len(HEADINGS) - (0 if wide else _NARROW_WITHOUT)
    yield Text(settings_line(changed_settings(report.here, report.against)))
    for difference in report.differences:
        yield Text.assemble("\n", (difference.result.trace, "bold"), f": {recording_line(difference.result)}.\n")
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0) if wide else (0, 1, 0, 0))
        for at, heading in enumerate(HEADINGS[:shown]):
            table.add_column(heading.upper(), justify="right" if at else "left", no_wrap=True, header_style="dim")
        for row in rows(difference):
            table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row[:shown]))
        yield table
        for caveat in caveats(difference):
            yield Text(f"Note: {caveat}.", style="yellow")
    yield Text(f"\nHere: this configuration; against: {report.other}. {METHOD}", style="dim")
    yield Text(f"Replayed with {terms_line(report.terms)}.", style="dim")


def difference_markdown(report: DifferenceReport) -> bytes:
    """Return the report as a comment for a pull request."""
    return ("\n".join(_lines(report)) + "\n").encode()


def _lines(report: DifferenceReport) -> Iterator[str]:
    changed = changed_settings(report.here, report.against)
    broken = report.broken()
    yield "### cruise backtest: what this change of settings does"
    yield ""
    if any(difference.bounds for difference in report.differences):
        yield f"**{'A bound is broken.' if broken else 'No bound is broken.'}**"
        yield from (f"- {_plain(line)}" for line in broken)
        yield ""
    if changed:
        yield from _table(("setting", "against", "here"), [tuple(f"`{cell}`" for cell in row) for row in changed])
    else:
        yield settings_line(changed)
    for difference in report.differences:
        yield ""
        yield f"**{_plain(difference.result.trace)}**: {recording_line(difference.result)}."
        yield ""
        yield from _table(HEADINGS, [_marked(row) for row in rows(difference)])
        yield from (f"\nNote: {_plain(caveat)}." for caveat in caveats(difference))
    yield ""
    yield f"<sub>{METHOD} Replayed with {terms_line(report.terms)}.</sub>"


def _marked(row: Sequence[str]) -> Sequence[str]:
    return [f"**{cell}**" if cell in ("BROKEN", "NOT RECORDED") else cell for cell in row]


def _table(headings: Sequence[str], found: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(headings)} |"
    yield f"|{'|'.join(['---', *['---:'] * (len(headings) - 1)])}|"
    for row in found:
        yield f"| {' | '.join(map(_plain, row))} |"


def _plain(text: str) -> str:
    """Return text that Markdown shows as it is, in one line."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")

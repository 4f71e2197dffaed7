"""The text of a pull request in Markdown: what changes, on what evidence, and what it saves."""

from collections import Counter
from collections.abc import Iterator

from cruise import __version__
from cruise.decisions.exporting.templates import TemplateSizes
from cruise.interfaces.amounts import count_text
from cruise.interfaces.export.report import ExportReport, time_of, why_left
from cruise.interfaces.export.rows import freed_words, injected_words, rows_of
from cruise.interfaces.plain_text import plain

_MOST_LEFT = 10


def pull_request(report: ExportReport) -> str:
    """Return the text; its first line is a title."""
    changes = report.changes
    if not changes.changed:
        return "No template needs other resources.\n"
    lines = [
        f"Set the resources of {count_text(len(changes.changed), 'workload')} from their measured use",
        "",
        f"All pods that run now would request {freed_words(changes.freed, report.prices)} at list prices "
        f"(${report.prices.cpu_core_hour:g} a core-hour, ${report.prices.memory_gib_hour:g} a GiB-hour).",
        "",
        f"This rests on {_escaped(report.rests_on)}, judged at {changes.at:%Y-%m-%d %H:%M} UTC.",
        "",
        "| column | what it says |",
        "|---|---|",
        "| usual | 75th percentile of the last 10 minutes (CPU, with the time that it waited) or 30 (memory) |",
        "| peak | most in the last hour, and in this hour and the next of each of the days before, up to seven |",
        "| largest | most memory in seven days, or the limit at a kill for lack of memory, if that is more |",
        "",
        "A request is the peak, a memory limit twice the largest (at most twice the limit of now), within the bounds "
        "of annotations and LimitRanges. CPU limits go, since they only slow down.",
    ]
    for one in changes.changed:
        lines += ["", *_workload(one, report)]
    if changes.left:
        lines += ["", *_left(report)]
    return "\n".join([*lines, "", f"Made by `cruise export`, version {__version__}.", ""])


def _workload(sizes: TemplateSizes, report: ExportReport) -> Iterator[str]:
    yield f"### {sizes.namespace}/{sizes.workload}"
    yield ""
    starts = [one.evidence.history_since for one in sizes.containers]
    since = max(starts) if all(starts) else 0
    history = f", history since {time_of(since):%Y-%m-%d}" if since else ""
    yield f"{count_text(sizes.pods, 'pod')}{history}: {freed_words(sizes.freed, report.prices)}."
    yield ""
    yield "| container | | request | limit | usual | peak | largest |"
    yield "|---|---|---|---|---|---|---|"
    for row in rows_of(sizes):
        request, limit = _arrow(row.request), _arrow(row.limit)
        cells = (f"`{row.container}`", row.resource, request, limit, row.usual, row.peak, row.largest)
        yield f"| {' | '.join(cells)} |"
    if sizes.injected:
        yield ""
        yield f"{_escaped(injected_words([sizes]))}."


def _arrow(pair: tuple[str, str]) -> str:
    return pair[0] if pair[0] == pair[1] else f"{pair[0]} → **{pair[1]}**"


def _left(report: ExportReport) -> Iterator[str]:
    reasons = Counter(why_left(one) for one in report.changes.left)
    yield f"Left as they are: {count_text(len(report.changes.left), 'workload')}."
    yield ""
    for why, count in reasons.most_common(_MOST_LEFT):
        yield f"- {count:,}: {_escaped(why)}"
    more = len(reasons) - _MOST_LEFT
    if more > 0:
        yield f"- and for {count_text(more, 'other reason')}"


def _escaped(text: str) -> str:
    """Write text that users or servers wrote, so that Markdown shows it and makes nothing of it."""
    shown = plain(text).replace("&", "&amp;").replace("<", "&lt;")
    return "".join(f"\\{one}" if one in "\\`*_[]|#@!" else one for one in shown)

"""Changes to templates for people at a terminal."""

from collections import Counter
from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.text import Text

from cruise.interfaces.amounts import count_text
from cruise.interfaces.export.report import TEMPLATES, ExportReport, why_left
from cruise.interfaces.export.rows import freed_words, injected_words, rows_of
from cruise.interfaces.plan.table import WIDE_COLUMNS, arrow, plain_table

_MOST_WORKLOADS = 30


def export_table(report: ExportReport, console: Console) -> Iterator[RenderableType]:
    """Yield the parts of the report."""
    changes, wide = report.changes, console.width >= WIDE_COLUMNS
    yield Text(f"Rests on {report.rests_on}, judged at {changes.at:%Y-%m-%d %H:%M} UTC.\n", style="dim")
    if not changes.changed:
        yield Text("No template needs other resources.")
    else:
        # The largest savings first, since that is what people begin with.
        ranked = sorted(changes.changed, key=lambda one: -report.prices.month(one.freed))
        table = plain_table()
        table.add_column("WORKLOAD", overflow="fold")
        table.add_column("CONTAINER", overflow="fold")
        table.add_column("" if wide else "WHAT")
        for heading in ("REQUEST", "LIMIT", *(("USUAL", "PEAK", "LARGEST") if wide else ())):
            table.add_column(heading, justify="right", no_wrap=True)
        for one in ranked[:_MOST_WORKLOADS]:
            name: Text | str = Text.assemble((f"{one.namespace}/", "dim"), str(one.workload))
            for row in rows_of(one):
                figures = (row.usual, row.peak, row.largest) if wide else ()
                table.add_row(name, row.container, row.resource, arrow(*row.request), arrow(*row.limit), *figures)
                name = ""
        yield table
        more = len(ranked) - _MOST_WORKLOADS
        if more > 0:
            yield Text(f"and {count_text(more, 'more workload')}: every other --format has all", style="dim")
        freed = freed_words(changes.freed, report.prices)
        yield Text(f"\n{count_text(len(ranked), 'template')}: {freed}", style="bold")
        injected = injected_words(ranked)
        if injected:
            yield Text(injected, style="dim")
        yield Text(TEMPLATES, style="dim")
        yield Text("-o DIR writes what goes into Git", style="dim")
    for why, count in Counter(why_left(one) for one in changes.left).most_common():
        yield Text(f"left as they are, {count:,}: {why}", style="dim")

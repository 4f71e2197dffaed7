"""The results of `cruise check` as a table and as a JSON document."""

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from cruise.domain.policy import Mode
from cruise.domain.preflight import CheckItem, CheckLevel
from cruise.interfaces.plan_table import WIDE_TABLE_COLUMNS
from cruise.interfaces.text import convert_to_json, format_count

_STYLES = {CheckLevel.OK: "green", CheckLevel.WARN: "yellow", CheckLevel.RED: "bold red"}


def render_check_json(items: Sequence[CheckItem], mode: Mode, at: datetime) -> bytes:
    """Return the document."""
    document = {
        "at": convert_to_json(at),
        "mode": mode.label,
        **{level.value: sum(item.level is level for item in items) for level in CheckLevel},
        "items": [convert_to_json(item) for item in items],
    }
    return msgspec.json.encode(document) + b"\n"


def render_check_table(items: Sequence[CheckItem], mode: Mode, console: Console) -> Iterator[RenderableType]:
    """Yield the parts of the report: one row an item, with its fix in a column, or below it in a narrow table."""
    wide = console.width >= WIDE_TABLE_COLUMNS
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("RESULT", no_wrap=True)
    table.add_column("CHECK", no_wrap=True)
    table.add_column("FOUND", overflow="fold", ratio=3)
    if wide:
        table.add_column("FIX", overflow="fold", ratio=2)
    for item in items:
        level = Text(item.level.value, style=_STYLES[item.level])
        name = Text(f"{item.area}: {item.name}" if wide else item.name)
        fix = Text(item.fix)
        if wide:
            table.add_row(level, name, item.finding, fix)
        else:
            table.add_row(level, name, Group(item.finding, *[Text.assemble(("→ ", "dim"), fix)] * bool(item.fix)))
    yield table
    yield Text(f"\n{_summary(items, mode)}")


def _summary(items: Sequence[CheckItem], mode: Mode) -> str:
    red, warn = (sum(item.level is level for item in items) for level in (CheckLevel.RED, CheckLevel.WARN))
    if red:
        return f"cruise cannot run in mode {mode.label}: {format_count(red, 'error')}, {format_count(warn, 'warning')}."
    if warn:
        return f"cruise can run in mode {mode.label}, with {format_count(warn, 'warning')}."
    return f"cruise can run in mode {mode.label}: all checks passed."

"""What a preflight found, for people and for scripts: each item with its fix."""

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from cruise.decisions.preflight.items import CheckItem, CheckLevel
from cruise.domain.policy import Mode
from cruise.interfaces.plan_table import WIDE_TABLE_COLUMNS
from cruise.interfaces.text import convert_to_json

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
    """Yield the parts of the report: one line an item, its fix beside it, or below it where there is no room."""
    wide = console.width >= WIDE_TABLE_COLUMNS
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True)
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
        verdict = f"cruise cannot work in mode {mode.label} like this: {red} red, {warn} to be looked at."
    elif warn:
        verdict = f"cruise can work in mode {mode.label}; {warn} to be looked at."
    else:
        verdict = f"All is well for mode {mode.label}."
    return verdict

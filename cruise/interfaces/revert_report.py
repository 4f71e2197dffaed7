"""What a revert did, for people and for scripts: what was put back, what waits, what cannot be."""

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from cruise.domain.actions import Outcome, Reason, ResizePod, Verdict
from cruise.domain.details import Detail
from cruise.domain.original_resources import amounts_json
from cruise.domain.resources import Amounts
from cruise.interfaces.amounts import count_text, cpu_text, memory_text
from cruise.interfaces.once.changes import ContainerChange, Pods, changes_json, changes_of
from cruise.interfaces.plan.table import WIDE_COLUMNS, arrow
from cruise.interfaces.reasons import detail_words, in_words
from cruise.interfaces.shapes import Shape, shape

_MOST_ROWS = 200
_WAITS = (Reason.WAITING_FOR_ROOM, Reason.THROTTLED, Reason.CHANGED_SINCE, Reason.COOLING_DOWN)
_DONE, _LATER, _NEVER = "put back", "waits", "not possible"
_STYLES = {_DONE: "green", _LATER: "yellow", _NEVER: "red"}


def state_of(outcome: Outcome) -> str:
    """Return what became of one pod: `put back`, `waits` (another revert may do it or the rest) or `not possible`."""
    if outcome.verdict is Verdict.DONE:
        return _LATER if Detail.GROWTH_WAITS in outcome.detail.split("; ") else _DONE
    again = outcome.verdict is Verdict.FAILED or outcome.reason in _WAITS
    return _LATER if again else _NEVER


def revert_json(at: datetime, paused_before: bool, outcomes: Sequence[Outcome], pods: Pods) -> bytes:
    """Return the document; `pods` are those before the revert, by (namespace, name)."""
    document = {
        "at": shape(at),
        "paused": True,
        "pausedBefore": paused_before,
        "pods": [_document(outcome, pods) for outcome in outcomes],
    }
    return msgspec.json.encode(document) + b"\n"


def _document(outcome: Outcome, pods: Pods) -> dict[str, object]:
    action = outcome.action
    assert isinstance(action, ResizePod)
    return {
        "namespace": action.namespace,
        "pod": action.pod,
        "state": state_of(outcome),
        "verdict": outcome.verdict.value,
        "reason": outcome.reason.value,
        "detail": detail_words(outcome.detail),
        "containers": changes_json(outcome, pods, _sizes),
    }


def _sizes(requests: Amounts, limits: Amounts) -> Shape:
    return {"requests": dict(amounts_json(requests)), "limits": dict(amounts_json(limits))}


def revert_table(
    paused_before: bool, outcomes: Sequence[Outcome], pods: Pods, console: Console
) -> Iterator[RenderableType]:
    """Yield the parts of the report."""
    states = [state_of(outcome) for outcome in outcomes]
    parts = [f"{states.count(state):,} {state}" for state in (_DONE, _LATER, _NEVER) if state in states]
    if not outcomes:
        yield Text("Nothing to put back: every pod whose original sizes are known has them.")
    else:
        yield Text(f"{count_text(len(outcomes), 'pod')}: {', '.join(parts)}.")
        yield _table(outcomes, pods, console.width >= WIDE_COLUMNS)
    if _LATER in states:
        yield Text("\nWhat waits is tried again by another `cruise revert`.")
    was = "was paused before and stays so" if paused_before else "is paused now"
    yield Text(f"\ncruise {was}: nothing is sized until `cruise resume`.")


def _table(outcomes: Sequence[Outcome], pods: Pods, wide: bool) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("STATE", no_wrap=True)
    table.add_column("POD", overflow="fold")
    table.add_column("CONTAINER" if wide else "CONT", overflow="ellipsis", no_wrap=True)
    table.add_column("CPU", no_wrap=True)
    table.add_column("MEMORY", no_wrap=True)
    table.add_column("WHY", overflow="fold")
    order = [_NEVER, _LATER, _DONE]
    shown = sorted(outcomes, key=lambda outcome: order.index(state_of(outcome)))[:_MOST_ROWS]
    for outcome in shown:
        for row in _rows(outcome, pods):
            table.add_row(*row)
    if len(shown) < len(outcomes):
        more = f"{len(outcomes) - len(shown):,} more: --format json has all."
        return Group("", table, Text(more, style="dim"))
    return Group("", table)


def _rows(outcome: Outcome, pods: Pods) -> Iterator[Sequence[RenderableType]]:
    action, state = outcome.action, state_of(outcome)
    assert isinstance(action, ResizePod)
    why = detail_words(outcome.detail) if outcome.verdict is Verdict.DONE else in_words(outcome.reason, outcome.detail)
    lead = (Text(state, style=_STYLES[state]), f"{action.namespace}/{action.pod}")
    changes = list(changes_of(outcome, pods))
    if not changes:
        yield (*lead, "", "", "", why)
    for number, change in enumerate(changes):
        yield (*(lead if not number else ("", "")), change.container, *_arrows(change), why if not number else "")


def _arrows(change: ContainerChange) -> tuple[Text, Text]:
    before, after = change.requests_before, change.requests_after
    return (
        arrow(cpu_text(before.cpu_millicores or 0), cpu_text(after.cpu_millicores or 0)),
        arrow(memory_text(before.memory_bytes or 0), memory_text(after.memory_bytes or 0)),
    )

"""What a revert did, for people and for scripts: what was put back, what waits, what cannot be."""

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec
from rich.console import Console, Group, RenderableType
from rich.text import Text

from cruise.domain.actions import Outcome, ResizePod, Verdict
from cruise.domain.cluster import WorkloadRef
from cruise.domain.original_resources import amounts_json
from cruise.domain.resources import Amounts
from cruise.interfaces.amounts import count_text, cpu_text, memory_text
from cruise.interfaces.once.changes import ContainerChange, Pods, changes_json, changes_of
from cruise.interfaces.plan.table import WIDE_COLUMNS, arrow, plain_table
from cruise.interfaces.reasons import detail_words, in_words
from cruise.interfaces.revert_states import DONE, LATER, NEVER, state_of
from cruise.interfaces.shapes import Shape, shape

_MOST_ROWS = 200
_STYLES = {DONE: "green", LATER: "yellow", NEVER: "red"}


def revert_json(
    at: datetime, paused_before: bool, outcomes: Sequence[Outcome], pods: Pods, workload: WorkloadRef | None = None
) -> bytes:
    """Return the document; `pods` are those before the revert, by (namespace, name), `workload` the one it was of."""
    document = {
        "at": shape(at),
        "paused": paused_before if workload is not None else True,
        "pausedBefore": paused_before,
        **({"workload": str(workload)} if workload is not None else {}),
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
    paused_before: bool, outcomes: Sequence[Outcome], pods: Pods, console: Console, workload: WorkloadRef | None = None
) -> Iterator[RenderableType]:
    """Yield the parts of the report."""
    states = [state_of(outcome) for outcome in outcomes]
    parts = [f"{states.count(state):,} {state}" for state in (DONE, LATER, NEVER) if state in states]
    if not outcomes:
        yield Text("Nothing to put back: every pod whose original sizes are known has them.")
    else:
        yield Text(f"{count_text(len(outcomes), 'pod')}: {', '.join(parts)}.")
        yield _table(outcomes, pods, console.width >= WIDE_COLUMNS)
    if LATER in states:
        yield Text("\nWhat waits is tried again by another `cruise revert`.")
    if workload is not None:
        yield Text(f"\n{workload} is in mode observe now: remove its stored override to have it sized again.")
        return
    was = "was paused before and stays so" if paused_before else "is paused now"
    yield Text(f"\ncruise {was}: nothing is sized until `cruise resume`.")


def _table(outcomes: Sequence[Outcome], pods: Pods, wide: bool) -> RenderableType:
    table = plain_table()
    table.add_column("STATE", no_wrap=True)
    table.add_column("POD", overflow="fold")
    table.add_column("CONTAINER" if wide else "CONT", overflow="ellipsis", no_wrap=True)
    table.add_column("CPU", no_wrap=True)
    table.add_column("MEMORY", no_wrap=True)
    table.add_column("WHY", overflow="fold")
    order = [NEVER, LATER, DONE]
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

"""What a revert did, for people and for scripts: what was put back, what waits, what cannot be."""

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec
from rich.console import Console, Group, RenderableType
from rich.text import Text

from cruise.domain.actions import ActionResult, Outcome, ReasonCode, ResizePod
from cruise.domain.cluster import PodsByName, WorkloadRef
from cruise.domain.original_resources import amounts_to_json
from cruise.domain.reasons import ReasonDetail
from cruise.domain.resources import StatedResources
from cruise.interfaces.plan_table import WIDE_TABLE_COLUMNS, create_plain_table, format_change
from cruise.interfaces.reasons import describe_detail, describe_reason
from cruise.interfaces.size_changes import (
    ContainerSizeChange,
    build_size_changes_document,
    list_size_changes,
)
from cruise.interfaces.text import JsonValue, convert_to_json, format_count, format_cpu, format_memory

# What became of a pod that was to be put back, in words that scripts may go by.

_WAITS = (ReasonCode.WAITING_FOR_CAPACITY, ReasonCode.THROTTLED, ReasonCode.CHANGED, ReasonCode.COOLDOWN)
DONE, LATER, NEVER = "put back", "waits", "not possible"


def get_revert_state(outcome: Outcome) -> str:
    """Return what became of one pod: `put back`, `waits` (another revert may do it or the rest) or `not possible`."""
    if outcome.result is ActionResult.DONE:
        return LATER if ReasonDetail.GROWTH_PENDING in outcome.detail.split("; ") else DONE
    again = outcome.result is ActionResult.FAILED or outcome.reason in _WAITS
    return LATER if again else NEVER


_MOST_ROWS = 200
_STYLES = {DONE: "green", LATER: "yellow", NEVER: "red"}


def render_revert_json(
    at: datetime,
    paused_before: bool,
    outcomes: Sequence[Outcome],
    pods: PodsByName,
    workload: WorkloadRef | None = None,
) -> bytes:
    """Return the document; `pods` are those before the revert, by (namespace, name), `workload` the one it was of."""
    document = {
        "at": convert_to_json(at),
        "paused": paused_before if workload is not None else True,
        "pausedBefore": paused_before,
        **({"workload": str(workload)} if workload is not None else {}),
        "pods": [_document(outcome, pods) for outcome in outcomes],
    }
    return msgspec.json.encode(document) + b"\n"


def _document(outcome: Outcome, pods: PodsByName) -> dict[str, object]:
    action = outcome.action
    assert isinstance(action, ResizePod)
    return {
        "namespace": action.namespace,
        "pod": action.pod,
        "state": get_revert_state(outcome),
        "verdict": outcome.result.value,
        "reason": outcome.reason.value,
        "detail": describe_detail(outcome.detail),
        "containers": build_size_changes_document(outcome, pods, _sizes),
    }


def _sizes(requests: StatedResources, limits: StatedResources) -> JsonValue:
    return {"requests": dict(amounts_to_json(requests)), "limits": dict(amounts_to_json(limits))}


def render_revert_table(
    paused_before: bool,
    outcomes: Sequence[Outcome],
    pods: PodsByName,
    console: Console,
    workload: WorkloadRef | None = None,
) -> Iterator[RenderableType]:
    """Yield the parts of the report."""
    states = [get_revert_state(outcome) for outcome in outcomes]
    parts = [f"{states.count(state):,} {state}" for state in (DONE, LATER, NEVER) if state in states]
    if not outcomes:
        yield Text("Nothing to put back: every pod whose original sizes are known has them.")
    else:
        yield Text(f"{format_count(len(outcomes), 'pod')}: {', '.join(parts)}.")
        yield _table(outcomes, pods, console.width >= WIDE_TABLE_COLUMNS)
    if LATER in states:
        yield Text("\nWhat waits is tried again by another `cruise revert`.")
    if workload is not None:
        yield Text(f"\n{workload} is in mode observe now: remove its stored override to have it sized again.")
        return
    was = "was paused before and stays so" if paused_before else "is paused now"
    yield Text(f"\ncruise {was}: nothing is sized until `cruise resume`.")


def _table(outcomes: Sequence[Outcome], pods: PodsByName, wide: bool) -> RenderableType:
    table = create_plain_table()
    table.add_column("STATE", no_wrap=True)
    table.add_column("POD", overflow="fold")
    table.add_column("CONTAINER" if wide else "CONT", overflow="ellipsis", no_wrap=True)
    table.add_column("CPU", no_wrap=True)
    table.add_column("MEMORY", no_wrap=True)
    table.add_column("WHY", overflow="fold")
    order = [NEVER, LATER, DONE]
    shown = sorted(outcomes, key=lambda outcome: order.index(get_revert_state(outcome)))[:_MOST_ROWS]
    for outcome in shown:
        for row in _rows(outcome, pods):
            table.add_row(*row)
    if len(shown) < len(outcomes):
        more = f"{len(outcomes) - len(shown):,} more: --format json has all."
        return Group("", table, Text(more, style="dim"))
    return Group("", table)


def _rows(outcome: Outcome, pods: PodsByName) -> Iterator[Sequence[RenderableType]]:
    action, state = outcome.action, get_revert_state(outcome)
    assert isinstance(action, ResizePod)
    why = (
        describe_detail(outcome.detail)
        if outcome.result is ActionResult.DONE
        else describe_reason(outcome.reason, outcome.detail)
    )
    lead = (Text(state, style=_STYLES[state]), f"{action.namespace}/{action.pod}")
    changes = list(list_size_changes(outcome, pods))
    if not changes:
        yield (*lead, "", "", "", why)
    for number, change in enumerate(changes):
        yield (*(lead if not number else ("", "")), change.container, *_arrows(change), why if not number else "")


def _arrows(change: ContainerSizeChange) -> tuple[Text, Text]:
    before, after = change.requests_before, change.requests_after
    return (
        format_change(format_cpu(before.cpu_millicores or 0), format_cpu(after.cpu_millicores or 0)),
        format_change(format_memory(before.memory_bytes or 0), format_memory(after.memory_bytes or 0)),
    )

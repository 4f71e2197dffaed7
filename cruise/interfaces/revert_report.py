"""The result of a revert as a table and as a JSON document."""

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec
from rich.console import Console, Group, RenderableType
from rich.text import Text

from cruise.domain.actions import ActionResult, Outcome, ReasonCode, ResizePod
from cruise.domain.cluster import PodsByName, WorkloadRef
from cruise.domain.original_resources import convert_amounts_to_json
from cruise.domain.reasons import ReasonDetailCode
from cruise.domain.resources import StatedResources
from cruise.interfaces.plan_document import (
    ContainerSizeChange,
    build_size_changes_document,
    list_size_changes,
)
from cruise.interfaces.plan_table import create_plain_table, format_change
from cruise.interfaces.reasons import describe_detail, describe_reason
from cruise.interfaces.text import JsonValue, convert_to_json, format_count, format_cpu, format_mebibytes

_RETRIED = (ReasonCode.WAITING_FOR_CAPACITY, ReasonCode.THROTTLED, ReasonCode.CHANGED, ReasonCode.COOLDOWN)
RESTORED, PENDING, IMPOSSIBLE = "restored", "pending", "not possible"


def get_revert_state(outcome: Outcome) -> str:
    """Return the state of one pod: `restored`, `pending` (another revert may restore the rest), `not possible`."""
    if outcome.result is ActionResult.DONE:
        return PENDING if ReasonDetailCode.GROWTH_PENDING in outcome.detail.split("; ") else RESTORED
    is_retried = outcome.result is ActionResult.FAILED or outcome.reason in _RETRIED
    return PENDING if is_retried else IMPOSSIBLE


_MAX_ROWS = 200
_STYLES = {RESTORED: "green", PENDING: "yellow", IMPOSSIBLE: "red"}


def render_revert_json(
    at: datetime,
    was_paused: bool,
    outcomes: Sequence[Outcome],
    pods: PodsByName,
    workload: WorkloadRef | None = None,
) -> bytes:
    """Return the document; `pods` are those before the revert, by (namespace, name), `workload` the reverted one."""
    document = {
        "at": convert_to_json(at),
        "paused": was_paused if workload is not None else True,
        "wasPaused": was_paused,
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
        "result": outcome.result.value,
        "reason": outcome.reason.value,
        "detail": describe_detail(outcome.detail),
        "containers": build_size_changes_document(outcome, pods, _sizes),
    }


def _sizes(requests: StatedResources, limits: StatedResources) -> JsonValue:
    return {"requests": dict(convert_amounts_to_json(requests)), "limits": dict(convert_amounts_to_json(limits))}


def render_revert_table(
    was_paused: bool,
    outcomes: Sequence[Outcome],
    pods: PodsByName,
    console: Console,
    workload: WorkloadRef | None = None,
) -> Iterator[RenderableType]:
    """Yield the parts of the report."""
    states = [get_revert_state(outcome) for outcome in outcomes]
    parts = [f"{states.count(state):,} {state}" for state in (RESTORED, PENDING, IMPOSSIBLE) if state in states]
    if not outcomes:
        yield Text("There is nothing to restore: every pod whose original sizes are known has them.")
    else:
        yield Text(f"{format_count(len(outcomes), 'pod')}: {', '.join(parts)}.")
        yield _render_outcomes(outcomes, pods)
    if PENDING in states:
        yield Text("\nRun `cruise revert` again to restore the pending pods.")
    if workload is not None:
        resume = "`cruise resume` with its --namespace and --workload"
        yield Text(f"\n{workload} is paused now: {resume} lets cruise size it again.")
        return
    state = "was paused before and stays paused" if was_paused else "is paused now"
    yield Text(f"\ncruise {state}: it sizes no pod until `cruise resume`.")


def _render_outcomes(outcomes: Sequence[Outcome], pods: PodsByName) -> RenderableType:
    table = create_plain_table()
    table.add_column("RESULT", no_wrap=True)
    table.add_column("POD", overflow="fold")
    table.add_column("CONTAINER", overflow="fold")
    table.add_column("CPU", justify="right", no_wrap=True)
    table.add_column("MEMORY", justify="right", no_wrap=True)
    table.add_column("REASON", overflow="fold")
    order = [IMPOSSIBLE, PENDING, RESTORED]
    shown = sorted(outcomes, key=lambda outcome: order.index(get_revert_state(outcome)))[:_MAX_ROWS]
    for outcome in shown:
        for row in _build_rows(outcome, pods):
            table.add_row(*row)
    if len(shown) < len(outcomes):
        more = f"{len(outcomes) - len(shown):,} more: --format json has all."
        return Group("", table, Text(more, style="dim"))
    return Group("", table)


def _build_rows(outcome: Outcome, pods: PodsByName) -> Iterator[Sequence[RenderableType]]:
    action, state = outcome.action, get_revert_state(outcome)
    assert isinstance(action, ResizePod)
    reason = (
        describe_detail(outcome.detail)
        if outcome.result is ActionResult.DONE
        else describe_reason(outcome.reason, outcome.detail)
    )
    lead = (Text(state, style=_STYLES[state]), f"{action.namespace}/{action.pod}")
    changes = list(list_size_changes(outcome, pods))
    if not changes:
        yield (*lead, "", "", "", reason)
    for number, change in enumerate(changes):
        yield (*(lead if not number else ("", "")), change.container, *_format_sizes(change), "" if number else reason)


def _format_sizes(change: ContainerSizeChange) -> tuple[Text, Text]:
    before, after = change.requests_before, change.requests_after
    return (
        format_change(format_cpu(before.cpu_millicores or 0), format_cpu(after.cpu_millicores or 0)),
        format_change(format_mebibytes(before.memory_bytes or 0), format_mebibytes(after.memory_bytes or 0)),
    )

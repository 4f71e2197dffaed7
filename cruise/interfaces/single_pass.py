"""One pass for people: what was done to each container, what packing planned, and what was left as it is, by reason."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from rich.console import Console, Group, RenderableType
from rich.text import Text

from cruise.domain.actions import ActionResult, EvictPod, Outcome, ReasonCode, ResizePod, SkippedPod
from cruise.domain.cluster import PodsByName
from cruise.domain.packing_plan import PackingPlan, PackingProposal, PlanPhase
from cruise.domain.policy import Mode
from cruise.domain.resources import StatedResources
from cruise.domain.users import NO_NOTIFICATIONS, NotificationCounts
from cruise.interfaces.http.figures import get_action_name
from cruise.interfaces.packing.descriptions import (
    describe_condition,
    describe_plan_condition,
    describe_remaining_rounds,
)
from cruise.interfaces.packing.document import build_packing_document
from cruise.interfaces.packing.table import describe_proof, format_solve_time
from cruise.interfaces.packing.unschedulable import describe_unplaced_pod
from cruise.interfaces.plan_document import build_node_plan_document
from cruise.interfaces.plan_table import WIDE_TABLE_COLUMNS, create_plain_table, format_change
from cruise.interfaces.reasons import REASON_DESCRIPTIONS, describe_detail, describe_reason
from cruise.interfaces.size_changes import (
    ContainerSizeChange,
    build_size_changes_document,
    index_pods,
    list_size_changes,
)
from cruise.interfaces.text import convert_to_json, format_count, format_cpu, format_memory
from cruise.kube_json.patches import JsonObject
from cruise.runtime.node_pass import NodePassResult
from cruise.runtime.packing.packing_pass import PackingPassResult

_MOST_ROWS = 200
_STYLES = {
    ActionResult.DONE: "green",
    ActionResult.OBSERVED: "dim",
    ActionResult.SKIPPED: "yellow",
    ActionResult.REFUSED: "red",
    ActionResult.FAILED: "bold red",
}
_MOST_PLACES = 50
_PHASE_STYLES = {
    PlanPhase.FINISHED: "green",
    PlanPhase.DROPPED: "yellow",
    PlanPhase.IN_PROGRESS: "yellow",
    PlanPhase.ADVISORY: "dim",
}


def render_single_pass_table(
    done: NodePassResult,
    mode: Mode,
    paused: bool,
    console: Console,
    packing: PackingPassResult | None = None,
    packed: Sequence[Outcome] = (),
    told: NotificationCounts = NO_NOTIFICATIONS,
) -> Iterator[RenderableType]:
    """Yield the parts of the report; `packing` is the packing pass after it, and `packed` what that did."""
    wide = console.width >= WIDE_TABLE_COLUMNS
    yield Text(_headline(done, mode, paused))
    if done.outcomes:
        yield _outcomes(done.outcomes, done, wide)
    if packing is not None:
        yield from _render_packing(packing)
        if packed:
            yield _outcomes(packed, done, wide)
    holds = [*done.unschedulable, *(hold for plan in done.plans for hold in plan.skipped)]
    if holds:
        yield _holds(holds)
    yield from _told(told)


def _told(told: NotificationCounts) -> Iterator[RenderableType]:
    parts = []
    if told.published:
        parts.append(f"{format_count(told.published, 'VerticalPodAutoscaler')} written")
    if told.sent or told.dropped:
        dropped = f", {told.dropped:,} not (see the log)" if told.dropped else ""
        parts.append(f"{format_count(told.sent, 'notice')} sent{dropped}")
    if parts:
        yield Text(f"\nShown to others: {'; '.join(parts)}.")


def _headline(done: NodePassResult, mode: Mode, paused: bool) -> str:
    ended = Counter(outcome.result for outcome in done.outcomes)
    parts = ", ".join(f"{ended[verdict]:,} {verdict.value}" for verdict in ActionResult if ended[verdict])
    oversubscribed = sum(plan.reason is ReasonCode.OVERCOMMITTED for plan in done.plans)
    why_not = " Nothing was written: cruise is paused." if paused else ""
    if mode is Mode.OBSERVE:
        why_not = " Nothing was written: mode observe."
    return (
        f"{format_count(len(done.plans), 'node')}, {oversubscribed:,} oversubscribed; mode {mode.label}; "
        f"{format_count(len(done.outcomes), 'action')}{f': {parts}' if parts else ''}.{why_not}"
    )


def _outcomes(outcomes: Sequence[Outcome], done: NodePassResult, wide: bool) -> RenderableType:
    table = create_plain_table()
    if wide:
        table.add_column("NODE", overflow="ellipsis", no_wrap=True)
    table.add_column("POD", overflow="fold")
    table.add_column("CONTAINER" if wide else "CONT", overflow="ellipsis", no_wrap=True)
    table.add_column("CPU", no_wrap=True)
    table.add_column("MEMORY", no_wrap=True)
    table.add_column("VERDICT", no_wrap=True)
    table.add_column("REASON", overflow="fold")
    pods = index_pods(done)
    shown = outcomes[:_MOST_ROWS]
    for outcome in shown:
        for cells in _rows(outcome, pods):
            table.add_row(*(cells if wide else cells[1:]))
    if len(shown) < len(outcomes):
        more = f"{len(outcomes) - len(shown):,} more actions: --format json has all."
        return Group("", table, Text(more, style="dim"))
    return Group("", table)


def _rows(outcome: Outcome, pods: PodsByName) -> Iterator[Sequence[RenderableType]]:
    action = outcome.action
    ending = (Text(outcome.result.value, style=_STYLES[outcome.result]), Text(_why(outcome)))
    match action:
        case ResizePod():
            name = f"{action.namespace}/{action.pod}"
            for change in list_size_changes(outcome, pods):
                yield (action.node or "–", name, change.container, *_format_sizes(change), *ending)
        case EvictPod():
            yield (action.node or "–", f"{action.namespace}/{action.pod}", "all", "evict", "", *ending)
        case _:
            yield (action.node, "–", "–", "taint", "", *ending)


def _format_sizes(change: ContainerSizeChange) -> tuple[Text, Text]:
    before, after = change.requests_before, change.requests_after
    memory = format_change(format_memory(before.memory_bytes or 0), format_memory(after.memory_bytes or 0))
    limit = change.limits_after.memory_bytes
    if before == after and limit is not None and limit != change.limits_before.memory_bytes:
        # Else the row would show nothing of what the resize is about.
        memory = Text(f"limit {format_memory(limit)}")
    return format_change(format_cpu(before.cpu_millicores or 0), format_cpu(after.cpu_millicores or 0)), memory


def _why(outcome: Outcome) -> str:
    if outcome.result in (ActionResult.DONE, ActionResult.OBSERVED):
        return describe_reason(outcome.action.reason, outcome.detail)
    return describe_reason(outcome.reason, outcome.detail)


def _holds(holds: Sequence[SkippedPod]) -> RenderableType:
    table = create_plain_table("Left as they are")
    table.add_column("REASON", no_wrap=True)
    table.add_column("PODS", justify="right")
    table.add_column("MEANING", style="dim")
    for reason, number in Counter(hold.reason for hold in holds).most_common():
        table.add_row(reason.value, f"{number:,}", REASON_DESCRIPTIONS[reason])
    return Group("", table)


def _render_packing(done: PackingPassResult) -> Iterator[RenderableType]:
    """Yield what a packing pass planned, what is proved, and how it ended."""
    yield Text()
    waiting = f"Packing: {format_count(done.waiting, 'pod')} found no node"
    if done.plan is None:
        yield Text(f"{waiting}; {describe_condition(done.condition)}.")
        return
    plan, proposal = done.plan, done.plan.proposal
    yield Text(
        f"{waiting}; {len(proposal.placed):,} placed, {len(proposal.moves):,} moved, {len(proposal.preempted):,} "
        f"preempted, {len(proposal.resizes):,} resized; {proposal.status.value} in {format_solve_time(plan.seconds)}: "
        f"{describe_proof(proposal)}."
    )
    yield _ending(plan)
    yield from (Text(said) for said in describe_remaining_rounds(proposal.remaining_rounds))
    if proposal.stages or proposal.unplaced:
        yield _places(proposal)


def _ending(plan: PackingPlan) -> Text:
    detail = f": {describe_plan_condition(plan)}" if plan.condition else ""
    stages = (
        f" ({plan.stage} of {format_count(len(plan.proposal.stages), 'stage')} done)" if plan.proposal.stages else ""
    )
    return Text(f"The plan is {plan.phase.value}{stages}{detail}.", style=_PHASE_STYLES[plan.phase])


def _places(proposal: PackingProposal) -> RenderableType:
    table = create_plain_table()
    table.add_column("POD", overflow="fold")
    table.add_column("FROM", overflow="fold")
    table.add_column("TO", overflow="fold")
    rows = [(one.namespace, one.pod, "pending", one.target) for one in proposal.placed]
    rows += [(one.namespace, one.pod, one.source or "", one.target) for one in proposal.moves]
    rows += [(one.namespace, one.pod, one.source, "preempted") for one in proposal.preempted]
    rows += [(one.namespace, one.pod, "pending", f"stays: {describe_unplaced_pod(one)}") for one in proposal.unplaced]
    for namespace, pod, source, target in rows[:_MOST_PLACES]:
        table.add_row(f"{namespace}/{pod}", source, target)
    if len(rows) > _MOST_PLACES:
        table.add_row(f"{len(rows) - _MOST_PLACES:,} more: --format json has all", "", "")
    return table


# One pass as the JSON document of `cruise serve --once`: the plans of `cruise plan`, and what became of them.


def render_single_pass_json(
    done: NodePassResult,
    mode: Mode,
    paused: bool,
    packing: PackingPassResult | None = None,
    packed: Sequence[Outcome] = (),
    told: NotificationCounts = NO_NOTIFICATIONS,
) -> bytes:
    """Return the document, with the outcomes in the order in which they were tried.

    `packing` is the packing pass after it, where there was one, and `packed` what that did.
    """
    pods = index_pods(done)
    plans = sorted(done.plans, key=lambda plan: plan.node)
    document = {
        "at": convert_to_json(done.at),
        "mode": mode.label,
        "paused": paused,
        "nodes": [build_node_plan_document(plan) for plan in plans],
        "waiting": [_hold(hold) for hold in sorted(done.unschedulable, key=lambda hold: (hold.namespace, hold.pod))],
        "outcomes": [_outcome(outcome, pods) for outcome in done.outcomes],
        "packing": None if packing is None else _build_packing_document(packing, packed, pods),
        "published": told.published,
        "notices": {"sent": told.sent, "dropped": told.dropped},
    }
    return msgspec.json.encode(document) + b"\n"


def _build_packing_document(done: PackingPassResult, packed: Sequence[Outcome], pods: PodsByName) -> JsonObject:
    return {
        "waiting": done.waiting,
        "why": describe_condition(done.condition),
        "plan": None if done.plan is None else convert_to_json(build_packing_document(done.plan)),
        "outcomes": [_outcome(outcome, pods) for outcome in packed],
    }


def _hold(hold: SkippedPod) -> JsonObject:
    return {"namespace": hold.namespace, "pod": hold.pod, "reason": hold.reason.value}


def _outcome(outcome: Outcome, pods: PodsByName) -> JsonObject:
    action = outcome.action
    said: JsonObject = {"action": get_action_name(outcome), "node": action.node}
    if isinstance(action, ResizePod | EvictPod):
        said |= {"namespace": action.namespace, "pod": action.pod}
    said |= {
        "why": action.reason.value,
        "verdict": outcome.result.value,
        "reason": outcome.reason.value,
        "detail": describe_detail(outcome.detail),
    }
    if isinstance(action, ResizePod):
        said["cause"] = action.cause
        said["containers"] = build_size_changes_document(outcome, pods, _build_sizes_document)
    return said


def _build_sizes_document(requests: StatedResources, limits: StatedResources) -> Mapping[str, int | None]:
    return {
        "cpuMillicores": requests.cpu_millicores,
        "memoryBytes": requests.memory_bytes,
        "cpuLimitMillicores": limits.cpu_millicores,
        "memoryLimitBytes": limits.memory_bytes,
    }

"""The result of `cruise serve --once` as a table and as a JSON document."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

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
from cruise.interfaces.plan_document import (
    ContainerSizeChange,
    build_node_plan_document,
    build_size_changes_document,
    index_pods,
    list_size_changes,
)
from cruise.interfaces.plan_table import WIDE_TABLE_COLUMNS, create_plain_table, format_change
from cruise.interfaces.reasons import REASON_DESCRIPTIONS, describe_detail, describe_reason
from cruise.interfaces.text import convert_to_json, format_count, format_cpu, format_mebibytes
from cruise.kube_json.patches import JsonObject
from cruise.runtime.node_pass import NodePassResult
from cruise.runtime.packing.packing_pass import PackingPassResult

_MAX_ROWS = 200
_STYLES = {
    ActionResult.DONE: "green",
    ActionResult.OBSERVED: "dim",
    ActionResult.SKIPPED: "yellow",
    ActionResult.REFUSED: "red",
    ActionResult.FAILED: "bold red",
}
_MAX_PLACEMENTS = 50
_PHASE_STYLES = {
    PlanPhase.FINISHED: "green",
    PlanPhase.DROPPED: "yellow",
    PlanPhase.IN_PROGRESS: "yellow",
    PlanPhase.ADVISORY: "dim",
}


@dataclass(frozen=True, slots=True)
class SinglePassResult:
    """The result of one pass, its mode, and whether writes were paused.

    `packing` is the packing pass after it, None if no pod is pending; `packing_outcomes` the results of its
    actions. `notifications` counts the notifications.
    """

    node_pass: NodePassResult
    mode: Mode
    paused: bool
    packing: PackingPassResult | None = None
    packing_outcomes: Sequence[Outcome] = ()
    notifications: NotificationCounts = NO_NOTIFICATIONS

    @property
    def failed(self) -> bool:
        """Whether a part of the pass failed."""
        return any(
            outcome.result is ActionResult.FAILED for outcome in (*self.node_pass.outcomes, *self.packing_outcomes)
        )


def render_single_pass_table(result: SinglePassResult, console: Console) -> Iterator[RenderableType]:
    """Yield the parts of the report."""
    node_pass, wide = result.node_pass, console.width >= WIDE_TABLE_COLUMNS
    yield Text(_build_headline(node_pass, result.mode, result.paused))
    if node_pass.outcomes:
        yield _render_outcomes(node_pass.outcomes, node_pass, wide)
    if result.packing is not None:
        yield from _render_packing(result.packing)
        if result.packing_outcomes:
            yield _render_outcomes(result.packing_outcomes, node_pass, wide)
    skipped = [*node_pass.unschedulable, *(one for plan in node_pass.plans for one in plan.skipped)]
    if skipped:
        yield _render_skipped(skipped)
    yield from _render_notified(result.notifications)


def _render_notified(notified: NotificationCounts) -> Iterator[RenderableType]:
    parts = []
    if notified.published:
        parts.append(f"{format_count(notified.published, 'VerticalPodAutoscaler')} written")
    if notified.sent or notified.dropped:
        dropped = f", {notified.dropped:,} dropped (see the log)" if notified.dropped else ""
        parts.append(f"{format_count(notified.sent, 'notification')} sent{dropped}")
    if parts:
        yield Text(f"\nPublished: {'; '.join(parts)}.")


def _build_headline(node_pass: NodePassResult, mode: Mode, paused: bool) -> str:
    results = Counter(outcome.result for outcome in node_pass.outcomes)
    parts = ", ".join(f"{results[result]:,} {result.value}" for result in ActionResult if results[result])
    overcommitted = sum(plan.reason is ReasonCode.OVERCOMMITTED for plan in node_pass.plans)
    note = " Nothing was written: cruise is paused." if paused else ""
    if mode is Mode.OBSERVE:
        note = " Nothing was written: mode observe."
    return (
        f"{format_count(len(node_pass.plans), 'node')}, {overcommitted:,} overcommitted; mode {mode.label}; "
        f"{format_count(len(node_pass.outcomes), 'action')}{f': {parts}' if parts else ''}.{note}"
    )


def _render_outcomes(outcomes: Sequence[Outcome], node_pass: NodePassResult, wide: bool) -> RenderableType:
    table = create_plain_table()
    if wide:
        table.add_column("NODE", overflow="fold")
    table.add_column("POD", overflow="fold")
    table.add_column("CONTAINER", overflow="fold")
    table.add_column("CPU", justify="right", no_wrap=True)
    table.add_column("MEMORY", justify="right", no_wrap=True)
    table.add_column("RESULT", no_wrap=True)
    table.add_column("REASON", overflow="fold")
    pods = index_pods(node_pass)
    shown = outcomes[:_MAX_ROWS]
    for outcome in shown:
        for cells in _build_rows(outcome, pods):
            table.add_row(*(cells if wide else cells[1:]))
    if len(shown) < len(outcomes):
        more = f"{len(outcomes) - len(shown):,} more actions: --format json has all."
        return Group("", table, Text(more, style="dim"))
    return Group("", table)


def _build_rows(outcome: Outcome, pods: PodsByName) -> Iterator[Sequence[RenderableType]]:
    action = outcome.action
    result = (Text(outcome.result.value, style=_STYLES[outcome.result]), Text(_describe_reason(outcome)))
    match action:
        case ResizePod():
            name = f"{action.namespace}/{action.pod}"
            for change in list_size_changes(outcome, pods):
                yield (action.node or "–", name, change.container, *_format_sizes(change), *result)
        case EvictPod():
            yield (action.node or "–", f"{action.namespace}/{action.pod}", "all", "evict", "", *result)
        case _:
            yield (action.node, "–", "–", "taint", "", *result)


def _format_sizes(change: ContainerSizeChange) -> tuple[Text, Text]:
    before, after = change.requests_before, change.requests_after
    memory = format_change(format_mebibytes(before.memory_bytes or 0), format_mebibytes(after.memory_bytes or 0))
    limit = change.limits_after.memory_bytes
    if before == after and limit is not None and limit != change.limits_before.memory_bytes:
        # Without this, the row would not show the change.
        memory = Text(f"limit {format_mebibytes(limit)}")
    return format_change(format_cpu(before.cpu_millicores or 0), format_cpu(after.cpu_millicores or 0)), memory


def _describe_reason(outcome: Outcome) -> str:
    if outcome.result in (ActionResult.DONE, ActionResult.OBSERVED):
        return describe_reason(outcome.action.reason, outcome.detail)
    return describe_reason(outcome.reason, outcome.detail)


def _render_skipped(skipped: Sequence[SkippedPod]) -> RenderableType:
    table = create_plain_table("Skipped pods")
    table.add_column("SKIP REASON", no_wrap=True)
    table.add_column("PODS", justify="right")
    table.add_column("DESCRIPTION", style="dim")
    for reason, number in Counter(one.reason for one in skipped).most_common():
        table.add_row(reason.value, f"{number:,}", REASON_DESCRIPTIONS[reason])
    return Group("", table)


def _render_packing(packing: PackingPassResult) -> Iterator[RenderableType]:
    """Yield the plan of a packing pass, its proof and its result."""
    yield Text()
    pending = f"Packing: {format_count(packing.waiting, 'pending pod')}"
    if packing.plan is None:
        yield Text(f"{pending}; {describe_condition(packing.condition)}.")
        return
    plan, proposal = packing.plan, packing.plan.proposal
    yield Text(
        f"{pending}; {len(proposal.placed):,} placed, {len(proposal.moves):,} moved, {len(proposal.preempted):,} "
        f"preempted, {len(proposal.resizes):,} resized; {proposal.status.value} in {format_solve_time(plan.seconds)}: "
        f"{describe_proof(proposal)}."
    )
    yield _describe_phase(plan)
    yield from (Text(line) for line in describe_remaining_rounds(proposal.remaining_rounds))
    if proposal.stages or proposal.unplaced:
        yield _render_placements(proposal)


def _describe_phase(plan: PackingPlan) -> Text:
    detail = f": {describe_plan_condition(plan)}" if plan.condition else ""
    stages = (
        f" ({plan.stage} of {format_count(len(plan.proposal.stages), 'stage')} done)" if plan.proposal.stages else ""
    )
    return Text(f"The plan is {plan.phase.value}{stages}{detail}.", style=_PHASE_STYLES[plan.phase])


def _render_placements(proposal: PackingProposal) -> RenderableType:
    table = create_plain_table()
    table.add_column("POD", overflow="fold")
    table.add_column("FROM", overflow="fold")
    table.add_column("TO", overflow="fold")
    rows = [(one.namespace, one.pod, "pending", one.target) for one in proposal.placed]
    rows += [(one.namespace, one.pod, one.source or "", one.target) for one in proposal.moves]
    rows += [(one.namespace, one.pod, one.source, "preempted") for one in proposal.preempted]
    rows += [(one.namespace, one.pod, "pending", f"pending: {describe_unplaced_pod(one)}") for one in proposal.unplaced]
    for namespace, pod, source, target in rows[:_MAX_PLACEMENTS]:
        table.add_row(f"{namespace}/{pod}", source, target)
    if len(rows) > _MAX_PLACEMENTS:
        table.add_row(f"{len(rows) - _MAX_PLACEMENTS:,} more: --format json has all", "", "")
    return table


# The JSON document: the plans of `cruise plan`, and their outcomes.


def render_single_pass_json(result: SinglePassResult) -> bytes:
    """Return the document, with outcomes in the order of execution."""
    node_pass, packing, notified = result.node_pass, result.packing, result.notifications
    pods = index_pods(node_pass)
    plans = sorted(node_pass.plans, key=lambda plan: plan.node)
    pending = sorted(node_pass.unschedulable, key=lambda one: (one.namespace, one.pod))
    document = {
        "at": convert_to_json(node_pass.at),
        "mode": result.mode.label,
        "paused": result.paused,
        "nodes": [build_node_plan_document(plan) for plan in plans],
        "pending": [{"namespace": one.namespace, "pod": one.pod, "reason": one.reason.value} for one in pending],
        "outcomes": [_build_outcome_document(outcome, pods) for outcome in node_pass.outcomes],
        "packing": None if packing is None else _build_packing_document(packing, result.packing_outcomes, pods),
        "published": notified.published,
        "notices": {"sent": notified.sent, "dropped": notified.dropped},
    }
    return msgspec.json.encode(document) + b"\n"


def _build_packing_document(packing: PackingPassResult, outcomes: Sequence[Outcome], pods: PodsByName) -> JsonObject:
    return {
        "pending": packing.waiting,
        "reason": describe_condition(packing.condition),
        "plan": None if packing.plan is None else convert_to_json(build_packing_document(packing.plan)),
        "outcomes": [_build_outcome_document(outcome, pods) for outcome in outcomes],
    }


def _build_outcome_document(outcome: Outcome, pods: PodsByName) -> JsonObject:
    action = outcome.action
    document: JsonObject = {"action": get_action_name(outcome), "node": action.node}
    if isinstance(action, ResizePod | EvictPod):
        document |= {"namespace": action.namespace, "pod": action.pod}
    document |= {
        "purpose": action.reason.value,
        "result": outcome.result.value,
        "reason": outcome.reason.value,
        "detail": describe_detail(outcome.detail),
    }
    if isinstance(action, ResizePod):
        document["cause"] = action.cause
        document["containers"] = build_size_changes_document(outcome, pods, _build_sizes_document)
    return document


def _build_sizes_document(requests: StatedResources, limits: StatedResources) -> Mapping[str, int | None]:
    return {
        "cpuMillicores": requests.cpu_millicores,
        "memoryBytes": requests.memory_bytes,
        "cpuLimitMillicores": limits.cpu_millicores,
        "memoryLimitBytes": limits.memory_bytes,
    }

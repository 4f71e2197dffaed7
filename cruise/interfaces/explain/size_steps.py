"""The steps to one container's sizes, each with its formula and numbers."""

import math
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cruise.decisions.explanation.bound_steps import (
    CpuLimitSteps,
    GuaranteedStep,
    HeapStep,
    HpaBoundStep,
    MemoryLimitSteps,
    UpdateThresholdStep,
)
from cruise.decisions.explanation.size_steps import (
    ContainerSteps,
    RequestSteps,
    ResizeCauseStep,
    UserMinimumStep,
)
from cruise.decisions.sizing.cpu_limit import LEAST_LIMIT_FACTOR, RAISED_LIMIT_FACTOR
from cruise.domain.actions import ContainerTarget
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName
from cruise.domain.usage import Statistic
from cruise.interfaces.reasons import CAUSE_DESCRIPTIONS, REJECTION_DESCRIPTIONS
from cruise.interfaces.text import format_age, format_exact, format_percent

_CPU, _MEMORY = ResourceName.CPU, ResourceName.MEMORY


def create_grid(columns: int) -> Table:
    """Return a table without lines or headings, whose cells wrap."""
    rows = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for _ in range(columns):
        rows.add_column(overflow="fold")
    return rows


def render_container_steps(
    steps: ContainerSteps,
    policy: Policy,
    now: datetime,
    planned: ContainerTarget | None = None,
    *,
    is_withdrawn: bool = False,
) -> RenderableType:
    """Return the steps of one container as rows of name and formula.

    `planned` is what is written, None for nothing: the computed sizes, unless the pod's pending resize `is_withdrawn`.
    """
    rows = create_grid(2)
    rows.columns[0].no_wrap, rows.columns[0].overflow = True, "ellipsis"
    owner = "of the workload" if steps.is_workload_statistic else "of the pod"
    rows.add_row("  statistics", Text(f"{owner}, {_describe_freshness(steps.statistic, policy, now)}"))
    for resource, request in ((_CPU, steps.cpu), (_MEMORY, steps.memory)):
        rows.add_row()
        withdrawn = planned.requests.get(resource) if planned is not None and is_withdrawn else None
        _add_request(rows, resource, request, withdrawn)
        if resource is _MEMORY and request.managed and steps.heap is not None:
            rows.add_row("  heap", Text(_describe_heap(steps.heap)))
        if request.guaranteed is not None:
            continue
        if resource is _MEMORY:
            limit = None if planned is None or is_withdrawn else planned.limits.memory_bytes
            _add_memory_limit(rows, steps.memory_limit, policy, steps.memory.resize_cause is not None, limit)
        elif steps.cpu_limit.current:
            _add_cpu_limit(rows, steps.cpu_limit, steps.cpu.resize_cause is not None)
    return rows


def describe_statistic(statistic: Statistic, now: datetime) -> str:
    """Return a statistic and its age in one line."""
    return (
        f"base {format_exact(_CPU, statistic.cpu_base_millicores)} and "
        f"{format_exact(_MEMORY, statistic.memory_base_bytes)}, "
        f"peak {format_exact(_CPU, statistic.cpu_peak_millicores)} and "
        f"{format_exact(_MEMORY, statistic.memory_peak_bytes)}, "
        f"updated {format_age(now, datetime.fromtimestamp(statistic.updated_at, UTC))}"
        f"{_describe_rejections(statistic)}"
    )


def _describe_rejections(statistic: Statistic) -> str:
    if not statistic.rejected_percent:
        return ""
    reasons = " and ".join(REJECTION_DESCRIPTIONS[reason] for reason in statistic.rejections)
    return f", {statistic.rejected_percent} % of a window's samples rejected{f': {reasons}' if reasons else ''}"


def _describe_freshness(statistic: Statistic, policy: Policy, now: datetime) -> str:
    updated = datetime.fromtimestamp(statistic.updated_at, UTC)
    parts = [f"updated {format_age(now, updated)} (at most {format_age(updated + policy.max_age, updated, ago=False)})"]
    if statistic.history_since:
        parts.append(f"history since {datetime.fromtimestamp(statistic.history_since, UTC):%Y-%m-%d %H:%M}")
    if not statistic.psi_known:
        parts.append("CPU pressure unknown, assumed to be 0")
    return ", ".join(parts) + _describe_rejections(statistic)


def _add_request(rows: Table, resource: ResourceName, steps: RequestSteps, withdrawn: int | None) -> None:
    """Add the steps to a request; `withdrawn` is what is written to withdraw a pending resize."""
    name, amount = resource.display_name, partial(format_exact, resource)
    if not steps.managed:
        rows.add_row(f"  {name}", Text(f"{amount(steps.current)}, not managed", style="dim"))
        return
    if steps.guaranteed is not None:
        rows.add_row(f"  {name}", _describe_guaranteed(steps, steps.guaranteed, amount))
    else:
        factor = "" if steps.headroom_factor == 1 else f" × {steps.headroom_factor:g}"
        rows.add_row(f"  {name} base", amount(steps.base))
        rows.add_row(
            "  headroom",
            f"max(0, peak {amount(steps.peak)} − base {amount(steps.base)}){factor} = {amount(steps.headroom)}",
        )
        rows.add_row("  share", _describe_share(steps, amount))
        exact = f"{amount(steps.base)} + {amount(steps.share)} = {amount(steps.base + steps.share)}"
        rows.add_row("  request", f"{exact}, rounded up to {amount(steps.rounded)}")
    if steps.clamped != steps.rounded or steps.lower.source != "floor" or steps.upper.value is not None:
        rows.add_row("  bounds", _describe_bounds(steps, amount(steps.clamped), resource))
    if steps.utilisation is not None:
        rows.add_row("  HPA", Text(_describe_utilisation(steps.utilisation, amount)))
    if steps.user_minimum is not None:
        rows.add_row("  user minimum", Text(_describe_user_minimum(steps.user_minimum, amount)))
    if steps.trimmed:
        rows.add_row("  trimmed", f"by {amount(steps.trimmed)}, so that the sum of the planned requests fits the node")
    _add_planned_request(rows, resource, steps, withdrawn)


def _add_planned_request(rows: Table, resource: ResourceName, steps: RequestSteps, withdrawn: int | None) -> None:
    amount = partial(format_exact, resource)
    if steps.resize_cause is None and withdrawn is None:
        if steps.written not in (None, steps.final):
            rows.add_row(
                "  planned", f"{amount(steps.written or 0)}: pods that keep their sizes leave no more capacity"
            )
        rows.add_row("", _describe_threshold(resource, steps.update_threshold))
        return
    rows.add_row("  target", Text(f"{amount(steps.final)}, {amount(steps.current)} now", style="bold"))
    if steps.resize_cause is not None:
        rows.add_row("  node", _describe_node_need(steps.resize_cause, amount))
    rows.add_row("  planned", _describe_planned(resource, steps, withdrawn, amount))


def _describe_heap(step: HeapStep) -> str:
    """Describe what the process may take, which sizes are not cut below it, and how to free more."""
    takes = f"may take {format_exact(_MEMORY, step.memory)}" if step.memory else "has a heap of unknown size"
    text = f"{step.runtime} {takes}: {step.source}"
    if step.request_floor:
        text += f"; the request is not cut below {format_exact(_MEMORY, step.request_floor)}"
    if step.limit_floor is None:
        text += "; its limit is not lowered while it runs, because the heap stays as it was at its start"
    else:
        text += f"; its limit is not lowered below {format_exact(_MEMORY, step.limit_floor)}"
    return f"{text}. To free more, lower the heap in the pod template" if step.is_stated else text


def _describe_guaranteed(steps: RequestSteps, step: GuaranteedStep, amount: Callable[[float], str]) -> str:
    """Describe how the request of a Guaranteed pod, which is its limit as well, was computed."""
    text = (
        f"request = limit: the largest use is {amount(step.largest_use)}; at least {step.growth_margin:g} × that, "
        f"{amount(step.grown)}, and at most {step.shrink_margin:g} ×, {amount(step.shrunk)}"
    )
    if steps.current > step.shrunk and not step.has_long_history:
        return f"{text}; not decreased, because the history is too short (memory_limit_history)"
    if step.grown > steps.rounded >= steps.current:
        return f"{text}; it increases only within the ceiling of its limit and the free capacity of its node"
    return text


def _describe_utilisation(step: HpaBoundStep, amount: Callable[[float], str]) -> str:
    """Describe how far an HPA lets a request change."""
    if step.is_restoring:
        return (
            f"{step.autoscaler} has added pods or is above its target: a request that was decreased only grows back, "
            f"to what the 7-day maximum needs, {amount(step.lower)}"
        )
    if not step.is_at_minimum:
        return (
            f"{step.autoscaler} is at its maximum of replicas and above its target of {step.target_percent}%: up to "
            f"{amount(step.upper)} it removes no pods"
        )
    if step.others_rely_on_it:
        return (
            f"{step.autoscaler} is at its minimum of replicas, but 7 days of usage of one of its pods are not known, "
            "or need more than it requests: no pod decreases, and requests grow back to what the usage needs"
        )
    if step.largest_use is None:
        return f"{step.autoscaler} is at its minimum of replicas, but 7 days of usage are not known yet: no decrease"
    needed = step.largest_use / (step.target_percent / 100 * (1 - step.margin))
    text = (
        f"{step.autoscaler} adds no pods up to {step.target_percent}%; {step.margin:.0%} below that, the 7-day maximum "
        f"{amount(step.largest_use)} needs {amount(math.ceil(needed))}"
    )
    return text if step.lower >= needed else f"{text}, some of it in other containers of the pod"


def _describe_node_need(step: ResizeCauseStep, amount: Callable[[float], str]) -> str:
    # A product such as 400 × 1.15 is a little below the whole number that it should be.
    maximum = amount(math.floor(round(step.needed_together * (1 + step.tolerance), 3)))
    return (
        f"its pods need {amount(step.needed_together)} together and request {amount(step.requested_together)}; "
        f"the tolerance allows {maximum}"
    )


def _describe_planned(
    resource: ResourceName, steps: RequestSteps, withdrawn: int | None, amount: Callable[[float], str]
) -> Text:
    """Describe what is written of a request, or why it does not change."""
    step = steps.resize_cause
    if step is None or withdrawn is not None:
        kept = "unchanged" if withdrawn == steps.current else f"→ {amount(withdrawn or 0)}"
        reason = ": the pending resize is withdrawn before the target is written"
        return Text.assemble((f"{amount(steps.current)} {kept}", "bold"), reason)
    if steps.written not in (None, steps.current):
        change = Text.assemble((f"{amount(steps.current)} → {amount(steps.written or 0)}", "bold"))
        reserve = (
            ", more than the target so that the next rise needs no resize" if (steps.written or 0) > steps.final else ""
        )
        cause = "its pod is resized anyway" if step.cause is None else CAUSE_DESCRIPTIONS[step.cause]
        return change.append(f"{reserve}: {cause}", style="cyan")
    unchanged = Text.assemble((f"{amount(steps.current)} unchanged", "bold"))
    return unchanged.append(f": {_explain_unchanged(resource, steps, step)}", style="dim")


def _explain_unchanged(resource: ResourceName, steps: RequestSteps, step: ResizeCauseStep) -> str:
    if step.within_update_threshold:
        reason = "the change is within the update threshold"
    elif step.cause is not None:
        reason = "the pod is skipped"
    elif steps.final == steps.current:
        reason = "it is the target"
    elif step.under_requested and not step.is_lasting:
        reason = "its base is above the request, but not for long enough yet, and the node's other pods leave capacity"
    elif step.init_container_sum:
        counted = format_exact(resource, step.init_container_sum)
        reason = f"because of an init container the pod counts as {counted} for any smaller request"
    elif steps.final > steps.current and step.requested_together < step.needed_together:
        reason = (
            f"the node's pods may request up to {format_percent(step.shortage_share)} % less than they need together"
        )
    elif steps.final > steps.current:
        reason = "the requests of the node's pods cover what they need together"
    elif step.requested_together <= step.needed_together * (1 + step.tolerance):
        reason = "what the node's pods request beyond their need is within the tolerance"
    elif not step.is_lasting:
        reason = "the node is over-requested, but not for long enough yet"
    else:
        reason = "other pods of the node have more to reclaim" if step.past_cooldown else "it is in its shrink cooldown"
    return reason


def _describe_share(steps: RequestSteps, amount: Callable[[float], str]) -> str:
    if not steps.total:
        return "no container on the node has any headroom"
    if steps.at_peak:
        maximum = amount(steps.peak_with_margin)
        return f"limited to its own peak and a tenth: {maximum} − base {amount(steps.base)} = {amount(steps.share)}"
    own = f"base {amount(steps.base)}" if steps.by_base else f"own {amount(steps.headroom)}"
    shared = amount(steps.shared_headroom)
    if steps.shared_headroom < steps.needed_headroom:
        shared = f"{amount(steps.needed_headroom)}, of which {shared} fit on the node with the bases,"
    if steps.unallocated < steps.shared_headroom:
        shared = f"{shared}, of which {amount(steps.unallocated)} remain after containers that get their peaks,"
    share = f"the node's {shared} × {own} / sum {amount(steps.unallocated_total)} = {amount(steps.share)}"
    return f"{share}; by base, because no container on the node has headroom" if steps.by_base else share


def _describe_user_minimum(minimum: UserMinimumStep, amount: Callable[[float], str]) -> str:
    """Describe what the pod's annotations request beyond its template, and what of it is granted."""
    base = (
        "an unknown template"
        if minimum.submitted is None
        else f"the {amount(minimum.submitted)} that it was submitted with"
    )
    text = f"its annotations request {amount(minimum.requested)} beyond {base}"
    if minimum.from_base:
        text += (
            f", {amount(minimum.from_base)} of it its base: its own eviction ranking would keep it on the node at the "
            f"cost of other pods, so it counts with what it was submitted with"
        )
    granted = (
        "all" if minimum.granted == minimum.requested else amount(minimum.granted) if minimum.granted else "nothing"
    )
    return f"{text}; {granted} is granted from free capacity"


def _describe_bounds(steps: RequestSteps, clamped: str, resource: ResourceName) -> str:
    low = f"{format_exact(resource, steps.lower.value or 0)} ({steps.lower.source})"
    high = (
        "none" if steps.upper.value is None else f"{format_exact(resource, steps.upper.value)} ({steps.upper.source})"
    )
    text = f"from {low} to {high} → {clamped}"
    return (
        text
        if steps.may_grow
        else f"{text}; the node has insufficient capacity, so it stays at most {format_exact(resource, steps.current)}"
    )


def _add_memory_limit(rows: Table, steps: MemoryLimitSteps, policy: Policy, follows: bool, planned: int | None) -> None:
    amount = partial(format_exact, _MEMORY)
    if not steps.managed:
        return
    if not steps.current and not steps.adds_missing:
        rows.add_row("  limit", "none, and cruise adds none (memory_limits)")
        return
    if steps.keeps_existing:
        rows.add_row("  limit", "unchanged, unless the request exceeds it (memory_limits: never)")
        rows.add_row("", _describe_threshold(_MEMORY, steps.update_threshold, follows))
        return
    largest = f"max(7-day maximum {amount(steps.memory_7d_max)}, OOM memory {amount(steps.oom_memory)})"
    rows.add_row("  limit", f"{policy.memory_limit_factor:g} × {largest} = {amount(steps.wanted)}")
    rows.add_row("", Text("; ".join(_list_limit_notes(steps, policy, amount)), style="dim"))
    rows.add_row("", _describe_threshold(_MEMORY, steps.update_threshold, follows))
    if follows and planned not in (None, steps.final):
        is_unchanged = planned == steps.current
        change = f"{amount(steps.current)} {'unchanged' if is_unchanged else f'→ {amount(planned or 0)}'}"
        rows.add_row("  planned", Text.assemble((change, "bold"), (": the planned request requires it", "dim")))


def _list_limit_notes(steps: MemoryLimitSteps, policy: Policy, amount: Callable[[float], str]) -> list[str]:
    """List the reasons why a memory limit is not the multiple of the largest usage."""
    notes = [
        f"at least the request, and {policy.working_set_margin:g} × the working set now, {amount(steps.minimum_safe)}"
    ]
    if steps.cap is not None:
        notes.append(f"a LimitRange allows {amount(steps.cap)} with this request")
    if steps.has_pod_limit_range:
        notes.append("a LimitRange bounds the sum of the pod's limits")
    if steps.cap is not None and steps.cap < steps.wanted:
        notes.append(f"not lowered below {amount(steps.minimum)} because of it")
    if steps.ceiling is not None:
        notes.append(
            f"at most {amount(steps.ceiling)} (the template's limit while usage only increases, else "
            f"{policy.memory_limit_ceiling:g} × that, and never above the node's memory)"
        )
    if steps.unchanged:
        notes.append("unchanged, because a ResourceQuota counts it")
    if steps.memory_leak_suspected:
        notes.append("usage only increases, so the limit is not raised with it (memory-leak-suspected)")
    if steps.cannot_be_lowered:
        notes.append("this kubelet can neither add nor lower a limit in place")
    if steps.has_short_history:
        notes.append("not lowered, because the history is too short (memory_limit_history)")
    return notes


def _add_cpu_limit(rows: Table, steps: CpuLimitSteps, follows: bool) -> None:
    if not steps.managed:
        return
    if steps.unchanged:
        rows.add_row("  limit", "unchanged, because a ResourceQuota counts it")
        return
    if steps.keeps_existing:
        rows.add_row("  limit", "unchanged (cpu_limits: keep, or cruise.io/direction)")
        return
    if steps.rises_with_use:
        rule = f"raised to {RAISED_LIMIT_FACTOR:g} × the peak once it is below {LEAST_LIMIT_FACTOR:g} ×"
        rows.add_row("  limit", f"{rule} that, or below the request; never lowered (cpu_limits: raise)")
        rows.add_row("", _describe_threshold(_CPU, steps.update_threshold, follows))
        return
    rows.add_row(
        "  limit",
        f"a CPU limit cannot be removed in place, so it is raised towards the node's "
        f"{format_exact(_CPU, steps.node_allocatable)}",
    )
    rows.add_row("", _describe_threshold(_CPU, steps.update_threshold, follows))


def _describe_threshold(resource: ResourceName, threshold: UpdateThresholdStep, follows: bool = False) -> Text:
    """Describe whether a change exceeds the threshold; a value that `follows` is written when its pod is resized."""

    def amount(value: float) -> str:
        return format_exact(resource, value) if value else "none"

    minimum = f"{threshold.minimum_change_share:.0%} and {format_exact(resource, threshold.minimum_change)}"
    change = Text.assemble((f"{amount(threshold.before)} → {amount(threshold.after)}", "bold"))
    distance = abs(threshold.after - threshold.before)
    if not distance:
        return change.append(": unchanged", style="dim")
    if follows:
        return change.append(": when its pod is resized", style="dim")
    if threshold.exceeds_threshold:
        return change.append(f": changes by {amount(distance)}, above the threshold of {minimum}", style="cyan")
    return change.append(f": changes by {amount(distance)}, below the threshold of {minimum}", style="dim")

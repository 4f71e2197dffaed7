"""The steps to one container's sizes, with the formula and its numbers."""

from collections.abc import Callable
from datetime import UTC, datetime

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cruise.decisions.size_steps import (
    ContainerSteps,
    CpuLimitSteps,
    MemoryLimitSteps,
    RequestSteps,
    ResizeCauseStep,
    UpdateThresholdStep,
    UserMinimumStep,
)
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName, StatedResources
from cruise.domain.usage import Statistic
from cruise.interfaces.reasons import CAUSE_DESCRIPTIONS, REJECTION_DESCRIPTIONS
from cruise.interfaces.text import format_age, format_exact

_CPU, _MEMORY = ResourceName.CPU, ResourceName.MEMORY


def create_grid(columns: int) -> Table:
    """Return rows without lines or headings, whose cells fold."""
    rows = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for _ in range(columns):
        rows.add_column(overflow="fold")
    return rows


def render_container_steps(
    steps: ContainerSteps, policy: Policy, now: datetime, planned_limits: StatedResources | None = None
) -> RenderableType:
    """Return the steps of one container as rows of name and formula; `planned_limits` are what is written now."""
    rows = create_grid(2)
    rows.columns[0].no_wrap, rows.columns[0].overflow = True, "ellipsis"
    whose = "of its workload" if steps.is_workload_statistic else "its own"
    rows.add_row("  statistic", Text(f"{whose}, {_freshness(steps.statistic, policy, now)}"))
    for resource, request in ((_CPU, steps.cpu), (_MEMORY, steps.memory)):
        rows.add_row()
        _request(rows, resource, request)
        if resource is _MEMORY:
            planned = None if planned_limits is None else planned_limits.memory_bytes
            _memory_limit(rows, steps.memory_limit, policy, steps.memory.resize_cause is not None, planned)
        elif steps.cpu_limit.current:
            _cpu_limit(rows, steps.cpu_limit, steps.cpu.resize_cause is not None)
    return rows


def describe_statistic(statistic: Statistic, now: datetime) -> str:
    """Return a statistic and its age in one line."""
    return (
        f"base {format_exact(_CPU, statistic.cpu_base_millicores)} and "
        f"{format_exact(_MEMORY, statistic.memory_base_bytes)}, "
        f"peak {format_exact(_CPU, statistic.cpu_peak_millicores)} and "
        f"{format_exact(_MEMORY, statistic.memory_peak_bytes)}, "
        f"updated {format_age(now, datetime.fromtimestamp(statistic.updated_at, UTC))}"
        f"{_refused(statistic)}"
    )


def _refused(statistic: Statistic) -> str:
    if not statistic.rejected_percent:
        return ""
    why = " and ".join(REJECTION_DESCRIPTIONS[reason] for reason in statistic.rejections)
    return f", {statistic.rejected_percent} % of a window refused{f': {why}' if why else ''}"


def _freshness(statistic: Statistic, policy: Policy, now: datetime) -> str:
    updated = datetime.fromtimestamp(statistic.updated_at, UTC)
    parts = [f"updated {format_age(now, updated)} (at most {format_age(updated + policy.max_age, updated, ago=False)})"]
    if statistic.history_since:
        parts.append(f"history since {datetime.fromtimestamp(statistic.history_since, UTC):%Y-%m-%d %H:%M}")
    if not statistic.psi_known:
        parts.append("CPU pressure unknown, taken as 0")
    return ", ".join(parts) + _refused(statistic)


def _request(rows: Table, resource: ResourceName, steps: RequestSteps) -> None:
    name = "CPU" if resource is _CPU else "memory"

    def amount(value: float) -> str:
        return format_exact(resource, value)

    if not steps.managed:
        rows.add_row(f"  {name}", Text(f"{amount(steps.current)}, not managed", style="dim"))
        return
    factor = "" if steps.headroom_factor == 1 else f" × {steps.headroom_factor:g}"
    rows.add_row(f"  {name} base", amount(steps.base))
    rows.add_row(
        "  headroom",
        f"max(0, peak {amount(steps.peak)} − base {amount(steps.base)}){factor} = {amount(steps.headroom)}",
    )
    rows.add_row("  share", _share(steps, amount))
    exact = f"{amount(steps.base)} + {amount(steps.share)} = {amount(steps.base + steps.share)}"
    rows.add_row("  request", f"{exact}, rounded up to {amount(steps.rounded)}")
    if steps.clamped != steps.rounded or steps.lower.source != "floor" or steps.upper.value is not None:
        rows.add_row("  bounds", _bounds(steps, amount(steps.clamped), resource))
    if steps.user_minimum is not None:
        rows.add_row("  wish", Text(_wish(steps.user_minimum, amount)))
    if steps.trimmed:
        rows.add_row("  trimmed", f"by {amount(steps.trimmed)}, so that the sum of what is written fits the node")
    if steps.resize_cause is None:
        if steps.written not in (None, steps.final):
            rows.add_row("  planned", f"{amount(steps.written or 0)}: pods that keep their sizes leave no more room")
        rows.add_row("", _verdict(resource, steps.update_threshold))
        return
    rows.add_row("  target", Text(f"{amount(steps.final)}, {amount(steps.current)} now", style="bold"))
    rows.add_row("  node", _node_need(steps.resize_cause, amount))
    rows.add_row("  planned", _worth(resource, steps, steps.resize_cause, amount))


def _node_need(worth: ResizeCauseStep, amount: Callable[[float], str]) -> str:
    most = amount(worth.needed_together * (1 + worth.tolerance))
    return f"its pods need {amount(worth.needed_together)} together and have {amount(worth.requested_together)}; up to {most} may stay"


def _worth(resource: ResourceName, steps: RequestSteps, worth: ResizeCauseStep, amount: Callable[[float], str]) -> Text:
    """Say what is written of a request, or why it stays as it is."""
    if steps.written not in (None, steps.current):
        change = Text.assemble((f"{amount(steps.current)} → {amount(steps.written or 0)}", "bold"))
        spare = ", with something to spare" if (steps.written or 0) > steps.final else ""
        why = "its pod is written anyway" if worth.cause is None else CAUSE_DESCRIPTIONS[worth.cause]
        return change.append(f"{spare}: {why}", style="cyan")
    stays = Text.assemble((f"{amount(steps.current)} stays", "bold"))
    return stays.append(f": {_why_it_stays(resource, steps, worth)}", style="dim")


def _why_it_stays(resource: ResourceName, steps: RequestSteps, worth: ResizeCauseStep) -> str:
    if worth.within_update_threshold:
        why = "what it would be written to is within its dead band"
    elif worth.cause is not None:
        why = "what is to be written is held back"
    elif steps.final == steps.current:
        why = "it is the target"
    elif worth.under_requested and not worth.is_lasting:
        why = "its base is above it, not for long yet, and the node's other pods leave it room"
    elif worth.init_container_sum:
        sum_text = format_exact(resource, worth.init_container_sum)
        why = f"an init container makes its pod count {sum_text} whatever it requests, so a write would change nothing"
    elif steps.final > steps.current:
        why = "the node has what its pods need together"
    elif worth.requested_together <= worth.needed_together * (1 + worth.tolerance):
        why = "what the node has more than it needs is within the band"
    elif not worth.is_lasting:
        why = "the node is above its band, but not for long yet"
    else:
        why = "others of the node's pods give more" if worth.past_cooldown else "it was resized not long ago"
    return why


def _share(steps: RequestSteps, amount: Callable[[float], str]) -> str:
    if not steps.total:
        return "no container on the node has any headroom"
    if steps.at_peak:
        most = amount(steps.peak_with_margin)
        return f"as much as its own peak and a tenth allow: {most} − base {amount(steps.base)} = {amount(steps.share)}"
    own = f"base {amount(steps.base)}" if steps.by_base else f"own {amount(steps.headroom)}"
    shared = amount(steps.shared_headroom)
    if steps.shared_headroom < steps.needed_headroom:
        shared = f"{amount(steps.needed_headroom)}, of which there is room for {shared} beside the bases,"
    if steps.unallocated < steps.shared_headroom:
        shared = f"{shared}, of which {amount(steps.unallocated)} are left by containers that get their peaks,"
    share = f"the node's {shared} × {own} / sum {amount(steps.unallocated_total)} = {amount(steps.share)}"
    return f"{share}; by base, as no container on the node has headroom of its own" if steps.by_base else share


def _wish(wish: UserMinimumStep, amount: Callable[[float], str]) -> str:
    """Say what the pod's own annotations ask beyond what is its own, and what became of it."""
    own = (
        "a template that is not known"
        if wish.submitted is None
        else f"the {amount(wish.submitted)} it was submitted with"
    )
    text = f"its own annotations ask for {amount(wish.requested)} beyond {own}"
    if wish.from_base:
        text += (
            f", {amount(wish.from_base)} of it its base: its own ranking keeps it on a node that others would have to"
            f" leave for it, so it counts with no more than it was submitted with"
        )
    some = "all" if wish.granted == wish.requested else amount(wish.granted) if wish.granted else "nothing"
    return f"{text}; {some} is granted, out of what the node has left once all others have theirs"


def _bounds(steps: RequestSteps, clamped: str, resource: ResourceName) -> str:
    low = f"{format_exact(resource, steps.lower.value or 0)} ({steps.lower.source})"
    high = (
        "none" if steps.upper.value is None else f"{format_exact(resource, steps.upper.value)} ({steps.upper.source})"
    )
    text = f"from {low} to {high} → {clamped}"
    return (
        text
        if steps.may_grow
        else f"{text}; the node is short of it, so nothing grows above {format_exact(resource, steps.current)}"
    )


def _memory_limit(rows: Table, steps: MemoryLimitSteps, policy: Policy, follows: bool, planned: int | None) -> None:
    def amount(value: float) -> str:
        return format_exact(_MEMORY, value)

    if not steps.managed:
        return
    if not steps.current and not steps.adds_missing:
        rows.add_row("  limit", "none, and none is added (memory_limits)")
        return
    if steps.keeps_existing:
        rows.add_row("  limit", "stays, unless the request passes it (memory_limits: never)")
        rows.add_row("", _verdict(_MEMORY, steps.update_threshold, follows))
        return
    largest = f"max(7-day maximum {amount(steps.memory_7d_max)}, OOM memory {amount(steps.oom_memory)})"
    rows.add_row("  limit", f"{policy.memory_limit_factor:g} × {largest} = {amount(steps.wanted)}")
    rows.add_row("", Text("; ".join(_limit_notes(steps, policy, amount)), style="dim"))
    rows.add_row("", _verdict(_MEMORY, steps.update_threshold, follows))
    if follows and planned not in (None, steps.final):
        stays = planned == steps.current
        change = f"{amount(steps.current)} {'stays' if stays else f'→ {amount(planned or 0)}'}"
        rows.add_row("  planned", Text.assemble((change, "bold"), (": the planned request needs it", "dim")))


def _limit_notes(steps: MemoryLimitSteps, policy: Policy, amount: Callable[[float], str]) -> list[str]:
    """Say what keeps a memory limit from the multiple of the largest use."""
    notes = [
        f"at least the request, and {policy.working_set_margin:g} × the working set now, {amount(steps.minimum_safe)}"
    ]
    if steps.cap is not None:
        notes.append(f"a LimitRange allows {amount(steps.cap)} beside the request")
    if steps.has_pod_limit_range:
        notes.append("a LimitRange bounds the sum of the pod's limits")
    if steps.cap is not None and steps.cap < steps.wanted:
        notes.append(f"not lowered under {amount(steps.minimum)} because of it")
    if steps.ceiling is not None:
        notes.append(
            f"not above {amount(steps.ceiling)} (the template's limit while use only grows, else "
            f"{policy.memory_limit_ceiling:g} × that, and never over the node's memory)"
        )
    if steps.unchanged:
        notes.append("a quota counts it, so it stays")
    if steps.memory_leak_suspected:
        notes.append("use only grows, and the limit does not follow (memory-leak-suspected)")
    if steps.cannot_be_lowered:
        notes.append("this kubelet can neither add nor lower a limit in place")
    if steps.has_short_history:
        notes.append("not lowered on a history this short (memory_limit_history)")
    return notes


def _cpu_limit(rows: Table, steps: CpuLimitSteps, follows: bool) -> None:
    if not steps.managed:
        return
    if steps.unchanged:
        rows.add_row("  limit", "a quota counts it, so it stays")
        return
    rows.add_row(
        "  limit",
        f"a CPU limit cannot be removed in place, so it is raised towards the node's "
        f"{format_exact(_CPU, steps.node_allocatable)}",
    )
    rows.add_row("", _verdict(_CPU, steps.update_threshold, follows))


def _verdict(resource: ResourceName, band: UpdateThresholdStep, follows: bool = False) -> Text:
    """Say whether a value moves far enough; one that `follows` is written when its pod is."""

    def amount(value: float) -> str:
        return format_exact(resource, value) if value else "none"

    least = f"{band.minimum_change_share:.0%} and {format_exact(resource, band.minimum_change)}"
    change = Text.assemble((f"{amount(band.before)} → {amount(band.after)}", "bold"))
    step = abs(band.after - band.before)
    if not step:
        return change.append(": as it is", style="dim")
    if follows:
        return change.append(": once its pod is written", style="dim")
    moves = f": moves by {amount(step)}"
    if band.exceeds_threshold:
        return change.append(f"{moves}, over {least}: reason enough", style="cyan")
    return change.append(f"{moves}, under {least}: no reason by itself", style="dim")

"""An explanation for a terminal: the pod's outcome, then each step to it with its numbers."""

import json
import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cruise.decisions.admission.admission import LeaveUnchanged, MutatePod
from cruise.decisions.explanation.pod_explanation import (
    Explanation,
    LargestHeadroom,
    NodeExplanation,
    PodOutcome,
    RankedPod,
    SkippedContainer,
)
from cruise.decisions.pod_history import HourOfDayProfile, PodHistory
from cruise.decisions.pod_policy.skip_reason_unlocks import UNLOCKS
from cruise.domain.actions import ActionResult, EvictPod, ReasonCode, ResizePod
from cruise.domain.overrides import StatedSetting
from cruise.domain.policy import AdmissionSize, Policy
from cruise.domain.resources import ResourceName, StatedResources
from cruise.domain.usage import StatisticsTable
from cruise.interfaces.explain.document import build_startup_table
from cruise.interfaces.explain.size_steps import create_grid, describe_statistic, render_container_steps
from cruise.interfaces.plan_document import describe_resize_cause, format_resize
from cruise.interfaces.reasons import (
    CAUSE_DESCRIPTIONS,
    describe_detail,
    describe_observed_risk,
    describe_oom_kill,
    describe_reason,
    describe_source,
)
from cruise.interfaces.text import format_age, format_count, format_cpu, format_exact, format_memory
from cruise.kube_json.patches import build_resize_patch

_MAX_RANKED = 12
_ADMISSION_SIZES = {
    AdmissionSize.PEAK: "by the workload's peaks:",
    None: "as it states, with more CPU for its start:",
    AdmissionSize.NODE_PASS: "as a node pass would size it, by the workload's base and a share of the headroom:",
}
_NEW_REVISION = "at least as the template states, because its revision is new, and at least the workload's peaks:"
_OUTCOMES = {
    PodOutcome.RESIZED: ("resize planned", "cyan"),
    PodOutcome.NO_CHANGE_NEEDED: ("no-change-needed", "green"),
    PodOutcome.AT_RISK: ("at risk", "bold red"),
    PodOutcome.SKIPPED: ("skipped", "yellow"),
    PodOutcome.EVICTED: ("eviction planned", "red"),
    PodOutcome.PENDING: ("pending", "magenta"),
}
_WITHDRAWAL = ("withdrawal planned", "cyan")


def render_explanation_text(explanation: Explanation, policy: Policy, now: datetime) -> Iterator[RenderableType]:
    """Yield the parts of the explanation."""
    pod = explanation.pod
    node = f" on {pod.node}" if pod.node is not None else ""
    yield Text.assemble((f"{pod.namespace}/{pod.name}", "bold"), f"  {pod.workload or 'no controller'}{node}")
    yield _describe_outcome(explanation)
    if explanation.skipped is not None and explanation.skipped.reason in UNLOCKS:
        yield Text(f"  unlocked by: {UNLOCKS[explanation.skipped.reason].description}", style="dim")
    for risk in explanation.oom_kills:
        yield Text.assemble(("  ", ""), (risk.container, "bold"), f": {describe_oom_kill(risk, now)}", style="red")
    yield _heading("Overrides")
    yield _build_statements(explanation.statements)
    yield from _describe_autoscalers(explanation)
    if explanation.ranking is not None:
        yield _describe_evictability(explanation)
    if explanation.node is not None:
        yield from _render_node(explanation.node)
    planned = () if explanation.resize is None else explanation.resize.containers
    targets = {one.container: one for one in planned}
    for steps in explanation.steps:
        yield _heading(f"Container {steps.container}")
        target = targets.get(steps.container)
        yield render_container_steps(steps, policy, now, target, is_withdrawn=_is_withdrawn(explanation))
    yield from _render_startup(explanation, now)
    if explanation.skipped_containers:
        yield from _render_skipped(explanation.skipped_containers, now)
    if explanation.resize is not None:
        yield _heading("The patch as a command")
        patch = json.dumps(build_resize_patch(explanation.resize), separators=(",", ":"))
        command = shlex.join(
            ["kubectl", "patch", "pod", pod.name, "-n", pod.namespace, "--subresource", "resize", "-p", patch]
        )
        # One line, so that it can be copied.
        yield Text(command, no_wrap=True)
    if explanation.admission is not None:
        yield from _render_admission(explanation.admission)


def _is_withdrawn(explanation: Explanation) -> bool:
    """Return whether the pod's pending resize is withdrawn, so that none of the computed sizes is written."""
    return explanation.resize is not None and explanation.resize.reason is ReasonCode.WITHDRAWN


def _render_startup(explanation: Explanation, now: datetime) -> Iterator[RenderableType]:
    if explanation.startup is not None:
        yield _heading("CPU while it starts")
        yield build_startup_table(explanation.startup, now)


def _heading(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def _describe_outcome(explanation: Explanation) -> Text:
    outcome, style = _WITHDRAWAL if _is_withdrawn(explanation) else _OUTCOMES[explanation.outcome]
    skipped, resize, reason = explanation.skipped, explanation.resize, ""
    if skipped is not None:
        reason = f"{skipped.reason.value}: {describe_reason(skipped.reason, skipped.detail)}"
        reason += f", until {skipped.until:%H:%M:%S} UTC" if skipped.until is not None else ""
    elif explanation.eviction is not None:
        reason = f"the {explanation.eviction.resource} of all pods does not fit its node, and it is evicted first"
    elif resize is not None:
        cause = resize.cause
        reason = describe_reason(resize.reason) if cause is None else f"{cause.value}: {CAUSE_DESCRIPTIONS[cause]}"
        reason += "; its requests increase" if resize.growth.cpu_millicores or resize.growth.memory_bytes else ""
    elif explanation.outcome is PodOutcome.NO_CHANGE_NEEDED:
        reason = "its planned sizes are its present ones, or within the update threshold"
    elif explanation.outcome is PodOutcome.AT_RISK:
        reason = "it was OOM killed, and the node pass has no size for it that would help"
    elif explanation.outcome is PodOutcome.PENDING:
        reason = "it is not on a node yet"
    return Text.assemble((outcome, style), f": {reason}")


def _build_statements(statements: Sequence[StatedSetting]) -> Table:
    rows = create_grid(3)
    for statement in statements:
        source = describe_source(statement.source)
        limit = statement.limited_by
        reason = "overridden" if limit is None else f"above the maximum of {describe_source(limit)}"
        note = source if statement.is_effective else f"{source}, {reason}"
        rows.add_row(
            f"  {statement.setting}", statement.value, note, style=None if statement.is_effective else "dim strike"
        )
    return rows


def _describe_autoscalers(explanation: Explanation) -> Iterator[Text]:
    claims = explanation.autoscaler_claims
    if claims.scaled:
        names = " and ".join(sorted(resource.display_name for resource in claims.scaled))
        yield Text(f"  {names} not sized: {describe_detail(claims.scaled_by)}", style="dim")
    if claims.left_by_vpa:
        free = {one.name: claims.get_unclaimed_resources(one.name) for one in explanation.pod.sized_containers}
        taken = {name: sorted(frozenset(ResourceName) - own) for name, own in free.items()}
        parts = "; ".join(f"{' and '.join(own)} of {name}" for name, own in taken.items() if own)
        yield Text(f"  not sized: {parts} ({describe_detail(claims.sized_by)})", style="dim")


def _describe_evictability(explanation: Explanation) -> Text:
    assert explanation.ranking is not None
    is_stated = any(one.setting == "eviction-ranking" for one in explanation.statements)
    origin = "" if is_stated else " by default"
    evictability = (
        f"may not be evicted: {describe_detail(explanation.not_evictable_reason)}"
        if explanation.not_evictable_reason
        else "may be evicted"
    )
    return Text(f"  eviction ranking: {explanation.ranking.label}{origin}; {evictability}", style="dim")


def _render_node(node: NodeExplanation) -> Iterator[RenderableType]:
    yield _heading(f"Node {node.name}")
    rows = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    rows.add_column()
    rows.add_column(justify="right", no_wrap=True)
    rows.add_column(justify="right", no_wrap=True)
    rows.add_column(overflow="fold", style="dim")
    need = node.base + node.headroom
    rows.add_row("", Text("CPU", style="dim"), Text("memory", style="dim"), "")
    for label, amounts, note in (
        ("allocatable", node.allocatable, ""),
        ("fixed", node.fixed, f"{format_count(node.skipped_pods, 'pod')} not sized, and all overheads"),
        ("available", node.available, ""),
        ("sum of bases", node.base, format_count(node.sized_pods, "sized pod")),
        ("largest headroom", node.headroom, ""),
        ("need", need, "sum of bases + largest headroom"),
    ):
        rows.add_row(
            f"  {label}",
            format_exact(ResourceName.CPU, amounts.cpu_millicores),
            format_exact(ResourceName.MEMORY, amounts.memory_bytes),
            note,
        )
    fits_cpu = need.cpu_millicores <= node.available.cpu_millicores
    fits_memory = need.memory_bytes <= node.available.memory_bytes
    rows.add_row("  fits", _yes_or_no(fits_cpu), _yes_or_no(fits_memory), "")
    if set(node.rules.values()) != {"shared-max"}:
        rows.add_row(
            "  shared headroom",
            format_exact(ResourceName.CPU, node.remaining_headroom.cpu_millicores),
            format_exact(ResourceName.MEMORY, node.remaining_headroom.memory_bytes),
            "by "
            + ", ".join(f"{rule} for {resource.display_name}" for resource, rule in node.rules.items())
            + ", limited by the capacity",
        )
    yield rows
    for resource, risk in node.observed_risks.items():
        yield Padding(Text(describe_observed_risk(resource, risk), style="dim"), (0, 0, 0, 2))
    for resource, spike in sorted(node.largest_headrooms.items()):
        if isinstance(spike, LargestHeadroom):
            yield Text(
                f"  largest {resource.display_name} headroom of the pods that stay: "
                f"{format_exact(resource, spike.amount)}, {spike.namespace}/{spike.pod} {spike.container}",
                style="dim",
            )
    for resource, ranking in node.rankings.items():
        if ranking:
            yield from _render_ranking(resource, ranking, node)


def _yes_or_no(value: bool) -> Text:
    return Text("yes", style="green") if value else Text("no", style="bold red")


def _render_ranking(
    resource: ResourceName, ranking: Sequence[RankedPod], node: NodeExplanation
) -> Iterator[RenderableType]:
    yield _heading(
        f"Eviction order for {resource.display_name}: "
        "by ranking (low, medium, high), then priority, then the largest headroom"
    )
    if node.reason is not None:
        yield Text(f"  {describe_reason(node.reason)}")
    rows = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for justify in ("right", "left", "left", "right", "left"):
        rows.add_column(justify=justify, overflow="fold", no_wrap=justify == "right")
    for number, one in enumerate(ranking[:_MAX_RANKED], start=1):
        rank = "" if one.not_evicted_reason else f"{number}."
        pod = f"{one.namespace}/{one.pod}"
        headroom = format_exact(resource, one.headroom)
        rows.add_row(f"  {rank}", pod, one.ranking.label, headroom, _describe_ranked(one, resource))
    yield rows
    if len(ranking) > _MAX_RANKED:
        yield Text(f"  and {format_count(len(ranking) - _MAX_RANKED, 'more pod')}", style="dim")


def _describe_ranked(ranked: RankedPod, resource: ResourceName) -> Text:
    if ranked.evicted_for is not None:
        evicted = "evicted" if ranked.evicted_for is resource else f"evicted for {ranked.evicted_for}"
        return Text(evicted, style="red")
    return Text(f"stays: {describe_detail(ranked.not_evicted_reason)}" if ranked.not_evicted_reason else "stays")


def _render_skipped(containers: Sequence[SkippedContainer], now: datetime) -> Iterator[RenderableType]:
    yield _heading("Containers, not sized")
    for skipped in containers:
        container = skipped.container
        yield Text(f"  {container.name}: {_format_sizes(container.requests, container.limits)}")
        if skipped.statistic is not None:
            yield Text(f"    {describe_statistic(skipped.statistic, now)}", style="dim")


def _format_sizes(requests: StatedResources, limits: StatedResources) -> str:
    return f"requests {_format_amounts(requests)}, limits {_format_amounts(limits)}"


def _format_amounts(amounts: StatedResources) -> str:
    cpu = "no CPU" if not amounts.cpu_millicores else format_exact(ResourceName.CPU, amounts.cpu_millicores)
    memory = "no memory" if not amounts.memory_bytes else format_exact(ResourceName.MEMORY, amounts.memory_bytes)
    return f"{cpu} and {memory}"


def _render_admission(admission: MutatePod | LeaveUnchanged) -> Iterator[RenderableType]:
    yield _heading("If it were created now")
    match admission:
        case LeaveUnchanged(reason, detail):
            yield Text(f"  the webhook would not change it: {reason.value}: {describe_reason(reason, detail)}")
        case MutatePod(containers, size, new_revision):
            yield Text(f"  {_NEW_REVISION if new_revision and size is not None else _ADMISSION_SIZES[size]}")
            for target in containers:
                yield Text(f"  {target.container}: {_format_sizes(target.requests, target.limits)}")


# The history of a pod in the database.

_MAX_OUTCOMES = 10
_BARS = "▁▂▃▄▅▆▇█"


def render_pod_history(history: PodHistory, now: datetime) -> Iterator[RenderableType]:
    """Yield the actions on a pod, its OOM kills, and its workload's peaks by clock hour."""
    if history.outcomes:
        yield Text("\nActions", style="bold")
        rows = create_grid(4)
        for outcome in history.outcomes[:_MAX_OUTCOMES]:
            action = "evict" if isinstance(outcome.action, EvictPod) else "resize"
            text = describe_reason(outcome.reason, outcome.detail)
            if isinstance(outcome.action, ResizePod) and outcome.result is ActionResult.DONE:
                text = f"{format_resize(outcome.action, outcome.before, '→')}: {describe_resize_cause(outcome.action)}"
            if outcome.count > 1:
                text = f"{text} ({outcome.count:,} times, first {format_age(now, outcome.since)})"
            rows.add_row(f"  {format_age(now, outcome.at)}", action, outcome.result.value, text)
        yield rows
    if history.oom_kills:
        yield Text("\nOOM kills", style="bold")
        rows = create_grid(4)
        for kill in history.oom_kills[:_MAX_OUTCOMES]:
            limit = "no limit" if kill.memory_limit_bytes is None else f"limit {format_memory(kill.memory_limit_bytes)}"
            rows.add_row(f"  {format_age(now, kill.finished_at)}", kill.pod, kill.container, limit)
        yield rows
    if history.profiles:
        yield Text.assemble(
            ("\nPeaks by clock hour", "bold"), ("  00 to 23 UTC, the largest of the stored days", "dim")
        )
        rows = create_grid(4)
        for profile in history.profiles:
            rows.add_row(*_format_profile(profile, "CPU", profile.cpu_millicores, ResourceName.CPU))
            rows.add_row(*_format_profile(profile, "memory", profile.memory_bytes, ResourceName.MEMORY))
        yield rows


def render_stored_text(
    namespace: str, pod: str, statistics: StatisticsTable, history: PodHistory, now: datetime
) -> Iterator[RenderableType]:
    """Yield the statistics and the history of a pod that only the database knows."""
    yield Text.assemble(
        (f"{namespace}/{pod}", "bold"), "  from the database only; --snapshot adds the explanation of its sizes"
    )
    yield Text("\nStatistics", style="bold")
    for row in range(len(statistics.keys)):
        statistic = statistics.get_row(row)
        owner = "" if statistic.key.pod else f" (all pods of {statistic.key.workload})"
        yield Text(f"  {statistic.key.container}{owner}: {describe_statistic(statistic, now)}")
    yield from render_pod_history(history, now)


def _format_profile(
    profile: HourOfDayProfile, name: str, values: Sequence[float | None], resource: ResourceName
) -> tuple[str, str, str, str]:
    known = [value for value in values if value is not None]
    largest = max(known, default=0.0)
    if not known:
        return f"  {profile.container}", name, "no samples", ""
    bars = "".join(" " if value is None else _BARS[_get_bar_index(value, largest)] for value in values)
    top = format_cpu(round(largest)) if resource is ResourceName.CPU else format_exact(resource, largest)
    identity = f" of {profile.identity}" if profile.identity else ""
    return f"  {profile.container}{identity}", name, bars, f"up to {top}"


def _get_bar_index(value: float, largest: float) -> int:
    return min(len(_BARS) - 1, int(value / largest * len(_BARS))) if largest > 0 else 0

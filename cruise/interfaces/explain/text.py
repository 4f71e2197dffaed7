"""An explanation for people: the fate first, then what it rests on, step by step, each with its numbers."""

import json
import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cruise.decisions.admission.admission import LeaveUnchanged, MutatePod
from cruise.decisions.explanation import (
    Explanation,
    LargestHeadroom,
    NodeExplanation,
    PodOutcome,
    RankedPod,
    SkippedContainer,
)
from cruise.decisions.pod_history import HourProfile, PodHistory
from cruise.decisions.pod_policy.other_autoscalers import AutoscalerClaims
from cruise.domain.actions import ActionResult, EvictPod, ResizePod
from cruise.domain.overrides import StatedSetting
from cruise.domain.policy import AdmissionSize, Policy
from cruise.domain.resources import ResourceName, StatedResources
from cruise.domain.usage import StatisticsTable
from cruise.interfaces.explain.size_steps import create_grid, describe_statistic, render_container_steps
from cruise.interfaces.reasons import (
    CAUSE_DESCRIPTIONS,
    describe_detail,
    describe_observed_risk,
    describe_oom_kill,
    describe_reason,
    describe_source,
)
from cruise.interfaces.size_changes import describe_resize_cause, format_resize
from cruise.interfaces.text import format_age, format_count, format_cpu, format_exact, format_memory
from cruise.kube_json.patches import build_resize_patch

_MOST_RANKED = 12
_BY_SIZE = {
    AdmissionSize.PEAK: "by its workload's peaks:",
    AdmissionSize.NODE_PASS: "as a node pass would size it, its workload's base and a share of the headroom:",
}
_BY_REVISION = "no less than its template states, since that is new; nor less than its workload's peaks:"
_FATES = {
    PodOutcome.RESIZED: ("to be resized", "cyan"),
    PodOutcome.NO_CHANGE_NEEDED: ("no-change-needed", "green"),
    PodOutcome.AT_RISK: ("at risk", "bold red"),
    PodOutcome.SKIPPED: ("left as it is", "yellow"),
    PodOutcome.EVICTED: ("to be evicted", "red"),
    PodOutcome.PENDING: ("pending", "magenta"),
}


def render_explanation_text(explanation: Explanation, policy: Policy, now: datetime) -> Iterator[RenderableType]:
    """Yield the parts in the order in which people ask."""
    pod = explanation.pod
    where = f" on {pod.node}" if pod.node is not None else ""
    yield Text.assemble((f"{pod.namespace}/{pod.name}", "bold"), f"  {pod.workload or 'no controller'}{where}")
    yield _fate(explanation)
    for risk in explanation.oom_kills:
        yield Text.assemble(("  ", ""), (risk.container, "bold"), f": {describe_oom_kill(risk, now)}", style="red")
    yield _heading("Overrides")
    yield _statements(explanation.statements)
    if explanation.autoscaler_claims.scaled:
        yield _left_to_autoscaler(explanation.autoscaler_claims)
    if explanation.ranking is not None:
        yield _eviction_standing(explanation)
    if explanation.node is not None:
        yield from _node(explanation.node)
    written = () if explanation.resize is None else explanation.resize.containers
    limits = {one.container: one.limits for one in written}
    for steps in explanation.steps:
        yield _heading(f"Container {steps.container}")
        yield render_container_steps(steps, policy, now, limits.get(steps.container))
    if explanation.skipped_containers:
        yield from _held(explanation.skipped_containers, now)
    if explanation.resize is not None:
        yield _heading("The patch, as one would write it by hand")
        patch = json.dumps(build_resize_patch(explanation.resize), separators=(",", ":"))
        command = shlex.join(
            ["kubectl", "patch", "pod", pod.name, "-n", pod.namespace, "--subresource", "resize", "-p", patch]
        )
        # One line whatever the width, so that it can be copied.
        yield Text(command, no_wrap=True)
    if explanation.admission is not None:
        yield from _admission(explanation.admission)


def _heading(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def _fate(explanation: Explanation) -> Text:
    word, style = _FATES[explanation.outcome]
    hold, why = explanation.skipped, ""
    if hold is not None:
        why = f"{hold.reason.value}: {describe_reason(hold.reason, hold.detail)}"
        why += f", until {hold.until:%H:%M:%S} UTC" if hold.until is not None else ""
    elif explanation.eviction is not None:
        why = f"its node does not hold the {explanation.eviction.resource} of all its pods, and it is first to go"
    elif explanation.resize is not None:
        cause = explanation.resize.cause
        why = (
            describe_reason(explanation.resize.reason)
            if cause is None
            else f"{cause.value}: {CAUSE_DESCRIPTIONS[cause]}"
        )
        grows = explanation.resize.growth.cpu_millicores or explanation.resize.growth.memory_bytes
        why += "; it grows on its node" if grows else ""
    elif explanation.outcome is PodOutcome.NO_CHANGE_NEEDED:
        why = "no change of its sizes is worth a write"
    elif explanation.outcome is PodOutcome.AT_RISK:
        why = "it was killed for lack of memory, and the node pass has no size for it that would help"
    elif explanation.outcome is PodOutcome.PENDING:
        why = "it is on no node, so there is nothing to share yet"
    return Text.assemble((word, style), f": {why}")


def _statements(statements: Sequence[StatedSetting]) -> Table:
    rows = create_grid(3)
    for statement in statements:
        source = describe_source(statement.source)
        note = source if statement.is_effective else f"{source}, overruled"
        rows.add_row(
            f"  {statement.setting}", statement.value, note, style=None if statement.is_effective else "dim strike"
        )
    return rows


def _left_to_autoscaler(claimed: AutoscalerClaims) -> Text:
    names = " and ".join(sorted(resource.value for resource in claimed.scaled))
    return Text(f"  {names} left alone: {describe_detail(claimed.scaled_by)}", style="dim")


def _eviction_standing(explanation: Explanation) -> Text:
    assert explanation.ranking is not None
    stated = any(one.setting == "eviction-ranking" for one in explanation.statements)
    origin = "" if stated else " by default"
    may = (
        f"may not be evicted: {describe_detail(explanation.not_evictable_reason)}"
        if explanation.not_evictable_reason
        else "may be evicted"
    )
    return Text(f"  eviction ranking {explanation.ranking.label}{origin}; {may}", style="dim")


def _node(node: NodeExplanation) -> Iterator[RenderableType]:
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
        ("needed", need, "sum of bases + largest headroom"),
    ):
        rows.add_row(
            f"  {label}",
            format_exact(ResourceName.CPU, amounts.cpu_millicores),
            format_exact(ResourceName.MEMORY, amounts.memory_bytes),
            note,
        )
    fits_cpu = need.cpu_millicores <= node.available.cpu_millicores
    fits_memory = need.memory_bytes <= node.available.memory_bytes
    rows.add_row("  fits", _yes(fits_cpu), _yes(fits_memory), "")
    if set(node.rules.values()) != {"shared-max"}:
        rows.add_row(
            "  shared headroom",
            format_exact(ResourceName.CPU, node.remaining_headroom.cpu_millicores),
            format_exact(ResourceName.MEMORY, node.remaining_headroom.memory_bytes),
            "by "
            + ", ".join(f"{rule} for {resource.value}" for resource, rule in node.rules.items())
            + ", as far as there is room",
        )
    yield rows
    yield from _kept_risks(node)
    yield from _spikes(node)
    for resource, ranking in node.rankings.items():
        if ranking:
            yield from _ranking(resource, ranking, node)


def _yes(holds: bool) -> Text:
    return Text("yes", style="green") if holds else Text("no", style="bold red")


def _kept_risks(node: NodeExplanation) -> Iterator[RenderableType]:
    """Say for each resource what the node keeps, why, and how well the stated risk was kept."""
    for resource, kept in node.observed_risks.items():
        yield Padding(Text(describe_observed_risk(resource, kept), style="dim"), (0, 0, 0, 2))


def _spikes(node: NodeExplanation) -> Iterator[RenderableType]:
    for resource, spike in sorted(node.largest_headrooms.items()):
        if isinstance(spike, LargestHeadroom):
            yield Text(
                f"  largest {resource} headroom of those that stay: {format_exact(resource, spike.amount)}, "
                f"{spike.namespace}/{spike.pod} {spike.container}",
                style="dim",
            )


def _ranking(resource: ResourceName, ranking: Sequence[RankedPod], node: NodeExplanation) -> Iterator[RenderableType]:
    yield _heading(
        f"Order of eviction for {resource}: low before medium before high, then priority, then the largest headroom"
    )
    if node.reason is not None:
        yield Text(f"  {describe_reason(node.reason)}")
    rows = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for justify in ("right", "left", "left", "right", "left"):
        rows.add_column(justify=justify, overflow="fold", no_wrap=justify == "right")
    for number, one in enumerate(ranking[:_MOST_RANKED], start=1):
        place = "" if one.not_evicted_reason else f"{number}."
        pod = f"{one.namespace}/{one.pod}"
        rows.add_row(f"  {place}", pod, one.ranking.label, format_exact(resource, one.headroom), _state(one, resource))
    yield rows
    if len(ranking) > _MOST_RANKED:
        yield Text(f"  and {format_count(len(ranking) - _MOST_RANKED, 'more pod')}", style="dim")


def _state(ranked: RankedPod, resource: ResourceName) -> Text:
    if ranked.evicted_for is not None:
        return Text("goes" if ranked.evicted_for is resource else f"goes for its {ranked.evicted_for}", style="red")
    return Text(f"stays: {describe_detail(ranked.not_evicted_reason)}" if ranked.not_evicted_reason else "stays")


def _held(containers: Sequence[SkippedContainer], now: datetime) -> Iterator[RenderableType]:
    yield _heading("Containers, as they are")
    for held in containers:
        container = held.container
        yield Text(f"  {container.name}: {_asked(container.requests, container.limits)}")
        if held.statistic is not None:
            yield Text(f"    {describe_statistic(held.statistic, now)}", style="dim")


def _asked(requests: StatedResources, limits: StatedResources) -> str:
    return f"requests {_amounts(requests)}, limits {_amounts(limits)}"


def _amounts(amounts: StatedResources) -> str:
    cpu = "no CPU" if not amounts.cpu_millicores else format_exact(ResourceName.CPU, amounts.cpu_millicores)
    memory = "no memory" if not amounts.memory_bytes else format_exact(ResourceName.MEMORY, amounts.memory_bytes)
    return f"{cpu} and {memory}"


def _admission(admission: MutatePod | LeaveUnchanged) -> Iterator[RenderableType]:
    yield _heading("If it were created now")
    match admission:
        case LeaveUnchanged(reason, detail):
            yield Text(f"  it would stay as it is: {reason.value}: {describe_reason(reason, detail)}")
        case MutatePod(containers, size, new_revision):
            yield Text(f"  {_BY_REVISION if new_revision else _BY_SIZE[size]}")
            for target in containers:
                yield Text(f"  {target.container}: {_asked(target.requests, target.limits)}")


# What the store remembers of a pod, for people.

_MOST_OUTCOMES = 10
_BARS = "▁▂▃▄▅▆▇█"


def render_pod_history(past: PodHistory, now: datetime) -> Iterator[RenderableType]:
    """Yield what was done to the pod, its kills, and its workload's day."""
    if past.outcomes:
        yield Text("\nWhat was done", style="bold")
        rows = create_grid(4)
        for outcome in past.outcomes[:_MOST_OUTCOMES]:
            action = "evict" if isinstance(outcome.action, EvictPod) else "resize"
            why = describe_reason(outcome.reason, outcome.detail)
            if isinstance(outcome.action, ResizePod) and outcome.result is ActionResult.DONE:
                why = f"{format_resize(outcome.action, outcome.before, '→')}: {describe_resize_cause(outcome.action)}"
            if outcome.count > 1:
                why = f"{why} ({outcome.count:,} times, first {format_age(now, outcome.since)})"
            rows.add_row(f"  {format_age(now, outcome.at)}", action, outcome.result.value, why)
        yield rows
    if past.oom_kills:
        yield Text("\nKilled for lack of memory", style="bold")
        rows = create_grid(4)
        for kill in past.oom_kills[:_MOST_OUTCOMES]:
            limit = "no limit" if kill.memory_limit_bytes is None else f"limit {format_memory(kill.memory_limit_bytes)}"
            rows.add_row(f"  {format_age(now, kill.finished_at)}", kill.pod, kill.container, limit)
        yield rows
    if past.profiles:
        yield Text.assemble(
            ("\nPeaks by clock hour", "bold"), ("  00 to 23 UTC, the largest of the days that are kept", "dim")
        )
        rows = create_grid(4)
        for profile in past.profiles:
            rows.add_row(*_profile(profile, "CPU", profile.cpu_millicores, ResourceName.CPU))
            rows.add_row(*_profile(profile, "memory", profile.memory_bytes, ResourceName.MEMORY))
        yield rows


def render_stored_text(
    namespace: str, pod: str, statistics: StatisticsTable, past: PodHistory, now: datetime
) -> Iterator[RenderableType]:
    """Yield what the store alone knows of a pod."""
    yield Text.assemble(
        (f"{namespace}/{pod}", "bold"), "  from the store alone; with --snapshot its sizes are explained as well"
    )
    yield Text("\nStatistics", style="bold")
    for row in range(len(statistics.keys)):
        statistic = statistics.row(row)
        whose = "" if statistic.key.pod else f" (all pods of {statistic.key.workload})"
        yield Text(f"  {statistic.key.container}{whose}: {describe_statistic(statistic, now)}")
    yield from render_pod_history(past, now)


def _profile(
    profile: HourProfile, name: str, values: Sequence[float | None], resource: ResourceName
) -> tuple[str, str, str, str]:
    known = [value for value in values if value is not None]
    largest = max(known, default=0.0)
    if not known:
        return f"  {profile.container}", name, "no samples", ""
    bars = "".join(" " if value is None else _BARS[_step(value, largest)] for value in values)
    top = format_cpu(round(largest)) if resource is ResourceName.CPU else format_exact(resource, largest)
    identity = f" of {profile.identity}" if profile.identity else ""
    return f"  {profile.container}{identity}", name, bars, f"up to {top}"


def _step(value: float, largest: float) -> int:
    return min(len(_BARS) - 1, int(value / largest * len(_BARS))) if largest > 0 else 0

"""An explanation for people: the fate first, then what it rests on, step by step, each with its numbers."""

import json
import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cruise.decisions.admission.admission import Leave, Mutate
from cruise.decisions.explaining.explanation import Explanation, Fate, HeldContainer, NodeExplanation, Ranked, Spike
from cruise.decisions.guidance.other_autoscalers import Claimed
from cruise.domain.overrides import Statement
from cruise.domain.policy import AdmissionSize, Policy
from cruise.domain.resources import Amounts, ResourceName
from cruise.interfaces.amounts import count_text, exact_text
from cruise.interfaces.explain.steps import container_steps, grid, statistic_line
from cruise.interfaces.kept_risks import kept_risk_text
from cruise.interfaces.kill_words import kill_words
from cruise.interfaces.reasons import CAUSES, detail_words, in_words, source_words
from cruise.kube_json.patches.resize_patch import resize_patch

_MOST_RANKED = 12
_BY_SIZE = {
    AdmissionSize.PEAK: "by its workload's peaks:",
    AdmissionSize.PLANNED: "as a node pass would size it, its workload's base and a share of the headroom:",
}
_BY_REVISION = "no less than its template states, since that is new; nor less than its workload's peaks:"
_FATES = {
    Fate.RESIZED: ("to be resized", "cyan"),
    Fate.SETTLED: ("settled", "green"),
    Fate.AT_RISK: ("at risk", "bold red"),
    Fate.HELD: ("left as it is", "yellow"),
    Fate.EVICTED: ("to be evicted", "red"),
    Fate.PENDING: ("pending", "magenta"),
}


def explanation_text(explanation: Explanation, policy: Policy, now: datetime) -> Iterator[RenderableType]:
    """Yield the parts in the order in which people ask."""
    pod = explanation.pod
    where = f" on {pod.node}" if pod.node is not None else ""
    yield Text.assemble((f"{pod.namespace}/{pod.name}", "bold"), f"  {pod.workload or 'no controller'}{where}")
    yield _fate(explanation)
    for risk in explanation.kills:
        yield Text.assemble(("  ", ""), (risk.container, "bold"), f": {kill_words(risk, now)}", style="red")
    yield _heading("Overrides")
    yield _statements(explanation.statements)
    if explanation.claimed.scaled:
        yield _left_to_autoscaler(explanation.claimed)
    if explanation.ranking is not None:
        yield _eviction_standing(explanation)
    if explanation.node is not None:
        yield from _node(explanation.node)
    written = () if explanation.resize is None else explanation.resize.containers
    limits = {one.container: one.limits for one in written}
    for steps in explanation.steps:
        yield _heading(f"Container {steps.container}")
        yield container_steps(steps, policy, now, limits.get(steps.container))
    if explanation.held:
        yield from _held(explanation.held, now)
    if explanation.resize is not None:
        yield _heading("The patch, as one would write it by hand")
        patch = json.dumps(resize_patch(explanation.resize), separators=(",", ":"))
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
    word, style = _FATES[explanation.fate]
    hold, why = explanation.hold, ""
    if hold is not None:
        why = f"{hold.reason.value}: {in_words(hold.reason, hold.detail)}"
        why += f", until {hold.until:%H:%M:%S} UTC" if hold.until is not None else ""
    elif explanation.eviction is not None:
        why = f"its node does not hold the {explanation.eviction.resource} of all its pods, and it is first to go"
    elif explanation.resize is not None:
        cause = explanation.resize.cause
        why = in_words(explanation.resize.reason) if cause is None else f"{cause.value}: {CAUSES[cause]}"
        grows = explanation.resize.growth.cpu_millicores or explanation.resize.growth.memory_bytes
        why += "; it grows on its node" if grows else ""
    elif explanation.fate is Fate.SETTLED:
        why = "no change of its sizes is worth a write"
    elif explanation.fate is Fate.AT_RISK:
        why = "it was killed for lack of memory, and the node pass has no size for it that would help"
    elif explanation.fate is Fate.PENDING:
        why = "it is on no node, so there is nothing to share yet"
    return Text.assemble((word, style), f": {why}")


def _statements(statements: Sequence[Statement]) -> Table:
    rows = grid(3)
    for statement in statements:
        source = source_words(statement.source)
        note = source if statement.holds else f"{source}, overruled"
        rows.add_row(f"  {statement.setting}", statement.value, note, style=None if statement.holds else "dim strike")
    return rows


def _left_to_autoscaler(claimed: Claimed) -> Text:
    names = " and ".join(sorted(resource.value for resource in claimed.scaled))
    return Text(f"  {names} left alone: {detail_words(claimed.scaled_by)}", style="dim")


def _eviction_standing(explanation: Explanation) -> Text:
    assert explanation.ranking is not None
    stated = any(one.setting == "eviction-ranking" for one in explanation.statements)
    origin = "" if stated else " by default"
    may = f"may not be evicted: {detail_words(explanation.unmovable)}" if explanation.unmovable else "may be evicted"
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
        ("fixed", node.fixed, f"{count_text(node.held_pods, 'pod')} not sized, and all overheads"),
        ("available", node.available, ""),
        ("sum of bases", node.base, count_text(node.sized_pods, "sized pod")),
        ("largest headroom", node.headroom, ""),
        ("needed", need, "sum of bases + largest headroom"),
    ):
        rows.add_row(
            f"  {label}",
            exact_text(ResourceName.CPU, amounts.cpu_millicores),
            exact_text(ResourceName.MEMORY, amounts.memory_bytes),
            note,
        )
    fits_cpu = need.cpu_millicores <= node.available.cpu_millicores
    fits_memory = need.memory_bytes <= node.available.memory_bytes
    rows.add_row("  fits", _yes(fits_cpu), _yes(fits_memory), "")
    if set(node.rules.values()) != {"shared-max"}:
        rows.add_row(
            "  shared headroom",
            exact_text(ResourceName.CPU, node.staying_headroom.cpu_millicores),
            exact_text(ResourceName.MEMORY, node.staying_headroom.memory_bytes),
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
    for resource, kept in node.kept_risks.items():
        yield Padding(Text(kept_risk_text(resource, kept), style="dim"), (0, 0, 0, 2))


def _spikes(node: NodeExplanation) -> Iterator[RenderableType]:
    for resource, spike in sorted(node.spikes.items()):
        if isinstance(spike, Spike):
            yield Text(
                f"  largest {resource} headroom of those that stay: {exact_text(resource, spike.amount)}, "
                f"{spike.namespace}/{spike.pod} {spike.container}",
                style="dim",
            )


def _ranking(resource: ResourceName, ranking: Sequence[Ranked], node: NodeExplanation) -> Iterator[RenderableType]:
    yield _heading(
        f"Order of eviction for {resource}: low before medium before high, then priority, then the largest headroom"
    )
    if node.reason is not None:
        yield Text(f"  {in_words(node.reason)}")
    rows = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for justify in ("right", "left", "left", "right", "left"):
        rows.add_column(justify=justify, overflow="fold", no_wrap=justify == "right")
    for number, one in enumerate(ranking[:_MOST_RANKED], start=1):
        place = "" if one.immovable else f"{number}."
        pod = f"{one.namespace}/{one.pod}"
        rows.add_row(f"  {place}", pod, one.ranking.label, exact_text(resource, one.headroom), _state(one, resource))
    yield rows
    if len(ranking) > _MOST_RANKED:
        yield Text(f"  and {count_text(len(ranking) - _MOST_RANKED, 'more pod')}", style="dim")


def _state(ranked: Ranked, resource: ResourceName) -> Text:
    if ranked.goes is not None:
        return Text("goes" if ranked.goes is resource else f"goes for its {ranked.goes}", style="red")
    return Text(f"stays: {detail_words(ranked.immovable)}" if ranked.immovable else "stays")


def _held(containers: Sequence[HeldContainer], now: datetime) -> Iterator[RenderableType]:
    yield _heading("Containers, as they are")
    for held in containers:
        container = held.container
        yield Text(f"  {container.name}: {_asked(container.requests, container.limits)}")
        if held.statistic is not None:
            yield Text(f"    {statistic_line(held.statistic, now)}", style="dim")


def _asked(requests: Amounts, limits: Amounts) -> str:
    return f"requests {_amounts(requests)}, limits {_amounts(limits)}"


def _amounts(amounts: Amounts) -> str:
    cpu = "no CPU" if not amounts.cpu_millicores else exact_text(ResourceName.CPU, amounts.cpu_millicores)
    memory = "no memory" if not amounts.memory_bytes else exact_text(ResourceName.MEMORY, amounts.memory_bytes)
    return f"{cpu} and {memory}"


def _admission(admission: Mutate | Leave) -> Iterator[RenderableType]:
    yield _heading("If it were created now")
    match admission:
        case Leave(reason, detail):
            yield Text(f"  it would stay as it is: {reason.value}: {in_words(reason, detail)}")
        case Mutate(containers, size, new_revision):
            yield Text(f"  {_BY_REVISION if new_revision else _BY_SIZE[size]}")
            for target in containers:
                yield Text(f"  {target.container}: {_asked(target.requests, target.limits)}")

"""Changes to templates with what they rest on, as one JSON document."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec
from rich.console import Console, RenderableType
from rich.text import Text

from cruise import __version__
from cruise.decisions.scan.waste import ResourcePrices
from cruise.decisions.template_sizes import (
    NoPatchReason,
    SkippedTemplate,
    TemplateChanges,
    TemplateContainerSizes,
    TemplateSizes,
)
from cruise.domain.original_resources import amounts_to_json
from cruise.domain.resources import ResourceName, Resources
from cruise.interfaces.export_patches import build_patch
from cruise.interfaces.plan_table import WIDE_TABLE_COLUMNS, create_plain_table, format_change
from cruise.interfaces.reasons import describe_reason
from cruise.interfaces.text import (
    JsonValue,
    convert_to_json,
    escape_text,
    format_cores,
    format_count,
    format_cpu,
    format_gibibytes,
    format_memory,
    format_money,
)

PATCHED_KINDS = (
    "Sizes of pod templates, as the webhook gives them to new pods: by default their peaks (admission_size). "
    "The target of a running pod (cruise scan, plan, explain) may be less, since the pods of a node share headroom."
)
_WORDS = {
    NoPatchReason.NO_TEMPLATE: "its template is not in what was read",
    NoPatchReason.IMMUTABLE: "the template of this kind cannot be changed",
    NoPatchReason.GENERATED: "its template is made by {}: change it there",
    NoPatchReason.CUSTOM_RESOURCE: "{} is a custom resource, whose list of containers a patch would replace: set the sizes "
    "in its manifest",
    NoPatchReason.UNSUPPORTED_NAME: "its name is not one that an API server takes",
}


@dataclass(frozen=True, slots=True)
class ExportReport:
    """The changes, where the statistics come from in words, and prices."""

    changes: TemplateChanges
    statistics_source: str
    prices: ResourcePrices


def describe_skipped_template(left: SkippedTemplate) -> str:
    """Say why a template is left as it is."""
    if isinstance(left.reason, NoPatchReason):
        return _WORDS[left.reason].format(left.detail)
    return describe_reason(left.reason, left.detail)


def render_export_json(report: ExportReport) -> bytes:
    """Return the report as one JSON document."""
    changes = report.changes
    document: JsonValue = {
        "at": convert_to_json(changes.at),
        "restsOn": report.statistics_source,
        "workloads": [_workload(one, report.prices) for one in changes.changed],
        "leftAlone": [
            {
                "namespace": one.namespace,
                "workload": one.workload,
                "pods": one.pods,
                "reason": one.reason.value,
                "why": describe_skipped_template(one),
            }
            for one in changes.skipped
        ],
        "freed": _amounts(changes.reclaimable),
        "estimatedMonthlySaving": round(report.prices.compute_monthly_cost(changes.reclaimable), 2),
    }
    return msgspec.json.encode(document) + b"\n"


def _workload(sizes: TemplateSizes, prices: ResourcePrices) -> JsonValue:
    return {
        "namespace": sizes.namespace,
        "workload": str(sizes.workload),
        "pods": sizes.pods,
        "containers": [_container(one) for one in sizes.containers],
        "injected": list(sizes.injected),
        "freed": _amounts(sizes.reclaimable),
        "estimatedMonthlySaving": round(prices.compute_monthly_cost(sizes.reclaimable), 2),
        "patch": build_patch(sizes),
    }


def _container(sizes: TemplateContainerSizes) -> JsonValue:
    evidence = sizes.evidence
    figures = {
        name: value
        for name, value in _mapping(convert_to_json(evidence)).items()
        if name not in ("historySince", "updatedAt")
    }
    return {
        "container": sizes.name,
        "role": sizes.role.value,
        "before": {"requests": {**amounts_to_json(sizes.requests)}, "limits": {**amounts_to_json(sizes.limits)}},
        "after": {"requests": {**amounts_to_json(sizes.new_requests)}, "limits": {**amounts_to_json(sizes.new_limits)}},
        "evidence": {
            **figures,
            "historySince": convert_to_json(convert_to_time(evidence.history_since)),
            "updatedAt": convert_to_json(convert_to_time(evidence.updated_at)),
        },
    }


def convert_to_time(seconds: int) -> datetime | None:
    """Return a time of the evidence, None for one that is not known."""
    return datetime.fromtimestamp(seconds, UTC) if seconds else None


def _amounts(amounts: Resources) -> JsonValue:
    return {"cpuMillicores": amounts.cpu_millicores, "memoryBytes": amounts.memory_bytes}


def _mapping(value: JsonValue) -> dict[str, JsonValue]:
    assert isinstance(value, dict)
    return value


# The rows of a report on templates: one for each container and resource, for tables of a terminal and of Markdown.


@dataclass(frozen=True, slots=True)
class ExportRow:
    """One resource of one container, all in words: what is stated, what shall be, and the figures behind it."""

    container: str
    resource: str
    request: tuple[str, str]
    limit: tuple[str, str]
    base: str
    peak: str
    largest: str


def describe_reclaimable(freed: Resources, prices: ResourcePrices) -> str:
    """Say what is requested less or more, and what that is worth."""
    cpu, memory, month = freed.cpu_millicores, freed.memory_bytes, prices.compute_monthly_cost(freed)
    return (
        f"{format_cores(abs(cpu))} cores {_less(cpu)} and {format_gibibytes(abs(memory))} GiB {_less(memory)}, "
        f"about {format_money(abs(month))} a month {_less(month)}"
    )


def _less(freed: float) -> str:
    return "less" if freed >= 0 else "more"


def describe_injected_containers(changed: Iterable[TemplateSizes]) -> str:
    """Name the containers that pods have and templates do not, with their workloads; empty where there are none."""
    found: dict[str, list[str]] = {}
    for one in changed:
        for name in one.injected:
            found.setdefault(name, []).append(f"{one.namespace}/{one.workload}")
    named = [
        f"{name} ({where[0] if len(where) == 1 else format_count(len(where), 'workload')})"
        for name, where in sorted(found.items())
    ]
    return f"not in the templates, so in no patch: {', '.join(named)}" if named else ""


def build_export_rows(sizes: TemplateSizes) -> Iterator[ExportRow]:
    """Yield the rows of what changes."""
    for one in sizes.containers:
        for resource in ResourceName:
            row = _row(one, resource)
            if row.request[0] != row.request[1] or row.limit[0] != row.limit[1]:
                yield row


def _row(sizes: TemplateContainerSizes, resource: ResourceName) -> ExportRow:
    evidence, write = sizes.evidence, format_cpu if resource is ResourceName.CPU else format_memory

    def pair(before: int | None, after: int | None) -> tuple[str, str]:
        return write(before or 0), write(after or 0)

    requests = pair(sizes.requests.get(resource), sizes.new_requests.get(resource))
    limits = pair(sizes.limits.get(resource), sizes.new_limits.get(resource))
    if resource is ResourceName.CPU:
        usual, peak = write(evidence.cpu_base_millicores), write(evidence.cpu_peak_millicores)
        return ExportRow(sizes.name, "CPU", requests, limits, usual, peak, "")
    usual, peak = write(evidence.memory_base_bytes), write(evidence.memory_peak_bytes)
    largest = write(max(evidence.memory_7d_max_bytes, evidence.oom_memory_bytes))
    return ExportRow(sizes.name, "memory", requests, limits, usual, peak, largest)


# Changes to templates for people at a terminal.

_MOST_WORKLOADS = 30


def render_export_table(report: ExportReport, console: Console) -> Iterator[RenderableType]:
    """Yield the parts of the report."""
    changes, wide = report.changes, console.width >= WIDE_TABLE_COLUMNS
    yield Text(f"Rests on {report.statistics_source}, judged at {changes.at:%Y-%m-%d %H:%M} UTC.\n", style="dim")
    if not changes.changed:
        yield Text("No template needs other resources.")
    else:
        # The largest savings first, since that is what people begin with.
        ranked = sorted(changes.changed, key=lambda one: -report.prices.compute_monthly_cost(one.reclaimable))
        table = create_plain_table()
        table.add_column("WORKLOAD", overflow="fold")
        table.add_column("CONTAINER", overflow="fold")
        table.add_column("" if wide else "WHAT")
        for heading in ("REQUEST", "LIMIT", *(("USUAL", "PEAK", "LARGEST") if wide else ())):
            table.add_column(heading, justify="right", no_wrap=True)
        for one in ranked[:_MOST_WORKLOADS]:
            name: Text | str = Text.assemble((f"{one.namespace}/", "dim"), str(one.workload))
            for row in build_export_rows(one):
                figures = (row.base, row.peak, row.largest) if wide else ()
                table.add_row(
                    name, row.container, row.resource, format_change(*row.request), format_change(*row.limit), *figures
                )
                name = ""
        yield table
        more = len(ranked) - _MOST_WORKLOADS
        if more > 0:
            yield Text(f"and {format_count(more, 'more workload')}: every other --format has all", style="dim")
        freed = describe_reclaimable(changes.reclaimable, report.prices)
        yield Text(f"\n{format_count(len(ranked), 'template')}: {freed}", style="bold")
        injected = describe_injected_containers(ranked)
        if injected:
            yield Text(injected, style="dim")
        yield Text(PATCHED_KINDS, style="dim")
        yield Text("-o DIR writes what goes into Git", style="dim")
    for why, count in Counter(describe_skipped_template(one) for one in changes.skipped).most_common():
        yield Text(f"left as they are, {count:,}: {why}", style="dim")


# The text of a pull request in Markdown: what changes, on what evidence, and what it saves.

_MOST_LEFT = 10


def render_pull_request(report: ExportReport) -> str:
    """Return the text; its first line is a title."""
    changes = report.changes
    if not changes.changed:
        return "No template needs other resources.\n"
    lines = [
        f"Set the resources of {format_count(len(changes.changed), 'workload')} from their measured use",
        "",
        f"All pods that run now would request {describe_reclaimable(changes.reclaimable, report.prices)} at list prices "
        f"(${report.prices.cpu_core_hour:g} a core-hour, ${report.prices.memory_gib_hour:g} a GiB-hour).",
        "",
        f"This rests on {_escaped(report.statistics_source)}, judged at {changes.at:%Y-%m-%d %H:%M} UTC.",
        "",
        "| column | what it says |",
        "|---|---|",
        "| usual | 75th percentile of the last 10 minutes (CPU, with the time that it waited) or 30 (memory) |",
        "| peak | most in the last hour, and in this hour and the next of each of the days before, up to seven |",
        "| largest | most memory in seven days, or the limit at a kill for lack of memory, if that is more |",
        "",
        "A request is the peak, a memory limit twice the largest (at most twice the limit of now), within the bounds "
        "of annotations and LimitRanges. CPU limits go, since they only slow down.",
    ]
    for one in changes.changed:
        lines += ["", *_describe_workload(one, report)]
    if changes.skipped:
        lines += ["", *_left(report)]
    return "\n".join([*lines, "", f"Made by `cruise export`, version {__version__}.", ""])


def _describe_workload(sizes: TemplateSizes, report: ExportReport) -> Iterator[str]:
    yield f"### {sizes.namespace}/{sizes.workload}"
    yield ""
    starts = [one.evidence.history_since for one in sizes.containers]
    since = max(starts) if all(starts) else 0
    history = f", history since {convert_to_time(since):%Y-%m-%d}" if since else ""
    yield f"{format_count(sizes.pods, 'pod')}{history}: {describe_reclaimable(sizes.reclaimable, report.prices)}."
    yield ""
    yield "| container | | request | limit | usual | peak | largest |"
    yield "|---|---|---|---|---|---|---|"
    for row in build_export_rows(sizes):
        request, limit = _arrow(row.request), _arrow(row.limit)
        cells = (f"`{row.container}`", row.resource, request, limit, row.base, row.peak, row.largest)
        yield f"| {' | '.join(cells)} |"
    if sizes.injected:
        yield ""
        yield f"{_escaped(describe_injected_containers([sizes]))}."


def _arrow(pair: tuple[str, str]) -> str:
    return pair[0] if pair[0] == pair[1] else f"{pair[0]} → **{pair[1]}**"


def _left(report: ExportReport) -> Iterator[str]:
    reasons = Counter(describe_skipped_template(one) for one in report.changes.skipped)
    yield f"Left as they are: {format_count(len(report.changes.skipped), 'workload')}."
    yield ""
    for why, count in reasons.most_common(_MOST_LEFT):
        yield f"- {count:,}: {_escaped(why)}"
    more = len(reasons) - _MOST_LEFT
    if more > 0:
        yield f"- and for {format_count(more, 'other reason')}"


def _escaped(text: str) -> str:
    """Write text that users or servers wrote, so that Markdown shows it and makes nothing of it."""
    shown = escape_text(text).replace("&", "&amp;").replace("<", "&lt;")
    return "".join(f"\\{one}" if one in "\\`*_[]|#@!" else one for one in shown)

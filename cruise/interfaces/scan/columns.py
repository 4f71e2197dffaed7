"""The columns of a scan's three sections, each once for all reports: terminal, page, JSON and CSV.

To add a column, add it to RISKS, WASTE or PENDING; every report reads them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from rich.text import Text

from cruise.decisions.scan.findings import ScanFindings
from cruise.decisions.scan.pending_pods import PendingPod
from cruise.decisions.scan.risks import ContainerRisk, ContainerRiskKind
from cruise.decisions.scan.waste import WorkloadRequests
from cruise.domain.resources import Resources
from cruise.interfaces.plan_table import format_change
from cruise.interfaces.reasons import REASON_DESCRIPTIONS
from cruise.interfaces.scan.finding_text import (
    RISK_TITLES,
    describe_pending_pod,
    describe_risk,
    describe_room_by_sizing,
)
from cruise.interfaces.text import (
    JsonValue,
    convert_to_json,
    format_cores,
    format_cpu,
    format_gibibytes,
    format_memory,
    format_money,
)

RowT = TypeVar("RowT", ContainerRisk, WorkloadRequests, PendingPod)

_OF_CPU = (ContainerRiskKind.CPU_THROTTLED, ContainerRiskKind.CPU_STARVED)
_STYLES = {
    ContainerRiskKind.OOM_KILLED: ("bold red", "red"),
    ContainerRiskKind.MEMORY_LEAK_SUSPECTED: ("red", "red"),
    ContainerRiskKind.MEMORY_NEAR_LIMIT: ("red", "red"),
    ContainerRiskKind.MEMORY_UNDER_REQUESTED: ("yellow", "amber"),
    ContainerRiskKind.CPU_THROTTLED: ("yellow", "amber"),
    ContainerRiskKind.CPU_STARVED: ("yellow", "amber"),
    ContainerRiskKind.NO_REQUESTS: ("dim", ""),
}


@dataclass(frozen=True, slots=True)
class ScanPageCell:
    """A cell of the page: texts with their tags (`small`, `b`, `chip COLOUR`, `arrow`), and what it is sorted by.

    `bar` has an amount and what is kept of it, `note` what a chip shows when pointed at.
    """

    parts: Sequence[tuple[str, str]]
    value: float | None = None
    bar: tuple[int, int] | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class ScanColumn(Generic[RowT]):
    """One column; what a report does not have is left out.

    `heading` and `cell` are the terminal's, where `narrow` takes the place of a heading and `wide` columns are dropped;
    `title` and `page` are the page's, `document` the keys in JSON and YAML, `record` those in CSV.
    """

    heading: str = ""
    cell: Callable[[RowT, ScanFindings, bool], Text] | None = None
    title: str = ""
    page: Callable[[RowT, ScanFindings], ScanPageCell] | None = None
    document: Callable[[RowT, ScanFindings], Mapping[str, JsonValue]] | None = None
    record: Mapping[str, Callable[[RowT, ScanFindings], object]] = field(default_factory=dict)
    kind: str = ""  # `number`, `name` or `why`
    narrow: str = ""
    wide: bool = False
    sorted_by: bool = False


def build_amounts_document(amounts: Resources) -> JsonValue:
    """Return CPU and memory as the documents have them."""
    return {"cpuMillicores": amounts.cpu_millicores, "memoryBytes": amounts.memory_bytes}


def _risk_figures(risk: ContainerRisk, findings: ScanFindings) -> Mapping[str, JsonValue]:
    document: dict[str, JsonValue] = {"why": describe_risk(risk, findings.at)}
    unit = "Millicores" if risk.kind in _OF_CPU else "Bytes"
    if risk.kind is ContainerRiskKind.NO_REQUESTS:
        return document | {"missing": [name.lower() for name in risk.missing]}
    if risk.kind is ContainerRiskKind.OOM_KILLED:
        killed_at = convert_to_json(risk.killed_at)
        figures = {"limitBytes": risk.observed or None, "killedAt": killed_at, "restarts": risk.restarts}
        return document | figures | {"remedy": convert_to_json(risk.remedy)}
    return document | {f"observed{unit}": risk.observed, f"allowed{unit}": risk.allowed}


def _risk_container(risk: ContainerRisk, findings: ScanFindings, wide: bool) -> Text:
    workload = risk.workload if wide else risk.workload.partition("/")[2]
    return Text.assemble((f"{risk.namespace}/", "dim"), workload, (f" {risk.container}", "bold"))


RISK_COLUMNS: tuple[ScanColumn[ContainerRisk], ...] = (
    ScanColumn(
        "WHAT",
        lambda one, _, wide: Text(RISK_TITLES[one.kind], style=_STYLES[one.kind][0]),
        "What",
        lambda one, findings: ScanPageCell(
            [(RISK_TITLES[one.kind], f"chip {_STYLES[one.kind][1]}")], list(ContainerRiskKind).index(one.kind)
        ),
        lambda one, _: {"kind": one.kind.value},
        {"kind": lambda one, _: one.kind.value},
    ),
    ScanColumn(
        "CONTAINER",
        _risk_container,
        "Container",
        lambda one, _: ScanPageCell([(f"{one.namespace}/", "small"), (f"{one.workload} ", ""), (one.container, "b")]),
        lambda one, _: {"namespace": one.namespace, "workload": one.workload, "container": one.container},
        {
            "namespace": lambda one, _: one.namespace,
            "workload": lambda one, _: one.workload,
            "container": lambda one, _: one.container,
        },
        "name",
    ),
    ScanColumn(
        "PODS",
        lambda one, _, wide: Text(f"{one.affected_pods}/{one.total_pods}"),
        "Pods",
        lambda one, _: ScanPageCell(
            [(str(one.affected_pods), ""), (f" of {one.total_pods}", "small")], one.affected_pods
        ),
        lambda one, _: {"pods": one.affected_pods, "ofPods": one.total_pods, "worstPod": one.worst_pod},
        {"pod": lambda one, _: one.worst_pod, "pods": lambda one, _: one.affected_pods},
        "number",
    ),
    ScanColumn(
        "WHY",
        lambda one, findings, wide: Text(describe_risk(one, findings.at)),
        "Why",
        lambda one, findings: ScanPageCell([(f"{describe_risk(one, findings.at)} ", ""), (one.worst_pod, "small")]),
        _risk_figures,
        {"why": lambda one, findings: describe_risk(one, findings.at)},
        "why",
    ),
)


def _change(
    write: Callable[[int], str], of: Callable[[Resources], int]
) -> tuple[
    Callable[[WorkloadRequests, ScanFindings, bool], Text], Callable[[WorkloadRequests, ScanFindings], ScanPageCell]
]:
    """Return the cells of one resource, from what is requested to the target."""

    def cell(row: WorkloadRequests, findings: ScanFindings, wide: bool) -> Text:
        return format_change(write(of(row.requested)), write(of(row.target)))

    def page(row: WorkloadRequests, findings: ScanFindings) -> ScanPageCell:
        before, after = of(row.requested), of(row.target)
        return ScanPageCell(
            [(write(before), ""), ("→", "arrow"), (write(after), "")], of(row.reclaimable), (before, after)
        )

    return cell, page


_CORES = _change(format_cores, lambda amounts: amounts.cpu_millicores)
_GIBIBYTES = _change(format_gibibytes, lambda amounts: amounts.memory_bytes)

WASTE_COLUMNS: tuple[ScanColumn[WorkloadRequests], ...] = (
    ScanColumn(
        record={
            "kind": lambda one, _: (
                "over-requested" if one.share > 0 else "under-requested" if one.share < 0 else "as-needed"
            )
        }
    ),
    ScanColumn(
        "WORKLOAD",
        lambda one, _, wide: Text.assemble((f"{one.namespace}/", "dim"), one.workload),
        "Workload",
        lambda one, _: ScanPageCell([(f"{one.namespace}/", "small"), (one.workload, "")]),
        lambda one, _: {"namespace": one.namespace, "workload": one.workload},
        {"namespace": lambda one, _: one.namespace, "workload": lambda one, _: one.workload},
        "name",
    ),
    ScanColumn(
        "PODS",
        lambda one, _, wide: Text(f"{one.pods:,}"),
        "Pods",
        lambda one, _: ScanPageCell([(f"{one.pods:,}", "")], one.pods),
        lambda one, _: {"pods": one.pods},
        {"pods": lambda one, _: one.pods},
        "number",
    ),
    ScanColumn(
        "CORES",
        _CORES[0],
        "Cores",
        _CORES[1],
        lambda one, _: {
            "requested": build_amounts_document(one.requested),
            "recommended": build_amounts_document(one.target),
            "planned": build_amounts_document(one.planned),
            "reclaimable": build_amounts_document(one.reclaimable),
            "used": build_amounts_document(one.used),
        },
        {
            "cpu_requested_millicores": lambda one, _: one.requested.cpu_millicores,
            "cpu_recommended_millicores": lambda one, _: one.target.cpu_millicores,
            "cpu_planned_millicores": lambda one, _: one.planned.cpu_millicores,
            "cpu_used_millicores": lambda one, _: one.used.cpu_millicores,
        },
        "number",
    ),
    ScanColumn(
        "GIB",
        _GIBIBYTES[0],
        "GiB",
        _GIBIBYTES[1],
        record={
            "memory_requested_bytes": lambda one, _: one.requested.memory_bytes,
            "memory_recommended_bytes": lambda one, _: one.target.memory_bytes,
            "memory_planned_bytes": lambda one, _: one.planned.memory_bytes,
            "memory_used_bytes": lambda one, _: one.used.memory_bytes,
        },
        kind="number",
    ),
    ScanColumn(
        "SHARE",
        lambda one, _, wide: Text(f"{one.share:.1%}"),
        "Share of cluster",
        lambda one, _: ScanPageCell([(f"{one.share:.2%}", "")], one.share),
        lambda one, _: {"shareOfCluster": round(one.share, 6)},
        {"share_of_cluster": lambda one, _: f"{one.share:.6f}"},
        "number",
        sorted_by=True,
    ),
    ScanColumn(
        "$/MONTH",
        lambda one, findings, wide: Text(format_money(findings.prices.compute_monthly_cost(one.reclaimable))),
        "$ a month",
        lambda one, findings: ScanPageCell(
            [(format_money(findings.prices.compute_monthly_cost(one.reclaimable)), "")],
            findings.prices.compute_monthly_cost(one.reclaimable),
        ),
        lambda one, findings: {
            "estimatedMonthlySaving": round(findings.prices.compute_monthly_cost(one.reclaimable), 2)
        },
        {
            "estimated_monthly_saving": lambda one, findings: (
                f"{findings.prices.compute_monthly_cost(one.reclaimable):.2f}"
            )
        },
        "number",
        narrow="$/MO",
    ),
    ScanColumn(
        "LEFT ALONE",
        lambda one, _, wide: Text(
            f"{one.skipped_pods:,}: {one.skip_reason.value}" if one.skip_reason else "", style="dim"
        ),
        "Left alone",
        lambda one, _: ScanPageCell(
            [] if one.skip_reason is None else [(f"{one.skipped_pods}: {one.skip_reason.value}", "chip")],
            note="" if one.skip_reason is None else REASON_DESCRIPTIONS[one.skip_reason],
        ),
        lambda one, _: {"leftAlone": one.skipped_pods, "leftAloneReason": convert_to_json(one.skip_reason)},
        {"why": lambda one, _: one.skip_reason.value if one.skip_reason is not None else ""},
        wide=True,
    ),
)


def _pending_figures(pod: PendingPod, findings: ScanFindings) -> Mapping[str, JsonValue]:
    return {
        "since": convert_to_json(pod.since),
        "gated": pod.scheduling_gated,
        "nodes": pod.nodes,
        "obstacles": convert_to_json(pod.obstacles),
        "fitsNow": pod.schedulable_now,
        "roomAfterSizing": pod.schedulable_after_sizing,
        "bestNode": pod.best_node,
        "freedOnBestNode": build_amounts_document(pod.reclaimed_on_best_node),
        "why": describe_pending_pod(pod),
    }


def _room_on_page(pod: PendingPod, findings: ScanFindings) -> ScanPageCell:
    word, _, rest = describe_room_by_sizing(pod).partition(", ")
    parts = [(word, "chip green" if pod.best_node is not None else "chip"), (f" {rest}", "")] if word else []
    return ScanPageCell(parts, pod.schedulable_after_sizing)


PENDING_COLUMNS: tuple[ScanColumn[PendingPod], ...] = (
    ScanColumn(
        "POD",
        lambda one, _, wide: Text.assemble((f"{one.namespace}/", "dim"), one.pod),
        "Pod",
        lambda one, _: ScanPageCell([(f"{one.namespace}/", "small"), (one.pod, "")]),
        lambda one, _: {
            "namespace": one.namespace,
            "pod": one.pod,
            "workload": one.workload or None,
            "priority": one.priority,
            "needs": build_amounts_document(one.need),
        },
        {
            "kind": lambda one, _: (
                "room-after-sizing"
                if one.best_node is not None
                else "fits-now"
                if one.schedulable_now
                else "insufficient-capacity"
            ),
            "namespace": lambda one, _: one.namespace,
            "workload": lambda one, _: one.workload,
            "pod": lambda one, _: one.pod,
            "pods": lambda one, _: 1,
        },
        "name",
    ),
    ScanColumn(
        "CPU",
        lambda one, _, wide: Text(format_cpu(one.need.cpu_millicores)),
        "Cores",
        lambda one, _: ScanPageCell([(format_cores(one.need.cpu_millicores), "")], one.need.cpu_millicores),
        record={"cpu_requested_millicores": lambda one, _: one.need.cpu_millicores},
        kind="number",
    ),
    ScanColumn(
        "MEMORY",
        lambda one, _, wide: Text(format_memory(one.need.memory_bytes)),
        "GiB",
        lambda one, _: ScanPageCell([(format_gibibytes(one.need.memory_bytes), "")], one.need.memory_bytes),
        record={"memory_requested_bytes": lambda one, _: one.need.memory_bytes},
        kind="number",
    ),
    ScanColumn(
        "WHY",
        lambda one, _, wide: Text(describe_pending_pod(one)),
        "Why",
        lambda one, _: ScanPageCell([(describe_pending_pod(one), "")]),
        _pending_figures,
        {
            "why": lambda one, _: "; ".join(
                part for part in (describe_pending_pod(one), describe_room_by_sizing(one)) if part
            )
        },
        "why",
    ),
    ScanColumn(
        "ROOM BY SIZING",
        lambda one, _, wide: Text(describe_room_by_sizing(one), style="green" if one.best_node is not None else "dim"),
        "Room by sizing",
        _room_on_page,
    ),
)


def build_finding_document(columns: Sequence[ScanColumn[RowT]], row: RowT, findings: ScanFindings) -> JsonValue:
    """Return one finding for JSON and YAML."""
    found: dict[str, JsonValue] = {}
    for column in columns:
        found |= column.document(row, findings) if column.document is not None else {}
    return found


def build_finding_record(columns: Sequence[ScanColumn[RowT]], row: RowT, findings: ScanFindings) -> dict[str, object]:
    """Return one finding for CSV."""
    return {name: write(row, findings) for column in columns for name, write in column.record.items()}

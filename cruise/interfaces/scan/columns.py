"""The columns of a scan's three sections, defined once for the terminal, the page, JSON and CSV.

To add a column, add it to RISK_COLUMNS, WASTE_COLUMNS or PENDING_COLUMNS.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from rich.text import Text

from cruise.decisions.scan.findings import ScanFindings, SlowStart
from cruise.decisions.scan.pending_pods import PendingPod
from cruise.decisions.scan.risks import ContainerRisk, ContainerRiskKind
from cruise.decisions.scan.waste import WorkloadRequests
from cruise.domain.prices import format_money
from cruise.domain.resources import ResourceName, Resources
from cruise.interfaces.coverage import CoverageRow, build_amounts_document
from cruise.interfaces.plan_table import format_change
from cruise.interfaces.reasons import REASON_DESCRIPTIONS
from cruise.interfaces.scan.finding_text import (
    RISK_TITLES,
    describe_fit_after_sizing,
    describe_pending_pod,
    describe_risk,
)
from cruise.interfaces.text import (
    JsonValue,
    convert_to_json,
    format_cores,
    format_cpu,
    format_gibibytes,
    format_mebibytes,
)

RowT = TypeVar("RowT", ContainerRisk, WorkloadRequests, PendingPod, CoverageRow, SlowStart)
ContainerRowT = TypeVar("ContainerRowT", ContainerRisk, SlowStart)

_CPU_RISKS = (ContainerRiskKind.CPU_THROTTLED, ContainerRiskKind.CPU_STARVED)
_STYLES = {
    ContainerRiskKind.OOM_KILLED: ("bold red", "red"),
    ContainerRiskKind.MEMORY_LEAK_SUSPECTED: ("red", "red"),
    ContainerRiskKind.MEMORY_NEAR_LIMIT: ("red", "red"),
    ContainerRiskKind.HEAP_ABOVE_LIMIT: ("yellow", "amber"),
    ContainerRiskKind.MEMORY_UNDER_REQUESTED: ("yellow", "amber"),
    ContainerRiskKind.CPU_THROTTLED: ("yellow", "amber"),
    ContainerRiskKind.CPU_STARVED: ("yellow", "amber"),
    ContainerRiskKind.NO_REQUESTS: ("dim", ""),
}


@dataclass(frozen=True, slots=True)
class ScanPageCell:
    """A cell of the page: texts with their tags (`small`, `b`, `chip COLOUR`, `arrow`), and its sort value.

    `bar` has the requested amount and the target, `note` is the tooltip of a chip.
    """

    parts: Sequence[tuple[str, str]]
    value: float | None = None
    bar: tuple[int, int] | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class ScanColumn(Generic[RowT]):
    """One column; a report leaves out a column that has no function for it.

    `heading` and `cell` are for the terminal; a narrow terminal uses `narrow_heading` as heading and drops
    `only_if_wide` columns. `title` and `page` are for the page, `document` for JSON and YAML, `record` for CSV.
    """

    heading: str = ""
    cell: Callable[[RowT, ScanFindings, bool], Text] | None = None
    title: str = ""
    page: Callable[[RowT, ScanFindings], ScanPageCell] | None = None
    document: Callable[[RowT, ScanFindings], Mapping[str, JsonValue]] | None = None
    record: Mapping[str, Callable[[RowT, ScanFindings], object]] = field(default_factory=dict)
    kind: str = ""  # `number`, `name` or `why`
    narrow_heading: str = ""
    only_if_wide: bool = False
    sorted_by: bool = False


def format_monthly_cost(amount: Resources, findings: ScanFindings) -> str:
    """Write the price of an amount for a month."""
    return format_money(findings.prices.compute_monthly_cost(amount), findings.prices.currency)


def _risk_figures(risk: ContainerRisk, findings: ScanFindings) -> Mapping[str, JsonValue]:
    document: dict[str, JsonValue] = {"message": describe_risk(risk, findings.at)}
    unit = "Millicores" if risk.kind in _CPU_RISKS else "Bytes"
    if risk.kind is ContainerRiskKind.NO_REQUESTS:
        return document | {"missing": [name.lower() for name in risk.missing]}
    if risk.kind is ContainerRiskKind.OOM_KILLED:
        killed_at = convert_to_json(risk.killed_at)
        figures = {"limitBytes": risk.observed or None, "killedAt": killed_at, "restarts": risk.restarts}
        return document | figures | {"remedy": convert_to_json(risk.remedy)}
    return document | {f"observed{unit}": risk.observed, f"allowed{unit}": risk.allowed}


def build_container_column(row: type[ContainerRowT]) -> ScanColumn[ContainerRowT]:
    """Return the column that names the container of a row of this type."""

    def format_container(one: ContainerRowT, findings: ScanFindings, wide: bool) -> Text:
        workload = one.workload if wide else one.workload.partition("/")[2]
        return Text.assemble((f"{one.namespace}/", "dim"), workload, (f" {one.container}", "bold"))

    return ScanColumn(
        "CONTAINER",
        format_container,
        "Container",
        lambda one, _: ScanPageCell([(f"{one.namespace}/", "small"), (f"{one.workload} ", ""), (one.container, "b")]),
        lambda one, _: {"namespace": one.namespace, "workload": one.workload, "container": one.container},
        {
            "namespace": lambda one, _: one.namespace,
            "workload": lambda one, _: one.workload,
            "container": lambda one, _: one.container,
        },
        "name",
    )


RISK_COLUMNS: tuple[ScanColumn[ContainerRisk], ...] = (
    ScanColumn(
        "RISK",
        lambda one, _, wide: Text(RISK_TITLES[one.kind], style=_STYLES[one.kind][0]),
        "Risk",
        lambda one, findings: ScanPageCell(
            [(RISK_TITLES[one.kind], f"chip {_STYLES[one.kind][1]}")], list(ContainerRiskKind).index(one.kind)
        ),
        lambda one, _: {"kind": one.kind.value},
        {"kind": lambda one, _: one.kind.value},
    ),
    build_container_column(ContainerRisk),
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
        "DESCRIPTION",
        lambda one, findings, wide: Text(describe_risk(one, findings.at)),
        "Description",
        lambda one, findings: ScanPageCell([(f"{describe_risk(one, findings.at)} ", ""), (one.worst_pod, "small")]),
        _risk_figures,
        {"message": lambda one, findings: describe_risk(one, findings.at)},
        "why",
    ),
)


def _create_change_cells(
    write: Callable[[int], str], resource: ResourceName
) -> tuple[
    Callable[[WorkloadRequests, ScanFindings, bool], Text], Callable[[WorkloadRequests, ScanFindings], ScanPageCell]
]:
    """Return the cells `requested → target` of one resource for the terminal and the page."""

    def cell(row: WorkloadRequests, findings: ScanFindings, wide: bool) -> Text:
        return format_change(write(row.requested.get(resource)), write(row.target.get(resource)))

    def page(row: WorkloadRequests, findings: ScanFindings) -> ScanPageCell:
        requested, target = row.requested.get(resource), row.target.get(resource)
        parts = [(write(requested), ""), ("→", "arrow"), (write(target), "")]
        return ScanPageCell(parts, row.reclaimable.get(resource), (requested, target))

    return cell, page


_CPU_CELLS = _create_change_cells(format_cores, ResourceName.CPU)
_MEMORY_CELLS = _create_change_cells(format_gibibytes, ResourceName.MEMORY)

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
        "CPU CORES",
        _CPU_CELLS[0],
        "CPU cores, requested → target",
        _CPU_CELLS[1],
        lambda one, _: {
            "requested": build_amounts_document(one.requested),
            "recommended": build_amounts_document(one.target),
            "planned": build_amounts_document(one.planned),
            "reclaimable": build_amounts_document(one.reclaimable),
            "used": build_amounts_document(one.used),
        },
        {
            "cpu_requested_millicores": lambda one, _: one.requested.cpu_millicores,
            "cpu_target_millicores": lambda one, _: one.target.cpu_millicores,
            "cpu_planned_millicores": lambda one, _: one.planned.cpu_millicores,
            "cpu_used_millicores": lambda one, _: one.used.cpu_millicores,
        },
        "number",
        narrow_heading="CORES",
    ),
    ScanColumn(
        "MEMORY GIB",
        _MEMORY_CELLS[0],
        "Memory GiB, requested → target",
        _MEMORY_CELLS[1],
        record={
            "memory_requested_bytes": lambda one, _: one.requested.memory_bytes,
            "memory_target_bytes": lambda one, _: one.target.memory_bytes,
            "memory_planned_bytes": lambda one, _: one.planned.memory_bytes,
            "memory_used_bytes": lambda one, _: one.used.memory_bytes,
        },
        kind="number",
        narrow_heading="GIB",
    ),
    ScanColumn(
        "SHARE",
        lambda one, _, wide: Text("<0.1%" if one.share < 0.001 else f"{one.share:.1%}"),
        "Share of cluster",
        lambda one, _: ScanPageCell([(f"{one.share:.2%}", "")], one.share),
        lambda one, _: {"shareOfCluster": round(one.share, 6)},
        {"share_of_cluster": lambda one, _: f"{one.share:.6f}"},
        "number",
        sorted_by=True,
    ),
    ScanColumn(
        "MONTHLY",
        lambda one, findings, wide: Text(format_monthly_cost(one.reclaimable, findings)),
        "Monthly",
        lambda one, findings: ScanPageCell(
            [(format_monthly_cost(one.reclaimable, findings), "")],
            findings.prices.compute_monthly_cost(one.reclaimable),
        ),
        lambda one, findings: {
            "reclaimableMonthlyCost": round(findings.prices.compute_monthly_cost(one.reclaimable), 2)
        },
        {
            "reclaimable_monthly_cost": lambda one, findings: (
                f"{findings.prices.compute_monthly_cost(one.reclaimable):.2f}"
            )
        },
        "number",
    ),
    ScanColumn(
        "SKIPPED",
        lambda one, _, wide: Text(
            f"{one.skipped_pods:,}: {one.skip_reason.value}" if one.skip_reason else "", style="dim"
        ),
        "Skipped pods",
        lambda one, _: ScanPageCell(
            [] if one.skip_reason is None else [(f"{one.skipped_pods}: {one.skip_reason.value}", "chip")],
            note="" if one.skip_reason is None else REASON_DESCRIPTIONS[one.skip_reason],
        ),
        lambda one, _: {"leftAlone": one.skipped_pods, "leftAloneReason": convert_to_json(one.skip_reason)},
        {"skip_reason": lambda one, _: one.skip_reason.value if one.skip_reason is not None else ""},
        only_if_wide=True,
    ),
)


def _pending_figures(pod: PendingPod, findings: ScanFindings) -> Mapping[str, JsonValue]:
    return {
        "since": convert_to_json(pod.since),
        "gated": pod.scheduling_gated,
        "nodes": pod.nodes,
        "obstacles": convert_to_json(pod.obstacles),
        "schedulableNow": pod.schedulable_now,
        "fitsAfterSizing": pod.schedulable_after_sizing,
        "bestNode": pod.best_node,
        "reclaimableOnBestNode": build_amounts_document(pod.reclaimed_on_best_node),
        "message": describe_pending_pod(pod),
    }


def _build_fits_cell(pod: PendingPod, findings: ScanFindings) -> ScanPageCell:
    answer, _, detail = describe_fit_after_sizing(pod).partition(", ")
    parts = [(answer, "chip green" if pod.best_node is not None else "chip"), (f" {detail}", "")] if answer else []
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
            "requested": build_amounts_document(one.need),
        },
        {
            "kind": lambda one, _: (
                "fits-after-sizing"
                if one.best_node is not None
                else "schedulable-now"
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
        "CPU cores",
        lambda one, _: ScanPageCell([(format_cores(one.need.cpu_millicores), "")], one.need.cpu_millicores),
        record={"cpu_requested_millicores": lambda one, _: one.need.cpu_millicores},
        kind="number",
    ),
    ScanColumn(
        "MEMORY",
        lambda one, _, wide: Text(format_mebibytes(one.need.memory_bytes)),
        "Memory GiB",
        lambda one, _: ScanPageCell([(format_gibibytes(one.need.memory_bytes), "")], one.need.memory_bytes),
        record={"memory_requested_bytes": lambda one, _: one.need.memory_bytes},
        kind="number",
    ),
    ScanColumn(
        "REASON",
        lambda one, _, wide: Text(describe_pending_pod(one)),
        "Reason",
        lambda one, _: ScanPageCell([(describe_pending_pod(one), "")]),
        _pending_figures,
        {
            "message": lambda one, _: "; ".join(
                part for part in (describe_pending_pod(one), describe_fit_after_sizing(one)) if part
            )
        },
        "why",
    ),
    ScanColumn(
        "FITS AFTER SIZING",
        lambda one, _, wide: Text(
            describe_fit_after_sizing(one), style="green" if one.best_node is not None else "dim"
        ),
        "Fits after sizing",
        _build_fits_cell,
    ),
)


def build_finding_document(columns: Sequence[ScanColumn[RowT]], row: RowT, findings: ScanFindings) -> JsonValue:
    """Return one finding for JSON and YAML."""
    document: dict[str, JsonValue] = {}
    for column in columns:
        document |= column.document(row, findings) if column.document is not None else {}
    return document


def build_finding_record(columns: Sequence[ScanColumn[RowT]], row: RowT, findings: ScanFindings) -> dict[str, object]:
    """Return one finding for CSV."""
    return {name: write(row, findings) for column in columns for name, write in column.record.items()}

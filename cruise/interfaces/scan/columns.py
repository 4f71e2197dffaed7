"""The columns of a scan's three sections, each once for all reports: terminal, page, JSON and CSV.

To add a column, add it to RISKS, WASTE or PENDING; every report reads them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from rich.text import Text

from cruise.decisions.scan.findings import Findings
from cruise.decisions.scan.pending import PendingPod
from cruise.decisions.scan.risks import Risk, RiskKind
from cruise.decisions.scan.waste import WorkloadWaste
from cruise.domain.resources import Resources
from cruise.interfaces.amounts import cores_text, cpu_text, gibibytes_text, memory_text, money_text
from cruise.interfaces.plan.table import arrow
from cruise.interfaces.reasons import WORDS
from cruise.interfaces.scan.finding_words import RISK_TITLES, where_room, why_at_risk, why_pending
from cruise.interfaces.shapes import Shape, shape

Row = TypeVar("Row", Risk, WorkloadWaste, PendingPod)

_OF_CPU = (RiskKind.CPU_THROTTLED, RiskKind.CPU_STARVED)
_STYLES = {
    RiskKind.OOM_KILLED: ("bold red", "red"),
    RiskKind.MEMORY_GROWS: ("red", "red"),
    RiskKind.MEMORY_NEAR_LIMIT: ("red", "red"),
    RiskKind.MEMORY_UNDER_REQUESTED: ("yellow", "amber"),
    RiskKind.CPU_THROTTLED: ("yellow", "amber"),
    RiskKind.CPU_STARVED: ("yellow", "amber"),
    RiskKind.NO_REQUESTS: ("dim", ""),
}


@dataclass(frozen=True, slots=True)
class PageCell:
    """A cell of the page: texts with their tags (`small`, `b`, `chip COLOUR`, `arrow`), and what it is sorted by.

    `bar` has an amount and what is kept of it, `note` what a chip shows when pointed at.
    """

    parts: Sequence[tuple[str, str]]
    value: float | None = None
    bar: tuple[int, int] | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """One column; what a report does not have is left out.

    `heading` and `cell` are the terminal's, where `narrow` takes the place of a heading and `wide` columns are dropped;
    `title` and `page` are the page's, `document` the keys in JSON and YAML, `record` those in CSV.
    """

    heading: str = ""
    cell: Callable[[Row, Findings, bool], Text] | None = None
    title: str = ""
    page: Callable[[Row, Findings], PageCell] | None = None
    document: Callable[[Row, Findings], Mapping[str, Shape]] | None = None
    record: Mapping[str, Callable[[Row, Findings], object]] = field(default_factory=dict)
    kind: str = ""  # `number`, `name` or `why`
    narrow: str = ""
    wide: bool = False
    sorted_by: bool = False


def amounts_document(amounts: Resources) -> Shape:
    """Return CPU and memory as the documents have them."""
    return {"cpuMillicores": amounts.cpu_millicores, "memoryBytes": amounts.memory_bytes}


def _risk_figures(risk: Risk, findings: Findings) -> Mapping[str, Shape]:
    document: dict[str, Shape] = {"why": why_at_risk(risk, findings.at)}
    unit = "Millicores" if risk.kind in _OF_CPU else "Bytes"
    if risk.kind is RiskKind.NO_REQUESTS:
        return document | {"missing": [name.lower() for name in risk.missing]}
    if risk.kind is RiskKind.OOM_KILLED:
        killed_at = shape(risk.killed_at)
        figures = {"limitBytes": risk.observed or None, "killedAt": killed_at, "restarts": risk.restarts}
        return document | figures | {"remedy": shape(risk.remedy)}
    return document | {f"observed{unit}": risk.observed, f"allowed{unit}": risk.allowed}


def _risk_container(risk: Risk, findings: Findings, wide: bool) -> Text:
    workload = risk.workload if wide else risk.workload.partition("/")[2]
    return Text.assemble((f"{risk.namespace}/", "dim"), workload, (f" {risk.container}", "bold"))


RISKS: tuple[Column[Risk], ...] = (
    Column(
        "WHAT",
        lambda one, _, wide: Text(RISK_TITLES[one.kind], style=_STYLES[one.kind][0]),
        "What",
        lambda one, findings: PageCell(
            [(RISK_TITLES[one.kind], f"chip {_STYLES[one.kind][1]}")], list(RiskKind).index(one.kind)
        ),
        lambda one, _: {"kind": one.kind.value},
        {"kind": lambda one, _: one.kind.value},
    ),
    Column(
        "CONTAINER",
        _risk_container,
        "Container",
        lambda one, _: PageCell([(f"{one.namespace}/", "small"), (f"{one.workload} ", ""), (one.container, "b")]),
        lambda one, _: {"namespace": one.namespace, "workload": one.workload, "container": one.container},
        {
            "namespace": lambda one, _: one.namespace,
            "workload": lambda one, _: one.workload,
            "container": lambda one, _: one.container,
        },
        "name",
    ),
    Column(
        "PODS",
        lambda one, _, wide: Text(f"{one.pods}/{one.of_pods}"),
        "Pods",
        lambda one, _: PageCell([(str(one.pods), ""), (f" of {one.of_pods}", "small")], one.pods),
        lambda one, _: {"pods": one.pods, "ofPods": one.of_pods, "worstPod": one.worst_pod},
        {"pod": lambda one, _: one.worst_pod, "pods": lambda one, _: one.pods},
        "number",
    ),
    Column(
        "WHY",
        lambda one, findings, wide: Text(why_at_risk(one, findings.at)),
        "Why",
        lambda one, findings: PageCell([(f"{why_at_risk(one, findings.at)} ", ""), (one.worst_pod, "small")]),
        _risk_figures,
        {"why": lambda one, findings: why_at_risk(one, findings.at)},
        "why",
    ),
)


def _change(
    write: Callable[[int], str], of: Callable[[Resources], int]
) -> tuple[Callable[[WorkloadWaste, Findings, bool], Text], Callable[[WorkloadWaste, Findings], PageCell]]:
    """Return the cells of one resource, from what is requested to the target."""

    def cell(row: WorkloadWaste, findings: Findings, wide: bool) -> Text:
        return arrow(write(of(row.requested)), write(of(row.recommended)))

    def page(row: WorkloadWaste, findings: Findings) -> PageCell:
        before, after = of(row.requested), of(row.recommended)
        return PageCell([(write(before), ""), ("→", "arrow"), (write(after), "")], of(row.reclaimable), (before, after))

    return cell, page


_CORES = _change(cores_text, lambda amounts: amounts.cpu_millicores)
_GIBIBYTES = _change(gibibytes_text, lambda amounts: amounts.memory_bytes)

WASTE: tuple[Column[WorkloadWaste], ...] = (
    Column(
        record={
            "kind": lambda one, _: (
                "over-requested" if one.share > 0 else "under-requested" if one.share < 0 else "as-needed"
            )
        }
    ),
    Column(
        "WORKLOAD",
        lambda one, _, wide: Text.assemble((f"{one.namespace}/", "dim"), one.workload),
        "Workload",
        lambda one, _: PageCell([(f"{one.namespace}/", "small"), (one.workload, "")]),
        lambda one, _: {"namespace": one.namespace, "workload": one.workload},
        {"namespace": lambda one, _: one.namespace, "workload": lambda one, _: one.workload},
        "name",
    ),
    Column(
        "PODS",
        lambda one, _, wide: Text(f"{one.pods:,}"),
        "Pods",
        lambda one, _: PageCell([(f"{one.pods:,}", "")], one.pods),
        lambda one, _: {"pods": one.pods},
        {"pods": lambda one, _: one.pods},
        "number",
    ),
    Column(
        "CORES",
        _CORES[0],
        "Cores",
        _CORES[1],
        lambda one, _: {
            "requested": amounts_document(one.requested),
            "recommended": amounts_document(one.recommended),
            "planned": amounts_document(one.planned),
            "reclaimable": amounts_document(one.reclaimable),
            "used": amounts_document(one.used),
        },
        {
            "cpu_requested_millicores": lambda one, _: one.requested.cpu_millicores,
            "cpu_recommended_millicores": lambda one, _: one.recommended.cpu_millicores,
            "cpu_planned_millicores": lambda one, _: one.planned.cpu_millicores,
            "cpu_used_millicores": lambda one, _: one.used.cpu_millicores,
        },
        "number",
    ),
    Column(
        "GIB",
        _GIBIBYTES[0],
        "GiB",
        _GIBIBYTES[1],
        record={
            "memory_requested_bytes": lambda one, _: one.requested.memory_bytes,
            "memory_recommended_bytes": lambda one, _: one.recommended.memory_bytes,
            "memory_planned_bytes": lambda one, _: one.planned.memory_bytes,
            "memory_used_bytes": lambda one, _: one.used.memory_bytes,
        },
        kind="number",
    ),
    Column(
        "SHARE",
        lambda one, _, wide: Text(f"{one.share:.1%}"),
        "Share of cluster",
        lambda one, _: PageCell([(f"{one.share:.2%}", "")], one.share),
        lambda one, _: {"shareOfCluster": round(one.share, 6)},
        {"share_of_cluster": lambda one, _: f"{one.share:.6f}"},
        "number",
        sorted_by=True,
    ),
    Column(
        "$/MONTH",
        lambda one, findings, wide: Text(money_text(findings.prices.month(one.reclaimable))),
        "$ a month",
        lambda one, findings: PageCell(
            [(money_text(findings.prices.month(one.reclaimable)), "")], findings.prices.month(one.reclaimable)
        ),
        lambda one, findings: {"estimatedMonthlySaving": round(findings.prices.month(one.reclaimable), 2)},
        {"estimated_monthly_saving": lambda one, findings: f"{findings.prices.month(one.reclaimable):.2f}"},
        "number",
        narrow="$/MO",
    ),
    Column(
        "LEFT ALONE",
        lambda one, _, wide: Text(f"{one.held:,}: {one.held_reason.value}" if one.held_reason else "", style="dim"),
        "Left alone",
        lambda one, _: PageCell(
            [] if one.held_reason is None else [(f"{one.held}: {one.held_reason.value}", "chip")],
            note="" if one.held_reason is None else WORDS[one.held_reason],
        ),
        lambda one, _: {"leftAlone": one.held, "leftAloneReason": shape(one.held_reason)},
        {"why": lambda one, _: one.held_reason.value if one.held_reason is not None else ""},
        wide=True,
    ),
)


def _pending_figures(pod: PendingPod, findings: Findings) -> Mapping[str, Shape]:
    return {
        "since": shape(pod.since),
        "gated": pod.gated,
        "nodes": pod.nodes,
        "obstacles": shape(pod.obstacles),
        "fitsNow": pod.fits_now,
        "roomAfterSizing": pod.room_after,
        "bestNode": pod.best,
        "freedOnBestNode": amounts_document(pod.best_freed),
        "why": why_pending(pod),
    }


def _room_on_page(pod: PendingPod, findings: Findings) -> PageCell:
    word, _, rest = where_room(pod).partition(", ")
    parts = [(word, "chip green" if pod.best is not None else "chip"), (f" {rest}", "")] if word else []
    return PageCell(parts, pod.room_after)


PENDING: tuple[Column[PendingPod], ...] = (
    Column(
        "POD",
        lambda one, _, wide: Text.assemble((f"{one.namespace}/", "dim"), one.pod),
        "Pod",
        lambda one, _: PageCell([(f"{one.namespace}/", "small"), (one.pod, "")]),
        lambda one, _: {
            "namespace": one.namespace,
            "pod": one.pod,
            "workload": one.workload or None,
            "priority": one.priority,
            "needs": amounts_document(one.need),
        },
        {
            "kind": lambda one, _: (
                "room-after-sizing" if one.best is not None else "fits-now" if one.fits_now else "no-room"
            ),
            "namespace": lambda one, _: one.namespace,
            "workload": lambda one, _: one.workload,
            "pod": lambda one, _: one.pod,
            "pods": lambda one, _: 1,
        },
        "name",
    ),
    Column(
        "CPU",
        lambda one, _, wide: Text(cpu_text(one.need.cpu_millicores)),
        "Cores",
        lambda one, _: PageCell([(cores_text(one.need.cpu_millicores), "")], one.need.cpu_millicores),
        record={"cpu_requested_millicores": lambda one, _: one.need.cpu_millicores},
        kind="number",
    ),
    Column(
        "MEMORY",
        lambda one, _, wide: Text(memory_text(one.need.memory_bytes)),
        "GiB",
        lambda one, _: PageCell([(gibibytes_text(one.need.memory_bytes), "")], one.need.memory_bytes),
        record={"memory_requested_bytes": lambda one, _: one.need.memory_bytes},
        kind="number",
    ),
    Column(
        "WHY",
        lambda one, _, wide: Text(why_pending(one)),
        "Why",
        lambda one, _: PageCell([(why_pending(one), "")]),
        _pending_figures,
        {"why": lambda one, _: "; ".join(part for part in (why_pending(one), where_room(one)) if part)},
        "why",
    ),
    Column(
        "ROOM BY SIZING",
        lambda one, _, wide: Text(where_room(one), style="green" if one.best is not None else "dim"),
        "Room by sizing",
        _room_on_page,
    ),
)


def document_of(columns: Sequence[Column[Row]], row: Row, findings: Findings) -> Shape:
    """Return one finding for JSON and YAML."""
    found: dict[str, Shape] = {}
    for column in columns:
        found |= column.document(row, findings) if column.document is not None else {}
    return found


def record_of(columns: Sequence[Column[Row]], row: Row, findings: Findings) -> dict[str, object]:
    """Return one finding for CSV."""
    return {name: write(row, findings) for column in columns for name, write in column.record.items()}

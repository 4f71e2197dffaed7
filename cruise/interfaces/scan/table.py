"""A scan's findings for a terminal: coverage, containers at risk, reclaimable requests, pending pods."""

from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cruise.decisions.scan.findings import FindingsBasis, ImplausibleUsage, ScanFindings
from cruise.decisions.scan.pending_pods import PendingPod
from cruise.domain.prices import format_money, format_prices
from cruise.interfaces.coverage import (
    PARTLY_KNOWN_NOTE,
    describe_best_effort_pods,
    describe_coverage,
    list_coverage_rows,
)
from cruise.interfaces.plan_table import WIDE_TABLE_COLUMNS
from cruise.interfaces.reasons import REJECTION_DESCRIPTIONS
from cruise.interfaces.scan.columns import PENDING_COLUMNS, RISK_COLUMNS, WASTE_COLUMNS, RowT, ScanColumn
from cruise.interfaces.scan.coverage_columns import COVERAGE_COLUMNS, SLOW_START_COLUMNS, SLOW_STARTS_NOTE
from cruise.interfaces.scan.report import SAVING_ESTIMATE_NOTE, ScanReport
from cruise.interfaces.text import format_cores, format_count, format_gibibytes, format_share

_MAX_RISKS = 20
_MAX_WORKLOADS = 15
_MAX_PENDING = 15
TERM_EXPLANATIONS = (
    "target: what every container should request, as in cruise plan and explain; workloads: requested → target. "
    "planned: the requests after the next node pass, which may write more than the target, so that the next rise needs "
    "no resize, and does not write small changes. "
    "reclaimable: requested − target, net of workloads that should request more."
)


def render_scan_table(report: ScanReport, console: Console) -> Iterator[RenderableType]:
    """Yield the parts of the report."""
    findings = report.findings
    wide = console.width >= WIDE_TABLE_COLUMNS
    yield Text(describe_basis(findings.basis), style="dim")
    yield Text(f"Statistics: {report.statistics_source}; at {findings.at:%Y-%m-%d %H:%M} UTC.", style="dim")
    if findings.implausible:
        yield Text(describe_containers_with_implausible_usage(findings.implausible), style="yellow")
    yield from _render_coverage(findings, wide)
    yield from _render_risks(findings, wide)
    yield from _render_waste(findings, wide)
    yield from _render_slow_starts(findings, wide)
    yield from _render_pending(findings, wide)


def describe_basis(basis: FindingsBasis) -> str:
    """Return the size of the cluster, and the share of its containers that have statistics."""
    parts = [
        format_count(basis.nodes, "node"),
        format_count(basis.pods, "pod"),
        format_count(basis.containers, "container"),
        f"{format_share(basis.known, basis.containers)} with fresh statistics",
    ]
    if basis.pressure_known < basis.known:
        unknown = basis.known - basis.pressure_known
        parts.append(f"{format_share(unknown, basis.known)} with unknown CPU pressure")
    if basis.history_since is not None:
        parts.append(f"history since {basis.history_since:%Y-%m-%d %H:%M}")
    return ", ".join(parts)


def describe_containers_with_implausible_usage(found: Sequence[ImplausibleUsage]) -> str:
    """Return the number of containers with rejected samples by reason, each with an example."""
    parts = (
        f"{format_count(one.containers, 'container')}: {REJECTION_DESCRIPTIONS[one.reason]}, such as "
        f"{one.namespace}/{one.pod} "
        f"{one.container} ({one.percent} % of a window)"
        for one in found
    )
    return f"Samples that cannot be true are rejected. {'; '.join(parts)}."


def render_heading(text: str, note: str = "") -> Text:
    """Return the heading of a section."""
    return Text.assemble(("\n" + text, "bold"), (f"  {note}" if note else "", "dim"))


def create_table(*columns: tuple[str, bool]) -> Table:
    """Return a table; a column is its heading and whether it has numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading, is_number in columns:
        table.add_column(
            heading, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold", header_style="dim"
        )
    return table


def _render_coverage(findings: ScanFindings, wide: bool) -> Iterator[RenderableType]:
    rows = list_coverage_rows(findings.coverage)
    yield render_heading("Coverage", describe_coverage(findings.coverage))
    yield _render_section(COVERAGE_COLUMNS, rows, findings, wide)
    for row in () if wide else rows[1:]:
        yield Padding(Text.assemble((f"{row.label} → ", "dim"), row.unlock_description), (0, 0, 0, 2))
    if any(row.is_partly_known for row in rows):
        yield Text(PARTLY_KNOWN_NOTE, style="dim")
    best_effort = describe_best_effort_pods(findings.totals)
    if best_effort:
        yield Text(best_effort, style="yellow")


def _render_risks(findings: ScanFindings, wide: bool) -> Iterator[RenderableType]:
    if not findings.risks:
        yield render_heading("At risk", "no container")
        return
    containers = sum(
        pods for pods in {(r.namespace, r.workload, r.container): r.total_pods for r in findings.risks}.values()
    )
    yield render_heading(
        "At risk", f"{format_count(len(findings.risks), 'finding')}, {format_count(containers, 'container')}"
    )
    yield _render_section(RISK_COLUMNS, findings.risks[:_MAX_RISKS], findings, wide)
    yield from _render_more(len(findings.risks) - _MAX_RISKS)


def _render_section(
    columns: Sequence[ScanColumn[RowT]], rows: Sequence[RowT], findings: ScanFindings, wide: bool
) -> Table:
    shown = [column for column in columns if column.cell is not None and (wide or not column.only_if_wide)]
    headings = [column.heading if wide else column.narrow_heading or column.heading for column in shown]
    table = create_table(*zip(headings, [column.kind == "number" for column in shown], strict=True))
    for row in rows:
        table.add_row(*(column.cell(row, findings, wide) for column in shown if column.cell is not None))
    return table


def _render_more(number: int) -> Iterator[RenderableType]:
    if number > 0:
        yield Text(f"and {number:,} more: --format json, yaml, csv or html has all", style="dim")


def _render_waste(findings: ScanFindings, wide: bool) -> Iterator[RenderableType]:
    totals, prices = findings.totals, findings.prices
    yield render_heading("Reclaimable", "requests above the targets, in mode full; shares of allocatable")
    sums = create_table(("", False), ("CPU CORES", True), ("SHARE", True), ("MEMORY GIB", True), ("SHARE", True))
    for label, amounts in (
        ("allocatable", totals.allocatable),
        ("requested", totals.requested),
        ("target", totals.target),
        ("planned", totals.planned),
        ("used", totals.used),
        ("reclaimable", totals.reclaimable),
    ):
        sums.add_row(
            label,
            format_cores(amounts.cpu_millicores),
            format_share(amounts.cpu_millicores, totals.allocatable.cpu_millicores),
            format_gibibytes(amounts.memory_bytes),
            format_share(amounts.memory_bytes, totals.allocatable.memory_bytes),
            style="bold" if label == "reclaimable" else None,
        )
    yield sums
    yield Text(TERM_EXPLANATIONS, style="dim")
    month = prices.compute_monthly_cost(totals.reclaimable)
    yield Text.assemble(
        (f"about {format_money(abs(month), prices.currency)} {'less' if month >= 0 else 'more'} a month", "bold"),
        (f"  {SAVING_ESTIMATE_NOTE}: {format_prices(prices)}", "dim"),
    )
    if findings.full_nodes:
        names = ", ".join(findings.full_nodes[:3])
        more = f" and {len(findings.full_nodes) - 3:,} more" if len(findings.full_nodes) > 3 else ""
        yield Text(
            f"{format_count(len(findings.full_nodes), 'node is', 'nodes are')} overcommitted, even with all pods at "
            f"their targets: {names}{more}",
            style="yellow",
        )
    over_requested = [row for row in findings.workloads if row.share > 0]
    if over_requested:
        yield Group("", _render_section(WASTE_COLUMNS, over_requested[:_MAX_WORKLOADS], findings, wide))
    yield from _render_more(len(over_requested) - _MAX_WORKLOADS)
    under_requested = sum(row.share < 0 for row in findings.workloads)
    if under_requested:
        its, their = "workload should request more", "workloads should request more"
        yield Text(format_count(under_requested, its, their), style="dim")


def _render_slow_starts(findings: ScanFindings, wide: bool) -> Iterator[RenderableType]:
    if not findings.slow_starts:
        return
    yield render_heading("Slow starts", format_count(len(findings.slow_starts), "container"))
    yield _render_section(SLOW_START_COLUMNS, findings.slow_starts[:_MAX_WORKLOADS], findings, wide)
    yield from _render_more(len(findings.slow_starts) - _MAX_WORKLOADS)
    yield Text(SLOW_STARTS_NOTE, style="dim")


def _render_pending(findings: ScanFindings, wide: bool) -> Iterator[RenderableType]:
    if not findings.pending:
        yield render_heading("Pending", "no pod")
        return
    fitting = sum(pod.best_node is not None for pod in findings.pending)
    yield render_heading(
        "Pending",
        f"{format_count(len(findings.pending), 'pod')}; {fitting:,} would fit, each alone, with all running pods at "
        "their targets",
    )
    shown = findings.pending[:_MAX_PENDING]
    if wide:
        yield _render_section(PENDING_COLUMNS, shown, findings, wide)
    else:
        yield from (_render_pending_pod(pod, findings) for pod in shown)
    yield from _render_more(len(findings.pending) - _MAX_PENDING)
    yield Text("cruise pack --usage plans where they can run, and what is resized or moved for them", style="dim")


def _render_pending_pod(pod: PendingPod, findings: ScanFindings) -> RenderableType:
    """Return the cells of a pod below one another, for a narrow terminal."""
    cells = [column.cell(pod, findings, False) for column in PENDING_COLUMNS if column.cell is not None]
    name, cpu, memory, *others = cells
    first = Text.assemble(name, f"  requests {cpu} CPU, {memory} memory")
    return Group(first, *(Padding(cell, (0, 0, 0, 2)) for cell in others if cell))

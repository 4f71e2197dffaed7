"""A scan's findings for people at a terminal: what is at risk, what is wasted, what is pending."""

from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cruise.decisions.scan.findings import FindingsBasis, ImplausibleUsage, ScanFindings
from cruise.decisions.scan.pending_pods import PendingPod
from cruise.interfaces.plan_table import WIDE_TABLE_COLUMNS
from cruise.interfaces.reasons import REJECTION_DESCRIPTIONS
from cruise.interfaces.scan.columns import PENDING_COLUMNS, RISK_COLUMNS, WASTE_COLUMNS, RowT, ScanColumn
from cruise.interfaces.scan.report import SAVING_ESTIMATE_NOTE, ScanReport
from cruise.interfaces.text import format_cores, format_count, format_gibibytes, format_money, format_share

_MOST_RISKS = 20
_MOST_WORKLOADS = 15
_MOST_PENDING = 15
TERM_EXPLANATIONS = (
    "target: what every container should have, as in cruise plan and explain; workloads: requested → target. "
    "planned: what they request after the next pass, which may write more than the target, so that the next rise needs "
    "no write, and leaves what is not worth a write yet. "
    "reclaimable: requested − target, net of what some should have more."
)


def render_scan_table(report: ScanReport, console: Console) -> Iterator[RenderableType]:
    """Yield the parts of the report."""
    findings = report.findings
    wide = console.width >= WIDE_TABLE_COLUMNS
    yield Text(describe_basis(findings.basis), style="dim")
    yield Text(f"Rests on {report.statistics_source}, judged at {findings.at:%Y-%m-%d %H:%M} UTC.", style="dim")
    if findings.implausible:
        yield Text(describe_implausible_usage(findings.implausible), style="yellow")
    yield from _risks(findings, wide)
    yield from _waste(findings, wide)
    yield from _pending(findings, wide)


def describe_basis(basis: FindingsBasis) -> str:
    """Say how much of the cluster is known."""
    parts = [
        format_count(basis.nodes, "node"),
        format_count(basis.pods, "pod"),
        format_count(basis.containers, "container"),
        f"fresh statistics of {format_share(basis.known, basis.containers)}",
    ]
    if basis.pressure_known < basis.known:
        unknown = basis.known - basis.pressure_known
        parts.append(f"CPU pressure unknown of {format_share(unknown, basis.known)}")
    if basis.history_since is not None:
        parts.append(f"history since {basis.history_since:%Y-%m-%d %H:%M}")
    return ", ".join(parts)


def describe_implausible_usage(found: Sequence[ImplausibleUsage]) -> str:
    """Say which containers have samples that cannot be true, and why."""
    parts = (
        f"{format_count(one.containers, 'container')}: {REJECTION_DESCRIPTIONS[one.reason]}, such as {one.namespace}/{one.pod} "
        f"{one.container} ({one.percent} % of a window)"
        for one in found
    )
    return f"Samples that cannot be true are refused. {'; '.join(parts)}."


def _heading(text: str, note: str = "") -> Text:
    return Text.assemble(("\n" + text, "bold"), (f"  {note}" if note else "", "dim"))


def _grid(*columns: tuple[str, bool]) -> Table:
    """Make a table; a column is its heading and whether it holds numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading, number in columns:
        table.add_column(
            heading, justify="right" if number else "left", no_wrap=number, overflow="fold", header_style="dim"
        )
    return table


def _risks(findings: ScanFindings, wide: bool) -> Iterator[RenderableType]:
    if not findings.risks:
        yield _heading("At risk", "no container")
        return
    containers = sum(
        pods for pods in {(r.namespace, r.workload, r.container): r.total_pods for r in findings.risks}.values()
    )
    yield _heading(
        "At risk", f"{format_count(len(findings.risks), 'finding')}, {format_count(containers, 'container')}"
    )
    yield _section(RISK_COLUMNS, findings.risks[:_MOST_RISKS], findings, wide)
    yield from _more(len(findings.risks) - _MOST_RISKS)


def _section(columns: Sequence[ScanColumn[RowT]], rows: Sequence[RowT], findings: ScanFindings, wide: bool) -> Table:
    shown = [column for column in columns if column.cell is not None and (wide or not column.wide)]
    headings = [column.heading if wide else column.narrow or column.heading for column in shown]
    table = _grid(*zip(headings, [column.kind == "number" for column in shown], strict=True))
    for row in rows:
        table.add_row(*(column.cell(row, findings, wide) for column in shown if column.cell is not None))
    return table


def _more(number: int) -> Iterator[RenderableType]:
    if number > 0:
        yield Text(f"and {number:,} more: --format json, yaml, csv or html has all", style="dim")


def _waste(findings: ScanFindings, wide: bool) -> Iterator[RenderableType]:
    totals, prices = findings.totals, findings.prices
    yield _heading("Waste", "requested beyond the targets, decided as mode full")
    sums = _grid(("", False), ("CORES", True), ("", True), ("GIB", True), ("", True))
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
        (f"about {format_money(abs(month))} {'less' if month >= 0 else 'more'} a month", "bold"),
        (
            f"  {SAVING_ESTIMATE_NOTE}: ${prices.cpu_core_hour:g} a core-hour, ${prices.memory_gib_hour:g} a GiB-hour",
            "dim",
        ),
    )
    if findings.full_nodes:
        names = ", ".join(findings.full_nodes[:3])
        more = f" and {len(findings.full_nodes) - 3:,} more" if len(findings.full_nodes) > 3 else ""
        yield Text(
            f"{format_count(len(findings.full_nodes), 'node does', 'nodes do')} not hold what their pods need: "
            f"{names}{more}",
            style="yellow",
        )
    wasteful = [row for row in findings.workloads if row.share > 0]
    if wasteful:
        yield Group("", _section(WASTE_COLUMNS, wasteful[:_MOST_WORKLOADS], findings, wide))
    yield from _more(len(wasteful) - _MOST_WORKLOADS)
    short = sum(row.share < 0 for row in findings.workloads)
    if short:
        its, their = "workload should have more than it requests", "workloads should have more than they request"
        yield Text(format_count(short, its, their), style="dim")
    if findings.skipped:
        held = ", ".join(f"{reason.value} {count:,}" for reason, count in findings.skipped.items())
        yield Text(f"pods left as they are: {held}", style="dim")


def _pending(findings: ScanFindings, wide: bool) -> Iterator[RenderableType]:
    if not findings.pending:
        yield _heading("Pending", "no pod")
        return
    rescued = sum(pod.best_node is not None for pod in findings.pending)
    yield _heading(
        "Pending",
        f"{format_count(len(findings.pending), 'pod')}; at their targets, neighbours would leave room for {rescued:,}, "
        "each judged alone",
    )
    shown = findings.pending[:_MOST_PENDING]
    if wide:
        yield _section(PENDING_COLUMNS, shown, findings, wide)
    else:
        yield from (_pending_lines(pod, findings) for pod in shown)
    yield from _more(len(findings.pending) - _MOST_PENDING)
    yield Text("cruise pack with --usage plans where they go, and what is resized or moved for it", style="dim")


def _pending_lines(pod: PendingPod, findings: ScanFindings) -> RenderableType:
    """Write a pod's cells one below the other, where they are too narrow beside each other."""
    cells = [column.cell(pod, findings, False) for column in PENDING_COLUMNS if column.cell is not None]
    name, cpu, memory, *others = cells
    first = Text.assemble(name, f"  needs {cpu}, {memory}")
    return Group(first, *(Padding(cell, (0, 0, 0, 2)) for cell in others if cell))

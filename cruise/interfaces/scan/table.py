"""A scan's findings for people at a terminal: what is at risk, what is wasted, what is pending."""

from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cruise.decisions.scan.findings import Basis, Findings
from cruise.decisions.scan.implausible import Implausible
from cruise.decisions.scan.pending import PendingPod
from cruise.interfaces.amounts import cores_text, count_text, gibibytes_text, money_text, share_text
from cruise.interfaces.plan.table import WIDE_COLUMNS
from cruise.interfaces.reasons import REFUSALS
from cruise.interfaces.scan.columns import PENDING, RISKS, WASTE, Column, Row
from cruise.interfaces.scan.report import ESTIMATE, ScanReport

_MOST_RISKS = 20
_MOST_WORKLOADS = 15
_MOST_PENDING = 15
TERMS = (
    "target: what every container should have, as in cruise plan and explain; workloads: requested → target. "
    "planned: what they request after the next pass, which may write more than the target, so that the next rise needs "
    "no write, and leaves what is not worth a write yet. "
    "reclaimable: requested − target, net of what some should have more."
)


def scan_table(report: ScanReport, console: Console) -> Iterator[RenderableType]:
    """Yield the parts of the report."""
    findings = report.findings
    wide = console.width >= WIDE_COLUMNS
    yield Text(basis_line(findings.basis), style="dim")
    yield Text(f"Rests on {report.rests_on}, judged at {findings.at:%Y-%m-%d %H:%M} UTC.", style="dim")
    if findings.implausible:
        yield Text(implausible_line(findings.implausible), style="yellow")
    yield from _risks(findings, wide)
    yield from _waste(findings, wide)
    yield from _pending(findings, wide)


def basis_line(basis: Basis) -> str:
    """Say how much of the cluster is known."""
    parts = [
        count_text(basis.nodes, "node"),
        count_text(basis.pods, "pod"),
        count_text(basis.containers, "container"),
        f"fresh statistics of {share_text(basis.known, basis.containers)}",
    ]
    if basis.pressure_known < basis.known:
        unknown = basis.known - basis.pressure_known
        parts.append(f"CPU pressure unknown of {share_text(unknown, basis.known)}")
    if basis.history_since is not None:
        parts.append(f"history since {basis.history_since:%Y-%m-%d %H:%M}")
    return ", ".join(parts)


def implausible_line(found: Sequence[Implausible]) -> str:
    """Say which containers have samples that cannot be true, and why."""
    parts = (
        f"{count_text(one.containers, 'container')}: {REFUSALS[one.reason]}, such as {one.namespace}/{one.pod} "
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


def _risks(findings: Findings, wide: bool) -> Iterator[RenderableType]:
    if not findings.risks:
        yield _heading("At risk", "no container")
        return
    containers = sum(
        pods for pods in {(r.namespace, r.workload, r.container): r.of_pods for r in findings.risks}.values()
    )
    yield _heading("At risk", f"{count_text(len(findings.risks), 'finding')}, {count_text(containers, 'container')}")
    yield _section(RISKS, findings.risks[:_MOST_RISKS], findings, wide)
    yield from _more(len(findings.risks) - _MOST_RISKS)


def _section(columns: Sequence[Column[Row]], rows: Sequence[Row], findings: Findings, wide: bool) -> Table:
    shown = [column for column in columns if column.cell is not None and (wide or not column.wide)]
    headings = [column.heading if wide else column.narrow or column.heading for column in shown]
    table = _grid(*zip(headings, [column.kind == "number" for column in shown], strict=True))
    for row in rows:
        table.add_row(*(column.cell(row, findings, wide) for column in shown if column.cell is not None))
    return table


def _more(number: int) -> Iterator[RenderableType]:
    if number > 0:
        yield Text(f"and {number:,} more: --format json, yaml, csv or html has all", style="dim")


def _waste(findings: Findings, wide: bool) -> Iterator[RenderableType]:
    totals, prices = findings.totals, findings.prices
    yield _heading("Waste", "requested beyond the targets, decided as mode full")
    sums = _grid(("", False), ("CORES", True), ("", True), ("GIB", True), ("", True))
    for label, amounts in (
        ("allocatable", totals.allocatable),
        ("requested", totals.requested),
        ("target", totals.recommended),
        ("planned", totals.planned),
        ("used", totals.used),
        ("reclaimable", totals.reclaimable),
    ):
        sums.add_row(
            label,
            cores_text(amounts.cpu_millicores),
            share_text(amounts.cpu_millicores, totals.allocatable.cpu_millicores),
            gibibytes_text(amounts.memory_bytes),
            share_text(amounts.memory_bytes, totals.allocatable.memory_bytes),
            style="bold" if label == "reclaimable" else None,
        )
    yield sums
    yield Text(TERMS, style="dim")
    month = prices.month(totals.reclaimable)
    yield Text.assemble(
        (f"about {money_text(abs(month))} {'less' if month >= 0 else 'more'} a month", "bold"),
        (
            f"  {ESTIMATE}: ${prices.cpu_core_hour:g} a core-hour, ${prices.memory_gib_hour:g} a GiB-hour",
            "dim",
        ),
    )
    if findings.full_nodes:
        names = ", ".join(findings.full_nodes[:3])
        more = f" and {len(findings.full_nodes) - 3:,} more" if len(findings.full_nodes) > 3 else ""
        yield Text(
            f"{count_text(len(findings.full_nodes), 'node does', 'nodes do')} not hold what their pods need: "
            f"{names}{more}",
            style="yellow",
        )
    wasteful = [row for row in findings.workloads if row.share > 0]
    if wasteful:
        yield Group("", _section(WASTE, wasteful[:_MOST_WORKLOADS], findings, wide))
    yield from _more(len(wasteful) - _MOST_WORKLOADS)
    short = sum(row.share < 0 for row in findings.workloads)
    if short:
        its, their = "workload should have more than it requests", "workloads should have more than they request"
        yield Text(count_text(short, its, their), style="dim")
    if findings.held:
        held = ", ".join(f"{reason.value} {count:,}" for reason, count in findings.held.items())
        yield Text(f"pods left as they are: {held}", style="dim")


def _pending(findings: Findings, wide: bool) -> Iterator[RenderableType]:
    if not findings.pending:
        yield _heading("Pending", "no pod")
        return
    rescued = sum(pod.best is not None for pod in findings.pending)
    yield _heading(
        "Pending",
        f"{count_text(len(findings.pending), 'pod')}; at their targets, neighbours would leave room for {rescued:,}, "
        "each judged alone",
    )
    shown = findings.pending[:_MOST_PENDING]
    if wide:
        yield _section(PENDING, shown, findings, wide)
    else:
        yield from (_pending_lines(pod, findings) for pod in shown)
    yield from _more(len(findings.pending) - _MOST_PENDING)
    yield Text("cruise pack with --usage plans where they go, and what is resized or moved for it", style="dim")


def _pending_lines(pod: PendingPod, findings: Findings) -> RenderableType:
    """Write a pod's cells one below the other, where they are too narrow beside each other."""
    cells = [column.cell(pod, findings, False) for column in PENDING if column.cell is not None]
    name, cpu, memory, *others = cells
    first = Text.assemble(name, f"  needs {cpu}, {memory}")
    return Group(first, *(Padding(cell, (0, 0, 0, 2)) for cell in others if cell))

"""A scan's findings for people at a terminal: what is at risk, what is wasted, what is pending."""

from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cruise.decisions.scan.findings import Basis, Findings
from cruise.decisions.scan.pending import PendingPod
from cruise.decisions.scan.risks import Risk, RiskKind
from cruise.decisions.scan.waste import WorkloadWaste
from cruise.interfaces.amounts import (
    cores_text,
    count_text,
    cpu_text,
    gibibytes_text,
    memory_text,
    money_text,
    share_text,
)
from cruise.interfaces.plan.table import WIDE_COLUMNS, arrow
from cruise.interfaces.scan.finding_words import RISK_TITLES, where_room, why_at_risk, why_pending
from cruise.interfaces.scan.report import ESTIMATE, ScanReport

_MOST_RISKS = 20
_MOST_WORKLOADS = 15
_MOST_PENDING = 15
_STYLES = {
    RiskKind.OOM_KILLED: "bold red",
    RiskKind.MEMORY_NEAR_LIMIT: "red",
    RiskKind.MEMORY_UNDER_REQUESTED: "yellow",
    RiskKind.CPU_THROTTLED: "yellow",
    RiskKind.CPU_STARVED: "yellow",
    RiskKind.NO_REQUESTS: "dim",
}


def scan_table(report: ScanReport, console: Console) -> Iterator[RenderableType]:
    """Yield the parts of the report."""
    findings = report.findings
    wide = console.width >= WIDE_COLUMNS
    yield Text(basis_line(findings.basis), style="dim")
    yield Text(f"Rests on {report.rests_on}, judged at {findings.at:%Y-%m-%d %H:%M} UTC.", style="dim")
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
    table = _grid(("WHAT", False), ("CONTAINER", False), ("PODS", True), ("WHY", False))
    for risk in findings.risks[:_MOST_RISKS]:
        what = Text(RISK_TITLES[risk.kind], style=_STYLES[risk.kind])
        table.add_row(what, _container(risk, wide), f"{risk.pods}/{risk.of_pods}", why_at_risk(risk, findings.at))
    yield table
    yield from _more(len(findings.risks) - _MOST_RISKS)


def _container(risk: Risk, wide: bool) -> Text:
    workload = risk.workload if wide else risk.workload.partition("/")[2]
    return Text.assemble((f"{risk.namespace}/", "dim"), workload, (f" {risk.container}", "bold"))


def _more(number: int) -> Iterator[RenderableType]:
    if number > 0:
        yield Text(f"and {number:,} more: --format json, yaml, csv or html has all", style="dim")


def _waste(findings: Findings, wide: bool) -> Iterator[RenderableType]:
    totals, prices = findings.totals, findings.prices
    yield _heading("Waste", "requested beyond what the node plans give")
    sums = _grid(("", False), ("CORES", True), ("", True), ("GIB", True), ("", True))
    for label, amounts in (
        ("allocatable", totals.allocatable),
        ("requested", totals.requested),
        ("recommended", totals.recommended),
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
        yield Group("", _workloads(wasteful[:_MOST_WORKLOADS], findings, wide))
    yield from _more(len(wasteful) - _MOST_WORKLOADS)
    short = sum(row.share < 0 for row in findings.workloads)
    if short:
        yield Text(f"{count_text(short, 'workload')} would get more than they request", style="dim")
    if findings.held:
        held = ", ".join(f"{reason.value} {count:,}" for reason, count in findings.held.items())
        yield Text(f"pods left as they are: {held}", style="dim")


def _workloads(rows: list[WorkloadWaste], findings: Findings, wide: bool) -> Table:
    columns = [("WORKLOAD", False), ("PODS", True), ("CORES", True), ("GIB", True)]
    columns += (
        [("SHARE", True), ("$/MONTH", True), ("LEFT ALONE", False)] if wide else [("SHARE", True), ("$/MO", True)]
    )
    table = _grid(*columns)
    for row in rows:
        cells = [
            Text.assemble((f"{row.namespace}/", "dim"), row.workload),
            Text(f"{row.pods:,}"),
            arrow(cores_text(row.requested.cpu_millicores), cores_text(row.recommended.cpu_millicores)),
            arrow(gibibytes_text(row.requested.memory_bytes), gibibytes_text(row.recommended.memory_bytes)),
            Text(f"{row.share:.1%}"),
            Text(money_text(findings.prices.month(row.freed))),
        ]
        if wide:
            cells.append(Text(f"{row.held:,}: {row.held_reason.value}" if row.held_reason else "", style="dim"))
        table.add_row(*cells)
    return table


def _pending(findings: Findings, wide: bool) -> Iterator[RenderableType]:
    if not findings.pending:
        yield _heading("Pending", "no pod")
        return
    rescued = sum(pod.best is not None for pod in findings.pending)
    yield _heading(
        "Pending",
        f"{count_text(len(findings.pending), 'pod')}; sizing their neighbours would make room for {rescued:,}, "
        "each judged alone",
    )
    shown = findings.pending[:_MOST_PENDING]
    if wide:
        yield _pending_table(shown)
    else:
        yield from (_pending_lines(pod) for pod in shown)
    yield from _more(len(findings.pending) - _MOST_PENDING)


def _pending_table(pods: Sequence[PendingPod]) -> Table:
    table = _grid(("POD", False), ("CPU", True), ("MEMORY", True), ("WHY", False), ("ROOM BY SIZING", False))
    for pod in pods:
        cpu, memory = cpu_text(pod.need.cpu_millicores), memory_text(pod.need.memory_bytes)
        table.add_row(_name(pod), cpu, memory, why_pending(pod), _room(pod))
    return table


def _pending_lines(pod: PendingPod) -> RenderableType:
    needs = f"  needs {cpu_text(pod.need.cpu_millicores)}, {memory_text(pod.need.memory_bytes)}"
    lines: list[RenderableType] = [_name(pod).append(needs), Padding(why_pending(pod), (0, 0, 0, 2))]
    room = _room(pod)
    return Group(*lines, Padding(room, (0, 0, 0, 2))) if room else Group(*lines)


def _name(pod: PendingPod) -> Text:
    return Text.assemble((f"{pod.namespace}/", "dim"), pod.pod)


def _room(pod: PendingPod) -> Text:
    return Text(where_room(pod), style="green" if pod.best is not None else "dim")

"""The scans of several clusters as one report: a line per cluster, and each cluster's own findings."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
from rich.console import Console, RenderableType
from rich.rule import Rule
from rich.text import Text

from cruise.domain.prices import format_money
from cruise.domain.resources import Resources
from cruise.interfaces.coverage import build_amounts_document, list_coverage_rows
from cruise.interfaces.plan_table import WIDE_TABLE_COLUMNS
from cruise.interfaces.scan.report import (
    SAVING_ESTIMATE_NOTE,
    ScanReport,
    build_finding_records,
    build_findings_csv,
    build_scan_document,
)
from cruise.interfaces.scan.table import create_table, render_heading, render_scan_table
from cruise.interfaces.text import (
    JsonValue,
    build_slack_section,
    escape_slack,
    format_cores,
    format_count,
    format_gibibytes,
    format_share,
)

TOTAL = "all clusters"
CLUSTER_HEADINGS = (
    *("Cluster", "Nodes", "Pods", "At risk", "Pending"),
    *("CPU cores", "Sized", "Reclaimable", "Memory GiB", "Sized", "Reclaimable", "Monthly"),
)
# A narrow terminal has no place for the others.
_NARROW = ("Cluster", "Pods", "At risk", "Pending", "Reclaimable", "Monthly")


@dataclass(frozen=True, slots=True)
class ClusterScans:
    """The reports of several clusters by context, and why the others could not be read."""

    reports: Mapping[str, ScanReport]
    failures: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ScannedClusterSummary:
    """What one cluster's scan found, or all of them together; `sized` is what is sized of the requests."""

    name: str
    nodes: int
    pods: int
    at_risk: int
    pending: int
    requested: Resources
    sized: Resources
    reclaimable: Resources
    monthly_cost: float
    currency: str

    def list_cells(self) -> list[tuple[str, str, float | None]]:
        """Return for each of CLUSTER_HEADINGS the heading, the text and the value by which it is sorted."""
        requested, sized, reclaimable = self.requested, self.sized, self.reclaimable
        sized_cpu = format_share(sized.cpu_millicores, requested.cpu_millicores)
        sized_memory = format_share(sized.memory_bytes, requested.memory_bytes)
        cells: list[tuple[str, float | None]] = [
            (self.name, None),
            (f"{self.nodes:,}", self.nodes),
            (f"{self.pods:,}", self.pods),
            (f"{self.at_risk:,}", self.at_risk),
            (f"{self.pending:,}", self.pending),
            (format_cores(requested.cpu_millicores), requested.cpu_millicores),
            (sized_cpu, sized.cpu_millicores / max(1, requested.cpu_millicores)),
            (format_cores(reclaimable.cpu_millicores), reclaimable.cpu_millicores),
            (format_gibibytes(requested.memory_bytes), requested.memory_bytes),
            (sized_memory, sized.memory_bytes / max(1, requested.memory_bytes)),
            (format_gibibytes(reclaimable.memory_bytes), reclaimable.memory_bytes),
            (format_money(self.monthly_cost, self.currency), self.monthly_cost),
        ]
        return [(heading, *cell) for heading, cell in zip(CLUSTER_HEADINGS, cells, strict=True)]


def summarize_clusters(scans: ClusterScans) -> list[ScannedClusterSummary]:
    """Return a summary of each cluster, the one with the largest saving first, and of all of them if there are more."""
    rows = [_summarize(name, report) for name, report in scans.reports.items()]
    rows.sort(key=lambda row: (-row.monthly_cost, row.name))
    return [*rows, _sum(rows)] if len(rows) > 1 else rows


def _summarize(name: str, report: ScanReport) -> ScannedClusterSummary:
    findings = report.findings
    return ScannedClusterSummary(
        name,
        findings.basis.nodes,
        findings.basis.pods,
        len(findings.risks),
        len(findings.pending),
        findings.coverage.requested,
        list_coverage_rows(findings.coverage)[0].group.requested,
        findings.totals.reclaimable,
        findings.prices.compute_monthly_cost(findings.totals.reclaimable),
        findings.prices.currency,
    )


def _sum(rows: Sequence[ScannedClusterSummary]) -> ScannedClusterSummary:
    nothing = Resources()
    return ScannedClusterSummary(
        TOTAL,
        sum(row.nodes for row in rows),
        sum(row.pods for row in rows),
        sum(row.at_risk for row in rows),
        sum(row.pending for row in rows),
        sum((row.requested for row in rows), nothing),
        sum((row.sized for row in rows), nothing),
        sum((row.reclaimable for row in rows), nothing),
        sum(row.monthly_cost for row in rows),
        # All have the prices of the same settings.
        rows[0].currency,
    )


def render_clusters_table(scans: ClusterScans, console: Console) -> Iterator[RenderableType]:
    """Yield the summary, and then each cluster's own report."""
    rows = summarize_clusters(scans)
    wide = console.width >= WIDE_TABLE_COLUMNS
    yield render_heading("Clusters", f"money is {SAVING_ESTIMATE_NOTE}")
    if rows:
        shown = [wide or heading in _NARROW for heading, _, _ in rows[0].list_cells()]
        headings = [heading for (heading, _, _), one in zip(rows[0].list_cells(), shown, strict=True) if one]
        if not wide:
            # Of the two, the first is CPU.
            headings[headings.index("Reclaimable")] = "cores"
            headings[headings.index("Reclaimable")] = "GiB"
        table = create_table(*((heading.upper(), place > 0) for place, heading in enumerate(headings)))
        for row in rows:
            cells = [text for (_, text, _), one in zip(row.list_cells(), shown, strict=True) if one]
            table.add_row(*cells, style="bold" if row.name == TOTAL else None)
        yield table
    for name, problem in scans.failures.items():
        yield Text(f"{name} could not be read: {problem}", style="yellow")
    for row in rows:
        if row.name in scans.reports:
            yield Text()
            yield Rule(Text(row.name, style="bold"), align="left", characters="─")
            yield from render_scan_table(scans.reports[row.name], console)


def build_clusters_document(scans: ClusterScans) -> JsonValue:
    """Return the reports for JSON and YAML."""
    return {
        "clusters": [{"context": name, **build_scan_document(report)} for name, report in scans.reports.items()],
        "failed": [{"context": name, "message": problem} for name, problem in scans.failures.items()],
        "summary": [
            {
                "context": None if row.name == TOTAL else row.name,
                "nodes": row.nodes,
                "pods": row.pods,
                "atRisk": row.at_risk,
                "pending": row.pending,
                "requested": build_amounts_document(row.requested),
                "sized": build_amounts_document(row.sized),
                "reclaimable": build_amounts_document(row.reclaimable),
                "reclaimableMonthlyCost": round(row.monthly_cost, 2),
            }
            for row in summarize_clusters(scans)
        ],
    }


def render_findings_of_clusters_csv(scans: ClusterScans) -> bytes:
    """Return the findings as CSV, with the cluster's context as the first column."""
    rows = ({"cluster": name, **row} for name, report in scans.reports.items() for row in build_finding_records(report))
    return build_findings_csv(rows, "cluster")


def render_slack_summary(scans: ClusterScans) -> bytes:
    """Return the summary as a message for Slack's incoming webhooks."""
    rows = summarize_clusters(scans)
    total = rows[-1] if rows else None
    month = "" if total is None else format_money(abs(total.monthly_cost), total.currency)
    title = (
        "cruise scan: no cluster could be read"
        if total is None
        else f"cruise scan of {format_count(len(scans.reports), 'cluster')}: about "
        f"{month} a month {'less' if total.monthly_cost >= 0 else 'more'} at the "
        f"targets, {format_count(total.at_risk, 'finding')} at risk, {format_count(total.pending, 'pod')} pending"
    )
    lines = [_describe(row) for row in rows if row.name in scans.reports]
    lines += [
        f"*{escape_slack(name)}* could not be read: {escape_slack(problem)}" for name, problem in scans.failures.items()
    ]
    blocks: list[JsonValue] = [build_slack_section(f"*{escape_slack(title)}*")]
    # Slack accepts 3,000 characters in a section, and 50 sections.
    blocks += [build_slack_section(line[:3000]) for line in lines[:48]]
    if len(lines) > 48:
        blocks.append(build_slack_section(f"and {format_count(len(lines) - 48, 'more cluster')}"))
    return msgspec.json.encode({"text": escape_slack(title), "blocks": blocks})


def _describe(row: ScannedClusterSummary) -> str:
    requested, sized, reclaimable = row.requested, row.sized, row.reclaimable
    return (
        f"*{escape_slack(row.name)}*: {format_count(row.nodes, 'node')}, {format_count(row.pods, 'pod')}; "
        f"{format_share(sized.cpu_millicores, requested.cpu_millicores)} of CPU and "
        f"{format_share(sized.memory_bytes, requested.memory_bytes)} of memory sized; reclaimable "
        f"{format_cores(reclaimable.cpu_millicores)} cores and {format_gibibytes(reclaimable.memory_bytes)} GiB, about "
        f"{format_money(row.monthly_cost, row.currency)} a month; {format_count(row.at_risk, 'finding')} at risk, "
        f"{format_count(row.pending, 'pod')} pending"
    )

"""A scan's findings as one self-contained HTML page, for browsers or for mail."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from markupsafe import Markup

from cruise import __version__
from cruise.decisions.scan.waste import ClusterRequestTotals
from cruise.domain.prices import format_money, format_prices
from cruise.domain.resources import ResourceName, Resources
from cruise.interfaces.coverage import (
    PARTLY_KNOWN_NOTE,
    describe_best_effort_pods,
    describe_coverage,
    list_coverage_rows,
)
from cruise.interfaces.scan.clusters import CLUSTER_HEADINGS, ClusterScans, summarize_clusters
from cruise.interfaces.scan.columns import PENDING_COLUMNS, RISK_COLUMNS, WASTE_COLUMNS
from cruise.interfaces.scan.coverage_columns import COVERAGE_COLUMNS, SLOW_START_COLUMNS, SLOW_STARTS_NOTE
from cruise.interfaces.scan.report import SAVING_ESTIMATE_NOTE, ScanReport
from cruise.interfaces.scan.table import describe_basis, describe_containers_with_implausible_usage
from cruise.interfaces.text import (
    format_cores,
    format_count,
    format_gibibytes,
    format_share,
    load_template,
)

# A browser sorts and searches this many rows without a pause; JSON, YAML and CSV have all rows.
_MAX_ROWS = 1000
# Mail programs cut long mails.
_MAX_MAIL_ROWS = 25


@dataclass(frozen=True, slots=True)
class BarPart:
    """A part of a bar; `width` is in percent of it."""

    kind: str
    width: str


@dataclass(frozen=True, slots=True)
class CapacityBar:
    """One resource of the whole cluster: its amounts as text, and the parts of its bar in percent."""

    title: str
    used: str
    target: str
    requested: str
    allocatable: str
    parts: tuple[BarPart, ...]


@dataclass(frozen=True, slots=True)
class ClusterPageRow:
    """A line of the summary: texts with the values by which they are sorted, and the anchor of the cluster's part."""

    cells: list[tuple[str, float | None]]
    anchor: str


@dataclass(frozen=True, slots=True)
class ClusterPagePart:
    """One cluster's part of the page; heading and anchor are empty if it is the only one."""

    heading: str
    anchor: str
    basis: str
    source: str
    body: Markup


_SHARED = {"version": __version__, "estimate": SAVING_ESTIMATE_NOTE}


def render_scan_html(report: ScanReport) -> bytes:
    """Return the page for browsers, whose script sorts and filters."""
    findings = report.findings
    variables = _build_variables(report)
    page = {"title": _format_time(findings.at), "basis": variables["basis"], "clusters": (), "failures": ()}
    return load_template("scan.html.j2").render(page, reports=[_build_part(report, variables)], **_SHARED).encode()


def render_clusters_html(scans: ClusterScans) -> bytes:
    """Return one page for several clusters: a summary, and each cluster's own findings."""
    rows = summarize_clusters(scans)
    names = [row.name for row in rows if row.name in scans.reports]
    anchors = {name: f"cluster-{place}" for place, name in enumerate(names, start=1)}
    parts = [
        _build_part(scans.reports[name], _build_variables(scans.reports[name]), name, anchors[name]) for name in names
    ]
    page = {
        "title": format_count(len(names), "cluster"),
        "basis": "",
        "cluster_headings": [(heading, place > 0) for place, heading in enumerate(CLUSTER_HEADINGS)],
        "clusters": [
            ClusterPageRow([(text, value) for _, text, value in row.list_cells()], anchors.get(row.name, ""))
            for row in rows
        ],
        "failures": list(scans.failures.items()),
    }
    return load_template("scan.html.j2").render(page, reports=parts, **_SHARED).encode()


def _build_part(
    report: ScanReport, variables: Mapping[str, object], heading: str = "", anchor: str = ""
) -> ClusterPagePart:
    """Return one cluster's part of the page; `anchor` makes its anchors differ from those of others."""
    template = load_template("scan_body.html.j2")
    body = template.render(variables, most=_MAX_ROWS, prefix=f"{anchor}-" if anchor else "")
    since = report.findings.basis.history_since
    source = report.statistics_source
    if since is not None:
        source += f", with history since {_format_time(since)} for half of the containers"
    # The body is HTML that a template has escaped.
    return ClusterPagePart(heading, anchor, str(variables["basis"]), source, Markup(body))


def _format_time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"


def render_scan_mail(report: ScanReport) -> bytes:
    """Return the page for mail programs, without script or style sheet; its title is the subject."""
    reclaimable = report.findings.totals.reclaimable
    prices = report.findings.prices
    month = prices.compute_monthly_cost(reclaimable)
    subject = (
        f"Cluster report: {format_count(len(report.findings.risks), 'finding')} at risk, about "
        f"{format_money(abs(month), prices.currency)} "
        f"a month {'too much' if month >= 0 else 'too little'} requested"
    )
    template = load_template("scan_mail.html.j2")
    return template.render(_build_variables(report), subject=subject, most=_MAX_MAIL_ROWS).encode()


def _build_variables(report: ScanReport) -> Mapping[str, object]:
    findings = report.findings
    return {
        "findings": findings,
        "totals": findings.totals,
        "reclaimable": findings.totals.reclaimable,
        "month": findings.prices.compute_monthly_cost(findings.totals.reclaimable),
        "workloads": [row for row in findings.workloads if row.requested != Resources()],
        "fits_after_sizing": sum(pod.best_node is not None for pod in findings.pending),
        "capacity_bars": build_capacity_bars(findings.totals),
        "basis": ". ".join(
            [
                describe_basis(findings.basis),
                *([describe_containers_with_implausible_usage(findings.implausible)] if findings.implausible else ()),
            ]
        ),
        "statistics_source": report.statistics_source,
        "estimate": SAVING_ESTIMATE_NOTE,
        "coverage": list_coverage_rows(findings.coverage),
        "resources": {one.value: one for one in ResourceName},
        "coverage_summary": describe_coverage(findings.coverage),
        "best_effort_pods": describe_best_effort_pods(findings.totals),
        "slow_starts_note": SLOW_STARTS_NOTE,
        "partly_known_note": PARTLY_KNOWN_NOTE,
        "columns": {
            "coverage": COVERAGE_COLUMNS,
            "risks": RISK_COLUMNS,
            "waste": WASTE_COLUMNS,
            "pending": PENDING_COLUMNS,
            "slow_starts": SLOW_START_COLUMNS,
        },
        "version": __version__,
        "cores": format_cores,
        "gib": format_gibibytes,
        "share": format_share,
        "money": lambda amount: format_money(amount, findings.prices.currency),
        "prices": format_prices(findings.prices),
        "count": format_count,
    }


def build_capacity_bars(totals: ClusterRequestTotals) -> tuple[CapacityBar, ...]:
    """Return the used, target, requested and allocatable amounts of CPU and of memory."""
    return (
        _build_bar(totals, "CPU, cores", ResourceName.CPU, format_cores),
        _build_bar(totals, "Memory, GiB", ResourceName.MEMORY, format_gibibytes),
    )


def _build_bar(
    totals: ClusterRequestTotals, title: str, resource: ResourceName, write: Callable[[int], str]
) -> CapacityBar:
    used, target = totals.used.get(resource), totals.target.get(resource)
    requested, allocatable = totals.requested.get(resource), totals.allocatable.get(resource)
    length = max(used, target, requested, allocatable, 1)
    kept = max(target, used)
    parts, start = [], 0
    for kind, end in (("used", used), ("keep", kept), ("free", max(requested, kept))):
        parts.append(BarPart(kind, f"{100 * (end - start) / length:.3f}"))
        start = end
    return CapacityBar(title, write(used), write(target), write(requested), write(allocatable), tuple(parts))

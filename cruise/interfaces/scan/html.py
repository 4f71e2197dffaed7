"""A scan's findings as one self-contained page, for browsers or for mail: nothing in it comes from elsewhere."""

from collections.abc import Mapping
from dataclasses import dataclass

from cruise import __version__
from cruise.decisions.scan.waste import ClusterRequestTotals
from cruise.domain.resources import Resources
from cruise.interfaces.reasons import REASON_DESCRIPTIONS
from cruise.interfaces.scan.columns import PENDING_COLUMNS, RISK_COLUMNS, WASTE_COLUMNS
from cruise.interfaces.scan.report import SAVING_ESTIMATE_NOTE, ScanReport
from cruise.interfaces.scan.table import describe_basis, describe_implausible_usage
from cruise.interfaces.text import (
    format_cores,
    format_count,
    format_gibibytes,
    format_money,
    format_share,
    load_template,
)

# A browser sorts and searches this many rows without a pause; the documents for programs have all.
_MOST_ROWS = 1000
# A mail is for those who read the top of it, and mail programs cut long ones.
_MOST_ROWS_MAILED = 25


@dataclass(frozen=True, slots=True)
class BarPart:
    """A part of a bar; `width` is in percent of it."""

    kind: str
    width: str


@dataclass(frozen=True, slots=True)
class CapacityBar:
    """One resource of the whole cluster: its amounts in words, and the parts of its bar in percent."""

    title: str
    used: str
    target: str
    requested: str
    allocatable: str
    parts: tuple[BarPart, ...]


def render_scan_html(report: ScanReport) -> bytes:
    """Return the page for browsers, which can sort and filter."""
    return load_template("scan.html.j2").render(_shown(report), most=_MOST_ROWS).encode()


def render_scan_mail(report: ScanReport) -> bytes:
    """Return the page for mail programs: without any script or style sheet, and with its subject as title."""
    reclaimable = report.findings.totals.reclaimable
    month = report.findings.prices.compute_monthly_cost(reclaimable)
    subject = (
        f"Cluster report: {format_count(len(report.findings.risks), 'finding')} at risk, about {format_money(abs(month))} "
        f"a month {'too much' if month >= 0 else 'too little'} requested"
    )
    shown = _shown(report)
    return load_template("scan_mail.html.j2").render(shown, subject=subject, most=_MOST_ROWS_MAILED).encode()


def _shown(report: ScanReport) -> Mapping[str, object]:
    findings = report.findings
    return {
        "findings": findings,
        "totals": findings.totals,
        "reclaimable": findings.totals.reclaimable,
        "month": findings.prices.compute_monthly_cost(findings.totals.reclaimable),
        "workloads": [row for row in findings.workloads if row.requested != Resources()],
        "rescued": sum(pod.best_node is not None for pod in findings.pending),
        "rooms": build_capacity_bars(findings.totals),
        "basis": ". ".join(
            [
                describe_basis(findings.basis),
                *([describe_implausible_usage(findings.implausible)] if findings.implausible else ()),
            ]
        ),
        "rests_on": report.statistics_source,
        "estimate": SAVING_ESTIMATE_NOTE,
        "columns": {"risks": RISK_COLUMNS, "waste": WASTE_COLUMNS, "pending": PENDING_COLUMNS},
        "reasons": REASON_DESCRIPTIONS,
        "version": __version__,
        "cores": format_cores,
        "gib": format_gibibytes,
        "share": format_share,
        "money": format_money,
        "count": format_count,
    }


def build_capacity_bars(totals: ClusterRequestTotals) -> tuple[CapacityBar, ...]:
    """Return what is used, recommended, requested and allocatable of CPU and of memory."""
    return tuple(
        CapacityBar(
            title=title,
            used=write(used),
            target=write(recommended),
            requested=write(requested),
            allocatable=write(allocatable),
            parts=_parts(used, recommended, requested, allocatable),
        )
        for title, write, used, recommended, requested, allocatable in (
            (
                "CPU, cores",
                format_cores,
                totals.used.cpu_millicores,
                totals.target.cpu_millicores,
                totals.requested.cpu_millicores,
                totals.allocatable.cpu_millicores,
            ),
            (
                "Memory, GiB",
                format_gibibytes,
                totals.used.memory_bytes,
                totals.target.memory_bytes,
                totals.requested.memory_bytes,
                totals.allocatable.memory_bytes,
            ),
        )
    )


def _parts(used: int, recommended: int, requested: int, allocatable: int) -> tuple[BarPart, ...]:
    """Return the widths of used, kept and reclaimable as shares of the longest amount."""
    whole = max(used, recommended, requested, allocatable, 1)
    kept = max(recommended, used)
    ends = (("used", used), ("keep", kept), ("free", max(requested, kept)))
    parts, start = [], 0
    for kind, end in ends:
        parts.append(BarPart(kind, f"{100 * (end - start) / whole:.3f}"))
        start = end
    return tuple(parts)

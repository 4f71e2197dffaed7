"""A scan's findings as one self-contained page, for browsers or for mail: nothing in it comes from elsewhere."""

from collections.abc import Mapping
from dataclasses import dataclass

from cruise import __version__
from cruise.decisions.scan.waste import Totals
from cruise.domain.resources import Resources
from cruise.interfaces.amounts import cores_text, count_text, gibibytes_text, money_text, share_text
from cruise.interfaces.page_template import page_template
from cruise.interfaces.reasons import WORDS
from cruise.interfaces.scan.columns import PENDING, RISKS, WASTE
from cruise.interfaces.scan.report import ESTIMATE, ScanReport
from cruise.interfaces.scan.table import basis_line, implausible_line

# A browser sorts and searches this many rows without a pause; the documents for programs have all.
_MOST_ROWS = 1000
# A mail is for those who read the top of it, and mail programs cut long ones.
_MOST_ROWS_MAILED = 25


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a bar; `width` is in percent of it."""

    kind: str
    width: str


@dataclass(frozen=True, slots=True)
class Room:
    """One resource of the whole cluster: its amounts in words, and the parts of its bar in percent."""

    title: str
    used: str
    recommended: str
    requested: str
    allocatable: str
    parts: tuple[Part, ...]


def scan_html(report: ScanReport) -> bytes:
    """Return the page for browsers, which can sort and filter."""
    return page_template("scan.html.j2").render(_shown(report), most=_MOST_ROWS).encode()


def scan_mail(report: ScanReport) -> bytes:
    """Return the page for mail programs: without any script or style sheet, and with its subject as title."""
    reclaimable = report.findings.totals.reclaimable
    month = report.findings.prices.month(reclaimable)
    subject = (
        f"Cluster report: {count_text(len(report.findings.risks), 'finding')} at risk, about {money_text(abs(month))} "
        f"a month {'too much' if month >= 0 else 'too little'} requested"
    )
    shown = _shown(report)
    return page_template("scan_mail.html.j2").render(shown, subject=subject, most=_MOST_ROWS_MAILED).encode()


def _shown(report: ScanReport) -> Mapping[str, object]:
    findings = report.findings
    return {
        "findings": findings,
        "totals": findings.totals,
        "reclaimable": findings.totals.reclaimable,
        "month": findings.prices.month(findings.totals.reclaimable),
        "workloads": [row for row in findings.workloads if row.requested != Resources()],
        "rescued": sum(pod.best is not None for pod in findings.pending),
        "rooms": rooms_of(findings.totals),
        "basis": ". ".join(
            [basis_line(findings.basis), *([implausible_line(findings.implausible)] if findings.implausible else ())]
        ),
        "rests_on": report.rests_on,
        "estimate": ESTIMATE,
        "columns": {"risks": RISKS, "waste": WASTE, "pending": PENDING},
        "reasons": WORDS,
        "version": __version__,
        "cores": cores_text,
        "gib": gibibytes_text,
        "share": share_text,
        "money": money_text,
        "count": count_text,
    }


def rooms_of(totals: Totals) -> tuple[Room, ...]:
    """Return what is used, recommended, requested and allocatable of CPU and of memory."""
    return tuple(
        Room(
            title=title,
            used=write(used),
            recommended=write(recommended),
            requested=write(requested),
            allocatable=write(allocatable),
            parts=_parts(used, recommended, requested, allocatable),
        )
        for title, write, used, recommended, requested, allocatable in (
            (
                "CPU, cores",
                cores_text,
                totals.used.cpu_millicores,
                totals.recommended.cpu_millicores,
                totals.requested.cpu_millicores,
                totals.allocatable.cpu_millicores,
            ),
            (
                "Memory, GiB",
                gibibytes_text,
                totals.used.memory_bytes,
                totals.recommended.memory_bytes,
                totals.requested.memory_bytes,
                totals.allocatable.memory_bytes,
            ),
        )
    )


def _parts(used: int, recommended: int, requested: int, allocatable: int) -> tuple[Part, ...]:
    """Return the widths of used, kept and reclaimable as shares of the longest amount."""
    whole = max(used, recommended, requested, allocatable, 1)
    kept = max(recommended, used)
    ends = (("used", used), ("keep", kept), ("free", max(requested, kept)))
    parts, start = [], 0
    for kind, end in ends:
        parts.append(Part(kind, f"{100 * (end - start) / whole:.3f}"))
        start = end
    return tuple(parts)

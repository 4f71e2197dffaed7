"""A scan's findings with what they rest on, as documents for programs: JSON, YAML, CSV."""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import yaml

from cruise.decisions.scan.findings import Findings
from cruise.interfaces.plain_text import plain, plain_lines
from cruise.interfaces.scan.columns import PENDING, RISKS, WASTE, amounts_document, document_of, record_of
from cruise.interfaces.shapes import Shape, shape

ESTIMATE = "an estimate at list prices; what a provider bills differs"
_CSV_COLUMNS = (
    "section",
    *dict.fromkeys(name for columns in (RISKS, WASTE, PENDING) for column in columns for name in column.record),
)


@dataclass(frozen=True, slots=True)
class ScanReport:
    """Findings and, in words, where the statistics come from and how far back they reach."""

    findings: Findings
    rests_on: str


def scan_json(report: ScanReport) -> bytes:
    """Return the report as one JSON document."""
    return msgspec.json.encode(_document(report)) + b"\n"


def scan_yaml(report: ScanReport) -> bytes:
    """Return the report as one YAML document."""
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    document = _document(report)
    text = str(yaml.dump(document, Dumper=dumper, sort_keys=False, allow_unicode=True, width=160))
    if plain_lines(text) != text:
        text = str(yaml.dump(document, Dumper=dumper, sort_keys=False, width=160))
    return text.encode()


def _document(report: ScanReport) -> Shape:
    findings = report.findings
    prices, totals = findings.prices, findings.totals
    return {
        "at": shape(findings.at),
        "restsOn": report.rests_on,
        "basis": shape(findings.basis),
        "atRisk": [document_of(RISKS, risk, findings) for risk in findings.risks],
        "waste": {
            "totals": {
                "allocatable": amounts_document(totals.allocatable),
                "requested": amounts_document(totals.requested),
                "recommended": amounts_document(totals.recommended),
                "planned": amounts_document(totals.planned),
                "used": amounts_document(totals.used),
                "reclaimable": amounts_document(totals.reclaimable),
                "estimatedMonthlySaving": round(prices.month(totals.reclaimable), 2),
            },
            "prices": {
                "cpuCoreHour": prices.cpu_core_hour,
                "memoryGibHour": prices.memory_gib_hour,
                "note": ESTIMATE,
            },
            "workloads": [document_of(WASTE, row, findings) for row in findings.workloads],
        },
        "pending": [document_of(PENDING, pod, findings) for pod in findings.pending],
        "fullNodes": list(findings.full_nodes),
        "leftAlone": shape(findings.held),
        "implausible": shape(findings.implausible),
    }


def scan_csv(report: ScanReport) -> bytes:
    """Return the report as CSV: one row a finding, at-risk containers first, then waste, then pending pods."""
    text = io.StringIO()
    writer = csv.DictWriter(text, _CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in _rows(report):
        writer.writerow({name: plain(value) if isinstance(value, str) else value for name, value in row.items()})
    return text.getvalue().encode()


def _rows(report: ScanReport) -> Iterator[dict[str, object]]:
    findings = report.findings
    for risk in findings.risks:
        yield {"section": "at-risk", **record_of(RISKS, risk, findings)}
    for row in findings.workloads:
        yield {"section": "waste", **record_of(WASTE, row, findings)}
    for pod in findings.pending:
        yield {"section": "pending", **record_of(PENDING, pod, findings)}

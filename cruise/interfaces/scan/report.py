"""A scan's findings as JSON, YAML and CSV."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from cruise.decisions.scan.findings import ScanFindings
from cruise.interfaces.coverage import build_amounts_document, list_coverage_rows
from cruise.interfaces.scan.columns import (
    PENDING_COLUMNS,
    RISK_COLUMNS,
    WASTE_COLUMNS,
    build_finding_document,
    build_finding_record,
)
from cruise.interfaces.scan.coverage_columns import COVERAGE_COLUMNS, SLOW_START_COLUMNS, build_coverage_document
from cruise.interfaces.text import JsonValue, convert_to_json, render_csv

SAVING_ESTIMATE_NOTE = "an estimate; what a provider bills differs"
_CSV_COLUMNS = (
    "section",
    *dict.fromkeys(
        name
        for columns in (RISK_COLUMNS, WASTE_COLUMNS, PENDING_COLUMNS, COVERAGE_COLUMNS, SLOW_START_COLUMNS)
        for column in columns
        for name in column.record
    ),
)


@dataclass(frozen=True, slots=True)
class ScanReport:
    """Findings, and a description of the source of the statistics."""

    findings: ScanFindings
    statistics_source: str


def build_scan_document(report: ScanReport) -> dict[str, JsonValue]:
    """Return the report for JSON and YAML."""
    findings = report.findings
    prices, totals = findings.prices, findings.totals
    return {
        "at": convert_to_json(findings.at),
        "statisticsSource": report.statistics_source,
        "basis": convert_to_json(findings.basis),
        "coverage": build_coverage_document(findings),
        "atRisk": [build_finding_document(RISK_COLUMNS, risk, findings) for risk in findings.risks],
        "waste": {
            "totals": {
                "allocatable": build_amounts_document(totals.allocatable),
                "requested": build_amounts_document(totals.requested),
                "recommended": build_amounts_document(totals.target),
                "planned": build_amounts_document(totals.planned),
                "used": build_amounts_document(totals.used),
                "usedWithoutRequests": build_amounts_document(totals.used_without_requests),
                "bestEffortPods": totals.best_effort_pods,
                "reclaimable": build_amounts_document(totals.reclaimable),
                "reclaimableMonthlyCost": round(prices.compute_monthly_cost(totals.reclaimable), 2),
            },
            "prices": {
                "cpuCoreHour": prices.cpu_core_hour,
                "memoryGibHour": prices.memory_gib_hour,
                "currency": prices.currency,
                "note": SAVING_ESTIMATE_NOTE,
            },
            "workloads": [build_finding_document(WASTE_COLUMNS, row, findings) for row in findings.workloads],
        },
        "pending": [build_finding_document(PENDING_COLUMNS, pod, findings) for pod in findings.pending],
        "overcommittedNodes": list(findings.full_nodes),
        "leftAlone": convert_to_json(findings.skipped),
        "implausible": convert_to_json(findings.implausible),
        "slowStarts": [build_finding_document(SLOW_START_COLUMNS, one, findings) for one in findings.slow_starts],
    }


def render_scan_csv(report: ScanReport) -> bytes:
    """Return the report as CSV: one row a finding, coverage first, then risks, waste, slow starts and pending pods."""
    return build_findings_csv(build_finding_records(report))


def build_findings_csv(rows: Iterable[Mapping[str, object]], *first_columns: str) -> bytes:
    """Return rows of `build_finding_records` as CSV; `first_columns` come before its own."""
    return render_csv((*first_columns, *_CSV_COLUMNS), rows)


def build_finding_records(report: ScanReport) -> Iterator[dict[str, object]]:
    """Yield one row a finding for CSV."""
    findings = report.findings
    for line in list_coverage_rows(findings.coverage):
        yield {"section": "coverage", **build_finding_record(COVERAGE_COLUMNS, line, findings)}
    for risk in findings.risks:
        yield {"section": "at-risk", **build_finding_record(RISK_COLUMNS, risk, findings)}
    for row in findings.workloads:
        yield {"section": "waste", **build_finding_record(WASTE_COLUMNS, row, findings)}
    for start in findings.slow_starts:
        yield {"section": "slow-start", **build_finding_record(SLOW_START_COLUMNS, start, findings)}
    for pod in findings.pending:
        yield {"section": "pending", **build_finding_record(PENDING_COLUMNS, pod, findings)}

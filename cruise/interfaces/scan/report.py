"""A scan's findings with what they rest on, as documents for programs: JSON, YAML, CSV."""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import yaml

from cruise.decisions.scan.findings import Findings
from cruise.decisions.scan.pending import PendingPod
from cruise.decisions.scan.risks import Risk, RiskKind
from cruise.decisions.scan.waste import WorkloadWaste
from cruise.domain.resources import Resources
from cruise.interfaces.scan.finding_words import where_room, why_at_risk, why_pending
from cruise.interfaces.shapes import Shape, shape

ESTIMATE = "an estimate at list prices; what a provider bills differs"
_OF_CPU = (RiskKind.CPU_THROTTLED, RiskKind.CPU_STARVED)
_CSV_COLUMNS = (
    "section",
    "kind",
    "namespace",
    "workload",
    "container",
    "pod",
    "pods",
    "why",
    "cpu_requested_millicores",
    "cpu_recommended_millicores",
    "cpu_used_millicores",
    "memory_requested_bytes",
    "memory_recommended_bytes",
    "memory_used_bytes",
    "share_of_cluster",
    "estimated_monthly_saving",
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
    text = yaml.dump(_document(report), Dumper=dumper, sort_keys=False, allow_unicode=True, width=160)
    return str(text).encode()


def _document(report: ScanReport) -> Shape:
    findings = report.findings
    prices, totals = findings.prices, findings.totals
    return {
        "at": shape(findings.at),
        "restsOn": report.rests_on,
        "basis": shape(findings.basis),
        "atRisk": [_risk(risk, report) for risk in findings.risks],
        "waste": {
            "totals": {
                "allocatable": _amounts(totals.allocatable),
                "requested": _amounts(totals.requested),
                "recommended": _amounts(totals.recommended),
                "used": _amounts(totals.used),
                "reclaimable": _amounts(totals.reclaimable),
                "estimatedMonthlySaving": round(prices.month(totals.reclaimable), 2),
            },
            "prices": {
                "cpuCoreHour": prices.cpu_core_hour,
                "memoryGibHour": prices.memory_gib_hour,
                "note": ESTIMATE,
            },
            "workloads": [_workload(row, report) for row in findings.workloads],
        },
        "pending": [_pending(pod) for pod in findings.pending],
        "fullNodes": list(findings.full_nodes),
        "leftAlone": shape(findings.held),
    }


def _amounts(amounts: Resources) -> Shape:
    return {"cpuMillicores": amounts.cpu_millicores, "memoryBytes": amounts.memory_bytes}


def _risk(risk: Risk, report: ScanReport) -> Shape:
    document: dict[str, Shape] = {
        "kind": risk.kind.value,
        "namespace": risk.namespace,
        "workload": risk.workload,
        "container": risk.container,
        "pods": risk.pods,
        "ofPods": risk.of_pods,
        "worstPod": risk.worst_pod,
        "why": why_at_risk(risk, report.findings.at),
    }
    unit = "Millicores" if risk.kind in _OF_CPU else "Bytes"
    if risk.kind is RiskKind.NO_REQUESTS:
        document["missing"] = [name.lower() for name in risk.missing]
    elif risk.kind is RiskKind.OOM_KILLED:
        document |= {"limitBytes": risk.observed or None, "killedAt": shape(risk.killed_at), "restarts": risk.restarts}
    else:
        document |= {f"observed{unit}": risk.observed, f"allowed{unit}": risk.allowed}
    return document


def _workload(row: WorkloadWaste, report: ScanReport) -> Shape:
    return {
        "namespace": row.namespace,
        "workload": row.workload,
        "pods": row.pods,
        "requested": _amounts(row.requested),
        "recommended": _amounts(row.recommended),
        "used": _amounts(row.used),
        "shareOfCluster": round(row.share, 6),
        "estimatedMonthlySaving": round(report.findings.prices.month(row.freed), 2),
        "leftAlone": row.held,
        "leftAloneReason": shape(row.held_reason),
    }


def _pending(pod: PendingPod) -> Shape:
    return {
        "namespace": pod.namespace,
        "pod": pod.pod,
        "workload": pod.workload or None,
        "priority": pod.priority,
        "needs": _amounts(pod.need),
        "since": shape(pod.since),
        "gated": pod.gated,
        "nodes": pod.nodes,
        "obstacles": shape(pod.obstacles),
        "fitsNow": pod.fits_now,
        "roomAfterSizing": pod.room_after,
        "bestNode": pod.best,
        "freedOnBestNode": _amounts(pod.best_freed),
        "why": why_pending(pod),
    }


def scan_csv(report: ScanReport) -> bytes:
    """Return the report as CSV: one row a finding, at-risk containers first, then waste, then pending pods."""
    text = io.StringIO()
    writer = csv.DictWriter(text, _CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in _rows(report):
        writer.writerow(row)
    return text.getvalue().encode()


def _rows(report: ScanReport) -> Iterator[dict[str, object]]:
    findings = report.findings
    for risk in findings.risks:
        yield {
            "section": "at-risk",
            "kind": risk.kind.value,
            "namespace": risk.namespace,
            "workload": risk.workload,
            "container": risk.container,
            "pod": risk.worst_pod,
            "pods": risk.pods,
            "why": why_at_risk(risk, findings.at),
        }
    for row in findings.workloads:
        yield {
            "section": "waste",
            "kind": "over-requested" if row.share > 0 else "under-requested" if row.share < 0 else "as-needed",
            "namespace": row.namespace,
            "workload": row.workload,
            "pods": row.pods,
            "why": row.held_reason.value if row.held_reason is not None else "",
            "cpu_requested_millicores": row.requested.cpu_millicores,
            "cpu_recommended_millicores": row.recommended.cpu_millicores,
            "cpu_used_millicores": row.used.cpu_millicores,
            "memory_requested_bytes": row.requested.memory_bytes,
            "memory_recommended_bytes": row.recommended.memory_bytes,
            "memory_used_bytes": row.used.memory_bytes,
            "share_of_cluster": f"{row.share:.6f}",
            "estimated_monthly_saving": f"{findings.prices.month(row.freed):.2f}",
        }
    for pod in findings.pending:
        yield {
            "section": "pending",
            "kind": "room-after-sizing" if pod.best is not None else "fits-now" if pod.fits_now else "no-room",
            "namespace": pod.namespace,
            "workload": pod.workload,
            "pod": pod.pod,
            "pods": 1,
            "why": "; ".join(part for part in (why_pending(pod), where_room(pod)) if part),
            "cpu_requested_millicores": pod.need.cpu_millicores,
            "memory_requested_bytes": pod.need.memory_bytes,
        }

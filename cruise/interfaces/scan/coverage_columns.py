"""The columns of a scan's coverage (what is sized, what is skipped for which reason) and of its slow starts."""

from rich.text import Text

from cruise.decisions.scan.findings import ScanFindings, SlowStart
from cruise.domain.annotations import STARTUP_CPU
from cruise.domain.resources import ResourceName
from cruise.interfaces.coverage import (
    CoverageRow,
    build_amounts_document,
    build_reclaimable_document,
    build_unlock_document,
    list_coverage_rows,
)
from cruise.interfaces.scan.columns import (
    ScanColumn,
    ScanPageCell,
    build_container_column,
    build_finding_document,
    format_monthly_cost,
)
from cruise.interfaces.text import JsonValue, format_cpu


def _create_resource_columns(
    resource: ResourceName, title: str, heading: str, narrow: str, unit: str
) -> tuple[ScanColumn[CoverageRow], ScanColumn[CoverageRow]]:
    """Return the columns of one resource: the requests, and what is reclaimable of them."""
    name = resource.value

    def requested(row: CoverageRow) -> int:
        return row.group.requested.get(resource)

    def reclaimable(row: CoverageRow) -> int | str:
        return row.group.reclaimable.get(resource) if row.group.is_known(resource) else ""

    return (
        ScanColumn(
            heading,
            lambda row, _, wide: Text.assemble(
                row.format_requested(resource), (f" {row.format_share(resource):>4}" if wide else "", "dim")
            ),
            title,
            lambda row, _: ScanPageCell(
                [(f"{row.format_requested(resource)} ", ""), (row.format_share(resource), "small")], requested(row)
            ),
            record={f"{name}_requested_{unit}": lambda row, _: requested(row)},
            kind="number",
            narrow_heading=narrow,
        ),
        ScanColumn(
            "RECLAIMABLE",
            lambda row, _, wide: Text(row.format_reclaimable(resource)),
            "Reclaimable",
            lambda row, _: ScanPageCell([(row.format_reclaimable(resource), "")], row.group.reclaimable.get(resource)),
            record={f"{name}_reclaimable_{unit}": lambda row, _: reclaimable(row)},
            kind="number",
        ),
    )


def _compute_cost(row: CoverageRow, findings: ScanFindings) -> float:
    return findings.prices.compute_monthly_cost(row.group.reclaimable)


def _format_cost(row: CoverageRow, findings: ScanFindings) -> str:
    return format_monthly_cost(row.group.reclaimable, findings) if row.is_money_known else ""


COVERAGE_COLUMNS: tuple[ScanColumn[CoverageRow], ...] = (
    ScanColumn(
        "REQUESTS",
        lambda row, _, wide: Text(row.label, style="bold" if row.reason is None else ""),
        "Requests",
        lambda row, _: ScanPageCell(
            [(row.label, "chip green" if row.reason is None else "chip amber")], note=row.description
        ),
        lambda row, _: {} if row.reason is None else {"reason": row.label, "description": row.description},
        {"kind": lambda row, _: row.label, "skip_reason": lambda row, _: "" if row.reason is None else row.label},
    ),
    ScanColumn(
        "PODS",
        lambda row, _, wide: Text(f"{row.group.pods:,}"),
        "Pods",
        lambda row, _: ScanPageCell([(f"{row.group.pods:,}", "")], row.group.pods),
        lambda row, _: {
            "pods": row.group.pods,
            "requested": build_amounts_document(row.group.requested),
            "reclaimable": build_reclaimable_document(row.group),
            "unknown": build_amounts_document(row.group.unknown),
        },
        {"pods": lambda row, _: row.group.pods},
        "number",
    ),
    *_create_resource_columns(ResourceName.CPU, "CPU cores", "CPU CORES", "CORES", "millicores"),
    *_create_resource_columns(ResourceName.MEMORY, "Memory GiB", "MEMORY GIB", "GIB", "bytes"),
    ScanColumn(
        "MONTHLY",
        lambda row, findings, wide: Text(_format_cost(row, findings)),
        "Monthly",
        lambda row, findings: ScanPageCell([(_format_cost(row, findings), "")], _compute_cost(row, findings)),
        lambda row, findings: {
            "reclaimableMonthlyCost": round(_compute_cost(row, findings), 2) if row.is_money_known else None
        },
        {
            "reclaimable_monthly_cost": lambda row, findings: (
                f"{_compute_cost(row, findings):.2f}" if row.is_money_known else ""
            )
        },
        "number",
    ),
    ScanColumn(
        "UNLOCKED BY",
        lambda row, _, wide: Text(row.unlock_description),
        "Unlocked by",
        lambda row, _: ScanPageCell([(row.unlock_description, "")]),
        lambda row, _: {} if row.unlock is None else {"unlock": build_unlock_document(row.unlock)},
        {"message": lambda row, _: row.unlock_description},
        "why",
        only_if_wide=True,
    ),
)


def build_coverage_document(findings: ScanFindings) -> JsonValue:
    """Return the coverage for JSON and YAML."""
    sized, *skipped = [
        build_finding_document(COVERAGE_COLUMNS, row, findings) for row in list_coverage_rows(findings.coverage)
    ]
    return {"requested": build_amounts_document(findings.coverage.requested), "sized": sized, "skipped": list(skipped)}


SLOW_STARTS_NOTE = (
    f"new pods would start with what earlier starts used, and go back to their size 30 seconds after Ready: "
    f"startup: learn, or {STARTUP_CPU.name}: learn"
)

SLOW_START_COLUMNS: tuple[ScanColumn[SlowStart], ...] = (
    build_container_column(SlowStart),
    ScanColumn(
        "PODS",
        lambda one, _, wide: Text(f"{one.pods:,}"),
        "Pods",
        lambda one, _: ScanPageCell([(f"{one.pods:,}", "")], one.pods),
        lambda one, _: {"pods": one.pods},
        {"pods": lambda one, _: one.pods},
        "number",
    ),
    ScanColumn(
        "CPU AFTER THE START",
        lambda one, _, wide: Text(format_cpu(one.settled)),
        "CPU after the start",
        lambda one, _: ScanPageCell([(format_cpu(one.settled), "")], one.settled),
        lambda one, _: {"cpuMillicores": one.settled},
        {"cpu_target_millicores": lambda one, _: one.settled},
        "number",
        narrow_heading="CPU AFTER",
    ),
    ScanColumn(
        "CPU DURING THE START",
        lambda one, _, wide: Text(f"{format_cpu(one.boosted)} ({one.boosted / one.settled:.1f}x)"),
        "CPU during the start",
        lambda one, _: ScanPageCell([(format_cpu(one.boosted), "b")], one.boosted),
        lambda one, _: {"startCpuMillicores": one.boosted},
        {"cpu_start_millicores": lambda one, _: one.boosted},
        "number",
        narrow_heading="CPU DURING",
    ),
)

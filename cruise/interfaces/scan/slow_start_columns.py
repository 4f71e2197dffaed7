"""The columns of a scan's slow starts: what new pods would start with, and go back to."""

from rich.text import Text

from cruise.decisions.scan.slow_starts import SlowStart
from cruise.domain.annotations import STARTUP_CPU
from cruise.interfaces.scan.columns import ScanColumn, ScanPageCell, build_container_column
from cruise.interfaces.text import format_cpu

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
        narrow_heading="AFTER",
    ),
    ScanColumn(
        "CPU DURING THE START",
        lambda one, _, wide: Text(f"{format_cpu(one.boosted)} ({one.boosted / one.settled:.1f}x)"),
        "CPU during the start",
        lambda one, _: ScanPageCell([(format_cpu(one.boosted), "b")], one.boosted),
        lambda one, _: {"startCpuMillicores": one.boosted},
        {"cpu_start_millicores": lambda one, _: one.boosted},
        "number",
        narrow_heading="DURING",
    ),
)

"""The row that benchmarks report, and the table that shows all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table


@dataclass(frozen=True, slots=True)
class BenchmarkRow:
    """One measured figure, and the figure that it is compared with.

    `ratio` is the value over the figure that `comparison` names; None without a comparison.
    """

    benchmark: str
    measure: str
    value: float
    unit: str
    comparison: str = ""
    ratio: float | None = None
    memory_mib: float | None = None


@dataclass(frozen=True, slots=True)
class BenchmarkOutcome:
    """The outcome of one benchmark's process: its rows and its peak memory, or the reason of its failure."""

    rows: tuple[BenchmarkRow, ...] = ()
    peak_memory_mib: float | None = None
    failure: str | None = None


def peak_memory_mib() -> float:
    """Return the largest resident set of this process so far.

    From VmHWM: getrusage's ru_maxrss starts at the parent's memory at the fork.
    """
    return _status_mib("VmHWM")


def forget_peak_memory() -> None:
    """Reset the kernel's count of this process's peak memory."""
    Path("/proc/self/clear_refs").write_text("5")


def resident_memory_mib() -> float:
    """Return the present resident set of this process."""
    return _status_mib("VmRSS")


def _status_mib(entry: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{entry}:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/self/status has no {entry} line")


def number(value: float) -> str:
    """Format a number with four significant digits and thousands separators."""
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def render(outcomes: Mapping[str, BenchmarkOutcome]) -> Table:
    """Return one table of all benchmarks, in the mapping's order, with a section for each."""
    table = Table(title="cruise: benchmarks", title_justify="left")
    for heading in ("benchmark", "measure"):
        table.add_column(heading)
    table.add_column("value", justify="right")
    table.add_column("unit")
    table.add_column("comparison")
    table.add_column("ratio", justify="right")
    table.add_column("memory MiB", justify="right")
    for name, outcome in outcomes.items():
        for cells in _cells(name, outcome):
            table.add_row(*cells)
        table.add_section()
    return table


def _cells(name: str, outcome: BenchmarkOutcome) -> Sequence[tuple[str, ...]]:
    if outcome.failure is not None:
        return [(name, f"failed: {outcome.failure}", "", "", "", "", "")]
    rows = [
        (
            row.benchmark,
            row.measure,
            number(row.value),
            row.unit,
            row.comparison,
            "" if row.ratio is None else number(row.ratio),
            "" if row.memory_mib is None else number(row.memory_mib),
        )
        for row in outcome.rows
    ]
    peak = "" if outcome.peak_memory_mib is None else number(outcome.peak_memory_mib)
    return [*rows, (name, "peak of the process", "", "", "", "", peak)]

"""`cruise plan` on generated clusters of 50, 500 and 5,000 nodes: the decision alone, and the whole command."""

import gc
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.snapshot_generator import generate_cluster, write_snapshot, write_usage
from benchmarks.table import BenchmarkRow
from cruise.adapters.files import load_snapshot, load_usage
from cruise.decisions.sizing.node_plans import decide_node_plans
from cruise.domain.policy import Mode, Policy

NAME = "plan"
SIZES = (50, 500, 5000)
LARGEST = SIZES[-1]
# The limit for the largest cluster.
DECIDING_SECONDS, COMMAND_SECONDS, COMMAND_MIB = 3.0, 15.0, 1536.0
# The command runs in a separate process that reports its own peak memory.
COMMAND = """
import sys
from cruise.cli import main
code = main(sys.argv[1:])
[peak] = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:")]
print(peak, file=sys.stderr)
sys.exit(code)
"""


@dataclass(frozen=True, slots=True)
class Command:
    """One run of the whole command."""

    wall_seconds: float
    cpu_seconds: float
    peak_mib: float


def run() -> list[BenchmarkRow]:
    """Measure every size."""
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        for nodes in SIZES:
            snapshot, usage = Path(directory) / f"snapshot-{nodes}.json", Path(directory) / f"usage-{nodes}.json"
            cluster = generate_cluster(nodes)
            write_snapshot(cluster, snapshot)
            write_usage(cluster, usage)
            containers = cluster.container_count
            del cluster
            command = run_command(snapshot, usage)
            rows += _rows(nodes, containers, deciding_seconds(snapshot, usage), command)
            snapshot.unlink()
    return rows


def _rows(nodes: int, containers: int, deciding: float, command: Command) -> list[BenchmarkRow]:
    promised, size = nodes == LARGEST, f"{nodes:,} nodes, {containers:,} containers"

    def row(measure: str, value: float, unit: str, limit: float, memory: float | None = None) -> BenchmarkRow:
        comparison = f"{limit:g} {unit} promised" if promised else ""
        return BenchmarkRow(
            NAME, f"{size}: {measure}", value, unit, comparison, value / limit if promised else None, memory
        )

    return [
        row("deciding", deciding, "s", DECIDING_SECONDS),
        BenchmarkRow(NAME, f"{size}: deciding a container", deciding / containers * 1e6, "µs"),
        row("whole command", command.wall_seconds, "s", COMMAND_SECONDS),
        row("whole command, CPU", command.cpu_seconds, "s", COMMAND_SECONDS),
        row("whole command, peak", command.peak_mib, "MiB", COMMAND_MIB, command.peak_mib),
    ]


def deciding_seconds(snapshot: Path, usage: Path) -> float:
    """Return the CPU seconds of the decision, without garbage collection as in the command."""
    gc.disable()
    try:
        cluster = load_snapshot(str(snapshot))
        statistics, now = load_usage(str(usage), cluster)
        start = time.process_time()
        plans = decide_node_plans(cluster, statistics, Policy(mode=Mode.FULL), now)
        seconds = time.process_time() - start
        assert len(plans) == len(cluster.nodes)
        return seconds
    finally:
        gc.enable()


def run_command(snapshot: Path, usage: Path) -> Command:
    """Run the whole command, without its output."""
    arguments = ["plan", "--snapshot", str(snapshot), "--usage", str(usage), "--format", "json"]
    before, start = os.times(), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=True,
    )
    wall, after = time.perf_counter() - start, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Command(wall, cpu, int(done.stderr.split()[-1]) / 1024)

"""Time and memory to load snapshots of three sizes, each in a separate process."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.snapshot_generator import GeneratedCluster, generate_cluster, write_snapshot, write_usage
from benchmarks.table import BenchmarkRow, peak_memory_mib
from cruise.adapters.files import load_snapshot, load_usage

NAME = "snapshot"
NODE_COUNTS = (50, 500, 5000)


def run() -> list[BenchmarkRow]:
    """Measure seconds and memory by size, as kubectl prints and without white space; `ratio` shows linear growth."""
    rows: list[BenchmarkRow] = []
    seconds_of_smaller: dict[bool, float] = {}
    for nodes in NODE_COUNTS:
        cluster = generate_cluster(nodes)
        for pretty in (True, False):
            with tempfile.TemporaryDirectory() as directory:
                measured, mebibytes = _measure(cluster, Path(directory), pretty)
            smaller = seconds_of_smaller.get(pretty)
            form = "as kubectl prints" if pretty else "compact"
            rows.append(
                BenchmarkRow(
                    NAME,
                    f"{nodes} nodes, {cluster.pod_count} pods, {mebibytes:.0f} MiB {form}",
                    measured["snapshot_seconds"],
                    "s",
                    "10 × the time of a tenth" if smaller else "",
                    measured["snapshot_seconds"] / (10 * smaller) if smaller else None,
                    measured["peak_memory_mib"],
                )
            )
            seconds_of_smaller[pretty] = measured["snapshot_seconds"]
        rows.append(
            BenchmarkRow(NAME, f"{nodes} nodes, {cluster.container_count} usage items", measured["usage_seconds"], "s")
        )
    return rows


def _measure(cluster: GeneratedCluster, directory: Path, pretty: bool) -> tuple[dict[str, float], float]:
    snapshot, usage = directory / "cluster.json", directory / "usage.json"
    write_snapshot(cluster, snapshot, pretty)
    write_usage(cluster, usage)
    command = [sys.executable, "-m", "benchmarks.bench_snapshot", str(snapshot), str(usage)]
    answer = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return json.loads(answer.stdout), snapshot.stat().st_size / (1 << 20)


def load_and_report(snapshot_path: str, usage_path: str) -> None:
    """Load both files in this process and print the time and memory."""
    started = time.perf_counter()
    snapshot = load_snapshot(snapshot_path)
    loaded = time.perf_counter()
    load_usage(usage_path, snapshot)
    finished = time.perf_counter()
    figures = {"snapshot_seconds": loaded - started, "usage_seconds": finished - loaded}
    print(json.dumps(figures | {"peak_memory_mib": peak_memory_mib()}))


if __name__ == "__main__":
    load_and_report(*sys.argv[1:])

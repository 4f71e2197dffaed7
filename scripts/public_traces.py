"""Writes trace directories from public recordings that are not shipped here, since their licences do not allow it.

    python -m scripts.public_traces planetlab planetlab-workload-traces/20110303 ~/.cache/cruise/traces/planetlab
    python -m scripts.public_traces gentd26 clusterdata/cluster-trace-v2026-GenAI ~/.cache/cruise/traces/gentd26

docs/public-traces.md says where each is to be had, what it is, and what was assumed.
"""

import csv
import gzip
import io
import sys
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from cruise.domain.arrays import Float64Array

_CORE, _GIBIBYTE = 1000, 1 << 30


def planetlab(source: Path, target: Path) -> None:
    """Convert one day: a file a virtual machine, a line every five minutes with its CPU in percent."""
    files = sorted(path for path in source.iterdir() if path.is_file() and not path.name.startswith("."))
    if not files:
        raise SystemExit(f"{source}: no files; give one day's directory, such as 20110303")
    columns = {path.name: np.array(path.read_text().split(), dtype=np.float64) * (_CORE / 100) for path in files}
    length = max(len(column) for column in columns.values())
    cpu = {name: np.pad(column, (0, length - len(column)), constant_values=np.nan) for name, column in columns.items()}
    # A machine is named by its host and its slice, and slices by their site and a name.
    workloads = {name: "-".join(name.split("_")[-2:]) for name in cpu}
    _write(target, 300, workloads, 0, {"cpu_millicores": cpu})


def gentd26(source: Path, target: Path) -> None:
    """Convert the pods that were recorded for half of the time: memory, and how busy their GPU is in place of CPU.

    A sample came every 57 s of a shifted and scaled clock; a step is taken as a minute.
    """
    busy = _read_tar(source / "pod_gpu_duty_cycle_anon.tar.gz")
    memory = _read_tar(source / "pod_memory_util_anon.tar.gz")
    start = min(at for samples in memory.values() for at in samples)
    length = 1 + max(round((at - start) / 57) for samples in memory.values() for at in samples)
    pods = [pod for pod in sorted(memory) if 2 * len(memory[pod]) > length and 2 * len(busy.get(pod, ())) > length]
    found = {}
    for name, of, unit in (("cpu_millicores", busy, _CORE / 100), ("memory_bytes", memory, 4 * _GIBIBYTE)):
        columns = {pod: np.full(length, np.nan) for pod in pods}
        for pod, column in columns.items():
            for at, value in of[pod].items():
                place = round((at - start) / 57)
                if 0 <= place < length:
                    # Scaling for privacy has left some values a little below nothing.
                    column[place] = max(value, 0.0) * unit
        found[name] = columns
    _write(target, 60, dict.fromkeys(pods, "diffusion"), 4 * _GIBIBYTE, found)


def _read_tar(path: Path) -> dict[str, dict[float, float]]:
    """Return each container's samples by time, from the one table in an archive."""
    found: dict[str, dict[float, float]] = {}
    with tarfile.open(path) as archive:
        member = next(one for one in archive if one.name.endswith(".csv") and not Path(one.name).name.startswith("."))
        file = archive.extractfile(member)
        if file is None:
            raise SystemExit(f"{path}: no table in it")
        for row in csv.DictReader(io.TextIOWrapper(file, encoding="utf-8")):
            found.setdefault(row["container_ip"], {})[float(row["timestamp_anon"])] = float(row["value"])
    return found


def _write(
    target: Path,
    step: int,
    workloads: Mapping[str, str],
    memory_request: int,
    resources: Mapping[str, Mapping[str, Float64Array]],
) -> None:
    """Write a trace directory of series that were each provisioned with a core, and so much memory."""
    target.mkdir(parents=True, exist_ok=True)
    with (target / "series.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["series", "workload", "cpu_request_millicores", "memory_request_bytes"])
        writer.writerows([name, workload, _CORE, memory_request] for name, workload in workloads.items())
    for name, columns in resources.items():
        _write_usage(target / f"{name}.csv.gz", step, list(columns), np.stack(list(columns.values()), axis=1))


def _write_usage(path: Path, step: int, names: Sequence[str], rows: Float64Array) -> None:
    with gzip.open(path, "wt", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["t", *names])
        writer.writerows([step * at, *_cells(row)] for at, row in enumerate(rows))


def _cells(row: Iterable[float]) -> Iterable[str]:
    return ("" if np.isnan(value) else f"{value:.10g}" for value in row)


_CONVERTERS = {"planetlab": planetlab, "gentd26": gentd26}


def main(arguments: Sequence[str]) -> None:
    """Convert one recording: its kind, where it is, where the trace directory is to be."""
    if len(arguments) != 3 or arguments[0] not in _CONVERTERS:
        raise SystemExit(f"usage: python -m scripts.public_traces {'|'.join(_CONVERTERS)} SOURCE TARGET")
    kind, source, target = arguments
    if not Path(source).is_dir():
        raise SystemExit(f"{source}: no such directory; docs/public-traces.md says where to get it")
    _CONVERTERS[kind](Path(source), Path(target))


if __name__ == "__main__":
    main(sys.argv[1:])

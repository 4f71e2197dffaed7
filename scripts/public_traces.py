"""Converts public recordings, which are not shipped here, to trace directories or to a snapshot of a cluster.

    python -m scripts.public_traces planetlab planetlab-workload-traces/20110303 ~/.cache/cruise/traces/planetlab
    python -m scripts.public_traces gentd26 clusterdata/cluster-trace-v2026-GenAI ~/.cache/cruise/traces/gentd26
    python -m scripts.public_traces nab NAB/data/realAWSCloudwatch ~/.cache/cruise/traces/nab
    python -m scripts.public_traces bytedance research-cluster-dataset/dataset ~/.cache/cruise/bytedance

docs/public-traces.md describes each recording, its source and the assumptions.
"""

import csv
import gzip
import io
import json
import sys
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from cruise.domain.arrays import Float64Array

_CORE, _GIBIBYTE = 1000, 1 << 30
_DAY = 86400
_WEEK = 7 * _DAY
# The assumed size of ByteDance's cluster; its recording has shares only.
_BYTEDANCE_MILLICORES, _BYTEDANCE_BYTES = 8_000 * _CORE, (32 << 10) * _GIBIBYTE


def convert_planetlab(source: Path, target: Path) -> None:
    """Convert one day: a file per virtual machine, a line every five minutes with its CPU in percent."""
    files = sorted(path for path in source.iterdir() if path.is_file() and not path.name.startswith("."))
    if not files:
        raise SystemExit(f"{source}: no files; give one day's directory, such as 20110303")
    columns = {path.name: np.array(path.read_text().split(), dtype=np.float64) * (_CORE / 100) for path in files}
    length = max(len(column) for column in columns.values())
    cpu = {name: np.pad(column, (0, length - len(column)), constant_values=np.nan) for name, column in columns.items()}
    # A machine's name has its host and its slice; a slice's name has its site.
    workloads = {name: "-".join(name.split("_")[-2:]) for name in cpu}
    _write(target, 300, workloads, 0, {"cpu_millicores": cpu})


def convert_gentd26(source: Path, target: Path) -> None:
    """Convert the pods that were recorded for half of the time: memory, and GPU utilization in place of CPU.

    Samples are 57 s apart on a shifted and scaled clock; a step counts as a minute.
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
                    # Scaling for privacy made some values slightly negative.
                    column[place] = max(value, 0.0) * unit
        found[name] = columns
    _write(target, 60, dict.fromkeys(pods, "diffusion"), 4 * _GIBIBYTE, found)


def nab(source: Path, target: Path) -> None:
    """Convert the CPU of EC2 and RDS instances: percent every five minutes, two weeks each, in several months.

    Each is moved by whole weeks, so that all begin in the same week and keep their hour and day.
    """
    paths = sorted(source.glob("*_cpu_utilization_*.csv"))
    if not paths:
        raise SystemExit(f"{source}: no *_cpu_utilization_*.csv; give NAB's data/realAWSCloudwatch")
    columns = {path.stem: _read_nab(path) for path in paths}
    length = 1 + max(place for column in columns.values() for place in column)
    cpu = {name: np.full(length, np.nan) for name in columns}
    for name, column in columns.items():
        cpu[name][list(column)] = [value * (_CORE / 100) for value in column.values()]
    first = min(int(np.flatnonzero(~np.isnan(column))[0]) for column in cpu.values()) * 300 // _DAY * _DAY // 300
    _write(target, 300, {name: name for name in cpu}, 0, {"cpu_millicores": {k: v[first:] for k, v in cpu.items()}})


def bytedance(source: Path, target: Path) -> None:
    """Convert cluster M3 to a snapshot for `cruise pack`: 96 machines, and each container as a pod where it ran."""
    if not (source / "M3.json").exists():
        raise SystemExit(f"{source}: no M3.json; give the recording's directory dataset")
    target.mkdir(parents=True, exist_ok=True)
    cluster = json.loads((source / "M3.json").read_text())
    items = [*map(_bytedance_node, cluster["MachineList"]), *_bytedance_pods(cluster)]
    (target / "cluster.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


def _read_nab(path: Path) -> dict[int, float]:
    """Return the values by step, counted from the Monday before the first one."""
    found: dict[int, float] = {}
    monday = 0
    for row in csv.DictReader(path.read_text().splitlines()):
        at = int(datetime.fromisoformat(row["timestamp"]).replace(tzinfo=UTC).timestamp())
        # Unix time began on a Thursday.
        monday = monday or at - (at + 3 * _DAY) % _WEEK
        found[(at - monday) // 300] = float(row["value"])
    return found


def _bytedance_node(machine: Mapping[str, Any]) -> Mapping[str, object]:
    name = f"machine-{machine['MachineIP'].replace('.', '-')}"
    allocatable = _bytedance_amounts(machine["TotalCPU"], machine["TotalMem"]) | {"pods": "110"}
    ready = [{"type": "Ready", "status": "True"}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": allocatable, "capacity": allocatable, "conditions": ready},
    }


def _bytedance_pods(cluster: Mapping[str, Any]) -> Iterator[Mapping[str, object]]:
    machine_of = {
        container: f"machine-{machine['MachineIP'].replace('.', '-')}"
        for machine in cluster["MachineList"]
        for container in machine["InitialDeployingContainers"]
    }
    for service in cluster["ServiceList"]:
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": service["Service"].lower(), "controller": True}
        requests = _bytedance_amounts(service["RequestCPU"], service["RequestMem"])
        for container in service["ContainerList"]:
            yield {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "namespace": "bytedance",
                    "name": container.lower(),
                    "uid": container.lower(),
                    "creationTimestamp": "2026-01-01T00:00:00Z",
                    "ownerReferences": [owner | {"uid": owner["name"]}],
                },
                "spec": {
                    "nodeName": machine_of[container],
                    "containers": [{"name": "main", "resources": {"requests": requests}}],
                },
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
            }


def _bytedance_amounts(cpu: float, memory: float) -> dict[str, str]:
    return {"cpu": f"{round(cpu * _BYTEDANCE_MILLICORES)}m", "memory": str(round(memory * _BYTEDANCE_BYTES))}


def _read_tar(path: Path) -> dict[str, dict[float, float]]:
    """Return each container's samples by time, from the only table in an archive."""
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
    """Write a trace directory of series that are provisioned with a core and so much memory."""
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


_CONVERTERS = {"planetlab": convert_planetlab, "gentd26": convert_gentd26, "nab": nab, "bytedance": bytedance}


def main(arguments: Sequence[str]) -> None:
    """Convert one recording; the arguments are its kind, its path and the directory to write."""
    if len(arguments) != 3 or arguments[0] not in _CONVERTERS:
        raise SystemExit(f"usage: python -m scripts.public_traces {'|'.join(_CONVERTERS)} SOURCE TARGET")
    kind, source, target = arguments
    if not Path(source).is_dir():
        raise SystemExit(f"{source}: no such directory; docs/public-traces.md says where to get it")
    _CONVERTERS[kind](Path(source), Path(target))


if __name__ == "__main__":
    main(sys.argv[1:])

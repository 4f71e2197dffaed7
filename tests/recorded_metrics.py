"""The metrics that Prometheus would have scraped from a recorded cluster: cAdvisor and kube-state-metrics."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from cruise.backtest.recordings.recording import RecordedContainer, UsageRecording
from tests.prometheus_server import make_blocks, running_prometheus

HOUR = 3600
HASH = "6b7f9c8d5f"


@contextmanager
def prometheus_with(recording: UsageRecording, directory: Path) -> Iterator[str]:
    """Run a Prometheus that has scraped a recorded cluster; its URL."""
    blocks = directory / "blocks"
    make_blocks(lambda path: write_metrics(recording, path), blocks)
    with running_prometheus(blocks) as url:
        yield url


def write_metrics(recording: UsageRecording, path: Path, kube_state: bool = True, prefix: str = "") -> None:
    """Write what `promtool tsdb create-blocks-from openmetrics` reads: a scrape at each of the recording's times.

    A counter is there a step before its container's first sample, and ends with a mark that it is gone. `prefix` goes
    before the labels by which kube-state-metrics names pods, where the scraper's own have taken their names.
    """
    with path.open("w") as file:
        file.write("# TYPE container_cpu_usage_seconds counter\n")
        for column, one in enumerate(recording.containers):
            name = f"container_cpu_usage_seconds_total{{{_labels(one)}}}"
            file.writelines(f"{name} {value} {at}\n" for at, value in _counter(recording, column))
        file.write("# TYPE container_memory_working_set_bytes gauge\n")
        for column, one in enumerate(recording.containers):
            name = f"container_memory_working_set_bytes{{{_labels(one)}}}"
            file.writelines(f"{name} {value} {at}\n" for at, value in _memory(recording, column))
        if kube_state:
            _write_kube_state(file.write, recording, prefix)
        file.write("# EOF\n")


def owned_by_a_replica_set(one: RecordedContainer) -> str:
    """The name of the ReplicaSet between a container's pod and its Deployment."""
    return f"{one.workload.name}-{HASH}"


def _labels(one: RecordedContainer) -> str:
    names = f'namespace="{one.namespace}",pod="{one.pod}",container="{one.container}"'
    return f'{names},id="/kubepods/{one.pod}/{one.container}",node="n1"'


def _counter(recording: UsageRecording, column: int) -> Iterator[tuple[int, str]]:
    used = recording.cpu_millicores[:, column].astype(np.float64)
    there = ~np.isnan(used)
    counted = np.cumsum(np.where(there, used, 0.0)) * recording.step_seconds / 1000
    first = int(np.argmax(there))
    yield recording.start + (first - 1) * recording.step_seconds, "0.000"
    for row in range(first, len(used)):
        at = recording.start + row * recording.step_seconds
        if there[row]:
            yield at, f"{counted[row]:.3f}"
        elif there[row - 1]:
            yield at, "NaN"


def _memory(recording: UsageRecording, column: int) -> Iterator[tuple[int, str]]:
    held = recording.memory_bytes[:, column].astype(np.float64)
    there = ~np.isnan(held)
    for row in range(int(np.argmax(there)), len(held)):
        at = recording.start + row * recording.step_seconds
        if there[row]:
            yield at, f"{held[row]:.0f}"
        elif there[row - 1]:
            yield at, "NaN"


def _write_kube_state(write: Callable[[str], object], recording: UsageRecording, prefix: str) -> None:
    own = 'namespace="monitoring",pod="kube-state-metrics-0",container="main",' if prefix else ""
    lives = list(_hours_of_life(recording))
    write("# TYPE kube_pod_container_resource_requests gauge\n")
    for one, hours in zip(recording.containers, lives, strict=True):
        names = f'{own}{prefix}namespace="{one.namespace}",{prefix}pod="{one.pod}",{prefix}container="{one.container}"'
        for resource, unit, value in (
            ("cpu", "core", one.requests.cpu_millicores / 1000),
            ("memory", "byte", one.requests.memory_bytes),
        ):
            line = f'kube_pod_container_resource_requests{{{names},resource="{resource}",unit="{unit}"}} {value}'
            write("".join(f"{line} {at}\n" for at in hours))
    write("# TYPE kube_pod_owner gauge\n")
    for one, hours in zip(recording.containers, lives, strict=True):
        owner = f'owner_kind="ReplicaSet",owner_name="{owned_by_a_replica_set(one)}",owner_is_controller="true"'
        names = f'{own}{prefix}namespace="{one.namespace}",{prefix}pod="{one.pod}"'
        line = f"kube_pod_owner{{{names},{owner}}} 1"
        write("".join(f"{line} {at}\n" for at in hours))
    write("# TYPE kube_replicaset_owner gauge\n")
    start, end = recording.start, recording.start + len(recording.cpu_millicores) * recording.step_seconds
    for namespace, name, replica_set in sorted(
        {(one.namespace, one.workload.name, owned_by_a_replica_set(one)) for one in recording.containers}
    ):
        labels = f'{own}{prefix}namespace="{namespace}",replicaset="{replica_set}"'
        labels += f',owner_kind="Deployment",owner_name="{name}"'
        write("".join(f"kube_replicaset_owner{{{labels}}} 1 {at}\n" for at in range(start, end, HOUR)))


def _hours_of_life(recording: UsageRecording) -> Iterator[range]:
    """Return the whole hours at which each pod was there, and the one in which it came."""
    there = ~np.isnan(recording.cpu_millicores)
    step = recording.step_seconds
    for column in range(there.shape[1]):
        rows = np.flatnonzero(there[:, column])
        first, last = recording.start + int(rows[0]) * step, recording.start + int(rows[-1]) * step
        yield range(-(-first // HOUR) * HOUR, last + 1, HOUR)

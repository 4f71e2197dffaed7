"""The last days of a Prometheus as a recording."""

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

import numpy as np

from cruise.adapters.prometheus.clusters import of_cluster
from cruise.adapters.prometheus.kube_state import REQUESTS, KubeState, read_kube_state
from cruise.adapters.prometheus.recording import DAY, RecordingReader
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.adapters.prometheus.usage_questions import MANY_CORES
from cruise.backtest.recordings.provisioning import Provisioning
from cruise.backtest.recordings.recording import RecordedContainer, Recording
from cruise.backtest.recordings.traces import PASS_SECONDS, WHAT_FITS, fits_passes
from cruise.decisions.preflight.plausibility import cluster_words
from cruise.domain.arrays import Float32Array
from cruise.domain.cluster import Snapshot
from cruise.domain.usage import ContainerKey
from cruise.errors import BadInput

NAME = "prometheus"
# The last scrapes of a time may not be in yet.
SETTLE_SECONDS = 30
# A container that uses a hundredth of a core on average is rarely quite still for minutes on end.
BUSY_MILLICORES = 10
MOST_STILL = 0.4


def read_recording(
    prometheus: PrometheusSettings,
    days: int,
    end: datetime,
    snapshot: Snapshot | None = None,
    on_progress: Callable[[float], None] | None = None,
    say: Callable[[str], None] | None = None,
    pass_seconds: int = PASS_SECONDS,
) -> Recording:
    """Read the days up to `end`, pods that are gone by now included.

    CPU is demand, usage × (1 + psi), as the controller reads it. `snapshot`, the cluster as it is now, has requests
    and owners best; without it kube-state-metrics has. `say` is given single lines about what is not in the
    recording. Raises BadInput, Throttled, Unavailable.
    """
    step = prometheus.step_seconds
    if not fits_passes(step, pass_seconds):
        raise BadInput(f"prometheus_step is {step} s: {WHAT_FITS.format(pass_seconds)}")
    until = (math.floor(end.timestamp()) - SETTLE_SECONDS) // step * step
    start = until - days * DAY
    cores = max((node.allocatable.cpu_millicores / 1000 for node in snapshot.nodes), default=0.0) if snapshot else 0.0
    if snapshot is not None and prometheus.plausible:
        prometheus, cluster = of_cluster(prometheus, snapshot, until)
        if say is not None and cluster.others:
            # Pods that ended between the recording and the snapshot are no strangers.
            say(cluster_words(replace(cluster, strangers_in_all=0)))
    reader = RecordingReader(prometheus, start, until, cores or MANY_CORES)
    try:
        keys = reader.containers()
        if not keys:
            raise BadInput(
                f"Prometheus at {prometheus.url} has no {prometheus.metrics.cpu} of containers in the last {days} days:"
                " see the label names and prometheus_matchers"
            )
        state = read_kube_state(prometheus, reader.client, start, until)
        containers = _provisioned(keys, snapshot, state, prometheus, say)
        kept = [ContainerKey(one.namespace, one.pod, one.container) for one in containers]
        cpu, memory = reader.read(kept, on_progress)
    finally:
        reader.close()
    sampled = ~np.isnan(np.fmax.reduce(cpu, axis=0))
    if not sampled.any():
        raise BadInput(f"Prometheus at {prometheus.url} has no two samples of any container in the last {days} days")
    _check_scrapes(cpu, step)
    if not sampled.all():
        containers = [one for one, some in zip(containers, sampled.tolist(), strict=True) if some]
        _keep_columns(cpu, sampled)
        _keep_columns(memory, sampled)
    # Nothing is known of the time before the first sample, which is not to count as an empty cluster.
    empty = int(np.argmax(~np.isnan(np.fmax.reduce(cpu, axis=1))))
    if empty and say is not None:
        say(f"the server has {days - empty * step / DAY:,.1f} of the {days} days that were requested")
    has_memory = not bool(np.isnan(np.fmax.reduce(np.fmax.reduce(memory, axis=0))))
    if not has_memory:
        memory.fill(0)
    return Recording(
        name=NAME,
        containers=tuple(containers),
        start=start + (empty + 1) * step,
        step_seconds=step,
        cpu_millicores=cpu[empty:],
        memory_bytes=memory[empty:],
        has_memory=has_memory,
    )


def _provisioned(
    keys: list[ContainerKey],
    snapshot: Snapshot | None,
    state: KubeState,
    prometheus: PrometheusSettings,
    say: Callable[[str], None] | None,
) -> list[RecordedContainer]:
    containers = Provisioning.of(snapshot, state).containers(keys)
    if not containers:
        hint = (
            f"let it scrape kube-state-metrics ({REQUESTS}), or give the cluster itself with --snapshot FILE"
            if snapshot is None
            else "is the server that of this cluster?"
        )
        raise BadInput(
            f"what the {len(keys):,} containers in Prometheus at {prometheus.url} request is not known, "
            f"and no policy can be compared without it: {hint}"
        )
    left_out = len(keys) - len(containers)
    if left_out and say is not None:
        why = "they request nothing, are init containers, or their requests are not known"
        say(f"left out: {left_out:,} of {len(keys):,} containers: {why}")
    return containers


def _check_scrapes(cpu: Float32Array, step: int) -> None:
    """Raise BadInput where the step is shorter than what lies between two scrapes.

    A counter then stands still for some steps, and one of them has the use of all: peaks that there never were.
    """
    some = cpu[:, :: max(1, cpu.shape[1] // 200)]
    known = (~np.isnan(some)).sum(axis=0)
    busy = np.nansum(some, axis=0) >= BUSY_MILLICORES * np.maximum(known, 1)
    if busy.any():
        still = float(np.median((some[:, busy] == 0).sum(axis=0) / known[busy]))
        if still > MOST_STILL:
            raise BadInput(
                f"most counters stand still in {still:.0%} of the steps of {step} s, so scrapes are further apart than "
                "that, and there would be peaks that never were: set prometheus_step higher, such as 5m"
            )


def _keep_columns(matrix: Float32Array, kept: np.ndarray) -> None:
    """Drop columns without a second matrix."""
    rows, count = len(matrix), int(kept.sum())
    flat = matrix.reshape(-1)
    for row in range(rows):
        flat[row * count : (row + 1) * count] = matrix[row, kept]
    del flat
    matrix.resize((rows, count), refcheck=False)

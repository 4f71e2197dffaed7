"""Reads the last days of a Prometheus server as a recording.

The workloads and requests of containers come from the best source that has them: the present cluster, then
kube-state-metrics at the time, then the pod's name. A pod that no longer exists has the workload of its name, and the
requests of the containers of that workload.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np

from cruise.adapters.prometheus.clusters import select_cluster
from cruise.adapters.prometheus.recording import (
    DAY,
    REQUESTS,
    KubeStateMetrics,
    RecordingReader,
    read_pod_owners_and_requests,
)
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.adapters.prometheus.source import MAX_CORES
from cruise.backtest.recordings.recording import (
    PASS_SECONDS,
    STEP_HELP,
    RecordedContainer,
    UsageRecording,
    do_passes_fall_on_samples,
)
from cruise.decisions.preflight.usage import describe_cluster_series
from cruise.domain.arrays import Float32Array
from cruise.domain.cluster import ClusterSnapshot, ContainerRole, Pod, WorkloadRef
from cruise.domain.original_resources import read_original_resources
from cruise.domain.resources import Resources
from cruise.domain.usage import ContainerKey
from cruise.errors import BadInputError

# The alphabet of generated name suffixes in Kubernetes: no vowels and no similar characters.
_LETTER = "[bcdfghjklmnpqrstvwxz2456789]"
_REPLICA_SET = re.compile(rf"(.+)-{_LETTER}{{1,10}}")
_OF_DEPLOYMENT = re.compile(rf"(.+)-{_LETTER}{{6,10}}-{_LETTER}{{5}}")
_OF_CRON_JOB = re.compile(rf"(.+)-[0-9]{{8,}}-{_LETTER}{{5}}")
_OF_SET = re.compile(rf"(.+)-{_LETTER}{{5}}")
_OF_STATEFUL_SET = re.compile(r"(.+)-[0-9]+")

_WorkloadContainer = tuple[str, WorkloadRef, str]

RECORDING_NAME = "prometheus"
# The last scrapes may not be stored yet.
SCRAPE_DELAY_SECONDS = 30
# A container that uses a hundredth of a core on average rarely uses no CPU for minutes.
BUSY_MILLICORES = 10
MAX_CONSTANT_SHARE = 0.4


@dataclass(slots=True)
class PodWorkloadsAndRequests:
    """The known workloads and requests of pods; `initial` are init containers."""

    state: KubeStateMetrics
    workloads: dict[tuple[str, str], WorkloadRef] = field(default_factory=dict)
    requests: dict[ContainerKey, Resources] = field(default_factory=dict)
    known: set[tuple[str, WorkloadRef]] = field(default_factory=set)
    initial: set[ContainerKey] = field(default_factory=set)

    @staticmethod
    def create(snapshot: ClusterSnapshot | None, state: KubeStateMetrics) -> "PodWorkloadsAndRequests":
        """Merge the present cluster, if given, and the series of kube-state-metrics."""
        found = PodWorkloadsAndRequests(state, requests=dict(state.requests))
        for pod in snapshot.pods if snapshot is not None else ():
            if pod.workload is not None:
                found.workloads[pod.namespace, pod.name] = pod.workload
                found.known.add((pod.namespace, pod.workload))
            for name, role, requested in _requests(pod):
                key = ContainerKey(pod.namespace, pod.name, name)
                found.requests[key] = requested
                if role is ContainerRole.INIT:
                    found.initial.add(key)
        return found

    def containers(self, keys: Sequence[ContainerKey]) -> list[RecordedContainer]:
        """Return the containers with requests, in their order; without init containers."""
        workloads = {pod: self._workload(*pod) for pod in {(key.namespace, key.pod) for key in keys}}
        largest: dict[_WorkloadContainer, Resources] = {}
        for key, requested in self.requests.items():
            workload = workloads.get((key.namespace, key.pod)) or self._workload(key.namespace, key.pod)
            if key not in self.initial:
                place = (key.namespace, workload, key.container)
                largest[place] = requested.max_with(largest.get(place, Resources()))
        found = []
        for key in keys:
            workload = workloads[key.namespace, key.pod]
            requested = self.requests.get(key) or largest.get((key.namespace, workload, key.container), Resources())
            if key not in self.initial and requested != Resources():
                found.append(RecordedContainer(*key, workload, requested))
        return found

    def _workload(self, namespace: str, pod: str) -> WorkloadRef:
        workload = self.workloads.get((namespace, pod))
        if workload is not None:
            return workload
        owner = self.state.owner_of_pod.get((namespace, pod))
        if owner is None:
            candidates = _parse_pod_name(pod)
            return next((one for one in candidates if (namespace, one) in self.known), candidates[0])
        controller_owner = self.state.owner_of_controller.get((namespace, *owner))
        if controller_owner is not None:
            return WorkloadRef(*controller_owner)
        replica_set = _REPLICA_SET.fullmatch(owner[1]) if owner[0] == "ReplicaSet" else None
        return WorkloadRef("Deployment", replica_set[1]) if replica_set else WorkloadRef(*owner)


def _parse_pod_name(pod: str) -> list[WorkloadRef]:
    """Return the workloads that a pod's name may belong to, the likeliest first."""
    found = []
    for pattern, kinds in (
        (_OF_CRON_JOB, ("CronJob",)),
        (_OF_DEPLOYMENT, ("Deployment", "Rollout")),
        (_OF_SET, ("DaemonSet", "Job", "ReplicaSet")),
        (_OF_STATEFUL_SET, ("StatefulSet",)),
    ):
        match = pattern.fullmatch(pod)
        if match:
            found += [WorkloadRef(kind, match[1]) for kind in kinds]
    return [*found, WorkloadRef("Pod", pod)]


def _requests(pod: Pod) -> Iterable[tuple[str, ContainerRole, Resources]]:
    """Return each container's requests before any change at admission."""
    originals = read_original_resources(pod)
    for container in pod.containers:
        requested = originals[container.name][0] if container.name in originals else container.requests
        yield container.name, container.role, requested.resources


def read_recording(
    prometheus: PrometheusSettings,
    days: int,
    end: datetime,
    snapshot: ClusterSnapshot | None = None,
    on_progress: Callable[[float], None] | None = None,
    add_note: Callable[[str], None] | None = None,
    pass_seconds: int = PASS_SECONDS,
) -> UsageRecording:
    """Read the days before `end`, including pods that no longer exist.

    CPU is demand, usage × (1 + psi), as in the controller. `snapshot` is the present cluster. `add_note` receives lines
    about what the recording lacks. Raises BadInputError, ThrottledError, UnavailableError.
    """
    step = prometheus.step_seconds
    if not do_passes_fall_on_samples(step, pass_seconds):
        raise BadInputError(f"prometheus_step is {step} s: {STEP_HELP.format(pass_seconds)}")
    until = (math.floor(end.timestamp()) - SCRAPE_DELAY_SECONDS) // step * step
    start = until - days * DAY
    cores = max((node.allocatable.cpu_millicores / 1000 for node in snapshot.nodes), default=0.0) if snapshot else 0.0
    if snapshot is not None and prometheus.plausible:
        prometheus, cluster = select_cluster(prometheus, snapshot, until)
        if add_note is not None and cluster.other_clusters:
            # Pods that ended between the recording and the snapshot are not unknown.
            add_note(describe_cluster_series(replace(cluster, unknown_pod_count=0)))
    reader = RecordingReader(prometheus, start, until, cores or MAX_CORES)
    try:
        keys = reader.list_containers()
        if not keys:
            raise BadInputError(
                f"Prometheus at {prometheus.url} has no {prometheus.metrics.cpu} of containers in the last {days} days:"
                " see the label names and prometheus_matchers"
            )
        state = read_pod_owners_and_requests(prometheus, reader.client, start, until)
        containers = _find_provisioned(keys, snapshot, state, prometheus, add_note)
        kept = [ContainerKey(one.namespace, one.pod, one.container) for one in containers]
        cpu, memory = reader.read(kept, on_progress)
    finally:
        reader.close()
    sampled = ~np.isnan(np.fmax.reduce(cpu, axis=0))
    if not sampled.any():
        raise BadInputError(
            f"Prometheus at {prometheus.url} has no two samples of any container in the last {days} days"
        )
    _check_scrapes(cpu, step)
    if not sampled.all():
        containers = [one for one, some in zip(containers, sampled.tolist(), strict=True) if some]
        _keep_columns(cpu, sampled)
        _keep_columns(memory, sampled)
    # The time before the first sample is unknown and must not count as an empty cluster.
    empty = int(np.argmax(~np.isnan(np.fmax.reduce(cpu, axis=1))))
    if empty and add_note is not None:
        add_note(f"the server has {days - empty * step / DAY:,.1f} of the {days} days that were requested")
    has_memory = not bool(np.isnan(np.fmax.reduce(np.fmax.reduce(memory, axis=0))))
    if not has_memory:
        memory.fill(0)
    return UsageRecording(
        name=RECORDING_NAME,
        containers=tuple(containers),
        start=start + (empty + 1) * step,
        step_seconds=step,
        cpu_millicores=cpu[empty:],
        memory_bytes=memory[empty:],
        has_memory=has_memory,
        autoscalers=() if snapshot is None else snapshot.autoscalers,
    )


def _find_provisioned(
    keys: list[ContainerKey],
    snapshot: ClusterSnapshot | None,
    state: KubeStateMetrics,
    prometheus: PrometheusSettings,
    add_note: Callable[[str], None] | None,
) -> list[RecordedContainer]:
    containers = PodWorkloadsAndRequests.create(snapshot, state).containers(keys)
    if not containers:
        hint = (
            f"let it scrape kube-state-metrics ({REQUESTS}), or give the cluster itself with --snapshot FILE"
            if snapshot is None
            else "is the server that of this cluster?"
        )
        raise BadInputError(
            f"what the {len(keys):,} containers in Prometheus at {prometheus.url} request is not known, "
            f"and no policy can be compared without it: {hint}"
        )
    left_out = len(keys) - len(containers)
    if left_out and add_note is not None:
        reason = "they request nothing, are init containers, or their requests are not known"
        add_note(f"left out: {left_out:,} of {len(keys):,} containers: {reason}")
    return containers


def _check_scrapes(cpu: Float32Array, step: int) -> None:
    """Raise BadInputError if the step is shorter than the scrape interval.

    A counter is then constant for some steps, and the next step has the usage of all of them: a false peak.
    """
    columns = cpu[:, :: max(1, cpu.shape[1] // 200)]
    known = (~np.isnan(columns)).sum(axis=0)
    busy = np.nansum(columns, axis=0) >= BUSY_MILLICORES * np.maximum(known, 1)
    if busy.any():
        constant = float(np.median((columns[:, busy] == 0).sum(axis=0) / known[busy]))
        if constant > MAX_CONSTANT_SHARE:
            raise BadInputError(
                f"most counters do not change in {constant:.0%} of the steps of {step} s, so scrapes are further apart "
                "than a step, which would give false peaks: set prometheus_step higher, such as 5m"
            )


def _keep_columns(matrix: Float32Array, kept: np.ndarray) -> None:
    """Drop the other columns in place, without a second matrix."""
    rows, count = len(matrix), int(kept.sum())
    flat = matrix.reshape(-1)
    for row in range(rows):
        flat[row * count : (row + 1) * count] = matrix[row, kept]
    del flat
    matrix.resize((rows, count), refcheck=False)

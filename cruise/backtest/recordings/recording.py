"""Recorded usage: a regular grid of times, one column per container."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from cruise.domain.arrays import Float32Array, Int64Array
from cruise.domain.cluster import HorizontalPodAutoscaler, WorkloadRef
from cruise.domain.resources import Resources
from cruise.errors import BadInputError

# Recordings have requests only. A limit equal to the request would kill every container that exceeds it, also under
# VPA, which keeps the proportion: the comparison would then be of this assumption.
PROVISIONED_LIMIT_OF_REQUEST = 2


@dataclass(frozen=True, slots=True)
class RecordedContainer:
    """One container, the only one of its pod, with its workload and provisioned requests."""

    namespace: str
    pod: str
    container: str
    workload: WorkloadRef
    requests: Resources

    @property
    def memory_limit_bytes(self) -> int:
        """The assumed provisioned memory limit, the same for every policy; 0 for no limit."""
        return PROVISIONED_LIMIT_OF_REQUEST * self.requests.memory_bytes


@dataclass(frozen=True, slots=True)
class UsageRecording:
    """The usage of C containers at T times, as matrices (T, C); NaN is no sample.

    Times are `start`, `start` + `step_seconds` …, in Unix seconds and multiples of the step. CPU is the usage over the
    step that ends at the time, memory the working set at the time. Without `has_memory` the memory matrix is zero.
    `autoscalers` are the HPAs of the cluster, if it is known.
    """

    name: str
    containers: Sequence[RecordedContainer]
    start: int
    step_seconds: int
    cpu_millicores: Float32Array
    memory_bytes: Float32Array
    has_memory: bool = True
    autoscalers: tuple[HorizontalPodAutoscaler, ...] = ()

    def number_workload_containers(self) -> Int64Array:
        """Number the pairs of workload and container name from 0, and return each container's number."""
        numbers: dict[tuple[str, WorkloadRef, str], int] = {}
        keys = [(one.namespace, one.workload, one.container) for one in self.containers]
        return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)

    @property
    def days(self) -> float:
        """The length of the recording."""
        return len(self.cpu_millicores) * self.step_seconds / 86400


def cap_requests_to_node(recording: UsageRecording, node: Resources) -> tuple[UsageRecording, int]:
    """Limit requests to a node's allocatable, and return the number of containers that this changed.

    Otherwise pods that fit on no node would run under some policies only.
    """
    containers = [
        one if one.requests.fits_in(node) else replace(one, requests=one.requests.min_with(node))
        for one in recording.containers
    ]
    count = sum(now is not before for now, before in zip(containers, recording.containers, strict=True))
    return (replace(recording, containers=containers) if count else recording), count


class RecordingHalf(StrEnum):
    """A half of the containers, sorted by name: the even or the odd places. One to tune rules on, one to test them."""

    TUNE = "tune"
    REPORT = "report"


def select_half(recording: UsageRecording, half: RecordingHalf) -> UsageRecording:
    """Return the recording with half of its containers, in their order. Raises BadInputError if that half is empty."""
    by_name = sorted(range(len(recording.containers)), key=lambda place: _get_name(recording.containers[place]))
    places = np.array(sorted(by_name[0 if half is RecordingHalf.TUNE else 1 :: 2]), dtype=np.int64)
    if not places.size:
        raise BadInputError(f"--half {half.value}: {recording.name} has one series only, and it is in the other half")
    return replace(
        recording,
        containers=tuple(recording.containers[place] for place in places.tolist()),
        cpu_millicores=recording.cpu_millicores[:, places],
        memory_bytes=recording.memory_bytes[:, places],
    )


def _get_name(container: RecordedContainer) -> tuple[str, str, str]:
    return container.namespace, container.pod, container.container

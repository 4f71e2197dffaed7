"""Recorded usage as a replay reads it: one regular grid of times, one column a container."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from cruise.domain.cluster import WorkloadRef
from cruise.domain.resources import Float32Array, Int64Array, Resources
from cruise.errors import BadInputError

# Recordings know requests alone. A limit at the request would kill what passes it under every policy that leaves it,
# and VPA's, which keep the proportion, at their targets: what was compared then would be this assumption.
PROVISIONED_LIMIT_OF_REQUEST = 2


@dataclass(frozen=True, slots=True)
class RecordedContainer:
    """One container, alone in its pod: its workload, and what it was provisioned with."""

    namespace: str
    pod: str
    container: str
    workload: WorkloadRef
    requests: Resources

    @property
    def memory_limit_bytes(self) -> int:
        """What its memory is limited to as provisioned, 0 for no limit: the same assumption for every policy."""
        return PROVISIONED_LIMIT_OF_REQUEST * self.requests.memory_bytes


@dataclass(frozen=True, slots=True)
class UsageRecording:
    """Usage of C containers at T times; the matrices have one row a time and one column a container.

    The times are `start`, `start` + `step_seconds` …, in Unix seconds and on the grid of the step; NaN is no sample.
    CPU is the use over the step that ends at the time, memory the working set at the time. `has_memory` is False where
    memory was not recorded: it is zero then, and nothing is said about it.
    """

    name: str
    containers: Sequence[RecordedContainer]
    start: int
    step_seconds: int
    cpu_millicores: Float32Array
    memory_bytes: Float32Array
    has_memory: bool = True

    def workload_containers(self) -> Int64Array:
        """Number the (workload, container name) pairs from 0, and return each container's number."""
        numbers: dict[tuple[str, WorkloadRef, str], int] = {}
        keys = [(one.namespace, one.workload, one.container) for one in self.containers]
        return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)

    @property
    def days(self) -> float:
        """How long the recording is."""
        return len(self.cpu_millicores) * self.step_seconds / 86400


# Requests that no node has room for.


def cap_requests_to_node(recording: UsageRecording, node: Resources) -> tuple[UsageRecording, int]:
    """Return the recording with no request above a node's allocatable, and how many containers that changed.

    Under some policies a pod that fits no node would run, under others not.
    """
    containers = [
        one if one.requests.fits_in(node) else replace(one, requests=one.requests.at_most(node))
        for one in recording.containers
    ]
    count = sum(now is not before for now, before in zip(containers, recording.containers, strict=True))
    return (replace(recording, containers=containers) if count else recording), count


# One half of a recording's containers: rules are tuned on one, and judged on the other.


class RecordingHalf(StrEnum):
    """Which of the containers, sorted by name: those at even places, counted from zero, or at odd ones."""

    TUNE = "tune"
    REPORT = "report"


def select_half(recording: UsageRecording, half: RecordingHalf) -> UsageRecording:
    """Return the recording with half of its containers, in the order they had.

    Raises BadInputError where none is left.
    """
    in_order = sorted(range(len(recording.containers)), key=lambda at: _name(recording.containers[at]))
    places = np.array(sorted(in_order[0 if half is RecordingHalf.TUNE else 1 :: 2]), dtype=np.int64)
    if not places.size:
        raise BadInputError(f"--half {half.value}: {recording.name} has one series only, and it is in the other half")
    return replace(
        recording,
        containers=tuple(recording.containers[at] for at in places.tolist()),
        cpu_millicores=recording.cpu_millicores[:, places],
        memory_bytes=recording.memory_bytes[:, places],
    )


def _name(container: RecordedContainer) -> tuple[str, str, str]:
    return container.namespace, container.pod, container.container

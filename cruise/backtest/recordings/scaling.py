"""Gives the workloads of a recording HPAs: recorded use becomes the demand that the HPA's pods share."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from cruise.backtest.recordings.recording import RecordedContainer, UsageRecording
from cruise.domain.arrays import Float32Array, Int64Array
from cruise.domain.resources import ResourceName, Resources

SCALED_KINDS = frozenset({"Deployment", "ReplicaSet", "StatefulSet"})
MAX_OF_MIN_REPLICAS = 4
"""The largest number of replicas, relative to the smallest. It bounds an HPA whose tool shrinks what it divides by."""


@dataclass(frozen=True, slots=True)
class ReplayHpaOptions:
    """The HPAs of a replay.

    Each workload has one with this target of CPU utilization; without a target they are those of the recorded cluster.
    """

    target_percent: int | None = None


class _Bounds(NamedTuple):
    """What an HPA's object states."""

    target_percent: int
    min_replicas: int
    max_replicas: int


@dataclass(frozen=True, slots=True)
class RecordedAutoscaler:
    """An HPA on the CPU utilization of a workload.

    Its pods are `max_replicas` containers of the recording from `first` on; those beyond its replicas do not exist.
    `first_row` and `last_row` are the first and last row with a sample.
    """

    container: RecordedContainer
    first: int
    min_replicas: int
    max_replicas: int
    target_percent: int
    first_row: int
    last_row: int


@dataclass(frozen=True, slots=True)
class ScaledRecording:
    """A recording whose workloads have HPAs.

    `cpu_demand` (rows, HPAs) is what all pods of a workload use together, `memory_bytes` (rows, HPAs) what each uses;
    NaN is no sample. The matrices of `recording` show the smallest number of replicas. A replay writes the use of other
    numbers into them, so they are no one else's.
    """

    recording: UsageRecording
    autoscalers: Sequence[RecordedAutoscaler]
    cpu_demand: Float32Array
    memory_bytes: Float32Array


def find_replayed_autoscalers(recording: UsageRecording, added: ReplayHpaOptions) -> Mapping[int, _Bounds]:
    """Return the HPAs of a replay, by number of `UsageRecording.number_workload_containers`.

    With a target, each workload with replicas and CPU requests has one. Its smallest number of replicas is the number
    that was mostly recorded, the largest `MAX_OF_MIN_REPLICAS` times as much. Without, those of the recorded cluster
    that scale a workload with one recorded container on the utilization of its CPU alone.
    """
    numbers = recording.number_workload_containers()
    recorded = {(one.namespace, one.target): one.scaling for one in recording.autoscalers}
    members: dict[int, list[int]] = {}
    for place, number in enumerate(numbers.tolist()):
        members.setdefault(number, []).append(place)
    names = Counter(
        (recording.containers[places[0]].namespace, recording.containers[places[0]].workload)
        for places in members.values()
    )
    found: dict[int, _Bounds] = {}
    for number, places in members.items():
        one = recording.containers[places[0]]
        requests_cpu = all(recording.containers[place].requests.cpu_millicores for place in places)
        counts = np.count_nonzero(~np.isnan(recording.cpu_millicores[:, places]), axis=1)
        if one.workload.kind not in SCALED_KINDS or not requests_cpu or not counts.any():
            continue
        if added.target_percent is not None:
            smallest = int(np.percentile(counts[counts > 0], 50, method="lower"))
            found[number] = _Bounds(added.target_percent, smallest, smallest * MAX_OF_MIN_REPLICAS)
            continue
        scaling = recorded.get((one.namespace, one.workload))
        if scaling is None or names[one.namespace, one.workload] > 1 or len(scaling.metrics) != 1:
            continue
        [metric] = scaling.metrics
        if metric.resource is ResourceName.CPU and metric.container in ("", one.container):
            smallest = max(1, scaling.min_replicas)
            found[number] = _Bounds(metric.target_percent, smallest, max(smallest, scaling.max_replicas))
    return found


def add_autoscalers(recording: UsageRecording, added: ReplayHpaOptions) -> ScaledRecording:
    """Give the workloads of a recording the HPAs of `find_replayed_autoscalers`.

    All recorded pods of a workload count as one demand of CPU, which the HPA's pods share evenly; each uses the mean
    of their memory. The template requests the largest recorded requests.
    """
    bounds = find_replayed_autoscalers(recording, added)
    containers: list[RecordedContainer] = []
    cpu: list[Float32Array] = []
    memory: list[Float32Array] = []
    scaled: list[RecordedAutoscaler] = []
    demands: list[tuple[Float32Array, Float32Array]] = []
    numbers = recording.number_workload_containers()
    for number in range(int(numbers.max(initial=-1)) + 1):
        members = np.flatnonzero(numbers == number)
        recorded = [recording.containers[member] for member in members.tolist()]
        known = ~np.isnan(recording.cpu_millicores[:, members])
        counts = np.count_nonzero(known, axis=1)
        if number not in bounds:
            containers += recorded
            cpu += list(recording.cpu_millicores[:, members].T)
            memory += list(recording.memory_bytes[:, members].T)
            continue
        rows = np.flatnonzero(counts)
        target_percent, smallest, largest = bounds[number]
        template = replace(recorded[0], requests=_get_template(recorded))
        autoscaler = RecordedAutoscaler(
            template, len(containers), smallest, largest, target_percent, int(rows[0]), int(rows[-1])
        )
        demand = _sum_demand(recording, members, counts)
        scaled.append(autoscaler)
        demands.append(demand)
        containers += [
            replace(template, pod=f"{template.workload.name}-{replica}") for replica in range(autoscaler.max_replicas)
        ]
        nothing = np.full(len(counts), np.nan, dtype=np.float32)
        extra = autoscaler.max_replicas - smallest
        cpu += [demand[0] / np.float32(smallest)] * smallest + [nothing] * extra
        memory += [demand[1]] * smallest + [nothing if recording.has_memory else demand[1]] * extra
    shape = (len(recording.cpu_millicores), -1)
    return ScaledRecording(
        replace(
            recording,
            containers=tuple(containers),
            cpu_millicores=np.column_stack(cpu).astype(np.float32),
            memory_bytes=np.column_stack(memory).astype(np.float32),
        ),
        tuple(scaled),
        np.array([one for one, _ in demands], dtype=np.float32).T.reshape(shape),
        np.array([one for _, one in demands], dtype=np.float32).T.reshape(shape),
    )


def _get_template(recorded: Sequence[RecordedContainer]) -> Resources:
    """Return the largest requests."""
    return Resources(
        max(one.requests.cpu_millicores for one in recorded), max(one.requests.memory_bytes for one in recorded)
    )


def _sum_demand(
    recording: UsageRecording, members: Int64Array, counts: Int64Array
) -> tuple[Float32Array, Float32Array]:
    """Return the CPU that pods use together and the memory that each uses on average."""
    used, held = recording.cpu_millicores[:, members], recording.memory_bytes[:, members]
    together = np.where(counts > 0, np.nansum(used, axis=1), np.nan).astype(np.float32)
    if not recording.has_memory:
        return together, np.zeros(len(used), dtype=np.float32)
    with_memory = np.count_nonzero(~np.isnan(held), axis=1)
    mean = np.where(with_memory > 0, np.nansum(held, axis=1) / np.maximum(with_memory, 1), np.nan)
    return together, mean.astype(np.float32)

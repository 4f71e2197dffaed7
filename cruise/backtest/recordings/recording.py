"""Recorded usage on a regular grid of times, one column per container, and trace directories as recordings."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from cruise.domain.arrays import Float32Array, Int64Array
from cruise.domain.backtest import RecordingHalf
from cruise.domain.cluster import HorizontalPodAutoscaler, WorkloadRef
from cruise.domain.resources import Resources
from cruise.errors import BadInputError
from cruise.simulation.demand.trace import (
    CPU_FILE,
    MEMORY_FILE,
    TraceSeries,
    check_same_times,
    has_memory,
    read_all_series,
    read_matrix,
)

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


def select_half_of_containers(recording: UsageRecording, half: RecordingHalf) -> UsageRecording:
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


PASS_SECONDS = 300
HOUR = 3600
STEP_HELP = "a step must divide an hour, and divide the {} s of pass_interval or be a multiple of them"
CONTAINER = "main"
# Times in traces count from their start, but rules use the time of day and the day of the week.
MONDAY = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp())
# Larger times are Unix times.
UNIX_TIMES_FROM = 10**9
MAX_GAP_SECONDS = 31 * 86_400


def load_trace(
    directory: Path, pass_seconds: int = PASS_SECONDS, on_progress: Callable[[float], None] | None = None
) -> UsageRecording:
    """Read a trace directory; a missing time is a row without samples.

    `on_progress` receives the share that was read. Raises BadInputError, also for times off the grid, a step that does
    not match the pass interval, and a series without samples.
    """
    # Sorted, so that a replay does not depend on the order of columns in a file.
    series = sorted(read_all_series(directory), key=lambda one: one.name)
    names = [one.name for one in series]
    cpu_file, memory_file = directory / CPU_FILE, directory / MEMORY_FILE
    with_memory = has_memory(directory)
    times, cpu = read_matrix(cpu_file, names, np.float32, _part(on_progress, 0.0, 0.5 if with_memory else 1.0))
    step = _step(times, cpu_file, pass_seconds)
    places = (times - times[0]) // step
    _insert_missing_rows(cpu, places)
    _check_sampled(names, cpu, cpu_file)
    if with_memory:
        memory_times, memory = read_matrix(memory_file, names, np.float32, _part(on_progress, 0.5, 1.0))
        check_same_times(directory, times, memory_times)
        _insert_missing_rows(memory, places)
        _check_sampled(names, memory, memory_file)
    else:
        memory = np.zeros_like(cpu)
    name = directory.resolve().name
    return UsageRecording(
        name=name,
        containers=_containers(series, name),
        start=_start(int(times[0]), step),
        step_seconds=step,
        cpu_millicores=cpu,
        memory_bytes=memory,
        has_memory=with_memory,
    )


def do_passes_fall_on_samples(step: int, pass_seconds: int) -> bool:
    """Return whether passes fall on samples; if samples are further apart, there is one pass per sample."""
    # Peaks and windows cover whole hours.
    return 0 < step <= HOUR and HOUR % step == 0 and (pass_seconds % step == 0 or step % pass_seconds == 0)


def _part(on_progress: Callable[[float], None] | None, start: float, end: float) -> Callable[[float], None] | None:
    """Return a callback that reports the progress of a part as a share of the whole."""
    return None if on_progress is None else lambda share: on_progress(start + share * (end - start))


def _containers(series: Sequence[TraceSeries], name: str) -> tuple[RecordedContainer, ...]:
    namespace = re.sub("[^a-z0-9]+", "-", name.lower())[:63].strip("-") or "trace"
    return tuple(
        RecordedContainer(namespace, one.name, CONTAINER, WorkloadRef("Deployment", one.workload), one.requests)
        for one in series
    )


def _start(first: int, step: int) -> int:
    """Return the Unix time of the first row, a multiple of the step."""
    origin = 0 if first >= UNIX_TIMES_FROM else MONDAY
    return origin + first // step * step


def _step(times: Int64Array, path: Path, pass_seconds: int) -> int:
    """Return the smallest difference of the times; all differences must be multiples of it."""
    differences = np.diff(times)
    closest = int(differences.argmin())
    step = int(differences[closest])
    off_grid = np.flatnonzero((times - times[0]) % step)
    if len(off_grid):
        raise BadInputError(
            f"{path}: line {off_grid[0] + 2}: time {times[off_grid[0]]} is off the grid of {step} s from {times[0]}, "
            f"which lines {closest + 2} and {closest + 3} set: times must be a whole number of steps apart"
        )
    if not do_passes_fall_on_samples(step, pass_seconds):
        raise BadInputError(f"{path}: one sample every {step} s: {STEP_HELP.format(pass_seconds)}")
    longest = int(differences.argmax())
    if differences[longest] > MAX_GAP_SECONDS:
        raise BadInputError(
            f"{path}: line {longest + 3}: {differences[longest] / 86_400:,.0f} days without a sample before it"
        )
    return step


def _insert_missing_rows(rows: Float32Array, places: Int64Array) -> None:
    """Move each row to its place in the grid, in place, and fill the gaps with NaN; the first place is 0."""
    count, end = len(rows), int(places[-1]) + 1
    if end == count:
        return
    rows.resize((end, rows.shape[1]), refcheck=False)
    # From the end, so that no row is overwritten before it is moved.
    for row in range(count - 1, -1, -1):
        place = int(places[row])
        rows[place] = rows[row]
        rows[place + 1 : end] = np.nan
        end = place


def _check_sampled(names: Sequence[str], matrix: Float32Array, path: Path) -> None:
    empty = np.flatnonzero(np.isnan(np.fmax.reduce(matrix, axis=0)))
    if len(empty):
        others = f" and {len(empty) - 1:,} more: leave them out" if len(empty) > 1 else ": leave it out"
        raise BadInputError(f"{path}: no sample at all of series {names[empty[0]]!r}{others}")

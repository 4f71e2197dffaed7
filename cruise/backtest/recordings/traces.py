"""Trace directories as recordings: on one regular grid, from a Monday on."""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from cruise.backtest.recordings.recording import RecordedContainer, UsageRecording
from cruise.domain.cluster import WorkloadRef
from cruise.domain.resources import Float32Array, Int64Array
from cruise.errors import BadInputError
from cruise.simulation.demand.trace import (
    CPU_FILE,
    MEMORY_FILE,
    TraceSeries,
    check_same_times,
    has_memory,
    read_matrix,
    read_series,
)

PASS_SECONDS = 300
HOUR = 3600
STEP_HELP = "a step must divide an hour, and divide the {} s of pass_interval or be a multiple of them"
CONTAINER = "main"
# Traces tell their times from their own start, and rules look at the time of day and the day of the week.
MONDAY = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp())
# Times from here on are no seconds from a start, but Unix time.
UNIX_TIMES_FROM = 10**9
MAX_GAP_SECONDS = 31 * 86_400


def load_trace(
    directory: Path, pass_seconds: int = PASS_SECONDS, on_progress: Callable[[float], None] | None = None
) -> UsageRecording:
    """Read a trace directory; a time that is missing from its grid is a row without samples.

    `on_progress` gets the share that is read. Raises BadInputError with one line, also for times off the grid, for a step
    that does not fit the passes, and for a series without any sample.
    """
    # In an order of their own: what a replay finds is not to depend on the order in which a file has its columns.
    series = sorted(read_series(directory), key=lambda one: one.name)
    names = [one.name for one in series]
    cpu_file, memory_file = directory / CPU_FILE, directory / MEMORY_FILE
    with_memory = has_memory(directory)
    times, cpu = read_matrix(cpu_file, names, np.float32, _part(on_progress, 0.0, 0.5 if with_memory else 1.0))
    step = _step(times, cpu_file, pass_seconds)
    places = (times - times[0]) // step
    _spread(cpu, places)
    _check_sampled(names, cpu, cpu_file)
    if with_memory:
        memory_times, memory = read_matrix(memory_file, names, np.float32, _part(on_progress, 0.5, 1.0))
        check_same_times(directory, times, memory_times)
        _spread(memory, places)
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


def is_step_compatible(step: int, pass_seconds: int) -> bool:
    """Tell whether samples can be cut by passes; where they are further apart, there is one pass a sample."""
    # Peaks and windows are of whole hours.
    return 0 < step <= HOUR and HOUR % step == 0 and (pass_seconds % step == 0 or step % pass_seconds == 0)


def _part(on_progress: Callable[[float], None] | None, start: float, end: float) -> Callable[[float], None] | None:
    """Return what reports the progress of a part as a share of the whole."""
    return None if on_progress is None else lambda share: on_progress(start + share * (end - start))


def _containers(series: Sequence[TraceSeries], name: str) -> tuple[RecordedContainer, ...]:
    namespace = re.sub("[^a-z0-9]+", "-", name.lower())[:63].strip("-") or "trace"
    return tuple(
        RecordedContainer(namespace, one.name, CONTAINER, WorkloadRef("Deployment", one.workload), one.requests)
        for one in series
    )


def _start(first: int, step: int) -> int:
    """Return the Unix time of the first row: on the grid of the step, since rules cut time there."""
    since = 0 if first >= UNIX_TIMES_FROM else MONDAY
    return since + first // step * step


def _step(times: Int64Array, path: Path, pass_seconds: int) -> int:
    """Return the smallest difference of the times, all of which must be a multiple of it apart."""
    apart = np.diff(times)
    closest = int(apart.argmin())
    step = int(apart[closest])
    off = np.flatnonzero((times - times[0]) % step)
    if len(off):
        raise BadInputError(
            f"{path}: line {off[0] + 2}: time {times[off[0]]} is off the grid of {step} s from {times[0]}, "
            f"which lines {closest + 2} and {closest + 3} set: times must be a whole number of steps apart"
        )
    if not is_step_compatible(step, pass_seconds):
        raise BadInputError(f"{path}: one sample every {step} s: {STEP_HELP.format(pass_seconds)}")
    longest = int(apart.argmax())
    if apart[longest] > MAX_GAP_SECONDS:
        raise BadInputError(
            f"{path}: line {longest + 3}: {apart[longest] / 86_400:,.0f} days without a sample before it"
        )
    return step


def _spread(rows: Float32Array, places: Int64Array) -> None:
    """Put each row at its place and nothing between, without a second matrix; the first place is 0."""
    count, at = len(rows), int(places[-1]) + 1
    if at == count:
        return
    rows.resize((at, rows.shape[1]), refcheck=False)
    # From the end on, no row is written over before it has moved.
    for row in range(count - 1, -1, -1):
        place = int(places[row])
        rows[place] = rows[row]
        rows[place + 1 : at] = np.nan
        at = place


def _check_sampled(names: Sequence[str], matrix: Float32Array, path: Path) -> None:
    # The largest sample is NaN only where there is none.
    silent = np.flatnonzero(np.isnan(np.fmax.reduce(matrix, axis=0)))
    if len(silent):
        rest = f" and {len(silent) - 1:,} more: leave them out" if len(silent) > 1 else ": leave it out"
        raise BadInputError(f"{path}: no sample at all of series {names[silent[0]]!r}{rest}")

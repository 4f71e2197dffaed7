"""Trace directories as recordings: on one regular grid, from a Monday on."""

import re
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from cruise.backtest.recording import RecordedContainer, Recording
from cruise.domain.cluster import WorkloadRef
from cruise.domain.usage import Float32Array, Int64Array
from cruise.errors import BadInput
from cruise.simulation.trace import CPU_FILE, MEMORY_FILE, Trace, read_trace

PASS_SECONDS = 300
CONTAINER = "main"
# Traces tell their times from their own start, and rules look at the time of day and the day of the week.
MONDAY = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp())
# Times from here on are no seconds from a start, but Unix time.
UNIX_TIMES_FROM = 10**9
LONGEST_GAP_SECONDS = 31 * 86_400


def load_trace(directory: Path, pass_seconds: int = PASS_SECONDS) -> Recording:
    """Read a trace directory; a time that is missing from its grid is a row without samples.

    Raises BadInput with one line, also for times off the grid, for a step that does not divide `pass_seconds`, and
    for a series without any sample.
    """
    trace = read_trace(directory)
    name = directory.resolve().name
    step = _step(trace.times, directory / CPU_FILE, pass_seconds)
    places = (trace.times - trace.times[0]) // step
    cpu = _spread(np.ascontiguousarray(trace.cpu_millicores.T, dtype=np.float32), places)
    _check_sampled(trace, cpu, directory / CPU_FILE)
    if trace.memory_bytes is None:
        memory = np.zeros_like(cpu)
    else:
        memory = _spread(np.ascontiguousarray(trace.memory_bytes.T, dtype=np.float32), places)
        _check_sampled(trace, memory, directory / MEMORY_FILE)
    return Recording(
        name=name,
        containers=_containers(trace, name),
        start=_start(int(trace.times[0]), step),
        step_seconds=step,
        cpu_millicores=cpu,
        memory_bytes=memory,
        has_memory=trace.memory_bytes is not None,
    )


def _containers(trace: Trace, name: str) -> tuple[RecordedContainer, ...]:
    namespace = re.sub("[^a-z0-9]+", "-", name.lower())[:63].strip("-") or "trace"
    return tuple(
        RecordedContainer(namespace, one.name, CONTAINER, WorkloadRef("Deployment", one.workload), one.requests)
        for one in trace.series
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
        raise BadInput(
            f"{path}: line {off[0] + 2}: time {times[off[0]]} is off the grid of {step} s from {times[0]}, "
            f"which lines {closest + 2} and {closest + 3} set: times must be a whole number of steps apart"
        )
    if pass_seconds % step:
        raise BadInput(
            f"{path}: one sample every {step} s: a step must divide the {pass_seconds} s from one pass to the next"
        )
    longest = int(apart.argmax())
    if apart[longest] > LONGEST_GAP_SECONDS:
        raise BadInput(f"{path}: line {longest + 3}: {apart[longest] / 86_400:,.0f} days without a sample before it")
    return step


def _spread(rows: Float32Array, places: Int64Array) -> Float32Array:
    """Put each row at its place, and nothing between."""
    if places[-1] + 1 == len(rows):
        return rows
    spread = np.full((int(places[-1]) + 1, rows.shape[1]), np.nan, dtype=np.float32)
    spread[places] = rows
    return spread


def _check_sampled(trace: Trace, matrix: Float32Array, path: Path) -> None:
    # The largest sample is NaN only where there is none.
    silent = np.flatnonzero(np.isnan(np.fmax.reduce(matrix, axis=0)))
    if len(silent):
        more = f", and {len(silent) - 1:,} more have none either" if len(silent) > 1 else ""
        raise BadInput(f"{path}: series {trace.series[silent[0]].name!r} has no sample at all{more}: leave it out")

"""Replays: a month of 200 series, two weeks of 5,000 containers at one minute, and the growth of time with their size.

If BENCH_TRACE names a trace directory, the month replays its series, twice each, instead of generated ones.
"""

import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.recordings import make_recording
from benchmarks.table import BenchmarkRow, peak_memory_mib
from cruise.backtest.backtest import backtest_policies
from cruise.backtest.recordings.recording import RecordedContainer, UsageRecording, load_trace
from cruise.backtest.replay.policy import ReplayOptions

NAME = "backtest"
# Only one replay is measured.
ONE_REPLAY = ReplayOptions(with_both_consolidations=False)
TRACE_VARIABLE = "BENCH_TRACE"
POLICIES = ("cruise", "vpa")
MONTH_LIMIT_SECONDS = 20.0
LARGE_LIMIT_SECONDS = 300.0
LARGE_LIMIT_MIB = 2048.0
PARTS = {"a quarter": 0.25, "half": 0.5, "all": 1.0}


@dataclass(frozen=True, slots=True)
class RecordingSize:
    """The size of a recording, or the first `days` of a trace."""

    containers: int
    days: float
    step_seconds: int
    trace: Path | None = None

    def __str__(self) -> str:
        return f"{self.containers:,} x {self.days:g} days x {self.step_seconds // 60} min"


@dataclass(frozen=True, slots=True)
class MeasuredReplay:
    """The time and memory of one replay in a separate process, on one core."""

    series: int
    seconds: float
    memory_mib: float


LARGE = RecordingSize(5000, 14, 60)
GROWING = RecordingSize(5000, 1, 60)


def run() -> list[BenchmarkRow]:
    """Measure CPU seconds on one core, and the peak memory of a process that loads and replays a recording."""
    return [row for policy in POLICIES for row in (*_month(policy), *_large(policy), *_growth(policy))]


def _month(policy: str) -> list[BenchmarkRow]:
    """Measure a month, and parts of it to show the growth with days."""
    named = os.environ.get(TRACE_VARIABLE)
    month = RecordingSize(200, 30, 300, Path(named) if named else None)
    rows, quarter = [], 0.0
    for part, share in PARTS.items():
        took = measure(policy, replace(month, days=month.days * share))
        quarter = quarter or took.seconds
        measured = f"{policy}: {took.series} series x {month.days * share:g} days x 5 min"
        rows.append(_grown(f"{measured}, {part} of the days", took, quarter * share * 4))
    return [
        *rows,
        BenchmarkRow(
            NAME, measured, took.seconds, "CPU s", "20 s", took.seconds / MONTH_LIMIT_SECONDS, took.memory_mib
        ),
    ]


def _large(policy: str) -> list[BenchmarkRow]:
    took = measure(policy, LARGE)
    seconds, memory = took.seconds, took.memory_mib
    return [
        BenchmarkRow(NAME, f"{policy}: {LARGE}", seconds, "CPU s", "300 s", seconds / LARGE_LIMIT_SECONDS, memory),
        BenchmarkRow(NAME, f"{policy}: {LARGE}, peak memory", memory, "MiB", "2 GiB", memory / LARGE_LIMIT_MIB),
    ]


def _growth(policy: str) -> list[BenchmarkRow]:
    """Measure the growth with containers."""
    rows, quarter = [], 0.0
    for part, share in PARTS.items():
        size = replace(GROWING, containers=round(GROWING.containers * share))
        took = measure(policy, size)
        quarter = quarter or took.seconds
        rows.append(_grown(f"{policy}: {size}, {part} of the containers", took, quarter * share * 4))
    return rows


def _grown(measured: str, took: MeasuredReplay, linear: float) -> BenchmarkRow:
    return BenchmarkRow(NAME, measured, took.seconds, "CPU s", "linear growth", took.seconds / linear, took.memory_mib)


def measure(policy: str, size: RecordingSize) -> MeasuredReplay:
    """Replay in a new process."""
    print(f"bench: {NAME}: {policy}, {size}", file=sys.stderr)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as process:
        return process.submit(_replay, policy, size).result()


def _replay(policy: str, size: RecordingSize) -> MeasuredReplay:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    if size.trace is None:
        recording = make_recording(size.containers, size.days, size.step_seconds)
    else:
        recording = measure_twice(load_trace(size.trace), size.days)
    # Compile and import before the measurement.
    backtest_policies(make_recording(10, 0.25, size.step_seconds), [policy], ONE_REPLAY)
    started = time.process_time()
    score = backtest_policies(recording, [policy], ONE_REPLAY).policies[policy]
    seconds = time.process_time() - started
    if not 0 < score.cpu.relative_slack < 1:
        raise RuntimeError(f"a relative slack of {score.cpu.relative_slack}: nothing was replayed")
    return MeasuredReplay(len(recording.containers), seconds, peak_memory_mib())


def measure_twice(recording: UsageRecording, days: float) -> UsageRecording:
    """Return the first days of every series, each twice, as series of separate workloads."""
    rows = int(days * 86400 / recording.step_seconds)
    return replace(
        recording,
        containers=[*recording.containers, *(_second(one) for one in recording.containers)],
        cpu_millicores=np.tile(recording.cpu_millicores[:rows], 2),
        memory_bytes=np.tile(recording.memory_bytes[:rows], 2),
    )


def _second(one: RecordedContainer) -> RecordedContainer:
    return replace(one, pod=f"{one.pod}-2", workload=replace(one.workload, name=f"{one.workload.name}-2"))

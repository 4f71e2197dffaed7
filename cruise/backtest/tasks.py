"""The tasks of worker processes: reading a recording, and replaying it under one policy. Both results are small."""

import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from time import perf_counter
from typing import Protocol

import numpy as np

from cruise.adapters import files
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.backtest.policies.policies import POLICIES
from cruise.backtest.recordings.prometheus import read_recording
from cruise.backtest.recordings.recording import (
    UsageRecording,
    cap_requests_to_node,
    load_trace,
    select_half_of_containers,
)
from cruise.backtest.recordings.scaling import ReplayHpaOptions, add_autoscalers, find_replayed_autoscalers
from cruise.backtest.replay.policy import ConsolidationSizeBasis, ReplayOptions
from cruise.backtest.replay.replay import replay_policy
from cruise.domain.backtest import PolicyScore, RecordingHalf
from cruise.errors import BadInputError

_CONTAINERS, _CPU, _MEMORY = "recording.pickle", "cpu.npy", "memory.npy"


class RecordingSource(Protocol):
    """A source of a recording, small enough to be sent to a worker; every read gives the same recording."""

    @property
    def label(self) -> str:
        """The name in progress messages."""

    def read(self, on_progress: Callable[[float], None], add_note: Callable[[str], None]) -> UsageRecording:
        """Read the recording; `add_note` receives lines about missing parts. Raises BadInputError, UnavailableError."""


@dataclass(frozen=True, slots=True, eq=False)
class LoadedRecordingSource:
    """A recording that this process has already read."""

    recording: UsageRecording

    @property
    def label(self) -> str:
        """The recording's name."""
        return self.recording.name

    def read(self, on_progress: Callable[[float], None], add_note: Callable[[str], None]) -> UsageRecording:
        """Return the recording."""
        return self.recording


@dataclass(frozen=True, slots=True)
class TraceRecordingSource:
    """A trace directory, or half of its series."""

    directory: Path
    pass_seconds: int
    half: RecordingHalf | None = None

    @property
    def label(self) -> str:
        """The directory's name."""
        return self.directory.name

    def read(self, on_progress: Callable[[float], None], add_note: Callable[[str], None]) -> UsageRecording:
        """Read the directory."""
        return _select_half(load_trace(self.directory, self.pass_seconds, on_progress), self.half)


@dataclass(frozen=True, slots=True)
class PrometheusRecordingSource:
    """The last days of a Prometheus server before a time, or half of their series; `snapshot` is a cluster's file."""

    prometheus: PrometheusSettings
    days: int
    end: datetime
    pass_seconds: int
    snapshot: str | None = None
    half: RecordingHalf | None = None

    @property
    def label(self) -> str:
        """The name in progress messages."""
        return "usage"

    def read(self, on_progress: Callable[[float], None], add_note: Callable[[str], None]) -> UsageRecording:
        """Read the days from the server."""
        cluster = files.load_snapshot(self.snapshot) if self.snapshot is not None else None
        recording = read_recording(
            self.prometheus, self.days, self.end, cluster, on_progress, add_note, self.pass_seconds
        )
        return _select_half(recording, self.half)


@dataclass(frozen=True, slots=True)
class MappedRecordingSource:
    """A recording in files that the processes of one machine map, so that they share its memory."""

    directory: Path

    @property
    def label(self) -> str:
        """The directory's name."""
        return self.directory.name

    def read(self, on_progress: Callable[[float], None], add_note: Callable[[str], None]) -> UsageRecording:
        """Map the files."""
        # Written by `save_recording` into a directory that no other user may write to.
        recording: UsageRecording = pickle.loads((self.directory / _CONTAINERS).read_bytes())
        cpu = np.asarray(np.load(self.directory / _CPU, mmap_mode="r"))
        # Zeros that were never written take no memory.
        memory = np.asarray(np.load(self.directory / _MEMORY, mmap_mode="r")) if recording.has_memory else None
        return replace(recording, cpu_millicores=cpu, memory_bytes=np.zeros_like(cpu) if memory is None else memory)


@dataclass(frozen=True, slots=True)
class CachedRecordingSource:
    """A recording that a process caches until it reads another: tasks of one recording mostly run together."""

    source: RecordingSource

    @property
    def label(self) -> str:
        """The name of the cached source."""
        return self.source.label

    def read(self, on_progress: Callable[[float], None], add_note: Callable[[str], None]) -> UsageRecording:
        """Return the cached recording, or read it; only one is cached, to save memory."""
        if _cached and _cached[0][0] == self.source:
            return _cached[0][1]
        _cached.clear()
        recording = self.source.read(on_progress, add_note)
        _cached[:] = [(self.source, recording)]
        return recording


_cached: list[tuple[RecordingSource, UsageRecording]] = []


def save_recording(recording: UsageRecording, directory: Path) -> MappedRecordingSource:
    """Write a recording into a new directory."""
    directory.mkdir()
    empty = np.empty((0, 0), dtype=np.float32)
    without_samples = replace(recording, cpu_millicores=empty, memory_bytes=empty)
    (directory / _CONTAINERS).write_bytes(pickle.dumps(without_samples))
    np.save(directory / _CPU, recording.cpu_millicores)
    if recording.has_memory:
        np.save(directory / _MEMORY, recording.memory_bytes)
    return MappedRecordingSource(directory)


def _select_half(recording: UsageRecording, half: RecordingHalf | None) -> UsageRecording:
    return recording if half is None else select_half_of_containers(recording, half)


class ProgressShares(Protocol):
    """The completed share of each task, by number, from 0 to 1."""

    def __setitem__(self, number: int, share: float, /) -> None:
        """Set the share of a task."""


@dataclass(frozen=True, slots=True)
class RecordingSummary:
    """The properties of a recording that was read; `source` is the one to read it from again."""

    source: RecordingSource
    name: str
    containers: int
    capped_containers: int
    days: float
    step_seconds: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReplayTask:
    """One replay; without `with_time_line` and `with_hourly_counts` the score has neither, and stays small."""

    source: RecordingSource
    policy: str
    options: ReplayOptions
    consolidation: ConsolidationSizeBasis
    watched_node: str | None
    with_time_line: bool
    with_hourly_counts: bool


def summarize_recording(
    number: int, source: RecordingSource, options: ReplayOptions, directory: Path | None
) -> RecordingSummary:
    """Read a recording, so that an invalid one fails before any replay; save it to a directory for other processes."""
    notes: list[str] = []
    recording, capped = cap_requests_to_node(source.read(_report_share(number), notes.append), options.node)
    if options.added_autoscalers is not None:
        _check_autoscalers(recording, options.added_autoscalers, notes)
    if directory is not None:
        source = save_recording(recording, directory / str(number))
    return RecordingSummary(
        source=source,
        name=recording.name,
        containers=len(recording.containers),
        capped_containers=capped,
        days=recording.days,
        step_seconds=recording.step_seconds,
        notes=tuple(notes),
    )


def _check_autoscalers(recording: UsageRecording, added: ReplayHpaOptions, notes: list[str]) -> None:
    """Raise BadInputError if no workload has an HPA; note the HPAs of the cluster that are not replayed."""
    found = len(find_replayed_autoscalers(recording, added))
    if not found and added.target_percent is not None:
        raise BadInputError(f"--hpa: {recording.name} has no Deployment with CPU requests that an HPA could scale")
    if not found:
        raise BadInputError(
            "--hpa snapshot: the snapshot has no HPA with a status whose only target is the CPU utilization of a "
            "workload with one recorded container: give every workload one, e.g. --hpa 70%"
        )
    if added.target_percent is None and found < len(recording.autoscalers):
        notes.append(
            f"HPAs: {found:,} of {len(recording.autoscalers):,} are replayed; the others have other targets or no "
            "status, or scale no recorded workload of one container"
        )


def run_replay_task(number: int, task: ReplayTask) -> PolicyScore:
    """Return a policy's score with the seconds of this replay."""
    recording, _ = cap_requests_to_node(task.source.read(_ignore, _ignore), task.options.node)
    added = task.options.added_autoscalers
    scaled = None if added is None else add_autoscalers(recording, added)
    recording = recording if scaled is None else scaled.recording
    started = perf_counter()
    score = replay_policy(
        recording,
        POLICIES[task.policy](recording, task.options),
        task.options,
        consolidation=task.consolidation,
        watched_node=task.watched_node,
        on_progress=_report_share(number),
        scaled=scaled,
    )
    line = score.time_line if task.with_time_line else None
    hourly_counts = score.hourly_counts if task.with_hourly_counts else None
    return replace(score, seconds=perf_counter() - started, time_line=line, hourly_counts=hourly_counts)


def set_progress_shares(shares: ProgressShares | None) -> ProgressShares | None:
    """Set the receiver of the progress of this process's tasks; return the previous one."""
    previous, _process.shares = _process.shares, shares
    return previous


class _ProcessState:
    """The state that the tasks of one process share."""

    shares: ProgressShares | None = None


_process = _ProcessState()


def _report_share(number: int) -> Callable[[float], None]:
    def report(share: float) -> None:
        if _process.shares is not None:
            _process.shares[number] = share

    return report


def _ignore(_: float | str) -> None:
    """Ignore progress and notes, which the first reading reported."""

"""Where a recording comes from, in so few bytes that it can be sent to whatever process reads it."""

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
from cruise.backtest.recordings.recording import RecordingHalf, UsageRecording, cap_requests_to_node, select_half
from cruise.backtest.recordings.traces import load_trace
from cruise.backtest.replay.policy import ConsolidationSizes, ReplayOptions
from cruise.backtest.replay.replay import replay_policy
from cruise.domain.backtest import PolicyScore

_CONTAINERS, _CPU, _MEMORY = "recording.pickle", "cpu.npy", "memory.npy"


class RecordingSource(Protocol):
    """A recording that can be read, more than once and with the same result."""

    @property
    def label(self) -> str:
        """What it is called while it is read."""
        ...

    def read(self, on_progress: Callable[[float], None], say: Callable[[str], None]) -> UsageRecording:
        """Read it; `say` is given single lines about what is not in it. Raises BadInputError, Unavailable."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class LoadedRecordingSource:
    """A recording that this process has read already."""

    recording: UsageRecording

    @property
    def label(self) -> str:
        """What it is called."""
        return self.recording.name

    def read(self, on_progress: Callable[[float], None], say: Callable[[str], None]) -> UsageRecording:
        """Return it."""
        return self.recording


@dataclass(frozen=True, slots=True)
class TraceRecordingSource:
    """A trace directory, or half of its series."""

    directory: Path
    pass_seconds: int
    half: RecordingHalf | None = None

    @property
    def label(self) -> str:
        """What it is called."""
        return self.directory.name

    def read(self, on_progress: Callable[[float], None], say: Callable[[str], None]) -> UsageRecording:
        """Read the directory."""
        return _half_of(load_trace(self.directory, self.pass_seconds, on_progress), self.half)


@dataclass(frozen=True, slots=True)
class PrometheusRecordingSource:
    """The days before a time on a server, or half of their series; `snapshot` is a file with the cluster."""

    prometheus: PrometheusSettings
    days: int
    end: datetime
    pass_seconds: int
    snapshot: str | None = None
    half: RecordingHalf | None = None

    @property
    def label(self) -> str:
        """What it is called."""
        return "usage"

    def read(self, on_progress: Callable[[float], None], say: Callable[[str], None]) -> UsageRecording:
        """Read the days."""
        cluster = files.load_snapshot(self.snapshot) if self.snapshot is not None else None
        found = read_recording(self.prometheus, self.days, self.end, cluster, on_progress, say, self.pass_seconds)
        return _half_of(found, self.half)


@dataclass(frozen=True, slots=True)
class MappedRecordingSource:
    """A recording kept in files that the processes of one machine map, so that all of them share its memory."""

    directory: Path

    @property
    def label(self) -> str:
        """What it is called."""
        return self.directory.name

    def read(self, on_progress: Callable[[float], None], say: Callable[[str], None]) -> UsageRecording:
        """Map the files."""
        # Written by `keep` into a directory that no one else may write to.
        recording: UsageRecording = pickle.loads((self.directory / _CONTAINERS).read_bytes())
        cpu = np.asarray(np.load(self.directory / _CPU, mmap_mode="r"))
        # Zeros that no one has written to take no memory.
        memory = np.asarray(np.load(self.directory / _MEMORY, mmap_mode="r")) if recording.has_memory else None
        return replace(recording, cpu_millicores=cpu, memory_bytes=np.zeros_like(cpu) if memory is None else memory)


@dataclass(frozen=True, slots=True)
class CachedRecordingSource:
    """A recording that a process keeps until it reads another: tasks of one mostly come together."""

    source: RecordingSource

    @property
    def label(self) -> str:
        """What it is called."""
        return self.source.label

    def read(self, on_progress: Callable[[float], None], say: Callable[[str], None]) -> UsageRecording:
        """Return it, read if need be; two at a time would be twice the memory."""
        if _last and _last[0][0] == self.source:
            return _last[0][1]
        _last.clear()
        recording = self.source.read(on_progress, say)
        _last[:] = [(self.source, recording)]
        return recording


_last: list[tuple[RecordingSource, UsageRecording]] = []


def save_recording(recording: UsageRecording, directory: Path) -> MappedRecordingSource:
    """Write a recording into a new directory."""
    directory.mkdir()
    nothing = np.empty((0, 0), dtype=np.float32)
    rest = replace(recording, cpu_millicores=nothing, memory_bytes=nothing)
    (directory / _CONTAINERS).write_bytes(pickle.dumps(rest))
    np.save(directory / _CPU, recording.cpu_millicores)
    if recording.has_memory:
        np.save(directory / _MEMORY, recording.memory_bytes)
    return MappedRecordingSource(directory)


def _half_of(recording: UsageRecording, half: RecordingHalf | None) -> UsageRecording:
    return recording if half is None else select_half(recording, half)


# What a worker does: it looks at a recording, or replays one policy over it; both answers are small.


class ProgressShares(Protocol):
    """How far tasks are, by number, each from 0 to 1."""

    def __setitem__(self, number: int, share: float, /) -> None:
        """Take note of a task's share."""
        ...


@dataclass(frozen=True, slots=True)
class RecordingSummary:
    """What is known of a recording that was read: `source` is where to read it from now on."""

    source: RecordingSource
    name: str
    containers: int
    capped_containers: int
    days: float
    step_seconds: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReplayTask:
    """One replay; `watched_node` is the node whose time line is wanted, `with_time_line` whether any is.

    So with cells: an answer has what is needed of it.
    """

    source: RecordingSource
    policy: str
    options: ReplayOptions
    consolidation: ConsolidationSizes
    watched_node: str | None
    with_time_line: bool
    with_hourly_counts: bool


def summarize_recording(
    number: int, source: RecordingSource, options: ReplayOptions, kept_in: Path | None
) -> RecordingSummary:
    """Read a recording, so that a bad one is refused before any replay; keep it for the others in a directory."""
    notes: list[str] = []
    recording, capped = cap_requests_to_node(source.read(_report(number), notes.append), options.node)
    if kept_in is not None:
        source = save_recording(recording, kept_in / str(number))
    return RecordingSummary(
        source=source,
        name=recording.name,
        containers=len(recording.containers),
        capped_containers=capped,
        days=recording.days,
        step_seconds=recording.step_seconds,
        notes=tuple(notes),
    )


def run_replay_task(number: int, task: ReplayTask) -> PolicyScore:
    """Return a policy's score, whose `seconds` are those of this replay."""
    recording, _ = cap_requests_to_node(task.source.read(_silent, _silent), task.options.node)
    begun = perf_counter()
    score = replay_policy(
        recording,
        POLICIES[task.policy](recording, task.options),
        task.options,
        consolidation=task.consolidation,
        watched_node=task.watched_node,
        on_progress=_report(number),
    )
    line = score.time_line if task.with_time_line else None
    cells = score.hourly_counts if task.with_hourly_counts else None
    return replace(score, seconds=perf_counter() - begun, time_line=line, hourly_counts=cells)


def set_progress_shares(shares: ProgressShares | None) -> ProgressShares | None:
    """Have the tasks of this process say how far they are; return what they told before."""
    before, _process.shares = _process.shares, shares
    return before


class _ProcessState:
    """What the tasks of one process share."""

    shares: ProgressShares | None = None


_process = _ProcessState()


def _report(number: int) -> Callable[[float], None]:
    def reported(share: float) -> None:
        if _process.shares is not None:
            _process.shares[number] = share

    return reported


def _silent(_: float | str) -> None:
    """Say nothing: what there was to say was said at the first reading."""

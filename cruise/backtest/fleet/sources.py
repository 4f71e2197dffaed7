"""Where a recording comes from, in so few bytes that it can be sent to whatever process reads it."""

import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Protocol

import numpy as np

from cruise.adapters import files
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.backtest.recordings.halves import Half, take_half
from cruise.backtest.recordings.prometheus import read_recording
from cruise.backtest.recordings.recording import Recording
from cruise.backtest.recordings.traces import load_trace

_CONTAINERS, _CPU, _MEMORY = "recording.pickle", "cpu.npy", "memory.npy"


class Source(Protocol):
    """A recording that can be read, more than once and with the same result."""

    @property
    def label(self) -> str:
        """What it is called while it is read."""
        ...

    def read(self, on_progress: Callable[[float], None], say: Callable[[str], None]) -> Recording:
        """Read it; `say` is given single lines about what is not in it. Raises BadInput, Unavailable."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class ReadSource:
    """A recording that this process has read already."""

    recording: Recording

    @property
    def label(self) -> str:
        """What it is called."""
        return self.recording.name

    def read(self, on_progress: Callable[[float], None], say: Callable[[str], None]) -> Recording:
        """Return it."""
        return self.recording


@dataclass(frozen=True, slots=True)
class TraceSource:
    """A trace directory, or half of its series."""

    directory: Path
    pass_seconds: int
    half: Half | None = None

    @property
    def label(self) -> str:
        """What it is called."""
        return self.directory.name

    def read(self, on_progress: Callable[[float], None], say: Callable[[str], None]) -> Recording:
        """Read the directory."""
        return _half_of(load_trace(self.directory, self.pass_seconds, on_progress), self.half)


@dataclass(frozen=True, slots=True)
class PrometheusSource:
    """The days before a time on a server, or half of their series; `snapshot` is a file with the cluster."""

    prometheus: PrometheusSettings
    days: int
    end: datetime
    pass_seconds: int
    snapshot: str | None = None
    half: Half | None = None

    @property
    def label(self) -> str:
        """What it is called."""
        return "usage"

    def read(self, on_progress: Callable[[float], None], say: Callable[[str], None]) -> Recording:
        """Read the days."""
        cluster = files.load_snapshot(self.snapshot) if self.snapshot is not None else None
        found = read_recording(self.prometheus, self.days, self.end, cluster, on_progress, say, self.pass_seconds)
        return _half_of(found, self.half)


@dataclass(frozen=True, slots=True)
class KeptSource:
    """A recording kept in files that the processes of one machine map, so that all of them share its memory."""

    directory: Path

    @property
    def label(self) -> str:
        """What it is called."""
        return self.directory.name

    def read(self, on_progress: Callable[[float], None], say: Callable[[str], None]) -> Recording:
        """Map the files."""
        # Written by `keep` into a directory that no one else may write to.
        recording: Recording = pickle.loads((self.directory / _CONTAINERS).read_bytes())
        cpu = np.asarray(np.load(self.directory / _CPU, mmap_mode="r"))
        # Zeros that no one has written to take no memory.
        memory = np.asarray(np.load(self.directory / _MEMORY, mmap_mode="r")) if recording.has_memory else None
        return replace(recording, cpu_millicores=cpu, memory_bytes=np.zeros_like(cpu) if memory is None else memory)


@dataclass(frozen=True, slots=True)
class RememberedSource:
    """A recording that a process keeps until it reads another: tasks of one mostly come together."""

    source: Source

    @property
    def label(self) -> str:
        """What it is called."""
        return self.source.label

    def read(self, on_progress: Callable[[float], None], say: Callable[[str], None]) -> Recording:
        """Return it, read if need be; two at a time would be twice the memory."""
        if _last and _last[0][0] == self.source:
            return _last[0][1]
        _last.clear()
        recording = self.source.read(on_progress, say)
        _last[:] = [(self.source, recording)]
        return recording


_last: list[tuple[Source, Recording]] = []


def keep(recording: Recording, directory: Path) -> KeptSource:
    """Write a recording into a new directory."""
    directory.mkdir()
    nothing = np.empty((0, 0), dtype=np.float32)
    rest = replace(recording, cpu_millicores=nothing, memory_bytes=nothing)
    (directory / _CONTAINERS).write_bytes(pickle.dumps(rest))
    np.save(directory / _CPU, recording.cpu_millicores)
    if recording.has_memory:
        np.save(directory / _MEMORY, recording.memory_bytes)
    return KeptSource(directory)


def _half_of(recording: Recording, half: Half | None) -> Recording:
    return recording if half is None else take_half(recording, half)

"""Generates recordings of any size; the same arguments give the same bytes.

Workloads have 1 to 12 replicas that share a level, daily and weekly cycles, bursts and memory plateaus; each replica
adds noise and bursts. One container in ten starts late or ends early.
"""

import gzip
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from cruise.backtest.recordings.recording import CONTAINER, MONDAY, RecordedContainer, UsageRecording
from cruise.domain.arrays import Float32Array, Int64Array
from cruise.domain.cluster import WorkloadRef
from cruise.domain.resources import MEBIBYTE, Resources
from cruise.simulation.demand.trace import CPU_FILE, MEMORY_FILE, SERIES_COLUMNS, SERIES_FILE

DAY = 86_400
MOST_REPLICAS = 12
# Memory is a multiple of this page size, which float32 represents exactly up to 64 GiB.
PAGE = 4096


def make_recording(containers: int, days: float, step_seconds: int = 60, seed: int = 0) -> UsageRecording:
    """Return a recording of `containers` for `days`, in a few nanoseconds per sample."""
    random = np.random.default_rng(seed)
    workload = _workloads(random, containers)
    rows = int(days * DAY) // step_seconds
    cpu = np.empty((rows, containers), dtype=np.float32)
    memory = np.empty((rows, containers), dtype=np.float32)
    shape = _Shape.draw(random, workload)
    shape.fill(random, cpu, memory, step_seconds)
    requests = _requests(random, cpu, memory)
    _cut_lives(random, cpu, memory)
    return UsageRecording(
        name=f"made-{containers}",
        containers=tuple(
            RecordedContainer("made", f"app-{of}-{index}", CONTAINER, WorkloadRef("Deployment", f"app-{of}"), asked)
            for index, (of, asked) in enumerate(zip(workload.tolist(), requests, strict=True))
        ),
        start=MONDAY,
        step_seconds=step_seconds,
        cpu_millicores=cpu,
        memory_bytes=memory,
    )


def write_trace(recording: UsageRecording, directory: Path) -> None:
    """Write a recording as a trace directory."""
    directory.mkdir(parents=True, exist_ok=True)
    lines = [",".join(SERIES_COLUMNS)]
    for one in recording.containers:
        lines.append(f"{one.pod},{one.workload.name},{one.requests.cpu_millicores},{one.requests.memory_bytes}")
    (directory / SERIES_FILE).write_text("\n".join(lines) + "\n")
    header = ",".join(("t", *(one.pod for one in recording.containers))).encode()
    files = [(CPU_FILE, recording.cpu_millicores)]
    if recording.has_memory:
        files.append((MEMORY_FILE, recording.memory_bytes))
    for name, matrix in files:
        with gzip.open(directory / name, "wb", compresslevel=1) as file:
            file.write(header + b"\n")
            for row, values in enumerate(matrix):
                at = recording.start - MONDAY + row * recording.step_seconds
                cells = msgspec.json.encode(values.astype(np.float64).tolist())[1:-1]
                # Whole numbers have no decimals, missing samples are empty.
                cells = (cells + b",").replace(b".0,", b",").replace(b"null", b"")[:-1]
                file.write(b"%d,%b\n" % (at, cells))


@dataclass(frozen=True, slots=True)
class _Shape:
    """The parameters of the containers, one entry each; replicas of a workload share some of them."""

    cpu_level: Float32Array
    cpu_swing: Float32Array
    peak_hour: Float32Array
    weekend: Float32Array
    burst_height: Float32Array
    burst_hours: Float32Array
    memory_level: Float32Array
    plateau_days: Float32Array
    growth_a_day: Float32Array
    workload: Int64Array

    @staticmethod
    def draw(random: np.random.Generator, workload: Int64Array) -> "_Shape":
        count = int(workload[-1]) + 1

        def shared(values: np.ndarray, spread: float = 0.0) -> Float32Array:
            own = random.normal(1.0, spread, len(workload)) if spread else 1.0
            return (values[workload] * np.maximum(own, 0.2)).astype(np.float32)

        return _Shape(
            cpu_level=shared(np.clip(random.lognormal(np.log(60), 1.1, count), 2, 3000), 0.15),
            cpu_swing=shared(random.uniform(0, 2.5, count)),
            peak_hour=shared(random.normal(14, 3, count)),
            weekend=shared(random.uniform(0.3, 1.0, count)),
            burst_height=shared(random.exponential(2.0, count), 0.3),
            burst_hours=shared(random.uniform(2, 48, count)),
            memory_level=shared(np.clip(random.lognormal(np.log(300), 1.0, count), 20, 16_000) * MEBIBYTE, 0.05),
            plateau_days=shared(random.uniform(0.5, 10, count)),
            growth_a_day=shared(np.where(random.random(count) < 0.15, random.uniform(0.05, 0.4, count), 0.0)),
            workload=workload,
        )

    def fill(self, random: np.random.Generator, cpu: Float32Array, memory: Float32Array, step: int) -> None:
        """Fill the matrices row by row; the state between rows is in vectors."""
        count, workloads = cpu.shape[1], int(self.workload[-1]) + 1
        noise, own_burst = np.zeros(count, np.float32), np.zeros(count, np.float32)
        common_burst, plateau = np.zeros(workloads, np.float32), np.zeros(workloads, np.float32)
        age_days = np.zeros(count, np.float32)
        # Probabilities per step, and the decay of noise and bursts.
        kept, fading = np.float32(np.exp(-step / 600)), np.float32(np.exp(-step / 900))
        fresh = np.float32(0.35 * np.sqrt(1 - kept * kept))
        own_chance = (step / 3600 / (3 * self.burst_hours)).astype(np.float32)
        first = np.searchsorted(self.workload, np.arange(workloads))
        common_chance = (step / 3600 / self.burst_hours[first]).astype(np.float32)
        move_chance = (step / DAY / self.plateau_days[first]).astype(np.float32)
        pages = np.float32(1 / PAGE)
        for row in range(len(cpu)):
            day, second = divmod(row * step, DAY)
            hour = np.float32(second / 3600)
            rhythm = np.maximum(np.cos((hour - self.peak_hour) * np.float32(np.pi / 12)), 0)
            if day % 7 >= 5:
                rhythm *= self.weekend
            noise *= kept
            noise += fresh * random.standard_normal(count, dtype=np.float32)
            own_burst *= fading
            own_burst[random.random(count, dtype=np.float32) < own_chance] = 1
            common_burst *= fading
            common_burst[random.random(workloads, dtype=np.float32) < common_chance] = 1
            burst = np.maximum(own_burst, common_burst[self.workload])
            use = self.cpu_level * (1 + self.cpu_swing * rhythm + self.burst_height * burst) * np.exp(noise)
            np.rint(use, out=cpu[row])
            moved = random.random(workloads, dtype=np.float32) < move_chance
            plateau[moved] = random.uniform(0, 0.5, int(moved.sum()))
            age_days += np.float32(step / DAY)
            age_days[age_days * self.growth_a_day > 0.8] = 0
            held = 1 + plateau[self.workload] + self.growth_a_day * age_days + np.float32(0.01) * noise + 0.1 * burst
            memory[row] = np.rint(self.memory_level * held * pages) * np.float32(PAGE)


def _workloads(random: np.random.Generator, containers: int) -> Int64Array:
    sizes = random.integers(1, MOST_REPLICAS + 1, containers)
    return np.repeat(np.arange(containers), sizes)[:containers]


def _requests(random: np.random.Generator, cpu: Float32Array, memory: Float32Array) -> list[Resources]:
    """Return the requests that users would have set: usage times a random factor."""
    count = cpu.shape[1]
    # Some of the rows are enough for typical values.
    usual = np.percentile(cpu[:: max(1, len(cpu) // 500)], 95, axis=0)
    cores = np.ceil(usual * random.uniform(1.1, 4.0, count) / 50).astype(np.int64) * 50
    room = memory.max(axis=0).astype(np.float64) * random.uniform(1.05, 2.5, count)
    mebibytes = np.ceil(room / (64 * MEBIBYTE)).astype(np.int64) * 64
    return [Resources(asked, size * MEBIBYTE) for asked, size in zip(cores.tolist(), mebibytes.tolist(), strict=True)]


def _cut_lives(random: np.random.Generator, cpu: Float32Array, memory: Float32Array) -> None:
    rows, containers = cpu.shape
    for column in np.flatnonzero(random.random(containers) < 0.1):
        at = int(random.integers(rows // 4, max(rows // 4 + 1, rows * 3 // 4)))
        gone = slice(0, at) if random.random() < 0.5 else slice(at, rows)
        cpu[gone, column] = np.nan
        memory[gone, column] = np.nan

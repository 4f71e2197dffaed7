"""What cAdvisor would have exposed for a cluster: raw counters and gauges, scraped every 15 or 30 s.

Usage comes from recorded traces. A container may be restarted under a new id, have its counters reset, run on a node
without pressure figures, start late or end early. Everything follows from the arguments alone.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cruise.simulation.demand.trace import SHIPPED_TRACE, Trace, read_trace

RECORDED = Path(__file__).parents[2] / "shared" / "data" / "traces"
DAY = 86_400
LOOKBACK = 300


@dataclass(frozen=True, slots=True)
class RawSeries:
    """One container under one id: what was scraped at `times` (Unix seconds); `waiting` is None without pressure."""

    namespace: str
    pod: str
    container: str
    id: str
    node: str
    times: NDArray[np.float64]
    cpu: NDArray[np.float64]
    waiting: NDArray[np.float64] | None
    memory: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ContainerLifetime:
    """When a container ran, and what happened meanwhile, in Unix seconds; `silent` are nodes' pressure figures."""

    start: int
    end: int
    restarts: tuple[int, ...] = ()
    resets: tuple[int, ...] = ()
    pressure: str = "present"  # or "absent", or "zero"


@dataclass(frozen=True, slots=True)
class ContainerLocation:
    """Where a container runs, and how its node is scraped."""

    namespace: str
    pod: str
    container: str
    node: str
    scrape_seconds: int
    scrape_offset: float


@dataclass(frozen=True, slots=True)
class CadvisorDemand:
    """What a container uses, one entry a minute from `start` (Unix seconds): cores, share of time waited, bytes."""

    start: int
    cores: NDArray[np.float64]
    waiting: NDArray[np.float64]
    memory: NDArray[np.float64]


def traces() -> list[Trace]:
    """The recorded traces where they are at hand, else the shipped one; those without memory are left out."""
    directories = sorted(RECORDED.iterdir()) if RECORDED.is_dir() else []
    found = [read_trace(directory) for directory in directories] or [read_trace(SHIPPED_TRACE)]
    return [trace for trace in found if trace.memory_bytes is not None]


def trace_files() -> list[Path]:
    """The files that `traces` reads."""
    directories = sorted(RECORDED.iterdir()) if RECORDED.is_dir() else [SHIPPED_TRACE]
    return [path for directory in directories for path in sorted(directory.glob("*.csv*"))]


def demands(count: int, start: int, minutes: int, seed: int) -> Iterator[CadvisorDemand]:
    """Demands from the traces' series in turn, each repeated from another point on, with some noise a minute."""
    found = traces()
    random = np.random.default_rng(seed)
    for index in range(count):
        trace = found[index % len(found)]
        row = (index // len(found)) % len(trace.series)
        assert trace.memory_bytes is not None
        cpu, memory = trace.cpu_millicores[row], trace.memory_bytes[row]
        sampled = ~(np.isnan(cpu) | np.isnan(memory))
        each = max(1, int(trace.times[1] - trace.times[0]) // 60)
        at = (np.arange(minutes) // each + int(random.integers(len(cpu)))) % int(sampled.sum())
        cores = np.maximum(cpu[sampled][at], 1.0) / 1000 * random.uniform(0.7, 1.3, minutes)
        waiting = np.clip(random.normal(0.08, 0.08, minutes), 0.0, 0.9)
        bytes_ = np.maximum(memory[sampled][at], 2.0**20) * random.uniform(0.97, 1.03, minutes)
        yield CadvisorDemand(start, cores, waiting, np.floor(bytes_))


def scrape(
    place: ContainerLocation, life: ContainerLifetime, demand: CadvisorDemand, times: NDArray[np.float64]
) -> list[RawSeries]:
    """Return the series of one container, one for each id that it had; `times` are those of its node's scrapes."""
    series = []
    starts = (life.start, *life.restarts)
    for number, (start, end) in enumerate(zip(starts, (*life.restarts, life.end), strict=True)):
        # A restarted container is not there again at once.
        first = start + (7 + 5 * (number % 3) if number else 0)
        seen = times[(times >= first) & (times < end)]
        if not len(seen):
            continue
        cpu = _counter(demand.start, demand.cores, seen, first, life.resets)
        waiting = _counter(demand.start, demand.waiting, seen, first, life.resets)
        minute = np.minimum((seen - demand.start) // 60, len(demand.memory) - 1).astype(np.int64)
        pressure = {"present": waiting, "zero": np.zeros(len(seen)), "absent": None}[life.pressure]
        id_ = f"/kubepods/{place.pod}/{place.container}-{number:06d}"
        series.append(
            RawSeries(
                place.namespace, place.pod, place.container, id_, place.node, seen, cpu, pressure, demand.memory[minute]
            )
        )
    return series


def _counter(
    start: int, rates: NDArray[np.float64], times: NDArray[np.float64], since: int, resets: Sequence[int]
) -> NDArray[np.float64]:
    """Integrate a rate a minute up to each time, from `since` or the last reset on, to the millisecond."""
    edges = start + 60.0 * np.arange(len(rates) + 1)
    total = np.concatenate(([0.0], np.cumsum(rates * 60)))
    zero = np.full(len(times), float(since))
    for reset in sorted(resets):
        zero[(times >= reset) & (reset > since)] = reset
    counted: NDArray[np.float64] = np.round(np.interp(times, edges, total) - np.interp(zero, edges, total), 3)
    return counted


def scrape_times(place: ContainerLocation, spans: Sequence[tuple[int, int, int | None]]) -> NDArray[np.float64]:
    """Return a node's scrape times in the spans (start, end, seconds between, None for the node's own), ascending."""
    parts = []
    for start, end, every in spans:
        step = every or place.scrape_seconds
        offset = place.scrape_offset % step
        first = start + (offset - start) % step
        parts.append(np.arange(first, end, step))
    return np.unique(np.round(np.concatenate(parts), 3))


def write_openmetrics(series: Sequence[RawSeries], path: Path, job: str = "") -> None:
    """Write what `promtool tsdb create-blocks-from openmetrics` reads, with a label `job` if it is given."""
    with path.open("w") as file:
        for name, kind in (
            ("container_cpu_usage_seconds", "counter"),
            ("container_pressure_cpu_waiting_seconds", "counter"),
            ("container_memory_working_set_bytes", "gauge"),
        ):
            file.write(f"# TYPE {name} {kind}\n")
            for one in series:
                _write_series(file.write, name, one, job)
        file.write("# EOF\n")


def _write_series(write: Callable[[str], object], name: str, one: RawSeries, job: str) -> None:
    labels = f'container="{one.container}",id="{one.id}",namespace="{one.namespace}",node="{one.node}",pod="{one.pod}"'
    labels += f',job="{job}"' if job else ""
    times = one.times.tolist()
    if name == "container_memory_working_set_bytes":
        write(
            "".join(
                f"{name}{{{labels}}} {int(value)} {at:.3f}\n"
                for value, at in zip(one.memory.tolist(), times, strict=True)
            )
        )
        return
    values = one.cpu if name == "container_cpu_usage_seconds" else one.waiting
    if values is not None:
        head = f"{name}_total{{{labels}}}"
        write("".join(f"{head} {value:.3f} {at:.3f}\n" for value, at in zip(values.tolist(), times, strict=True)))

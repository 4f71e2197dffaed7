"""Usage that harms controllers, each kind from a cause seen in real clusters; nothing is tuned on it.

Each kind draws the use of some workloads: CPU as millicores, and memory as bytes, one column per pod; NaN where a pod
does not exist. Owners request more than the largest use that there will be: what is killed or starved, is so because of
smaller requests.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from cruise.backtest.recordings.recording import CONTAINER, MONDAY, RecordedContainer, UsageRecording
from cruise.domain.arrays import BoolArray, Float64Array, Int64Array
from cruise.domain.cluster import WorkloadRef
from cruise.domain.resources import MEBIBYTE, Resources

STEP_SECONDS = 300
_HOUR_STEPS = 3600 // STEP_SECONDS
_DAY_STEPS = 24 * _HOUR_STEPS
_WORKLOADS = 12
_REPLICAS = 4
_MOST = Resources(6000, 24 * 1024 * MEBIBYTE)
_LARGEST = Resources(7000, 28 * 1024 * MEBIBYTE)


@dataclass(frozen=True, slots=True)
class UsageShape:
    """The use of pods over time as multiples of each pod's usual use (T, C), and the workload of each pod."""

    cpu: Float64Array
    memory: Float64Array
    workloads: Int64Array


Draw = Callable[[np.random.Generator, int], UsageShape]


def draw_recording(kind: str, seed: int, days: float) -> UsageRecording:
    """Return a recording of one kind of SHAPES, of about 50 pods."""
    random = np.random.default_rng([seed, *kind.encode()])
    shape = SHAPES[kind](random, int(days * _DAY_STEPS))
    count = int(shape.workloads.max()) + 1
    millicores = np.clip(random.lognormal(5.3, 0.8, count), 20, 900)
    mebibytes = np.clip(random.lognormal(6.3, 0.8, count), 50, 3000)
    requested = random.uniform(1.05, 2, (2, count))
    of = shape.workloads
    noise = np.exp(random.normal(0, 0.08, shape.cpu.shape))
    # A process that is alone on a node gets no more either.
    cpu = np.minimum(shape.cpu * millicores[of] * noise, _MOST.cpu_millicores)
    memory = np.minimum(shape.memory * (mebibytes * MEBIBYTE)[of], _MOST.memory_bytes)
    containers = [
        RecordedContainer(
            kind,
            f"pod-{number:04}",
            CONTAINER,
            WorkloadRef("Deployment", f"w-{workload}"),
            Resources(
                min(_LARGEST.cpu_millicores, int(_stated(cpu[:, of == workload]) * requested[0, workload]) + 10),
                min(_LARGEST.memory_bytes, int(_stated(memory[:, of == workload]) * requested[1, workload])),
            ),
        )
        for number, workload in enumerate(of.tolist())
    ]
    start = MONDAY + STEP_SECONDS
    return UsageRecording(kind, containers, start, STEP_SECONDS, cpu.astype(np.float32), memory.astype(np.float32))


def _stated(use: Float64Array) -> float:
    """Return what a careful owner requests for: the largest use that there will be."""
    return float(np.nanmax(use))


def _fleet(workloads: int = _WORKLOADS, replicas: int = _REPLICAS) -> Int64Array:
    return np.repeat(np.arange(workloads), replicas)


def _hours(steps: int) -> Float64Array:
    hours: Float64Array = np.arange(steps)[:, np.newaxis] / _HOUR_STEPS
    return hours


def _rhythm(hours: Float64Array, peak_hour: Float64Array | float = 14.0) -> Float64Array:
    """Return 0 at night to 1 at the peak of each day."""
    rhythm: Float64Array = np.maximum(np.cos((hours - peak_hour) * np.pi / 12), 0)
    return rhythm


def _jvm(random: np.random.Generator, steps: int) -> UsageShape:
    """The old generation fills up and is collected at a threshold; live objects step up, and the heap never shrinks."""
    of = _fleet()
    fill = (np.arange(steps)[:, np.newaxis] / random.uniform(20, 400, len(of)) + random.random(len(of))) % 1
    stairs = 1 + 0.25 * np.minimum(_hours(steps) // random.uniform(12, 60, len(of)), 6)
    committed = np.maximum.accumulate(0.5 * stairs + 0.9 * fill)
    collected = np.diff(fill, axis=0, prepend=fill[:1]) < 0
    rhythm = _rhythm(_hours(steps))
    return UsageShape(0.6 + rhythm + 4 * collected, 0.3 * stairs + 0.7 * committed, of)


def _go(random: np.random.Generator, steps: int) -> UsageShape:
    """Live memory follows traffic, and GOGC lets the heap double between collections."""
    of = _fleet()
    traffic = 0.3 + 2 * _rhythm(_hours(steps)) * random.uniform(0.5, 1.5, len(of))
    return UsageShape(traffic, 0.2 + 0.5 * traffic * random.uniform(1, 2, (steps, len(of))), of)


def _page_cache(random: np.random.Generator, steps: int) -> UsageShape:
    """A nightly scan puts files into the working set, which is reclaimed slowly."""
    of = _fleet()
    since = (_hours(steps) - random.uniform(0, 4, len(of))) % 24
    scanned: Float64Array = np.where(since < 1, since, np.exp(-(since - 1) / 5))
    return UsageShape(np.where(since < 1, 2.5, 0.5), 0.6 + 3 * scanned, of)


def _nightly_restart(random: np.random.Generator, steps: int) -> UsageShape:
    """Memory leaks all day, and a cron job restarts the process at 3:00."""
    of = _fleet()
    since = (_hours(steps) - 3) % 24
    return UsageShape(0.5 + _rhythm(_hours(steps)), 0.5 + since / 24 * random.uniform(0.5, 3, len(of)), of)


def _late_model(random: np.random.Generator, steps: int) -> UsageShape:
    """Batch pods of three hours download for 40 minutes, then load a model of eight times the memory."""
    per, of = max(1, steps // (3 * _HOUR_STEPS)), []
    columns = []
    for workload in range(8):
        offset = int(random.integers(0, 3 * _HOUR_STEPS))
        for turn in range(per):
            first = offset + turn * 3 * _HOUR_STEPS
            use = np.full((steps, 2), np.nan)
            use[first : first + 3 * _HOUR_STEPS] = (2.0, 1.6)
            use[first : first + 8] = (0.3, 0.2)
            if first < steps:
                columns.append(use)
                of.append(workload)
    both = np.stack(columns, axis=1)
    return UsageShape(both[..., 0], both[..., 1], np.array(of))


def _cron(random: np.random.Generator, steps: int) -> UsageShape:
    """Every pod has a job at the full hour."""
    of = _fleet()
    at_hour = (np.arange(steps) % _HOUR_STEPS == 0)[:, np.newaxis]
    return UsageShape(0.6 + 5 * at_hour * random.uniform(0.5, 1.5, len(of)), 0.8 + 0.5 * at_hour, of)


def _flash_crowd(random: np.random.Generator, steps: int) -> UsageShape:
    """Once a week, at no certain hour, all of a workload is 20 times as busy for ten minutes."""
    of = _fleet()
    use = 0.5 + _rhythm(_hours(steps)) * np.ones(len(of))
    memory = np.ones((steps, len(of)))
    for workload in range(_WORKLOADS):
        for week in range(0, steps, 7 * _DAY_STEPS):
            first = week + int(random.integers(_DAY_STEPS, 7 * _DAY_STEPS))
            use[first : first + 2, of == workload] *= 20
            memory[first : first + 12, of == workload] *= 1.8
    return UsageShape(use, memory, of)


def _failover(random: np.random.Generator, steps: int) -> UsageShape:
    """A zone fails for two hours, every second day: half of all pods vanish, the others have twice the use."""
    of = _fleet()
    cpu = 0.5 + _rhythm(_hours(steps)) * np.ones(len(of))
    memory = 0.7 + 0.3 * cpu
    zone = np.arange(len(of)) % 2
    for day in range(2, steps // _DAY_STEPS, 2):
        first = day * _DAY_STEPS + int(random.integers(0, 20 * _HOUR_STEPS))
        gone = zone == int(random.integers(0, 2))
        cpu[first : first + 2 * _HOUR_STEPS, ~gone] *= 2
        memory[first : first + 2 * _HOUR_STEPS, ~gone] *= 1.7
        cpu[first : first + 2 * _HOUR_STEPS, gone] = np.nan
        memory[first : first + 2 * _HOUR_STEPS, gone] = np.nan
    return UsageShape(cpu, memory, of)


def _releases(random: np.random.Generator, steps: int, profile: tuple[float, float], starting: float) -> UsageShape:
    """Each workload is released every 12 hours or so: new pods, each release with another profile and a busy start."""
    cpu, memory, of = [], [], []
    rhythm = 0.5 + _rhythm(_hours(steps))[:, 0]
    for workload in range(_WORKLOADS):
        edges = [0]
        while edges[-1] < steps:
            edges.append(edges[-1] + int(random.integers(6, 24)) * _HOUR_STEPS)
        for first, end in pairwise(edges):
            cpu_level, memory_level = random.uniform(*profile, 2)
            for replica in range(_REPLICAS):
                # The canary comes an hour before the others.
                begin = max(0, first - _HOUR_STEPS * (replica == 0))
                use = np.where((np.arange(steps) >= begin) & (np.arange(steps) < end), rhythm * cpu_level, np.nan)
                use[begin : begin + 2] *= starting
                cpu.append(use)
                memory.append(np.where(np.isnan(use), np.nan, memory_level))
                of.append(workload)
    return UsageShape(np.stack(cpu, axis=1), np.stack(memory, axis=1), np.array(of))


def _canary(random: np.random.Generator, steps: int) -> UsageShape:
    """Releases with profiles from a third to twice the usual."""
    return _releases(random, steps, (0.35, 2), 1)


def _busy_start(random: np.random.Generator, steps: int) -> UsageShape:
    """Releases of the same profile whose pods compile and fill caches for ten minutes, with ten times the CPU."""
    return _releases(random, steps, (0.95, 1.05), 10)


def _blue_green(random: np.random.Generator, steps: int) -> UsageShape:
    """Of each workload one half is idle; the halves are switched once in a while."""
    of = _fleet()
    turn = (_hours(steps) // random.uniform(20, 90, _WORKLOADS)).astype(np.int64)[:, of]
    live = (turn + np.arange(len(of))) % 2 == 0
    return UsageShape(np.where(live, 1.5 + _rhythm(_hours(steps)), 0.03), np.where(live, 1.6, 0.4), of)


def _holidays(random: np.random.Generator, steps: int) -> UsageShape:
    """Days with quiet weekends, a holiday on the second Thursday, and three times the use on the Friday after it."""
    of = _fleet()
    day = np.arange(steps) // _DAY_STEPS
    level = np.where(np.isin(day % 7, (5, 6)) | (day == 10), 0.1, np.where(day == 11, 3.0, 1.0))[:, np.newaxis]
    use = 0.3 + 1.5 * _rhythm(_hours(steps), random.uniform(12, 16, len(of))) * level
    return UsageShape(use, 0.7 + 0.3 * use, of)


def _clock_change(random: np.random.Generator, steps: int) -> UsageShape:
    """A steep rise at nine o'clock, which is an hour earlier from the eighth day on."""
    of = _fleet()
    hours = _hours(steps) + (_hours(steps) >= 24 * 7)
    busy = (hours % 24 >= 9) & (hours % 24 < 18)
    return UsageShape(np.where(busy, 2.0, 0.2) * random.uniform(0.8, 1.2, len(of)), np.where(busy, 1.5, 0.6), of)


def _queue_worker(random: np.random.Generator, steps: int) -> UsageShape:
    """Idle for days, then six hours of everything."""
    of = _fleet()
    busy = _awake(random, steps, 2.5, 6)[:, of]
    return UsageShape(np.where(busy, 4.0, 0.03), np.where(busy, 3.0, 0.5), of)


def _awake(random: np.random.Generator, steps: int, days: float, hours: int) -> BoolArray:
    """Return when each workload is busy: for some hours, on average after so many idle days."""
    awake = np.zeros((steps, _WORKLOADS), dtype=np.bool_)
    for workload in range(_WORKLOADS):
        at = int(random.exponential(days * _DAY_STEPS))
        while at < steps:
            awake[at : at + hours * _HOUR_STEPS, workload] = True
            at += int(random.exponential(days * _DAY_STEPS)) + hours * _HOUR_STEPS
    return awake


def _drift(random: np.random.Generator, steps: int) -> UsageShape:
    """Use grows by some percent a day, and doubles at some moment for good."""
    of = _fleet()
    grown = (1 + random.uniform(0, 0.06, len(of))) ** (_hours(steps) / 24)
    stepped = np.where(_hours(steps) > random.uniform(72, 300, len(of)), 2.0, 1.0)
    return UsageShape(0.5 * grown * stepped, 0.6 * grown * stepped, of)


def _served(random: np.random.Generator, steps: int) -> UsageShape:
    """Memory grows with requests served and is never released; the process restarts at three times its start."""
    of = _fleet()
    traffic = 0.3 + _rhythm(_hours(steps)) * random.uniform(0.5, 1.5, len(of))
    kept = np.cumsum(traffic, axis=0) / _DAY_STEPS * random.uniform(0.3, 2, len(of))
    return UsageShape(traffic, 0.5 + kept % 1.2, of)


def _awakened(random: np.random.Generator, steps: int) -> UsageShape:
    """Development namespaces that are idle for longer than any history, then all of them are used for a day."""
    of = _fleet()
    day = np.arange(steps)[:, np.newaxis] / _DAY_STEPS
    used = (day < 0.5) | ((day > 9.4) & (day < 10.4))
    return UsageShape(np.where(used, 3.0, 0.02), np.where(used, 2.0, 0.3) * np.ones(len(of)), of)


def _short_lives(random: np.random.Generator, steps: int) -> UsageShape:
    """Pods that live for five to fifteen minutes, new ones all the time."""
    pods = 1500
    first = random.integers(0, steps, pods)
    lives = random.integers(1, 4, pods)
    at = np.arange(steps)[:, np.newaxis]
    exists = (at >= first) & (at < first + lives)
    level = random.lognormal(0, 0.5, pods)
    of = np.arange(pods) % 6
    return UsageShape(np.where(exists, level, np.nan), np.where(exists, level, np.nan), of)


def _leader(random: np.random.Generator, steps: int) -> UsageShape:
    """One replica does the work of all; the leader changes every day or two."""
    of = _fleet()
    term = (_hours(steps) // random.uniform(12, 60, _WORKLOADS)).astype(np.int64)[:, of]
    leads = term % _REPLICAS == np.arange(len(of)) % _REPLICAS
    return UsageShape(np.where(leads, 4.0, 0.2), np.where(leads, 2.5, 0.5), of)


def _in_step(random: np.random.Generator, steps: int) -> UsageShape:
    """Halves of a cluster are busy in turn for eight days, then together."""
    of = _fleet()
    turn = 12.0 * (np.arange(len(of)) % 2)
    shift = np.where(_hours(steps) < 24 * 8, turn, 0.0)
    use = 0.2 + 2 * _rhythm(_hours(steps) - shift)
    return UsageShape(use, 0.4 + use * random.uniform(0.5, 0.7, len(of)), of)


def _heavy_tail(random: np.random.Generator, steps: int) -> UsageShape:
    """Bursts whose height has no mean, of five minutes to an hour."""
    of = _fleet()
    cpu, memory = np.full((steps, len(of)), 0.5), np.ones((steps, len(of)))
    for pod in range(len(of)):
        for first in np.flatnonzero(random.random(steps) < 0.01).tolist():
            length = int(random.integers(1, _HOUR_STEPS))
            cpu[first : first + length, pod] += min(30.0, random.pareto(1.1))
            memory[first : first + length, pod] += min(3.0, 0.2 * random.pareto(1.1))
    return UsageShape(cpu, memory, of)


def _rare_job(random: np.random.Generator, steps: int) -> UsageShape:
    """A job of an hour in a long-lived pod, every eight days or more, so that nothing recent shows it."""
    of = _fleet()
    use, memory = np.full((steps, len(of)), 0.4), np.full((steps, len(of)), 0.5)
    for workload in range(_WORKLOADS):
        at = int(random.integers(0, 3 * _DAY_STEPS))
        while at < steps:
            use[at : at + _HOUR_STEPS, of == workload] = 4.0
            memory[at : at + _HOUR_STEPS, of == workload] = 2.5
            at += int(random.integers(8 * _DAY_STEPS, 10 * _DAY_STEPS))
    return UsageShape(use, memory, of)


def _gaps(random: np.random.Generator, steps: int) -> UsageShape:
    """Metrics are missing for two hours at the peak of each day, and in one of fifty samples of each pod."""
    of = _fleet()
    use = 0.3 + 2 * _rhythm(_hours(steps)) * random.uniform(0.7, 1.3, len(of))
    missing = (np.abs(_hours(steps) % 24 - 14) < 1) | (random.random((steps, len(of))) < 0.02)
    return UsageShape(np.where(missing, np.nan, use), np.where(missing, np.nan, 0.6 + 0.4 * use), of)


def _slow_square(random: np.random.Generator, steps: int) -> UsageShape:
    """High for an hour or so, then low for as long: as slow as the waits of a controller."""
    of = _fleet()
    period = random.uniform(0.7, 5, _WORKLOADS)[of]
    high = (_hours(steps) / period + random.random(_WORKLOADS)[of]) % 1 < 0.5
    return UsageShape(np.where(high, 2.0, 0.3), np.where(high, 1.5, 0.6), of)


def _throttled(random: np.random.Generator, steps: int) -> UsageShape:
    """Use stays at a limit for days; then the limit is lifted, and what waited is done at three times the use."""
    of = _fleet()
    lifted = _hours(steps) > random.uniform(48, 200, _WORKLOADS)[of]
    traffic = 0.4 + 2.6 * _rhythm(_hours(steps)) * random.uniform(0.8, 1.2, len(of))
    return UsageShape(np.where(lifted, traffic, np.minimum(traffic, 0.8)), 0.8 + 0.1 * traffic, of)


def _many_small_one_large(random: np.random.Generator, steps: int) -> UsageShape:
    """A few pods of half a node, busy at random for hours, among many small steady ones."""
    of = np.concatenate([np.arange(4), np.repeat(np.arange(4, 12), 8)])
    large = of < 4
    busy = _awake(random, steps, 0.5, 5)[:, of]
    return UsageShape(
        np.where(large, np.where(busy, 25.0, 1.0), 0.6), np.where(large, np.where(busy, 12.0, 4.0), 0.9), of
    )


SHAPES: Mapping[str, Draw] = {
    "jvm": _jvm,
    "go": _go,
    "page-cache": _page_cache,
    "nightly-restart": _nightly_restart,
    "late-model": _late_model,
    "cron": _cron,
    "flash-crowd": _flash_crowd,
    "failover": _failover,
    "canary": _canary,
    "busy-start": _busy_start,
    "blue-green": _blue_green,
    "holidays": _holidays,
    "clock-change": _clock_change,
    "queue-worker": _queue_worker,
    "drift": _drift,
    "served": _served,
    "awakened": _awakened,
    "short-lives": _short_lives,
    "leader": _leader,
    "in-step": _in_step,
    "heavy-tail": _heavy_tail,
    "rare-job": _rare_job,
    "gaps": _gaps,
    "slow-square": _slow_square,
    "throttled": _throttled,
    "large-among-small": _many_small_one_large,
}

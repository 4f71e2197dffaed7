"""Random recordings with different usage patterns, for invariants; no parameter is tuned on them."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cruise.backtest.recordings.recording import RecordedContainer, UsageRecording
from cruise.domain.arrays import Float64Array
from cruise.domain.cluster import WorkloadRef
from cruise.domain.resources import MEBIBYTE, Resources

STEP = 300
HOUR_STEPS = 3600 // STEP
DAY_STEPS = 24 * HOUR_STEPS
MONDAY = 1_767_571_200
NODE = Resources(8000, 16384 * MEBIBYTE)
# No pod is provisioned with more than fills a node on its own.
LARGEST = Resources(7000, 14336 * MEBIBYTE)


class Usage(NamedTuple):
    """Use over time, a column a pod: millicores, and bytes; NaN where the pod is not there."""

    cpu: Float64Array
    memory: Float64Array


Kind = Callable[[np.random.Generator, int, int], Usage]


def daily(random: np.random.Generator, steps: int, pods: int) -> Usage:
    """A rhythm of the day, each pod with its own peak hour; memory follows a little."""
    rise = _rhythm(random, steps, pods) * random.uniform(0.3, 4, pods)
    return _noisy(random, 1 + rise, 1 + 0.2 * rise)


def weekly(random: np.random.Generator, steps: int, pods: int) -> Usage:
    """The same, with quiet weekends: the recording goes from Friday into the week after."""
    day = (4 + np.arange(steps) // DAY_STEPS) % 7
    rise = _rhythm(random, steps, pods) * random.uniform(0.3, 4, pods) * np.where(day >= 5, 0.2, 1.0)[:, np.newaxis]
    return _noisy(random, 1 + rise, 1 + 0.2 * rise)


def bursty(random: np.random.Generator, steps: int, pods: int) -> Usage:
    """Bursts of a few minutes at random times, up to ten times the usual usage."""
    burst = (random.random((steps, pods)) < random.uniform(0.005, 0.08)) * random.uniform(1, 10, (steps, pods))
    return _noisy(random, 1 + burst, 1 + 0.03 * burst)


def ramps(random: np.random.Generator, steps: int, pods: int) -> Usage:
    """Straight lines up and down, over hours."""
    corners = np.arange(0, steps + DAY_STEPS, int(random.integers(4, 12)) * HOUR_STEPS)
    heights = random.uniform(0.2, 5, (len(corners), pods))
    rise = np.stack([np.interp(np.arange(steps), corners, column) for column in heights.T], axis=1)
    return _noisy(random, rise, 1 + 0.3 * rise)


def correlated(random: np.random.Generator, steps: int, pods: int) -> Usage:
    """All pods rise and burst together."""
    shared = 3 * _rhythm(random, steps, 1) + 4 * (random.random((steps, 1)) < 0.02)
    return _noisy(random, 1 + shared * random.uniform(0.5, 1.5, pods), 1 + 0.2 * shared * np.ones(pods))


def leaks(random: np.random.Generator, steps: int, pods: int) -> Usage:
    """Memory that only increases, by up to twice its value in a day."""
    grown = np.arange(steps)[:, np.newaxis] / DAY_STEPS * random.uniform(0.1, 2, pods)
    return _noisy(random, np.ones((steps, pods)), 1 + grown, spread=0.0)


def rollouts(random: np.random.Generator, steps: int, pods: int) -> Usage:
    """Every pod is replaced by another of the same use, one after the other; old and new run together for a while."""
    first = int(random.integers(3 * HOUR_STEPS, steps - pods * 2 - HOUR_STEPS))
    overlap = int(random.integers(0, 4))
    use = np.ones((steps, 2 * pods))
    for pod in range(pods):
        use[first + pod * 2 + overlap :, pod] = np.nan
        use[: first + pod * 2, pods + pod] = np.nan
    return Usage(use * np.tile(_sizes(random, pods), 2), use * np.tile(_sizes(random, pods), 2) * MEBIBYTE)


KINDS: dict[str, Kind] = {
    "daily": daily,
    "weekly": weekly,
    "bursty": bursty,
    "ramps": ramps,
    "correlated": correlated,
    "leaks": leaks,
    "rollouts": rollouts,
}


def made(kind: str, seed: int, days: float = 1.5) -> UsageRecording:
    """Return a recording of a few pods of one kind, each requesting from slightly less to ten times its usage."""
    random = np.random.default_rng(seed)
    pods = int(random.integers(3, 9))
    usage = KINDS[kind](random, int(days * DAY_STEPS), pods)
    requested = random.uniform(0.8, 10)
    columns = usage.cpu.shape[1]
    cpu = np.nanmax(usage.cpu[:HOUR_STEPS], axis=0, initial=0)
    memory = np.nanmax(usage.memory[:HOUR_STEPS], axis=0, initial=0)
    if kind == "rollouts":
        cpu, memory = np.tile(cpu[:pods], 2), np.tile(memory[:pods], 2)
    containers = [
        RecordedContainer(
            "shop",
            f"pod-{column}",
            "app",
            WorkloadRef("Deployment", f"w{column % pods}"),
            Resources(
                min(LARGEST.cpu_millicores, int(requested * cpu[column]) + 10),
                min(LARGEST.memory_bytes, int(max(1.1, requested) * memory[column])),
            ),
        )
        for column in range(columns)
    ]
    start = MONDAY + (4 * 86400 if kind == "weekly" else 0) + STEP
    return UsageRecording(kind, containers, start, STEP, usage.cpu.astype(np.float32), usage.memory.astype(np.float32))


def _rhythm(random: np.random.Generator, steps: int, pods: int) -> Float64Array:
    hours = np.arange(steps)[:, np.newaxis] / HOUR_STEPS
    return np.maximum(np.cos((hours - random.uniform(0, 24, pods)) * np.pi / 12), 0)


def _noisy(random: np.random.Generator, cpu: Float64Array, memory: Float64Array, spread: float = 0.1) -> Usage:
    """Give each pod a different size, and each sample of CPU some noise, of memory a tenth of it."""
    pods = cpu.shape[1]
    noise = np.exp(random.normal(0, 1, cpu.shape))
    return Usage(
        cpu * _sizes(random, pods) * noise**spread,
        memory * _sizes(random, pods) * MEBIBYTE * noise ** (spread / 10),
    )


def _sizes(random: np.random.Generator, pods: int) -> Float64Array:
    """Return a size for each pod, in millicores or MiB: from tens to some hundreds."""
    return np.minimum(random.lognormal(5, 1, pods), 400)

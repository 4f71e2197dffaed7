"""Made-up demand with known shapes: every value follows from the seed, the member and the time alone."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cruise.domain.arrays import Float64Array, Int64Array

DAY_SECONDS = 86_400
_NOISE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Diurnal:
    """Demand that swings between `low` and `high` once a day, highest at `peak_hour` (UTC).

    Memory carries a tenth of the noise.
    """

    seed: int
    low_millicores: float
    high_millicores: float
    low_bytes: float
    high_bytes: float
    peak_hour: float = 14.0
    noise_share: float = 0.1

    def demand(self, members: Int64Array, at: Int64Array, age: Int64Array) -> tuple[Float64Array, Float64Array]:
        wave = (1 + np.cos(2 * np.pi * (at / DAY_SECONDS - self.peak_hour / 24))) / 2
        noise = self.noise_share * _spread(self.seed, members, at // _NOISE_SECONDS)
        cpu = (self.low_millicores + (self.high_millicores - self.low_millicores) * wave) * (1 + noise)
        memory = (self.low_bytes + (self.high_bytes - self.low_bytes) * wave) * (1 + noise / 10)
        return _shaped(cpu, memory, members, at, age)


@dataclass(frozen=True, slots=True)
class Bursty:
    """Idle, with a burst of `burst_seconds` somewhere in a `share` of the periods."""

    seed: int
    idle_millicores: float
    burst_millicores: float
    idle_bytes: float
    burst_bytes: float
    period_seconds: int = 3600
    burst_seconds: int = 300
    share: float = 0.5

    def demand(self, members: Int64Array, at: Int64Array, age: Int64Array) -> tuple[Float64Array, Float64Array]:
        period = at // self.period_seconds
        happens = _uniform(self.seed, members, period) < self.share
        start = _uniform(self.seed + 1, members, period) * (self.period_seconds - self.burst_seconds)
        since = at % self.period_seconds - start
        bursting = happens & (since >= 0) & (since < self.burst_seconds)
        cpu = np.where(bursting, self.burst_millicores, self.idle_millicores)
        memory = np.where(bursting, self.burst_bytes, self.idle_bytes)
        return _shaped(cpu, memory, members, at, age)


@dataclass(frozen=True, slots=True)
class Leaking:
    """Memory that grows with the age of the process and is lost only when it is killed."""

    seed: int
    millicores: float
    start_bytes: float
    bytes_per_hour: float
    noise_share: float = 0.1

    def demand(self, members: Int64Array, at: Int64Array, age: Int64Array) -> tuple[Float64Array, Float64Array]:
        noise = self.noise_share * _spread(self.seed, members, at // _NOISE_SECONDS)
        memory = self.start_bytes + self.bytes_per_hour * np.maximum(age, 0) / 3600
        return _shaped(self.millicores * (1 + noise), memory, members, at, age)


@dataclass(frozen=True, slots=True)
class Correlated:
    """Members that rise and fall together: `coupling` 1 is one shared curve, 0 a curve of its own for each."""

    seed: int
    base_millicores: float
    swing_millicores: float
    base_bytes: float
    swing_bytes: float
    coupling: float = 0.8
    period_seconds: int = 900

    def demand(self, members: Int64Array, at: Int64Array, age: Int64Array) -> tuple[Float64Array, Float64Array]:
        shared = self._curve(self.seed, np.zeros_like(members), at)
        own = self._curve(self.seed + 1, members, at)
        level = self.coupling * shared + (1 - self.coupling) * own
        cpu = self.base_millicores + self.swing_millicores * level
        return _shaped(cpu, self.base_bytes + self.swing_bytes * level, members, at, age)

    def _curve(self, seed: int, members: Int64Array, at: Int64Array) -> Float64Array:
        """Return a curve in [0, 1) through a random level at each period's start."""
        period = at // self.period_seconds
        share = (at % self.period_seconds) / self.period_seconds
        before, after = _uniform(seed, members, period), _uniform(seed, members, period + 1)
        curve: Float64Array = before + (after - before) * share
        return curve


def _shaped(
    cpu: Float64Array, memory: Float64Array, members: Int64Array, at: Int64Array, age: Int64Array
) -> tuple[Float64Array, Float64Array]:
    # Called for a few members at a time, where NumPy's own broadcasting functions would take most of the time.
    shape = np.broadcast(members, at, age).shape
    shaped = np.empty(shape), np.empty(shape)
    shaped[0][...], shaped[1][...] = cpu, memory
    return shaped


def _spread(seed: int, members: Int64Array, moments: Int64Array) -> Float64Array:
    """Return noise in [-1, 1)."""
    noise: Float64Array = 2 * _uniform(seed, members, moments) - 1
    return noise


def _uniform(seed: int, members: Int64Array, moments: Int64Array) -> Float64Array:
    """Return a number in [0, 1) for each (seed, member, moment), the same every time.

    Source: the finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
    """
    with np.errstate(over="ignore"):
        mixed: NDArray[np.uint64] = np.asarray(members).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed = mixed ^ (np.asarray(moments).astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F))
        mixed = mixed + np.uint64(seed & 0xFFFFFFFFFFFFFFFF) * np.uint64(0x165667B19E3779F9)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed = mixed ^ (mixed >> np.uint64(31))
    uniform: Float64Array = (mixed >> np.uint64(11)) / float(1 << 53)
    return uniform

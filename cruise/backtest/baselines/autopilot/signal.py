"""What Autopilot's recommenders read: for every job and window, a histogram of what its tasks used.

Source: Rzadca et al., "Autopilot: workload autoscaling at Google", EuroSys 2020, section 3.2.1. The paper's: about 400
buckets with fixed boundaries, windows of 5 minutes, every CPU sample, of memory only each task's peak, and one
histogram a job. Ours, where it is silent: boundaries 3 % apart, from 1 millicore and 1 MiB up (399 steps end at 132
cores and 129 GiB; what is above falls into the last bucket), and a window is an interval between two passes.
"""

from dataclasses import dataclass

import numpy as np

from cruise.domain.arrays import Float32Array, Float64Array, Int64Array
from cruise.domain.resources import MEBIBYTE

BUCKETS = 400
BUCKET_RATIO = 1.03
CPU_BOUNDS: Float64Array = np.power(BUCKET_RATIO, np.arange(BUCKETS), dtype=np.float64)
MEMORY_BOUNDS: Float64Array = MEBIBYTE * CPU_BOUNDS


@dataclass(frozen=True, slots=True)
class Signal:
    """The samples of the window that ends at `at` (Unix seconds): of which job each is, and which bucket it fell into.

    Bucket k holds what is below `bounds[k]` and not below `bounds[k - 1]`.
    """

    at: int
    jobs: Int64Array
    buckets: Int64Array


def cpu_signal(at: int, cpu: Float32Array, jobs: Int64Array) -> Signal:
    """Return the signal of a matrix (times, containers) of millicores, NaN for none; `jobs` has each container's."""
    times, containers = np.nonzero(~np.isnan(cpu))
    return Signal(at, jobs[containers], _buckets(cpu[times, containers], CPU_BOUNDS))


def memory_signal(at: int, memory: Float32Array, jobs: Int64Array) -> Signal:
    """Return the signal of the peaks of a matrix (times, containers) of bytes, NaN for none."""
    peaks = np.fmax.reduce(memory, axis=0)
    containers = np.flatnonzero(~np.isnan(peaks))
    return Signal(at, jobs[containers], _buckets(peaks[containers], MEMORY_BOUNDS))


def _buckets(values: Float32Array, bounds: Float64Array) -> Int64Array:
    return np.minimum(np.searchsorted(bounds, values.astype(np.float64), side="right"), len(bounds) - 1)

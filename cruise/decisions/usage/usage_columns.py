"""Usage in columns, as statistics are estimated from it.

A row of `RecentUsage` is a container; a number of `KnownPeaks` is a container of a workload, told apart by identity. A
number's parent is the same container without identity: it stands for the whole workload, whose pods inherit from it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cruise.domain.arrays import BoolArray, Float32Array, Float64Array, Int64Array
from cruise.domain.usage import PeakKey, StatisticKey

# The first hour, or the first sample, of what was never seen.
NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class RecentUsage:
    """The last hour of R containers, NaN where there is no sample.

    The matrices have one column a grid time; `columns` lists them from the oldest time to the newest, which is the
    time of the statistics. `number` is what the row's peaks belong to, -1 for a row without container; `newest` is
    the time of its last sample in Unix seconds, `whole` the last one at which both resources are known, 0 for none.
    """

    cpu_demand_millicores: Float32Array
    memory_bytes: Float64Array
    columns: Int64Array
    number: Int64Array
    psi_known: BoolArray
    newest: Int64Array
    whole: Int64Array


@dataclass(frozen=True, slots=True)
class KnownPeaks:
    """What the hours of the peak window held, one entry a number; `parent` is its own for a key without identity.

    `first_hour` is the first hour with a sample, NEVER where there is none.
    """

    keys: Sequence[PeakKey]
    parent: Int64Array
    cpu_peak_millicores: Float64Array
    memory_peak_bytes: Float64Array
    memory_7d_max_bytes: Float64Array
    first_hour: Int64Array


@dataclass(frozen=True, slots=True)
class MixedRevisions:
    """Live containers of workloads whose pods state different resources, one entry each.

    `groups` has the same number for those of a workload's container that state the same, -1 for any other container;
    `young` tells which belong to pods that are too young to be judged by themselves.
    """

    groups: Int64Array
    young: BoolArray


@dataclass(frozen=True, slots=True)
class LiveContainers:
    """The containers of the pods that exist, and the row of each in `RecentUsage`, -1 where it was never seen.

    `mixed` is None where all pods of each workload state the same resources.
    """

    keys: Sequence[StatisticKey]
    rows: Int64Array
    mixed: MixedRevisions | None = None

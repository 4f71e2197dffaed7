"""What a replay counted, hour by hour and by groups of workloads: what uncertainty is estimated from."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from cruise.domain.arrays import Float64Array

HOUR_SECONDS = 3600


class Count(StrEnum):
    """What is counted; samples and sums of one resource are over samples, the others over time or events."""

    CPU_REQUESTED = "cpu-requested"
    CPU_USED = "cpu-used"
    CPU_SAMPLES = "cpu-samples"
    CPU_STARVED = "cpu-starved"
    MEMORY_REQUESTED = "memory-requested"
    MEMORY_USED = "memory-used"
    CONTAINER_MINUTES = "container-minutes"
    KILLS = "kills"
    RESIZES = "resizes"
    EVICTIONS = "evictions"
    MOVES = "moves"
    NODE_MINUTES = "node-minutes"
    MINUTES = "minutes"


@dataclass(frozen=True, slots=True)
class Cells:
    """Counts of H hours: each a matrix (H, groups), with one column for what belongs to the cluster as a whole."""

    counts: Mapping[Count, Float64Array]

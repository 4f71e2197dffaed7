"""What CruiseKube writes: at admission, and in place.

Source: truefoundry/cruisekube at 94de669, `pkg/handlers/webhookAdmission.go` (adjustResources),
`pkg/task/taskApplyRecommendation.go` (applyCPURecommendation, applyMemoryRecommendation) and `pkg/task/utils/util.go`.
CPU is in millicores here, where the source has cores; memory in megabytes of 1,000,000 bytes, as it has. What has no
request gets none.
"""

import numpy as np

from cruise.backtest.baselines.cruisekube.statistics import MEGABYTE, UsageStatistics
from cruise.backtest.replay.policy import Sizes
from cruise.domain.arrays import BoolArray, Float64Array, Int64Array

LEAST_CPU_MILLICORES = 1.0
MOST_CPU_MILLICORES = 10_000.0
LEAST_MEMORY_MEGABYTES = 16.0
LEAST_ADMITTED_LIMIT_MEGABYTES = 512.0
CPU_STEP_MILLICORES = 1.0
ADMISSION_DEAD_BAND_MEGABYTES = 16.0


def admitted_sizes(
    provisioned: Sizes, statistics: UsageStatistics, oom_megabytes: Float64Array, keeps_requests: BoolArray
) -> Sizes:
    """Return what the webhook makes of new pods' sizes; one entry a pod, everywhere.

    `keeps_requests` is for pods of DaemonSets, of which only the memory limit is raised.
    """
    cpu = np.where(
        statistics.cpu_predicted_millicores > 0, statistics.cpu_predicted_millicores, statistics.cpu_max_millicores
    )
    written = (provisioned.cpu_millicores > 0) & ~keeps_requests
    cpu_request = np.where(written, _cut(np.maximum(cpu, LEAST_CPU_MILLICORES)), provisioned.cpu_millicores)

    memory = np.where(
        statistics.memory_predicted_megabytes > 0,
        statistics.memory_predicted_megabytes,
        statistics.memory_max_megabytes,
    )
    memory = np.where(oom_megabytes > statistics.memory_max_megabytes, oom_megabytes, memory)
    past = np.maximum(statistics.memory_7d_max_megabytes, oom_megabytes)
    limit = 2 * np.where(statistics.memory_7d_max_megabytes > 0, np.maximum(past, memory), memory)
    limit_bytes = _cut(np.maximum(limit, LEAST_ADMITTED_LIMIT_MEGABYTES)) * MEGABYTE
    moved = np.abs(memory - provisioned.memory_bytes / MEGABYTE) > ADMISSION_DEAD_BAND_MEGABYTES
    written = moved & (provisioned.memory_bytes > 0)
    raised = np.maximum(provisioned.memory_limit_bytes // MEGABYTE * MEGABYTE, limit_bytes)
    kept = np.where(provisioned.memory_limit_bytes > 0, raised, 0)
    return Sizes(
        cpu_request,
        np.where(written & ~keeps_requests, _cut(memory) * MEGABYTE, provisioned.memory_bytes),
        np.where(written, np.where(keeps_requests, kept, limit_bytes), provisioned.memory_limit_bytes),
    )


def resized(
    current: Sizes,
    cpu_millicores: Float64Array,
    memory_megabytes: Float64Array,
    statistics: UsageStatistics,
    oom_megabytes: Float64Array,
) -> Sizes:
    """Return the sizes after an apply of what the node's plan gives, NaN being nothing; one entry a pod, everywhere."""
    cpu = np.minimum(np.maximum(cpu_millicores, LEAST_CPU_MILLICORES), MOST_CPU_MILLICORES)
    moved = np.abs(cpu - current.cpu_millicores) >= CPU_STEP_MILLICORES
    cpu_request = np.where(moved & (current.cpu_millicores > 0), _rounded(cpu), current.cpu_millicores)

    now = current.memory_bytes / MEGABYTE
    limit_now = current.memory_limit_bytes / MEGABYTE
    twice = np.maximum(2 * np.maximum(statistics.memory_7d_max_megabytes, oom_megabytes), LEAST_MEMORY_MEGABYTES)
    equal = current.memory_bytes == current.memory_limit_bytes
    memory = np.where(equal, twice, np.maximum(memory_megabytes, LEAST_MEMORY_MEGABYTES))
    limit = np.where(twice < limit_now, np.ceil(limit_now), twice)
    moved = (np.abs(memory - now) > 0) & (current.memory_bytes > 0) & ~(equal & (twice < limit_now))
    has_limit = current.memory_limit_bytes > 0
    return Sizes(
        cpu_request,
        np.where(moved, _rounded(memory) * MEGABYTE, current.memory_bytes),
        np.where(moved & has_limit, _rounded(limit) * MEGABYTE, current.memory_limit_bytes),
    )


def _cut(values: Float64Array) -> Int64Array:
    return values.astype(np.int64)


def _rounded(values: Float64Array) -> Int64Array:
    """Round as printf does; NaN, which is never written, is 0."""
    return np.rint(np.nan_to_num(values, nan=0.0)).astype(np.int64)

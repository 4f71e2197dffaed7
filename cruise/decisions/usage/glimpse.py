"""Statistics from a single look at a cluster: the one rate and the one size of each container that were seen."""

from collections.abc import Sequence

import numpy as np

from cruise.decisions.usage.plausibility import judge
from cruise.decisions.usage.usage_bounds import UsageBounds
from cruise.domain.cluster import ContainerRole, Snapshot
from cruise.domain.usage import ContainerKey, SampleBlock, Statistic, StatisticKey, StatisticsTable


def glimpse_of(blocks: Sequence[SampleBlock], snapshot: Snapshot, at: int) -> StatisticsTable:
    """Take the largest plausible sample of each container for its base and for its peak; `at` is in Unix seconds.

    When its history began is left unknown. A container without a sample of both resources has no row.
    """
    bounds = UsageBounds.of(snapshot, at)
    seen: dict[ContainerKey, tuple[int, int, bool]] = {}
    for block in (judge(one, bounds).block for one in blocks):
        if not len(block.times):
            continue
        cpu = np.fmax.reduce(block.cpu_demand_millicores, axis=1)
        memory = np.fmax.reduce(block.memory_bytes, axis=1)
        for row in np.flatnonzero(~np.isnan(cpu) & ~np.isnan(memory)).tolist():
            seen[block.keys[row]] = int(np.ceil(cpu[row])), int(memory[row]), bool(block.psi_known[row])
    return StatisticsTable.of_rows(
        [
            _row(key, at, *seen[ContainerKey(key.namespace, key.pod, key.container)])
            for key in _keys(snapshot)
            if ContainerKey(key.namespace, key.pod, key.container) in seen
        ]
    )


def _row(key: StatisticKey, at: int, cpu_millicores: int, memory_bytes: int, psi_known: bool) -> Statistic:
    return Statistic(
        key=key,
        updated_at=at,
        history_since=0,
        cpu_base_millicores=cpu_millicores,
        cpu_peak_millicores=cpu_millicores,
        memory_base_bytes=memory_bytes,
        memory_peak_bytes=memory_bytes,
        memory_7d_max_bytes=memory_bytes,
        memory_last_bytes=memory_bytes,
        psi_known=psi_known,
    )


def _keys(snapshot: Snapshot) -> list[StatisticKey]:
    return [
        StatisticKey(pod.namespace, pod.name, str(pod.workload) if pod.workload else "", container.name, pod.identity)
        for pod in snapshot.pods
        if pod.node is not None and not pod.terminal
        for container in pod.containers
        if container.role is not ContainerRole.INIT
    ]

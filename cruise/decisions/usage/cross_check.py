"""Checks whether figures from another source can be those of the kubelets.

A counter only grows: an earlier reading is at most what the kubelet reports, a later one at least. Memory changes both
ways, so it must only be close to what the other source shows around that time.
"""

from collections.abc import Sequence

import numpy as np

from cruise.decisions.usage.plausibility import reject_implausible_samples
from cruise.decisions.usage.usage_bounds import UsageBounds
from cruise.domain.cluster import ClusterSnapshot, ContainerRole
from cruise.domain.preflight import CrossCheckResult, KubeletReport, MetricMismatch
from cruise.domain.usage import ContainerKey, CounterTail, SampleBlock, Statistic, StatisticKey, StatisticsTable

TOLERANCE_SECONDS = 1.0
# A scrape may show an older cAdvisor measurement, and a step may show the previous scrape.
MAX_DISTANCE_SECONDS = 120
MEMORY_TOLERANCE_SHARE = 0.25
MEMORY_TOLERANCE_BYTES = 64 * 2**20


def compare_counters(report: KubeletReport, tail: CounterTail, step_seconds: int, result: CrossCheckResult) -> None:
    """Compare counters up to the tail's time with a kubelet's report, for containers that both know."""
    row_of = {(key, series): row for row, (key, series) in enumerate(zip(report.keys, report.series, strict=True))}
    wanted = set(report.keys)
    before, after = tail.at <= report.at, tail.at - report.at >= MAX_DISTANCE_SECONDS + step_seconds
    if not (before or after):
        return
    for index, key in enumerate(tail.keys):
        if key not in wanted:
            continue
        row = row_of.get((key, tail.series[index]))
        other = float(tail.cpu_seconds[index])
        if row is None or np.isnan(other) or np.isnan(report.cpu_seconds[row]):
            continue
        reported = float(report.cpu_seconds[row])
        result.compared.add(key)
        # A counter that was reset under the same id shows nothing about earlier usage.
        too_low = after and reported - TOLERANCE_SECONDS > other > reported / 2
        if (before and other > reported + TOLERANCE_SECONDS) or too_low:
            result.disagreements[key] = MetricMismatch(report.node, "cpu", other, reported)


def compare_memory(report: KubeletReport, block: SampleBlock, result: CrossCheckResult) -> None:
    """Compare the memory in a kubelet's report with what the block shows within two minutes of it."""
    near = np.flatnonzero(np.abs(block.times - report.at) <= MAX_DISTANCE_SECONDS)
    if not len(near):
        return
    row_of = {key: row for row, key in enumerate(block.keys)}
    reported: dict[ContainerKey, float] = {}
    for key, memory in zip(report.keys, report.memory_bytes.tolist(), strict=True):
        # The larger of a terminated and a running container of the same name counts, as elsewhere.
        reported[key] = float(np.fmax(memory, reported.get(key, np.nan)))
    for key, memory in reported.items():
        row = row_of.get(key)
        other = np.full(1, np.nan) if row is None else block.memory_bytes[row, near]
        if np.isnan(memory) or np.isnan(other).all():
            continue
        low, high = float(np.nanmin(other)), float(np.nanmax(other))
        result.compared.add(key)
        tolerance = MEMORY_TOLERANCE_BYTES + MEMORY_TOLERANCE_SHARE * memory
        if memory > high + tolerance or memory < low - tolerance:
            result.disagreements.setdefault(key, MetricMismatch(report.node, "memory", high, memory))


def estimate_from_short_sample(blocks: Sequence[SampleBlock], snapshot: ClusterSnapshot, at: int) -> StatisticsTable:
    """Build statistics from a single reading: the largest plausible sample is both base and peak.

    The start of the history is left unknown. A container without a sample of both resources has no row. `at` is in Unix
    seconds.
    """
    bounds = UsageBounds.create(snapshot, at)
    largest: dict[ContainerKey, tuple[int, int, bool]] = {}
    for block in (reject_implausible_samples(one, bounds).block for one in blocks):
        if not len(block.times):
            continue
        cpu = np.fmax.reduce(block.cpu_demand_millicores, axis=1)
        memory = np.fmax.reduce(block.memory_bytes, axis=1)
        for row in np.flatnonzero(~np.isnan(cpu) & ~np.isnan(memory)).tolist():
            largest[block.keys[row]] = int(np.ceil(cpu[row])), int(memory[row]), bool(block.psi_known[row])
    return StatisticsTable.from_rows(
        [
            _row(key, at, *largest[ContainerKey(key.namespace, key.pod, key.container)])
            for key in _keys(snapshot)
            if ContainerKey(key.namespace, key.pod, key.container) in largest
        ]
    )


def _row(key: StatisticKey, at: int, cpu_millicores: int, memory_bytes: int, psi_known: bool) -> Statistic:
    return Statistic(
        key=key,
        updated_at=at,
        history_since=0,
        cpu_base_millicores=cpu_millicores,
        cpu_peak_millicores=cpu_millicores,
        cpu_7d_max_millicores=cpu_millicores,
        memory_base_bytes=memory_bytes,
        memory_peak_bytes=memory_bytes,
        memory_7d_max_bytes=memory_bytes,
        memory_last_bytes=memory_bytes,
        psi_known=psi_known,
    )


def _keys(snapshot: ClusterSnapshot) -> list[StatisticKey]:
    return [
        StatisticKey(pod.namespace, pod.name, str(pod.workload) if pod.workload else "", container.name, pod.identity)
        for pod in snapshot.pods
        if pod.node is not None and not pod.is_finished
        for container in pod.containers
        if container.role is not ContainerRole.INIT
    ]

"""Whether figures that were read elsewhere can be those of the kubelets.

A counter only grows: what was shown before the kubelet was asked is no more than it told, and what is shown later is no
less. How much memory a container has changes; what the kubelet told has to be near what was shown around that time.
"""

from collections.abc import Sequence

import numpy as np

from cruise.decisions.usage.plausibility import reject_implausible_samples
from cruise.decisions.usage.usage_bounds import UsageBounds
from cruise.domain.cluster import ClusterSnapshot, ContainerRole
from cruise.domain.preflight import CrossCheckResult, KubeletReport, MetricMismatch
from cruise.domain.usage import ContainerKey, CounterTail, SampleBlock, Statistic, StatisticKey, StatisticsTable

TOLERANCE_SECONDS = 1.0
# A scrape may show what cAdvisor had measured a while before, and a step may show the scrape before.
MAX_DISTANCE_SECONDS = 120
MEMORY_TOLERANCE_SHARE = 0.25
MEMORY_TOLERANCE_BYTES = 64 * 2**20


def compare_counters(told: KubeletReport, tail: CounterTail, step_seconds: int, into: CrossCheckResult) -> None:
    """Compare what was shown up to the tail's time with what a kubelet told, of the containers that both know."""
    row_of = {(key, series): row for row, (key, series) in enumerate(zip(told.keys, told.series, strict=True))}
    wanted = set(told.keys)
    before, after = tail.at <= told.at, tail.at - told.at >= MAX_DISTANCE_SECONDS + step_seconds
    if not (before or after):
        return
    for place, key in enumerate(tail.keys):
        if key not in wanted:
            continue
        row = row_of.get((key, tail.series[place]))
        shown = float(tail.cpu_seconds[place])
        if row is None or np.isnan(shown) or np.isnan(told.cpu_seconds[row]):
            continue
        known = float(told.cpu_seconds[row])
        into.compared.add(key)
        # A counter that has begun anew since, under the same id, says nothing of before.
        behind = after and known - TOLERANCE_SECONDS > shown > known / 2
        if (before and shown > known + TOLERANCE_SECONDS) or behind:
            into.disagreements[key] = MetricMismatch(told.node, "cpu", shown, known)


def compare_memory(told: KubeletReport, block: SampleBlock, into: CrossCheckResult) -> None:
    """Compare the memory that a kubelet told with what was shown within two minutes of it."""
    near = np.flatnonzero(np.abs(block.times - told.at) <= MAX_DISTANCE_SECONDS)
    if not len(near):
        return
    row_of = {key: row for row, key in enumerate(block.keys)}
    known: dict[ContainerKey, float] = {}
    for key, memory in zip(told.keys, told.memory_bytes.tolist(), strict=True):
        # Of an id that is over and the one that runs now the larger counts, as it does elsewhere.
        known[key] = float(np.fmax(memory, known.get(key, np.nan)))
    for key, memory in known.items():
        row = row_of.get(key)
        shown = np.full(1, np.nan) if row is None else block.memory_bytes[row, near]
        if np.isnan(memory) or np.isnan(shown).all():
            continue
        low, high = float(np.nanmin(shown)), float(np.nanmax(shown))
        into.compared.add(key)
        slack = MEMORY_TOLERANCE_BYTES + MEMORY_TOLERANCE_SHARE * memory
        if memory > high + slack or memory < low - slack:
            into.disagreements.setdefault(key, MetricMismatch(told.node, "memory", high, memory))


# Statistics from a single look at a cluster: the one rate and the one size of each container that were seen.


def estimate_from_short_sample(blocks: Sequence[SampleBlock], snapshot: ClusterSnapshot, at: int) -> StatisticsTable:
    """Take the largest plausible sample of each container for its base and for its peak; `at` is in Unix seconds.

    When its history began is left unknown. A container without a sample of both resources has no row.
    """
    bounds = UsageBounds.create(snapshot, at)
    seen: dict[ContainerKey, tuple[int, int, bool]] = {}
    for block in (reject_implausible_samples(one, bounds).block for one in blocks):
        if not len(block.times):
            continue
        cpu = np.fmax.reduce(block.cpu_demand_millicores, axis=1)
        memory = np.fmax.reduce(block.memory_bytes, axis=1)
        for row in np.flatnonzero(~np.isnan(cpu) & ~np.isnan(memory)).tolist():
            seen[block.keys[row]] = int(np.ceil(cpu[row])), int(memory[row]), bool(block.psi_known[row])
    return StatisticsTable.from_rows(
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


def _keys(snapshot: ClusterSnapshot) -> list[StatisticKey]:
    return [
        StatisticKey(pod.namespace, pod.name, str(pod.workload) if pod.workload else "", container.name, pod.identity)
        for pod in snapshot.pods
        if pod.node is not None and not pod.is_finished
        for container in pod.containers
        if container.role is not ContainerRole.INIT
    ]

"""Rejects samples that cannot be true: above the node's capacity, or above the container's limit.

A step's CPU usage is the growth of a counter between two scrapes, which are not exactly a step apart: n steps may show
the usage of n + 1. So CPU is checked together with adjacent steps, and an excess that a late scrape explains is capped
at the bound instead of rejected. ADR 0025.

Figures of another source are compared with those of the kubelets. A counter only grows: an earlier reading is at most
what the kubelet reports, a later one at least. Memory changes both ways, so it must only be close to what the other
source shows around that time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cruise.decisions.usage.estimation import CPU_BASE_SECONDS, MEMORY_BASE_SECONDS
from cruise.decisions.usage.usage_bounds import UsageBoundColumns, UsageBounds
from cruise.domain.arrays import BoolArray, Float32Array, Float64Array, Int64Array
from cruise.domain.cluster import ClusterSnapshot, ContainerRole
from cruise.domain.preflight import CrossCheckResult, KubeletContainerUsage, MetricMismatch
from cruise.domain.resources import MEBIBYTE
from cruise.domain.usage import (
    ContainerKey,
    PartitionCounterTail,
    SampleBlock,
    SampleRejectionReason,
    Statistic,
    StatisticKey,
    StatisticsTable,
)

# Limits are enforced per period and charged per page and core: usage may exceed them slightly.
CPU_LIMIT_TOLERANCE = 1.1
MEMORY_LIMIT_TOLERANCE = 1.02
MEMORY_LIMIT_TOLERANCE_BYTES = 16 * MEBIBYTE
# Largest number of adjacent steps that a late scrape is looked for in.
ADJACENT_STEPS = 5
# The windows that statistics are computed from.
WINDOWS_SECONDS = (CPU_BASE_SECONDS, MEMORY_BASE_SECONDS, 3600)
# Largest share of a window's samples that may be rejected; with more, the rest does not show the container's usage.
MAX_REJECTED_PERCENT = 10

# The bit of each reason in `rejected_reasons`.
BIT_OF = {reason: 1 << bit for bit, reason in enumerate(SampleRejectionReason)}


@dataclass(frozen=True, slots=True)
class RejectedSample:
    """One rejected sample; `value` and `maximum` are None if two series disagree."""

    container: ContainerKey
    at: int
    resource: str = ""
    value: float | None = None
    maximum: float | None = None


@dataclass(frozen=True, slots=True)
class CheckedSampleBlock:
    """A block without its rejected samples; `reasons` holds bits per row, `examples` one sample per reason."""

    block: SampleBlock
    reasons: Int64Array
    counts: Mapping[SampleRejectionReason, int] = field(default_factory=dict)
    examples: Mapping[SampleRejectionReason, RejectedSample] = field(default_factory=dict)

    @staticmethod
    def accept_all(block: SampleBlock) -> "CheckedSampleBlock":
        """Return a block with nothing rejected."""
        return CheckedSampleBlock(block, np.zeros(len(block.keys), dtype=np.int64))


def reject_implausible_samples(block: SampleBlock, bounds: UsageBounds) -> CheckedSampleBlock:
    """Reject samples that cannot be true; samples that the source rejected count as disagreement."""
    check = _PlausibilityCheck(block)
    if len(block.keys) and len(block.times):
        rows = bounds.get_rows(block.keys, block.nodes)
        check.check_cpu(rows)
        check.check_memory(rows)
    return check.get_result()


class _PlausibilityCheck:
    def __init__(self, block: SampleBlock) -> None:
        self._block = block
        self._demand, self._memory = block.cpu_demand_millicores, block.memory_bytes
        self._rejected = block.rejected
        self._reasons = np.zeros(len(block.keys), dtype=np.int64)
        self._counts: dict[SampleRejectionReason, int] = {}
        self._examples: dict[SampleRejectionReason, RejectedSample] = {}
        if block.rejected is not None and block.rejected.any():
            self._record(
                SampleRejectionReason.SERIES_DISAGREE, np.arange(len(block.keys)), block.rejected, "", None, None
            )
        if block.from_other_clusters is not None:
            count, container = block.from_other_clusters
            self._counts[SampleRejectionReason.OTHER_CLUSTER] = count
            at = int(block.times[-1]) if len(block.times) else 0
            self._examples[SampleRejectionReason.OTHER_CLUSTER] = RejectedSample(container, at)

    def check_cpu(self, bounds: UsageBoundColumns) -> None:
        # Without separate usage, demand counts half: pressure at most doubles usage.
        block = self._block
        use = block.cpu_demand_millicores / 2 if block.cpu_use_millicores is None else block.cpu_use_millicores
        cpu_limit = bounds.limit_cpu * CPU_LIMIT_TOLERANCE
        highest = np.fmax.reduce(use, axis=1)
        rows = np.flatnonzero(highest > np.minimum(bounds.node_cpu, cpu_limit))
        if not len(rows):
            return
        applies = block.times > bounds.limit_since[rows, None]
        limit = np.where(applies, cpu_limit[rows, None], np.inf)
        node = np.broadcast_to(bounds.node_cpu[rows, None], limit.shape)
        for reason, maximum in (
            (SampleRejectionReason.ABOVE_NODE_CAPACITY, node),
            (SampleRejectionReason.ABOVE_LIMIT, limit),
        ):
            usage = use[rows].astype(np.float64)
            excess = _exceeds_despite_late_scrape(usage, maximum)
            self._record(reason, rows, excess, "cpu", usage, maximum)
            with np.errstate(invalid="ignore"):
                late = (usage > maximum) & ~excess
            if late.any() or excess.any():
                use = use.copy()
                demand = self._copy_demand()
                use[rows] = np.where(excess, np.nan, np.where(late, maximum, usage))
                demand[rows] = np.where(excess, np.nan, np.where(late, demand[rows] * maximum / usage, demand[rows]))

    def check_memory(self, bounds: UsageBoundColumns) -> None:
        block = self._block
        memory_limit = bounds.limit_memory * MEMORY_LIMIT_TOLERANCE + MEMORY_LIMIT_TOLERANCE_BYTES
        highest = np.fmax.reduce(block.memory_bytes, axis=1)
        rows = np.flatnonzero(highest > np.minimum(bounds.node_memory, memory_limit))
        if not len(rows):
            return
        applies = block.times > bounds.limit_since[rows, None]
        limit = np.where(applies, memory_limit[rows, None], np.inf)
        node = np.broadcast_to(bounds.node_memory[rows, None], limit.shape)
        usage = block.memory_bytes[rows]
        self._memory = block.memory_bytes.copy()
        for reason, maximum in (
            (SampleRejectionReason.ABOVE_NODE_CAPACITY, node),
            (SampleRejectionReason.ABOVE_LIMIT, limit),
        ):
            excess = usage > maximum
            self._record(reason, rows, excess, "memory", usage, maximum)
            usage = np.where(excess, np.nan, usage)
        self._memory[rows] = usage

    def get_result(self) -> CheckedSampleBlock:
        block = self._block
        if self._counts:
            block = replace(
                block, cpu_demand_millicores=self._demand, memory_bytes=self._memory, rejected=self._rejected
            )
        elif self._demand is not block.cpu_demand_millicores:
            block = replace(block, cpu_demand_millicores=self._demand)
        return CheckedSampleBlock(block, self._reasons, self._counts, self._examples)

    def _copy_demand(self) -> Float32Array:
        if self._demand is self._block.cpu_demand_millicores:
            self._demand = self._demand.copy()
        return self._demand

    def _record(
        self,
        reason: SampleRejectionReason,
        rows: Int64Array,
        excess: BoolArray,
        resource: str,
        usage: Float64Array | None,
        maximum: Float64Array | None,
    ) -> None:
        """Count rejected samples of some rows, and mark them as rejected."""
        count = int(excess.sum())
        if not count:
            return
        if self._rejected is self._block.rejected:
            shape = (len(self._block.keys), len(self._block.times))
            self._rejected = np.zeros(shape, np.bool_) if self._rejected is None else self._rejected.copy()
        assert self._rejected is not None
        self._rejected[rows] |= excess
        self._reasons[rows[excess.any(axis=1)]] |= BIT_OF[reason]
        self._counts[reason] = self._counts.get(reason, 0) + count
        row, column = np.argwhere(excess)[0].tolist()
        if reason not in self._examples:
            self._examples[reason] = RejectedSample(
                self._block.keys[int(rows[row])],
                int(self._block.times[column]),
                resource,
                None if usage is None else float(usage[row, column]),
                None if maximum is None else float(maximum[row, column]),
            )


def _exceeds_despite_late_scrape(usage: Float64Array, maximum: Float64Array) -> BoolArray:
    """Return which samples exceed their bound, whatever a late scrape may have added to them."""
    found = np.zeros(usage.shape, dtype=np.bool_)
    sums = np.column_stack((np.zeros(len(usage)), np.cumsum(np.nan_to_num(usage), axis=1)))
    for steps in range(1, min(ADJACENT_STEPS, usage.shape[1]) + 1):
        # Adjacent steps have the same bounds, except where a limit was not known before.
        excess = sums[:, steps:] - sums[:, :-steps] > maximum[:, steps - 1 :] * (steps + 1)
        for shift in range(steps):
            found[:, shift : shift + excess.shape[1]] |= excess
    with np.errstate(invalid="ignore"):
        return np.asarray(found & (usage > maximum), dtype=np.bool_)


def compute_rejected_percent(times: Int64Array, at: int, step: int) -> int:
    """Return the largest share of a window up to `at` that was rejected at `times`, in percent rounded up."""
    shares = [
        100 * np.count_nonzero((times > at - seconds) & (times <= at)) * step / seconds for seconds in WINDOWS_SECONDS
    ]
    return int(np.ceil(max(shares)))


TOLERANCE_SECONDS = 1.0
# A scrape may show an older cAdvisor measurement, and a step may show the previous scrape.
MAX_DISTANCE_SECONDS = 120
MEMORY_TOLERANCE_SHARE = 0.25
MEMORY_TOLERANCE_BYTES = 64 * 2**20


def compare_counters_with_kubelet(
    report: KubeletContainerUsage, tail: PartitionCounterTail, step_seconds: int, result: CrossCheckResult
) -> None:
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


def compare_memory_with_kubelet(report: KubeletContainerUsage, block: SampleBlock, result: CrossCheckResult) -> None:
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

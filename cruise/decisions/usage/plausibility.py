"""Which samples cannot be true: more than the node has, or than the container's limit lets it use.

A step's CPU use is what a counter grew by between two scrapes, which are not exactly a step apart: n steps may show
what was used in n + 1. So CPU is judged together with the steps beside it, and what only a late scrape can have put
above the bound is cut to it instead of refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from cruise.decisions.usage.estimation import CPU_BASE_SECONDS, MEMORY_BASE_SECONDS
from cruise.decisions.usage.usage_bounds import UsageBoundColumns, UsageBounds
from cruise.domain.resources import MEBIBYTE, BoolArray, Float32Array, Float64Array, Int64Array
from cruise.domain.usage import ContainerKey, SampleBlock, SampleRejection

# A limit is enforced by the period, and charged by the page and core: a little more is seen at times.
CPU_LIMIT_TOLERANCE = 1.1
MEMORY_LIMIT_TOLERANCE = 1.02
MEMORY_LIMIT_TOLERANCE_BYTES = 16 * MEBIBYTE
# How many steps in a row tell at most whether a late scrape explains them.
ADJACENT_STEPS = 5
# The windows that a statistic rests on.
WINDOWS_SECONDS = (CPU_BASE_SECONDS, MEMORY_BASE_SECONDS, 3600)
# Of a window's samples; where more is refused, the rest does not tell what a container uses.
MAX_REJECTED_PERCENT = 10

# The place of each reason in `refused_reasons`.
BIT_OF = {reason: 1 << bit for bit, reason in enumerate(SampleRejection)}


@dataclass(frozen=True, slots=True)
class RejectedSample:
    """One sample that cannot be true; `most` is what it may be, both None where two series disagree."""

    container: ContainerKey
    at: int
    resource: str = ""
    value: float | None = None
    maximum: float | None = None


@dataclass(frozen=True, slots=True)
class CheckedBlock:
    """A block without its refused samples; `reasons` has the bits of each row's refusals, `examples` one of a kind."""

    block: SampleBlock
    reasons: Int64Array
    counts: Mapping[SampleRejection, int] = field(default_factory=dict)
    examples: Mapping[SampleRejection, RejectedSample] = field(default_factory=dict)

    @staticmethod
    def accept_all(block: SampleBlock) -> "CheckedBlock":
        """Take a block for what it says."""
        return CheckedBlock(block, np.zeros(len(block.keys), dtype=np.int64))


def reject_implausible_samples(block: SampleBlock, bounds: UsageBounds) -> CheckedBlock:
    """Take out of a block what cannot be true; what the source refused already is counted as disagreement."""
    ruling = _PlausibilityCheck(block)
    if len(block.keys) and len(block.times):
        rows = bounds.get_rows(block.keys, block.nodes)
        ruling.check_cpu(rows)
        ruling.check_memory(rows)
    return ruling.get_result()


class _PlausibilityCheck:
    def __init__(self, block: SampleBlock) -> None:
        self._block = block
        self._demand, self._memory = block.cpu_demand_millicores, block.memory_bytes
        self._refused = block.rejected
        self._reasons = np.zeros(len(block.keys), dtype=np.int64)
        self._counts: dict[SampleRejection, int] = {}
        self._examples: dict[SampleRejection, RejectedSample] = {}
        if block.rejected is not None and block.rejected.any():
            self._take_note(SampleRejection.SERIES_DISAGREE, np.arange(len(block.keys)), block.rejected, "", None, None)
        if block.from_other_clusters is not None:
            count, container = block.from_other_clusters
            self._counts[SampleRejection.OTHER_CLUSTER] = count
            at = int(block.times[-1]) if len(block.times) else 0
            self._examples[SampleRejection.OTHER_CLUSTER] = RejectedSample(container, at)

    def check_cpu(self, bounds: UsageBoundColumns) -> None:
        # Where a source does not tell use from pressure, pressure at most doubles it.
        block = self._block
        use = block.cpu_demand_millicores / 2 if block.cpu_use_millicores is None else block.cpu_use_millicores
        of_limit = bounds.limit_cpu * CPU_LIMIT_TOLERANCE
        highest = np.fmax.reduce(use, axis=1)
        rows = np.flatnonzero(highest > np.minimum(bounds.node_cpu, of_limit))
        if not len(rows):
            return
        applies = block.times > bounds.limit_since[rows, None]
        limit = np.where(applies, of_limit[rows, None], np.inf)
        node = np.broadcast_to(bounds.node_cpu[rows, None], limit.shape)
        for reason, most in ((SampleRejection.ABOVE_NODE_CAPACITY, node), (SampleRejection.ABOVE_LIMIT, limit)):
            shown = use[rows].astype(np.float64)
            over = _cannot_be_late(shown, most)
            self._take_note(reason, rows, over, "cpu", shown, most)
            with np.errstate(invalid="ignore"):
                late = (shown > most) & ~over
            if late.any() or over.any():
                use = use.copy()
                demand = self._own_demand()
                use[rows] = np.where(over, np.nan, np.where(late, most, shown))
                demand[rows] = np.where(over, np.nan, np.where(late, demand[rows] * most / shown, demand[rows]))

    def check_memory(self, bounds: UsageBoundColumns) -> None:
        block = self._block
        of_limit = bounds.limit_memory * MEMORY_LIMIT_TOLERANCE + MEMORY_LIMIT_TOLERANCE_BYTES
        highest = np.fmax.reduce(block.memory_bytes, axis=1)
        rows = np.flatnonzero(highest > np.minimum(bounds.node_memory, of_limit))
        if not len(rows):
            return
        applies = block.times > bounds.limit_since[rows, None]
        limit = np.where(applies, of_limit[rows, None], np.inf)
        node = np.broadcast_to(bounds.node_memory[rows, None], limit.shape)
        shown = block.memory_bytes[rows]
        self._memory = block.memory_bytes.copy()
        for reason, most in ((SampleRejection.ABOVE_NODE_CAPACITY, node), (SampleRejection.ABOVE_LIMIT, limit)):
            over = shown > most
            self._take_note(reason, rows, over, "memory", shown, most)
            shown = np.where(over, np.nan, shown)
        self._memory[rows] = shown

    def get_result(self) -> CheckedBlock:
        block = self._block
        if self._counts:
            block = replace(
                block, cpu_demand_millicores=self._demand, memory_bytes=self._memory, rejected=self._refused
            )
        elif self._demand is not block.cpu_demand_millicores:
            block = replace(block, cpu_demand_millicores=self._demand)
        return CheckedBlock(block, self._reasons, self._counts, self._examples)

    def _own_demand(self) -> Float32Array:
        if self._demand is self._block.cpu_demand_millicores:
            self._demand = self._demand.copy()
        return self._demand

    def _take_note(
        self,
        reason: SampleRejection,
        rows: Int64Array,
        over: BoolArray,
        resource: str,
        shown: Float64Array | None,
        most: Float64Array | None,
    ) -> None:
        """Count what is over in some rows, and mark it as refused."""
        count = int(over.sum())
        if not count:
            return
        if self._refused is self._block.rejected:
            shape = (len(self._block.keys), len(self._block.times))
            self._refused = np.zeros(shape, np.bool_) if self._refused is None else self._refused.copy()
        assert self._refused is not None
        self._refused[rows] |= over
        self._reasons[rows[over.any(axis=1)]] |= BIT_OF[reason]
        self._counts[reason] = self._counts.get(reason, 0) + count
        row, column = np.argwhere(over)[0].tolist()
        if reason not in self._examples:
            self._examples[reason] = RejectedSample(
                self._block.keys[int(rows[row])],
                int(self._block.times[column]),
                resource,
                None if shown is None else float(shown[row, column]),
                None if most is None else float(most[row, column]),
            )


def _cannot_be_late(use: Float64Array, most: Float64Array) -> BoolArray:
    """Tell which samples are above their bound whatever a late scrape may have added to them."""
    found = np.zeros(use.shape, dtype=np.bool_)
    sums = np.column_stack((np.zeros(len(use)), np.cumsum(np.nan_to_num(use), axis=1)))
    for steps in range(1, min(ADJACENT_STEPS, use.shape[1]) + 1):
        # The bounds of neighbours are the same, but for a limit that was not known before.
        beyond = sums[:, steps:] - sums[:, :-steps] > most[:, steps - 1 :] * (steps + 1)
        for shift in range(steps):
            found[:, shift : shift + beyond.shape[1]] |= beyond
    with np.errstate(invalid="ignore"):
        return np.asarray(found & (use > most), dtype=np.bool_)


def compute_rejected_percent(times: Int64Array, at: int, step: int) -> int:
    """Return the largest share of a window up to `at` that was refused at the `times`, in percent rounded up."""
    shares = [
        100 * np.count_nonzero((times > at - seconds) & (times <= at)) * step / seconds for seconds in WINDOWS_SECONDS
    ]
    return int(np.ceil(max(shares)))

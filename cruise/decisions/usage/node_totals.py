"""Rejects samples that contradict their node: its containers together cannot use more than its root control group.

Only containers with a new peak are compared: usage below a known peak was possible before, and raises nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from cruise.decisions.usage.plausibility import ADJACENT_STEPS, BIT_OF, CheckedSampleBlock, RejectedSample
from cruise.decisions.usage.usage_bounds import PodKey
from cruise.domain.arrays import BoolArray, Float64Array, Int64Array
from cruise.domain.cluster import ContainerRole, Pod
from cruise.domain.resources import MEBIBYTE
from cruise.domain.usage import NodeUsage, SampleBlock, SampleRejectionReason

TOLERANCE = 1.1
# Factor above a container's known peak from which a sample is a new peak.
NEW_PEAK_SHARE = 1.1
# No pod is evicted for a smaller peak.
MIN_CPU_MILLICORES = 100
MIN_MEMORY_BYTES = 128 * MEBIBYTE

ExceedsFunction = Callable[[Float64Array, Float64Array], BoolArray]


def find_nodes_with_new_container_peaks(
    block: SampleBlock, cpu_peaks: Float64Array, memory_peaks: Float64Array
) -> set[str]:
    """Return the nodes of containers whose samples exceed their known peaks; a peak is NaN if none is known."""
    if not block.nodes:
        return set()
    has_new_peak = np.zeros(len(block.keys), dtype=np.bool_)
    for samples, peaks, minimum in (
        (block.cpu_demand_millicores, cpu_peaks, MIN_CPU_MILLICORES),
        (block.memory_bytes, memory_peaks, MIN_MEMORY_BYTES),
    ):
        threshold = np.fmax(NEW_PEAK_SHARE * np.nan_to_num(peaks), minimum)
        has_new_peak |= (samples > threshold[:, None]).any(axis=1)
    return {block.nodes[row] for row in np.flatnonzero(has_new_peak).tolist()} - {""}


def reject_samples_above_node_usage(
    checks: Sequence[CheckedSampleBlock], pods: Mapping[PodKey, Pod], roots: NodeUsage
) -> list[CheckedSampleBlock]:
    """Reject samples that the containers of a node cannot have used at the same time.

    A container that alone exceeds its node is rejected alone, otherwise all containers on the node are. Only running
    `pods` count: the series of deleted pods linger for minutes. The times of each block are the last times of `roots`.
    """
    number_of = {node: number for number, node in enumerate(roots.nodes)}
    members = [_find_rows_on_nodes(one.block, number_of, pods) for one in checks]
    numbers = np.concatenate([np.empty(0, dtype=np.int64), *(of_block for _, of_block in members)])
    checked = list(checks)
    for resource, of_roots, exceeds in (
        ("cpu", roots.cpu_use_millicores, _exceeds_cpu),
        ("memory", roots.memory_bytes, _exceeds_memory),
    ):
        usage_by_block = [
            _pad_start(_get_usage(one.block, resource)[rows], len(roots.times))
            for one, (rows, _) in zip(checks, members, strict=True)
        ]
        use = np.concatenate([np.empty((0, len(roots.times))), *usage_by_block])
        excess = _find_excess(use, numbers, of_roots, exceeds)
        maximum = TOLERANCE * of_roots[numbers]
        start = 0
        for index, (rows, _) in enumerate(members):
            block_rows = slice(start, start := start + len(rows))
            checked[index] = _reject(
                checked[index], rows, resource, excess[block_rows], use[block_rows], maximum[block_rows]
            )
    return checked


def _find_rows_on_nodes(
    block: SampleBlock, number_of: Mapping[str, int], pods: Mapping[PodKey, Pod]
) -> tuple[Int64Array, Int64Array]:
    """Return the rows of a block that run on the given nodes, and the indices of their nodes."""
    rows, numbers = [], []
    for row, node in enumerate(block.nodes):
        number = number_of.get(node)
        if number is None:
            continue
        key = block.keys[row]
        pod = pods.get((key.namespace, key.pod))
        if pod is None or pod.node != node or pod.is_finished:
            continue
        if any(one.name == key.container and one.role is not ContainerRole.INIT for one in pod.containers):
            rows.append(row)
            numbers.append(number)
    return np.array(rows, dtype=np.int64), np.array(numbers, dtype=np.int64)


def _get_usage(block: SampleBlock, resource: str) -> Float64Array:
    if resource == "memory":
        return block.memory_bytes
    # Without separate usage, demand counts half: pressure at most doubles usage.
    use = block.cpu_demand_millicores / 2 if block.cpu_use_millicores is None else block.cpu_use_millicores
    return np.where(np.isnan(block.cpu_demand_millicores), np.nan, use).astype(np.float64)


def _pad_start(values: Float64Array, width: int) -> Float64Array:
    return np.column_stack((np.full((len(values), width - values.shape[1]), np.nan), values))


def _find_excess(use: Float64Array, numbers: Int64Array, of_roots: Float64Array, exceeds: ExceedsFunction) -> BoolArray:
    # A root group with zero usage is not accounted.
    roots = np.where(of_roots > 0, of_roots, np.nan)
    exceeds_alone = exceeds(np.nan_to_num(use), roots[numbers])
    sums = np.zeros(roots.shape)
    np.add.at(sums, numbers, np.where(exceeds_alone, 0.0, np.nan_to_num(use)))
    return np.asarray(exceeds_alone | (exceeds(sums, roots)[numbers] & ~np.isnan(use)), dtype=np.bool_)


def _exceeds_cpu(use: Float64Array, roots: Float64Array) -> BoolArray:
    """Return which samples exceed the root group's usage, whatever a late scrape of either may have shifted."""
    found, around = np.zeros(use.shape, dtype=np.bool_), _max_of_adjacent_steps(roots)
    for steps in range(1, min(ADJACENT_STEPS, use.shape[1]) + 1):
        used, of_roots = (sliding_window_view(one, steps, axis=1).sum(axis=2) for one in (use, roots))
        # As for limits: n steps may contain the usage of n + 1.
        beyond = used > TOLERANCE * (of_roots + sliding_window_view(around, steps, axis=1).max(axis=2))
        for shift in range(steps):
            found[:, shift : shift + beyond.shape[1]] |= beyond
    return np.asarray(found & (use > TOLERANCE * roots), dtype=np.bool_)


def _exceeds_memory(use: Float64Array, roots: Float64Array) -> BoolArray:
    """Return which samples exceed the root group's working set at that step and the adjacent ones."""
    return np.asarray(use > TOLERANCE * _max_of_adjacent_steps(roots), dtype=np.bool_)


def _max_of_adjacent_steps(roots: Float64Array) -> Float64Array:
    """Return the largest value of each step and the adjacent ones, NaN if the step's own is unknown."""
    unknown = np.full((len(roots), 1), np.nan)
    neighbours = np.fmax(np.column_stack((unknown, roots[:, :-1])), np.column_stack((roots[:, 1:], unknown)))
    return np.where(np.isnan(roots), np.nan, np.fmax(roots, neighbours))


def _reject(
    check: CheckedSampleBlock,
    rows: Int64Array,
    resource: str,
    excess: BoolArray,
    usage: Float64Array,
    maximum: Float64Array,
) -> CheckedSampleBlock:
    """Return a check that additionally rejects some samples of the given rows."""
    if not excess.any():
        return check
    block = check.block
    row, column = np.argwhere(excess)[0].tolist()
    width = len(block.times)
    excess = excess[:, excess.shape[1] - width :]
    rejected = np.zeros((len(block.keys), width), dtype=np.bool_) if block.rejected is None else block.rejected.copy()
    rejected[rows] |= excess
    if resource == "cpu":
        demand = block.cpu_demand_millicores.copy()
        demand[rows] = np.where(excess, np.nan, demand[rows])
        block = replace(block, cpu_demand_millicores=demand, rejected=rejected)
    else:
        memory = block.memory_bytes.copy()
        memory[rows] = np.where(excess, np.nan, memory[rows])
        block = replace(block, memory_bytes=memory, rejected=rejected)
    reasons = check.reasons.copy()
    reasons[rows[excess.any(axis=1)]] |= BIT_OF[SampleRejectionReason.ABOVE_NODE_USAGE]
    at = int(block.times[column - usage.shape[1] + width])
    example = RejectedSample(
        block.keys[int(rows[row])], at, resource, float(usage[row, column]), float(maximum[row, column])
    )
    counts = {
        **check.counts,
        SampleRejectionReason.ABOVE_NODE_USAGE: check.counts.get(SampleRejectionReason.ABOVE_NODE_USAGE, 0)
        + int(excess.sum()),
    }
    return CheckedSampleBlock(
        block, reasons, counts, {SampleRejectionReason.ABOVE_NODE_USAGE: example, **check.examples}
    )

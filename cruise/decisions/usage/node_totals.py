"""Which samples cannot be true together: the containers of a node sum to more than its root control group used.

The root group has everything that runs on a node, so what its containers use is a part of that. It is looked at only
where a container is shown higher than it was before: what stays below its peak has been possible, and raises nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from cruise.decisions.usage.plausibility import ADJACENT_STEPS, BIT_OF, CheckedBlock, RejectedSample
from cruise.decisions.usage.usage_bounds import PodKey
from cruise.domain.cluster import ContainerRole, Pod
from cruise.domain.resources import MEBIBYTE, BoolArray, Float64Array, Int64Array
from cruise.domain.usage import NodeUsage, SampleBlock, SampleRejection

TOLERANCE = 1.1
# Of a container's known peak: so much above it is news.
NEW_PEAK_SHARE = 1.1
# Nobody is evicted for a peak that small.
MIN_CPU_MILLICORES = 100
MIN_MEMORY_BYTES = 128 * MEBIBYTE

ExceedsFunction = Callable[[Float64Array, Float64Array], BoolArray]


def find_nodes_with_new_peaks(block: SampleBlock, cpu_peaks: Float64Array, memory_peaks: Float64Array) -> set[str]:
    """Return the nodes of containers that a block shows above their known peaks, NaN where there is none."""
    if not block.nodes:
        return set()
    news = np.zeros(len(block.keys), dtype=np.bool_)
    for samples, peaks, least in (
        (block.cpu_demand_millicores, cpu_peaks, MIN_CPU_MILLICORES),
        (block.memory_bytes, memory_peaks, MIN_MEMORY_BYTES),
    ):
        known = np.fmax(NEW_PEAK_SHARE * np.nan_to_num(peaks), least)
        news |= (samples > known[:, None]).any(axis=1)
    return {block.nodes[row] for row in np.flatnonzero(news).tolist()} - {""}


def check_against_node_usage(
    judgements: Sequence[CheckedBlock], pods: Mapping[PodKey, Pod], roots: NodeUsage
) -> list[CheckedBlock]:
    """Take out of blocks of the same time what their containers cannot have used beside each other.

    A container that is above all of its node is refused alone, else all that are on the node. Only `pods` that run
    count: the series of others linger for some minutes. The times of each block are the last of those of `roots`.
    """
    number_of = {node: number for number, node in enumerate(roots.nodes)}
    members = [_members(one.block, number_of, pods) for one in judgements]
    numbers = np.concatenate([np.empty(0, dtype=np.int64), *(of_block for _, of_block in members)])
    judged = list(judgements)
    for resource, of_roots, exceeds in (
        ("cpu", roots.cpu_use_millicores, _exceeds_cpu),
        ("memory", roots.memory_bytes, _exceeds_memory),
    ):
        shown = [
            _at_the_end(_use(one.block, resource)[rows], len(roots.times))
            for one, (rows, _) in zip(judgements, members, strict=True)
        ]
        use = np.concatenate([np.empty((0, len(roots.times))), *shown])
        over = _over(use, numbers, of_roots, exceeds)
        most = TOLERANCE * of_roots[numbers]
        start = 0
        for place, (rows, _) in enumerate(members):
            part = slice(start, start := start + len(rows))
            judged[place] = _without(judged[place], rows, resource, over[part], use[part], most[part])
    return judged


def _members(
    block: SampleBlock, number_of: Mapping[str, int], pods: Mapping[PodKey, Pod]
) -> tuple[Int64Array, Int64Array]:
    """Return the rows of a block that run on the nodes in question, and their nodes' numbers."""
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


def _use(block: SampleBlock, resource: str) -> Float64Array:
    if resource == "memory":
        return block.memory_bytes
    # Where a source does not tell use from pressure, pressure at most doubles it.
    use = block.cpu_demand_millicores / 2 if block.cpu_use_millicores is None else block.cpu_use_millicores
    return np.where(np.isnan(block.cpu_demand_millicores), np.nan, use).astype(np.float64)


def _at_the_end(values: Float64Array, width: int) -> Float64Array:
    return np.column_stack((np.full((len(values), width - values.shape[1]), np.nan), values))


def _over(use: Float64Array, numbers: Int64Array, of_roots: Float64Array, exceeds: ExceedsFunction) -> BoolArray:
    # A group that has nothing is not accounted for.
    roots = np.where(of_roots > 0, of_roots, np.nan)
    alone = exceeds(np.nan_to_num(use), roots[numbers])
    sums = np.zeros(roots.shape)
    np.add.at(sums, numbers, np.where(alone, 0.0, np.nan_to_num(use)))
    return np.asarray(alone | (exceeds(sums, roots)[numbers] & ~np.isnan(use)), dtype=np.bool_)


def _exceeds_cpu(use: Float64Array, roots: Float64Array) -> BoolArray:
    """Tell what is above the root group's use whatever a late scrape of either may have added or taken away."""
    found, around = np.zeros(use.shape, dtype=np.bool_), _around(roots)
    for steps in range(1, min(ADJACENT_STEPS, use.shape[1]) + 1):
        used, of_roots = (sliding_window_view(one, steps, axis=1).sum(axis=2) for one in (use, roots))
        # As for limits: n steps may show what was used in n + 1.
        beyond = used > TOLERANCE * (of_roots + sliding_window_view(around, steps, axis=1).max(axis=2))
        for shift in range(steps):
            found[:, shift : shift + beyond.shape[1]] |= beyond
    return np.asarray(found & (use > TOLERANCE * roots), dtype=np.bool_)


def _exceeds_memory(use: Float64Array, roots: Float64Array) -> BoolArray:
    """Tell what is above the root group's working set then and a step before and after."""
    return np.asarray(use > TOLERANCE * _around(roots), dtype=np.bool_)


def _around(roots: Float64Array) -> Float64Array:
    """Return the largest of each step and those beside it, NaN where it is not known itself."""
    unknown = np.full((len(roots), 1), np.nan)
    beside = np.fmax(np.column_stack((unknown, roots[:, :-1])), np.column_stack((roots[:, 1:], unknown)))
    return np.where(np.isnan(roots), np.nan, np.fmax(roots, beside))


def _without(
    judgement: CheckedBlock, rows: Int64Array, resource: str, over: BoolArray, shown: Float64Array, most: Float64Array
) -> CheckedBlock:
    """Return a judgement that refuses what is over in some rows as well."""
    if not over.any():
        return judgement
    block = judgement.block
    row, column = np.argwhere(over)[0].tolist()
    width = len(block.times)
    over = over[:, over.shape[1] - width :]
    refused = np.zeros((len(block.keys), width), dtype=np.bool_) if block.rejected is None else block.rejected.copy()
    refused[rows] |= over
    if resource == "cpu":
        demand = block.cpu_demand_millicores.copy()
        demand[rows] = np.where(over, np.nan, demand[rows])
        block = replace(block, cpu_demand_millicores=demand, rejected=refused)
    else:
        memory = block.memory_bytes.copy()
        memory[rows] = np.where(over, np.nan, memory[rows])
        block = replace(block, memory_bytes=memory, rejected=refused)
    reasons = judgement.reasons.copy()
    reasons[rows[over.any(axis=1)]] |= BIT_OF[SampleRejection.ABOVE_NODE_USAGE]
    at = int(block.times[column - shown.shape[1] + width])
    example = RejectedSample(
        block.keys[int(rows[row])], at, resource, float(shown[row, column]), float(most[row, column])
    )
    counts = {
        **judgement.counts,
        SampleRejection.ABOVE_NODE_USAGE: judgement.counts.get(SampleRejection.ABOVE_NODE_USAGE, 0) + int(over.sum()),
    }
    return CheckedBlock(block, reasons, counts, {SampleRejection.ABOVE_NODE_USAGE: example, **judgement.examples})

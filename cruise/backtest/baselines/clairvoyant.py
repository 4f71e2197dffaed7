"""The baseline `clairvoyant`: it knows the recording, and holds each node's requests at the largest sum of coming use.

Time is cut into blocks of `hours`. For each block and node the pods of the node together request the largest sum of
their use until the block ends, each in proportion to its own largest use until then. The requests change at the start
of a block, and in between only on a node whose pods have changed. Its slack is therefore the bound of what pods that
share a node's capacity can reach when they are resized every `hours` hours, and are short only while a pod that was
evicted is on its way. `oracle` is the bound for containers that are sized one by one, and for any pass.

A new pod requests its own largest use until the block ends, so that it fits on a node with what the others will use.
Where a node's pods will use more together than its allocatable, those that use most of that resource are evicted, and
so is a pod for whose growth its node has no room. No container requests more than a whole node.
"""

import numpy as np

from cruise.backtest.recordings.recording import UsageRecording
from cruise.backtest.replay.policy import (
    NO_CONTAINERS,
    ContainerSizes,
    ReplayClusterView,
    ReplayDecision,
    ReplayOptions,
    ReplayPolicy,
)
from cruise.backtest.replay.replay import find_sampled_rows
from cruise.domain.resources import BoolArray, Float32Array, Float64Array, Int64Array

_HOUR_SECONDS = 3600


class ClairvoyantBaseline(ReplayPolicy):
    """The least sums of requests of nodes that nothing passes for some hours; without memory limits."""

    def __init__(self, recording: UsageRecording, options: ReplayOptions, name: str, hours: int) -> None:
        self._name = name
        self._recording = recording
        self._block_seconds = hours * _HOUR_SECONDS
        self._pass_seconds = max(options.pass_seconds, recording.step_seconds)
        self._block: int | None = None
        self._decided: int | None = None
        self._first = self._rows = 0
        node, count = options.node, len(recording.containers)
        self._cpu = _ResourceBlock(recording.cpu_millicores, node.cpu_millicores)
        self._memory = _ResourceBlock(recording.memory_bytes, node.memory_bytes)
        _, self._last = find_sampled_rows(recording)
        self._node: Int64Array = np.full(count, -1, dtype=np.int64)
        self._creation_counts: Int64Array = np.zeros(count, dtype=np.int64)

    @property
    def name(self) -> str:
        """The name in tables."""
        return self._name

    def admit(self, containers: Int64Array, view: ReplayClusterView) -> ContainerSizes:
        """Return the containers' largest use in the rest of the block."""
        self._enter(view.time)
        row = self._row(view.time)
        cpu, memory = (one.get_admission_size(containers, row) for one in (self._cpu, self._memory))
        return ContainerSizes(cpu, memory, np.zeros_like(memory))

    def decide(self, view: ReplayClusterView) -> ReplayDecision:
        """Give the nodes that changed, or all where a block starts, the largest sum of the rest of the block."""
        self._enter(view.time)
        new_block, self._decided = self._decided != self._block, self._block
        row = self._row(view.time)
        # A pod without another sample leaves after this pass.
        node = np.where(self._place(view.time) <= self._last, view.node, -1)
        containers = np.flatnonzero(node >= 0)
        containers = containers[np.argsort(node[containers], kind="stable")]
        if not new_block:
            containers = containers[self._changed(node, view.creation_count)[node[containers]]]
        self._node, self._creation_counts = node, view.creation_count.copy()
        if not containers.size:
            return ReplayDecision(NO_CONTAINERS, ContainerSizes.create_zeros(0), NO_CONTAINERS)
        wanted, evicted = ContainerSizes.create_zeros(len(containers)), np.zeros(len(containers), dtype=np.bool_)
        starts = np.flatnonzero(np.diff(view.node[containers], prepend=-1))
        for first, end in zip(starts.tolist(), [*starts[1:].tolist(), len(containers)], strict=True):
            members = containers[first:end]
            stays = self._cpu.find_fitting(members, row) & self._memory.find_fitting(members, row)
            evicted[first:end] = ~stays
            for resource, column in ((self._cpu, wanted.cpu_millicores), (self._memory, wanted.memory_bytes)):
                column[first:end][stays] = resource.share(members[stays], row)
        evict = containers[evicted]
        containers, wanted = containers[~evicted], wanted.select(~evicted)
        has = view.sizes.select(containers)
        other = (wanted.cpu_millicores != has.cpu_millicores) | (wanted.memory_bytes != has.memory_bytes)
        return ReplayDecision(containers[other], wanted.select(other), evict, evict_without_capacity=True)

    def _changed(self, node: Int64Array, creation_count: Int64Array) -> BoolArray:
        """Tell on which node indices other pods run than at the last pass."""
        moved = np.flatnonzero((node != self._node) | (creation_count != self._creation_counts))
        places = np.concatenate([node[moved], self._node[moved]])
        changed = np.zeros(int(max(node.max(initial=-1), self._node.max(initial=-1))) + 1, dtype=np.bool_)
        changed[places[places >= 0]] = True
        return changed

    def _enter(self, time: int) -> None:
        """Read the samples from a time to the first pass after its block, where the block is another than before."""
        block = time // self._block_seconds
        if block == self._block:
            return
        self._block = block
        self._first = self._place(time)
        last_pass = -(-(block + 1) * self._block_seconds // self._pass_seconds) * self._pass_seconds
        rows = slice(self._first, self._place(last_pass))
        self._rows = len(self._recording.cpu_millicores[rows])
        self._cpu.read(rows)
        self._memory.read(rows)

    def _row(self, time: int) -> int:
        """Return the place in the block of the first sample after a time."""
        return min(self._place(time) - self._first, self._rows)

    def _place(self, time: int) -> int:
        """Return the place in the recording of the first sample after a time."""
        return max(0, (time - self._recording.start) // self._recording.step_seconds + 1)


class _ResourceBlock:
    """One resource of the block at hand: its samples, and each container's largest one from each row on."""

    def __init__(self, samples: Float32Array, allocatable: int) -> None:
        self._samples = samples
        self._allocatable = allocatable

    def read(self, rows: slice) -> None:
        """Go to another block."""
        used: Float32Array = np.nan_to_num(self._samples[rows], nan=0.0)
        # A row of zeros at the end stands for the time after the last sample.
        self._used = np.vstack([used, np.zeros((1, used.shape[1]), dtype=np.float32)])
        self._largest: Float32Array = np.maximum.accumulate(self._used[::-1], axis=0)[::-1]

    def get_admission_size(self, containers: Int64Array, row: int) -> Int64Array:
        """Return what new pods request."""
        admitted: Int64Array = np.minimum(np.ceil(self._of(containers, row)), self._allocatable).astype(np.int64)
        return admitted

    def find_fitting(self, members: Int64Array, row: int) -> BoolArray:
        """Tell which pods of a node stay on it, so that the others together use no more than it has."""
        stays = np.ones(len(members), dtype=np.bool_)
        use = self._used[row:, members].astype(np.float64)
        order = np.argsort(-self._of(members, row), kind="stable").tolist()
        while order and use[:, stays].sum(axis=1).max(initial=0.0) > self._allocatable and stays.sum() > 1:
            stays[order.pop(0)] = False
        return stays

    def share(self, members: Int64Array, row: int) -> Int64Array:
        """Return what the pods of a node request: the largest sum, in proportion to the largest use of each."""
        largest = self._of(members, row)
        if not members.size or not largest.any():
            return np.zeros(len(members), dtype=np.int64)
        total = np.ceil(self._used[row:, members].sum(axis=1, dtype=np.float64).max())
        total = min(total, float(self._allocatable))
        until = np.ceil(np.cumsum(largest) / largest.sum() * total - 1e-6)
        until[-1] = total
        shared: Int64Array = np.diff(until, prepend=0.0).astype(np.int64)
        return shared

    def _of(self, containers: Int64Array, row: int) -> Float64Array:
        largest: Float64Array = self._largest[row, containers].astype(np.float64)
        return largest

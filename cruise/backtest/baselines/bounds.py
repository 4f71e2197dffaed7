"""The baselines `as-requested`, `oracle` and `clairvoyant`: no rightsizing, and two that know the recording.

`as-requested` never changes the provisioned requests, like a cluster without rightsizing.

`oracle` knows the recording: at every pass each container requests its largest sample until the next pass, rounded up.
No policy that sizes containers one by one, once per pass, can request less and keep every container within its request,
so its slack is the lower bound of such policies. Policies that share capacity between the pods of a node can have less:
the maximum of a sum is at most the sum of the maxima.

A pod whose node has no free capacity for an increase is evicted. The oracle has the least slack, not the fewest
changes. No container requests more than a node.

`clairvoyant` knows the recording, and requests for each node the largest sum of its future usage.
Time is split into blocks of `hours`. The pods of a node together request the largest sum of their usage until the block
ends, each in proportion to its own largest usage until then. Requests change at the start of a block, and otherwise
only on nodes whose pods changed. Its slack is the lower bound of policies that share a node's capacity between its pods
and resize every `hours` hours; nodes are short only while an evicted pod is replaced. `oracle` is the bound of policies
that size containers one by one.

A new pod requests its own largest usage until the block ends. If the pods of a node will together use more than its
allocatable, those with the largest usage are evicted, as is a pod whose increase does not fit on its node. No container
requests more than a node.
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
from cruise.backtest.replay.replay import find_first_and_last_samples
from cruise.domain.arrays import BoolArray, Float32Array, Float64Array, Int64Array

_HOUR_SECONDS = 3600


class ClairvoyantBaseline(ReplayPolicy):
    """The least sum of requests per node that usage does not exceed for some hours; no memory limits."""

    def __init__(self, recording: UsageRecording, options: ReplayOptions, name: str, hours: int) -> None:
        self._name = name
        self._recording = recording
        self._block_seconds = hours * _HOUR_SECONDS
        self._pass_seconds = max(options.pass_seconds, recording.step_seconds)
        self._block: int | None = None
        self._decided_block: int | None = None
        self._first = self._rows = 0
        node, count = options.node, len(recording.containers)
        self._cpu = _ResourceBlock(recording.cpu_millicores, node.cpu_millicores)
        self._memory = _ResourceBlock(recording.memory_bytes, node.memory_bytes)
        _, self._last = find_first_and_last_samples(recording)
        self._node: Int64Array = np.full(count, -1, dtype=np.int64)
        self._creation_counts: Int64Array = np.zeros(count, dtype=np.int64)

    @property
    def name(self) -> str:
        """The policy's name in tables."""
        return self._name

    def admit(self, containers: Int64Array, view: ReplayClusterView) -> ContainerSizes:
        """Return the containers' largest usage in the rest of the block."""
        self._read_block(view.time)
        row = self._get_block_row(view.time)
        cpu, memory = (one.get_admission_size(containers, row) for one in (self._cpu, self._memory))
        return ContainerSizes(cpu, memory, np.zeros_like(memory))

    def decide(self, view: ReplayClusterView) -> ReplayDecision:
        """Resize the pods of changed nodes, or of all nodes at the start of a block."""
        self._read_block(view.time)
        new_block, self._decided_block = self._decided_block != self._block, self._block
        row = self._get_block_row(view.time)
        # A pod without further samples is removed after this pass.
        node = np.where(self._get_recording_row(view.time) <= self._last, view.node, -1)
        containers = np.flatnonzero(node >= 0)
        containers = containers[np.argsort(node[containers], kind="stable")]
        if not new_block:
            containers = containers[self._find_changed_nodes(node, view.creation_count)[node[containers]]]
        self._node, self._creation_counts = node, view.creation_count.copy()
        if not containers.size:
            return ReplayDecision(NO_CONTAINERS, ContainerSizes.create_zeros(0), NO_CONTAINERS)
        planned, evicted = ContainerSizes.create_zeros(len(containers)), np.zeros(len(containers), dtype=np.bool_)
        starts = np.flatnonzero(np.diff(view.node[containers], prepend=-1))
        for first, end in zip(starts.tolist(), [*starts[1:].tolist(), len(containers)], strict=True):
            members = containers[first:end]
            remains = self._cpu.find_fitting(members, row) & self._memory.find_fitting(members, row)
            evicted[first:end] = ~remains
            for resource, column in ((self._cpu, planned.cpu_millicores), (self._memory, planned.memory_bytes)):
                column[first:end][remains] = resource.share(members[remains], row)
        evict = containers[evicted]
        containers, planned = containers[~evicted], planned.select(~evicted)
        has = view.sizes.select(containers)
        other = (planned.cpu_millicores != has.cpu_millicores) | (planned.memory_bytes != has.memory_bytes)
        return ReplayDecision(containers[other], planned.select(other), evict, evict_without_capacity=True)

    def _find_changed_nodes(self, node: Int64Array, creation_count: Int64Array) -> BoolArray:
        """Return a mask of the node indices whose pods changed since the last pass."""
        moved = np.flatnonzero((node != self._node) | (creation_count != self._creation_counts))
        places = np.concatenate([node[moved], self._node[moved]])
        changed = np.zeros(int(max(node.max(initial=-1), self._node.max(initial=-1))) + 1, dtype=np.bool_)
        changed[places[places >= 0]] = True
        return changed

    def _read_block(self, time: int) -> None:
        """Read the samples from a time to the first pass after its block, at the first call in a block."""
        block = time // self._block_seconds
        if block == self._block:
            return
        self._block = block
        self._first = self._get_recording_row(time)
        last_pass = -(-(block + 1) * self._block_seconds // self._pass_seconds) * self._pass_seconds
        rows = slice(self._first, self._get_recording_row(last_pass))
        self._rows = len(self._recording.cpu_millicores[rows])
        self._cpu.read(rows)
        self._memory.read(rows)

    def _get_block_row(self, time: int) -> int:
        """Return the row in the block of the first sample after a time."""
        return min(self._get_recording_row(time) - self._first, self._rows)

    def _get_recording_row(self, time: int) -> int:
        """Return the row in the recording of the first sample after a time."""
        return max(0, (time - self._recording.start) // self._recording.step_seconds + 1)


class _ResourceBlock:
    """One resource of the current block: its samples, and each container's largest sample from each row on."""

    def __init__(self, samples: Float32Array, allocatable: int) -> None:
        self._samples = samples
        self._allocatable = allocatable

    def read(self, rows: slice) -> None:
        """Read the rows of another block."""
        used: Float32Array = np.nan_to_num(self._samples[rows], nan=0.0)
        # The last row, of zeros, is the time after the last sample.
        self._used = np.vstack([used, np.zeros((1, used.shape[1]), dtype=np.float32)])
        self._largest: Float32Array = np.maximum.accumulate(self._used[::-1], axis=0)[::-1]

    def get_admission_size(self, containers: Int64Array, row: int) -> Int64Array:
        """Return the requests of new pods."""
        admitted: Int64Array = np.minimum(np.ceil(self._get_largest(containers, row)), self._allocatable).astype(
            np.int64
        )
        return admitted

    def find_fitting(self, members: Int64Array, row: int) -> BoolArray:
        """Return a mask of the pods that remain on a node, so that they use no more than its allocatable together."""
        remains = np.ones(len(members), dtype=np.bool_)
        use = self._used[row:, members].astype(np.float64)
        order = np.argsort(-self._get_largest(members, row), kind="stable").tolist()
        while order and use[:, remains].sum(axis=1).max(initial=0.0) > self._allocatable and remains.sum() > 1:
            remains[order.pop(0)] = False
        return remains

    def share(self, members: Int64Array, row: int) -> Int64Array:
        """Return the requests of the pods of a node: the largest sum, in proportion to the largest usage of each."""
        largest = self._get_largest(members, row)
        if not members.size or not largest.any():
            return np.zeros(len(members), dtype=np.int64)
        total = np.ceil(self._used[row:, members].sum(axis=1, dtype=np.float64).max())
        total = min(total, float(self._allocatable))
        cumulative = np.ceil(np.cumsum(largest) / largest.sum() * total - 1e-6)
        cumulative[-1] = total
        shared: Int64Array = np.diff(cumulative, prepend=0.0).astype(np.int64)
        return shared

    def _get_largest(self, containers: Int64Array, row: int) -> Float64Array:
        largest: Float64Array = self._largest[row, containers].astype(np.float64)
        return largest


def get_provisioned_sizes(recording: UsageRecording) -> ContainerSizes:
    """Return the provisioned sizes of the recorded containers."""
    rows = [
        (one.requests.cpu_millicores, one.requests.memory_bytes, one.memory_limit_bytes) for one in recording.containers
    ]
    return ContainerSizes(*np.array(rows, dtype=np.int64).reshape(-1, 3).T.copy())


class AsRequestedBaseline(ReplayPolicy):
    """Provisioned requests, never changed."""

    name = "as-requested"

    def __init__(self, recording: UsageRecording, options: ReplayOptions) -> None:
        self._provisioned = get_provisioned_sizes(recording)

    def admit(self, containers: Int64Array, view: ReplayClusterView) -> ContainerSizes:
        """Return the provisioned sizes."""
        return self._provisioned.select(containers)

    def decide(self, view: ReplayClusterView) -> ReplayDecision:
        """Change nothing."""
        return ReplayDecision(NO_CONTAINERS, ContainerSizes.create_zeros(0), NO_CONTAINERS)


class OracleBaseline(ReplayPolicy):
    """The least requests that no container exceeds before the next pass; no memory limits."""

    name = "oracle"

    def __init__(self, recording: UsageRecording, options: ReplayOptions) -> None:
        self._recording = recording
        self._pass_seconds = max(options.pass_seconds, recording.step_seconds)
        self._node = options.node
        self._from: int | None = None
        self._needs = ContainerSizes.create_zeros(0)

    def admit(self, containers: Int64Array, view: ReplayClusterView) -> ContainerSizes:
        """Return the largest usage in the interval that starts now."""
        return self._needs_from(view.time).select(containers)

    def decide(self, view: ReplayClusterView) -> ReplayDecision:
        """Resize the running containers to the largest usage in the interval that starts now."""
        needs = self._needs_from(view.time)
        other = (needs.cpu_millicores != view.sizes.cpu_millicores) | (needs.memory_bytes != view.sizes.memory_bytes)
        resize: Int64Array = np.flatnonzero((view.node >= 0) & other)
        return ReplayDecision(resize, needs.select(resize), NO_CONTAINERS, evict_without_capacity=True)

    def _needs_from(self, time: int) -> ContainerSizes:
        """Return the largest usage of every container after `time` until the next pass; 0 without samples."""
        if time != self._from:
            recorded = self._recording
            first = (time - recorded.start) // recorded.step_seconds + 1
            next_pass = (time // self._pass_seconds + 1) * self._pass_seconds
            end = (next_pass - recorded.start) // recorded.step_seconds + 1
            rows = slice(max(0, first), max(0, end))
            cpu = np.minimum(_largest(recorded.cpu_millicores[rows]), self._node.cpu_millicores)
            memory = np.minimum(_largest(recorded.memory_bytes[rows]), self._node.memory_bytes)
            self._needs = ContainerSizes(cpu, memory, np.zeros_like(memory))
            self._from = time
        return self._needs


def _largest(samples: Float32Array) -> Int64Array:
    """Return the largest sample of each column, rounded up; 0 without samples."""
    largest: Float32Array = np.fmax.reduce(samples, axis=0, initial=np.float32(0.0))
    rounded: Int64Array = np.ceil(largest).astype(np.int64)
    return rounded

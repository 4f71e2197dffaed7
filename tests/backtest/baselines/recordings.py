"""Recordings for tests of the baselines: pods with one container each."""

from collections.abc import Sequence

import numpy as np

from cruise.backtest.recordings.recording import RecordedContainer, UsageRecording
from cruise.backtest.replay.policy import ContainerSizes, ReplayClusterView
from cruise.domain.arrays import Float64Array, Int64Array
from cruise.domain.cluster import WorkloadRef
from cruise.domain.resources import Resources

GIBIBYTE = 1 << 30


def make_recording(
    cpu: Float64Array,
    memory: Float64Array,
    *,
    requests: Sequence[Resources] | None = None,
    workloads: Sequence[str] | None = None,
    kind: str = "Deployment",
    start: int = 300,
    step_seconds: int = 300,
) -> UsageRecording:
    """Return a recording; by default each container is a workload that requests 1 core and 4 GiB."""
    count = cpu.shape[1]
    requests = requests if requests is not None else [Resources(1000, 4 * GIBIBYTE)] * count
    workloads = workloads if workloads is not None else [f"w{column}" for column in range(count)]
    containers = [
        RecordedContainer("default", f"p{column}", "app", WorkloadRef(kind, workloads[column]), requests[column])
        for column in range(count)
    ]
    return UsageRecording("made-up", containers, start, step_seconds, cpu.astype(np.float32), memory.astype(np.float32))


def get_sizes(cpu: Sequence[int], memory: Sequence[int], limits: Sequence[int] | None = None) -> ContainerSizes:
    """Return sizes; no memory limit unless told."""
    return ContainerSizes(
        np.array(cpu, dtype=np.int64),
        np.array(memory, dtype=np.int64),
        np.array(limits if limits is not None else [0] * len(cpu), dtype=np.int64),
    )


def make_view(
    sizes: ContainerSizes,
    *,
    time: int,
    node: Sequence[int] | None = None,
    creation_count: Sequence[int] | None = None,
    allocatable: Resources | None = None,
) -> ReplayClusterView:
    """Return a view of pods, by default all on node 0 and created at 0."""
    count = len(sizes.cpu_millicores)
    places: Int64Array = np.array(node if node is not None else [0] * count, dtype=np.int64)
    return ReplayClusterView(
        time=time,
        sizes=sizes,
        node=places,
        creation_count=np.array(creation_count if creation_count is not None else [1] * count, dtype=np.int64),
        created_at=np.zeros(count, dtype=np.int64),
        node_exists=np.ones(max(1, int(places.max(initial=0)) + 1), dtype=np.bool_),
        allocatable=allocatable if allocatable is not None else Resources(16000, 64 * GIBIBYTE),
    )

"""Small recordings and views for tests of the replayed cruise policy."""

import numpy as np

from cruise.backtest.recordings.recording import RecordedContainer, UsageRecording
from cruise.backtest.replay.policy import ReplayClusterView
from cruise.domain.cluster import WorkloadRef
from cruise.domain.resources import MEBIBYTE, Resources
from tests.backtest.replay.policies import sizes

START = 1_767_571_200  # a Monday
NODE = Resources(4000, 4096 * MEBIBYTE)


def make_recording(*workloads: str, length: int = 24, step: int = 300, has_memory: bool = True) -> UsageRecording:
    """One pod a workload named, numbered, of 100 m and 100 MiB throughout; provisioned with 500 m and 512 MiB."""
    shape = (length, len(workloads))
    return UsageRecording(
        "made-up",
        [
            RecordedContainer(
                "shop",
                f"pod-{number}",
                "app",
                WorkloadRef("Deployment", workload),
                Resources(500, 512 * MEBIBYTE if has_memory else 0),
            )
            for number, workload in enumerate(workloads)
        ],
        START + step,
        step,
        np.full(shape, 100, dtype=np.float32),
        np.full(shape, 100 * MEBIBYTE if has_memory else 0, dtype=np.float32),
        has_memory,
    )


def make_view(
    node, *, at=START + 3600, cpu=500, memory=512 * MEBIBYTE, limit=1024 * MEBIBYTE, creation_count=None
) -> ReplayClusterView:
    """Containers on the nodes with these indices, -1 for pending and -2 for absent ones, all of one size."""
    count = len(node)
    return ReplayClusterView(
        at,
        sizes(*[(cpu, memory, limit)] * count),
        np.array(node, dtype=np.int64),
        np.ones(count, dtype=np.int64) if creation_count is None else np.array(creation_count, dtype=np.int64),
        np.full(count, START, dtype=np.int64),
        np.ones(max([0, *node]) + 1, dtype=np.bool_),
        NODE,
    )

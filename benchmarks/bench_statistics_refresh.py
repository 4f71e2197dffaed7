"""A usage pass for 5,000 nodes: 225,000 containers from a stand-in for Prometheus, every five minutes."""

import asyncio
import time
from datetime import UTC, datetime

import numpy as np
import structlog

from benchmarks.snapshot_generator import (
    NODE_CPU_MILLICORES,
    NODE_MEMORY_BYTES,
    GeneratedCluster,
    GeneratedWorkload,
    generate_cluster,
)
from benchmarks.table import BenchmarkRow, peak_memory_mib
from benchmarks.usage_stub import running_stub
from cruise.adapters.prometheus.seen_pods import get_partition
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.adapters.prometheus.source import PrometheusUsageSource
from cruise.decisions.usage.attribution import UsageAttribution
from cruise.decisions.usage.peaks import get_first_history_hour
from cruise.domain.cluster import ClusterSnapshot, Container, Node, Pod, WorkloadRef
from cruise.domain.policy import Policy
from cruise.domain.resources import Resources
from cruise.domain.usage import ContainerKey, PartitionProgress, SampleBlock
from cruise.runtime.ports import StorePort
from cruise.runtime.usage.usage_pass import run_usage_pass
from cruise.runtime.usage.usage_state import UsageState
from cruise.simulation.store import InMemoryStore
from tests.shown_cluster import ReadOnlyCluster

NAME = "statistics-refresh"
NODES = 5000
AT = 1_767_268_200
HOUR = 3600
PASS_SECONDS = 300
CPU_LIMIT_SECONDS = 20.0
BUFFER_LIMIT_BYTES = 300e6


def run() -> list[BenchmarkRow]:
    """Measure CPU seconds per pass, from the snapshot to the stored statistics, and the memory of the buffers."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    cluster = generate_cluster(NODES)
    with running_stub(NODES) as address:
        return asyncio.run(_measure(cluster, address))


async def _measure(cluster: GeneratedCluster, address: str) -> list[BenchmarkRow]:
    shown, store, state = ReadOnlyCluster(domain_snapshot(cluster)), InMemoryStore(), UsageState()
    source = PrometheusUsageSource(PrometheusSettings(address))
    await fill_last_hour(shown.shown, source, store, state, AT)
    cpu, wall = [], []
    # During the first pass the stand-in encodes its answers.
    for number in range(1, 4):
        now = datetime.fromtimestamp(AT + number * PASS_SECONDS + 30, UTC)
        started = time.process_time(), time.perf_counter()
        table = await run_usage_pass(shown, source, store, state, Policy(), now)
        cpu.append(time.process_time() - started[0])
        wall.append(time.perf_counter() - started[1])
        if state.failures or len(table.row_of_container) != cluster.container_count:
            raise RuntimeError(f"{len(table.row_of_container)} of {cluster.container_count} rows: {state.failures}")
    source.close()
    of = f"{cluster.container_count:,} containers"
    seconds, size = max(cpu[1:]), state.windows.nbytes
    return [
        BenchmarkRow(
            NAME, f"a pass over {of}", seconds, "CPU s", "20 s", seconds / CPU_LIMIT_SECONDS, peak_memory_mib()
        ),
        BenchmarkRow(NAME, "the same, from start to end", max(wall[1:]), "s"),
        BenchmarkRow(NAME, f"ring buffers of {of}", size / 1e6, "MB", "300 MB", size / BUFFER_LIMIT_BYTES),
    ]


def domain_snapshot(cluster: GeneratedCluster) -> ClusterSnapshot:
    pods = [
        Pod(
            workload.namespace,
            pod,
            f"uid-{workload.namespace}-{pod}",
            tuple(Container(shape.name) for shape in workload.shapes),
            node=node,
            workload=WorkloadRef(workload.kind, workload.name),
            identity=_identity(workload, pod, node),
        )
        for workload in cluster.workloads
        for pod, node in workload.pods
    ]
    nodes = tuple(Node(name, Resources(NODE_CPU_MILLICORES, NODE_MEMORY_BYTES)) for name in cluster.nodes)
    return ClusterSnapshot(nodes=nodes, pods=tuple(sorted(pods, key=lambda pod: (pod.namespace, pod.name))))


def _identity(workload: GeneratedWorkload, pod: str, node: str) -> str:
    if workload.kind == "DaemonSet":
        return node
    return pod.rpartition("-")[2] if workload.kind == "StatefulSet" else ""


async def fill_last_hour(
    snapshot: ClusterSnapshot, source: PrometheusUsageSource, store: StorePort, state: UsageState, at: int
) -> None:
    """Add the hour until `at`, so that the passes are those of a running process."""
    attribution = UsageAttribution.from_snapshot(snapshot)
    await state.restore_and_refresh(store, attribution, at, step_seconds=60, look_ahead_seconds=900)
    times = np.arange(at - HOUR + 60, at + 1, 60, dtype=np.int64)
    random = np.random.default_rng(1)
    keys: dict[str, list[ContainerKey]] = {name: [] for name in await source.list_partitions(snapshot)}
    for pod in snapshot.pods:
        of_partition = keys[get_partition(pod.name)]
        of_partition += [ContainerKey(pod.namespace, pod.name, container.name) for container in pod.containers]
    for partition, its in keys.items():
        shape = (len(its), len(times))
        cpu, memory = random.exponential(200, shape), random.normal(3e8, 1e7, shape)
        block = SampleBlock(its, times, cpu.astype(np.float32), np.floor(memory), np.ones(len(its), dtype=np.bool_))
        progress = PartitionProgress(get_first_history_hour(at) * HOUR, at)
        await state.record(store, partition, progress, state.reject_implausible(block, attribution), at)

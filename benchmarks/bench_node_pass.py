"""The CPU of a node pass that resizes 30,000 pods, and of one that changes nothing, with a real Postgres.

The API server's answers are immediate, so that the figures are cruise's own.
"""

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.real_cluster import list_objects, statistics
from benchmarks.table import BenchmarkRow, peak_memory_mib
from cruise.adapters.store.postgres import open_store
from cruise.domain.actions import Action, Outcome, ResizePod
from cruise.domain.cluster import ClusterSnapshot, HorizontalPodAutoscaler, OomKill, Pod
from cruise.domain.pod_resources import predict_actuated_pod
from cruise.domain.policy import Mode, Policy
from cruise.kube_json.reading.snapshot import read_snapshot
from cruise.runtime.node_pass import run_node_pass
from cruise.runtime.ports import PassContext, StorePort
from cruise.runtime.usage.usage_state import UsageState
from cruise.runtime.writing.writer import ClusterWriter

NAME = "node-pass"
NODES = 1_000
PODS_PER_NODE = 30
# The workloads are as old as the benchmark.
_POLICY = Policy(mode=Mode.RESIZE, new_workload_age=timedelta(0))


class ImmediateCluster:
    """Implements the Cluster port: every resize is actual at once."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._snapshot = snapshot
        self._pods = {(pod.namespace, pod.name): pod for pod in snapshot.pods}
        self.writes = 0

    async def snapshot(self) -> ClusterSnapshot:
        return replace(self._snapshot, pods=tuple(self._pods.values()), taken_at=time.monotonic())

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        return self._pods.get((namespace, name))

    def get_cached_pod(self, namespace: str, name: str) -> Pod | None:
        return self._pods.get((namespace, name))

    def get_cached_autoscalers(self) -> tuple[HorizontalPodAutoscaler, ...]:
        return ()

    async def watch_oom_kills(self) -> AsyncIterator[OomKill]:
        for kill in tuple[OomKill, ...]():
            yield kill

    async def wait_for_write_turn(self) -> None:
        pass

    async def perform(self, action: Action) -> None:
        await asyncio.sleep(0)
        assert isinstance(action, ResizePod)
        key = (action.namespace, action.pod)
        self._pods[key] = predict_actuated_pod(self._pods[key], action.containers)
        self.writes += 1


class MeasuredWriter(ClusterWriter):
    """The writer, which counts the CPU seconds of this process while it applies a plan."""

    cpu_seconds = 0.0

    async def apply_plan(
        self, actions: Sequence[Action], snapshot: ClusterSnapshot, *args: Any, **named: Any
    ) -> list[Outcome]:
        started = time.process_time()
        try:
            return await super().apply_plan(actions, snapshot, *args, **named)
        finally:
            self.cpu_seconds += time.process_time() - started


def run() -> list[BenchmarkRow]:
    """Measure CPU seconds of this process, without those of Postgres."""
    document = {"apiVersion": "v1", "kind": "List", "items": list_objects(NODES, PODS_PER_NODE)}
    snapshot = read_snapshot([json.dumps(document).encode()], "generated")
    del document
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        Path(directory).chmod(0o755)
        return asyncio.run(_measure(ImmediateCluster(snapshot), Path(directory)))


async def _measure(cluster: ImmediateCluster, data_dir: Path) -> list[BenchmarkRow]:
    rows: list[BenchmarkRow] = []
    now = datetime.fromtimestamp(time.clock_gettime(time.CLOCK_REALTIME), UTC)
    async with open_store(None, data_dir, print) as store:
        # The first pass loads what later ones have in memory.
        await _pass(cluster, store, replace(_POLICY, mode=Mode.OBSERVE), now)
        assert cluster.writes == 0
        rows += _rows(f"resizes {NODES * PODS_PER_NODE:,} pods", await _pass(cluster, store, _POLICY, now))
        assert cluster.writes == NODES * PODS_PER_NODE, f"{cluster.writes} were resized"
        later = now + _POLICY.pass_interval
        rows += _rows("changes nothing", await _pass(cluster, store, _POLICY, later))
        assert cluster.writes == NODES * PODS_PER_NODE
    return rows


async def _pass(cluster: ImmediateCluster, store: StorePort, policy: Policy, now: datetime) -> tuple[float, float]:
    """Return the CPU seconds of a pass, and of its writer."""
    await store.write_statistics(statistics(NODES, PODS_PER_NODE, now))
    usage, writer = UsageState(), MeasuredWriter(cluster, store, policy)
    await usage.get_statistics(store)
    started = time.process_time()
    await run_node_pass(PassContext(cluster, store, policy, now), usage=usage, writer=writer)
    return time.process_time() - started, writer.cpu_seconds


def _rows(what: str, seconds: tuple[float, float]) -> Iterable[BenchmarkRow]:
    yield BenchmarkRow(NAME, f"a pass that {what}, CPU", seconds[0], "s", memory_mib=peak_memory_mib())
    yield BenchmarkRow(NAME, "of it, in the writer", seconds[1], "s")

"""A node pass on a real API server and Postgres: 1,000 nodes, 30,000 pods that are all resized."""

import asyncio
import sys
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.real_cluster import fill, quiet_control_plane, statistics
from benchmarks.table import BenchmarkRow, peak_memory_mib
from cruise.adapters.kube.client import KubernetesSettings, connect_to_kubernetes
from cruise.adapters.kube.cluster import KubernetesCluster
from cruise.adapters.store.postgres import open_store
from cruise.decisions.sizing.node_plans import decide_node_plans
from cruise.domain.actions import ActionResult
from cruise.domain.policy import Mode, Policy
from cruise.runtime.node_pass import run_node_pass
from cruise.runtime.ports import PassContext, StorePort
from tests.controlplane.binaries import NotAvailable
from tests.controlplane.control_plane import ControlPlane

NAME = "live-pass"
NODES = 1_000
PODS_PER_NODE = 30
# The workloads are as old as the benchmark.
_POLICY = Policy(mode=Mode.RESIZE, new_workload_age=timedelta(0))


def run() -> list[BenchmarkRow]:
    """Measure wall seconds from the first list to the last patch's response, and CPU seconds of this process."""
    try:
        with quiet_control_plane() as plane, tempfile.TemporaryDirectory(dir="/tmp") as directory:
            Path(directory).chmod(0o755)
            fill(plane.api(), NODES, PODS_PER_NODE)
            return asyncio.run(_measure(plane, Path(directory)))
    except NotAvailable as missing:
        print(f"no Kubernetes control plane on this machine: {missing}", file=sys.stderr)
        return []


async def _measure(plane: ControlPlane, data_dir: Path) -> list[BenchmarkRow]:
    settings = KubernetesSettings(plane.kubeconfig(), requests_per_second=10_000, burst=10_000)
    async with (
        open_store(None, data_dir, print) as store,
        connect_to_kubernetes(settings) as client,
        asyncio.TaskGroup() as tasks,
    ):
        started = time.perf_counter()
        cluster = KubernetesCluster(client)
        running = tasks.create_task(cluster.run())
        await cluster.wait_until_synced()
        listed = time.perf_counter() - started
        rows = [
            BenchmarkRow(
                NAME, f"list {NODES:,} nodes, {NODES * PODS_PER_NODE:,} pods", listed, "s", memory_mib=peak_memory_mib()
            )
        ]
        rows += await _passes(cluster, store)
        running.cancel()
    return rows


async def _passes(cluster: KubernetesCluster, store: StorePort) -> list[BenchmarkRow]:
    rows = []
    now = datetime.fromtimestamp(time.clock_gettime(time.CLOCK_REALTIME), UTC)
    await store.write_statistics(statistics(NODES, PODS_PER_NODE, now))
    started = time.perf_counter()
    snapshot = await cluster.snapshot()
    rows.append(BenchmarkRow(NAME, "snapshot from the cache", time.perf_counter() - started, "s"))
    started = time.perf_counter()
    plans = decide_node_plans(snapshot, await store.read_statistics(), _POLICY, now)
    rows.append(BenchmarkRow(NAME, "read the statistics and decide", time.perf_counter() - started, "s"))
    assert all(plan.fits for plan in plans)
    for what, policy in (
        ("a pass that only observes", replace(_POLICY, mode=Mode.OBSERVE)),
        ("a pass that resizes every pod", _POLICY),
    ):
        started, cpu = time.perf_counter(), time.process_time()
        done = await run_node_pass(PassContext(cluster, store, policy, now))
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu
        resized = sum(outcome.result is ActionResult.DONE for outcome in done.outcomes)
        rows.append(BenchmarkRow(NAME, what, seconds, "s", memory_mib=peak_memory_mib()))
        if resized:
            assert resized == NODES * PODS_PER_NODE, f"{resized} were resized"
            rows.append(BenchmarkRow(NAME, "resizes", resized / seconds, "/s"))
            rows.append(BenchmarkRow(NAME, "CPU of cruise for each resize", cpu_seconds / resized * 1000, "ms"))
    return rows

"""The dashboard and the API for 5,000 nodes and 20,000 workloads, and the cost of readers for a pass."""

import asyncio
import gc
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import httpx

from benchmarks.snapshot_generator import generate_cluster, write_snapshot, write_usage
from benchmarks.table import BenchmarkRow
from cruise.adapters.files import load_snapshot, load_usage
from cruise.adapters.store.postgres import PostgresStore, open_store
from cruise.app.serve.activity import ServeActivity
from cruise.app.serve.serve import build_http_app
from cruise.domain.actions import ActionResult, OriginalSizes, Outcome, ReasonCode
from cruise.domain.cluster import ClusterSnapshot, WorkloadRef
from cruise.domain.pod_resources import get_spec_targets
from cruise.domain.policy import Mode, Policy
from cruise.domain.prices import PriceSettings
from cruise.domain.records import HourlyClusterTotals, get_clock_hour
from cruise.domain.resources import Resources
from cruise.domain.usage import StatisticsTable
from cruise.domain.users import UserAction
from cruise.interfaces.http.figures import ControllerFigures
from cruise.interfaces.http.request_guard import RequestGuardRules
from cruise.interfaces.http.view import PolicyObjectPort, WhatIfPort
from cruise.runtime.node_pass import NodePassResult, run_node_pass
from cruise.runtime.ports import PassContext
from cruise.simulation.cluster.cluster import SimulatedCluster

NAME = "pages"
NODES, PODS_PER_NODE = 5000, 34
PAGE_SECONDS, API_SECONDS = 1.0, 0.1
_TIMES, _TIMES_EXPLAINED = 100, 5
_PAUSED, _LINES = 500, 20_000
_PASSES = 3


class FixedCluster(SimulatedCluster):
    """A cluster with a constant snapshot; mode observe writes nothing to it."""

    def __init__(self, snapshot: ClusterSnapshot, now: datetime) -> None:
        super().__init__((), (), now)
        self._shown = snapshot

    async def snapshot(self) -> ClusterSnapshot:
        """Return the one snapshot."""
        return self._shown


@dataclass(slots=True)
class View:
    """Implements `interfaces.http.view.ApiView`."""

    cluster: FixedCluster
    store: PostgresStore
    table: StatisticsTable
    at: datetime
    policy: Policy = Policy(mode=Mode.OBSERVE)
    activity: ServeActivity = field(default_factory=ServeActivity)
    what_if_runs: WhatIfPort | None = None
    policy_objects: PolicyObjectPort | None = None
    prices: PriceSettings = PriceSettings()

    def now(self) -> datetime:
        """Return the one time."""
        return self.at

    def get_figures(self) -> ControllerFigures:
        """Return the state of the passes."""
        return self.activity.build_figures(self.policy.mode, True, 0.0)

    def get_last_pass(self) -> NodePassResult | None:
        """Return the last pass."""
        return self.activity.node_pass

    async def snapshot(self) -> ClusterSnapshot:
        """Return the cluster."""
        return await self.cluster.snapshot()

    async def statistics(self) -> StatisticsTable:
        """Return the statistics."""
        return self.table

    async def revert(self, namespace: str, workload: WorkloadRef) -> Sequence[Outcome]:
        """Restore nothing."""
        return ()

    async def announce(self, action: UserAction) -> None:
        """Send no notification."""

    async def pass_once(self) -> None:
        """Run a node pass."""
        done = await run_node_pass(PassContext(self.cluster, self.store, self.policy, self.at))
        self.activity.statistics, self.activity.refreshed_at = self.table, self.at
        self.activity.add_pass(done, self.policy.max_age)


def run() -> list[BenchmarkRow]:
    """Measure on one core."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    return measure(NODES)


def measure(nodes: int) -> list[BenchmarkRow]:
    """Fill a database, run a pass, and request every page and route."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        Path(directory).chmod(0o755)
        return asyncio.run(_measured(Path(directory), nodes))


async def _measured(directory: Path, nodes: int) -> list[BenchmarkRow]:
    files = directory / "snapshot.json", directory / "usage.json"
    made = generate_cluster(nodes, pods_per_node=PODS_PER_NODE)
    write_snapshot(made, files[0], pretty=False)
    write_usage(made, files[1])
    size = f"{nodes:,} nodes, {made.pod_count:,} pods of {len(made.workloads):,} workloads"
    del made
    snapshot = load_snapshot(str(files[0]))
    table, now = load_usage(str(files[1]), snapshot)
    async with open_store(None, directory / "store", print) as store:
        view = View(FixedCluster(snapshot, now), store, table, now)
        await _fill(view)
        await view.pass_once()
        gc.collect()
        gc.freeze()
        app = build_http_app(view, RequestGuardRules(), list, bytes)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
            return [
                *await _pages(client, view, size),
                *await _routes(client, view),
                *await _passes_read(client, view),
            ]


async def _fill(view: View) -> None:
    """Fill the database like a cluster of this size after some weeks."""
    pods = view.cluster._shown.pods
    await view.store.write_statistics(view.table)
    originals = [OriginalSizes(pod.uid, pod.namespace, pod.name, get_spec_targets(pod), view.at) for pod in pods]
    for first in range(0, len(originals), 5000):
        await view.store.record_original_sizes(originals[first : first + 5000])
    workloads = sorted({(pod.namespace, pod.workload) for pod in pods if pod.workload is not None})
    for namespace, workload in workloads[:_PAUSED]:
        await view.store.write_workload_pause(namespace, workload, view.at)
    await view.pass_once()
    done = view.activity.node_pass
    assert done is not None
    resizes = [one for plan in done.plans for one in plan.resize][:_LINES]
    times = [view.at - timedelta(seconds=back) for back in range(len(resizes))]
    await view.store.record_outcomes(
        [Outcome(at, one, ActionResult.DONE, ReasonCode.RIGHTSIZED) for at, one in zip(times, resizes, strict=True)]
    )
    amount = Resources(10**6, 1 << 40)
    for back in range(720):
        await view.store.store_hourly_totals(
            HourlyClusterTotals(get_clock_hour(view.at) - back, amount, amount, amount, amount)
        )


async def _read(client: httpx.AsyncClient, path: str) -> tuple[float, float]:
    """Return the wall and processor seconds of a response."""
    clock, processor = time.perf_counter(), time.process_time()
    answer = await client.get(path)
    assert answer.status_code == 200, (path, answer.text[:400])
    return time.perf_counter() - clock, time.process_time() - processor


async def _pages(client: httpx.AsyncClient, view: View, size: str) -> list[BenchmarkRow]:
    pod = next(one for one in view.cluster._shown.pods if one.workload is not None)
    here = f"{pod.namespace}/{pod.workload}"
    processor = time.process_time()
    while (await client.get("/")).status_code == 503:
        await asyncio.sleep(0.5)
    rows = [BenchmarkRow(NAME, f"{size}: adding up a pass, once", time.process_time() - processor, "s CPU")]
    for name, path in (
        ("overview", "/"),
        ("workloads by share", "/workloads"),
        ("workloads by name, far down", "/workloads?sort=name&up=true&offset=10000"),
        ("workloads found", "/workloads?text=app-000"),
        ("one workload", f"/workloads/{here}"),
        ("its explanation and patch", f"/workloads/{here}/why/{pod.name}"),
        ("the same again", f"/workloads/{here}/why/{pod.name}"),
        ("nodes", "/nodes"),
        ("one node", f"/nodes/{pod.node}"),
        ("pending", "/pending"),
        ("actions", "/actions?period=30d"),
        ("policies", "/policies"),
        ("policy of one workload", f"/policies/{here}"),
        ("health", "/health"),
    ):
        clock, _ = await _read(client, path)
        rows.append(BenchmarkRow(NAME, f"page: {name}", clock, "s", f"{PAGE_SECONDS:g} s wanted", clock / PAGE_SECONDS))
    return rows


async def _routes(client: httpx.AsyncClient, view: View) -> list[BenchmarkRow]:
    pods = [one for one in view.cluster._shown.pods if one.workload is not None]
    rows = []
    for path, times in (
        *((one, _TIMES) for one in ("status", "summary", "workloads", "workloads?sort=name&offset=10000")),
        *((one, _TIMES) for one in ("nodes?limit=50", f"nodes/{pods[0].node}", "audit", "history")),
        *((one, _TIMES) for one in ("policies", "user-actions", "pause", "packing")),
        ("pods/POD", _TIMES_EXPLAINED),
    ):
        seconds = []
        for turn in range(times):
            pod = pods[turn * 997 % len(pods)]
            seconds.append((await _read(client, f"/api/v1/{path.replace('POD', f'{pod.namespace}/{pod.name}')}"))[0])
        longest = sorted(seconds)[-(-99 * times // 100) - 1]
        comparison = f"{API_SECONDS * 1000:g} ms wanted"
        rows.append(
            BenchmarkRow(
                NAME, f"GET /api/v1/{path}, p99 of {times}", longest * 1000, "ms", comparison, longest / API_SECONDS
            )
        )
    return rows


async def _passes_read(client: httpx.AsyncClient, view: View) -> list[BenchmarkRow]:
    """Return the processor time of passes while pages are read, without that of the pages, and of passes alone."""
    paths = ("/", "/workloads", "/nodes", "/actions", "/health")
    processor = time.process_time()
    for _ in range(_PASSES):
        await view.pass_once()
    alone = (time.process_time() - processor) / _PASSES
    for path in paths:
        await _read(client, path)
    pages = sum([(await _read(client, path))[1] for path in paths])
    known, begun, whole = view.activity.node_pass, 0, 0.0
    for _ in range(_PASSES):
        processor = time.process_time()
        passing = asyncio.ensure_future(view.pass_once())
        # A user reads at most a page a second; here all pages are read during a pass.
        for path in paths:
            await _read(client, path)
            begun += 1
        await passing
        whole += time.process_time() - processor - pages
        # The summary of the new pass is for readers, and measured above.
        view.activity.node_pass = known
    reading = whole / _PASSES
    return [
        BenchmarkRow(NAME, "a pass that observes, no reader", alone, "s CPU"),
        BenchmarkRow(NAME, "the same while every page is read", reading, "s CPU", "no reader", reading / alone),
    ]

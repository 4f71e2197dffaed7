"""The paper's clusters through the code of `cruise pack`: built from objects, solved, planned and verified."""

import asyncio
import os
import time
from dataclasses import dataclass

import numpy as np

from benchmarks.packing_instances import PAPER_RANGE, draw_pending
from benchmarks.table import BenchmarkRow
from cruise.cli.work.packing import PackingRequest, SearchSettings, plan_with_solver_process
from cruise.domain.cluster import ClusterSnapshot, Container, Node, Pod, Workload, WorkloadRef
from cruise.domain.packing_plan import PackingSizes
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import Resources, StatedResources
from cruise.packer.answer import PackingStatus
from cruise.packer.columns.instance import PackingInstance
from cruise.runtime.packing.planning import PlanningInputs
from cruise.runtime.packing.solver_client import SolverProcess

NAME = "packing-command"
SEEDS = range(11, 16)
# On a shared machine a processor second takes longer: BENCH_STRETCH is the factor.
STRETCH = float(os.environ.get("BENCH_STRETCH", "1"))
SHORT_SECONDS, LONG_SECONDS = 1.0, 10.0
PROVED_SHORT, PROVED_LONG = 0.97, 0.99


@dataclass(frozen=True, slots=True)
class PackCommandRun:
    """The command's result for a cluster, and its seconds without solving."""

    status: PackingStatus
    seconds: float
    without_solving: float


def run() -> list[BenchmarkRow]:
    """Measure every shape and seed, one after the other; instances proved within a second are not repeated."""
    short, longer = asyncio.run(_run())
    rows = _rows(f"{SHORT_SECONDS:g} s", short, PROVED_SHORT) + _rows(f"{LONG_SECONDS:g} s", longer, PROVED_LONG)
    without_solving = max(result.without_solving for result in short)
    return [*rows, BenchmarkRow(NAME, "building, proposing and judging: longest", without_solving, "s")]


async def _run() -> tuple[list[PackCommandRun], list[PackCommandRun]]:
    short: list[PackCommandRun] = []
    longer: list[PackCommandRun] = []
    async with SolverProcess() as worker:
        assert await worker.wait_until_warm()
        for shape in PAPER_RANGE:
            for seed in SEEDS:
                snapshot = snapshot_of(draw_pending(shape, seed))
                short.append(await _plan(worker, snapshot, SHORT_SECONDS))
                longer.append(short[-1] if short[-1].status.is_proved else await _plan(worker, snapshot, LONG_SECONDS))
    return short, longer


async def _plan(worker: SolverProcess, snapshot: ClusterSnapshot, seconds: float) -> PackCommandRun:
    begun = time.monotonic()
    search = SearchSettings(seconds * STRETCH, np.inf, 1)
    scene = PlanningInputs(snapshot, Policy(mode=Mode.FULL), sizes=PackingSizes.FIXED)
    plan, took = await plan_with_solver_process(worker, PackingRequest(scene, search))
    return PackCommandRun(plan.status, took, time.monotonic() - begun - took)


def snapshot_of(instance: PackingInstance) -> ClusterSnapshot:
    """Return an instance as the objects of a cluster: a ReplicaSet for each class."""
    nodes = tuple(
        Node(f"node-{n}", Resources(int(cpu), int(memory)), labels={"kubernetes.io/hostname": f"node-{n}"})
        for n, (cpu, memory) in enumerate(instance.capacities.tolist())
    )
    pods: list[Pod] = []
    for c, (cpu, memory) in enumerate(instance.demands.tolist()):
        pod_nodes: list[int] = np.repeat(np.arange(len(nodes)), instance.running[c]).tolist()
        pod_nodes += [-1] * (int(instance.counts[c]) - len(pod_nodes))
        owner = WorkloadRef("ReplicaSet", f"app-{c}")
        pods += [
            Pod(
                namespace="paper",
                name=f"app-{c}-{k}",
                uid=f"{c}-{k}",
                containers=(Container("main", requests=StatedResources(cpu, memory)),),
                node=None if node < 0 else f"node-{node}",
                phase="Pending" if node < 0 else "Running",
                workload=owner,
                owner_kind="ReplicaSet",
                owner_name=owner.name,
                priority=int(instance.priorities[c]),
            )
            for k, node in enumerate(pod_nodes)
        ]
    workloads = {("paper", pod.workload): Workload("paper", pod.workload) for pod in pods if pod.workload}
    return ClusterSnapshot(nodes=nodes, pods=tuple(pods), workloads=workloads)


def _rows(limit: str, results: list[PackCommandRun], promised: float) -> list[BenchmarkRow]:
    count = len(results)
    proved = sum(result.status.is_proved for result in results)
    failed = sum(result.status is PackingStatus.NO_IMPROVEMENT for result in results)
    comparison = f"{100 * promised:.0f} % promised" + (f", each second lasts {STRETCH:g}" if STRETCH != 1 else "")
    return [
        BenchmarkRow(
            NAME, f"{limit}, all {count}: proved", 100 * proved / count, "%", comparison, proved / count / promised
        ),
        BenchmarkRow(NAME, f"{limit}, all {count}: failed", failed, "plans", "0 promised"),
        BenchmarkRow(NAME, f"{limit}, all {count}: mean", sum(result.seconds for result in results) / count, "s"),
    ]

"""The paper's clusters through `cruise pack`'s own path: built from objects, solved, put into a plan, judged."""

import asyncio
import os
import time
from dataclasses import dataclass

import numpy as np

from benchmarks.packing_instances import PAPER_RANGE, draw_pending
from benchmarks.table import Row
from cruise.cli.execution.packing import Search, Wish, plan_with
from cruise.domain.cluster import Container, Node, Pod, Snapshot, Workload, WorkloadRef
from cruise.domain.packing import Sizes
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import Amounts, Resources
from cruise.packer.answer import Status
from cruise.packer.dense.instance import Instance
from cruise.runtime.packing.planning import Scene
from cruise.runtime.packing.worker import PackWorker

NAME = "packing-command"
SEEDS = range(11, 16)
# A machine that others use gives a second of its processor in several: BENCH_STRETCH says in how many.
STRETCH = float(os.environ.get("BENCH_STRETCH", "1"))
SHORT_SECONDS, LONG_SECONDS = 1.0, 10.0
PROVED_SHORT, PROVED_LONG = 0.97, 0.99


@dataclass(frozen=True, slots=True)
class Result:
    """What the command says of a cluster, and the seconds that it takes besides solving."""

    status: Status
    seconds: float
    besides: float


def run() -> list[Row]:
    """Every shape and seed, one at a time; what a second proves is not asked again."""
    short, longer = asyncio.run(_run())
    rows = _rows(f"{SHORT_SECONDS:g} s", short, PROVED_SHORT) + _rows(f"{LONG_SECONDS:g} s", longer, PROVED_LONG)
    besides = max(result.besides for result in short)
    return [*rows, Row(NAME, "building, proposing and judging: longest", besides, "s")]


async def _run() -> tuple[list[Result], list[Result]]:
    short: list[Result] = []
    longer: list[Result] = []
    async with PackWorker() as worker:
        assert await worker.ready()
        for shape in PAPER_RANGE:
            for seed in SEEDS:
                snapshot = snapshot_of(draw_pending(shape, seed))
                short.append(await _plan(worker, snapshot, SHORT_SECONDS))
                longer.append(short[-1] if short[-1].status.proved else await _plan(worker, snapshot, LONG_SECONDS))
    return short, longer


async def _plan(worker: PackWorker, snapshot: Snapshot, seconds: float) -> Result:
    begun = time.monotonic()
    search = Search(seconds * STRETCH, np.inf, 1)
    scene = Scene(snapshot, Policy(mode=Mode.FULL), sizes=Sizes.FIXED)
    plan, took = await plan_with(worker, Wish(scene, search))
    return Result(plan.status, took, time.monotonic() - begun - took)


def snapshot_of(instance: Instance) -> Snapshot:
    """An instance as the objects of a cluster: a ReplicaSet for each class."""
    nodes = tuple(
        Node(f"node-{n}", Resources(int(cpu), int(memory)), labels={"kubernetes.io/hostname": f"node-{n}"})
        for n, (cpu, memory) in enumerate(instance.capacities.tolist())
    )
    pods: list[Pod] = []
    for c, (cpu, memory) in enumerate(instance.demands.tolist()):
        homes: list[int] = np.repeat(np.arange(len(nodes)), instance.running[c]).tolist()
        homes += [-1] * (int(instance.counts[c]) - len(homes))
        owner = WorkloadRef("ReplicaSet", f"app-{c}")
        pods += [
            Pod(
                namespace="paper",
                name=f"app-{c}-{k}",
                uid=f"{c}-{k}",
                containers=(Container("main", requests=Amounts(cpu, memory)),),
                node=None if home < 0 else f"node-{home}",
                phase="Pending" if home < 0 else "Running",
                workload=owner,
                owner_kind="ReplicaSet",
                owner_name=owner.name,
                priority=int(instance.priorities[c]),
            )
            for k, home in enumerate(homes)
        ]
    workloads = {("paper", pod.workload): Workload("paper", pod.workload) for pod in pods if pod.workload}
    return Snapshot(nodes=nodes, pods=tuple(pods), workloads=workloads)


def _rows(limit: str, results: list[Result], promised: float) -> list[Row]:
    count = len(results)
    proved = sum(result.status.proved for result in results)
    failed = sum(result.status is Status.NO_IMPROVEMENT for result in results)
    beside = f"{100 * promised:.0f} % promised" + (f", each second lasts {STRETCH:g}" if STRETCH != 1 else "")
    return [
        Row(NAME, f"{limit}, all {count}: proved", 100 * proved / count, "%", beside, proved / count / promised),
        Row(NAME, f"{limit}, all {count}: failed", failed, "plans", "0 promised"),
        Row(NAME, f"{limit}, all {count}: mean", sum(result.seconds for result in results) / count, "s"),
    ]

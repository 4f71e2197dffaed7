"""The whole controller on the demo's cluster, with simulated time driven by the test."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from cruise.app.controller import Controller, Hooks
from cruise.app.demo_frames import kills_more
from cruise.app.simulated_admission import SimulatedAdmission
from cruise.domain.actions import ResizePod, Verdict
from cruise.domain.policy import Mode, Policy
from cruise.domain.qos import qos_class
from cruise.domain.resources import NO_RESOURCES, Resources
from cruise.runtime.usage_reading import UsageReading
from cruise.simulation.cluster import SimulatedCluster
from cruise.simulation.demo_cluster import demo_cluster
from cruise.simulation.store import MemoryStore

START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
HOURS = 6


@dataclass(frozen=True)
class Run:
    cluster: SimulatedCluster
    twin: SimulatedCluster
    controller: Controller
    requested_before: Resources
    pending_before: int


def requested(cluster: SimulatedCluster) -> Resources:
    total = NO_RESOURCES
    for figure in cluster.node_figures():
        total += figure.requested
    return total


async def drive(mode: Mode, hours: int) -> Run:
    cluster, usage = demo_cluster(START)
    twin, _ = demo_cluster(START)
    policy = Policy(mode=mode)
    reading = UsageReading(settle_seconds=0)
    store = MemoryStore()
    admission = SimulatedAdmission(cluster, store, policy, lambda: cluster.now)
    cluster.admit = admission.admit
    hooks = Hooks(learn=admission.learn)
    controller = Controller(cluster, usage, store, policy, lambda: cluster.now, reading, hooks=hooks)
    run = Run(cluster, twin, controller, requested(cluster), cluster.pending_pods)
    await controller.refresh_statistics()
    async with asyncio.TaskGroup() as tasks:
        reactor = tasks.create_task(controller.react_to_kills())
        for minute in range(1, hours * 60 + 1):
            for one in (cluster, twin):
                one.advance(START + timedelta(minutes=minute))
            await asyncio.sleep(0)
            if minute % 5 == 0:
                await controller.refresh_statistics()
                await controller.rightsize()
                await controller.watch_load()
        reactor.cancel()
    return run


@pytest.fixture(scope="module")
def full() -> Run:
    return asyncio.run(drive(Mode.FULL, HOURS))


def test_requested_cpu_falls_by_more_than_half(full: Run) -> None:
    assert requested(full.cluster).cpu_millicores * 2 < full.requested_before.cpu_millicores
    assert requested(full.twin).cpu_millicores * 2 > full.requested_before.cpu_millicores


def test_nobody_is_killed_that_the_original_requests_would_have_kept(full: Run) -> None:
    assert kills_more(full.cluster, full.twin) == 0
    assert full.twin.tally.kills > full.cluster.tally.kills


def test_pending_pods_run_without_an_eviction(full: Run) -> None:
    assert full.pending_before > 0
    assert full.twin.pending_pods > 0
    assert full.cluster.pending_pods == 0
    assert full.cluster.tally.evictions == 0


def test_no_node_is_overfilled(full: Run) -> None:
    for figure in full.cluster.node_figures():
        assert figure.requested.fits_in(figure.allocatable)


def test_no_pod_changes_its_class(full: Run) -> None:
    snapshot = asyncio.run(full.cluster.snapshot())
    assert [pod.name for pod in snapshot.pods if qos_class(pod) is not pod.qos] == []


def test_pods_created_later_come_with_their_workloads_peak(full: Run) -> None:
    snapshot = asyncio.run(full.cluster.snapshot())
    young = [pod for pod in snapshot.pods if pod.created_at is not None and pod.created_at > START]
    annotated = [pod for pod in young if "cruise.io/original-resources" in pod.annotations]
    assert annotated


def test_in_observe_mode_nothing_is_written() -> None:
    run = asyncio.run(drive(Mode.OBSERVE, 1))
    verdicts: Mapping[Verdict, int] = {
        verdict: sum(outcome.verdict is verdict for outcome in run.controller.doings.outcomes) for verdict in Verdict
    }
    assert verdicts[Verdict.OBSERVED] > 0
    assert sum(verdicts.values()) == verdicts[Verdict.OBSERVED]
    assert run.cluster.tally.resizes_asked == 0
    assert requested(run.cluster) == requested(run.twin)


def test_without_evictions_the_mode_resize_still_rightsizes() -> None:
    run = asyncio.run(drive(Mode.RESIZE, 1))
    done = [outcome for outcome in run.controller.doings.outcomes if outcome.verdict is Verdict.DONE]
    assert done
    assert all(isinstance(outcome.action, ResizePod) for outcome in done)
    assert run.cluster.tally.evictions == 0

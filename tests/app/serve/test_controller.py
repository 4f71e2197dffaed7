"""The whole controller on the demo's cluster, with simulated time driven by the test."""

import asyncio
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cruise.app.demo import SimulatedAdmission
from cruise.app.demo_frames import count_oom_kills_beyond_twin
from cruise.app.process import release_unused_memory
from cruise.app.serve.activity import ControllerHooks, ServeActivity
from cruise.app.serve.controller import Controller
from cruise.app.serve.controller_options import ControllerOptions
from cruise.domain.actions import ActionResult, Outcome, ResizePod
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.pod_resources import get_qos_class
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import NO_RESOURCES, Resources
from cruise.domain.usage import (
    NodeLoadAverage,
    NodeUsage,
    OomRecord,
    PartitionCounterTail,
    SampleBlock,
    StatisticsTable,
)
from cruise.errors import UnavailableError
from cruise.interfaces.http.figures import JobFigures
from cruise.runtime.ports import UsageSourcePort
from cruise.runtime.usage.usage_reader import UsageReadingSettings
from cruise.simulation.cluster.cluster import SimulatedCluster
from cruise.simulation.demo_cluster import create_demo_cluster
from cruise.simulation.store import InMemoryStore

START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
HOURS = 6
NOT_YET = JobFigures("statistics")


@dataclass(frozen=True)
class Run:
    cluster: SimulatedCluster
    twin: SimulatedCluster
    controller: Controller
    requested_before: Resources
    pending_before: int


def requested(cluster: SimulatedCluster) -> Resources:
    total = NO_RESOURCES
    for figure in cluster.get_node_usage():
        total += figure.requested
    return total


async def drive(mode: Mode, hours: int) -> Run:
    cluster, usage = create_demo_cluster(START)
    twin, _ = create_demo_cluster(START)
    policy = Policy(mode=mode)
    reading = UsageReadingSettings(scrape_delay_seconds=0)
    store = InMemoryStore()
    admission = SimulatedAdmission(cluster, store, policy, lambda: cluster.now)
    cluster.admit = admission.admit
    hooks = ControllerHooks(on_statistics=admission.update)
    controller = Controller(cluster, usage, store, policy, lambda: cluster.now, reading, ControllerOptions(hooks=hooks))
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
                await controller.check_node_loads()
        reactor.cancel()
    return run


@pytest.fixture(scope="module")
def full() -> Run:
    return asyncio.run(drive(Mode.FULL, HOURS))


def test_requested_cpu_falls_by_more_than_half(full: Run) -> None:
    assert requested(full.cluster).cpu_millicores * 2 < full.requested_before.cpu_millicores
    assert requested(full.twin).cpu_millicores * 2 > full.requested_before.cpu_millicores


def test_no_container_is_killed_that_the_original_requests_would_have_kept(full: Run) -> None:
    assert count_oom_kills_beyond_twin(full.cluster, full.twin) == 0
    assert full.twin.counts.oom_kills > full.cluster.counts.oom_kills


def test_pending_pods_run_without_an_eviction(full: Run) -> None:
    assert full.pending_before > 0
    assert full.twin.pending_pods > 0
    assert full.cluster.pending_pods == 0
    assert full.cluster.counts.evictions == 0


def test_no_node_is_overfilled(full: Run) -> None:
    for figure in full.cluster.get_node_usage():
        assert figure.requested.fits_in(figure.allocatable)


def test_no_pod_changes_its_class(full: Run) -> None:
    snapshot = asyncio.run(full.cluster.snapshot())
    assert [pod.name for pod in snapshot.pods if get_qos_class(pod) is not pod.qos] == []


def test_pods_created_later_request_their_workloads_peak(full: Run) -> None:
    snapshot = asyncio.run(full.cluster.snapshot())
    young = [pod for pod in snapshot.pods if pod.created_at is not None and pod.created_at > START]
    annotated = [pod for pod in young if "cruise.io/original-resources" in pod.annotations]
    assert annotated


def test_in_observe_mode_nothing_is_written() -> None:
    run = asyncio.run(drive(Mode.OBSERVE, 1))
    verdicts: Mapping[ActionResult, int] = {
        verdict: sum(outcome.result is verdict for outcome in run.controller.activity.outcomes)
        for verdict in ActionResult
    }
    assert verdicts[ActionResult.OBSERVED] > 0
    assert sum(verdicts.values()) == verdicts[ActionResult.OBSERVED]
    assert run.cluster.counts.resizes_requested == 0
    assert requested(run.cluster) == requested(run.twin)


def test_without_evictions_the_mode_resize_still_rightsizes() -> None:
    run = asyncio.run(drive(Mode.RESIZE, 1))
    done = [outcome for outcome in run.controller.activity.outcomes if outcome.result is ActionResult.DONE]
    assert done
    assert all(isinstance(outcome.action, ResizePod) for outcome in done)
    assert run.cluster.counts.evictions == 0


def idle(store: InMemoryStore, source: UsageSourcePort, policy: Policy | None = None, **more: Any) -> Controller:
    policy = policy or Policy(mode=Mode.RESIZE, pass_interval=timedelta(milliseconds=200))
    cluster, _ = create_demo_cluster(START)
    return Controller(
        cluster,
        source,
        store,
        policy,
        lambda: cluster.now,
        UsageReadingSettings(scrape_delay_seconds=0),
        ControllerOptions(**more),
    )


class Refusing:
    """A usage source that is unavailable while a test says so."""

    def __init__(self, source: UsageSourcePort) -> None:
        self._source = source
        self.away = True
        self.asked = asyncio.Event()

    async def list_partitions(self, snapshot: ClusterSnapshot) -> Sequence[str]:
        return await self._source.list_partitions(snapshot)

    async def read(
        self, partition: str, start: int, end: int, tail: PartitionCounterTail | None
    ) -> tuple[SampleBlock, PartitionCounterTail | None]:
        self.asked.set()
        if self.away:
            raise UnavailableError("Prometheus is away")
        return await self._source.read(partition, start, end, tail)

    async def read_node_usage(self, nodes: Collection[str], start: int, end: int) -> NodeUsage:
        return await self._source.read_node_usage(nodes, start, end)

    async def read_node_loads(self, at: int) -> Mapping[str, NodeLoadAverage]:
        return {}


async def until(check: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not check():
            await asyncio.sleep(0.01)


class SlowStore(InMemoryStore):
    """A store that needs longer to prune than a part of the scaled interval."""

    async def prune(self, now: datetime) -> None:
        await asyncio.sleep(0.2)
        await super().prune(now)


async def test_pruning_has_time_however_fast_the_clock_runs() -> None:
    _, usage = create_demo_cluster(START)
    day = timedelta(days=1)
    policy = Policy(mode=Mode.OBSERVE, pass_interval=day, node_load_interval=day)
    controller = idle(SlowStore(), usage, policy, clock_speed=36000)
    stop = asyncio.Event()
    running = asyncio.ensure_future(controller.run(stop))
    await until(lambda: controller.activity.jobs.get("prune", NOT_YET).runs > 0)
    assert controller.activity.jobs["prune"].failures == 0
    # The dashboard subtracts it from the time of the cluster.
    assert controller.activity.jobs["prune"].last_success_at == START
    stop.set()
    await running


async def lead_for_a_moment() -> "weakref.ref[Controller]":
    """Run a controller until it has statistics, and cancel it as at the end of a term."""
    _, usage = create_demo_cluster(START)
    controller = idle(InMemoryStore(), usage)
    running = asyncio.ensure_future(controller.run(asyncio.Event()))
    await until(lambda: controller.activity.jobs.get("statistics", NOT_YET).runs > 0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return weakref.ref(controller)


async def test_nothing_keeps_what_a_term_has_read_once_the_next_one_begins() -> None:
    kept = await lead_for_a_moment()
    # The loop has what it handled last until its next turn.
    await asyncio.sleep(0)
    release_unused_memory()
    assert kept() is None


async def test_no_node_is_looked_at_before_there_are_statistics() -> None:
    _, usage = create_demo_cluster(START)
    source = Refusing(usage)
    controller = idle(InMemoryStore(), source)
    stop = asyncio.Event()
    running = asyncio.ensure_future(controller.run(stop))
    await until(lambda: controller.activity.jobs.get("statistics", NOT_YET).failures >= 3)
    assert controller.activity.node_pass is None
    assert not controller.activity.is_filled
    source.away = False
    await until(lambda: controller.activity.node_pass is not None)
    assert controller.activity.is_filled
    assert controller.activity.refreshed_at is not None
    stop.set()
    await running


async def test_where_nothing_is_written_the_first_look_does_not_wait_for_its_turn() -> None:
    _, usage = create_demo_cluster(START)
    controller = idle(InMemoryStore(), usage, Policy(mode=Mode.OBSERVE, pass_interval=timedelta(hours=10)))
    stop = asyncio.Event()
    running = asyncio.ensure_future(controller.run(stop))
    await until(lambda: controller.activity.node_pass is not None)
    stop.set()
    await running


async def test_a_new_term_begins_from_the_store_and_not_from_what_the_last_one_had() -> None:
    cluster, usage = create_demo_cluster(START)
    store, activity = InMemoryStore(), ServeActivity()
    first = Controller(
        cluster,
        usage,
        store,
        Policy(),
        lambda: cluster.now,
        UsageReadingSettings(),
        ControllerOptions(activity=activity),
    )
    await first.refresh_statistics()
    await first.rightsize()
    assert activity.is_filled
    second = Controller(
        cluster,
        usage,
        store,
        Policy(),
        lambda: cluster.now,
        UsageReadingSettings(),
        ControllerOptions(activity=activity),
    )
    assert not activity.is_filled
    assert activity.node_pass is None
    source = Refusing(usage)
    await second.refresh_statistics()
    assert activity.is_filled
    assert not source.asked.is_set()


class Forgetful(InMemoryStore):
    """A store that is away for one kill."""

    def __init__(self) -> None:
        super().__init__()
        self.away = 1

    async def record_oom_kill(self, record: OomRecord) -> bool:
        if self.away:
            self.away -= 1
            raise UnavailableError("Postgres is away")
        return await super().record_oom_kill(record)


async def test_a_kill_is_met_although_the_store_was_away_and_its_reaction_announced() -> None:
    told: list[Outcome] = []

    async def announce(outcomes: Sequence[Outcome], holds: object, pods: object) -> None:
        told.extend(outcomes)

    cluster, usage = create_demo_cluster(START)
    store = Forgetful()
    policy = Policy(mode=Mode.FULL)
    controller = Controller(
        cluster,
        usage,
        store,
        policy,
        lambda: cluster.now,
        UsageReadingSettings(scrape_delay_seconds=0),
        ControllerOptions(hooks=ControllerHooks(announce)),
    )
    await controller.refresh_statistics()
    stop = asyncio.Event()
    running = asyncio.ensure_future(controller.run(stop))
    for minute in range(1, 12 * 60):
        cluster.advance(START + timedelta(minutes=minute))
        await asyncio.sleep(0)
        if cluster.counts.oom_kills:
            break
    assert cluster.counts.oom_kills
    await until(lambda: len(controller.activity.reactions) > 0)
    assert store.away == 0
    assert told == [reaction.outcome for reaction in controller.activity.reactions]
    stop.set()
    await running


async def test_admission_in_the_same_process_learns_from_a_kill_at_once() -> None:
    learnt: list[StatisticsTable] = []

    async def learn(statistics: StatisticsTable) -> None:
        learnt.append(statistics)

    cluster, usage = create_demo_cluster(START)
    reading, policy = UsageReadingSettings(scrape_delay_seconds=0), Policy(mode=Mode.FULL)
    controller = Controller(
        cluster,
        usage,
        InMemoryStore(),
        policy,
        lambda: cluster.now,
        reading,
        ControllerOptions(hooks=ControllerHooks(on_statistics=learn)),
    )
    await controller.refresh_statistics()
    assert (len(learnt), learnt[0].oom_memory_bytes.sum()) == (1, 0)
    async with asyncio.TaskGroup() as tasks:
        reacting = tasks.create_task(controller.react_to_kills())
        for minute in range(1, 12 * 60):
            cluster.advance(START + timedelta(minutes=minute))
            await asyncio.sleep(0)
            if cluster.counts.oom_kills:
                break
        await until(lambda: len(controller.activity.reactions) > 0)
        reacting.cancel()
    # No pass has run since.
    assert len(learnt) == 1 + len(controller.activity.reactions)
    taught = [reaction.record.oom_memory_bytes for reaction in controller.activity.reactions]
    assert learnt[-1].oom_memory_bytes.max() == max(taught) > 0

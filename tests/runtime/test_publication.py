"""Publishing of VPAs: content, modes, budgets, and the errors that end a pass."""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from cruise.decisions.template_sizes import build_recommendations, size_templates
from cruise.domain.cluster import ClusterSnapshot, VerticalPodAutoscaler
from cruise.domain.policy import Mode, Policy
from cruise.domain.records import WorkloadRecommendation
from cruise.domain.resources import MEBIBYTE, NOTHING_STATED, Resources
from cruise.domain.usage import StatisticsTable
from cruise.errors import ConflictError, NotFoundError, UnavailableError
from cruise.runtime.publication import VpaRecommendationUpdater
from cruise.simulation.store import InMemoryStore
from tests.builders import NOW, make_pod, make_ref, make_snapshot, make_statistic_for, make_table, make_workload

FULL = Policy(mode=Mode.FULL)


class Recording:
    """Keeps what is published; raises `failure` where there is one."""

    def __init__(self) -> None:
        self.written: list[tuple[WorkloadRecommendation, datetime, bool]] = []
        self.failure: Exception | None = None
        self.turn = asyncio.Event()
        self.turn.set()

    async def wait_for_write_turn(self) -> None:
        await self.turn.wait()

    async def publish(self, recommendation: WorkloadRecommendation, since: datetime, *, exists: bool) -> None:
        if self.failure is not None:
            raise self.failure
        self.written.append((recommendation, since, exists))

    @property
    def names(self) -> list[str]:
        return [one.name for one, _, _ in self.written]


def world(count: int = 1, cpu_peak: int = 400) -> tuple[ClusterSnapshot, StatisticsTable]:
    names = [f"web{at}" for at in range(count)]
    pods = [make_pod(f"{name}-1", workload=f"Deployment/{name}") for name in names]
    workloads = [
        make_workload(f"Deployment/{name}", requests={"app": NOTHING_STATED}, uid=f"uid-{name}") for name in names
    ]
    rows = [
        replace(make_statistic_for(pod, cpu_peak=cpu_peak), key=key) for pod, key in zip(pods, _keys(pods), strict=True)
    ]
    return make_snapshot(pods, workloads=workloads), make_table(*rows)


def _keys(pods):
    return [make_statistic_for(pod).key._replace(pod="") for pod in pods]


def shown(snapshot: ClusterSnapshot, recording: Recording) -> ClusterSnapshot:
    """The cluster once it has what was published."""
    own = tuple(
        VerticalPodAutoscaler(one.namespace, one.name, one.workload, "Off", True, is_published=True)
        for one, _, _ in recording.written
    )
    return replace(snapshot, vertical_autoscalers=own)


async def test_a_recommendation_lies_between_what_is_used_and_what_was_used_most():
    snapshot, statistics = world()
    sizes = size_templates(snapshot, statistics, FULL, NOW)
    [found] = build_recommendations(sizes.changed, snapshot, NOW)
    [container] = found.containers
    assert (found.name, found.uid, found.is_confident) == ("cruise-deployment-web0", "uid-web0", True)
    assert container.lower == Resources(50, 64 * MEBIBYTE)
    assert container.target == Resources(400, 100 * MEBIBYTE)
    assert container.upper == container.uncapped == container.target


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.INITIAL])
async def test_nothing_is_published_below_mode_resize(mode):
    recording = Recording()
    assert await VpaRecommendationUpdater(recording, InMemoryStore(), Policy(mode=mode)).publish(*world(), NOW) == 0
    assert recording.written == []


async def test_nothing_is_published_while_paused():
    recording, store = Recording(), InMemoryStore()
    await store.set_paused(True)
    assert await VpaRecommendationUpdater(recording, store, FULL).publish(*world(), NOW) == 0
    assert recording.written == []


async def test_a_recommendation_that_waits_for_the_rate_limit_when_cruise_is_paused_is_not_published():
    recording, store = Recording(), InMemoryStore()
    recording.turn.clear()
    publishing = asyncio.ensure_future(VpaRecommendationUpdater(recording, store, FULL).publish(*world(), NOW))
    await asyncio.wait({publishing}, timeout=0.05)
    await store.set_paused(True)
    recording.turn.set()
    assert await publishing == 0
    assert recording.written == []


async def test_what_hardly_moves_is_not_written_again():
    recording = Recording()
    publication = VpaRecommendationUpdater(recording, InMemoryStore(), FULL)
    snapshot, statistics = world()
    assert await publication.publish(snapshot, statistics, NOW) == 1
    snapshot = shown(snapshot, recording)
    assert await publication.publish(snapshot, world(cpu_peak=405)[1], NOW) == 0
    assert await publication.publish(snapshot, world(cpu_peak=500)[1], NOW + timedelta(minutes=5)) == 1
    assert [(since, exists) for _, since, exists in recording.written] == [(NOW, False), (NOW, True)]


async def test_a_deleted_object_is_created_again():
    recording = Recording()
    publication = VpaRecommendationUpdater(recording, InMemoryStore(), FULL)
    await publication.publish(*world(), NOW)
    assert await publication.publish(*world(), NOW) == 1


async def test_a_pass_stops_at_its_budget_and_the_next_one_continues():
    recording = Recording()
    publication = VpaRecommendationUpdater(recording, InMemoryStore(), FULL, limit=2)
    snapshot, statistics = world(5)
    for expected in (2, 2, 1, 0):
        assert await publication.publish(shown(snapshot, recording), statistics, NOW) == expected
    assert len(set(recording.names)) == 5


@pytest.mark.parametrize("name", ["mine", "cruise-deployment-web0"])
async def test_a_workload_with_a_foreign_vpa_gets_none_from_cruise(name):
    snapshot, statistics = world()
    target = make_ref("Deployment/web0") if name == "mine" else make_ref("Deployment/other")
    snapshot = replace(snapshot, vertical_autoscalers=(VerticalPodAutoscaler("shop", name, target, "Off"),))
    assert await VpaRecommendationUpdater(Recording(), InMemoryStore(), FULL).publish(snapshot, statistics, NOW) == 0


async def test_one_that_was_changed_meanwhile_is_passed_over():
    recording = Recording()
    publication = VpaRecommendationUpdater(recording, InMemoryStore(), FULL)
    recording.failure = ConflictError("changed")
    await publication.publish(*world(2), NOW)
    recording.failure = None
    assert await publication.publish(*world(2), NOW) == 2


async def test_the_pass_ends_if_the_kind_is_not_served_and_an_unreachable_server_is_reported():
    recording = Recording()
    publication = VpaRecommendationUpdater(recording, InMemoryStore(), FULL)
    recording.failure = NotFoundError("no such kind")
    assert await publication.publish(*world(3), NOW) == 0
    recording.failure = UnavailableError("away")
    with pytest.raises(UnavailableError):
        await publication.publish(*world(), NOW)


async def test_without_a_writable_store_nothing_is_published():
    class ReadOnly(InMemoryStore):
        async def check_writable(self) -> None:
            raise UnavailableError("cannot execute INSERT in a read-only transaction")

    snapshot, statistics = world()
    recording = Recording()
    with pytest.raises(UnavailableError, match="read-only"):
        await VpaRecommendationUpdater(recording, ReadOnly(), FULL).publish(snapshot, statistics, NOW)
    assert recording.written == []

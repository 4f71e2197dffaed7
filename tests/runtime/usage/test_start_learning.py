"""From samples to a boost: usage passes learn what starts need, and the webhook gives it to the next pod."""

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from cruise.domain.policy import Mode, Policy, StartupPolicy
from cruise.domain.startup_boosts import find_startup_boosts
from cruise.domain.usage import ContainerKey, PeakKey
from cruise.runtime.admission import PodAdmitter
from cruise.runtime.usage.usage_pass import run_usage_pass
from cruise.runtime.usage.usage_reader import UsageReadingSettings
from cruise.runtime.usage.usage_state import UsageState
from cruise.simulation.store import InMemoryStore
from tests.builders import make_container, make_node, make_pod, make_snapshot
from tests.recorded_usage import RecordedUsage
from tests.shown_cluster import ReadOnlyCluster

AT = 1_767_268_200  # 11:50
DELAY_SECONDS = 30
POLICY = Policy(mode=Mode.RESIZE, startup=StartupPolicy.LEARN)
KEYS = [ContainerKey("shop", f"web-{number}", "app") for number in range(4)]
# Three starts of yesterday, and one that the last pass before a restart of cruise sees only half of.
STARTS = dict(zip(KEYS, (AT - 90_000, AT - 70_000 + 17, AT - 80_000, AT - 130), strict=True))
START_SECONDS = 150


def use(key, times):
    """The CPU of a container: 100 millicores, and ten times that in the two minutes and a half of its start."""
    begin = STARTS[key]
    cpu = np.where(times - begin <= START_SECONDS, 1000.0 + 100 * KEYS.index(key), 100.0)
    return np.where(times > begin, cpu, np.nan)


def at_time(seconds):
    return datetime.fromtimestamp(seconds, UTC)


def make_cluster(now, starts):
    pods = []
    for key, begin in starts.items():
        pod = make_pod(key.pod, containers=(make_container(cpu=200),))
        ready = at_time(begin + START_SECONDS - 30)
        pods.append(replace(pod, started_at=at_time(begin), ready_since=ready if ready <= now else None))
    return make_snapshot(pods, nodes=(make_node(),))


async def learn(store, state, at, starts=STARTS):
    source = RecordedUsage(containers={"a": list(starts)}, cpu=use, memory=lambda key, times: np.full(len(times), 1e8))
    now = at_time(at + DELAY_SECONDS)
    cluster = ReadOnlyCluster(make_cluster(now, starts))
    reading = UsageReadingSettings(scrape_delay_seconds=DELAY_SECONDS)
    return await run_usage_pass(cluster, source, store, state, POLICY, now, reading), await cluster.snapshot()


def get_start_cpu(table):
    return table.cpu_start_millicores[table.row_of_workload[PeakKey("shop", "Deployment/web", "app", "")]].item()


async def test_starts_are_kept_across_restarts_of_the_process_even_if_half_observed():
    store = InMemoryStore()
    table, _ = await learn(store, UsageState(), AT)
    assert get_start_cpu(table) == 1180
    # The fourth start ends after a restart.
    state = UsageState()
    table, _ = await learn(store, state, AT + 60)
    assert get_start_cpu(table) > 1180
    table, _ = await learn(store, state, AT + 120)
    assert get_start_cpu(table) == 1270
    assert get_start_cpu(await store.read_workload_statistics()) == 1270


async def test_the_next_pod_starts_with_what_was_learned():
    table, snapshot = await learn(InMemoryStore(), UsageState(), AT, dict(list(STARTS.items())[:3]))
    pod = make_pod("", node=None, containers=(make_container(cpu=200, settled=False),))
    for policy, millicores in ((POLICY, 1180), (replace(POLICY, startup=StartupPolicy.OFF), 100)):
        created, _ = PodAdmitter(snapshot, table, {}, policy, at_time(AT + DELAY_SECONDS)).admit(pod)
        assert created.containers[0].requests.cpu_millicores == millicores
        assert {one.request for one in find_startup_boosts(created)} <= {100}


async def test_two_starts_are_too_few():
    table, _ = await learn(InMemoryStore(), UsageState(), AT, dict(list(STARTS.items())[:2]))
    assert get_start_cpu(table) == 0


async def test_what_is_learned_while_reading_is_independent_of_how_often_passes_run():
    found = set()
    for steps in ((600,), tuple(range(60, 601, 60)), (120, 300, 600)):
        store, state = InMemoryStore(), UsageState()
        for step in steps:
            table, _ = await learn(store, state, AT + step)
        found.add(get_start_cpu(table))
    assert found == {1270}

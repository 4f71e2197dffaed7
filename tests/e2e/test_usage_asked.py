"""The queries to a real Prometheus, recorded by a proxy: no sample is read twice."""

import asyncio
import json
import re
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.adapters.prometheus.source import PrometheusUsageSource
from cruise.adapters.store.postgres import open_store
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.policy import Policy
from cruise.domain.usage import StatisticsTable
from cruise.runtime.ports import StorePort
from cruise.runtime.usage.usage_pass import run_usage_pass
from cruise.runtime.usage.usage_reader import UsageReadingSettings
from cruise.runtime.usage.usage_state import UsageState
from cruise.simulation.store import InMemoryStore
from tests import cadvisor
from tests.builders import make_pod, make_snapshot
from tests.cadvisor import DAY, ContainerLifetime, ContainerLocation
from tests.http_server import HttpAnswer, ReceivedHttpRequest, answering
from tests.postgres_servers import dsn_below, emptied
from tests.prometheus_server import make_blocks, running_prometheus
from tests.shown_cluster import ReadOnlyCluster

END = 1_767_268_200
START = END - 8 * DAY
HORIZON = (END // 3600 - 168) * 3600
NOW = datetime.fromtimestamp(END + 30, UTC)
READING = UsageReadingSettings(longest_chunk_seconds=12 * 3600)
SERIES = re.compile(r"\b(\w+)\{.*pod=~(\".*\")\}$")


def snapshot() -> ClusterSnapshot:
    return make_snapshot([make_pod(f"web-7d9f8b6c5d-xxxx{letter}") for letter in "bcdfghjkmt49"])


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    series = []
    pods = snapshot().pods
    demands = cadvisor.demands(len(pods), START, 8 * 1440, seed=7)
    for pod, demand in zip(pods, demands, strict=True):
        place = ContainerLocation(pod.namespace, pod.name, "app", "n1", 60, 12.5)
        restarts = (END - 3 * DAY + 17, END - 1000)
        series += cadvisor.scrape(
            place,
            ContainerLifetime(START, END + 1, restarts),
            demand,
            cadvisor.scrape_times(place, [(START, END + 1, None)]),
        )
    blocks = tmp_path_factory.mktemp("usage") / "blocks"
    make_blocks(lambda path: cadvisor.write_openmetrics(series, path), blocks)
    with running_prometheus(blocks) as address:
        yield address


def forwarded_to(
    address: str, seen: Callable[[ReceivedHttpRequest], None]
) -> Callable[[ReceivedHttpRequest], HttpAnswer]:
    def respond(request: ReceivedHttpRequest) -> HttpAnswer:
        seen(request)
        form = urllib.parse.urlencode(request.form).encode()
        with urllib.request.urlopen(address + request.path, form) as response:
            return HttpAnswer(response.status, response.read())

    return respond


async def fill(address: str, store: StorePort) -> StatisticsTable:
    """One process with its own source and state."""
    source = PrometheusUsageSource(PrometheusSettings(address))
    table = await run_usage_pass(ReadOnlyCluster(snapshot()), source, store, UsageState(), Policy(), NOW, READING)
    source.close()
    return table


@pytest.fixture(params=["memory", "Postgres"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[StorePort]:
    if request.param == "memory":
        yield InMemoryStore()
        return
    data_dir = request.getfixturevalue("embedded_postgres")
    emptied(dsn_below(data_dir))
    async with open_store(None, data_dir, print) as opened:
        yield opened


async def test_after_a_restart_during_a_backfill_no_sample_is_read_twice(prometheus: str, store: StorePort) -> None:
    queries: list[tuple[str, str, range]] = []
    half_way = asyncio.Event()
    loop = asyncio.get_running_loop()

    def seen(request: ReceivedHttpRequest) -> None:
        found = SERIES.search(request.form["query"])
        assert found is not None
        first, last, step = (int(request.form[name]) for name in ("start", "end", "step"))
        queries.append((found.group(1), found.group(2), range(first, last + 1, step)))
        if sum(len(times) for _, _, times in queries) > 9 * 3 * 80 * 60:
            loop.call_soon_threadsafe(half_way.set)

    with answering(forwarded_to(prometheus, seen)) as address:
        first_run = asyncio.ensure_future(fill(address, store))
        await half_way.wait()
        first_run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first_run
        before = sum(len(times) for _, _, times in queries)
        table = await fill(address, store)
    minutes = (END - HORIZON) // 60
    assert before < 9 * 3 * minutes * 0.8
    asked = Counter((metric, pods, at) for metric, pods, times in queries for at in times)
    assert set(asked.values()) == {1}
    assert asked.total() == 9 * 3 * minutes
    undisturbed = await fill(prometheus, InMemoryStore())
    assert len(table.row_of_container) == len(snapshot().pods)
    assert [table.get_row(row) for row in range(len(table.keys))] == [
        undisturbed.get_row(row) for row in range(len(undisturbed.keys))
    ]


async def test_fifteen_minutes_of_passes_cost_a_500th_of_what_cruisekube_costs(prometheus: str) -> None:
    """CruiseKube's statistics pass was measured at 31,100 samples a container every 15 minutes."""
    loaded: list[int] = []

    def counted(request: ReceivedHttpRequest) -> HttpAnswer:
        form = urllib.parse.urlencode({**request.form, "stats": "all"}).encode()
        with urllib.request.urlopen(prometheus + request.path, form) as response:
            body = response.read()
        loaded.append(json.loads(body)["data"]["stats"]["samples"]["totalQueryableSamples"])
        return HttpAnswer(body=body)

    state, store, counts = UsageState(), InMemoryStore(), [0]
    with answering(counted) as address:
        source = PrometheusUsageSource(PrometheusSettings(address))
        for minutes in (15, 10, 5, 0):
            now = NOW - timedelta(minutes=minutes)
            table = await run_usage_pass(ReadOnlyCluster(snapshot()), source, store, state, Policy(), now)
            counts.append(sum(loaded))
        source.close()
    assert len(table.row_of_container) == len(snapshot().pods)
    fill, passes = counts[1] / len(snapshot().pods), (counts[-1] - counts[1]) / len(snapshot().pods)
    # A restart shows as two series for the minutes in which the old one lingers.
    assert 45 <= passes <= 31_100 / 500
    # All pods are on one node; if its counters jump together, its scrape times are queried.
    times_of_scrapes = (END - HORIZON) / 60 / len(snapshot().pods)
    assert 30_000 <= fill <= 31_100 + times_of_scrapes

"""A real Prometheus with missed, late, irregular or duplicate scrapes: steady containers stay steady or unknown."""

import asyncio
import json
import re
import urllib.parse
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.adapters.prometheus.source import PrometheusUsageSource
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.policy import Policy
from cruise.domain.usage import ContainerKey, StatisticsTable
from cruise.runtime.usage.usage_pass import run_usage_pass
from cruise.runtime.usage.usage_reader import UsageReadingSettings
from cruise.runtime.usage.usage_state import UsageState
from cruise.simulation.store import InMemoryStore
from tests.builders import make_container, make_node, make_pod, make_snapshot
from tests.http_server import HttpAnswer, ReceivedHttpRequest, answering
from tests.prometheus_server import make_blocks, running_prometheus
from tests.shown_cluster import ReadOnlyCluster

END = 1_767_268_200
START = END - 3 * 3600
PASSES = 14
WAITING = 0.3
MEBIBYTE = 2**20
READING = UsageReadingSettings(measures_scrape_delay=True)
MILLICORES = (1000, 40, 2500)

Numbers = np.ndarray


def every(seconds: float, first: float = 3.5) -> Numbers:
    return np.arange(START + first, END + 60, seconds)


def without(times: Numbers, *holes: tuple[float, float]) -> Numbers:
    """Leave out what lies in the holes, given in seconds before the end."""
    for first, last in holes:
        times = times[(times < END - first) | (times >= END - last)]
    return times


def irregular(seed: int) -> Numbers:
    return START + np.cumsum(np.random.default_rng(seed).uniform(25, 40, 500))


# By node: when each of the servers that scrape it did.
NODES: dict[str, list[Numbers]] = {
    "regular": [every(30)],
    **{
        f"missed-{count}": [without(every(30), *((at, at - 30 * count) for at in (3300, 2200, 1100, 400)))]
        for count in range(1, 10)
    },
    "restart": [without(every(15), (1500, 1320))],
    "hour": [without(every(30), (5400, 3000))],
    "rare": [every(120)],
    **{f"irregular-{number}": [irregular(number)] for number in range(3)},
    "pair": [without(every(30, 3.5), (2000, 1400)), without(every(30, 21.5), (900, 500))],
    "resets": [every(30)],
}


def snapshot() -> ClusterSnapshot:
    pods = [
        make_pod(name, node=node, workload=f"Deployment/{name}", containers=[make_container("app")])
        for place, node in enumerate(NODES)
        for number in range(len(MILLICORES))
        for name in [f"{node}-{number}-{'bfjmqtx4'[(place + number) % 8]}"]
    ]
    return make_snapshot(pods, [make_node(node, 16_000) for node in NODES])


def write(path: Path) -> None:
    """Counters of constant use, of constant pressure for every other container."""
    with path.open("w") as file:
        for family, kind in (
            ("container_cpu_usage_seconds", "counter"),
            ("container_pressure_cpu_waiting_seconds", "counter"),
            ("container_memory_working_set_bytes", "gauge"),
        ):
            file.write(f"# TYPE {family} {kind}\n")
            for number, pod in enumerate(snapshot().pods):
                of_pod = MILLICORES[number % len(MILLICORES)] / 1000, WAITING * (number % 2)
                for server, times in enumerate(NODES[pod.node or ""]):
                    labels = f'namespace="{pod.namespace}",pod="{pod.name}",container="app",id="/{pod.name}",'
                    labels += f'node="{pod.node}",prometheus_replica="{server}"'
                    since = np.full(len(times), float(START - 5000))
                    if pod.node == "resets":
                        since[times > END - 1000] = END - 1000
                    values = {
                        "container_cpu_usage_seconds": (times - since) * of_pod[0],
                        "container_pressure_cpu_waiting_seconds": (times - since) * of_pod[1],
                        "container_memory_working_set_bytes": MEBIBYTE * (100 + times // 60 % 2),
                    }[family]
                    name = f"{family}_total" if kind == "counter" else family
                    file.writelines(
                        f"{name}{{{labels}}} {value:.3f} {at:.3f}\n"
                        for value, at in zip(values.tolist(), times.tolist(), strict=True)
                    )
        file.write("# EOF\n")


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    blocks = tmp_path_factory.mktemp("holes") / "blocks"
    make_blocks(write, blocks)
    with running_prometheus(blocks) as address:
        yield address


class Behind:
    """Passes queries on to a server whose samples come late: at a time `now`, it has those up to `late` before."""

    def __init__(self, address: str, late: int) -> None:
        self.address, self.late, self.now = address, late, END
        self.samples = 0

    def __call__(self, request: ReceivedHttpRequest) -> HttpAnswer:
        form = dict(request.form)
        first, last, newest = int(form["start"]), int(form["end"]), self.now - self.late
        body = self._ask(request.path, form | {"end": str(min(last, newest)), "stats": "all"})
        if last > newest:
            # Queries after the newest sample return it, for five minutes.
            form |= {"start": str(newest), "end": str(newest), "stats": "all"}
            latest = {
                str(one["metric"]): one["values"][-1][1] for one in self._ask(request.path, form)["data"]["result"]
            }
            later = [at for at in range(first, last + 1, 60) if newest < at <= newest + 300]
            body["data"]["result"] = [
                one | {"values": one["values"] + [[at, latest[name]] for at in later if name in latest]}
                for one in body["data"]["result"]
                for name in [str(one["metric"])]
            ]
        return HttpAnswer(body=json.dumps(body).encode())

    def _ask(self, path: str, form: dict[str, str]) -> dict[str, Any]:
        with urllib.request.urlopen(self.address + path, urllib.parse.urlencode(form).encode()) as response:
            body: dict[str, Any] = json.loads(response.read())
        self.samples += body["data"]["stats"]["samples"]["totalQueryableSamples"]
        return body


async def passes(
    address: str, plausible: bool = True, late: int = 30, only: str = ".*"
) -> tuple[StatisticsTable, float]:
    """Run the passes of an hour; return the last statistics, and the samples read a container and 15 minutes."""
    behind, state, store, cluster = Behind(address, late), UsageState(), InMemoryStore(), ReadOnlyCluster(snapshot())
    containers = sum(re.fullmatch(only, pod.node or "") is not None for pod in snapshot().pods)
    with answering(behind) as between:
        source = PrometheusUsageSource(PrometheusSettings(between, plausible=plausible, matchers=f'node=~"{only}"'))
        filled = 0
        for number in range(PASSES):
            behind.now = END - 300 * (PASSES - 1 - number) + 30
            now = datetime.fromtimestamp(behind.now, UTC)
            table = await run_usage_pass(cluster, source, store, state, Policy(), now, READING)
            assert state.failures == []
            filled = filled or behind.samples
        source.close()
    return table, (behind.samples - filled) / containers / (PASSES - 1) * 3


def errors(table: StatisticsTable) -> dict[str, float]:
    """By node, by which share the CPU statistics of its containers are off at most; what is not known is left out."""
    found: dict[str, float] = {}
    for number, pod in enumerate(snapshot().pods):
        truth = MILLICORES[number % len(MILLICORES)] * (1 + WAITING * (number % 2))
        row = table.row_of_container.get(ContainerKey(pod.namespace, pod.name, "app"))
        for figure in () if row is None else (table.cpu_base_millicores[row], table.cpu_peak_millicores[row]):
            found[pod.node or ""] = max(found.get(pod.node or "", 0.0), abs(int(figure) - truth) / truth)
    return found


@pytest.fixture(scope="module")
def first_design(prometheus: str) -> tuple[StatisticsTable, float]:
    return asyncio.run(passes(prometheus, plausible=False))


async def test_as_first_designed_every_hole_makes_a_peak(first_design: tuple[StatisticsTable, float]) -> None:
    off = errors(first_design[0])
    assert off["regular"] < 0.01
    assert [round(1 + off[f"missed-{count}"], 1) for count in (1, 2, 4, 9)] == [1.7, 2.5, 4.4, 8.5]
    assert min(off[f"irregular-{number}"] for number in range(3)) > 0.3
    assert off["pair"] > 0.3
    assert off["restart"] > 5


@pytest.mark.parametrize("late", [30, 150])
async def test_statistics_are_those_of_the_use_whatever_the_scrapes_were(
    prometheus: str, late: int, first_design: tuple[StatisticsTable, float]
) -> None:
    """Also if every sample arrives two minutes later than the initial scrape delay."""
    table, samples = await passes(prometheus, late=late)
    off = errors(table)
    assert set(off) == set(NODES)
    assert {node: share for node, share in off.items() if share > 0.1} == {}
    steady = {node: share for node, share in off.items() if not node.startswith("irregular")}
    assert {node: share for node, share in steady.items() if share >= 0.01} == {}
    # When nodes in trouble were scraped, all but two, is asked for in place of the pressure of one of their pods.
    assert samples <= first_design[1]


async def test_regular_scrapes_cost_no_sample_more(prometheus: str) -> None:
    _, samples = await passes(prometheus, only="regular")
    assert 44 < samples <= 45

"""The cost of statistics for a real Prometheus, in samples counted per container, compared with CruiseKube.

The engine counts the samples of selectors, and of subqueries only their results, after `max by (workload)`: so the
count per container of CruiseKube's queries decreases with the pods of its workload. There are 2.6 of them here, which
gives the measured count; the samples loaded within subqueries are not counted.
"""

import asyncio
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import structlog

from benchmarks.cruisekube_queries import Query, statistics_pass
from benchmarks.table import BenchmarkRow
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.adapters.prometheus.source import PrometheusUsageSource
from cruise.domain.cluster import ClusterSnapshot, Container, Node, Pod, WorkloadRef
from cruise.domain.policy import Policy
from cruise.domain.resources import Resources
from cruise.runtime.usage.usage_pass import run_usage_pass
from cruise.runtime.usage.usage_state import UsageState
from cruise.simulation.store import InMemoryStore
from tests import cadvisor
from tests.cadvisor import DAY, ContainerLifetime, ContainerLocation
from tests.http_server import HttpAnswer, ReceivedHttpRequest, answering
from tests.prometheus_server import make_blocks, running_prometheus
from tests.shown_cluster import ReadOnlyCluster

NAME = "prometheus-cost"
# A first fill at this time reads the longest history.
END = 1_767_269_640
START = END - 8 * DAY
QUARTER = 900
SCRAPE_SECONDS = 30
NAMESPACES = 2
REPLICAS = (1, 2, 3, 3, 4)
CONTAINERS = NAMESPACES * sum(REPLICAS)
# A statistics pass of CruiseKube at commit 94de669, as measured: samples a container, 30 s scrapes, 8 days of history.
MEASURED_PASS = 31_100


def run() -> list[BenchmarkRow]:
    """Measure the samples loaded per container, in the first fill and in 15 minutes of passes."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    with tempfile.TemporaryDirectory() as directory:
        blocks = Path(directory) / "blocks"
        make_blocks(_write_cluster, blocks)
        with running_prometheus(blocks) as address:
            fill, quarter = asyncio.run(_ours(address))
            theirs = _theirs(address)
    measured = f"{MEASURED_PASS:,} of a CruiseKube pass"
    return [
        BenchmarkRow(NAME, "15 minutes of passes", quarter, "samples/container", measured, quarter / MEASURED_PASS),
        BenchmarkRow(NAME, "limit of the same", MEASURED_PASS / 500, "samples/container", measured, 1 / 500),
        BenchmarkRow(NAME, "first fill of 7 days", fill, "samples/container", measured, fill / MEASURED_PASS),
        BenchmarkRow(
            NAME,
            "CruiseKube's queries, sent here",
            theirs,
            "samples/container",
            measured,
            theirs / MEASURED_PASS,
        ),
        BenchmarkRow(
            NAME, "15 minutes next to these queries", quarter, "samples/container", "sent here", quarter / theirs
        ),
    ]


async def _ours(address: str) -> tuple[float, float]:
    loaded: list[int] = []
    store, state = InMemoryStore(), UsageState()
    with _counting(address, loaded.append) as counted:
        source = PrometheusUsageSource(PrometheusSettings(counted))
        costs = []
        for at in (END - QUARTER, END - 600, END - 300, END):
            before = sum(loaded)
            now = datetime.fromtimestamp(at + 30, UTC)
            await run_usage_pass(ReadOnlyCluster(_snapshot()), source, store, state, Policy(), now)
            costs.append(sum(loaded) - before)
            if state.failures:
                raise RuntimeError(f"{state.failures}")
        source.close()
    return costs[0] / CONTAINERS, sum(costs[1:]) / CONTAINERS


def _theirs(address: str) -> float:
    return sum(_cost(address, query) for number in range(NAMESPACES) for query in statistics_pass(f"team-{number}")) / (
        CONTAINERS
    )


def _cost(address: str, query: Query) -> int:
    form: dict[str, str | int] = {"query": query.text}
    if query.step:
        form |= {"start": END - query.span, "end": END, "step": query.step}
        return _asked(address, "/api/v1/query_range", form)[1]
    return _asked(address, "/api/v1/query", form | {"time": END})[1]


def _asked(address: str, path: str, form: dict[str, str | int]) -> tuple[bytes, int]:
    """Send a query with statistics; return the response and the samples that the engine loaded."""
    text = urllib.parse.urlencode({**form, "stats": "all"}).encode()
    with urllib.request.urlopen(address + path, text, timeout=300) as response:
        body = response.read()
    return body, int(msgspec.json.decode(body)["data"]["stats"]["samples"]["totalQueryableSamples"])


@contextmanager
def _counting(address: str, add: Callable[[int], None]) -> Iterator[str]:
    def respond(request: ReceivedHttpRequest) -> HttpAnswer:
        body, samples = _asked(address, request.path, dict(request.form))
        add(samples)
        return HttpAnswer(body=body)

    with answering(respond) as counted:
        yield counted


def _snapshot() -> ClusterSnapshot:
    pods = [
        Pod(
            f"team-{namespace}",
            f"web-{workload}-7d9f8b6c5d-xx{namespace + 4}{'bcdfg'[workload]}{'hjkm'[number]}",
            f"uid-{namespace}-{workload}-{number}",
            (Container("app"),),
            node="node-1",
            workload=WorkloadRef("Deployment", f"web-{workload}"),
        )
        for namespace in range(NAMESPACES)
        for workload, replicas in enumerate(REPLICAS)
        for number in range(replicas)
    ]
    return ClusterSnapshot(nodes=(Node("node-1", Resources(16_000, 2**36)),), pods=tuple(pods))


def _write_cluster(path: Path) -> None:
    """Eight days of usage as kubelets and kube-state-metrics expose it, scraped every 30 s."""
    pods = _snapshot().pods
    demands = cadvisor.demands(len(pods), START, 8 * DAY // 60, seed=9)
    series = []
    for number, (pod, demand) in enumerate(zip(pods, demands, strict=True)):
        place = ContainerLocation(pod.namespace, pod.name, "app", "node-1", SCRAPE_SECONDS, 3.5 + number)
        times = cadvisor.scrape_times(place, [(START, END + 1, None)])
        series += cadvisor.scrape(place, ContainerLifetime(START, END + 1), demand, times)
    cadvisor.write_openmetrics(series, path, job="kubelet")
    text = path.read_text().removesuffix("# EOF\n")
    with path.open("w") as file:
        file.write(text)
        file.write("# TYPE kube_pod_info gauge\n")
        for pod in pods:
            labels = (
                f'created_by_kind="ReplicaSet",created_by_name="{pod.name[:-6]}",job="kube-state-metrics",'
                f'namespace="{pod.namespace}",node="node-1",pod="{pod.name}"'
            )
            file.write("".join(f"kube_pod_info{{{labels}}} 1 {at}\n" for at in range(START, END + 1, SCRAPE_SECONDS)))
        file.write("# EOF\n")

"""The usage source against a fake server."""

import asyncio
import json
import re
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from cruise.adapters.prometheus.seen_pods import PARTITIONS
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.adapters.prometheus.source import PrometheusUsageSource
from cruise.domain.usage import ContainerKey
from cruise.errors import BadInputError, ThrottledError, UnavailableError
from tests.builders import make_container, make_node, make_pod, make_snapshot
from tests.http_server import HttpAnswer, ReceivedHttpRequest, answering

PARTITION = "pods-ending-bcd0"
CPU, WAITING, MEMORY = (
    "container_cpu_usage_seconds_total",
    "container_pressure_cpu_waiting_seconds_total",
    "container_memory_working_set_bytes",
)
EMPTY = HttpAnswer(body=b'{"status":"success","data":{"resultType":"matrix","result":[]}}')


def asked(request: ReceivedHttpRequest) -> tuple[str, str, int, int]:
    """The metric, the pods' expression, and the first and last time of a query."""
    found = re.search(r"\b(\w+)\{.*pod=~\"(.*)\"\}$", request.form["query"])
    assert found is not None
    return found.group(1), found.group(2), int(request.form["start"]), int(request.form["end"])


def matrix(*pods: str, value: Callable[[int], float], first: int, last: int) -> HttpAnswer:
    values = [[at, str(value(at))] for at in range(first, last + 1, 60)]
    names = [{"namespace": "shop", "pod": pod, "container": "app", "id": "/1", "node": "n1"} for pod in pods]
    result = [{"metric": name, "values": values} for name in names]
    return HttpAnswer(
        body=json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()
    )


def steady(*pods: str) -> Callable[[ReceivedHttpRequest], HttpAnswer]:
    """Return a tenth of a core and a mebibyte for each queried pod."""

    def respond(request: ReceivedHttpRequest) -> HttpAnswer:
        metric, expression, first, last = asked(request)
        chosen = [pod for pod in pods if re.fullmatch(expression, pod)]
        values: dict[str, Callable[[int], float]] = {
            CPU: lambda at: at / 10,
            WAITING: lambda at: at / 100,
            MEMORY: lambda at: 2.0**20,
        }
        return matrix(*chosen, value=values[metric], first=first, last=last)

    return respond


@asynccontextmanager
async def source(
    respond: Callable[[ReceivedHttpRequest], HttpAnswer], *pods: str, **settings: Any
) -> AsyncIterator[PrometheusUsageSource]:
    snapshot = make_snapshot([make_pod(pod, containers=[make_container()]) for pod in pods], [make_node("n1", 4000)])
    with answering(respond) as url:
        subject = PrometheusUsageSource(PrometheusSettings(url, **settings))
        await subject.list_partitions(snapshot)
        yield subject
        subject.close()


async def test_a_read_sends_three_queries_for_its_own_minutes():
    requests: list[ReceivedHttpRequest] = []

    def respond(request: ReceivedHttpRequest) -> HttpAnswer:
        requests.append(request)
        return steady("web-b")(request)

    async with source(respond, "web-b") as subject:
        block, tail = await subject.read(PARTITION, 600, 900, None)
    assert [asked(request) for request in requests] == [
        (metric, ".*[bcd0]", 660, 900) for metric in (CPU, WAITING, MEMORY)
    ]
    assert block.keys == [ContainerKey("shop", "web-b", "app")]
    # How old the first counter is is not known, so it does not count either.
    np.testing.assert_allclose(block.cpu_demand_millicores, [[np.nan] * 2 + [101] * 3])
    assert block.psi_known.tolist() == [True]
    assert list(block.nodes) == ["n1"]
    assert tail is not None
    assert (tail.at, tail.cpu_seconds.tolist(), tail.cpu_waiting_seconds.tolist()) == (900, [90], [9])


async def test_splits_a_large_partition_into_several_queries():
    pods = [f"web-7d9f8b6c5d-{letters}" for letters in ("bcdfb", "bcdfc", "xxx2b", "xxx4b", "zzzzd")]
    limits: list[dict[str, Any]] = [{"max_series_per_query": 2}, {"max_samples_per_query": 10}]
    for limit in limits:
        expressions: list[str] = []

        def respond(request: ReceivedHttpRequest, seen: list[str] = expressions) -> HttpAnswer:
            seen.append(asked(request)[1])
            return steady(*pods)(request)

        async with source(respond, *pods, **limit) as subject:
            block, tail = await subject.read(PARTITION, 600, 900, None)
            more, _ = await subject.read(PARTITION, 900, 960, tail)
        assert len(set(expressions)) >= 3
        assert sorted(key.pod for key in block.keys) == sorted(pods)
        assert set(more.keys) == set(block.keys)
        np.testing.assert_allclose(more.cpu_demand_millicores, [[101]] * 5)


async def test_no_more_queries_are_under_way_than_allowed():
    running, max_running, lock = [0], [0], threading.Lock()

    def respond(request: ReceivedHttpRequest) -> HttpAnswer:
        with lock:
            running[0] += 1
            max_running[0] = max(max_running[0], running[0])
        time.sleep(0.02)
        with lock:
            running[0] -= 1
        return EMPTY

    async with source(respond, concurrency=2) as subject:
        async with asyncio.TaskGroup() as group:
            for partition in PARTITIONS:
                group.create_task(subject.read(partition, 600, 900, None))
    assert max_running[0] == 2


async def test_reports_the_failure_that_the_user_can_fix():
    def respond(request: ReceivedHttpRequest) -> HttpAnswer:
        if "c" in asked(request)[1]:
            return HttpAnswer(400, b'{"status":"error","error":"unknown function"}')
        return HttpAnswer(503)

    async with source(respond, "web-b", "web-c", max_series_per_query=1) as subject:
        with pytest.raises(BadInputError, match="unknown function"):
            await subject.read(PARTITION, 600, 900, None)


async def test_quotes_a_server_that_throttles():
    async with source(lambda request: HttpAnswer(429, headers={"Retry-After": "3"})) as subject:
        with pytest.raises(ThrottledError) as caught:
            await subject.read(PARTITION, 600, 900, None)
    assert caught.value.retry_after_seconds == 3


async def test_missing_usage_of_running_pods_is_unavailable():
    gone = [False]

    def respond(request: ReceivedHttpRequest) -> HttpAnswer:
        return EMPTY if gone[0] else steady("web-b")(request)

    async with source(respond, "web-b") as subject:
        _, tail = await subject.read(PARTITION, 600, 900, None)
        gone[0] = True
        with pytest.raises(UnavailableError, match="no usage since 1970-01-01 00:15 UTC of running containers"):
            await subject.read(PARTITION, 900, 1200, tail)
        await subject.list_partitions(make_snapshot())
        for start in (900, 1200):
            block, tail = await subject.read(PARTITION, start, start + 300, tail)
        assert (list(block.keys), tail is not None and list(tail.keys)) == ([], [])


async def test_an_empty_answer_is_none_where_nothing_was_known():
    async with source(lambda request: EMPTY, "web-b") as subject:
        block, tail = await subject.read(PARTITION, 600, 900, None)
    assert block.cpu_demand_millicores.shape == block.memory_bytes.shape == (0, 5)
    assert tail is not None
    assert list(tail.keys) == []


async def test_series_without_the_labels_are_reported_with_their_names():
    def respond(request: ReceivedHttpRequest) -> HttpAnswer:
        _, _, first, last = asked(request)
        return matrix("", value=float, first=first, last=last)

    async with source(respond, "web-b") as subject:
        with pytest.raises(BadInputError, match="lack a label namespace, pod or container: set the label names"):
            await subject.read(PARTITION, 600, 900, None)


@pytest.mark.parametrize(("counted", "known"), [(239.0, True), (241.0, False)])
async def test_the_cores_of_the_largest_node_bound_what_a_restarted_container_used(counted, known):
    def respond(request: ReceivedHttpRequest) -> HttpAnswer:
        metric, _, first, last = asked(request)
        if metric != CPU:
            return steady("web-b")(request)
        counters = {660: 1000.0, 720: 1010.0, 780: counted, 840: counted + 4}
        return matrix("web-b", value=counters.__getitem__, first=first, last=last)

    async with source(respond, "web-b") as subject:
        block, _ = await subject.read(PARTITION, 600, 840, None)
    assert np.isnan(block.cpu_demand_millicores).tolist() == [[True, True, not known, False]]


@pytest.mark.parametrize(("partition", "start", "end"), [("shop", 0, 60), (PARTITION, 30, 60), (PARTITION, 0, 90)])
async def test_rejects_unknown_partitions_and_times_off_the_grid(partition, start, end):
    async with source(lambda request: EMPTY) as subject:
        with pytest.raises(ValueError, match="cannot read"):
            await subject.read(partition, start, end, None)


async def test_a_tail_only_continues_at_its_end():
    async with source(steady("web-b"), "web-b") as subject:
        _, tail = await subject.read(PARTITION, 600, 900, None)
        with pytest.raises(ValueError, match="cannot read"):
            await subject.read(PARTITION, 960, 1200, tail)


async def test_node_loads_are_by_node_or_by_the_instances_host():
    def respond(request: ReceivedHttpRequest) -> HttpAnswer:
        rows = [
            ({"node": "n1", "instance": "10.0.0.1:9100"}, "1.5"),
            ({"node": "n1", "instance": "10.0.0.9:9100"}, "1.4"),
            ({"instance": "n2:9100"}, "2"),
            ({"instance": "n3"}, "3"),
            ({"instance": "n4:9100"}, "NaN"),
            ({}, "7"),
        ]
        result = [{"metric": metric, "value": [600, value]} for metric, value in rows]
        return HttpAnswer(
            body=json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()
        )

    async with source(respond) as subject:
        loads = await subject.read_node_loads(600)
        assert {node: sample.load1 for node, sample in loads.items()} == {"n1": 1.5, "n2": 2.0, "n3": 3.0}


@pytest.mark.parametrize("step", [0, 7, 7200])
def test_a_step_that_does_not_divide_an_hour_is_refused(step):
    with pytest.raises(BadInputError, match="prometheus_step"):
        PrometheusUsageSource(PrometheusSettings("http://prometheus", step_seconds=step))


@pytest.mark.parametrize("limit", [1, 3, 10])
async def test_a_server_with_a_lower_series_limit_gets_smaller_queries(limit: int) -> None:
    pods = [f"web-7d9f8b6c5d-{letters}b" for letters in ("bcdf", "cfgh", "dxxx", "fzzz", "gkkk", "hmmm")]
    queried: list[int] = []

    def respond(request: ReceivedHttpRequest) -> HttpAnswer:
        _, expression, _, _ = asked(request)
        queried.append(sum(re.fullmatch(expression, pod) is not None for pod in pods))
        if queried[-1] > limit:
            said = {
                "status": "error",
                "error": f"the query hit the max number of series limit (limit: {limit} series)",
            }
            return HttpAnswer(422, json.dumps(said).encode())
        return steady(*pods)(request)

    async with source(respond, *pods) as subject:
        block, tail = await subject.read(PARTITION, 600, 900, None)
        assert sorted(key.pod for key in block.keys) == pods
        # It is known from then on.
        del queried[:]
        await subject.read(PARTITION, 900, 960, tail)
    assert max(queried) <= limit


async def test_a_server_that_takes_no_query_is_quoted_with_the_settings() -> None:
    body = b'{"status":"error","error":"query processing would load too many samples into memory in query execution"}'
    async with source(lambda request: HttpAnswer(422, body), "web-b", "web-xb") as subject:
        with pytest.raises(
            BadInputError, match=r"too many samples into memory.*: lower prometheus_max_samples_per_query"
        ):
            await subject.read(PARTITION, 600, 900, None)


@pytest.mark.parametrize("limit", [11_000 // 60, 100])
async def test_a_server_with_a_shorter_range_limit_gets_shorter_queries(limit: int) -> None:
    def respond(request: ReceivedHttpRequest) -> HttpAnswer:
        _, _, first, last = asked(request)
        if (last - first) // 60 + 1 > limit:
            return HttpAnswer(
                400, b'{"status":"error","error":"exceeded maximum resolution of 11,000 points per time"}'
            )
        return steady("web-b", "web-c")(request)

    async with source(respond, "web-b", "web-c") as subject:
        block, tail = await subject.read(PARTITION, 0, 86_400, None)
    assert len(block.keys) == 2
    np.testing.assert_allclose(block.cpu_demand_millicores[:, 2:], 101)
    assert (block.memory_bytes == 2.0**20).all()
    assert tail is not None
    assert len(tail.keys) == 2

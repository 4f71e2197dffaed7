"""Reading a recording: which errors are retried, and which end it."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial

import numpy as np
import pytest

from cruise.adapters.prometheus.client import PrometheusClient
from cruise.adapters.prometheus.recording import RecordingReader, retry_when_unavailable
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.adapters.prometheus.source import PrometheusUsageSource
from cruise.domain.usage import ContainerKey
from cruise.errors import BadInputError, CruiseError, ThrottledError, UnavailableError, UnreachableError
from tests import cadvisor
from tests.builders import make_snapshot
from tests.cadvisor import ContainerLifetime, ContainerLocation
from tests.http_server import HttpAnswer, ReceivedHttpRequest, answering
from tests.prometheus_server import make_blocks, running_prometheus

KEY = ContainerKey("shop", "web-b", "app")
NAME = {"namespace": "shop", "pod": "web-b", "container": "app", "id": "/1", "node": "n1"}


def respond(request: ReceivedHttpRequest) -> HttpAnswer:
    """A tenth of a core, and a mebibyte."""
    if request.path.endswith("/series"):
        return answer([NAME | {"__name__": "container_cpu_usage_seconds_total"}])
    query, first, last = request.form["query"], int(request.form["start"]), int(request.form["end"])
    if "bcd0" not in query or "pressure" in query:
        return answer({"resultType": "matrix", "result": []})
    values = [[at, str(at / 10 if "cpu" in query else 2**20)] for at in range(first, last + 1, 60)]
    return answer({"resultType": "matrix", "result": [{"metric": NAME, "values": values}]})


def answer(data: object) -> HttpAnswer:
    return HttpAnswer(body=json.dumps({"status": "success", "data": data}).encode())


class Failing:
    """Answers as `respond` does, but fails once, at the first query for `what`."""

    def __init__(self, failure: HttpAnswer, what: str = "/query_range") -> None:
        self.failure, self.what, self.asked = failure, what, 0

    def __call__(self, request: ReceivedHttpRequest) -> HttpAnswer:
        self.asked += request.path.endswith(self.what)
        return self.failure if self.asked == 1 and request.path.endswith(self.what) else respond(request)


def read(respond: Callable[[ReceivedHttpRequest], HttpAnswer]) -> np.ndarray:
    with answering(respond) as url, closing(RecordingReader(PrometheusSettings(url), 0, 600)) as reader:
        assert reader.list_containers() == [KEY]
        cpu, memory = reader.read([KEY])
    assert memory.tolist() == [[2**20]] * 10
    return cpu


def waited(ask: Callable[[], bytes], failure: type[CruiseError], answered: bool) -> list[float]:
    """Query an unavailable server, and return the waits."""
    waits: list[float] = []
    with pytest.raises(failure):
        retry_when_unavailable(ask, waits.append, answered=answered)
    return waits


def test_every_step_has_its_use_the_first_included() -> None:
    np.testing.assert_allclose(read(respond), [[100]] * 10, rtol=1e-6)


def test_repeats_a_query_that_failed_temporarily() -> None:
    assert len(read(Failing(HttpAnswer(503)))) == 10
    with pytest.raises(BadInputError, match="requires credentials"):
        read(Failing(HttpAnswer(401)))


@pytest.mark.parametrize("moment", [HttpAnswer(503), HttpAnswer(429, headers={"Retry-After": "0"})])
def test_repeats_the_first_query_too(moment: HttpAnswer) -> None:
    assert len(read(Failing(moment, "/series"))) == 10


@pytest.mark.parametrize(
    "wrong", [HttpAnswer(404), HttpAnswer(401), HttpAnswer(302, headers={"Location": "http://other"})]
)
def test_does_not_repeat_a_permanent_failure(wrong: HttpAnswer) -> None:
    failing = Failing(wrong, "/series")
    with pytest.raises(BadInputError):
        read(failing)
    assert failing.asked == 1


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "http://prometheus.invalid"])
def test_fails_immediately_if_the_first_query_cannot_connect(url: str) -> None:
    with closing(PrometheusClient(PrometheusSettings(url))) as client:
        waits = waited(partial(client.query, "up", 0), UnreachableError, answered=False)
    assert waits == []


@pytest.mark.parametrize(
    ("failure", "waits"),
    [
        (UnavailableError("away"), [1, 5]),
        (UnreachableError("restarting"), [1, 5]),
        (ThrottledError("slow", 7), [7, 7]),
        (ThrottledError("slow", 9999), [60, 60]),
        (ThrottledError("slow"), [1, 5]),
        (BadInputError("no"), []),
    ],
)
@pytest.mark.parametrize("answered", [True, False])
def test_stops_after_repeated_failures(failure: CruiseError, waits: list[float], answered: bool) -> None:
    def ask() -> bytes:
        raise failure

    wrong = isinstance(failure, UnreachableError) and not answered
    assert waited(ask, type(failure), answered) == ([] if wrong else waits)


START = 1_700_000_040
MINUTES = 90


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Containers scraped off the grid, with pressure, one restarted, one reset, one created late, one deleted early."""
    lives = [
        ContainerLifetime(START - 600, START + 60 * MINUTES),
        ContainerLifetime(START - 600, START + 60 * MINUTES, restarts=(START + 1805,)),
        ContainerLifetime(START - 600, START + 60 * MINUTES, resets=(START + 2405,), pressure="absent"),
        ContainerLifetime(START + 1207, START + 60 * MINUTES),
        ContainerLifetime(START - 600, START + 3001),
    ]
    series = []
    demands = cadvisor.demands(len(lives), START - 600, MINUTES + 20, seed=3)
    for number, life in enumerate(lives):
        place = ContainerLocation("shop", f"web-{number}", "app", f"n{number % 2}", 15, 2.5 + number)
        times = cadvisor.scrape_times(place, [(START - 600, START + 60 * MINUTES, None)])
        series += cadvisor.scrape(place, life, next(demands), times)
    blocks = tmp_path_factory.mktemp("scraped") / "blocks"
    make_blocks(lambda path: cadvisor.write_openmetrics(series, path), blocks)
    with running_prometheus(blocks) as address:
        yield address


@pytest.mark.parametrize(("most_samples", "by_get"), [(1_000_000, False), (40, True), (7, False)])
async def test_reads_what_the_controller_would_have_read(scraped: str, most_samples: int, by_get: bool) -> None:
    """The controller reads the time at once, the recording in as small pieces as it must."""
    settings = PrometheusSettings(scraped, max_samples_per_query=most_samples, uses_get=by_get)
    end = START + 60 * (MINUTES - 1)
    with closing(RecordingReader(settings, START, end)) as reader:
        containers = reader.list_containers()
        cpu, memory = reader.read(containers)
    assert [key.pod for key in containers] == [f"web-{number}" for number in range(5)]
    expected_cpu, expected_memory = np.full_like(cpu, np.nan), np.full_like(memory, np.nan)
    with closing(PrometheusUsageSource(PrometheusSettings(scraped))) as source:
        for partition in await source.list_partitions(make_snapshot()):
            block, _ = await source.read(partition, START - 120, end, None)
            for row, key in enumerate(block.keys):
                column = containers.index(key)
                # The two minutes up to the start are read for the counters at the start.
                expected_cpu[:, column] = block.cpu_demand_millicores[row, 2:]
                expected_memory[:, column] = block.memory_bytes[row, 2:]
    np.testing.assert_array_equal(cpu, expected_cpu)
    np.testing.assert_array_equal(memory, expected_memory)
    assert np.isnan(cpu).any(axis=0).tolist() == [False, False, False, True, True]


def test_times_off_the_grid_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="cannot read from 30"):
        RecordingReader(PrometheusSettings("http://prometheus"), 30, 600)

"""Reading a recording: what is asked again, and what is given up."""

import json
from collections.abc import Callable
from contextlib import closing

import numpy as np
import pytest

from cruise.adapters.prometheus.recording import RecordingReader, patiently
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.domain.usage import ContainerKey
from cruise.errors import BadInput, CruiseError, Throttled, Unavailable
from tests.http_server import Answer, Request, answering

KEY = ContainerKey("shop", "web-b", "app")
NAME = {"namespace": "shop", "pod": "web-b", "container": "app", "id": "/1", "node": "n1"}


def respond(request: Request) -> Answer:
    """A tenth of a core, and a mebibyte."""
    if request.path.endswith("/series"):
        return answer([NAME | {"__name__": "container_cpu_usage_seconds_total"}])
    query, first, last = request.form["query"], int(request.form["start"]), int(request.form["end"])
    if "bcd0" not in query or "pressure" in query:
        return answer({"resultType": "matrix", "result": []})
    values = [[at, str(at / 10 if "cpu" in query else 2**20)] for at in range(first, last + 1, 60)]
    return answer({"resultType": "matrix", "result": [{"metric": NAME, "values": values}]})


def answer(data: object) -> Answer:
    return Answer(body=json.dumps({"status": "success", "data": data}).encode())


class Failing:
    """Answers as `respond` does, but fails some times in a row at first."""

    def __init__(self, failure: Answer, times: int) -> None:
        self.failure, self.left = failure, times

    def __call__(self, request: Request) -> Answer:
        if self.left:
            self.left -= 1
            return self.failure
        return respond(request)


def read(respond: Callable[[Request], Answer]) -> np.ndarray:
    with answering(respond) as url, closing(RecordingReader(PrometheusSettings(url), 0, 600)) as reader:
        assert reader.containers() == [KEY]
        cpu, memory = reader.read([KEY])
    assert memory.tolist() == [[2**20]] * 10
    return cpu


def test_every_step_has_its_use_the_first_included() -> None:
    np.testing.assert_allclose(read(respond), [[100]] * 10, rtol=1e-6)


def test_what_fails_for_a_moment_is_asked_again() -> None:
    assert len(read(Failing(Answer(503), 1))) == 10
    with pytest.raises(BadInput, match="asks for credentials"):
        read(Failing(Answer(401), 1))


@pytest.mark.parametrize(
    ("failure", "waits"),
    [
        (Unavailable("away"), [1, 5]),
        (Throttled("slow", 7), [7, 7]),
        (Throttled("slow", 9999), [60, 60]),
        (Throttled("slow"), [1, 5]),
        (BadInput("no"), []),
    ],
)
def test_what_goes_on_failing_is_given_up_after_a_while(failure: CruiseError, waits: list[float]) -> None:
    waited: list[float] = []

    def ask() -> None:
        raise failure

    with pytest.raises(type(failure)):
        patiently(ask, waited.append)
    assert waited == waits


def test_times_off_the_grid_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="cannot read from 30"):
        RecordingReader(PrometheusSettings("http://prometheus"), 30, 600)

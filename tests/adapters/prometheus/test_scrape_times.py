"""Scrape times of nodes, from a fake server."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import numpy as np

from cruise.adapters.prometheus.client import PrometheusClient
from cruise.adapters.prometheus.scrape_times import ScrapeTimes
from cruise.adapters.prometheus.settings import PrometheusSettings
from tests.builders import make_container, make_node, make_pod, make_snapshot
from tests.http_server import HttpAnswer, ReceivedHttpRequest, answering

FIRST, LAST = 6000, 6120


def snapshot():
    """Return two nodes; the web pods have unique names and one container."""
    pods = [
        make_pod("db-0", node="n1"),
        make_pod("db-0", namespace="other", node="n2"),
        make_pod("web-a", node="n1"),
        make_pod("web-b", node="n1"),
        make_pod("web-c", node="n1", containers=[make_container("app"), make_container("proxy")]),
        make_pod("web-d", node="n2"),
        make_pod("web-e", node="n2", phase="Pending"),
    ]
    return make_snapshot(pods, [make_node("n1"), make_node("n2")])


def answer_of(request: ReceivedHttpRequest, age: Callable[[str], float]) -> HttpAnswer:
    """The answer of a server that scraped each pod so many seconds before a grid time."""
    query, first, last = request.form["query"], int(request.form["start"]), int(request.form["end"])
    pods = [(pod.node, pod.name) for pod in snapshot().pods if f"{pod.name}" in query]
    result = [
        {
            "metric": {"node": node, "pod": pod},
            "values": [[at, str(at - age(pod))] for at in range(first, last + 1, 60)],
        }
        for node, pod in pods
    ]
    body = {"status": "success", "data": {"resultType": "matrix", "result": result}}
    return HttpAnswer(body=json.dumps(body).encode())


@contextmanager
def asking(age: Callable[[str], float], requests: list[str]) -> Iterator[Callable[..., dict[str, list[float]]]]:
    """A server that scraped each pod so many seconds before a grid time, and its client."""

    def respond(request: ReceivedHttpRequest) -> HttpAnswer:
        requests.append(request.form["query"])
        return answer_of(request, age)

    with answering(respond) as url:
        settings = PrometheusSettings(url)
        with closing(PrometheusClient(settings)) as client:
            subject = ScrapeTimes(settings, client)
            subject.choose_pods(snapshot())

            def ask(*nodes: str, first: int = FIRST, last: int = LAST) -> dict[str, list[float]]:
                found = subject.read_ages(settings, nodes, first, last)
                return {node: ages.tolist() for node, ages in found.items()}

            yield ask


def test_one_pod_represents_a_node_if_two_agreed_within_the_hour():
    requests: list[str] = []
    with asking(lambda pod: 12.5, requests) as ask:
        assert ask("n1") == {"n1": [12.5] * 3}
        assert ask("n1", first=LAST, last=LAST + 60) == {"n1": [12.5] * 2}
        ask("n1", first=LAST + 3600, last=LAST + 3660)
    two, one = 'pod=~"web-a|web-b"', 'pod=~"web-a"'
    assert [two in query for query in requests] == [True, False, False, True, False]
    assert [one in query for query in requests] == [False, True, True, False, True]


def test_queries_a_time_range_once_and_only_for_irregular_nodes():
    requests: list[str] = []
    with asking(lambda pod: 3.0, requests) as ask:
        ask("n1")
        assert ask("n1", "n2") == {"n1": [3.0] * 3, "n2": [3.0] * 3}
        assert ask("n2", "gone") == {"n2": [3.0] * 3}
    assert len(requests) == 4
    assert not any("web-a" in query for query in requests[2:])


def test_containers_with_different_times_are_checked_once_an_hour():
    requests: list[str] = []
    with asking(lambda pod: 9.0 if pod == "web-a" else 14.0, requests) as ask:
        assert ask("n1") == {}
        assert ask("n1", first=LAST, last=LAST + 60) == {}
        assert len(requests) == 1
        ask("n1", first=LAST + 3600, last=LAST + 3660)
        assert len(requests) == 2


def test_reads_usage_although_scrape_times_are_unavailable():
    with answering(lambda request: HttpAnswer(503)) as url:
        settings = PrometheusSettings(url)
        with closing(PrometheusClient(settings)) as client:
            subject = ScrapeTimes(settings, client)
            subject.choose_pods(snapshot())
            assert subject.read_ages(settings, ["n1"], FIRST, LAST) == {}


def test_an_id_that_lingers_does_not_hide_the_scrapes_of_the_new_one():
    def respond(request: ReceivedHttpRequest) -> HttpAnswer:
        times = range(int(request.form["start"]), int(request.form["end"]) + 1, 60)
        result = [
            {"metric": {"node": "n1", "pod": "web-a", "container": "app", "id": id_}, "values": values}
            for id_, values in (
                ("/old", [[at, str(FIRST - 5)] for at in times]),
                ("/new", [[at, str(at - 7)] for at in times if at > FIRST]),
            )
        ]
        body = {"status": "success", "data": {"resultType": "matrix", "result": result}}
        return HttpAnswer(body=json.dumps(body).encode())

    with answering(respond) as url:
        settings = PrometheusSettings(url)
        with closing(PrometheusClient(settings)) as client:
            subject = ScrapeTimes(settings, client)
            subject.choose_pods(make_snapshot([make_pod("web-a", node="n1")], [make_node("n1")]))
            assert subject.read_ages(settings, ["n1"], FIRST, LAST)["n1"].tolist() == [5, 7, 7]


def test_ages_are_numbers_where_there_was_a_scrape():
    with asking(lambda pod: float("nan"), []) as ask:
        assert np.isnan(ask("n1")["n1"]).all()


def test_skips_the_pressure_of_one_pod_after_the_other():
    """Of five steps: five samples a pass, but for the first, which asks for one step more and looks at two pods."""
    skipped_pods = []
    with answering(lambda request: answer_of(request, lambda pod: 12.5)) as url:
        settings = PrometheusSettings(url)
        with closing(PrometheusClient(settings)) as client:
            subject = ScrapeTimes(settings, client)
            for number in range(5):
                subject.choose_pods(snapshot())
                skipped_pods.append(sorted(subject.skip(".*", 5)))
                first = FIRST + 300 * number
                subject.read_ages(settings, ["n1", "n2"], first - 60, first + 240)
    # Two pods are called db-0, and what n2 runs besides is one: its pressure would never be read.
    assert skipped_pods == [[], ["web-a", "web-b"], ["web-c"], ["web-a"], ["web-b"]]


def test_does_not_count_a_long_read():
    with answering(lambda request: answer_of(request, lambda pod: 12.5)) as url:
        settings = PrometheusSettings(url)
        with closing(PrometheusClient(settings)) as client:
            subject = ScrapeTimes(settings, client)
            subject.choose_pods(snapshot())
            subject.read_ages(settings, ["n1"], FIRST, FIRST + 86_400)
            subject.choose_pods(snapshot())
            # Two samples are for the look at a second pod.
            assert len(subject.skip(".*", 5)) == 1
            assert subject.skip(".*", 1440) == ()
            assert subject.skip("nobody", 5) == []


def test_does_not_query_known_times_again():
    requests: list[ReceivedHttpRequest] = []

    def respond(request: ReceivedHttpRequest) -> HttpAnswer:
        requests.append(request)
        return answer_of(request, lambda pod: 3.0)

    with answering(respond) as url:
        settings = PrometheusSettings(url)
        with closing(PrometheusClient(settings)) as client:
            subject = ScrapeTimes(settings, client)
            subject.choose_pods(snapshot())
            assert len(subject.read_ages(settings, ["n1"], FIRST, LAST)["n1"]) == 3
            # A read begins before what is new, some further than others.
            for before in (60, 120, 0):
                ages = subject.read_ages(settings, ["n1"], LAST - before, LAST + 300)["n1"]
                assert ages.tolist() == [3.0] * (6 + before // 60)
    spans = [(int(one.form["start"]), int(one.form["end"])) for one in requests]
    assert spans == [(LAST, LAST), (FIRST, LAST), (LAST + 60, LAST + 300)]

"""Preflight facts from a real Prometheus, complete and with missing series."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cruise.adapters.prometheus.probe import probe_prometheus
from cruise.adapters.prometheus.settings import PrometheusSettings, SeriesLabelNames
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.preflight import UsageFacts
from cruise.errors import BadInputError, UnavailableError
from tests.builders import make_container, make_node, make_pod, make_snapshot
from tests.http_server import HttpAnswer, answering
from tests.prometheus_server import make_blocks, running_prometheus

AT = datetime(2026, 1, 5, 12, tzinfo=UTC)
NODES = {"n1": 0.1, "n2": 0.0, "n3": None}  # rate of pressure: seen, all zero, absent
PODS = [(f"web-{number}.x", node) for number, node in enumerate(NODES)]


def write_series(path: Path) -> None:
    """A day and an hour of three pods, scraped once a minute until half a minute ago; load of one node."""
    end = int(AT.timestamp()) - 30
    times = [*range(end - 90_000, end - 86_000, 60), *range(end - 3600, end + 1, 60)]
    with path.open("w") as file:
        for name, rate in (
            ("container_cpu_usage_seconds", 0.2),
            ("container_pressure_cpu_waiting_seconds", None),
            ("container_memory_working_set_bytes", 0.0),
        ):
            counter = name.endswith("seconds")
            file.write(f"# TYPE {name} {'counter' if counter else 'gauge'}\n")
            for pod, node in PODS:
                each = NODES[node] if rate is None else rate
                if each is None:
                    continue
                labels = f'namespace="shop",pod="{pod}",container="app",id="/{pod}",node="{node}"'
                full = f"{name}{'_total' if counter else ''}"
                file.writelines(f"{full}{{{labels}}} {each * (at - times[0]):.2f} {at}\n" for at in times)
        file.write("# TYPE node_load1 gauge\n")
        file.writelines(f'node_load1{{node="n1"}} 0.5 {at}\n' for at in times)
        file.write("# EOF\n")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    blocks = tmp_path_factory.mktemp("probe") / "blocks"
    make_blocks(write_series, blocks)
    with running_prometheus(blocks) as url:
        yield url


def cluster(*more: str) -> ClusterSnapshot:
    """The pods that Prometheus knows, and more on n1 that it does not."""
    pods = [make_pod(pod, node=node, containers=[make_container()]) for pod, node in PODS]
    pods += [make_pod(name, node="n1") for name in more]
    return make_snapshot(pods, [make_node(name) for name in NODES])


def look(url: str, snapshot: ClusterSnapshot | None = None, at: datetime = AT, **settings) -> UsageFacts:
    return probe_prometheus(PrometheusSettings(url, **settings), snapshot or cluster(), at)


def test_each_probe_fact_matches_the_server(server):
    found = look(server)
    assert found.recent is not None
    assert len(found.recent.keys) == 3
    assert replace(found, recent=None) == UsageFacts(
        queried_containers=3,
        containers_with_cpu=3,
        containers_with_memory=3,
        nodes_labelled=True,
        samples_in_10_minutes=10,
        newest_at=AT - timedelta(seconds=30),
        history_days=1.0,
        nodes=3,
        nodes_with_pressure=1,
        nodes_without_series=1,
        nodes_with_load=1,
        loads={"n1": 0.5},
    )


def test_reports_pods_without_series(server):
    facts = look(server, cluster("late-1", "late-2"))
    assert (facts.queried_containers, facts.containers_with_cpu) == (5, 3)


def test_pods_that_cannot_have_been_scraped_yet_are_not_missed(server):
    snapshot = cluster()
    young = make_pod("young", node="n1", created_at=AT - timedelta(minutes=1))
    assert look(server, replace(snapshot, pods=(*snapshot.pods, young))).queried_containers == 3
    assert look(server, replace(snapshot, pods=(young,))).queried_containers == 1


def test_old_series_are_not_used(server):
    facts = look(server, at=AT + timedelta(minutes=3))
    assert facts.newest_at == AT - timedelta(seconds=30)
    assert facts.samples_in_10_minutes is not None
    assert facts.samples_in_10_minutes < 10
    assert look(server, at=AT + timedelta(hours=2)).containers_with_cpu == 0


@pytest.mark.parametrize(
    "labels", [SeriesLabelNames(pod="pod_name"), SeriesLabelNames(namespace="ns"), SeriesLabelNames(container="c")]
)
def test_series_under_other_labels_are_reported_with_them(server, labels):
    facts = look(server, labels=labels)
    assert (facts.queried_containers, facts.containers_with_cpu) == (3, 0)
    assert facts.labels == ("container", "id", "namespace", "node", "pod")


def test_a_metric_that_is_not_there_has_no_labels(server):
    facts = look(server, matchers='cluster="other"')
    assert (facts.containers_with_cpu, facts.containers_with_memory) == (0, 0)


def test_series_without_a_node_apply_to_all_nodes(server):
    facts = look(server, labels=SeriesLabelNames(node="machine"))
    assert not facts.nodes_labelled
    assert facts.nodes_with_pressure == 3


def test_a_cluster_without_running_pods_sends_no_query(server):
    assert look(server, make_snapshot(nodes=[make_node("n1")])) == UsageFacts(0, 0, 0, nodes=1)


def test_a_server_s_refusal_is_raised():
    with (
        answering(lambda request: HttpAnswer(503)) as url,
        pytest.raises(UnavailableError, match="cannot answer at present"),
    ):
        look(url)
    with answering(lambda request: HttpAnswer(body=b"<html>")) as url, pytest.raises(BadInputError, match="web page"):
        look(url)

"""Node loads from a real server: load averages, node names by address, root control groups."""

from pathlib import Path

import pytest

from cruise.adapters.prometheus.client import PrometheusClient
from cruise.adapters.prometheus.node_load import NodeLoadReader
from cruise.adapters.prometheus.settings import PrometheusSettings, SeriesLabelNames
from cruise.adapters.prometheus.source import PrometheusUsageSource
from tests.builders import make_node, make_snapshot
from tests.http_server import HttpAnswer, ReceivedHttpRequest, answering
from tests.prometheus_server import make_blocks, running_prometheus

AT = 1_767_600_000
SINCE = AT - 1200
NODES = dict.fromkeys(("labelled", "addressed", "ambiguous", "other", "rooted", "without-pressure"), 4.0)
NODES |= {"long-gone": 4.0, "silent": 4.0, "zero-pressure": 4.0}
ROOT = 'id="/"'


def write_series(path: Path) -> None:
    """Twenty minutes, scraped once a minute."""
    gauges = [
        ('node_load1{node="labelled",instance="10.0.0.1:9100"}', 3.5),
        ('node_load1{instance="10.0.0.2:9100"}', 1.25),
        ('node_load1{instance="10.0.0.3:9100"}', 8),
    ]
    names = [
        ('node_uname_info{instance="10.0.0.2:9100",nodename="addressed",release="6.1"}', 1),
        ('node_uname_info{instance="10.0.0.3:9100",nodename="ambiguous",release="6.1"}', 1),
        ('node_uname_info{instance="10.0.0.3:9100",nodename="other",release="6.1"}', 1),
    ]
    used = [("labelled", 0.5), ("rooted", 3.0), ("without-pressure", 2.0), ("long-gone", 4.0), ("zero-pressure", 2.0)]
    waiting = [("labelled", 0.0), ("rooted", 0.4), ("zero-pressure", 0.0)]
    times = range(SINCE, AT + 1, 60)
    with path.open("w") as file:
        for metric, kind, series in (
            ("node_load1", "gauge", gauges),
            ("node_uname_info", "gauge", names),
        ):
            file.write(f"# TYPE {metric} {kind}\n")
            file.writelines(f"{labelled} {value} {at}\n" for labelled, value in series for at in times)
        for metric, series in (
            ("container_cpu_usage_seconds", used),
            ("container_pressure_cpu_waiting_seconds", waiting),
        ):
            file.write(f"# TYPE {metric} counter\n")
            for node, rate in series:
                last = AT - 600 if node == "long-gone" else AT
                labels = f'{ROOT},node="{node}",instance="10.0.9.9:10250"'
                # A container of the node, which is not the node.
                inner = f'id="/kubepods/x",namespace="shop",pod="web",container="app",node="{node}"'
                for some in (labels, inner):
                    factor = rate if some is labels else 100.0
                    file.writelines(
                        f"{metric}_total{{{some}}} {factor * (at - SINCE):.3f} {at}\n" for at in times if at <= last
                    )
        file.write("# EOF\n")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    blocks = tmp_path_factory.mktemp("loads") / "blocks"
    make_blocks(write_series, blocks)
    with running_prometheus(blocks) as url:
        yield url


def loads(url: str, nodes=NODES, **settings) -> dict[str, float]:
    known = PrometheusSettings(url, **settings)
    client = PrometheusClient(known)
    try:
        return {node: sample.load1 for node, sample in NodeLoadReader(known, client).read(AT, nodes).items()}
    finally:
        client.close()


def test_each_node_has_the_best_reading_there_is_or_none(server):
    found = loads(server)
    assert found["labelled"] == 3.5
    assert found["addressed"] == 1.25
    assert found["rooted"] == pytest.approx(3.0 * 1.4, rel=0.01)
    assert found["without-pressure"] == pytest.approx(2.0, rel=0.01)
    assert not {"ambiguous", "other", "long-gone", "silent"} & found.keys()


def test_a_node_that_seems_to_use_more_than_it_has_is_busy_and_not_overloaded(server):
    found = loads(server, {"rooted": 2.5, "without-pressure": 1.999, "zero-pressure": 1.999})
    # Zeros are the kernel's silence as well.
    assert found["without-pressure"] == found["zero-pressure"] == 1.999
    assert found["rooted"] == pytest.approx(4.2, rel=0.01)


def test_without_ids_a_container_is_not_taken_for_a_node(server):
    assert loads(server, labels=SeriesLabelNames(id="")).keys() & NODES.keys() == {"labelled", "addressed"}


def test_a_sample_keeps_its_time_however_often_it_is_read(server):
    client = PrometheusClient(PrometheusSettings(server))
    try:
        reader = NodeLoadReader(PrometheusSettings(server), client)
        for at in (AT, AT + 30, AT + 59):
            taken = {node: sample.at for node, sample in reader.read(at, NODES).items()}
            assert {taken["labelled"], taken["addressed"], taken["rooted"]} == {AT}
        assert reader.read(AT + 600, NODES) == {}
    finally:
        client.close()


def test_adds_matchers_to_every_query(server):
    assert loads(server, matchers='cluster="other"') == {}


async def test_the_source_looks_for_the_nodes_of_its_snapshot(server):
    source = PrometheusUsageSource(PrometheusSettings(server))
    try:
        assert "rooted" not in await source.read_node_loads(AT)
        await source.list_partitions(make_snapshot(nodes=[make_node("rooted"), make_node("labelled")]))
        assert (await source.read_node_loads(AT))["rooted"].load1 == pytest.approx(4.2, rel=0.01)
    finally:
        source.close()


EMPTY = b'{"status":"success","data":{"resultType":"vector","result":[]}}'
ONE = (
    b'{"status":"success","data":{"resultType":"vector","result":'
    b'[{"metric":{"node":"n1","instance":"10.0.0.1:9100"},"value":[1,"2"]}]}}'
)


def test_sends_no_unneeded_query():
    asked: list[str] = []

    def respond(request: ReceivedHttpRequest) -> HttpAnswer:
        asked.append(request.form["query"])
        return HttpAnswer(body=ONE if "node_load1" in request.form["query"] else EMPTY)

    with answering(respond) as url:
        assert loads(url, nodes={"n1": 4.0}) == {"n1": 2.0}
        assert len(asked) == 2
        assert loads(url, nodes={"n1": 4.0, "n2": 4.0}) == {"n1": 2.0}
    # The only average has its node already, so no names; nothing in use, so no pressure.
    assert [query.partition("{")[0].rpartition("(")[2] for query in asked[2:]] == [
        "node_load1",
        "node_load1",
        "container_cpu_usage_seconds_total",
    ]

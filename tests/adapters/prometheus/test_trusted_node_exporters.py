"""Selection of trusted node exporters if pods expose load averages too."""

import pytest

from cruise.adapters.prometheus.node_load import choose_trusted_exporters
from cruise.adapters.prometheus.queries import NodeLoadValue

NODES = [f"n{number}" for number in range(8)]
REAL = [NodeLoadValue(node, f"10.0.0.{number}:9100", 1.5, "node-exporter") for number, node in enumerate(NODES)]


def loads(*readings: NodeLoadValue, nodes=NODES) -> dict[str, float]:
    return {one.node: one.value for one in choose_trusted_exporters(readings, nodes).select(readings)}


TRUE = dict.fromkeys(NODES, 1.5)


def spoofed(job="payments", instances=1):
    """Forty cores' load on each of the eight nodes, from so many pods."""
    return [NodeLoadValue(node, f"10.1.0.{number % instances}:80", 40.0, job) for number, node in enumerate(NODES)]


def test_does_not_trust_one_pod_that_reports_all_nodes():
    assert loads(*REAL, *spoofed()) == loads(*REAL, *spoofed("node-exporter")) == TRUE
    assert loads(*spoofed()) == {}


def test_does_not_trust_a_pod_that_reports_load_of_its_node():
    mine = NodeLoadValue("n3", "10.1.0.1:80", 40.0, "payments")
    assert loads(*REAL, mine) == TRUE
    assert choose_trusted_exporters([*REAL, mine], NODES).ignored == [mine]


def test_a_node_with_contradictory_exporters_has_no_load():
    mine = NodeLoadValue("n3", "10.1.0.1:80", 40.0, "node-exporter")
    found = choose_trusted_exporters([*REAL, mine], NODES)
    assert found.disputed_nodes == {"n3"}
    assert loads(*REAL, mine).keys() == TRUE.keys() - {"n3"}


def test_as_many_pods_as_nodes_can_hide_the_loads_and_not_change_them():
    assert loads(*REAL, *spoofed(instances=8)) == {}


@pytest.mark.parametrize(("other", "disputed"), [(1.5, False), (2.0, False), (2.1, True)])
def test_readings_of_one_machine_may_differ_slightly(other, disputed):
    beside = NodeLoadValue("n0", "10.0.0.9:9100", other, "node-exporter")
    assert (choose_trusted_exporters([*REAL, beside], NODES).disputed_nodes == {"n0"}) is disputed


def test_without_known_nodes_every_name_counts():
    assert loads(*REAL, nodes=()) == TRUE
    assert choose_trusted_exporters([], ()).instances == frozenset()

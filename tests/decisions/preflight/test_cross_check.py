"""What `check` says of Prometheus beside some kubelets."""

from cruise.decisions.preflight.cross_check import cross_check_item, kubelet_items
from cruise.decisions.preflight.items import Level
from cruise.domain.cross_check import CrossCheck, Disagreement
from cruise.domain.preflight import KubeletFacts
from cruise.domain.usage import ContainerKey

WEB, DB = ContainerKey("shop", "web-1", "app"), ContainerKey("shop", "db-0", "app")


def test_kubelets_that_agree():
    item = cross_check_item(CrossCheck(nodes=2, compared={WEB, DB}))
    assert item.level is Level.OK
    assert "the kubelets of 2 of 2 nodes agree with the figures of 2 containers" in item.finding


def test_a_container_of_which_a_kubelet_says_something_else_is_named():
    found = CrossCheck(2, 1, {WEB, DB}, {WEB: Disagreement("n1", "cpu", 9e5, 1e3)})
    item = cross_check_item(found)
    assert item.level is Level.WARN
    assert "1 of 2 nodes contradict the figures of 1 container: shop/web-1/app" in item.finding
    assert "prometheus_cadvisor_matchers" in item.fix


def test_where_no_kubelet_may_be_read_that_is_no_fault():
    item = cross_check_item(CrossCheck(2, 2, why_unread="this account may not `get nodes/metrics`"))
    assert item.level is Level.OK
    assert "not compared with any kubelet: this account may not" in item.finding


def test_kubelets_as_the_source_of_usage():
    well = list(kubelet_items(KubeletFacts(3, 3, 2)))
    assert [item.level for item in well] == [Level.OK, Level.OK]
    assert "3 of 3 kubelets" in well[0].finding
    partly = list(kubelet_items(KubeletFacts(3, 2, 0, "the kubelet of node n3 did not answer")))
    assert [item.level for item in partly] == [Level.WARN, Level.WARN]
    [none] = kubelet_items(KubeletFacts(3, 0, 0, "the kubelet of node n1 may not be read (403)"))
    assert none.level is Level.RED
    assert "403" in none.finding

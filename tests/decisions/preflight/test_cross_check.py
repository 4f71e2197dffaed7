"""What `check` says of Prometheus beside some kubelets."""

from cruise.decisions.preflight.cross_check import cross_check_item
from cruise.decisions.preflight.items import Level
from cruise.domain.cross_check import CrossCheck, Disagreement
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

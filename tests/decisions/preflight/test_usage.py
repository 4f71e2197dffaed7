"""Findings on kubelets, alone and compared with Prometheus."""

from cruise.decisions.preflight.usage import check_kubelet_cross_check, check_kubelets
from cruise.domain.preflight import CheckLevel, CrossCheckResult, KubeletFacts, MetricMismatch
from cruise.domain.usage import ContainerKey

WEB, DB = ContainerKey("shop", "web-1", "app"), ContainerKey("shop", "db-0", "app")


def test_kubelets_that_agree():
    item = check_kubelet_cross_check(CrossCheckResult(nodes=2, compared={WEB, DB}))
    assert item.level is CheckLevel.OK
    assert "the kubelets of 2 of 2 nodes agree with the figures of 2 containers" in item.finding


def test_a_container_that_contradicts_its_kubelet_is_named():
    found = CrossCheckResult(2, 1, {WEB, DB}, {WEB: MetricMismatch("n1", "cpu", 9e5, 1e3)})
    item = check_kubelet_cross_check(found)
    assert item.level is CheckLevel.WARN
    assert "1 of 2 nodes contradict the figures of 1 container: shop/web-1/app" in item.finding
    assert "prometheus_cadvisor_matchers" in item.fix


def test_an_unreadable_kubelet_is_no_problem():
    item = check_kubelet_cross_check(
        CrossCheckResult(2, 2, unreadable_reason="this account may not `get nodes/metrics`")
    )
    assert item.level is CheckLevel.OK
    assert "not compared with kubelets: this account may not" in item.finding


def test_kubelets_as_the_source_of_usage():
    well = list(check_kubelets(KubeletFacts(3, 3, 2)))
    assert [item.level for item in well] == [CheckLevel.OK, CheckLevel.OK]
    assert "3 of 3 queried kubelets" in well[0].finding
    partly = list(check_kubelets(KubeletFacts(3, 2, 0, "the kubelet of node n3 did not answer")))
    assert [item.level for item in partly] == [CheckLevel.WARN, CheckLevel.WARN]
    [none] = check_kubelets(KubeletFacts(3, 0, 0, "the kubelet of node n1 may not be read (403)"))
    assert none.level is CheckLevel.RED
    assert "403" in none.finding

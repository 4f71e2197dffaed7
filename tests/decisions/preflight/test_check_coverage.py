"""What `cruise check` reports about coverage before and after usage is known."""

import re

from cruise.decisions.preflight.preflight import check_coverage
from cruise.domain.cluster import QosClass
from cruise.domain.policy import Policy
from cruise.domain.preflight import CheckLevel
from cruise.domain.prices import ResourcePrices
from tests.builders import NOW, make_autoscaler, make_container, make_pod, make_snapshot, make_statistic_for, make_table

LARGE = [make_container(cpu=1000, memory_mib=1024)]


def test_sized_pods_are_first_then_the_reasons_and_what_unlocks_them():
    pods = [
        make_pod(containers=LARGE),
        make_pod("db-0", workload="StatefulSet/db", containers=LARGE, qos=QosClass.GUARANTEED),
        make_pod("scaled-0", workload="Deployment/scaled", containers=LARGE),
        make_pod("dns-0", "kube-system", workload="Deployment/dns", containers=LARGE),
    ]
    snapshot = make_snapshot(pods, autoscalers=[make_autoscaler("Deployment/scaled")])
    first, *others = check_coverage(snapshot, Policy(), NOW)
    assert (
        first.finding == "25 % of the requested CPU and 50 % of the requested memory can be sized once usage is known"
    )
    assert {one.name for one in others} == {"guaranteed", "managed-by-hpa", "excluded-namespace"}
    by_name = {one.name: one for one in others}
    assert by_name["guaranteed"].finding == "1 pod: 1.00 cores and 1.00 GiB are skipped"
    assert by_name["managed-by-hpa"].finding == "1 pod: 1.00 cores and 0.00 GiB are skipped"
    assert "guaranteed: resize" in by_name["guaranteed"].fix
    assert all(one.level is CheckLevel.OK for one in (first, *others))


def test_with_fresh_statistics_each_line_has_what_is_reclaimable_in_money_where_prices_are_known():
    pods = [
        make_pod(containers=LARGE),
        make_pod("db-0", workload="StatefulSet/db", containers=LARGE, qos=QosClass.GUARANTEED),
    ]
    fresh = [make_statistic_for(pod, updated_at=int(NOW.timestamp())) for pod in pods]
    snapshot = make_snapshot(pods)
    first, guaranteed = check_coverage(snapshot, Policy(), NOW, make_table(*fresh), ResourcePrices(0.03, 0.004))
    assert first.finding.startswith("50 % of the requested CPU and 50 % of the requested memory are sized; ")
    assert re.search(r"cores and .* GiB are reclaimable, about \$\d+ a month$", first.finding)
    assert guaranteed.name == "guaranteed" and "are skipped; without the reason, " in guaranteed.finding
    without_prices, _ = check_coverage(snapshot, Policy(), NOW, make_table(*fresh))
    assert "$" not in without_prices.finding and without_prices.finding.endswith("are reclaimable")
    stale = [make_statistic_for(pod, updated_at=0) for pod in pods]
    assert list(check_coverage(snapshot, Policy(), NOW, make_table(*stale))) == list(
        check_coverage(snapshot, Policy(), NOW)
    )


def test_a_cluster_without_pods_has_no_coverage():
    assert list(check_coverage(make_snapshot(), Policy(), NOW)) == []

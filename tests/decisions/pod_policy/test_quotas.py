"""Quotas: capacity left for a new pod, and CPU limits that must stay."""

import pytest

from cruise.decisions.admission.admission import LeaveUnchanged, MutatePod, decide_admission
from cruise.decisions.admission.node_index import NodeIndex
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.pod_policy.quotas import counts_limits_of, exceeds_quota
from cruise.domain.actions import ContainerTarget, ReasonCode
from cruise.domain.autoscalers import LimitRangeItem, ResourceQuota
from cruise.domain.cluster import ContainerRole
from cruise.domain.policy import MemoryLimitPolicy, Mode, Policy
from cruise.domain.resources import ResourceName
from tests.builders import (
    NOW,
    make_amounts,
    make_container,
    make_node,
    make_pod,
    make_snapshot,
    make_statistic,
    make_table,
    make_workload,
)

TABLE = make_table(make_statistic("", cpu_peak=400, memory_peak_mib=300, memory_7d_max_mib=300))
COUNTS_CPU_LIMITS = ResourceQuota(limits_left=make_amounts(5000, None))


def decide(*quotas: ResourceQuota, ranges=(), **container):
    policy = Policy(mode=Mode.INITIAL, memory_limits=MemoryLimitPolicy.ALWAYS)
    snapshot = make_snapshot([], nodes=[make_node()], workloads=[make_workload()])
    pod = make_pod("", node=None, containers=[make_container(settled=False, **container)])
    eligibility = Eligibility(snapshot, TABLE, {}, policy, NOW)
    return decide_admission(pod, eligibility, TABLE, NodeIndex(snapshot.nodes), ranges, policy, quotas)


def limits(decision):
    assert isinstance(decision, MutatePod)
    return decision.containers[0].limits


@pytest.mark.parametrize(
    ("limit", "kept"),
    [(1000, 1000), (300, 400), (None, None)],
)
def test_a_counted_cpu_limit_is_kept_and_never_below_the_request(limit, kept):
    assert limits(decide(COUNTS_CPU_LIMITS, cpu_limit=limit)) == make_amounts(kept, 600)


def test_a_limit_range_bounds_the_kept_limit():
    ranges = (LimitRangeItem(False, maximum=make_amounts(700, None)),)
    assert limits(decide(COUNTS_CPU_LIMITS, ranges=ranges, cpu_limit=600)) == make_amounts(600, 600)
    assert limits(decide(COUNTS_CPU_LIMITS, ranges=ranges, cpu_limit=900)) == make_amounts(700, 600)


def test_deciding_again_keeps_the_limit():
    decision = decide(COUNTS_CPU_LIMITS, cpu=400, memory_mib=300, cpu_limit=1000, memory_limit_mib=600)
    assert decision == LeaveUnchanged(ReasonCode.NO_CHANGE_NEEDED)


@pytest.mark.parametrize(
    ("quota", "left_alone"),
    [
        (ResourceQuota(make_amounts(400, 300), make_amounts(None, 600)), False),
        (ResourceQuota(make_amounts(399, None)), True),
        (ResourceQuota(make_amounts(None, 299)), True),
        (ResourceQuota(limits_left=make_amounts(None, 599)), True),
        (ResourceQuota(), False),
    ],
)
def test_sizes_beyond_the_quota_are_not_applied(quota, left_alone):
    decision = decide(ResourceQuota(make_amounts(10_000, 10_000)), quota)
    assert (decision == LeaveUnchanged(ReasonCode.QUOTA_EXCEEDED)) == left_alone


def test_a_pod_that_shrinks_is_sized_regardless_of_the_quota():
    assert isinstance(decide(ResourceQuota(make_amounts(0, 0)), cpu=900, memory_mib=900), MutatePod)


def test_init_containers_and_sidecars_count_as_the_api_server_counts_them():
    setup = make_container("setup", cpu=1000, memory_mib=10, role=ContainerRole.INIT, settled=False)
    app = make_container(cpu=100, memory_mib=10, settled=False)
    pod = make_pod("", node=None, containers=[setup, app])
    target = ContainerTarget("app", ContainerRole.MAIN, make_amounts(900, 10), make_amounts())
    assert not exceeds_quota(pod, [target], [ResourceQuota(make_amounts(100, None))])
    target = ContainerTarget("app", ContainerRole.MAIN, make_amounts(1100, 10), make_amounts())
    assert exceeds_quota(pod, [target], [ResourceQuota(make_amounts(1099, None))])
    assert not exceeds_quota(pod, [target], [ResourceQuota(make_amounts(1100, None))])


def test_only_cpu_limits_must_be_stated():
    assert counts_limits_of([ResourceQuota(), COUNTS_CPU_LIMITS], ResourceName.CPU)
    assert not counts_limits_of([ResourceQuota(make_amounts(5, 5), make_amounts(None, 5))], ResourceName.CPU)

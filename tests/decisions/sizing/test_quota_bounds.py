"""Quotas in a node pass: counted limits stay, and growth that they would reject is not planned."""

from dataclasses import replace

import pytest

from cruise.decisions.sizing.node_plans import NodePlan, decide_node_plans
from cruise.domain.actions import ReasonCode
from cruise.domain.autoscalers import QuotaScope, ResourceQuota
from cruise.domain.cluster import Container, ContainerRole, Pod
from cruise.domain.pod_resources import count_pod_limits
from cruise.domain.policy import SEED_RULES, MemoryLimitPolicy, Mode, Policy
from cruise.domain.resources import MEBIBYTE
from tests.builders import (
    NOW,
    TRACKING,
    make_amounts,
    make_container,
    make_node,
    make_pod,
    make_snapshot,
    make_statistic_for,
    make_table,
)

FULL = Policy(mode=Mode.FULL, rules=TRACKING, memory_limits=MemoryLimitPolicy.ALWAYS)
COUNTS_LIMITS = ResourceQuota(limits_left=make_amounts(64_000, 65_536))


def using(pod: Pod, cpu: int, memory_mib: int, cpu_peak: int | None = None):
    return make_statistic_for(
        pod, cpu_base=cpu, cpu_peak=cpu_peak or cpu, memory_base_mib=memory_mib, memory_peak_mib=memory_mib
    )


def plan(*uses, quotas: tuple[ResourceQuota, ...], node=None, policy=FULL) -> NodePlan:
    """The plan of one node for pods with the given CPU and memory usage."""
    rows = [using(*use) for use in uses]
    snapshot = replace(
        make_snapshot([use[0] for use in uses], nodes=[node or make_node(cpu=64_000)]), quotas={"shop": quotas}
    )
    [found] = decide_node_plans(snapshot, make_table(*rows), policy, NOW)
    return found


def pod_of(name="web-1", cpu=1000, memory_mib=1000, **more) -> Pod:
    limits = {"cpu_limit": more.pop("cpu_limit", None), "memory_limit_mib": more.pop("memory_limit_mib", 2000)}
    return make_pod(name, containers=[make_container(cpu=cpu, memory_mib=memory_mib, **limits)], **more)


def sizes(found: NodePlan) -> dict[str, tuple[int, int]]:
    """The written requests by pod."""
    return {
        one.pod: (one.containers[0].requests.cpu_millicores or 0, (one.containers[0].requests.memory_bytes or 0) >> 20)
        for one in found.resize
    }


def test_a_decrease_keeps_limits_that_a_quota_counts():
    pod = pod_of(cpu_limit=1000, memory_limit_mib=2000)
    [resize] = plan((pod, 300, 300), quotas=(COUNTS_LIMITS,)).resize
    assert resize.containers[0].requests == make_amounts(300, 300)
    assert resize.containers[0].limits == make_amounts(1000, 2000)
    [before] = plan((pod, 300, 300), quotas=(COUNTS_LIMITS,), policy=replace(FULL, rules=SEED_RULES)).resize
    assert before.containers[0].limits.cpu_millicores == 64_000


def test_only_limits_that_a_quota_counts_stay():
    pod = pod_of(cpu_limit=1000, memory_limit_mib=2000)
    [resize] = plan((pod, 300, 300), quotas=(ResourceQuota(limits_left=make_amounts(None, 9999)),)).resize
    assert resize.containers[0].limits == make_amounts(64_000, 2000)
    [resize] = plan((pod, 300, 300), quotas=(ResourceQuota(limits_left=make_amounts(9999, None)),)).resize
    assert resize.containers[0].limits.cpu_millicores == 1000


def test_a_request_is_capped_by_a_limit_that_is_kept():
    pod = pod_of(cpu_limit=1500)
    [resize] = plan((pod, 5000, 1000), quotas=(COUNTS_LIMITS,)).resize
    assert resize.containers[0].requests.cpu_millicores == 1500


@pytest.mark.parametrize(("left", "written"), [(1000, {"web-1": (2000, 1000)}), (999, {})])
def test_growth_that_a_quota_would_reject_is_not_planned(left, written):
    found = plan((pod_of(), 2000, 1000), quotas=(ResourceQuota(make_amounts(left, None)),))
    assert sizes(found) == written
    assert [hold.reason for hold in found.skipped] == ([] if written else [ReasonCode.QUOTA_EXCEEDED])


def test_pods_that_grow_in_one_pass_share_what_is_left():
    pods = [pod_of(f"web-{number}") for number in range(4)]
    found = plan(*((pod, 1400, 1000) for pod in pods), quotas=(ResourceQuota(make_amounts(1000, None)),))
    assert sizes(found) == {"web-0": (1400, 1000), "web-1": (1400, 1000)}
    assert [(hold.pod, hold.reason) for hold in found.skipped] == [
        ("web-2", ReasonCode.QUOTA_EXCEEDED),
        ("web-3", ReasonCode.QUOTA_EXCEEDED),
    ]


def test_growth_above_the_base_is_cut_if_the_quota_has_only_bases_left():
    pods = [pod_of(f"web-{number}") for number in range(2)]
    found = plan(*((pod, 1400, 1000, 1800) for pod in pods), quotas=(ResourceQuota(make_amounts(800, None)),))
    assert sizes(found) == {"web-0": (1400, 1000), "web-1": (1400, 1000)}


def test_the_other_resource_is_written_all_the_same():
    found = plan((pod_of(), 2000, 300), quotas=(ResourceQuota(make_amounts(0, None)),))
    assert sizes(found) == {"web-1": (1000, 300)}


def of_two(app: int, mesh: int, *more: Container) -> Pod:
    """A pod with containers of these CPU requests."""
    return make_pod(containers=[*more, make_container(cpu=app), make_container("mesh", cpu=mesh)])


@pytest.mark.parametrize(
    ("left", "written"),
    [
        # Until the resize is actual, `app` counts 400 m and `mesh` 900 m: 800 m more, not 500 m.
        (800, (100, 900)),
        (799, (100, 100)),
    ],
)
@pytest.mark.parametrize("floor", [0, 500])
def test_a_decrease_frees_no_quota_until_it_is_actual(left, written, floor):
    setup = make_container("setup", cpu=floor, role=ContainerRole.INIT)
    pod = of_two(400, 100, *[setup][: floor > 0])
    quota = ResourceQuota(make_amounts(left, None))
    snapshot = replace(make_snapshot([pod], nodes=[make_node(cpu=64_000)]), quotas={"shop": (quota,)})
    rows = [make_statistic_for(pod, "app", cpu_base=100, cpu_peak=100, memory_base_mib=128, memory_peak_mib=128)]
    rows.append(make_statistic_for(pod, "mesh", cpu_base=900, cpu_peak=900, memory_base_mib=128, memory_peak_mib=128))
    [found] = decide_node_plans(snapshot, make_table(*rows), FULL, NOW)
    [resize] = found.resize
    assert tuple(one.requests.cpu_millicores for one in resize.containers) == written


def test_requests_that_the_kubelet_still_counts_are_not_free():
    # It should shrink to 100 m and still has 400 m; `mesh` may only grow above the 500 m that both count.
    app = make_container(cpu=100, allocated=make_amounts(100, 128), actual=make_amounts(400, 128))
    pod = make_pod(containers=[app, make_container("mesh", cpu=100)])
    rows = [make_statistic_for(pod, "app", cpu_base=100, cpu_peak=100, memory_base_mib=128, memory_peak_mib=128)]
    rows.append(make_statistic_for(pod, "mesh", cpu_base=300, cpu_peak=300, memory_base_mib=128, memory_peak_mib=128))
    for left, written in ((199, 100), (200, 300)):
        quota = ResourceQuota(make_amounts(left, None))
        snapshot = replace(make_snapshot([pod], nodes=[make_node(cpu=64_000)]), quotas={"shop": (quota,)})
        [found] = decide_node_plans(snapshot, make_table(*rows), FULL, NOW)
        assert found.resize[0].containers[1].requests.cpu_millicores == written


def test_growth_below_an_init_containers_request_uses_no_quota():
    setup = make_container("setup", cpu=1000, role=ContainerRole.INIT)
    pod = replace(pod_of(cpu=100), containers=(setup, make_container(cpu=100, memory_mib=1000)))
    assert sizes(plan((pod, 1000, 1000), quotas=(ResourceQuota(make_amounts(0, None)),))) == {"web-1": (1000, 1000)}


def test_no_pod_is_evicted_for_growth_that_a_quota_would_reject():
    greedy, other = pod_of("greedy", memory_mib=1000), pod_of("other", memory_mib=1000, workload="Deployment/other")
    uses = ((greedy, 1000, 4000), (other, 1000, 1000))
    node = make_node(cpu=64_000, memory_mib=3000)
    assert plan(*uses, quotas=(ResourceQuota(make_amounts(None, 0)),), node=node).evict == ()
    assert len(plan(*uses, quotas=(), node=node).evict) == 1


@pytest.mark.parametrize(
    ("scope", "counted"),
    [
        (QuotaScope("BestEffort"), False),
        (QuotaScope("NotBestEffort"), True),
        (QuotaScope("Terminating"), False),
        (QuotaScope("NotTerminating"), True),
        (QuotaScope("PriorityClass", "In", frozenset({"high"})), True),
        (QuotaScope("PriorityClass", "In", frozenset({"low"})), False),
        (QuotaScope("PriorityClass", "NotIn", frozenset({"high"})), False),
        (QuotaScope("PriorityClass", "DoesNotExist"), False),
        (QuotaScope("PriorityClass"), True),
        (QuotaScope("SomethingNew"), True),
    ],
)
def test_a_quota_counts_if_it_applies_or_might(scope, counted):
    pod = replace(pod_of(), priority_class="high", owner_kind="ReplicaSet")
    found = plan((pod, 2000, 1000), quotas=(ResourceQuota(make_amounts(0, None), scopes=(scope,)),))
    assert (sizes(found) == {}) is counted


def test_sidecars_and_init_containers_count_once():
    setup = make_container("setup", cpu=100, memory_mib=10, memory_limit_mib=800, role=ContainerRole.INIT)
    mesh = make_container("mesh", cpu=100, memory_mib=10, memory_limit_mib=100, role=ContainerRole.SIDECAR)
    app = make_container(cpu=100, memory_mib=10, memory_limit_mib=300)
    pod = make_pod(containers=[mesh, setup, app])
    assert count_pod_limits(pod).memory_bytes == 900 * MEBIBYTE
    assert count_pod_limits(make_pod(containers=[mesh, app])).memory_bytes == 400 * MEBIBYTE


def test_a_shortage_is_relieved_by_pods_that_a_quota_allows_to_grow():
    held, free = pod_of("held"), pod_of("free", namespace="bank")
    idle = Policy(mode=Mode.FULL)
    before = plan((held, 1000, 1000, 2600), (free, 950, 1000, 1150), quotas=(), policy=idle)
    assert [one.pod for one in before.resize] == ["held"]
    found = plan(
        (held, 1000, 1000, 2600), (free, 950, 1000, 1150), quotas=(ResourceQuota(make_amounts(0, None)),), policy=idle
    )
    [grown] = found.resize
    assert grown.pod == "free" and grown.containers[0].requests.cpu_millicores == 1150
    assert [(one.pod, one.reason) for one in found.skipped] == [("held", ReasonCode.QUOTA_EXCEEDED)]

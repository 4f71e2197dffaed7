"""Coverage: every request is sized or skipped for one reason, and the cost of a reason is exact."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from cruise.decisions.pod_policy.skip_reason_unlocks import UNLOCKS, EligibilityInputs
from cruise.decisions.scan.coverage import Coverage, estimate_coverage, sum_coverage
from cruise.decisions.scan.waste import estimate_waste, list_pod_requests
from cruise.decisions.sizing.node_plans import SizingContext, decide_node_plans
from cruise.domain.actions import ReasonCode
from cruise.domain.cluster import ClusterSnapshot, Pod, QosClass, VerticalPodAutoscaler
from cruise.domain.policy import GuaranteedPolicy, Mode, Policy
from cruise.domain.resources import NO_RESOURCES, ResourceName
from cruise.domain.usage import StatisticsTable
from tests.builders import (
    NOW,
    NOW_SECONDS,
    make_amounts,
    make_autoscaler,
    make_container,
    make_node,
    make_pod,
    make_pod_level,
    make_resources,
    make_snapshot,
    make_statistic_for,
    make_table,
)
from tests.strategies import clusters

FULL = Policy(mode=Mode.FULL)
LARGE: dict[str, Any] = {"cpu": 1000, "memory_mib": 1024}


def cover_by_namespace(inputs: EligibilityInputs, table: StatisticsTable) -> dict[str, Coverage]:
    plans = decide_node_plans(inputs.snapshot, table, inputs.policy, NOW, paused_workloads=inputs.paused_workloads)
    pods = list_pod_requests(inputs.snapshot, plans)
    return dict(estimate_coverage(inputs, table, NOW, pods, SizingContext()))


def cover(snapshot: ClusterSnapshot, table: StatisticsTable, policy: Policy = FULL) -> Coverage:
    return sum_coverage(cover_by_namespace(EligibilityInputs(snapshot, {}, policy), table).values())


def measured(pods: Sequence[Pod], **values) -> StatisticsTable:
    return make_table(*(make_statistic_for(pod, **values) for pod in pods))


def guaranteed(name="db-0", **more) -> Pod:
    container = make_container(**LARGE, cpu_limit=1000, memory_limit_mib=1024)
    return make_pod(name, workload="StatefulSet/db", containers=[container], qos=QosClass.GUARANTEED, **more)


# ---- what is sized, and what is skipped ----


def test_a_sized_pod_counts_with_what_is_reclaimable_of_it():
    pod = make_pod(containers=[make_container(**LARGE)])
    found = cover(make_snapshot([pod]), measured([pod]))
    assert (found.sized.pods, found.sized.requested, found.skipped) == (1, make_resources(1000, 1024), {})
    assert found.sized.reclaimable.cpu_millicores >= 700
    assert found.sized.unknown == NO_RESOURCES


def test_the_saving_behind_a_reason_is_what_its_setting_would_reclaim():
    pod = guaranteed()
    found = cover(make_snapshot([pod]), measured([pod]))
    group = found.skipped[ReasonCode.GUARANTEED]
    assert (group.pods, group.requested, group.unknown) == (1, make_resources(1000, 1024), NO_RESOURCES)
    after = cover(*apply_reason(ReasonCode.GUARANTEED, make_snapshot([pod]), measured([pod])))
    assert after.skipped == {}
    assert after.sized.reclaimable == group.reclaimable != NO_RESOURCES


def test_the_saving_of_guaranteed_pods_is_shown_before_their_history_is_long_enough_to_decrease_them():
    pod = guaranteed()
    short = measured([pod], history_since=NOW_SECONDS - 86_400)
    group = cover(make_snapshot([pod]), short).skipped[ReasonCode.GUARANTEED]
    assert group.reclaimable.fits_in(make_resources(1000, 1024))
    assert group.reclaimable.cpu_millicores >= 700
    resizing = replace(FULL, guaranteed=GuaranteedPolicy.RESIZE)
    assert cover(make_snapshot([pod]), short, resizing).sized.reclaimable == NO_RESOURCES


def apply_reason(
    reason: ReasonCode, snapshot: ClusterSnapshot, table: StatisticsTable, policy: Policy = FULL
) -> tuple[ClusterSnapshot, StatisticsTable, Policy]:
    apply = UNLOCKS[reason].apply
    assert apply is not None
    changed = apply(EligibilityInputs(snapshot, {}, policy))
    return changed.snapshot, table, changed.policy


def test_without_statistics_the_saving_is_unknown_and_not_zero():
    pod = make_pod(containers=[make_container(**LARGE)])
    group = cover(make_snapshot([pod]), make_table()).skipped[ReasonCode.NO_STATISTICS]
    assert group.unknown == group.requested == make_resources(1000, 1024)
    assert not any(group.is_known(resource) for resource in ResourceName)


def test_a_pod_with_a_second_reason_has_no_known_saving():
    pod = guaranteed(namespace="kube-system")
    found = cover(make_snapshot([pod]), measured([pod]))
    assert list(found.skipped) == [ReasonCode.EXCLUDED_NAMESPACE]
    assert found.skipped[ReasonCode.EXCLUDED_NAMESPACE].unknown == make_resources(1000, 1024)


def test_of_a_pod_under_an_hpa_only_the_resource_that_is_not_scaled_is_sized():
    pod = make_pod(containers=[make_container(**LARGE)])
    found = cover(make_snapshot([pod], autoscalers=[make_autoscaler()]), measured([pod]))
    assert found.sized.requested == make_resources(0, 1024)
    assert found.skipped[ReasonCode.MANAGED_BY_HPA].requested == make_resources(1000)


def test_an_hpa_is_the_reason_for_its_resource_even_without_statistics():
    pod = make_pod(containers=[make_container(**LARGE)])
    found = cover(make_snapshot([pod], autoscalers=[make_autoscaler()]), make_table())
    assert found.skipped[ReasonCode.MANAGED_BY_HPA].requested == make_resources(1000)
    assert found.skipped[ReasonCode.NO_STATISTICS].requested == make_resources(0, 1024)


def test_only_the_resource_that_an_annotation_unmanages_is_skipped():
    pod = make_pod(containers=[make_container(**LARGE)], annotations={"cruise.io/resources": "memory"})
    group = cover(make_snapshot([pod]), measured([pod])).skipped[ReasonCode.CPU_NOT_MANAGED]
    assert group.requested == make_resources(1000)
    assert group.reclaimable.cpu_millicores >= 700


def test_only_the_container_that_an_annotation_excludes_is_skipped():
    containers = [make_container(**LARGE), make_container("proxy", 500, 512)]
    pod = make_pod(containers=containers, annotations={"cruise.io/mode.proxy": "off"})
    rows = [make_statistic_for(pod), make_statistic_for(pod, "proxy", cpu_base=10, cpu_peak=20)]
    found = cover(make_snapshot([pod]), make_table(*rows))
    group = found.skipped[ReasonCode.MODE_OFF]
    assert (found.sized.requested, group.requested) == (make_resources(1000, 1024), make_resources(500, 512))
    assert group.unknown == NO_RESOURCES
    assert group.reclaimable.cpu_millicores >= 400
    after = cover(*apply_reason(ReasonCode.MODE_OFF, make_snapshot([pod]), make_table(*rows)))
    assert after.skipped == {}
    assert after.sized.reclaimable == found.sized.reclaimable + group.reclaimable


def test_only_the_resource_whose_resize_restarts_is_skipped():
    pod = make_pod(containers=[make_container(**LARGE, memory_resize_restarts=True)])
    group = cover(make_snapshot([pod]), measured([pod])).skipped[ReasonCode.RESIZE_RESTARTS]
    assert group.requested == make_resources(0, 1024)
    assert group.reclaimable.memory_bytes > 0


def test_pods_on_a_node_that_is_not_known_are_not_sized():
    pod = make_pod(containers=[make_container(**LARGE)])
    found = cover(make_snapshot([pod], nodes=[]), measured([pod]))
    assert list(found.skipped) == [ReasonCode.NODE_NOT_READY]


def test_namespaces_are_counted_separately():
    pods = [make_pod(namespace=namespace, containers=[make_container(**LARGE)]) for namespace in ("bank", "shop")]
    found = cover_by_namespace(EligibilityInputs(make_snapshot(pods), {}, FULL), measured(pods))
    assert {namespace: one.requested for namespace, one in found.items()} == dict.fromkeys(
        ("bank", "shop"), make_resources(1000, 1024)
    )


def test_the_reason_with_the_largest_share_is_first():
    pods = [guaranteed(), make_pod(namespace="kube-system", containers=[make_container(cpu=100)])]
    assert list(cover(make_snapshot(pods), measured(pods)).skipped) == [
        ReasonCode.GUARANTEED,
        ReasonCode.EXCLUDED_NAMESPACE,
    ]


# ---- laws ----


@given(clusters())
def test_every_request_is_either_sized_or_skipped_for_one_reason(cluster):
    policy = replace(FULL, allow_extended_resources=False)
    plans = decide_node_plans(cluster.snapshot, cluster.statistics, policy, NOW)
    pods = list_pod_requests(cluster.snapshot, plans)
    _, totals = estimate_waste(cluster.snapshot, cluster.statistics, plans, pods)
    inputs = EligibilityInputs(cluster.snapshot, {}, policy)
    found = sum_coverage(estimate_coverage(inputs, cluster.statistics, NOW, pods, SizingContext()).values())
    assert found.requested == totals.requested
    assert found.sized.unknown == NO_RESOURCES
    for group in found.skipped.values():
        for resource in ResourceName:
            assert 0 <= group.unknown.get(resource) <= group.requested.get(resource)
            assert group.reclaimable.get(resource) <= group.requested.get(resource) - group.unknown.get(resource)


@given(clusters())
def test_the_change_that_unlocks_a_reason_makes_it_disappear(cluster):
    policy = replace(FULL, allow_extended_resources=False)
    found = cover(cluster.snapshot, cluster.statistics, policy)
    for reason, group in found.skipped.items():
        unlock = UNLOCKS[reason]
        if unlock.apply is None or group.unknown == group.requested:
            continue
        after = cover(*apply_reason(reason, cluster.snapshot, cluster.statistics, policy))
        assert reason not in after.skipped


_KINDS = ("sized", "guaranteed", "device", "excluded", "off", "memory only", "restarts", "vpa", "unmeasured")


def draw_cluster(seed: int) -> tuple[ClusterSnapshot, StatisticsTable]:
    """A cluster with free capacity, whose workloads are skipped for all reasons that a change unlocks."""
    draw = random.Random(seed)
    nodes = [make_node(f"n{number}", 64_000, 256 << 10) for number in range(3)]
    nodes[-1] = replace(nodes[-1], kubelet_version=(1, 32))
    pods, rows, vpas = [], [], []
    for number in range(draw.randint(10, 24)):
        kind = draw.choice(_KINDS)
        cpu, memory = draw.randint(200, 2000), draw.randint(256, 4096)
        for replica in range(draw.randint(1, 4)):
            limits: dict[str, Any] = {"cpu_limit": cpu, "memory_limit_mib": memory} if kind == "guaranteed" else {}
            pod = make_pod(
                f"w{number}-{replica}",
                "kube-system" if kind == "excluded" else "shop",
                draw.choice(nodes).name,
                [make_container(cpu=cpu, memory_mib=memory, memory_resize_restarts=kind == "restarts", **limits)],
                f"Deployment/w{number}",
                QosClass.GUARANTEED if kind == "guaranteed" else QosClass.BURSTABLE,
                annotations={"off": {"cruise.io/mode": "off"}, "memory only": {"cruise.io/resources": "memory"}}.get(
                    kind, {}
                ),
                extended_requests=(("nvidia.com/gpu", 1),) if kind == "device" else (),
            )
            pods.append(pod)
            base = draw.randint(10, cpu)
            used = draw.randint(32, memory)
            statistic = make_statistic_for(
                pod, cpu_base=base, cpu_peak=2 * base, memory_base_mib=used, memory_peak_mib=used + used // 4
            )
            rows += [] if kind == "unmeasured" else [statistic]
        if kind == "vpa":
            ref = pods[-1].workload
            vpas.append(VerticalPodAutoscaler("shop", f"w{number}", ref, "Auto"))
    return replace(make_snapshot(pods, nodes), vertical_autoscalers=tuple(vpas)), make_table(*rows)


def sum_largest_headrooms(snapshot: ClusterSnapshot, table: StatisticsTable, resource: ResourceName) -> int:
    largest = dict.fromkeys((node.name for node in snapshot.nodes), 0)
    nodes = {(pod.namespace, pod.name): pod.node for pod in snapshot.pods}
    for row in range(len(table.keys)):
        one = table.get_row(row)
        cpu = one.cpu_peak_millicores - one.cpu_base_millicores
        memory = one.memory_peak_bytes - one.memory_base_bytes
        node = nodes[one.key.namespace, one.key.pod] or ""
        largest[node] = max(largest[node], cpu if resource is ResourceName.CPU else memory)
    return sum(largest.values())


def test_a_change_alone_reclaims_about_what_is_stated_for_its_reason(seeds):
    policy = replace(FULL, allow_extended_resources=False)
    seen = set[ReasonCode]()
    for seed in seeds(400):
        snapshot, table = draw_cluster(seed)
        before = cover(snapshot, table, policy)
        for reason, group in before.skipped.items():
            if UNLOCKS[reason].apply is None:
                assert group.unknown == group.requested, (seed, reason)
                continue
            seen.add(reason)
            after = cover(*apply_reason(reason, snapshot, table, policy))
            assert reason not in after.skipped, (seed, reason)
            for resource in ResourceName:
                more = after.sized.reclaimable.get(resource) - before.sized.reclaimable.get(resource)
                stated = group.reclaimable.get(resource)
                # The pods of a node share its headroom, so more pods on it change the targets of the others.
                shared = sum_largest_headrooms(snapshot, table, resource)
                assert abs(more - stated) <= shared, (seed, reason, resource, more, stated)
    assert seen == {
        ReasonCode.GUARANTEED,
        ReasonCode.EXTENDED_RESOURCES,
        ReasonCode.EXCLUDED_NAMESPACE,
        ReasonCode.MODE_OFF,
        ReasonCode.CPU_NOT_MANAGED,
        ReasonCode.RESIZE_RESTARTS,
        ReasonCode.MANAGED_BY_OTHER_AUTOSCALER,
        ReasonCode.RESIZE_UNSUPPORTED,
    }


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.INITIAL])
def test_the_mode_of_the_cluster_is_a_reason_like_others(mode):
    pod = make_pod(containers=[make_container(**LARGE)])
    found = cover(make_snapshot([pod]), measured([pod]), Policy(mode=mode))
    [(reason, group)] = found.skipped.items()
    assert UNLOCKS[reason].setting == "mode"
    assert group.unknown == NO_RESOURCES
    assert group.reclaimable.cpu_millicores >= 700


def test_pods_with_pod_level_resources_show_what_newer_nodes_would_reclaim():
    containers = [make_container(one, cpu=None, memory_mib=None) for one in ("app", "proxy")]
    pod = make_pod(containers=containers, pod_level=make_pod_level(make_amounts(2000, 2048)))
    table = make_table(*(make_statistic_for(pod, one.name) for one in containers))
    snapshot = make_snapshot([pod], [make_node(kubelet_version=(1, 35))])
    found = cover(snapshot, table, FULL)
    [(reason, group)] = found.skipped.items()
    assert reason is ReasonCode.POD_LEVEL_RESOURCES
    assert group.unknown == NO_RESOURCES
    # Bases of 50m and 64 MiB each, and headrooms of 150m and 36 MiB.
    assert group.reclaimable == make_resources(2000 - 400, 2048 - 200)
    after = cover(*apply_reason(reason, snapshot, table, FULL))
    assert not after.skipped
    assert after.sized.reclaimable == group.reclaimable

"""Unschedulable pods: the sizes that they are shrunk to, and which are skipped."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given

from cruise.decisions.admission.replacement_pods import decide_unschedulable_pods
from cruise.domain.actions import ContainerTarget, ReasonCode, RefusedResize, ResizePod, SkippedPod
from cruise.domain.annotations import ORIGINAL_RESOURCES
from cruise.domain.autoscalers import LimitRangeItem, NodeAutoscalerKind
from cruise.domain.cluster import ContainerRole, Pod, QosClass
from cruise.domain.original_resources import format_original_resources
from cruise.domain.pod_resources import replace_spec_resources
from cruise.domain.policy import DEFAULT_RULES, SEED_RULES, Mode, Policy
from cruise.domain.resources import MEBIBYTE, NO_RESOURCES
from tests.builders import (
    LONG_AGO,
    NOW,
    make_amounts,
    make_container,
    make_node,
    make_pod,
    make_snapshot,
    make_statistic,
    make_table,
)
from tests.strategies import DrawnClusterValues, clusters

RESIZE = Policy(mode=Mode.RESIZE)


def waiting(*containers, **fields) -> Pod:
    """A pod of Deployment web that requests more than a node has."""
    containers = containers or (make_container(cpu=5000, memory_mib=512, settled=False),)
    return make_pod("web-9", node=None, containers=containers, **{"unschedulable_since": LONG_AGO, **fields})


def use(cpu=400, memory_mib=300, **more):
    return make_statistic("", cpu_base=1, cpu_peak=cpu, memory_base_mib=1, memory_peak_mib=memory_mib, **more)


def decide(pod: Pod, *rows, policy=RESIZE, refused=None, **snapshot) -> tuple[list[ResizePod], list[SkippedPod]]:
    cluster = make_snapshot([pod], nodes=[make_node()], **snapshot)
    return decide_unschedulable_pods(cluster, make_table(*(rows or (use(),))), policy, NOW, refused=refused)


def reasons(decided: tuple[list[ResizePod], list[SkippedPod]]) -> list[ReasonCode]:
    resizes, holds = decided
    assert resizes == []
    return [hold.reason for hold in holds]


def test_shrinks_to_the_peak_of_its_workload_and_leaves_the_limits():
    pod = waiting(make_container(cpu=5000, memory_mib=512, memory_limit_mib=2048, settled=False))
    [resize], holds = decide(pod)
    assert holds == []
    target = ContainerTarget("app", ContainerRole.MAIN, make_amounts(400, 300), make_amounts(None, 2048))
    assert resize.containers == (target,)
    assert (resize.uid, resize.node, resize.growth, resize.reason) == (
        pod.uid,
        None,
        NO_RESOURCES,
        ReasonCode.RIGHTSIZED,
    )


def test_nothing_grows():
    [resize], _ = decide(waiting(make_container(cpu=5000, memory_mib=100, settled=False)))
    assert resize.containers[0].requests == make_amounts(400, 100)


def test_an_unstated_request_is_not_added():
    [resize], _ = decide(waiting(make_container(cpu=5000, memory_mib=None, settled=False)))
    assert resize.containers[0].requests == make_amounts(400, None)


@pytest.mark.parametrize(("rules", "cpu"), [(DEFAULT_RULES, 8000), (SEED_RULES, 4000)])
def test_a_peak_above_every_node_is_requested(rules, cpu):
    pod = waiting(make_container(cpu=9000, memory_mib=512, settled=False))
    [resize], _ = decide(pod, use(cpu=8000), policy=replace(RESIZE, rules=rules))
    assert resize.containers[0].requests.cpu_millicores == cpu


@pytest.mark.parametrize(("waited", "cpu"), [(timedelta(minutes=10), 16_000), (timedelta(minutes=11), 4000)])
def test_a_removed_kind_of_node_counts_for_ten_minutes(waited, cpu):
    """Its workload peaked on nodes of 16 cores, which cannot be added any more; its template requests 2."""
    original = format_original_resources({"app": (make_amounts(2000, 512), make_amounts())})
    pod = waiting(
        make_container(cpu=20_000, memory_mib=512, settled=False),
        annotations={ORIGINAL_RESOURCES: original},
        unschedulable_since=NOW - waited,
    )
    cluster = make_snapshot([pod], nodes=[make_node()], node_autoscaler=NodeAutoscalerKind.KARPENTER)
    cluster = replace(cluster, removed_nodes=(make_node("gone", cpu=16_000),))
    [resize], _ = decide_unschedulable_pods(cluster, make_table(use(cpu=20_000)), RESIZE, NOW)
    assert resize.containers[0].requests.cpu_millicores == cpu


def test_a_pod_within_the_update_threshold_needs_no_change():
    assert reasons(decide(waiting(make_container(cpu=408, memory_mib=310, settled=False)))) == [
        ReasonCode.NO_CHANGE_NEEDED
    ]


def test_only_unschedulable_pods_are_sized():
    for pod in (
        waiting(unschedulable_since=None),
        waiting(scheduling_gated=True),
        waiting(terminating=True),
        replace(waiting(), node="n1", phase="Running"),
    ):
        assert decide(pod) == ([], [])


def test_pods_skipped_by_node_passes_are_skipped_here():
    stale = use(updated_at=0)
    assert reasons(decide(waiting(), stale)) == [ReasonCode.STALE_STATISTICS]
    assert reasons(decide(waiting(qos=QosClass.GUARANTEED))) == [ReasonCode.GUARANTEED]
    assert reasons(decide(waiting(annotations={"cruise.io/mode": "off"}))) == [ReasonCode.MODE_OFF]
    assert reasons(decide(waiting(annotations={"cruise.io/mode": "initial"}))) == [ReasonCode.MODE_INITIAL]


def test_keeps_the_qos_class():
    # 400m and 300 MiB are the limits, so that the shrunk pod would be Guaranteed.
    limited = make_container(cpu=400, memory_mib=280, cpu_limit=400, memory_limit_mib=280, settled=False)
    other = make_container("two", cpu=500, memory_mib=300, cpu_limit=400, memory_limit_mib=300, settled=False)
    rows = (use(memory_mib=280), use(container="two"))
    assert reasons(decide(waiting(limited, other), *rows)) == [ReasonCode.QOS_CHANGE]


def test_a_limit_falls_with_the_request_only_if_a_limit_range_requires_it():
    ranges = {"shop": (LimitRangeItem(is_for_pod=False, max_memory_ratio=4.0),)}
    pod = waiting(make_container(cpu=5000, memory_mib=512, memory_limit_mib=2000, settled=False))
    [resize], _ = decide(pod, limit_ranges=ranges)
    [free], _ = decide(pod)
    assert (resize.containers[0].limits.memory_bytes or 0) < 2000 * MEBIBYTE
    assert free.containers[0].limits.memory_bytes == 2000 * MEBIBYTE
    tight = {"shop": (LimitRangeItem(is_for_pod=False, maximum=make_amounts(None, 50)),)}
    assert reasons(decide(pod, limit_ranges=tight)) == [ReasonCode.LIMIT_RANGE]


def test_a_rejected_target_is_not_repeated():
    [resize], _ = decide(waiting())
    refused = {resize.uid: RefusedResize(resize.uid, resize.containers, ReasonCode.RESIZE_REFUSED, NOW)}
    assert reasons(decide(waiting(), refused=refused)) == [ReasonCode.RESIZE_REFUSED]


@given(clusters())
def test_a_shrunk_pod_needs_no_change_and_requests_less(cluster: DrawnClusterValues):
    pods = [
        replace(pod, node=None, phase="Pending", unschedulable_since=LONG_AGO) if index % 2 else pod
        for index, pod in enumerate(cluster.snapshot.pods)
    ]
    snapshot = replace(cluster.snapshot, pods=tuple(pods))
    resizes, _ = decide_unschedulable_pods(snapshot, cluster.statistics, RESIZE, NOW)
    by_name = {(pod.namespace, pod.name): pod for pod in pods}
    for resize in resizes:
        before = by_name[(resize.namespace, resize.pod)]
        after = replace_spec_resources(before, resize.containers)
        assert before.node is None
        for old, new in zip(before.containers, after.containers, strict=True):
            assert (new.requests.cpu_millicores or 0) <= (old.requests.cpu_millicores or 0)
            assert (new.requests.memory_bytes or 0) <= (old.requests.memory_bytes or 0)
            assert new.limits == old.limits
        by_name[(resize.namespace, resize.pod)] = after
    again, _ = decide_unschedulable_pods(
        replace(snapshot, pods=tuple(by_name.values())), cluster.statistics, RESIZE, NOW
    )
    assert again == []

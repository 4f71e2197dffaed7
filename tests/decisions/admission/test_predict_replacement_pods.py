"""The predicted replacement of an evicted pod: by template, peak and quotas."""

from dataclasses import replace

import pytest

from cruise.decisions.admission.replacement_pods import predict_replacement_pods
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.domain.autoscalers import ResourceQuota
from cruise.domain.cluster import Pod, Workload
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import StatedResources
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

FULL = Policy(mode=Mode.FULL)
HAS_1000_MIB = make_pod(containers=[make_container(cpu=1000, memory_mib=1000)])
PEAK = make_statistic("", cpu_peak=700, memory_peak_mib=1400)


def requested(
    pod: Pod, *rows, quota: ResourceQuota | None = None, workload: Workload | None = None
) -> StatedResources | None:
    """The requests of a pod's replacement, None if it would not be created."""
    snapshot = make_snapshot([pod], [make_node()], [workload or make_workload()])
    snapshot = replace(snapshot, quotas={"shop": (quota,)} if quota else {})
    table = make_table(*rows)
    find = predict_replacement_pods(snapshot, Eligibility(snapshot, table, {}, FULL, NOW), table, FULL)
    assert find is not None
    found = find.replacement(pod)
    return None if found is None else found.containers[0].requests


def test_it_requests_the_peak():
    assert requested(HAS_1000_MIB, PEAK) == make_amounts(700, 1400)


@pytest.mark.parametrize(
    ("left_mib", "found"),
    [
        # Now 1,400 MiB would be rejected, and the pod created with 1,000 MiB; but its eviction frees its own quota.
        (1399, make_amounts(1000, 1400)),
        (1400, make_amounts(700, 1400)),
        # Until the evicted pod is deleted, not even its present size would be admitted.
        (999, None),
    ],
)
def test_an_eviction_frees_quota_for_its_replacement(left_mib, found):
    assert requested(HAS_1000_MIB, PEAK, quota=ResourceQuota(make_amounts(None, left_mib))) == found


def test_a_pod_that_admission_does_not_change_is_created_from_its_template():
    template = make_workload(requests={"app": make_amounts(2000)}, memory_limits={"app": 3000 << 20})
    shrunk = make_pod(containers=[make_container(cpu=300, memory_mib=300, memory_limit_mib=400)])
    assert requested(shrunk, workload=template) == make_amounts(2000, 300)
    assert requested(shrunk) == make_amounts(300, 300)


def test_a_daemonset_pod_on_a_new_node_requests_its_template_or_its_peak():
    # Its peak has less CPU and more memory; a new node has no statistics.
    daemon = make_pod("agent-n1", workload="DaemonSet/agent", identity="n1", containers=[make_container(memory_mib=64)])
    template = make_workload("DaemonSet/agent", requests={"app": make_amounts(800, 64)})
    peak = make_statistic("", workload="DaemonSet/agent", identity="n1", cpu_peak=700, memory_peak_mib=1400)
    assert requested(daemon, peak, workload=template) == make_amounts(800, 1400)

"""New pods without requests: unchanged by default, with requests by their usage if best_effort is `adopt`."""

from dataclasses import replace

import pytest

from cruise.decisions.admission.admission import LeaveUnchanged, MutatePod, compute_admitted_resources, decide_admission
from cruise.decisions.admission.node_index import NodeIndex
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.domain.actions import ReasonCode, SkippedPod
from cruise.domain.autoscalers import LimitRangeItem, QuotaScope, ResourceQuota
from cruise.domain.cluster import ContainerRole, Pod, QosClass
from cruise.domain.policy import SEED_RULES, BestEffortPolicy, MemoryLimitPolicy, Mode, Policy
from cruise.domain.resources import MEBIBYTE, ResourceName, StatedResources
from tests.builders import (
    NOW,
    make_amounts,
    make_autoscaler,
    make_container,
    make_node,
    make_pod,
    make_snapshot,
    make_statistic,
    make_table,
)

KEEP = Policy(mode=Mode.INITIAL)
ADOPT = replace(KEEP, best_effort=BestEffortPolicy.ADOPT)
NODE = make_node(cpu=8000)


def new_pod(*names: str, **fields) -> Pod:
    containers = [make_container(name, None, None) for name in names or ("app",)]
    return make_pod(node=None, phase="Pending", containers=containers, qos=QosClass.BEST_EFFORT, **fields)


def decide(pod: Pod, policy=ADOPT, quotas=(), ranges=(), **snapshot) -> MutatePod | LeaveUnchanged:
    rows = make_table(
        *(make_statistic("", container=one.name, cpu_peak=400, memory_peak_mib=300) for one in pod.sized_containers)
    )
    seen = make_snapshot(nodes=[NODE], **snapshot)
    return decide_admission(
        pod, Eligibility(seen, rows, {}, policy, NOW), rows, NodeIndex(seen.nodes), ranges, policy, quotas
    )


def sizes(decision: MutatePod | LeaveUnchanged) -> list[tuple[int | None, int | None, StatedResources]]:
    assert isinstance(decision, MutatePod), decision
    return [(one.requests.cpu_millicores, one.requests.memory_bytes, one.limits) for one in decision.containers]


def test_by_default_a_pod_without_requests_is_unchanged():
    assert decide(new_pod(), KEEP) == LeaveUnchanged(ReasonCode.BEST_EFFORT)
    assert decide(new_pod(), replace(ADOPT, rules=SEED_RULES)) == LeaveUnchanged(ReasonCode.BEST_EFFORT)


def test_an_adopted_pod_gets_requests_and_no_limits_and_is_burstable():
    pod = new_pod("app", "proxy")
    decision = decide(pod)
    assert sizes(decision) == [(400, 300 * MEBIBYTE, StatedResources())] * 2
    assert isinstance(decision, MutatePod)
    created = compute_admitted_resources(pod, decision).apply_to(pod, {})
    assert created.qos is QosClass.BURSTABLE
    assert decide(created) == LeaveUnchanged(ReasonCode.NO_CHANGE_NEEDED)


def test_limits_are_added_only_if_settings_say_so():
    always = replace(ADOPT, memory_limits=MemoryLimitPolicy.ALWAYS)
    assert sizes(decide(new_pod(), always)) == [(400, 300 * MEBIBYTE, make_amounts(None, 600))]


@pytest.mark.parametrize(("stated", "policy", "adopted"), [("adopt", KEEP, True), ("keep", ADOPT, False)])
def test_the_nearest_statement_applies(stated: str, policy: Policy, adopted: bool):
    pod = new_pod(annotations={"cruise.io/best-effort": stated})
    assert isinstance(decide(pod, policy), MutatePod) is adopted
    of_namespace = {"shop": {"cruise.io/best-effort": stated}}
    assert isinstance(decide(new_pod(), policy, namespace_annotations=of_namespace), MutatePod) is adopted


def test_only_managed_resources_are_requested():
    pod = new_pod(annotations={"cruise.io/resources": "memory"})
    assert sizes(decide(pod)) == [(None, 300 * MEBIBYTE, StatedResources())]
    scaled = decide(new_pod(), autoscalers=[make_autoscaler("Deployment/web", "shop", ResourceName.CPU)])
    assert sizes(scaled) == [(None, 300 * MEBIBYTE, StatedResources())]


def test_a_running_pod_is_skipped():
    pod = make_pod(containers=[make_container("app", None, None)], qos=QosClass.BEST_EFFORT)
    rows = make_table(make_statistic("web-1"))
    checked = Eligibility(make_snapshot([pod]), rows, {}, replace(ADOPT, mode=Mode.FULL), NOW).check(pod)
    assert isinstance(checked, SkippedPod)
    assert checked.reason is ReasonCode.BEST_EFFORT


NOT_BEST_EFFORT = (QuotaScope("NotBestEffort"),)


@pytest.mark.parametrize(
    ("quota", "adopted"),
    [
        (ResourceQuota(make_amounts(1000, 1000), scopes=NOT_BEST_EFFORT), True),
        (ResourceQuota(make_amounts(100, 1000), scopes=NOT_BEST_EFFORT), False),
        (ResourceQuota(make_amounts(1000, 1000)), True),
        # The API server rejects a container without a limit that a quota counts.
        (ResourceQuota(limits_left=make_amounts(9000, 9000), scopes=NOT_BEST_EFFORT), False),
        # No longer counted.
        (ResourceQuota(make_amounts(0, 0), scopes=(QuotaScope("BestEffort"),)), True),
    ],
)
def test_a_quota_that_counts_the_new_class_must_admit_the_pod(quota: ResourceQuota, adopted: bool):
    assert isinstance(decide(new_pod(), quotas=[quota]), MutatePod) is adopted


def test_a_quota_requires_what_it_counts_of_init_containers_as_well():
    init = make_container("setup", None, None, role=ContainerRole.INIT)
    pod = new_pod()
    pod = replace(pod, containers=(init, *pod.containers))
    quota = ResourceQuota(make_amounts(1000, 1000), scopes=NOT_BEST_EFFORT)
    assert decide(pod, quotas=[quota]) == LeaveUnchanged(ReasonCode.QUOTA_EXCEEDED)
    assert isinstance(decide(pod), MutatePod)


def test_a_limit_range_bounds_the_new_requests():
    smallest = LimitRangeItem(is_for_pod=False, minimum=make_amounts(500, 400))
    assert sizes(decide(new_pod(), ranges=(smallest,))) == [(500, 400 * MEBIBYTE, StatedResources())]

"""The sizes that Guaranteed pods are created with."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.admission.admission import (
    LeaveUnchanged,
    MutatePod,
    compute_admitted_resources,
    decide_admission,
    get_original_resources,
)
from cruise.decisions.admission.node_index import NodeIndex
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.domain.actions import ReasonCode
from cruise.domain.annotations import ORIGINAL_RESOURCES
from cruise.domain.autoscalers import LimitRangeItem, ResourceQuota
from cruise.domain.cluster import Container, ContainerRole, Pod, QosClass
from cruise.domain.original_resources import (
    RevisionPeriod,
    WorkloadContainer,
    WorkloadRevisions,
    format_original_resources,
    get_resources_at_creation,
)
from cruise.domain.policy import AdmissionSize, GuaranteedPolicy, Mode, Policy
from cruise.domain.resources import MEBIBYTE
from cruise.domain.usage import StatisticsTable
from tests.builders import (
    NOW,
    NOW_SECONDS,
    make_amounts,
    make_container,
    make_node,
    make_pod,
    make_snapshot,
    make_statistic,
    make_table,
    make_workload,
)

INITIAL = Policy(mode=Mode.INITIAL, guaranteed=GuaranteedPolicy.RESIZE)


def equal(name: str = "app", cpu: int = 2500, memory_mib: int = 2048, **more) -> Container:
    return make_container(name, cpu, memory_mib, cpu, memory_mib, settled=False, **more)


def new_pod(*containers: Container, **fields) -> Pod:
    return make_pod("", node=None, containers=containers or (equal(),), qos=QosClass.GUARANTEED, **fields)


def use(container: str = "app", cpu: int = 500, memory_mib: int = 1000, **more):
    return make_statistic(
        "", container=container, cpu_base=1, cpu_peak=cpu, memory_base_mib=1, memory_peak_mib=memory_mib, **more
    )


def decide(
    pod: Pod, *rows, ranges=(), quotas=(), table: StatisticsTable | None = None, policy=INITIAL, **snapshot
) -> MutatePod | LeaveUnchanged:
    table = make_table(*(rows or (use(),))) if table is None else table
    nodes = snapshot.pop("nodes", (make_node(),))
    whole = make_snapshot([], nodes=nodes, workloads=[make_workload()], **snapshot)
    eligibility = Eligibility(whole, table, {}, policy, NOW)
    return decide_admission(pod, eligibility, table, NodeIndex(nodes), ranges, policy, quotas)


def created(pod: Pod, *rows, **more) -> list[tuple[int, int]]:
    """CPU and memory (MiB) of each container; requests and limits are equal."""
    decision = decide(pod, *rows, **more)
    assert isinstance(decision, MutatePod), decision
    assert all(one.requests == one.limits for one in decision.containers)
    amounts = [one.requests.resources for one in decision.containers]
    return [(one.cpu_millicores, one.memory_bytes // MEBIBYTE) for one in amounts]


def left(pod: Pod, *rows, **more) -> ReasonCode:
    decision = decide(pod, *rows, **more)
    assert isinstance(decision, LeaveUnchanged), decision
    return decision.reason


def test_requests_and_limits_are_the_largest_use_and_a_margin():
    assert created(new_pod()) == [(750, 1500)]
    assert created(new_pod(), use(memory_7d_max_mib=1500)) == [(750, 2048)]
    assert created(new_pod(), use(), policy=replace(INITIAL, admission_size=AdmissionSize.NODE_PASS)) == [(750, 1500)]


def test_whole_cores_stay_whole():
    pod = new_pod(equal(cpu=4000), equal("proxy", 500, 512, role=ContainerRole.SIDECAR))
    assert created(pod, use(cpu=1500), use("proxy", 100, 100)) == [(3000, 1500), (150, 150)]


def test_a_short_history_or_a_remembered_kill_decreases_nothing():
    short: dict[str, Any] = {"history_since": NOW_SECONDS - 86_400}
    assert left(new_pod(), use(**short)) is ReasonCode.NO_CHANGE_NEEDED
    assert created(new_pod(), use(cpu=2400, memory_mib=2000, **short)) == [(2880, 2400)]
    assert created(new_pod(), use(oom_memory_mib=1500)) == [(750, 2048)]


def test_memory_rises_at_most_to_the_ceiling():
    assert created(new_pod(), use(memory_mib=4000)) == [(750, 4096)]


def test_a_new_revision_gets_at_least_what_it_states():
    pod, row = new_pod(), use(cpu=2400)
    old = new_pod(equal(cpu=3000))
    runs = {get_resources_at_creation(old)[0]: RevisionPeriod(0, NOW_SECONDS)}
    of_web = WorkloadContainer("shop", "Deployment/web", "app")
    table = replace(make_table(row), revisions=WorkloadRevisions({of_web: runs}))
    assert created(pod, table=table) == [(2880, 2048)]


def test_the_largest_node_bounds_what_is_added():
    assert created(new_pod(), use(cpu=9000)) == [(4000, 1500)]


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({"cruise.io/resources": "cpu"}, (750, 2048)),
        ({"cruise.io/resources": "memory"}, (2500, 1500)),
        ({"cruise.io/memory-limits": "never"}, (750, 2048)),
        ({"cruise.io/cpu-min": "1", "cruise.io/memory-max": "500Mi"}, (1000, 1000)),
    ],
)
def test_overrides_apply(annotations, expected):
    assert created(new_pod(annotations=annotations)) == [expected]


def test_limit_ranges_and_quotas_hold():
    minimum = (LimitRangeItem(False, minimum=make_amounts(1000, 1500), max_cpu_ratio=1.0, max_memory_ratio=1.0),)
    assert created(new_pod(), ranges=minimum) == [(1000, 1500)]
    whole = (LimitRangeItem(True, minimum=make_amounts(1000, 1500)),)
    assert left(new_pod(), ranges=whole) is ReasonCode.LIMIT_RANGE
    quota = (ResourceQuota(limits_left=make_amounts(2500, 2048)),)
    assert created(new_pod(), quotas=quota) == [(750, 1500)]
    assert left(new_pod(), use(cpu=2500, memory_mib=2000), quotas=quota) is ReasonCode.QUOTA_EXCEEDED


def test_the_setting_keeps_them_by_default():
    assert left(new_pod(), policy=Policy(mode=Mode.INITIAL)) is ReasonCode.GUARANTEED
    assert created(new_pod(annotations={"cruise.io/guaranteed": "resize"}), policy=Policy(mode=Mode.INITIAL))


@given(
    st.integers(1, 5000),
    st.integers(1, 8000),
    st.integers(10, 5000),
    st.integers(16, 8000),
    st.sampled_from([0, 86_400, 40 * 86_400]),
)
def test_deciding_again_changes_nothing_and_no_size_is_below_the_largest_use(
    cpu, memory, stated_cpu, stated_memory, age
):
    row = use(cpu=cpu, memory_mib=memory, history_since=NOW_SECONDS - age if age else 0)
    pod = new_pod(equal(cpu=stated_cpu, memory_mib=stated_memory))
    decision = decide(pod, row, nodes=(make_node(cpu=64_000, memory_mib=65_536),))
    if isinstance(decision, LeaveUnchanged):
        assert decision.reason is ReasonCode.NO_CHANGE_NEEDED
        return
    [target] = decision.containers
    size = target.requests.resources
    assert target.requests == target.limits
    assert size.cpu_millicores >= min(cpu, stated_cpu)
    assert size.memory_bytes >= min(memory, stated_memory) * MEBIBYTE
    if age < 28 * 86_400:
        assert size.cpu_millicores >= stated_cpu
        assert size.memory_bytes >= stated_memory * MEBIBYTE
    originals = {ORIGINAL_RESOURCES: format_original_resources(get_original_resources(pod, decision))}
    again = compute_admitted_resources(pod, decision).apply_to(pod, originals)
    assert again.qos is QosClass.GUARANTEED
    assert left(again, row, nodes=(make_node(cpu=64_000, memory_mib=65_536),)) is ReasonCode.NO_CHANGE_NEEDED

"""User minimums are granted from free capacity, at no other pod's cost."""

from dataclasses import replace

import pytest

from cruise.decisions.explanation.pod_explanation import explain_pod
from cruise.decisions.sizing.node_plans import NodePlan, decide_node_plans
from cruise.domain.annotations import Overrides
from cruise.domain.autoscalers import ResourceQuota
from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.domain.pod_resources import replace_spec_resources
from cruise.domain.policy import SEED_RULES, EvictionRanking, Mode, Policy, RequestBounds
from cruise.domain.resources import MEBIBYTE
from cruise.domain.rightsizing_policies import PolicySelector, RightsizingPolicy
from cruise.domain.usage import StatisticsTable
from tests.builders import (
    NOW,
    make_amounts,
    make_container,
    make_node,
    make_pod,
    make_ref,
    make_snapshot,
    make_statistic_for,
    make_table,
    make_workload,
)

FULL = Policy(mode=Mode.FULL)
FIRST_DESIGN = replace(FULL, rules=SEED_RULES)
LEVERS = {"cruise.io/eviction-ranking": "never", "cruise.io/memory-min": "9Gi"}
TENANT = make_ref("Deployment/tenant")


def tenant(annotations: dict[str, str], base_mib: int = 48, peak_mib: int = 64) -> tuple[Pod, object]:
    """A pod that was submitted with 64 MiB."""
    pod = make_pod(
        "tenant",
        namespace="tenant",
        workload=TENANT,
        annotations=annotations,
        containers=[make_container(memory_mib=64)],
    )
    return pod, make_statistic_for(pod, memory_base_mib=base_mib, memory_peak_mib=peak_mib)


def important(name: str, base_mib: int, priority: int = 1_000_000) -> tuple[Pod, object]:
    """A pod of another namespace, of high priority."""
    pod = make_pod(
        name, namespace="payments", priority=priority, containers=[make_container(memory_mib=base_mib, cpu=100)]
    )
    return pod, make_statistic_for(pod, memory_base_mib=base_mib, memory_peak_mib=base_mib)


def scene(
    *pods: tuple[Pod, object], memory_mib: int = 16 * 1024, **more: object
) -> tuple[ClusterSnapshot, StatisticsTable]:
    workloads = [
        make_workload("Deployment/tenant", "tenant", requests={"app": make_amounts(100, 64)}),
        make_workload("Deployment/web", "payments", replicas=sum(pod.namespace == "payments" for pod, _ in pods)),
    ]
    node = make_node(cpu=16_000, memory_mib=memory_mib)
    snapshot = make_snapshot([pod for pod, _ in pods], nodes=[node], workloads=workloads)
    return replace(snapshot, **more), make_table(*(row for _, row in pods))  # type: ignore[arg-type]


def plan_of(snapshot: ClusterSnapshot, table: StatisticsTable, policy: Policy = FULL, **more: object) -> NodePlan:
    [plan] = decide_node_plans(snapshot, table, policy, NOW, **more)  # type: ignore[arg-type]
    return plan


def memory_of(plan: NodePlan) -> dict[str, int]:
    """The target of each pod, in MiB."""
    return {target.pod: target.memory_bytes // MEBIBYTE for target in plan.targets}


NEIGHBOURS = tuple(important(f"pay-{number}", 3 * 1024) for number in range(5))
# Pods that may be evicted for a pod of the tenant's priority.
EQUALS = tuple(important(f"pay-{number}", 3 * 1024, 0) for number in range(5))


@pytest.mark.parametrize(
    "levers",
    [
        LEVERS,
        {"cruise.io/memory-min": "9Gi"},
        {"cruise.io/eviction-ranking": "never", "cruise.io/headroom-factor": "10"},
        {"cruise.io/eviction-ranking": "high", "cruise.io/memory-min.app": "9Gi"},
    ],
)
def test_a_tenants_annotations_evict_no_pod_of_another_namespace(levers):
    # Five pods of high priority have bases of 15 of 16 GiB; the tenant's pod requests 9 GiB, or 100 × 16 MiB.
    found = scene(tenant(levers), *NEIGHBOURS)
    plan = plan_of(*found)
    assert (plan.fits, plan.evict) == (True, ())
    sizes = memory_of(plan)
    assert all(sizes[pod.name] >= 3 * 1024 for pod, _ in NEIGHBOURS)
    # It gets its base, its share, and free capacity.
    assert 64 <= sizes["tenant"] <= 1024
    assert sum(sizes.values()) <= 16 * 1024


def test_under_the_first_rule_set_three_of_them_are_evicted():
    plan = plan_of(*scene(tenant(LEVERS), *NEIGHBOURS), FIRST_DESIGN)
    assert [one.namespace for one in plan.evict] == ["payments"] * 3


def test_free_capacity_is_granted():
    plan = plan_of(*scene(tenant(LEVERS), NEIGHBOURS[0]))
    assert memory_of(plan) == {"pay-0": 3 * 1024, "tenant": 9 * 1024}
    assert plan_of(*scene(tenant({"cruise.io/headroom-factor": "3"}), NEIGHBOURS[0])).evict == ()
    assert (
        memory_of(plan_of(*scene(tenant({"cruise.io/headroom-factor": "3"}), NEIGHBOURS[0])))["tenant"] == 48 + 3 * 16
    )


def test_the_smallest_user_minimum_is_granted_first_and_the_last_gets_the_rest():
    user_minimums = {"greedy": "9Gi", "modest": "512Mi"}
    pods = []
    for name, least in user_minimums.items():
        pod, _ = tenant({"cruise.io/memory-min": least})
        pod = replace(pod, name=name, uid=name)
        pods.append((pod, make_statistic_for(pod, memory_base_mib=64, memory_peak_mib=64)))
    plan = plan_of(*scene(*pods, *NEIGHBOURS))
    assert {name: memory_of(plan)[name] for name in user_minimums} == {"modest": 512, "greedy": 512}


def test_a_minimum_up_to_the_submitted_request_needs_no_grant():
    # 64 MiB of 16 MiB in use: the node lacks 16 MiB, and a pod is evicted as for any request.
    pods = [tenant({"cruise.io/memory-min": "64Mi"}, 16, 16), *NEIGHBOURS]
    assert memory_of(plan_of(*scene(*pods)))["tenant"] == 64
    short = scene(*pods, memory_mib=15 * 1024 + 48)
    assert len(plan_of(*short).evict) == len(plan_of(*short, FIRST_DESIGN).evict) == 1


def test_administrators_minimums_may_evict_other_pods():
    pods = [tenant({}), *EQUALS]
    by_namespace = scene(*pods, namespace_annotations={"tenant": LEVERS})
    stated = Overrides(ranking=EvictionRanking.NEVER, bounds=RequestBounds(make_amounts(None, 9 * 1024)))
    of_cluster = RightsizingPolicy("", "tenant", PolicySelector(namespaces=frozenset({"tenant"})), stated)
    by_policy = scene(*pods, rightsizing_policies=(of_cluster,))
    for plan in (plan_of(*by_namespace), plan_of(*by_policy)):
        assert [one.namespace for one in plan.evict] == ["payments"] * 3
        assert memory_of(plan)["tenant"] == 9 * 1024
    # A workload that requests no more than its namespace setting has no user minimum.
    both = scene(tenant(LEVERS), *EQUALS, namespace_annotations={"tenant": LEVERS})
    assert len(plan_of(*both).evict) == 3


def test_an_annotation_on_the_pod_does_not_prove_its_submitted_requests():
    forged = {**LEVERS, "cruise.io/original-resources": '{"app":{"requests":{"memory":"9Gi"}}}'}
    assert plan_of(*scene(tenant(forged), *NEIGHBOURS)).evict == ()
    # Present requests prove nothing either: they may have been granted before.
    pod, row = tenant(LEVERS)
    grown = replace(pod, containers=(make_container(memory_mib=9 * 1024),))
    plan = plan_of(*scene((grown, row), *NEIGHBOURS))
    assert plan.evict == ()
    assert memory_of(plan)["tenant"] <= 1024
    assert "tenant" in [one.pod for one in plan.resize if not one.needs_capacity]


def test_a_template_beyond_the_quota_counts_up_to_the_quota():
    large = [make_workload("Deployment/tenant", "tenant", requests={"app": make_amounts(100, 9 * 1024)})]
    found, table = scene(tenant(LEVERS), *EQUALS)
    submitted = replace(found, workloads={(one.namespace, one.ref): one for one in large})
    assert len(plan_of(submitted, table).evict) == 3
    quota = ResourceQuota(requests_left=make_amounts(None, 64))
    assert plan_of(replace(submitted, quotas={"tenant": (quota,)}), table).evict == ()


def test_a_pod_ranked_never_is_not_evicted_but_counts_with_its_submitted_requests():
    # It was submitted with 64 MiB and uses 3 GiB: 15 + 3 GiB do not fit 16.
    pods = [tenant({"cruise.io/eviction-ranking": "never"}, 3 * 1024, 3 * 1024), *EQUALS]
    plan = plan_of(*scene(*pods))
    assert (plan.fits, plan.evict) == (True, ())
    assert memory_of(plan)["tenant"] == 1024
    assert len(plan_of(*scene(*pods), FIRST_DESIGN).evict) == 1
    # With enough capacity for all it gets what it needs.
    assert memory_of(plan_of(*scene(*pods, memory_mib=20 * 1024)))["tenant"] == 3 * 1024


def test_up_to_its_submitted_requests_its_ranking_counts():
    pods = [tenant({"cruise.io/eviction-ranking": "never"}, 64, 64), *EQUALS]
    plan = plan_of(*scene(*pods, memory_mib=15 * 1024 + 32))
    assert [one.namespace for one in plan.evict] == ["payments"]


def test_grants_are_released_immediately_even_within_the_update_threshold():
    pod, row = tenant(LEVERS)
    held = replace(pod, containers=(make_container(memory_mib=9 * 1024),))
    neighbour, _ = important("pay", 6 * 1024)
    needs = make_statistic_for(neighbour, memory_base_mib=7 * 1024 + 200, memory_peak_mib=7 * 1024 + 200)
    plan = plan_of(*scene((held, row), (neighbour, needs)))
    # 16384 − 7368 = 9016, which is within 5 % of 9216.
    assert memory_of(plan) == {"pay": 7368, "tenant": 9016}
    assert {one.pod for one in plan.resize} == {"pay", "tenant"}


def test_deciding_again_changes_nothing():
    snapshot, table = scene(tenant(LEVERS), *NEIGHBOURS)
    written = {one.pod: one.containers for one in plan_of(snapshot, table).resize}
    pods = tuple(replace_spec_resources(pod, written.get(pod.name, ())) for pod in snapshot.pods)
    again = plan_of(replace(snapshot, pods=pods), table)
    assert (again.evict, again.resize) == ((), ())


@pytest.mark.parametrize("ranking", ["never", "high"])
def test_a_pod_that_runs_to_completion_does_not_grow_from_pass_to_pass(ranking):
    """It keeps what it grew to, which is no base: headroom on top of that would raise it in every pass."""
    pod, row = tenant({"cruise.io/eviction-ranking": ranking}, 3 * 1024, 4 * 1024)
    run = replace(pod, restart_policy="Never", owner_kind="Job")
    # A quota withholds the growth of its neighbours, so their node has less than they need in every pass.
    neighbours = [
        (one, make_statistic_for(one, memory_base_mib=3 * 1024, memory_peak_mib=5 * 1024)) for one, _ in EQUALS[:4]
    ]
    snapshot, table = scene((run, row), *neighbours, quotas={"payments": (ResourceQuota(make_amounts(None, 0)),)})
    sizes = []
    for _ in range(4):
        plan = plan_of(snapshot, table)
        assert plan.evict == ()
        written = {one.pod: one.containers for one in plan.resize}
        pods = tuple(replace_spec_resources(one, written.get(one.name, ())) for one in snapshot.pods)
        snapshot = replace(snapshot, pods=pods)
        [run] = [one for one in pods if one.name == "tenant"]
        sizes.append(run.containers[0].requests.resources.memory_bytes)
    assert sizes[0] > 64 * MEBIBYTE and len(set(sizes)) == 1
    [steps] = explain_pod(run, snapshot, table, FULL, NOW).steps
    user_minimum = steps.memory.user_minimum
    assert user_minimum is not None and 0 < user_minimum.from_base == 3 * 1024 * MEBIBYTE - steps.memory.current


def test_explain_reports_what_is_not_granted_and_why():
    snapshot, table = scene(tenant(LEVERS), *NEIGHBOURS)
    pod = next(one for one in snapshot.pods if one.name == "tenant")
    [steps] = explain_pod(pod, snapshot, table, FULL, NOW).steps
    user_minimum = steps.memory.user_minimum
    assert user_minimum is not None
    assert (user_minimum.submitted, user_minimum.from_base) == (64 * MEBIBYTE, 0)
    assert user_minimum.requested + steps.memory.clamped == 9 * 1024 * MEBIBYTE
    assert 0 < user_minimum.granted < user_minimum.requested
    assert steps.memory.final == steps.memory.clamped - steps.memory.trimmed + user_minimum.granted
    assert steps.memory.lower.source == "submitted"
    assert steps.cpu.user_minimum is None


@pytest.mark.parametrize("now_mib", [128, 256])
def test_no_user_minimum_raises_a_memory_limit_above_its_ceiling(now_mib):
    # It was granted the maximum of 256 MiB in the pass before and must not rise further.
    pod, row = tenant({"cruise.io/memory-min": "9Gi"})
    limited = replace(pod, containers=(make_container(memory_mib=now_mib // 2, memory_limit_mib=now_mib),))
    snapshot, table = scene((limited, row), NEIGHBOURS[0])
    stated = make_workload(
        "Deployment/tenant", "tenant", requests={"app": make_amounts(100, 64)}, memory_limits={"app": 128 * MEBIBYTE}
    )
    snapshot = replace(snapshot, workloads={**snapshot.workloads, ("tenant", TENANT): stated})
    [target] = [one for one in plan_of(snapshot, table).targets if one.pod == "tenant"]
    # Twice the template's limit.
    assert (target.memory_bytes, target.memory_limit_bytes) == (256 * MEBIBYTE, 256 * MEBIBYTE)

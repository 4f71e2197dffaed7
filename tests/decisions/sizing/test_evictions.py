"""Evictions: which pods are evicted or stay, and what a shortage prevents."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from cruise.decisions.admission.replacement_pods import predict_replacement_pods
from cruise.decisions.eviction.ranking import ASSUME_UNCHANGED, NO_EARLIER_PASSES, EarlierPassResults
from cruise.decisions.sizing.node_plans import NodePlan, decide_node_plans
from cruise.domain.actions import ReasonCode
from cruise.domain.annotations import ORIGINAL_RESOURCES
from cruise.domain.autoscalers import NodeAutoscalerKind, ResourceQuota
from cruise.domain.cluster import Node, Pod
from cruise.domain.original_resources import format_original_resources
from cruise.domain.policy import SEED_RULES, MemoryLimitPolicy, Mode, Policy
from cruise.domain.resources import MEBIBYTE, ResourceName
from cruise.domain.scheduling import (
    LabelRequirement,
    LabelSelector,
    SchedulingConstraints,
    SelectorOperator,
    Toleration,
)
from cruise.domain.usage import Statistic, StatisticKey
from tests.builders import (
    NOW,
    make_amounts,
    make_budget,
    make_container,
    make_node,
    make_pod,
    make_snapshot,
    make_statistic_for,
    make_table,
)

FULL = Policy(mode=Mode.FULL, memory_limits=MemoryLimitPolicy.ALWAYS)
SEEDS_IN_FULL = Policy(mode=Mode.FULL, rules=SEED_RULES)
GUARDED = LabelSelector((LabelRequirement("app", SelectorOperator.IN, ("guarded",)),))


def rows_of(pod: Pod, cpu: tuple[int, int] = (100, 100), memory: tuple[int, int] = (100, 100)) -> list[Statistic]:
    """Statistics of a pod and of its workload: base and peak of CPU (m) and memory (MiB)."""
    own = make_statistic_for(
        pod,
        cpu_base=cpu[0],
        cpu_peak=cpu[1],
        memory_base_mib=memory[0],
        memory_peak_mib=memory[1],
    )
    return [own, replace(own, key=StatisticKey(pod.namespace, "", pod.workload_name, "app", ""))]


def single(name: str, cpu: int, memory: int = 100, **fields) -> Pod:
    """The single replica of a Deployment."""
    size = make_container(cpu=cpu, memory_mib=memory)
    return make_pod(name, workload=f"Deployment/{name}", containers=[size], **fields)


def plans_of(
    pods: Sequence[Pod],
    rows: Iterable[Statistic],
    nodes: Sequence[Node],
    policy: Policy = FULL,
    earlier: EarlierPassResults = ASSUME_UNCHANGED,
    node_autoscaler: NodeAutoscalerKind | None = None,
    quota: ResourceQuota | None = None,
    **more,
) -> dict[str, NodePlan]:
    snapshot = replace(make_snapshot(pods, nodes=nodes, **more), node_autoscaler=node_autoscaler)
    snapshot = replace(snapshot, quotas={"shop": (quota,)} if quota else {})
    plans = decide_node_plans(
        snapshot, make_table(*rows), policy, NOW, earlier=earlier, replacements=predict_replacement_pods
    )
    return {plan.node: plan for plan in plans}


def gone(plan: NodePlan) -> list[str]:
    return [one.pod for one in plan.evict]


def four_singles() -> tuple[list[Pod], list[Statistic]]:
    pods = [single(name, 1000) for name in ("a", "b", "c", "d")]
    return pods, [row for pod in pods for row in rows_of(pod, cpu=(1050, 1050))]


def test_no_pod_is_evicted_without_a_destination():
    pods, rows = four_singles()
    alone = [make_node(cpu=4000)]
    assert gone(plans_of(pods, rows, alone, SEEDS_IN_FULL)["n1"]) == ["a"]
    plan = plans_of(pods, rows, alone)["n1"]
    assert (gone(plan), plan.fits, plan.reason) == ([], False, ReasonCode.OVERCOMMITTED)
    assert all(not resize.needs_capacity for resize in plan.resize)


def test_a_pod_is_evicted_if_another_node_has_capacity_for_it():
    pods, rows = four_singles()
    plans = plans_of(pods, rows, [make_node(cpu=4000), make_node("n2", cpu=4000)])
    assert (gone(plans["n1"]), plans["n1"].fits) == (["a"], True)


def test_a_cordoned_node_is_no_destination_even_if_tolerated():
    pods, rows = four_singles()
    tolerant = [replace(pod, placement=SchedulingConstraints(tolerations=(Toleration(exists=True),))) for pod in pods]
    plans = plans_of(tolerant, rows, [make_node(cpu=4000), make_node("n2", cpu=4000, unschedulable=True)])
    assert (gone(plans["n1"]), plans["n1"].reason) == ([], ReasonCode.OVERCOMMITTED)


def test_a_destination_is_reserved_once_over_all_nodes():
    # Two nodes have equal shortages, and the third has capacity for one more pod.
    pods, rows = four_singles()
    others = [replace(pod, name=f"{pod.name}2", uid=f"{pod.uid}2", node="n2") for pod in pods]
    others = [replace(pod, workload=replace(pod.workload, name=pod.name)) for pod in others if pod.workload]
    rows += [row for pod in others for row in rows_of(pod, cpu=(1050, 1050))]
    nodes = [make_node(cpu=4000), make_node("n2", cpu=4000), make_node("n3", cpu=1500)]
    plans = plans_of([*pods, *others], rows, nodes)
    assert [gone(plan) for plan in plans.values()] == [["a"], [], []]
    assert plans["n2"].reason is ReasonCode.OVERCOMMITTED


def test_no_pod_grows_into_capacity_reserved_for_a_replacement():
    # n2 has 700 m above its pod's base; the pod would grow by 500 m, and the replacement requests 500 m.
    pods, rows = four_singles()
    rows = [row for pod in pods for row in rows_of(pod, cpu=(1050, 1050))][2:] + rows_of(pods[0], cpu=(400, 500))
    pods[0] = single("a", 400)
    there = single("there", 100, node="n2")
    nodes = [make_node(cpu=3150), make_node("n2", cpu=800)]
    plans = plans_of([*pods, there], [*rows, *rows_of(there, cpu=(100, 600))], nodes)
    assert gone(plans["n1"]) == ["a"]
    assert [(one.pod, one.containers[0].requests.cpu_millicores) for one in plans["n2"].resize] == [("there", 300)]


def test_no_pod_grows_into_capacity_that_only_a_second_eviction_would_free():
    # A replacement from n1 fits only n2, which evicts one itself. Budgets may allow the first eviction only.
    rows, zone = [], {"zone": "a"}
    pods = [single(name, 1050) for name in ("b", "c", "d")]
    rows += [row for pod in pods for row in rows_of(pod, cpu=(1050, 1050))]
    goes = single("a", 100, placement=SchedulingConstraints(node_selector=(("zone", "a"),)))
    leaves = single("e", 310, node="n2")
    stays, grows = (single(name, cpu, node="n2", priority=1000) for name, cpu in (("f", 2500), ("g", 1000)))
    rows += [*rows_of(goes), *rows_of(leaves, (310, 310)), *rows_of(stays, (2500, 2500)), *rows_of(grows, (1000, 1500))]
    nodes = [make_node(cpu=3200, labels=zone), make_node("n2", cpu=4000, labels=zone), make_node("n3", cpu=1000)]
    plans = plans_of([*pods, goes, leaves, stays, grows], rows, nodes)
    assert [gone(plan) for plan in plans.values()] == [["a"], ["e"], []]
    written = {one.pod: one.containers[0].requests.cpu_millicores for one in plans["n2"].resize}
    assert written["g"] == 1090


def test_no_pod_grows_into_the_quota_of_a_replacement():
    # The quota has 1,200 m left. A replacement of 1,050 m is created while the evicted pod may still count.
    pods, _ = four_singles()
    pods[1:] = [replace(pod, namespace="tools") for pod in pods[1:]]
    there = single("there", 100, node="n2")
    rows = [row for pod in pods for row in rows_of(pod, cpu=(1050, 1050))] + rows_of(there, cpu=(600, 600))
    nodes = [make_node(cpu=4000), make_node("n2", cpu=4000)]
    for left, size in ((1200, 100), (2000, 600)):
        plans = plans_of([*pods, there], rows, nodes, quota=ResourceQuota(make_amounts(left)))
        assert gone(plans["n1"]) == ["a"]
        [written] = plans["n2"].resize
        assert written.containers[0].requests.cpu_millicores == size


def test_a_pending_pod_gets_free_capacity_first():
    pods, rows = four_singles()
    nodes = [make_node(cpu=4000), make_node("n2", cpu=1500)]
    waiting = single("waits", 1000, node=None, phase="Pending", ready=False)
    assert gone(plans_of([*pods, waiting], rows, nodes)["n1"]) == []


def test_a_pending_pod_that_shrinks_gets_free_capacity_first():
    # It requests more than any node has. This pass shrinks it to the 600 m of its peak.
    pods, rows = four_singles()
    nodes = [make_node(cpu=4000), make_node("n2", cpu=1500)]
    waiting = single("waits", 9000, node=None, phase="Pending", ready=False, unschedulable_since=NOW)
    waiting = replace(waiting, containers=(make_container(cpu=9000, settled=False),))
    assert gone(plans_of([*pods, waiting], rows, nodes)["n1"]) == ["a"]
    assert gone(plans_of([*pods, waiting], [*rows, *rows_of(waiting, (300, 600))], nodes)["n1"]) == []


def test_no_pod_is_evicted_to_return_to_its_node():
    # 50 m are missing for a peak. By bases only this node has capacity for the smallest pod's replacement.
    small, large = single("small", 100), single("large", 3000, priority=1000)
    rows = [*rows_of(small), *rows_of(large, (3400, 3600))]
    plan = plans_of([small, large], rows, [make_node(cpu=3650)])["n1"]
    assert (gone(plan), plan.reason) == ([], ReasonCode.OVERCOMMITTED)


def test_the_destination_holds_the_replacement_at_admission_size():
    # Its replacement requests its peak of 2,000 m, though its base is 1,050 m.
    pods, _ = four_singles()
    rows = [row for pod in pods for row in rows_of(pod, cpu=(1050, 2000))]
    assert gone(plans_of(pods, rows, [make_node(cpu=4000), make_node("n2", cpu=1999)])["n1"]) == []
    assert gone(plans_of(pods, rows, [make_node(cpu=4000), make_node("n2", cpu=4200)])["n1"]) == ["a", "b"]


def test_with_node_autoscaling_there_is_always_a_destination():
    pods, rows = four_singles()
    plans = plans_of(pods, rows, [make_node(cpu=4000)], node_autoscaler=NodeAutoscalerKind.KARPENTER)
    assert gone(plans["n1"]) == ["a"]


def test_no_larger_node_than_the_present_ones_is_assumed():
    # Its template requests 5,000 MiB, which a resize reduced: if no node has as much, no new node may have it either.
    stated = {"app": (make_amounts(1000, 5000), make_amounts())}
    pods = [single("a", 1000, annotations={ORIGINAL_RESOURCES: format_original_resources(stated)}), single("b", 1000)]
    rows = [*rows_of(pods[0], memory=(1900, 5000)), *rows_of(pods[1], memory=(1900, 2500))]
    ordered = NodeAutoscalerKind.CLUSTER_AUTOSCALER
    assert gone(plans_of(pods, rows, [make_node(memory_mib=3000)], node_autoscaler=ordered)["n1"]) == []
    cordoned = make_node("n2", memory_mib=5000, unschedulable=True)
    assert gone(plans_of(pods, rows, [make_node(memory_mib=3000), cordoned], node_autoscaler=ordered)["n1"]) == ["a"]


def test_a_peak_requires_no_larger_node_than_the_present_ones():
    # It peaks at 5,000 MiB, and is created anew with the 3,000 that a node has: it needs 1,900 of them.
    pods = [single(name, 1000) for name in ("a", "b")]
    rows = [*rows_of(pods[0], memory=(1900, 5000)), *rows_of(pods[1], memory=(1900, 2500))]
    ordered = NodeAutoscalerKind.CLUSTER_AUTOSCALER
    assert gone(plans_of(pods, rows, [make_node(memory_mib=3000)], node_autoscaler=ordered)["n1"]) == ["a"]
    assert gone(plans_of(pods, rows, [make_node(memory_mib=3000)])["n1"]) == []
    # With DaemonSet pods of 1,200 MiB an empty node would be short as well.
    size = make_container(cpu=100, memory_mib=1200)
    agent = make_pod("agent-n1", workload="DaemonSet/agent", identity="n1", containers=[size])
    assert gone(plans_of([*pods, agent], rows, [make_node(memory_mib=3000)], node_autoscaler=ordered)["n1"]) == []


def test_an_added_node_runs_its_daemonset_pods():
    pods = [single(name, 600) for name in ("a", "b")]
    rows = [*rows_of(pods[0], cpu=(600, 1100), memory=(600, 1100)), *rows_of(pods[1], memory=(600, 900))]
    size = make_container(cpu=100, memory_mib=3000)
    daemon = make_pod("agent-n1", workload="DaemonSet/agent", identity="n1", containers=[size])
    ordered = NodeAutoscalerKind.KARPENTER
    assert gone(plans_of([*pods, daemon], rows, [make_node(memory_mib=4000)], node_autoscaler=ordered)["n1"]) == []
    cordoned = make_node("n2", memory_mib=4100, unschedulable=True)
    assert gone(
        plans_of([*pods, daemon], rows, [make_node(memory_mib=4000), cordoned], node_autoscaler=ordered)["n1"]
    ) == ["a"]


def test_an_added_node_runs_daemonset_pods_as_they_would_be_created():
    # The daemon has 2,950 MiB and would grow to its peak of 3,200 MiB in the very pass that evicts a pod of 1,000 MiB.
    pods = [single("a", 100, 500)]
    daemon = make_pod(
        "agent-n1", workload="DaemonSet/agent", identity="n1", containers=[make_container(memory_mib=2950)]
    )
    own = make_statistic_for(daemon, cpu_base=100, cpu_peak=100, memory_base_mib=3100, memory_peak_mib=3200)
    rows = [*rows_of(pods[0], memory=(1000, 1000)), own, replace(own, key=own.key._replace(pod=""))]
    ordered = NodeAutoscalerKind.KARPENTER
    for memory_mib, evicted in ((4100, []), (4200, ["a"])):
        nodes = [make_node(memory_mib=3900), make_node("n2", memory_mib=memory_mib, unschedulable=True)]
        assert gone(plans_of([*pods, daemon], rows, nodes, node_autoscaler=ordered)["n1"]) == evicted


def test_an_added_node_runs_the_daemonset_pods_of_other_nodes():
    # A quota keeps the daemon of 3,200 MiB from being created on n1; on a node that is added it may not.
    pods = [single("a", 100, 2000), single("b", 100, 2000)]
    rows = [row for pod in pods for row in rows_of(pod, memory=(2100, 2100))]
    size = make_container(memory_mib=3200)
    daemon = make_pod("agent-n2", node="n2", workload="DaemonSet/agent", identity="n2", containers=[size])
    nodes, ordered = [make_node(memory_mib=4000), make_node("n2", memory_mib=4000)], NodeAutoscalerKind.KARPENTER
    assert gone(plans_of(pods, rows, nodes, node_autoscaler=ordered)["n1"]) == ["a"]
    assert gone(plans_of([*pods, daemon], rows, nodes, node_autoscaler=ordered)["n1"]) == []
    picky = replace(daemon, placement=SchedulingConstraints(node_selector=(("disk", "ssd"),)))
    assert gone(plans_of([*pods, picky], rows, nodes, node_autoscaler=ordered)["n1"]) == ["a"]


def test_a_pod_of_lower_priority_counts_even_if_the_resource_is_not_managed():
    above = single("above", 500, 900, priority=1000)
    below = single("below", 500, 900, annotations={"cruise.io/resources": "cpu"})
    rows = [*rows_of(above, memory=(1200, 1200)), *rows_of(below, memory=(900, 900))]
    nodes = [make_node(memory_mib=2000), make_node("n2")]
    assert gone(plans_of([above, below], rows, nodes)["n1"]) == []
    assert gone(plans_of([above, replace(below, priority=1000)], rows, nodes)["n1"]) == ["above"]


def test_a_lower_priority_is_evicted_before_a_higher_one():
    # The first design uses headroom alone.
    above, below = single("above", 500, 900, priority=1000), single("below", 500, 900)
    rows = [*rows_of(above, memory=(900, 1500)), *rows_of(below, memory=(900, 1000))]
    nodes = [make_node(memory_mib=2000), make_node("n2")]
    assert gone(plans_of([above, below], rows, nodes, SEEDS_IN_FULL)["n1"]) == ["above"]
    assert gone(plans_of([above, below], rows, nodes)["n1"]) == ["below"]


def test_a_skipped_pod_of_lower_priority_prevents_evictions_of_higher_ones():
    pod, pinned = (
        single("app", 500, 900, priority=10),
        single("pinned", 100, 900, annotations={"cruise.io/mode": "off"}),
    )
    nodes = [make_node(memory_mib=2000), make_node("n2")]
    plan = plans_of([pod, pinned], rows_of(pod, memory=(1200, 1200)), nodes)["n1"]
    assert (gone(plan), plan.reason) == ([], ReasonCode.OVERCOMMITTED)


def test_a_jobs_pod_is_evicted_only_if_ranked_low():
    job = replace(single("job", 100, 900), workload=None)
    job = replace(job, workload=make_pod(workload="Job/job").workload, owner_kind="Job")
    app = single("app", 100, 900)
    rows = [*rows_of(job, memory=(1500, 1600)), *rows_of(app, memory=(900, 900))]
    nodes = [make_node(memory_mib=2000), make_node("n2")]
    assert gone(plans_of([job, app], rows, nodes, SEEDS_IN_FULL, workloads=())["n1"]) == ["job"]
    assert gone(plans_of([job, app], rows, nodes, workloads=())["n1"]) == ["app"]
    low = replace(job, annotations={"cruise.io/eviction-ranking": "low"})
    assert gone(plans_of([low, app], rows, nodes, workloads=())["n1"]) == ["job"]


@pytest.mark.parametrize("policy", ["Never", "OnFailure", "Always"])
@pytest.mark.parametrize("owner", ["Workflow", "TaskRun", "SparkApplication", "PyTorchJob", "RayCluster", "Pod"])
def test_a_pod_that_runs_to_completion_is_evicted_only_if_ranked_low(owner: str, policy: str):
    work = make_pod("work", workload=f"{owner}/work", containers=[make_container(memory_mib=900)])
    app = single("app", 100, 900)
    rows = [*rows_of(work, memory=(1500, 1600)), *rows_of(app, memory=(900, 900))]
    nodes = [make_node(memory_mib=2000), make_node("n2")]
    # Pods of other operators, which always run, are evicted.
    runs = make_pod("work", workload="Cluster/work", containers=work.containers)
    of_both = [*rows_of(runs, memory=(1500, 1600)), *rows_of(app, memory=(900, 900))]
    assert gone(plans_of([runs, app], of_both, nodes, workloads=())["n1"]) == ["work"]
    ends = replace(work, restart_policy=policy)
    plan = plans_of([ends, app], rows, nodes, workloads=())["n1"]
    assert gone(plan) == ["app"]
    # It is sized in place anyway.
    assert [one.pod for one in plan.resize] == ["work"]
    low = replace(ends, annotations={"cruise.io/eviction-ranking": "low"})
    assert gone(plans_of([low, app], rows, nodes, workloads=())["n1"]) == ["work"]


@pytest.mark.parametrize("owner", ["Workflow", "Job"])
@pytest.mark.parametrize("requested", [500, 1100, 1500])
def test_what_a_pod_that_runs_to_completion_keeps_covers_its_own_peak(owner: str, requested: int):
    """Headroom for it on top of that would be needed twice, and other pods would be evicted for it."""
    work = make_pod("work", workload=f"{owner}/work", containers=[make_container(memory_mib=requested)])
    run = replace(work, restart_policy="Never", owner_kind=owner)
    app = single("app", 100, 400)
    rows = [*rows_of(run, memory=(500, 1500)), *rows_of(app, memory=(400, 400))]
    nodes = [make_node(memory_mib=2000), make_node("n2")]
    plan = plans_of([run, app], rows, nodes, workloads=())["n1"]
    assert (plan.fits, gone(plan)) == (True, [])
    assert plan.base.memory_bytes + plan.headroom.memory_bytes == 1900 * MEBIBYTE


def test_the_last_ready_replica_is_not_evicted_while_its_sibling_is_not_ready():
    ready = make_pod("web-1", containers=[make_container(memory_mib=900)])
    sibling = make_pod("web-2", node="n2", ready=False)
    rows = [*rows_of(ready, memory=(2500, 2500)), *rows_of(sibling)]
    nodes = [make_node(memory_mib=2000), make_node("n2"), make_node("n3")]
    assert gone(plans_of([ready, sibling], rows, nodes, SEEDS_IN_FULL)["n1"]) == ["web-1"]
    assert gone(plans_of([ready, sibling], rows, nodes)["n1"]) == []
    assert gone(plans_of([ready, replace(sibling, ready=True)], rows, nodes)["n1"]) == ["web-1"]


def test_a_candidate_with_an_exhausted_budget_is_passed_over():
    guarded = single("guarded", 100, 900, labels={"app": "guarded"})
    others = [single(f"other-{number}", 100, 200) for number in range(6)]
    rows = rows_of(guarded, memory=(900, 1000))
    rows += [row for pod in others for row in rows_of(pod, memory=(200, 210))]
    nodes = [make_node(memory_mib=2150), make_node("n2")]
    budgets = [make_budget(selector=GUARDED, disruptions_allowed=0)]
    pods = [guarded, *others]
    assert gone(plans_of(pods, rows, nodes, SEEDS_IN_FULL, budgets=budgets)["n1"]) == ["guarded"]
    assert gone(plans_of(pods, rows, nodes, budgets=budgets)["n1"]) == ["other-0"]


def test_a_refused_eviction_marks_the_next_candidate_in_the_next_pass():
    pods, rows = four_singles()
    nodes = [make_node(cpu=4000), make_node("n2", cpu=4000)]
    refused = EarlierPassResults(None, frozenset({pods[0].uid}))
    assert gone(plans_of(pods, rows, nodes, earlier=refused)["n1"]) == ["b"]


# ---- each resource by itself ----


def test_cpu_that_does_not_fit_does_not_prevent_growth_of_memory():
    # 3,600 m of base and a headroom of 500 m exceed 4,000 m; at P75 the demand is not above the capacity.
    pods = [single("a", 1000, 100), single("b", 1000, 100)]
    rows = [row for pod in pods for row in rows_of(pod, cpu=(1800, 2300), memory=(500, 500))]
    nodes = [make_node(cpu=4000), make_node("n2")]
    assert gone(plans_of(pods, rows, nodes, SEEDS_IN_FULL)["n1"]) == ["a"]
    plan = plans_of(pods, rows, nodes)["n1"]
    assert (gone(plan), plan.fits, plan.reason) == ([], False, ReasonCode.UNDER_PRESSURE)
    assert {(one.cpu_millicores, one.memory_bytes // MEBIBYTE) for one in plan.targets} == {(2000, 500)}
    assert [resize.growth.memory_bytes // MEBIBYTE for resize in plan.resize] == [400, 400]


def test_pods_that_do_not_fit_grow_to_their_bases_and_share_the_headroom():
    # In the first design 2,000 m were free next to two starved pods, neither of which may be evicted.
    pods = [single(name, 1000, annotations={"cruise.io/eviction-ranking": "never"}) for name in ("a", "b")]
    rows = [row for pod in pods for row in rows_of(pod, cpu=(1800, 2300))]
    by_seeds = plans_of(pods, rows, [make_node(cpu=4000)], SEEDS_IN_FULL)["n1"]
    assert {one.cpu_millicores for one in by_seeds.targets} == {1000}
    plan = plans_of(pods, rows, [make_node(cpu=4000)])["n1"]
    assert (plan.base.cpu_millicores, plan.headroom.cpu_millicores, plan.available.cpu_millicores) == (3600, 500, 4000)
    assert [one.cpu_millicores for one in plan.targets] == [2000, 2000]
    assert [resize.growth.cpu_millicores for resize in plan.resize] == [1000, 1000]


def test_where_not_even_the_bases_fit_growth_ends_at_one_level():
    # 300 m have what they need, 900 m are above their base of 700 m; 700 + 300 + 2 × 1,000 m are 3,000 m.
    pods = [single("small", 100), single("large", 500), single("larger", 600), single("idle", 900)]
    needs = {"small": 300, "large": 1500, "larger": 1200, "idle": 700}
    rows = [row for pod in pods for row in rows_of(pod, cpu=(needs[pod.name], needs[pod.name] + 100))]
    plan = plans_of(pods, rows, [make_node(cpu=3000)])["n1"]
    assert (gone(plan), plan.reason) == ([], ReasonCode.OVERCOMMITTED)
    sizes = {one.pod: one.cpu_millicores for one in plan.targets}
    assert sizes == {"small": 300, "large": 1000, "larger": 1000, "idle": 700}


def test_requests_above_the_level_are_kept():
    pods = [single("small", 100), single("large", 1400)]
    rows = [row for pod, need in zip(pods, (900, 1800), strict=True) for row in rows_of(pod, cpu=(need, need))]
    plan = plans_of(pods, rows, [make_node(cpu=2000)])["n1"]
    assert {one.pod: one.cpu_millicores for one in plan.targets} == {"small": 600, "large": 1400}


def test_memory_causes_evictions_in_the_second_pass():
    pods = [single("a", 100, 900), single("b", 100, 900)]
    rows = [row for pod in pods for row in rows_of(pod, memory=(1100, 1100))]
    nodes = [make_node(memory_mib=2000), make_node("n2")]
    first = plans_of(pods, rows, nodes, earlier=NO_EARLIER_PASSES)["n1"]
    assert (gone(first), first.reason, first.shortages) == (
        [],
        ReasonCode.UNDER_PRESSURE,
        frozenset({ResourceName.MEMORY}),
    )
    # Until then they share the room that there is.
    assert [one.memory_bytes // MEBIBYTE for one in first.targets] == [1000, 1000]
    seen = EarlierPassResults(frozenset({("n1", ResourceName.MEMORY)}))
    assert gone(plans_of(pods, rows, nodes, earlier=seen)["n1"]) == ["a"]
    elsewhere = EarlierPassResults(frozenset({("n2", ResourceName.MEMORY), ("n1", ResourceName.CPU)}))
    assert gone(plans_of(pods, rows, nodes, earlier=elsewhere)["n1"]) == []


def test_cpu_causes_evictions_if_it_was_contended_in_two_passes():
    pods = [single("a", 100), single("b", 100)]
    rows = [row for pod in pods for row in rows_of(pod, cpu=(1100, 1100))]
    nodes = [make_node(cpu=2000), make_node("n2")]
    first = plans_of(pods, rows, nodes, earlier=NO_EARLIER_PASSES)["n1"]
    assert (gone(first), first.reason, first.eviction_pressure) == (
        [],
        ReasonCode.UNDER_PRESSURE,
        frozenset({ResourceName.CPU}),
    )
    seen = EarlierPassResults(frozenset({("n1", ResourceName.CPU)}))
    assert gone(plans_of(pods, rows, nodes, earlier=seen)["n1"]) == ["a"]
    elsewhere = EarlierPassResults(frozenset({("n2", ResourceName.CPU), ("n1", ResourceName.MEMORY)}))
    assert gone(plans_of(pods, rows, nodes, earlier=elsewhere)["n1"]) == []


def test_only_peaks_are_no_eviction_pressure():
    pods = [single("a", 100), single("b", 100)]
    rows = [row for pod in pods for row in rows_of(pod, cpu=(700, 1900))]
    plan = plans_of(pods, rows, [make_node(cpu=2000)], earlier=NO_EARLIER_PASSES)["n1"]
    assert (plan.shortages, plan.eviction_pressure) == (frozenset({ResourceName.CPU}), frozenset())


def test_usage_of_fixed_pods_counts_for_cpu_contention():
    pods = [single("a", 1000), single("b", 1000)]
    apart = single("apart", 500, annotations={"cruise.io/mode": "off"})
    rows = [row for pod in pods for row in rows_of(pod, cpu=(1600, 2000))]
    nodes = [make_node(cpu=4000), make_node("n2", cpu=4000)]
    idle = plans_of([*pods, apart], [*rows, *rows_of(apart, cpu=(300, 300))], nodes)["n1"]
    assert (gone(idle), idle.reason) == ([], ReasonCode.UNDER_PRESSURE)
    assert gone(plans_of([*pods, apart], [*rows, *rows_of(apart, cpu=(700, 900))], nodes)["n1"]) == ["a"]

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.admission.admission import LeaveUnchanged, MutatePod
from cruise.decisions.admission.replacement_pods import predict_replacement_pods
from cruise.decisions.explanation.pod_explanation import Explanation, PodOutcome, explain_pod
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.scan.risks import UserRemedy
from cruise.decisions.sizing.node_plans import decide_node_plans
from cruise.domain.actions import ReasonCode
from cruise.domain.annotations import EffectivePolicy
from cruise.domain.autoscalers import LimitRangeItem
from cruise.domain.cluster import ClusterSnapshot, OomKill
from cruise.domain.policy import Mode, Policy
from cruise.domain.reasons import ReasonDetailCode
from cruise.domain.resources import MEBIBYTE, ResourceName
from cruise.domain.usage import StatisticsTable
from cruise.interfaces.reasons import describe_source
from tests.builders import (
    NOW,
    NOW_SECONDS,
    make_amounts,
    make_container,
    make_node,
    make_pod,
    make_ref,
    make_resources,
    make_snapshot,
    make_statistic_for,
    make_table,
    make_workload,
)
from tests.strategies import clusters

FULL = Policy(mode=Mode.FULL)


def explain_all(snapshot: ClusterSnapshot, statistics: StatisticsTable, policy: Policy = FULL) -> list[Explanation]:
    return [explain_pod(pod, snapshot, statistics, policy, NOW) for pod in snapshot.pods]


@given(clusters())
def test_the_steps_of_a_memory_limit_lead_to_its_final_number(cluster):
    snapshot, statistics = cluster
    for explanation in explain_all(snapshot, statistics):
        for container in explanation.steps:
            steps, request = container.memory_limit, container.memory.final
            if not steps.managed:
                assert steps.final == steps.current
                continue
            assert steps.wanted == 2 * max(steps.memory_7d_max, steps.oom_memory)
            limit = -(-max(steps.wanted, steps.minimum_safe, request) // MEBIBYTE) * MEBIBYTE
            if steps.ceiling is not None:
                limit = max(min(limit, steps.ceiling), request)
            if steps.cap is not None:
                limit = min(limit, steps.cap)
            least = max(min(steps.minimum, steps.current) if steps.current else steps.minimum, request)
            limit = max(limit, least)
            assert not steps.has_short_history or limit >= steps.current
            if steps.cannot_be_lowered:
                limit = max(limit, steps.current) if steps.current else 0
            is_above_node = steps.ceiling is not None and steps.minimum > steps.ceiling
            if not steps.current and (is_above_node or not (request and steps.adds_missing)):
                limit = 0  # without a request, the API server would make it the request
            if steps.has_pod_limit_range:
                assert steps.final == limit or least <= steps.final
                continue
            assert steps.final == limit


@given(clusters())
def test_resize_causes_and_outcomes_agree_with_the_plan(cluster):
    snapshot, statistics = cluster
    plans = decide_node_plans(snapshot, statistics, FULL, NOW, replacements=predict_replacement_pods)
    resized = {(resize.namespace, resize.pod) for plan in plans for resize in plan.resize}
    evicted = {(eviction.namespace, eviction.pod) for plan in plans for eviction in plan.evict}
    held = {(hold.namespace, hold.pod): hold.reason for plan in plans for hold in plan.skipped}
    for explanation in explain_all(snapshot, statistics):
        name = (explanation.pod.namespace, explanation.pod.name)
        requests = [steps for container in explanation.steps for steps in (container.cpu, container.memory)]
        limits = [steps for one in explanation.steps for steps in (one.memory_limit, one.cpu_limit)]
        chosen = any(one.resize_cause is not None and one.resize_cause.cause is not None for one in requests)
        near = any(one.update_threshold.exceeds_threshold for one in limits)
        written = any(one.written not in (None, one.current) for one in requests)
        under_way = explanation.pod.resize.pending is not None
        match explanation.outcome:
            case PodOutcome.RESIZED:
                assert name in resized
                assert chosen or near or under_way
                assert written or near or under_way
            case PodOutcome.EVICTED:
                assert name in evicted
                assert not explanation.steps
            case PodOutcome.NO_CHANGE_NEEDED:
                # A target far from the present size alone causes no write.
                assert name not in resized | evicted | held.keys()
                assert not written
            case PodOutcome.SKIPPED:
                assert explanation.skipped is not None
                assert held[name] is explanation.skipped.reason
                assert bool(explanation.steps) == (chosen or near) or under_way
                assert not written or under_way
            case PodOutcome.PENDING:
                assert explanation.pod.node is None
                assert explanation.admission is not None


@given(clusters())
def test_the_sums_of_a_node_add_up(cluster):
    snapshot, statistics = cluster
    plans = {
        plan.node: plan
        for plan in decide_node_plans(snapshot, statistics, FULL, NOW, replacements=predict_replacement_pods)
    }
    for explanation in explain_all(snapshot, statistics):
        node = explanation.node
        if node is None:
            continue
        plan = plans[node.name]
        assert node.fixed + node.available == node.allocatable
        assert (node.base + node.headroom).fits_in(node.available) == (plan.fits and not plan.evict)
        assert node.remaining_headroom == plan.headroom
        for resource, amount in (
            (ResourceName.CPU, plan.headroom.cpu_millicores),
            (ResourceName.MEMORY, plan.headroom.memory_bytes),
        ):
            spike = node.largest_headrooms[resource]
            assert (spike.amount if spike is not None else 0) == amount
        goers = {
            (ranked.namespace, ranked.pod)
            for ranking in node.rankings.values()
            for ranked in ranking
            if ranked.evicted_for
        }
        assert goers == {(eviction.namespace, eviction.pod) for eviction in plan.evict}


@given(clusters(), st.sampled_from([Mode.OBSERVE, Mode.RESIZE, Mode.FULL]), st.booleans())
def test_effective_settings_make_the_effective_policy(cluster, mode, with_pauses):
    snapshot, statistics = cluster
    policy = replace(FULL, mode=mode)
    owned = {(pod.namespace, pod.workload) for pod in snapshot.pods if pod.workload is not None}
    paused = dict.fromkeys(owned, NOW) if with_pauses else {}
    eligibility = Eligibility(snapshot, statistics, paused, policy, NOW)
    for pod in snapshot.pods:
        effective_policy = eligibility.get_effective_policy(pod)
        if not isinstance(effective_policy, EffectivePolicy):
            continue
        holding = {s.setting: s.value for s in eligibility.get_stated_settings(pod) if s.is_effective}
        annotations = {f"cruise.io/{setting}": value for setting, value in holding.items()}
        alone = replace(snapshot, workloads={}, namespace_annotations={})
        rebuilt = Eligibility(alone, statistics, {}, FULL, NOW).get_effective_policy(
            replace(pod, annotations=annotations)
        )
        assert isinstance(rebuilt, EffectivePolicy)
        assert replace(rebuilt, set_by_administrator=None) == replace(effective_policy, set_by_administrator=None)


def test_sources_are_named_nearest_first():
    pod = make_pod(annotations={"cruise.io/mode": "full", "cruise.io/cpu-min.app": "50m"})
    snapshot = make_snapshot(
        [pod],
        workloads=[make_workload(annotations={"cruise.io/cpu-min.app": "100m"})],
        namespace_annotations={"shop": {"cruise.io/mode": "resize"}},
    )
    paused = {("shop", make_ref("Deployment/web")): NOW}
    statements = Eligibility(snapshot, make_table(), paused, FULL, NOW).get_stated_settings(pod)
    assert [(s.setting, s.value, describe_source(s.source), s.is_effective) for s in statements] == [
        ("mode", "full", "annotation of the pod", False),
        ("mode", "resize", "annotation of namespace shop", False),
        ("mode", "observe", "pause of Deployment/web", True),
        ("mode", "full", "cluster", False),
        ("cpu-min.app", "50m", "annotation of the pod", True),
        ("cpu-min.app", "100m", "annotation of Deployment/web", False),
    ]


def test_an_unchanged_pod_reports_how_little_its_sizes_move():
    pod = make_pod(containers=[make_container(cpu=204, memory_mib=100, memory_limit_mib=200)])
    table = make_table(make_statistic_for(pod, cpu_base=50, cpu_peak=200, memory_base_mib=64, memory_peak_mib=100))
    explanation = explain_pod(pod, make_snapshot([pod]), table, FULL, NOW)
    assert explanation.outcome is PodOutcome.NO_CHANGE_NEEDED
    [steps] = explanation.steps
    assert (steps.cpu.final, steps.cpu.update_threshold.before, steps.cpu.update_threshold.exceeds_threshold) == (
        200,
        204,
        False,
    )
    assert (steps.cpu.shared_headroom, steps.cpu.total, steps.cpu.share) == (150, 150, 150.0)
    assert steps.cpu.lower.source == "floor"


def test_a_killed_pod_is_at_risk():
    pod = make_pod(containers=[make_container(cpu=204, memory_mib=100, memory_limit_mib=200, restart_count=10)])
    table = make_table(make_statistic_for(pod, cpu_base=50, cpu_peak=200, memory_base_mib=64, memory_peak_mib=100))
    killed = OomKill(*(pod.namespace, pod.name, pod.uid, "app", pod.workload, "", "n1", NOW, 200 * MEBIBYTE, None))
    workload = make_workload(memory_limits={"app": 100 * MEBIBYTE})
    snapshot = replace(make_snapshot([pod], workloads=[workload]), oom_kills=(killed,))
    explanation = explain_pod(pod, snapshot, table, FULL, NOW)
    assert explanation.outcome is PodOutcome.AT_RISK
    [risk] = explanation.oom_kills
    assert (risk.container, risk.restarts, risk.remedy) == ("app", 10, UserRemedy.RAISE_TEMPLATE_LIMIT)


def test_a_kill_in_fresh_statistics_is_reported():
    pod = make_pod(containers=[make_container(cpu=204, memory_mib=200, memory_limit_mib=400)])
    row = make_statistic_for(pod, memory_base_mib=64, memory_peak_mib=100, oom_memory_mib=200)
    [risk] = explain_pod(pod, make_snapshot([pod]), make_table(row), FULL, NOW).oom_kills
    assert risk.observed == 200 * MEBIBYTE
    stale = replace(row, updated_at=NOW_SECONDS - 86_400)
    assert explain_pod(pod, make_snapshot([pod]), make_table(stale), FULL, NOW).oom_kills == ()


def test_a_finished_pod_reports_its_kill():
    pod = make_pod(workload="CronJob/report", phase="Failed", owner_kind="Job", restart_policy="Never")
    killed = OomKill(*(pod.namespace, pod.name, pod.uid, "app", pod.workload, "", "n1", NOW, 200 * MEBIBYTE, None))
    snapshot = replace(make_snapshot([pod]), oom_kills=(replace(killed, runs_to_completion=True),))
    explanation = explain_pod(pod, snapshot, make_table(), FULL, NOW)
    assert explanation.outcome is PodOutcome.SKIPPED
    assert [risk.remedy for risk in explanation.oom_kills] == [UserRemedy.SIZE_TEMPLATE]


def test_bounds_name_their_source():
    pod = make_pod(annotations={"cruise.io/cpu-max": "120m"})
    snapshot = make_snapshot(
        [pod],
        namespace_annotations={"shop": {"cruise.io/memory-min": "32Mi"}},
        limit_ranges={"shop": (LimitRangeItem(False, make_amounts(60, None), make_amounts(None, 512)),)},
    )
    [steps] = explain_pod(pod, snapshot, make_table(make_statistic_for(pod)), FULL, NOW).steps
    assert (steps.cpu.lower.value, steps.cpu.lower.source) == (60, "limit-range")
    assert (steps.cpu.upper.value, steps.cpu.upper.source) == (120, "override")
    assert (steps.memory.lower.value, steps.memory.lower.source) == (32 * MEBIBYTE, "override")
    assert (steps.memory.upper.value, steps.memory.upper.source) == (512 * MEBIBYTE, "limit-range")


def test_on_a_full_node_the_ranking_names_evicted_pods_and_why_others_stay():
    pods = [
        make_pod("spiky"),
        make_pod("idle"),
        make_pod("agent", workload="DaemonSet/agent"),
        make_pod("kept", annotations={"cruise.io/eviction-ranking": "never"}),
    ]
    peaks = {"spiky": 900, "idle": 300, "agent": 400, "kept": 200}
    rows = [make_statistic_for(pod, cpu_base=400, cpu_peak=200 + peaks[pod.name]) for pod in pods]
    table = make_table(*rows)
    snapshot = make_snapshot(pods, nodes=[make_node(cpu=1500), make_node("n2")])
    explanation = explain_pod(pods[0], snapshot, table, FULL, NOW)
    assert explanation.outcome is PodOutcome.EVICTED
    assert explanation.eviction is not None
    assert explanation.eviction.resource is ResourceName.CPU
    node = explanation.node
    assert node is not None
    assert [(r.pod, r.evicted_for, r.not_evicted_reason) for r in node.rankings[ResourceName.CPU]] == [
        ("spiky", ResourceName.CPU, None),
        ("idle", None, None),
        ("agent", None, ReasonDetailCode.DAEMON_SET),
        ("kept", None, ReasonDetailCode.RANKING_NEVER),
    ]
    assert node.base + node.headroom == make_resources(1600 + 700, 4 * 64 + 36)


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (make_pod(), None),
        (make_pod(workload="Workflow/run", restart_policy="Never"), ReasonDetailCode.JOB),
        (make_pod(workload="Job.batch.volcano.sh/train"), ReasonDetailCode.JOB),
        (make_pod(annotations={"cruise.io/eviction-ranking": "never"}), ReasonDetailCode.RANKING_NEVER),
    ],
)
def test_a_pod_is_reported_as_evictable_only_if_it_is(pod, expected):
    explanation = explain_pod(pod, make_snapshot([pod]), make_table(make_statistic_for(pod)), FULL, NOW)
    assert explanation.not_evictable_reason == expected


def test_a_skipped_pod_has_its_reason_and_statistics():
    pod = make_pod()
    table = make_table(make_statistic_for(pod, updated_at=int(NOW.timestamp()) - 3600))
    explanation = explain_pod(pod, make_snapshot([pod]), table, FULL, NOW)
    assert explanation.outcome is PodOutcome.SKIPPED
    assert explanation.skipped is not None
    assert explanation.skipped.reason is ReasonCode.STALE_STATISTICS
    [held] = explanation.skipped_containers
    assert held.statistic is not None
    assert held.statistic.cpu_base_millicores == 50


def test_an_unreadable_annotation_leaves_no_effective_policy():
    pod = make_pod(annotations={"cruise.io/mode": "fulll"})
    explanation = explain_pod(pod, make_snapshot([pod]), make_table(make_statistic_for(pod)), FULL, NOW)
    assert explanation.effective_policy is None
    assert explanation.skipped is not None
    assert "fulll" in explanation.skipped.detail


def test_a_pending_pod_is_explained_by_its_admission_size():
    running, pending = make_pod("web-1"), make_pod("web-2", node=None)
    table = make_table(make_statistic_for(running, cpu_peak=400), make_statistic_for(make_pod("", node=None)))
    explanation = explain_pod(pending, make_snapshot([running, pending]), table, FULL, NOW)
    assert explanation.outcome is PodOutcome.PENDING
    assert isinstance(explanation.admission, MutatePod)
    assert explanation.admission.containers[0].requests.cpu_millicores == 200
    alone = explain_pod(pending, make_snapshot([running, pending]), make_table(), FULL, NOW)
    assert isinstance(alone.admission, LeaveUnchanged)
    assert alone.admission.reason is ReasonCode.NO_STATISTICS

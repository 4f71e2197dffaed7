import json
import re
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given

from cruise.decisions.explanation.pod_explanation import explain_pod
from cruise.decisions.pod_history import build_pod_history
from cruise.decisions.sizing.headroom import JointPeakHeadroom
from cruise.decisions.sizing.node_plans import SizingContext
from cruise.domain.actions import ActionResult, ContainerTarget, EvictPod, Outcome, ReasonCode, ResizeCause, ResizePod
from cruise.domain.autoscalers import LimitRangeItem
from cruise.domain.cluster import ContainerRole, OomKill, VerticalPodAutoscaler
from cruise.domain.policy import SEED_RULES, EvictionRanking, Mode, Policy
from cruise.domain.resources import MEBIBYTE, NO_RESOURCES, NOTHING_STATED, ResizePending, ResizeState, ResourceName
from cruise.domain.usage import HourlyPeaks, OomRecord, PeakKey
from cruise.interfaces.explain.document import render_explanation_json, render_stored_pod_json
from cruise.interfaces.explain.text import render_explanation_text, render_pod_history, render_stored_text
from tests.builders import (
    NOW,
    NOW_SECONDS,
    make_amounts,
    make_autoscaler,
    make_container,
    make_node,
    make_pod,
    make_ref,
    make_snapshot,
    make_statistic,
    make_statistic_for,
    make_table,
    make_workload,
)
from tests.decisions.sizing.demands import make_past_demand
from tests.shown import render_to_text
from tests.strategies import clusters
from tests.tiers import examples

FULL = Policy(mode=Mode.FULL)


def explained(pods, *rows, of=0, policy=FULL, **more):
    snapshot = make_snapshot(pods, **more)
    return explain_pod(pods[of], snapshot, make_table(*rows), policy, NOW)


def text_of(explanation, width=200) -> str:
    return render_to_text(lambda console: render_explanation_text(explanation, FULL, NOW), width)


def test_a_killed_pod_is_red_with_what_a_person_has_to_do():
    pod = make_pod(containers=[make_container(cpu=204, memory_mib=100, memory_limit_mib=200, restart_count=10)])
    row = make_statistic_for(pod, cpu_base=50, cpu_peak=200, memory_base_mib=64, memory_peak_mib=100)
    place = (pod.namespace, pod.name, pod.uid, "app", pod.workload, "", "n1", NOW - timedelta(minutes=3))
    workload = make_workload(memory_limits={"app": 100 * MEBIBYTE})
    snapshot = make_snapshot([pod], workloads=[workload])
    snapshot = replace(snapshot, oom_kills=(OomKill(*place, 200 * MEBIBYTE, None),))
    explanation = explain_pod(pod, snapshot, make_table(row), FULL, NOW)
    lines = text_of(explanation).splitlines()
    assert lines[1].startswith("at risk: it was OOM killed")
    assert lines[2] == (
        "  app: OOM killed at 200Mi 3m ago, 10 restarts; its limit is at its ceiling: "
        "raise the memory limit in the pod template, or look for a memory leak"
    )
    assert "no-change-needed" not in text_of(explanation)
    [kill] = json.loads(render_explanation_json(explanation, NOW, None))["oomKills"]
    assert (kill["container"], kill["limitBytes"], kill["remedy"]) == ("app", 200 * MEBIBYTE, "raise-template-limit")


def test_a_node_that_shares_more_or_less_than_the_largest_single_headroom_states_the_rule():
    pods = [make_pod("web-1"), make_pod("web-2")]
    table = make_table(*(make_statistic_for(pod, cpu_base=50, cpu_peak=200) for pod in pods))
    seen = np.full((len(table.keys), 12), 120.0, dtype=np.float32)
    past = make_past_demand(seen)
    explanation = explain_pod(
        pods[0], make_snapshot(pods), table, FULL, NOW, context=SizingContext(headroom=JointPeakHeadroom(past))
    )
    text = text_of(explanation)
    assert "by joint-peak for CPU, joint-peak for memory, limited by the capacity" in text
    assert "the node's 150m × own 150m / sum 300m = 75m" in text
    assert json.loads(render_explanation_json(explanation, NOW, None))["node"]["rules"]["cpu"] == "joint-peak"
    assert "limited by the capacity" not in text_of(explained(pods, *(make_statistic_for(pod) for pod in pods)))


def text_where_demanded(together: float, *usage: tuple[int, int]) -> str:
    """What is explained of the first of some pods with these bases and peaks, who once demanded `together` at once."""
    pods = [make_pod(f"web-{at}") for at in range(len(usage))]
    rows = [
        make_statistic_for(pod, cpu_base=base, cpu_peak=peak) for pod, (base, peak) in zip(pods, usage, strict=True)
    ]
    table = make_table(*rows)
    seen = np.full((len(pods), 12), together / len(pods), dtype=np.float32)
    model = JointPeakHeadroom(make_past_demand(seen))
    return text_of(explain_pod(pods[0], make_snapshot(pods), table, FULL, NOW, context=SizingContext(headroom=model)))


def test_headroom_of_a_node_whose_containers_have_none_is_shown_as_shared_by_base():
    text = text_where_demanded(840, (200, 200), (600, 600))
    assert "the node's 40m × base 200m / sum 800m = 10m; by base, because no container on the node has" in text
    assert "200m + 10m = 210m, rounded up to 210m" in text
    assert "100m → 210m" in text


def test_a_container_at_its_own_peak_and_what_others_get_in_its_place_are_shown():
    small, large = (10, 110), (1000, 1100)
    assert "limited to its own peak and a tenth: 121m − base 10m = 111m" in text_where_demanded(1310, small, large)
    text = text_where_demanded(1310, large, small)
    assert "the node's 300m, of which 189m remain after containers that get their peaks, × own 100m / sum 100m" in text
    assert "= 189m" in text


def test_a_resized_pod_shows_the_formula_with_its_numbers_and_the_patch():
    pods = [make_pod("web-1"), make_pod("web-2")]
    rows = [make_statistic_for(pods[0], cpu_base=50, cpu_peak=200), make_statistic_for(pods[1], cpu_peak=350)]
    text = text_of(explained(pods, *rows))
    assert "resize planned" in text
    assert "max(0, peak 200m − base 50m) = 150m" in text
    assert "the node's 300m × own 150m / sum 450m = 100m" in text
    assert "50m + 100m = 150m, rounded up to 150m" in text
    assert "its pods need 400m together and request 200m; the tolerance allows 460m" in text
    assert "100m → 165m, more than the target so that the next rise needs no resize: the node's pods need more" in text
    assert "none, and cruise adds none (memory_limits)" in text
    [command] = [line for line in text.splitlines() if line.startswith("kubectl patch")]
    patch = json.loads(command.partition("-p '")[2].removesuffix("'"))
    assert patch["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "165m"


def test_a_change_within_the_update_threshold_is_not_reported_as_held_back():
    container = make_container(cpu=100, memory_mib=100, memory_limit_mib=200)
    pods = [make_pod(f"web-{number}", containers=[container]) for number in range(4)]
    rows = [
        make_statistic_for(pod, cpu_base=108, cpu_peak=108, memory_base_mib=100, memory_peak_mib=100) for pod in pods
    ]
    text = text_of(explained(pods, *rows))
    assert "its pods need 432m together and request 400m" in text
    assert "100m unchanged: the change is within the update threshold" in text
    assert "skipped" not in text


def test_a_request_beneath_what_an_init_container_makes_the_pod_count_says_so():
    setup = make_container("setup", cpu=2000, role=ContainerRole.INIT)
    pod = make_pod(containers=[setup, make_container(cpu=1000, memory_mib=100, memory_limit_mib=200)])
    text = text_of(explained([pod], make_statistic_for(pod, cpu_base=50, cpu_peak=50)))
    assert "its pods need 2000m together and request 2000m" in text
    assert "1000m unchanged: because of an init container the pod counts as 2000m" in text


def test_bounds_factors_and_other_peoples_statistics_are_named():
    pod = make_pod(annotations={"cruise.io/cpu-max": "60m"})
    row = make_statistic(pod="", psi_known=False)
    text = text_of(explained([pod], row, namespace_annotations={"shop": {"cruise.io/headroom-factor": "2"}}))
    assert "from 10m (floor) to 60m (override) → 60m" in text
    assert "max(0, peak 200m − base 50m) × 2 = 300m" in text
    assert "of the workload" in text
    assert "CPU pressure unknown" in text
    assert "cpu-max" in text


def test_a_user_minimum_shows_how_much_is_granted_and_why_not_all():
    pod = make_pod(annotations={"cruise.io/cpu-min": "4", "cruise.io/memory-min": "200Mi"})
    workloads = [make_workload(requests={"app": make_amounts(100, 128)})]
    fixed = make_pod("fixed", containers=[make_container(cpu=1000)])
    text = text_of(explained([pod, fixed], make_statistic_for(pod, cpu_base=50, cpu_peak=200), workloads=workloads))
    asks = "its annotations request"
    assert f"{asks} 3800m beyond the 100m that it was submitted with; 2800m is granted from free capacity" in text
    assert "72Mi beyond the 128Mi that it was submitted with; all is granted" in text
    assert "beyond an unknown template" in text_of(explained([pod], make_statistic_for(pod)))


def test_a_skipped_pod_shows_its_reason_and_its_requests():
    pod = make_pod(containers=[make_container(cpu=None, memory_mib=64)])
    text = text_of(explained([pod]))
    assert "skipped: no-statistics: it has no statistics (app)" in text
    assert "requests no CPU and 64Mi" in text
    stale = text_of(explained([pod], make_statistic_for(pod, updated_at=NOW_SECONDS - 7200)))
    assert "stale-statistics" in stale
    assert "updated 2h ago" in stale


def test_an_evicted_pod_has_its_place_in_the_ranking():
    pods = [make_pod("spiky"), make_pod("calm"), make_pod("agent", workload="DaemonSet/agent")]
    rows = [
        make_statistic_for(pod, cpu_base=400, cpu_peak=peak) for pod, peak in zip(pods, (1000, 500, 450), strict=True)
    ]
    text = text_of(explained(pods, *rows, nodes=[make_node(cpu=1000), make_node("n2")]))
    assert "eviction planned" in text
    lines = text[text.index("Eviction order for CPU") :].splitlines()
    assert "1." in lines[1]
    assert "evicted" in lines[1]
    assert "stays: a DaemonSet pod" in lines[3]


def test_the_reason_for_no_eviction_is_named():
    pods = [make_pod(name, workload=f"Deployment/{name}") for name in ("one", "two")]
    rows = [make_statistic_for(pod, cpu_base=600, cpu_peak=600) for pod in pods]
    text = text_of(explained(pods, *rows, nodes=[make_node(cpu=1000)]))
    assert "no eviction would make its pods fit" in text
    assert text.count("stays: no other node would get its replacement pod") == 2
    calm = [make_statistic_for(pod, cpu_base=450, cpu_peak=600) for pod in pods]
    assert "no pod must be evicted" in text_of(explained(pods, *calm, nodes=[make_node(cpu=1000)]))


def test_on_a_node_that_cannot_fit_a_pod_gets_what_there_is():
    pod = make_pod("agent", workload="DaemonSet/agent")
    text = text_of(explained([pod], make_statistic_for(pod, cpu_base=900, cpu_peak=950), nodes=[make_node(cpu=500)]))
    assert "no eviction would make its pods fit" in text
    assert "50m, of which 0m fit on the node with the bases" in text
    assert "by 400m, so that the sum of the planned requests fits the node" in text
    assert "100m → 500m" in text


def test_by_the_first_design_nothing_grows_there():
    pod = make_pod("agent", workload="DaemonSet/agent")
    first_design = Policy(mode=Mode.FULL, rules=SEED_RULES)
    rows = make_statistic_for(pod, cpu_base=900)
    text = text_of(explained([pod], rows, nodes=[make_node(cpu=500)], policy=first_design))
    assert "it stays at most 100m" in text


def test_a_cpu_limit_and_a_kept_memory_limit_are_explained():
    pod = make_pod(containers=[make_container(cpu_limit=300, memory_limit_mib=4096)])
    limits = (LimitRangeItem(False, maximum=make_amounts(None, 8192)),)
    old = make_node(kubelet_version=(1, 33))
    text = text_of(explained([pod], make_statistic_for(pod), nodes=[old], limit_ranges={"shop": limits}))
    assert "a CPU limit cannot be removed in place" in text
    assert "300m → 4000m" in text
    assert "this kubelet can neither add nor lower a limit in place" in text
    assert "a LimitRange allows 8192Mi" in text


@pytest.mark.parametrize(("days", "least"), [(40, 900), (8, 1024)])
def test_a_memory_limit_under_a_limit_range_ratio_is_explained_as_written(days, least):
    pod = make_pod(containers=[make_container(memory_mib=1024, memory_limit_mib=1024)])
    row = make_statistic_for(
        pod,
        memory_base_mib=200,
        memory_peak_mib=300,
        memory_7d_max_mib=900,
        history_since=NOW_SECONDS - days * 86_400,
    )
    explanation = explained([pod], row, limit_ranges={"shop": (LimitRangeItem(False, max_memory_ratio=1.0),)})
    text = " ".join(text_of(explanation).split())
    assert f"a LimitRange allows {least}Mi with this request" in text
    assert f"not lowered below {least}Mi because of it" in text
    assert f"1024Mi → {least}Mi" in text
    # The pod is written for its CPU, and its memory request stays: so does its limit.
    assert explanation.resize is not None
    assert explanation.resize.containers[0].limits.memory_bytes == 1024 * MEBIBYTE
    assert ("1024Mi unchanged: the planned request requires it" in text) == (least < 1024)


def test_a_pending_pod_shows_what_admission_would_give():
    pods = [make_pod("web-2", node=None), make_pod("web-1")]
    text = text_of(explained(pods, make_statistic(pod="", cpu_peak=400)))
    assert "pending: it is not on a node" in text
    assert "app: requests 400m and 100Mi, limits no CPU and no memory" in text
    assert "the webhook would not change it: no-statistics" in text_of(explained(pods))


def test_a_deferred_resize_says_until_when():
    state = ResizeState(ResizePending.DEFERRED, NOW - timedelta(minutes=1))
    pod = make_pod(resize=state)
    assert "until 12:04:00 UTC" in text_of(explained([pod], make_statistic_for(pod)))


@pytest.mark.parametrize(("pending", "refusing"), [(ResizePending.INFEASIBLE, 0), (ResizePending.DEFERRED, 90)])
def test_a_withdrawn_resize_is_distinguished_from_computed_sizes(pending, refusing):
    allocated = make_amounts(200, 128)
    container = make_container(cpu=500, allocated=allocated, actual=allocated)
    pod = make_pod(containers=[container], resize=ResizeState(pending, NOW - timedelta(minutes=refusing)))
    text = text_of(explained([pod], make_statistic_for(pod)))
    assert "withdrawal planned: a resize that the node cannot do is withdrawn" in text
    assert "500m → 200m: the pending resize is withdrawn before the target is written" in text
    assert "128Mi unchanged: the pending resize is withdrawn before the target is written" in text
    assert "skipped" not in text
    assert "resize planned" not in text


def test_what_a_node_tolerates_is_a_whole_number_of_millicores():
    pods = [make_pod("web-1"), make_pod("web-2")]
    rows = [make_statistic_for(pods[0], cpu_base=51, cpu_peak=202), make_statistic_for(pods[1], cpu_peak=351)]
    cpu, memory = re.findall(r"the tolerance allows (\S+)", text_of(explained(pods, *rows)))
    assert (cpu, memory) == ("463m", "188.6Mi")


@pytest.mark.parametrize("width", [80, 160])
def test_lines_keep_within_the_terminal_but_for_the_command_to_copy(width):
    pods = [make_pod(f"web-7d9f8b6c5d-{index:05d}", namespace="a-team-with-a-long-name") for index in range(20)]
    rows = [make_statistic_for(pod, cpu_base=400, cpu_peak=900) for pod in pods]
    lines = text_of(explained(pods, *rows), width).splitlines()
    assert all(len(line) <= width for line in lines if not line.startswith("kubectl"))


@examples(40)
@given(clusters(max_nodes=2))
def test_any_pod_of_any_cluster_can_be_shown(cluster):
    for pod in cluster.snapshot.pods:
        explanation = explain_pod(pod, cluster.snapshot, cluster.statistics, FULL, NOW)
        assert pod.name in text_of(explanation, 80)
        document = json.loads(render_explanation_json(explanation, NOW, None))
        assert document["pod"] == pod.name
        assert document["outcome"] == explanation.outcome.value
        assert len(document["containers"]) == len(explanation.steps)
        assert len(document["skippedContainers"]) == len(explanation.skipped_containers)


def test_the_document_has_every_step_and_the_patch():
    pod = make_pod()
    document = json.loads(render_explanation_json(explained([pod], make_statistic_for(pod)), NOW, None))
    assert document["workload"] == "Deployment/web"
    [container] = document["containers"]
    assert container["cpuMillicores"]["final"] == 200
    assert container["cpuMillicores"]["updateThreshold"]["exceedsThreshold"] is True
    assert container["memoryLimitBytes"]["memory7dMax"] == 100 * MEBIBYTE
    assert document["patch"]["spec"]["containers"][0]["name"] == "app"
    stated = {"setting": "mode", "value": "full", "source": "cluster", "effective": True, "limitedBy": None}
    assert document["overrides"] == [stated]
    assert document["node"]["available"] == {"cpuMillicores": 4000, "memoryBytes": 16384 * MEBIBYTE}
    held = json.loads(render_explanation_json(explained([pod]), NOW, None))
    assert held["skipped"]["reason"] == "no-statistics"


def past():
    ref = make_ref("Deployment/web")
    eviction = EvictPod(
        "shop", "web-1", "u", "n1", ref, EvictionRanking.LOW, ResourceName.CPU, ReasonCode.NODE_OVER_CAPACITY
    )
    outcome = Outcome(
        NOW - timedelta(minutes=7), eviction, ActionResult.SKIPPED, ReasonCode.HOURLY_EVICTION_BUDGET_SPENT
    )
    kill = OomRecord("shop", "web-1", "u", str(ref), "app", "", "n1", NOW - timedelta(hours=3), None, 1, None, 5)
    peaks = HourlyPeaks([PeakKey("shop", str(ref), "app", "")], np.array([5]), np.array([250.0]), np.array([np.nan]))
    return build_pod_history("shop", "web-1", str(ref), "", [outcome], [kill], peaks)


def test_the_past_is_shown_after_the_present():
    text = render_to_text(lambda console: render_pod_history(past(), NOW))
    assert "7m ago  evict  skipped  the hourly eviction budget is spent" in text
    assert "3h ago  web-1  app  no limit" in text
    assert "up to 250m" in text
    assert "no samples" in text


def test_a_resize_of_the_past_says_from_what_to_what_and_why():
    pod = make_pod()

    def sizes(cpu):
        return (ContainerTarget("app", ContainerRole.MAIN, make_amounts(cpu, 128), NOTHING_STATED),)

    action = ResizePod(
        pod.namespace, pod.name, pod.uid, pod.node, pod.workload, sizes(130), NO_RESOURCES, ReasonCode.RIGHTSIZED,
        ResizeCause.UNDER_REQUESTED,
    )  # fmt: skip
    done = replace(
        past(), outcomes=(Outcome(NOW, action, ActionResult.DONE, ReasonCode.RIGHTSIZED, before=sizes(100)),)
    )
    text = render_to_text(lambda console: render_pod_history(done, NOW))
    assert "resize  done  cpu 100m → 130m: it has used more than its request for" in text
    [line] = json.loads(render_stored_pod_json("shop", "web-1", make_table(make_statistic()), done))["history"][
        "outcomes"
    ]
    assert (line["cause"], line["changes"]) == ("under-requested", "cpu 100m → 130m")


def test_the_store_alone_shows_statistics_and_past():
    table = make_table(make_statistic(), make_statistic(pod="", container="log"))
    text = render_to_text(lambda console: render_stored_text("shop", "web-1", table, past(), NOW))
    assert "app: base 50m and 64Mi, peak 200m and 100Mi, updated just now" in text
    assert "log (all pods of Deployment/web)" in text
    document = json.loads(render_stored_pod_json("shop", "web-1", table, past()))
    assert [row["key"]["container"] for row in document["statistics"]] == ["app", "log"]
    assert document["history"]["outcomes"][0]["reason"] == "hourly-eviction-budget-spent"
    assert document["history"]["hourlyPeaks"][0]["cpuMillicores"][5] == 250.0


def test_a_past_of_nothing_shows_nothing():
    nothing = replace(past(), outcomes=(), oom_kills=(), profiles=())
    assert render_to_text(lambda console: render_pod_history(nothing, NOW)) == ""


def test_resources_of_another_autoscaler_are_reported_with_its_name():
    pod = make_pod()
    found = explained([pod], make_statistic_for(pod), autoscalers=[make_autoscaler(name="by-load")])
    assert "CPU not sized: HPA by-load targets the utilization of resources that cruise may size" in text_of(found)
    document = json.loads(render_explanation_json(found, NOW, None))
    assert document["autoscaled"]["resources"] == ["cpu"]
    assert (
        json.loads(render_explanation_json(explained([pod], make_statistic_for(pod)), NOW, None))["autoscaled"] is None
    )


def test_a_pod_that_a_vpa_sizes_is_skipped():
    pod = make_pod()
    snapshot = make_snapshot([pod])
    vertical = VerticalPodAutoscaler("shop", "sizer", make_ref("Deployment/web"), "Recreate")
    snapshot = replace(snapshot, vertical_autoscalers=(vertical,))
    found = explain_pod(pod, snapshot, make_table(make_statistic_for(pod)), FULL, NOW)
    assert "managed-by-other-autoscaler: another autoscaler sizes it (VPA sizer)" in text_of(found)

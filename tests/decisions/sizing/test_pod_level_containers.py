"""Pods with pod-level resources: one size for the pod by the sum of its containers' usage."""

from dataclasses import replace
from functools import partial
from random import Random

import pytest

from cruise.decisions.admission.admission import MutatePod, compute_admitted_resources, decide_admission
from cruise.decisions.admission.node_index import NodeIndex
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.sizing.node_plans import NodePlan, decide_node_plans
from cruise.decisions.sizing.planned_requests import count_node_requests_after_plan
from cruise.domain.actions import ContainerTarget, ReasonCode, RefusedResize
from cruise.domain.autoscalers import LimitRangeItem
from cruise.domain.cluster import POD_LEVEL, Container, Node, Pod
from cruise.domain.pod_resources import count_pod_requests, get_qos_class, predict_actuated_pod, replace_spec_resources
from cruise.domain.policy import SEED_RULES, Mode, Policy
from cruise.domain.resources import MEBIBYTE, ResizePending, ResizeState
from cruise.domain.usage import Statistic
from cruise.kube_json.objects.pod import decode_pod
from cruise.kube_json.patches import build_resize_patch, build_verified_patch
from cruise.simulation.cluster.api_server import check_creation, check_resize
from tests.builders import (
    NOW,
    TRACKING,
    make_amounts,
    make_container,
    make_node,
    make_pod,
    make_pod_json,
    make_pod_level,
    make_snapshot,
    make_statistic_for,
    make_table,
    make_workload,
)
from tests.pod_level_pods import draw_pod_spec, draw_statistics

FULL = Policy(mode=Mode.FULL, rules=TRACKING)
FEATURE = frozenset({"InPlacePodLevelResourcesVerticalScaling"})


def node_of(version: tuple[int, int] | None = (1, 36), **more) -> Node:
    return make_node("n1", kubelet_version=version, **more)


def bare(name: str = "app", **more) -> Container:
    return make_container(name, None, None, **more)


def pod_of(*containers: Container, whole: Container | None = None, **more) -> Pod:
    level = whole or make_pod_level(make_amounts(2000, 2048))
    return make_pod(containers=containers or (bare(), bare("logs")), pod_level=level, **more)


def statistics_of(pod: Pod, **figures):
    return [make_statistic_for(pod, one.name, **figures) for one in pod.sized_containers]


def plan_for(pod: Pod, *statistics, policy: Policy = FULL, node: Node | None = None, **more) -> NodePlan:
    snapshot = make_snapshot([pod], nodes=[node or node_of()], **more)
    [plan] = decide_node_plans(snapshot, make_table(*(statistics or statistics_of(pod))), policy, NOW)
    return plan


def targets_of(plan: NodePlan) -> dict[str, ContainerTarget]:
    [resize] = plan.resize
    return {target.container: target for target in resize.containers}


def test_pod_is_sized_by_the_sum_of_its_containers():
    pod = pod_of()
    plan = plan_for(pod, *statistics_of(pod, cpu_base=50, cpu_peak=200, memory_base_mib=64, memory_peak_mib=100))
    targets = targets_of(plan)
    assert list(targets) == [POD_LEVEL]
    # Of two summed peaks of 200 m and 100 MiB nothing is shared: the pod is alone on its node.
    assert targets[POD_LEVEL].requests == make_amounts(400, 200)
    assert count_node_requests_after_plan(plan, {("shop", pod.name): pod}) == make_amounts(400, 200).resources


def test_pod_grows_to_its_summed_use():
    pod = pod_of(whole=make_pod_level(make_amounts(100, 128)))
    plan = plan_for(pod, *statistics_of(pod, cpu_base=300, cpu_peak=300, memory_base_mib=200, memory_peak_mib=200))
    assert targets_of(plan)[POD_LEVEL].requests == make_amounts(600, 400)
    [resize] = plan.resize
    assert resize.growth == make_amounts(500, 272).resources


def test_containers_that_state_their_own_follow_the_pod():
    pod = pod_of(make_container("app", 800, 1024, 1000, 1500), bare("logs"))
    targets = targets_of(plan_for(pod, *statistics_of(pod, cpu_base=50, cpu_peak=200)))
    assert list(targets) == [POD_LEVEL, "app"]
    assert targets["app"].requests == make_amounts(200, 100)
    assert targets["app"].limits == make_amounts(1000, 1500)


@pytest.mark.parametrize(
    ("annotation", "names"),
    [
        ({"cruise.io/resources.app": "cpu"}, [POD_LEVEL, "logs"]),
        ({"cruise.io/resources": "cpu"}, [POD_LEVEL, "app", "logs"]),
        ({"cruise.io/resources.app": "cpu", "cruise.io/resources.logs": "cpu"}, [POD_LEVEL, "app", "logs"]),
    ],
)
def test_a_container_of_which_less_is_managed_than_of_its_pod_keeps_its_own_sizes(annotation, names):
    pod = pod_of(make_container("app", 800, 1024), make_container("logs", 100, 64), annotations=annotation)
    targets = targets_of(plan_for(pod, *statistics_of(pod, cpu_base=50, cpu_peak=200)))
    assert list(targets) == names
    assert all(targets[one].requests.memory_bytes == 1024 * MEBIBYTE for one in names if one == "app")


def test_own_memory_limit_follows_a_smaller_limit_of_the_pod():
    whole = make_pod_level(make_amounts(2000, 2048), make_amounts(None, 4096))
    pod = pod_of(make_container("app", None, 1024, None, 4000), bare("logs"), whole=whole)
    targets = targets_of(plan_for(pod, *statistics_of(pod, memory_7d_max_mib=200, memory_peak_mib=100)))
    assert targets[POD_LEVEL].limits.memory_bytes == 800 * MEBIBYTE
    assert targets["app"].limits.memory_bytes == 800 * MEBIBYTE


def pod_near_a_containers_limit(limit_mib: int = 128) -> tuple[Pod, list[Statistic]]:
    whole = make_pod_level(make_amounts(400, 340), make_amounts(None, 4096))
    pod = pod_of(make_container("app", None, 64, None, limit_mib), bare("logs"), whole=whole)
    app = make_statistic_for(pod, "app", memory_base_mib=120, memory_peak_mib=127, memory_7d_max_mib=150)
    logs = make_statistic_for(pod, "logs", memory_base_mib=180, memory_peak_mib=180, memory_7d_max_mib=2000)
    return pod, [app, logs]


@pytest.mark.parametrize(
    ("template", "highest"),
    [
        pytest.param({"app": 128 * MEBIBYTE}, 256, id="stated"),
        pytest.param({"app": 64 * MEBIBYTE}, 128, id="raised before"),
        pytest.param({}, 4096, id="not of the template"),
    ],
)
def test_known_use_near_a_containers_own_limit_raises_it_as_far_as_its_template_allows(template, highest):
    pod, statistics = pod_near_a_containers_limit()
    workload = make_workload(memory_limits=template)
    targets = targets_of(plan_for(pod, *statistics, workloads=[workload]))
    assert targets["app"].limits.resources.memory_bytes == min(highest, 300) * MEBIBYTE


def test_a_containers_own_limit_does_not_rise_by_itself_if_its_template_is_unknown():
    """It doubled in the next pass, after it had followed the container's request."""
    pod, statistics = pod_near_a_containers_limit(limit_mib=64)
    targets = targets_of(plan_for(pod, *statistics))
    assert targets["app"].limits.memory_bytes == targets["app"].requests.memory_bytes
    applied = replace_spec_resources(pod, list(targets.values()))
    assert not plan_for(applied, *statistics).resize


@pytest.mark.parametrize(
    ("node", "detail"),
    [
        (node_of((1, 35)), "kubelet 1.35"),
        (node_of(None), "kubelet unknown"),
        (node_of(declared_features=frozenset()), "kubelet 1.36"),
    ],
)
def test_pods_on_kubelets_that_cannot_are_skipped(node: Node, detail: str):
    [skipped] = plan_for(pod_of(), node=node).skipped
    assert (skipped.reason, skipped.detail) == (ReasonCode.POD_LEVEL_RESOURCES, detail)


def test_declared_feature_counts_more_than_the_version():
    assert plan_for(pod_of(), node=node_of(None, declared_features=FEATURE)).resize


def test_the_first_design_skips_such_pods():
    [skipped] = plan_for(pod_of(), policy=replace(FULL, rules=SEED_RULES)).skipped
    assert skipped.reason is ReasonCode.POD_LEVEL_RESOURCES


def test_a_resource_that_the_pod_does_not_state_is_unchanged():
    pod = pod_of(make_container("app", 800, 1024), whole=make_pod_level(make_amounts(2000)))
    targets = targets_of(plan_for(pod))
    assert targets[POD_LEVEL].requests.memory_bytes is None
    assert targets["app"].requests.memory_bytes == 1024 * MEBIBYTE
    assert targets[POD_LEVEL].requests.resources.cpu_millicores < 800


def test_limit_ranges_of_type_pod_bound_the_pods_own_resources():
    ranges = {"shop": (LimitRangeItem(is_for_pod=True, minimum=make_amounts(700, 512)),)}
    assert targets_of(plan_for(pod_of(), limit_ranges=ranges))[POD_LEVEL].requests == make_amounts(700, 512)


def test_infeasible_resize_is_withdrawn_with_the_containers():
    whole = make_pod_level(make_amounts(2000, 2048), allocated=make_amounts(1000, 1024))
    own = make_container("app", 500, 512, allocated=make_amounts(400, 256))
    pod = pod_of(own, bare("logs"), whole=whole, resize=ResizeState(ResizePending.INFEASIBLE))
    plan = plan_for(pod)
    [resize] = plan.resize
    assert resize.reason is ReasonCode.WITHDRAWN
    assert [target.requests for target in resize.containers] == [make_amounts(1000, 1024), make_amounts(400, 256)]


def test_rejected_sizes_are_not_written_again():
    pod = pod_of()
    [resize] = plan_for(pod).resize
    refused = {pod.uid: RefusedResize(pod.uid, resize.containers, ReasonCode.RESIZE_REFUSED, NOW)}
    snapshot, table = make_snapshot([pod], nodes=[node_of()]), make_table(*statistics_of(pod))
    [plan] = decide_node_plans(snapshot, table, FULL, NOW, refused=refused)
    assert [one.reason for one in plan.skipped] == [ReasonCode.RESIZE_REFUSED]


def test_patch_writes_the_pods_own_resources():
    pod = pod_of(make_container("app", 800, 1024), bare("logs"))
    [resize] = plan_for(pod).resize
    spec = build_resize_patch(resize)["spec"]
    assert spec["resources"] == {"requests": {"cpu": "400m", "memory": "200Mi"}}
    assert [one["name"] for one in spec["containers"]] == ["app"]


def read_owned(document, workload) -> Pod:
    return replace(decode_pod(document), workload=workload, owner_kind="Deployment", owner_name="web")


def running(random: Random) -> Pod:
    """A drawn pod, as the API server would create it and a kubelet report it."""
    document = make_pod_json(spec={**draw_pod_spec(random), "nodeName": "n1"})
    document["status"] = {"phase": "Running"}
    pod = replace(decode_pod(document), qos=get_qos_class(decode_pod(document)))
    check_creation(pod, ())
    owned = replace(pod, workload=make_pod().workload, owner_kind="Deployment", owner_name="web", created_at=None)
    return predict_actuated_pod(owned, ())


def test_server_accepts_what_is_written_and_the_scheduler_counts_what_is_planned(seeds):
    written = grown = within = 0
    for seed in seeds(1000):
        random = Random(seed)
        pod, node = running(random), node_of()
        table = make_table(*draw_statistics(random, pod))
        [plan] = decide_node_plans(make_snapshot([pod], nodes=[node]), table, FULL, NOW)
        for resize in plan.resize:
            after = replace_spec_resources(pod, resize.containers)
            check_resize(pod, after, node, (), (1, 36))
            counted = count_pod_requests(predict_actuated_pod(pod, resize.containers))
            assert count_node_requests_after_plan(plan, {("shop", pod.name): pod}) == counted, seed
            assert (counted - count_pod_requests(pod)).max_with(make_amounts(0, 0).resources) == resize.growth, seed
            written, grown = written + 1, grown + resize.needs_capacity
            within += len(resize.containers) > 1
    assert written and grown and within


def test_server_accepts_the_pods_that_admission_sizes_and_sizes_them_once(seeds):
    sized = 0
    for seed in seeds(1000):
        random = Random(seed)
        document = make_pod_json(spec=draw_pod_spec(random), status={})
        pod = read_owned(document, make_pod().workload)
        snapshot = make_snapshot([make_pod()], nodes=[node_of()])
        table = make_table(*draw_statistics(random, pod))
        eligibility, nodes = Eligibility(snapshot, table, {}, FULL, NOW), NodeIndex(snapshot.nodes)
        decision = decide_admission(pod, eligibility, table, nodes, (), FULL)
        if isinstance(decision, MutatePod):
            sized += 1
            after = compute_admitted_resources(pod, decision).apply_to(pod, {})
            check_creation(after, ())
            assert after.qos is pod.qos, seed
            read = partial(read_owned, workload=pod.workload)
            assert build_verified_patch(document, pod, after, read), seed
    assert sized

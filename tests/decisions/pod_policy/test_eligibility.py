"""Which pods are resizable, and each reason to skip a pod."""

from dataclasses import replace
from datetime import timedelta

import pytest

from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.pod_policy.resizable_pod import ResizablePod
from cruise.domain.actions import ReasonCode, SkippedPod
from cruise.domain.annotations import EffectivePolicy, UnreadableAnnotations
from cruise.domain.autoscalers import NodeAutoscalerKind
from cruise.domain.cluster import ClusterSnapshot, ContainerRole, Pod, QosClass
from cruise.domain.original_resources import (
    PodRevision,
    RevisionPeriod,
    WorkloadContainer,
    WorkloadRevisions,
    get_resources_at_creation,
)
from cruise.domain.policy import SEED_RULES, EvictionRanking, GuaranteedPolicy, Mode, Policy
from cruise.domain.reasons import ReasonDetailCode
from cruise.domain.resources import MEBIBYTE, NOTHING_STATED, ResourceName
from cruise.domain.scheduling import LabelRequirement, LabelSelector, SelectorOperator, Taint, TaintEffect
from cruise.domain.usage import Statistic
from tests.builders import (
    NOW,
    NOW_SECONDS,
    make_amounts,
    make_autoscaler,
    make_budget,
    make_container,
    make_node,
    make_pod,
    make_pod_level,
    make_ref,
    make_snapshot,
    make_statistic,
    make_statistic_for,
    make_table,
    make_workload,
)

FULL = Policy(mode=Mode.FULL)
CPU, MEMORY = ResourceName.CPU, ResourceName.MEMORY


def eligibility_of(snapshot: ClusterSnapshot, *rows: Statistic, policy=FULL, paused=None) -> Eligibility:
    return Eligibility(snapshot, make_table(*rows), paused or {}, policy, NOW)


def verdict(pod: Pod, *rows: Statistic, policy=FULL, paused=None, **snapshot) -> ResizablePod | SkippedPod:
    rows = rows or (make_statistic_for(pod),)
    return eligibility_of(make_snapshot([pod], **snapshot), *rows, policy=policy, paused=paused).check(pod)


def reason(pod: Pod, *rows: Statistic, policy=FULL, **snapshot) -> ReasonCode:
    found = verdict(pod, *rows, policy=policy, **snapshot)
    assert isinstance(found, SkippedPod)
    assert (found.namespace, found.pod) == (pod.namespace, pod.name)
    return found.reason


def resizable(pod: Pod, *rows: Statistic, **more) -> ResizablePod:
    found = verdict(pod, *rows, **more)
    assert isinstance(found, ResizablePod)
    return found


def managed_by(found: ResizablePod) -> set[ResourceName]:
    each = ((CPU, found.manages_cpu), (MEMORY, found.manages_memory))
    return {resource for resource, is_managed in each if is_managed}


# ---- skipped pods ----


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"namespace": "kube-system"}, ReasonCode.EXCLUDED_NAMESPACE),
        ({"namespace": "cruise"}, ReasonCode.EXCLUDED_NAMESPACE),
        ({"is_mirror_pod": True}, ReasonCode.STATIC_POD),
        ({"runs_on_windows": True}, ReasonCode.WINDOWS),
        ({"phase": "Succeeded"}, ReasonCode.COMPLETED),
        ({"phase": "Failed"}, ReasonCode.COMPLETED),
        ({"terminating": True}, ReasonCode.TERMINATING),
        ({"qos": QosClass.GUARANTEED}, ReasonCode.GUARANTEED),
        ({"qos": QosClass.BEST_EFFORT}, ReasonCode.BEST_EFFORT),
        ({"pod_level": make_pod_level(make_amounts(500, 512))}, ReasonCode.POD_LEVEL_RESOURCES),
        ({"pod_level": make_pod_level(limits=make_amounts(500, 512))}, ReasonCode.POD_LEVEL_RESOURCES),
        ({"workload": None}, ReasonCode.NO_CONTROLLER),
        ({"annotations": {"cruise.io/mode": "off"}}, ReasonCode.MODE_OFF),
        ({"annotations": {"cruise.io/mode": "observe"}}, ReasonCode.MODE_OBSERVE),
        ({"annotations": {"cruise.io/mode": "initial"}}, ReasonCode.MODE_INITIAL),
        ({"annotations": {"cruisekube.truefoundry.com/excluded": "true"}}, ReasonCode.MODE_OFF),
        ({"annotations": {"cruise.io/mod": "full"}}, ReasonCode.UNREADABLE_ANNOTATION),
    ],
)
def test_reasons_to_skip_a_pod(fields, expected):
    assert reason(make_pod(**fields)) is expected


def test_conditions_that_do_not_make_a_pod_unresizable():
    assert resizable(make_pod(annotations={"cruisekube.truefoundry.com/excluded": "false"})).manages_cpu
    assert resizable(make_pod(extended_requests=(("ephemeral-storage", 1 << 30), ("hugepages-2Mi", 1 << 21))))
    assert resizable(make_pod(namespace="kube-system"), policy=replace(FULL, excluded_namespaces=frozenset())).rows


def test_pods_with_devices_are_sized_unless_settings_or_the_first_rules_exclude_them():
    pod = make_pod(extended_requests=(("nvidia.com/gpu", 1),))
    assert resizable(pod).manages_memory
    assert reason(pod, policy=replace(FULL, allow_extended_resources=False)) is ReasonCode.EXTENDED_RESOURCES
    assert reason(pod, policy=replace(FULL, rules=SEED_RULES)) is ReasonCode.EXTENDED_RESOURCES


def test_guaranteed_pods_are_sized_where_the_setting_or_an_annotation_says_so():
    pod = make_pod(qos=QosClass.GUARANTEED)
    resizing = replace(FULL, guaranteed=GuaranteedPolicy.RESIZE)
    assert resizable(pod, policy=resizing).manages_cpu
    assert reason(pod, policy=replace(resizing, rules=SEED_RULES)) is ReasonCode.GUARANTEED
    assert resizable(replace(pod, annotations={"cruise.io/guaranteed": "resize"})).manages_cpu
    kept = replace(pod, annotations={"cruise.io/guaranteed": "keep"})
    assert reason(kept, policy=resizing) is ReasonCode.GUARANTEED
    unreadable = replace(pod, annotations={"cruise.io/guaranteed": "yes"})
    assert reason(unreadable, policy=resizing) is ReasonCode.UNREADABLE_ANNOTATION


def test_pods_of_a_node_that_is_not_ready_are_skipped_and_those_of_a_cordoned_one_not():
    assert reason(make_pod(), nodes=[make_node(ready=False)]) is ReasonCode.NODE_NOT_READY
    assert resizable(make_pod(), nodes=[make_node(unschedulable=True)])
    # Properties of the pod itself are reported first.
    assert reason(make_pod(phase="Failed"), nodes=[make_node(ready=False)]) is ReasonCode.COMPLETED


def test_zero_memory_is_no_usage():
    waiting = make_pod(containers=[make_container(), make_container("proxy", running=False)])
    known = make_statistic("web-1")
    assert (
        reason(waiting, known, make_statistic("web-1", container="proxy", memory_base_mib=0, memory_peak_mib=0))
        is ReasonCode.NO_STATISTICS
    )
    # Its usage before it was waiting is known.
    assert resizable(waiting, known, make_statistic("web-1", container="proxy")).rows == (0, 1)
    # A running container without any memory usage: its memory is unknown, its CPU is known.
    idle = make_statistic("web-1", memory_base_mib=0, memory_peak_mib=0)
    found = resizable(make_pod(), idle)
    assert (found.manages_cpu, found.manages_memory) == (True, False)
    restarting = make_pod(containers=[make_container(cpu_resize_restarts=True)])
    assert reason(restarting, idle) is ReasonCode.NO_STATISTICS
    # All of its samples were rejected.
    refused = make_statistic("web-1", memory_base_mib=0, memory_peak_mib=0, rejected_percent=100)
    assert reason(make_pod(), refused) is ReasonCode.IMPLAUSIBLE_USAGE
    # A new pod has no running containers; zero usage of its workload is no statistic.
    unused = make_statistic("", memory_base_mib=0, memory_peak_mib=0)
    for row, expected in ((unused, ReasonCode.NO_STATISTICS), (make_statistic(""), None)):
        eligibility = eligibility_of(make_snapshot([waiting]), row)
        assert eligibility.explain_unusable_statistics(waiting, [0]) is expected


def test_a_pod_on_a_node_that_is_being_deleted_is_sized_and_not_evicted():
    pod, node = make_pod(), make_node(deleting=True)
    assert resizable(pod, nodes=[node])
    found = eligibility_of(make_snapshot([pod], [node]), make_statistic_for(pod))
    effective_policy = found.get_effective_policy(pod)
    assert isinstance(effective_policy, EffectivePolicy)
    assert found.evictability.explain_not_evictable(pod, effective_policy) == ReasonDetailCode.NODE_BEING_DELETED
    assert found.largest_node_memory is None


@pytest.mark.parametrize(("version", "held"), [((1, 32), True), ((1, 33), False), ((1, 40), False), (None, False)])
def test_kubelets_before_1_33_resize_nothing(version, held):
    found = verdict(make_pod(), nodes=[make_node(kubelet_version=version)])
    assert isinstance(found, SkippedPod) is held
    if isinstance(found, SkippedPod):
        assert (found.reason, found.detail) == (ReasonCode.RESIZE_UNSUPPORTED, "kubelet 1.32")


@pytest.mark.parametrize(
    ("fields", "is_virtual"),
    [
        ({"labels": {"eks.amazonaws.com/compute-type": "fargate"}}, True),
        ({"labels": {"type": "virtual-kubelet"}}, True),
        ({"labels": {"liqo.io/type": "virtual-node"}}, True),
        ({"taints": (Taint("virtual-kubelet.io/provider", "azure", TaintEffect.NO_SCHEDULE),)}, True),
        ({"labels": {"eks.amazonaws.com/compute-type": "ec2", "type": "spot"}}, False),
    ],
)
def test_pods_on_virtual_nodes_are_skipped_and_such_nodes_are_no_measure_of_size(fields, is_virtual):
    # Some providers state a million cores.
    pod, node = make_pod(), make_node(memory_mib=1 << 20, **fields)
    machine = make_node("machine", memory_mib=4096)
    found = eligibility_of(make_snapshot([pod], [machine, node]), make_statistic_for(pod))
    checked = found.check(pod)
    assert isinstance(checked, SkippedPod) is is_virtual
    assert found.explain_no_resize(pod) is (ReasonCode.VIRTUAL_NODE if is_virtual else None)
    assert found.largest_node_memory == (4096 if is_virtual else 1 << 20) * MEBIBYTE


@pytest.mark.parametrize(("cpu", "memory_mib"), [(0, 0), (0, 16384), (4000, 0)])
def test_pods_are_skipped_while_their_kubelet_reports_no_capacity(cpu, memory_mib):
    assert reason(make_pod(), nodes=[make_node(cpu=cpu, memory_mib=memory_mib)]) is ReasonCode.NODE_NOT_READY


def test_an_unreadable_annotation_is_reported_from_any_source():
    broken = {"cruise.io/cpu-min": "1.5Gx"}
    for place, more in (
        ("pod", {"pod": make_pod(annotations=broken)}),
        ("Deployment/web", {"pod": make_pod(), "workloads": [make_workload(annotations=broken)]}),
        ("namespace shop", {"pod": make_pod(), "namespace_annotations": {"shop": broken}}),
    ):
        found = verdict(**more)
        assert isinstance(found, SkippedPod)
        assert found.reason is ReasonCode.UNREADABLE_ANNOTATION
        assert found.detail.startswith(f"{place}: cruise.io/cpu-min: ")
        assert "1.5Gx" in found.detail


def test_an_unknown_container_is_reported_from_any_source():
    misspelt = {"cruise.io/memory-min.ap": "2Gi"}
    for place, more in (
        ("pod", {"pod": make_pod(annotations=misspelt)}),
        ("Deployment/web", {"pod": make_pod(), "workloads": [make_workload(annotations=misspelt)]}),
    ):
        found = verdict(**more)
        assert isinstance(found, SkippedPod)
        assert found.reason is ReasonCode.UNREADABLE_ANNOTATION
        assert found.detail == f"{place}: cruise.io/memory-min.ap: no such container; there is app"


def test_a_namespace_setting_for_a_container_applies_to_pods_that_have_it():
    assert resizable(make_pod(), namespace_annotations={"shop": {"cruise.io/memory-min.istio-proxy": "128Mi"}})


def test_a_container_of_the_template_or_of_another_pod_of_the_workload_may_be_named():
    of_template = replace(make_workload(annotations={"cruise.io/cpu-min.log": "50m"}), requests={"log": NOTHING_STATED})
    assert resizable(make_pod(), workloads=[of_template])
    injected = make_pod(annotations={"cruise.io/cpu-min.istio-proxy": "50m"})
    rows = [make_statistic("web-1"), make_statistic("web-2", container="istio-proxy")]
    assert resizable(injected, *rows)


@pytest.mark.parametrize(
    ("annotation", "said"),
    [
        ({"cruise.io/cpu-min": "500"}, 'cpu-min: "500" is more than any node has (at most 8); did you mean 500m?'),
        (
            {"cruise.io/cpu-max.app": "100"},
            'cpu-max.app: "100" is more than any node has (at most 8); did you mean 100m?',
        ),
        (
            {"cruise.io/memory-min": "256Gi"},
            'memory-min: "256Gi" is more than any node has (at most 32Gi); did you mean 256Mi?',
        ),
        (
            {"cruise.io/memory-max": "33Gi"},
            'memory-max: "33Gi" is more than any node has (at most 32Gi); did you mean 33Mi?',
        ),
    ],
)
def test_a_bound_above_every_node_is_unreadable(annotation, said):
    nodes = [
        make_node(cpu=4000),
        make_node("n2", cpu=7900, memory_mib=31 << 10, cpu_capacity_millicores=8000, memory_capacity_bytes=32 << 30),
    ]
    for place, more in (
        ("pod", {"pod": make_pod(annotations=annotation)}),
        ("Deployment/web", {"pod": make_pod(), "workloads": [make_workload(annotations=annotation)]}),
        ("namespace shop", {"pod": make_pod(), "namespace_annotations": {"shop": annotation}}),
    ):
        found = verdict(nodes=nodes, **more)
        assert isinstance(found, SkippedPod)
        assert found.reason is ReasonCode.UNREADABLE_ANNOTATION
        assert found.detail == f"{place}: cruise.io/{said}"


def test_a_bound_as_large_as_the_largest_node_is_valid():
    node = make_node(cpu=7900, memory_mib=31 << 10, cpu_capacity_millicores=8000, memory_capacity_bytes=32 << 30)
    assert resizable(make_pod(annotations={"cruise.io/cpu-max": "8", "cruise.io/memory-max": "32Gi"}), nodes=[node])


def test_with_node_autoscaling_a_bound_may_be_as_large_as_the_largest_machine():
    autoscaled = {"node_autoscaler": NodeAutoscalerKind.KARPENTER}
    assert resizable(make_pod(annotations={"cruise.io/cpu-min": "96"}), **autoscaled)
    found = verdict(make_pod(annotations={"cruise.io/cpu-min": "500"}), **autoscaled)
    assert isinstance(found, SkippedPod)
    assert found.detail == 'pod: cruise.io/cpu-min: "500" is more than any node has (at most 448); did you mean 500m?'


def test_an_init_container_cannot_be_sized():
    init = make_container("migrate", role=ContainerRole.INIT)
    for annotation in ("memory-min.migrate", "cpu-max.migrate"):
        text = "100m" if annotation.startswith("cpu") else "1Gi"
        pod = make_pod(containers=[init, make_container()], annotations={f"cruise.io/{annotation}": text})
        found = verdict(pod)
        assert isinstance(found, SkippedPod)
        assert found.reason is ReasonCode.UNREADABLE_ANNOTATION
        assert (
            found.detail == f"pod: cruise.io/{annotation}: init containers are not sized; change it in the pod template"
        )
    sidecar = make_container("proxy", role=ContainerRole.SIDECAR)
    named = make_pod(containers=[sidecar, make_container()], annotations={"cruise.io/memory-min.proxy": "64Mi"})
    assert resizable(named, make_statistic("web-1"), make_statistic("web-1", container="proxy"))


def test_a_minimum_above_another_sources_maximum_is_unreadable():
    for pod, namespace in (
        ({"cruise.io/memory-min": "2Gi"}, {"cruise.io/memory-max": "1Gi"}),
        ({"cruise.io/memory-min.app": "2Gi", "cruise.io/memory-max": "1Gi"}, {}),
        ({"cruise.io/cpu-max.app": "100m"}, {"cruise.io/cpu-min": "200m"}),
    ):
        found = verdict(make_pod(annotations=pod), namespace_annotations={"shop": namespace})
        assert isinstance(found, SkippedPod)
        assert found.reason is ReasonCode.UNREADABLE_ANNOTATION
        assert "the minimum is above the maximum" in found.detail


# ---- modes and overrides ----


@pytest.mark.parametrize(
    ("cluster", "namespace", "workload", "pod", "holds"),
    [
        (Mode.FULL, None, None, None, Mode.FULL),
        (Mode.FULL, "resize", None, "full", Mode.RESIZE),
        (Mode.FULL, None, "initial", "full", Mode.INITIAL),
        (Mode.RESIZE, "full", "full", "full", Mode.RESIZE),
        (Mode.FULL, None, None, "off", Mode.OFF),
        (Mode.OFF, "full", "full", "full", Mode.OFF),
    ],
)
def test_every_stated_mode_caps(cluster, namespace, workload, pod, holds):
    def stated(mode: str | None) -> dict[str, str]:
        return {} if mode is None else {"cruise.io/mode": mode}

    one = make_pod(annotations=stated(pod))
    snapshot = make_snapshot(
        [one],
        workloads=[make_workload(annotations=stated(workload))],
        namespace_annotations={"shop": stated(namespace)},
    )
    effective_policy = eligibility_of(snapshot, policy=Policy(mode=cluster)).get_effective_policy(one)
    assert isinstance(effective_policy, EffectivePolicy)
    assert effective_policy.mode is holds


def test_the_nearest_override_takes_precedence_and_a_pause_applies_whatever_they_say():
    pod = make_pod(annotations={"cruise.io/headroom-factor": "1.5", "cruise.io/mode": "full"})
    paused = {("shop", make_ref("Deployment/web")): NOW}
    snapshot = make_snapshot(
        [pod],
        workloads=[make_workload(annotations={"cruise.io/headroom-factor": "2", "cruise.io/resources": "cpu"})],
        namespace_annotations={"shop": {"cruise.io/resources": "memory", "cruise.io/cpu-min": "50m"}},
    )
    effective_policy = eligibility_of(snapshot, paused=paused).get_effective_policy(pod)
    assert isinstance(effective_policy, EffectivePolicy)
    assert effective_policy.headroom_factor == 1.5
    assert effective_policy.resources == {CPU}
    assert effective_policy.bounds.minimum.cpu_millicores == 50
    assert effective_policy.mode is Mode.OBSERVE


def test_pods_of_a_workload_differ_only_by_their_own_annotations():
    plain, other = make_pod("a"), make_pod("b", annotations={"cruise.io/mode": "resize"})
    admitted = make_pod("c", annotations={"cruise.io/original-resources": '{"app":{}}'})
    eligibility = eligibility_of(make_snapshot([plain, other, admitted]))
    of_plain, of_other = eligibility.get_effective_policy(plain), eligibility.get_effective_policy(other)
    assert isinstance(of_plain, EffectivePolicy)
    assert isinstance(of_other, EffectivePolicy)
    assert (of_plain.mode, of_other.mode) == (Mode.FULL, Mode.RESIZE)
    # Records of admission are no overrides: such pods share the result of their workload.
    assert eligibility.get_effective_policy(admitted) is of_plain
    assert not isinstance(
        eligibility.get_effective_policy(make_pod("d", annotations={"cruise.io/mode": "x"})), EffectivePolicy
    )


# ---- resources ----


@pytest.mark.parametrize(
    ("resources", "scaled", "managed"),
    [
        (None, set(), {CPU, MEMORY}),
        ("cpu", set(), {CPU}),
        ("memory", set(), {MEMORY}),
        (None, {CPU}, {MEMORY}),
        (None, {MEMORY}, {CPU}),
        ("cpu", {CPU}, set()),
        (None, {CPU, MEMORY}, set()),
    ],
)
def test_resources_of_an_override_or_autoscaler_are_not_managed(resources, scaled, managed):
    pod = make_pod(annotations={} if resources is None else {"cruise.io/resources": resources})
    autoscalers = [make_autoscaler("Deployment/web", "shop", *scaled)] if scaled else []
    found = verdict(pod, autoscalers=autoscalers)
    if managed:
        assert isinstance(found, ResizablePod)
        assert {
            r for r, is_managed in ((CPU, found.manages_cpu), (MEMORY, found.manages_memory)) if is_managed
        } == managed
    else:
        assert isinstance(found, SkippedPod)
        assert found.reason is ReasonCode.MANAGED_BY_HPA


def test_an_autoscaler_affects_no_other_pods():
    elsewhere = [make_autoscaler("Deployment/api"), make_autoscaler("Deployment/web", "other")]
    found = resizable(make_pod(), autoscalers=elsewhere)
    assert found.manages_cpu and found.manages_memory
    both = [make_autoscaler("Deployment/web", "shop", CPU), make_autoscaler("Deployment/web", "shop", MEMORY, name="2")]
    assert reason(make_pod(), autoscalers=both) is ReasonCode.MANAGED_BY_HPA


@pytest.mark.parametrize(
    ("cpu_restarts", "memory_restarts", "managed"),
    [(True, False, {MEMORY}), (False, True, {CPU}), (True, True, set())],
)
def test_a_resource_whose_resize_restarts_a_container_is_not_managed(cpu_restarts, memory_restarts, managed):
    eager = make_container("b", cpu_resize_restarts=cpu_restarts, memory_resize_restarts=memory_restarts)
    pod = make_pod(containers=[make_container(), eager])
    found = verdict(pod, make_statistic_for(pod), make_statistic_for(pod, "b"))
    if managed:
        assert isinstance(found, ResizablePod)
        assert {
            r for r, is_managed in ((CPU, found.manages_cpu), (MEMORY, found.manages_memory)) if is_managed
        } == managed
    else:
        assert isinstance(found, SkippedPod)
        assert found.reason is ReasonCode.RESIZE_RESTARTS


# ---- statistics ----


@pytest.mark.parametrize(
    ("age_minutes", "held"),
    [(0, False), (15, False), (16, True), (24 * 60, True), (-2, False), (-15, False), (-16, True)],
)
def test_statistics_older_than_max_age_change_nothing(age_minutes, held):
    pod = make_pod()
    found = verdict(pod, make_statistic_for(pod, updated_at=NOW_SECONDS - 60 * age_minutes))
    assert isinstance(found, SkippedPod) is held
    if isinstance(found, SkippedPod):
        assert found.reason is ReasonCode.STALE_STATISTICS


@pytest.mark.parametrize(("history_minutes", "held"), [(29, True), (30, False), (31, False)])
def test_a_workload_with_under_half_an_hour_of_history_is_new(history_minutes, held):
    pod = make_pod()
    found = verdict(pod, make_statistic_for(pod, history_since=NOW_SECONDS - 60 * history_minutes))
    assert isinstance(found, SkippedPod) is held
    if isinstance(found, SkippedPod):
        assert found.reason is ReasonCode.NEW_WORKLOAD


def test_a_workload_that_was_just_created_is_new_whatever_its_statistics_say():
    young = [make_workload(created_at=NOW - timedelta(minutes=29))]
    old = [make_workload(created_at=NOW - timedelta(minutes=31))]
    pod = make_pod()
    unknown = make_statistic_for(pod, history_since=0)
    assert reason(pod, unknown, workloads=young) is ReasonCode.NEW_WORKLOAD
    assert resizable(pod, unknown, workloads=old).rows == (0,)
    # A new pod of an old workload is not new.
    assert resizable(make_pod(created_at=NOW), unknown, workloads=old).rows == (0,)


def test_one_container_without_statistics_skips_the_pod_and_is_named():
    pod = make_pod(containers=[make_container(), make_container("proxy"), make_container("logs")])
    found = verdict(pod, make_statistic_for(pod))
    assert isinstance(found, SkippedPod)
    assert (found.reason, found.detail) == (ReasonCode.NO_STATISTICS, "proxy, logs")
    assert reason(make_pod(), make_statistic("somebody-else")) is ReasonCode.NO_STATISTICS


def test_missing_takes_precedence_over_stale_over_new():
    pod = make_pod(containers=[make_container(), make_container("b"), make_container("c")])
    stale = make_statistic_for(pod, updated_at=NOW_SECONDS - 3600)
    new = make_statistic_for(pod, "b", history_since=NOW_SECONDS - 60)
    fine = make_statistic_for(pod, "c")
    assert reason(pod, stale, new, fine) is ReasonCode.STALE_STATISTICS
    assert reason(pod, stale, new) is ReasonCode.NO_STATISTICS
    assert reason(pod, fine, new, replace(stale, updated_at=NOW_SECONDS)) is ReasonCode.NEW_WORKLOAD


def test_a_pod_without_own_statistics_uses_its_workloads():
    pod = make_pod("web-9")
    of_workload, of_other = make_statistic("", cpu_base=7), make_statistic("web-1", cpu_base=9)
    assert resizable(pod, of_other, of_workload).rows == (1,)
    on_node = make_pod("agent-1", workload="DaemonSet/agent", identity="n1")
    rows = [make_statistic("", workload="DaemonSet/agent", identity=identity) for identity in ("n2", "", "n1")]
    assert resizable(on_node, *rows).rows == (2,)
    assert resizable(replace(on_node, identity="n3"), *rows).rows == (1,)


# ---- rankings and protection ----


@pytest.mark.parametrize(
    ("workload", "replicas", "asked", "ranking"),
    [
        ("Deployment/web", 3, None, EvictionRanking.LOW),
        ("Deployment/web", 1, None, EvictionRanking.MEDIUM),
        ("StatefulSet/db", 5, None, EvictionRanking.MEDIUM),
        ("StatefulSet/db", 5, "low", EvictionRanking.LOW),
        ("Deployment/web", 3, "no-eviction", EvictionRanking.NEVER),
    ],
)
def test_the_ranking(workload, replicas, asked, ranking):
    pod = make_pod(workload=workload, annotations={} if asked is None else {"cruise.io/eviction-ranking": asked})
    found = eligibility_of(make_snapshot([pod], workloads=[make_workload(workload, replicas=replicas)]))
    effective_policy = found.get_effective_policy(pod)
    assert isinstance(effective_policy, EffectivePolicy)
    assert found.evictability.get_ranking(pod, effective_policy) is ranking


def test_replicas_are_counted_where_the_workload_is_not_in_the_snapshot():
    pods = [make_pod("a"), make_pod("b"), make_pod("c", phase="Failed"), make_pod("d", workload="Deployment/single")]
    eligibility = eligibility_of(make_snapshot(pods, workloads=[]))
    rankings = [eligibility.evictability.get_ranking(pod, EffectivePolicy(Mode.FULL)) for pod in pods]
    assert rankings == [EvictionRanking.LOW] * 3 + [EvictionRanking.MEDIUM]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"workload": None, "owner_kind": None}, "no-controller"),
        ({"workload": "DaemonSet/agent"}, "daemon-set"),
        ({"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}}, "safe-to-evict"),
        ({"annotations": {"karpenter.sh/do-not-disrupt": "10m"}}, "do-not-disrupt: 10m"),
        ({"annotations": {"karpenter.sh/do-not-evict": "true"}}, "do-not-evict"),
        ({"annotations": {"cruisekube.truefoundry.com/do-not-disrupt": "true"}}, "do-not-disrupt"),
    ],
)
def test_pods_that_are_not_evictable(fields, told):
    pod = make_pod(**fields)
    why = eligibility_of(make_snapshot([pod])).evictability.explain_protection(pod)
    assert why is not None
    assert told in why


def test_a_pod_with_several_disruption_budgets_is_not_evictable():
    by_app = LabelSelector((LabelRequirement("app", SelectorOperator.IN, ("web",)),))
    pods = [make_pod("a", labels={"app": "web"}), make_pod("b", labels={"app": "api"}), make_pod("c", namespace="x")]
    budgets = [make_budget("all"), make_budget("web", selector=by_app), make_budget("x", "x")]
    eligibility = eligibility_of(make_snapshot(pods, budgets=budgets))
    assert eligibility.evictability.explain_protection(pods[0]) == ReasonDetailCode.SEVERAL_BUDGETS.create("all, web")
    assert eligibility.evictability.explain_protection(pods[1]) is None
    assert eligibility.evictability.explain_protection(pods[2]) is None
    assert (
        eligibility.evictability.explain_protection(make_pod(annotations={"karpenter.sh/do-not-disrupt": "false"}))
        is None
    )


# ---- at admission ----


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (Mode.OFF, ReasonCode.MODE_OFF),
        (Mode.OBSERVE, ReasonCode.MODE_OBSERVE),
        (Mode.INITIAL, None),
        (Mode.RESIZE, None),
        (Mode.FULL, None),
    ],
)
def test_the_webhook_works_from_mode_initial_on(mode, expected):
    pod = make_pod(node=None)
    assert eligibility_of(make_snapshot([pod]), policy=Policy(mode=mode)).explain_skip_at_admission(pod) is expected


def test_an_unreadable_annotation_counts_at_admission_too():
    pod = make_pod(node=None, annotations={"cruise.io/mode": "yes"})
    eligibility = eligibility_of(make_snapshot([pod]))
    assert eligibility.explain_skip_at_admission(pod) is ReasonCode.UNREADABLE_ANNOTATION
    assert isinstance(eligibility.get_effective_policy(pod), UnreadableAnnotations)


@pytest.mark.parametrize(("percent", "expected"), [(10, None), (11, ReasonCode.IMPLAUSIBLE_USAGE)])
def test_a_pod_is_skipped_if_over_a_tenth_of_a_window_is_implausible(percent, expected):
    pod = make_pod(containers=[make_container("app"), make_container("proxy")])
    rows = [make_statistic_for(pod), make_statistic_for(pod, "proxy", rejected_percent=percent, updated_at=0)]
    fresh = [rows[0], replace(rows[1], updated_at=NOW_SECONDS)]
    found = verdict(pod, *fresh)
    assert ((found.reason, found.detail) if isinstance(found, SkippedPod) else None) == (
        expected and (expected, "proxy")
    )
    # Implausible takes precedence over stale; the first rule set has no such reason.
    assert reason(pod, *rows) is (expected or ReasonCode.STALE_STATISTICS)
    assert isinstance(verdict(pod, *fresh, policy=replace(FULL, rules=SEED_RULES)), ResizablePod)


# ---- revisions ----

YOUNG = NOW - timedelta(minutes=10)
LARGER = [make_container(cpu=2000, memory_mib=6144)]


def decided(*pods: Pod, rows=None, policy=FULL, revisions=None) -> list[ReasonCode | None]:
    table = make_table(*(rows or [make_statistic_for(pods[0]), make_statistic("")]))
    found = Eligibility(make_snapshot(pods), replace(table, revisions=revisions), {}, policy, NOW)
    verdicts = [found.check(pod) for pod in pods]
    return [one.reason if isinstance(one, SkippedPod) else None for one in verdicts]


def test_a_pod_whose_template_states_other_resources_waits_for_its_own_samples():
    old, new = make_pod("web-1"), make_pod("web-2", containers=LARGER, created_at=YOUNG)
    assert decided(old, new) == [None, ReasonCode.NEW_TEMPLATE_REVISION]
    assert decided(old, new, policy=replace(FULL, new_workload_age=timedelta(0))) == [
        None,
        ReasonCode.NEW_TEMPLATE_REVISION,
    ]
    assert decided(old, new, policy=replace(FULL, rules=SEED_RULES)) == [None, None]
    # A pod that states the same as others need not wait, nor one with samples.
    assert decided(old, make_pod("web-2", created_at=YOUNG)) == [None, None]
    assert decided(old, new, rows=[make_statistic_for(old), make_statistic_for(new)]) == [None, None]


def test_a_revision_that_has_run_for_long_enough_is_not_new():
    old, new = make_pod("web-1"), make_pod("web-2", containers=LARGER, created_at=YOUNG)
    key = WorkloadContainer("shop", "Deployment/web", "app")

    def since(minutes: int) -> WorkloadRevisions:
        began = NOW_SECONDS - 60 * minutes
        runs = {
            get_resources_at_creation(old)[0]: RevisionPeriod(0, seen),
            get_resources_at_creation(new)[0]: RevisionPeriod(began, NOW_SECONDS),
        }
        return WorkloadRevisions({key: runs})

    own = [make_statistic_for(old), make_statistic_for(new)]
    seen = NOW_SECONDS
    assert decided(old, new, rows=own, revisions=since(23)) == [None, ReasonCode.NEW_TEMPLATE_REVISION]
    assert decided(old, new, rows=own, revisions=since(24)) == [None, None]
    # If both revisions run, the workload's statistics describe both: the pod waits for its own.
    assert decided(old, new, revisions=since(24)) == [None, ReasonCode.NEW_TEMPLATE_REVISION]
    seen = NOW_SECONDS - 4 * 3600
    assert decided(old, new, revisions=since(24)) == [None, None]


def test_the_replacement_of_a_single_replica_waits_also_where_its_name_has_statistics():
    new = make_pod("db-0", containers=LARGER, workload="StatefulSet/db", identity="0", created_at=YOUNG)
    key = WorkloadContainer("shop", "StatefulSet/db", "app")
    revisions = WorkloadRevisions({key: {get_resources_at_creation(make_pod())[0]: RevisionPeriod(0, NOW_SECONDS)}})
    assert decided(new, revisions=revisions) == [ReasonCode.NEW_TEMPLATE_REVISION]
    # A resized pod counts with its original resources.
    same = WorkloadRevisions(
        revisions.runs, {new.uid: PodRevision(get_resources_at_creation(make_pod()), was_running=True)}
    )
    assert decided(new, revisions=same) == [None]


def test_a_kill_suffices_for_a_new_revision():
    old, new = make_pod("web-1"), make_pod("web-2", containers=LARGER, created_at=YOUNG)
    found = eligibility_of(make_snapshot([old, new]), make_statistic_for(old), make_statistic(""))
    assert isinstance(found.check(new), SkippedPod)
    assert isinstance(found.check(new, killed=True), ResizablePod)


def test_annotations_of_a_job_count_if_its_pods_are_grouped_by_name():
    pod = make_pod("import-1", workload="Workload/import", owner_kind="Job", owner_name="import-x7k2q")
    job = make_workload("Job/import-x7k2q", annotations={"cruise.io/mode": "off"})
    row = make_statistic_for(pod)
    assert reason(pod, row, workloads=[job]) is ReasonCode.MODE_OFF
    assert isinstance(verdict(pod, row, workloads=[make_workload("Job/other")]), ResizablePod)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_annotations_of_a_job_count_for_its_own_pods_only(order):
    bare = make_pod("import-0", workload="Workload/import")
    one = replace(bare, name="import-1", owner_kind="Job", owner_name="import-a")
    other = replace(bare, name="import-2", owner_kind="Job", owner_name="import-b")
    job = make_workload("Job/import-a", annotations={"cruise.io/mode": "off"})
    pods = (bare, one, other)
    found = eligibility_of(make_snapshot(pods, workloads=[job]), *map(make_statistic_for, pods))
    left = {pods[at].name for at in order if isinstance(found.check(pods[at]), SkippedPod)}
    assert left == {"import-1"}


def test_a_name_that_cannot_be_a_label_is_unreadable():
    pod = make_pod(annotations={"cruise.io/workload": "a name"})
    found = verdict(pod, make_statistic_for(pod))
    assert isinstance(found, SkippedPod)
    assert (found.reason, "write at most 63" in found.detail) == (ReasonCode.UNREADABLE_ANNOTATION, True)
    assert isinstance(
        verdict(make_pod(annotations={"cruise.io/workload": "a-name"}), make_statistic_for(pod)), ResizablePod
    )

"""Workloads, disruption budgets, autoscalers and limit ranges from wire JSON."""

from typing import Any

import msgspec
import pytest

from cruise.domain.autoscalers import LimitRangeItem, UtilizationMetric, UtilizationScaling
from cruise.domain.cluster import WorkloadRef
from cruise.domain.resources import MEBIBYTE, NOTHING_STATED, ResourceName, StatedResources
from cruise.domain.scheduling import LabelRequirement, LabelSelector, SelectorOperator
from cruise.errors import BadInputError
from cruise.kube_json.objects.workloads import (
    decode_autoscaler,
    decode_budget,
    decode_limit_range,
    decode_vertical_autoscaler,
    decode_workload,
    read_controller,
)
from cruise.kube_json.wire import object_json
from tests.builders import (
    LONG_AGO,
    Json,
    make_amounts,
    make_autoscaler_json,
    make_budget_json,
    make_deployment_json,
    make_limit_range_json,
    make_metadata,
    make_replica_set_json,
    make_workload_json,
)

CPU, MEMORY = ResourceName.CPU, ResourceName.MEMORY
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}


def workload_object(document: Json) -> object_json.WorkloadObject:
    found = msgspec.convert(document, object_json.AnyObject)
    assert isinstance(found, object_json.WorkloadObject)
    return found


@pytest.mark.parametrize(
    ("document", "replicas"),
    [
        (make_deployment_json(replicas=0), 0),
        (make_workload_json("Deployment"), 1),
        (make_workload_json("StatefulSet", replicas=3), 3),
        (make_workload_json("ReplicaSet", replicas=2), 2),
        (make_workload_json("DaemonSet"), None),
        (make_workload_json("Job"), 1),
        (make_workload_json("Job", parallelism=4), 4),
        (make_workload_json("CronJob", jobTemplate={"spec": {"parallelism": 2}}), 2),
        (make_workload_json("CronJob", jobTemplate={}), 1),
    ],
)
def test_replicas_by_kind(document, replicas):
    workload = decode_workload(workload_object(document))
    assert (workload.ref, workload.replicas) == (WorkloadRef(document["kind"], "web"), replicas)


def test_a_workload_has_its_age_and_the_annotations_that_decisions_read():
    document = make_deployment_json(annotations={"cruise.io/mode": "resize", "deployment.kubernetes.io/revision": "3"})
    workload = decode_workload(workload_object(document))
    assert (workload.namespace, workload.created_at) == ("shop", LONG_AGO)
    assert workload.annotations == {"cruise.io/mode": "resize"}


TEMPLATE = {
    "spec": {
        "initContainers": [{"name": "init", "resources": {"limits": {"cpu": "1"}}}],
        "containers": [
            {"name": "app", "resources": {"requests": {"memory": "64Mi"}, "limits": {"cpu": "2", "memory": "1Gi"}}},
            {"name": "bare"},
        ],
    }
}


@pytest.mark.parametrize(
    "document",
    [
        make_deployment_json(template=TEMPLATE),
        make_workload_json("CronJob", jobTemplate={"spec": {"template": TEMPLATE}}),
    ],
)
def test_a_workload_has_the_requests_of_its_template(document):
    # A limit without a request becomes one.
    assert decode_workload(workload_object(document)).requests == {
        "init": StatedResources(1000, None),
        "app": StatedResources(2000, 64 << 20),
        "bare": NOTHING_STATED,
    }
    assert decode_workload(workload_object(document)).init_containers == {"init"}


def test_without_a_template_its_requests_are_not_known():
    assert decode_workload(workload_object(make_deployment_json())).requests is None
    broken = {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "much"}}}]}}
    with pytest.raises(BadInputError, match=r"Deployment shop/web.*container app"):
        decode_workload(workload_object(make_deployment_json(template=broken)))


def test_the_controllers_of_replica_sets_and_jobs():
    owned = read_controller(workload_object(make_replica_set_json("web-1", owner="Deployment/web")))
    assert owned == (("shop", "ReplicaSet", "web-1"), WorkloadRef("Deployment", "web"))
    alone = read_controller(workload_object(make_workload_json("Job", "once")))
    assert alone == (("shop", "Job", "once"), None)
    assert read_controller(workload_object(make_deployment_json(owner="Tenant/t"))) is None


def test_a_budget_selects_by_labels_and_expressions():
    selector = {
        "matchLabels": {"tier": "web", "app": "x"},
        "matchExpressions": [
            {"key": "zone", "operator": "NotIn", "values": ["a"]},
            {"key": "canary", "operator": "DoesNotExist"},
        ],
    }
    budget = decode_budget(
        msgspec.convert(make_budget_json(selector=selector, disruptions_allowed=2), object_json.DisruptionBudgetObject)
    )
    assert budget is not None
    assert budget.disruptions_allowed == 2
    assert budget.selector.requirements == (
        LabelRequirement("app", SelectorOperator.IN, ("x",)),
        LabelRequirement("tier", SelectorOperator.IN, ("web",)),
        LabelRequirement("zone", SelectorOperator.NOT_IN, ("a",)),
        LabelRequirement("canary", SelectorOperator.DOES_NOT_EXIST),
    )
    assert budget.selector.matches({"app": "x", "tier": "web", "zone": "b"})
    assert not budget.selector.matches({"app": "x", "tier": "web", "zone": "a"})


def test_an_empty_selector_selects_everything_and_none_selects_nothing():
    everything = decode_budget(msgspec.convert(make_budget_json(selector={}), object_json.DisruptionBudgetObject))
    assert everything is not None
    assert everything.selector == LabelSelector()
    assert decode_budget(msgspec.convert(make_budget_json(selector=None), object_json.DisruptionBudgetObject)) is None


def test_a_budget_without_status_allows_no_disruption():
    document = make_budget_json(selector={})
    del document["status"]
    budget = decode_budget(msgspec.convert(document, object_json.DisruptionBudgetObject))
    assert budget is not None
    assert budget.disruptions_allowed == 0


def test_a_selector_has_no_node_operators():
    selector = {"matchExpressions": [{"key": "n", "operator": "Gt", "values": ["1"]}]}
    with pytest.raises(BadInputError) as refused:
        decode_budget(msgspec.convert(make_budget_json(selector=selector), object_json.DisruptionBudgetObject))
    assert str(refused.value) == (
        'PodDisruptionBudget shop/web: spec.selector: "Gt" is not an operator; '
        "write one of DoesNotExist, Exists, In, NotIn"
    )


def resource_metric(name: str, kind: str = "Utilization") -> Json:
    return {"type": "Resource", "resource": {"name": name, "target": {"type": kind, "averageUtilization": 80}}}


def container_metric(name: str) -> Json:
    target = {"type": "Utilization", "averageUtilization": 80}
    return {"type": "ContainerResource", "containerResource": {"name": name, "container": "app", "target": target}}


@pytest.mark.parametrize(
    ("metrics", "targeted"),
    [
        (None, {CPU}),
        ([], {CPU}),
        ([resource_metric("memory")], {MEMORY}),
        ([resource_metric("cpu"), container_metric("memory")], {CPU, MEMORY}),
        ([resource_metric("cpu", "AverageValue")], set()),
        ([{"type": "External", "external": {"metric": {"name": "queue"}}}], set()),
        ([{"type": "Pods", "pods": {"metric": {"name": "x"}, "target": {"type": "AverageValue"}}}], set()),
    ],
)
def test_what_an_autoscaler_targets(metrics, targeted):
    autoscaler = decode_autoscaler(
        msgspec.convert(make_autoscaler_json(metrics=metrics), object_json.HorizontalAutoscalerObject)
    )
    assert autoscaler.target == WorkloadRef("Deployment", "web")
    assert autoscaler.utilisation_resources == targeted


def test_an_autoscaler_without_metrics_targets_cpu():
    document = msgspec.convert(make_autoscaler_json(), object_json.HorizontalAutoscalerObject)
    assert decode_autoscaler(document).utilisation_resources == {CPU}


def test_limit_ranges_for_containers_and_pods():
    items = decode_limit_range(
        msgspec.convert(
            make_limit_range_json(
                {
                    "type": "Container",
                    "min": {"cpu": "10m"},
                    "max": {"cpu": "4", "memory": "8Gi"},
                    "default": {"cpu": 1},
                },
                {"type": "Pod", "max": {"memory": "16Gi"}, "maxLimitRequestRatio": {"cpu": "1.5", "memory": 2}},
                {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}},
            ),
            object_json.LimitRangeObject,
        )
    )
    assert items == (
        LimitRangeItem(
            is_for_pod=False,
            minimum=StatedResources(10, None),
            maximum=make_amounts(4000, 8192),
            default_limits=StatedResources(1000, None),
        ),
        LimitRangeItem(is_for_pod=True, maximum=make_amounts(None, 16384), max_cpu_ratio=1.5, max_memory_ratio=2.0),
    )


def test_a_limit_range_is_rejected_by_place():
    document = make_limit_range_json({"type": "Pod"}, {"type": "Container", "min": {"memory": "1.5Gx"}})
    with pytest.raises(BadInputError) as refused:
        decode_limit_range(msgspec.convert(document, object_json.LimitRangeObject))
    assert str(refused.value) == (
        'LimitRange shop/limits: spec.limits[1].min.memory: "1.5Gx" is not a quantity; write e.g. 500m, 2 or 1.5Gi'
    )


@pytest.mark.parametrize("ratio", ["0", "0.5", "999m"])
def test_a_limit_range_with_a_ratio_below_1_is_rejected(ratio):
    document = make_limit_range_json({"type": "Container", "maxLimitRequestRatio": {"memory": ratio}})
    with pytest.raises(BadInputError) as refused:
        decode_limit_range(msgspec.convert(document, object_json.LimitRangeObject))
    assert str(refused.value) == (
        f'LimitRange shop/limits: spec.limits[0].maxLimitRequestRatio.memory: "{ratio}" is below 1; '
        "write a ratio of 1 or more"
    )


@pytest.mark.parametrize(
    ("spec", "mode", "changes_pods", "is_own"),
    [
        ({"targetRef": TARGET}, "", True, False),
        ({"targetRef": TARGET, "updatePolicy": {}}, "", True, False),
        ({"targetRef": TARGET, "updatePolicy": {"updateMode": "Off"}}, "Off", False, False),
        ({"targetRef": TARGET, "updatePolicy": {"updateMode": "Initial"}}, "Initial", True, False),
        ({"targetRef": TARGET, "recommenders": [{"name": "default"}]}, "", True, False),
        ({"targetRef": TARGET, "recommenders": [{"name": "cruise"}]}, "", False, True),
    ],
)
def test_what_a_vertical_autoscaler_does(spec, mode, changes_pods, is_own):
    document = {"kind": "VerticalPodAutoscaler", "metadata": {"namespace": "shop", "name": "web"}, "spec": spec}
    found = decode_vertical_autoscaler(msgspec.convert(document, object_json.VerticalAutoscalerObject))
    assert (found.namespace, found.name, found.target) == ("shop", "web", WorkloadRef("Deployment", "web"))
    assert (found.mode, found.changes_pods, found.is_own, found.target_api) == (mode, changes_pods, is_own, "apps/v1")


def test_a_vertical_autoscaler_without_a_target_changes_no_pods():
    document = {"kind": "VerticalPodAutoscaler", "metadata": {"name": "web"}}
    found = decode_vertical_autoscaler(msgspec.convert(document, object_json.VerticalAutoscalerObject))
    assert (found.namespace, found.target, found.changes_pods) == ("default", None, False)


def test_a_workload_names_what_controls_it():
    document = {"kind": "Deployment", "metadata": make_metadata("web-connect", owner="KafkaConnect/web")}
    found = decode_workload(msgspec.convert(document, object_json.DeploymentObject))
    assert found.controller == WorkloadRef("KafkaConnect", "web")


@pytest.mark.parametrize(("strategy", "revision"), [("OnDelete", "db-2"), ("RollingUpdate", ""), (None, "")])
def test_a_stateful_set_states_whether_an_eviction_updates_a_pod(strategy, revision):
    document = {
        "kind": "StatefulSet",
        "metadata": make_metadata("db"),
        "spec": {"updateStrategy": {"type": strategy}} if strategy else {},
        "status": {"currentRevision": "db-1", "updateRevision": "db-2"},
    }
    found = decode_workload(msgspec.convert(document, object_json.StatefulSetObject))
    assert found.revision_on_delete == revision


@pytest.mark.parametrize(("expected", "desired", "never"), [(3, 3, True), (3, 2, False), (0, 0, False), (2, 5, True)])
def test_a_budget_that_requires_all_its_pods_never_allows_an_eviction(expected, desired, never):
    document = make_budget_json(selector={"matchLabels": {"app": "web"}}, disruptions_allowed=0)
    document["status"] |= {"expectedPods": expected, "desiredHealthy": desired}
    found = decode_budget(msgspec.convert(document, object_json.DisruptionBudgetObject))
    assert found is not None
    assert found.blocks_all_evictions is never


CPU, MEMORY = ResourceName


def resource(name: str, target: int | None, container: str = "") -> Json:
    kind = "containerResource" if container else "resource"
    named = {"name": name, "container": container} if container else {"name": name}
    stated = {"type": "Utilization"} | ({} if target is None else {"averageUtilization": target})
    return {"type": "ContainerResource" if container else "Resource", kind: named | {"target": stated}}


def current(name: str, percent: int, value: str = "100m", container: str = "") -> Json:
    kind = "containerResource" if container else "resource"
    named = {"name": name, "container": container} if container else {"name": name}
    reported = {"averageUtilization": percent, "averageValue": value}
    return {"type": "ContainerResource" if container else "Resource", kind: named | {"current": reported}}


ACTIVE = [{"type": name, "status": "True"} for name in ("AbleToScale", "ScalingActive")]


def scaling_of(*metrics: Json, spec: Json | None = None, **status: Any) -> UtilizationScaling | None:
    document = make_autoscaler_json(metrics=metrics)
    document["spec"] |= {"minReplicas": 2} | (spec or {})
    document["status"] = {"currentReplicas": 2, "desiredReplicas": 2, "conditions": ACTIVE} | status
    return decode_autoscaler(msgspec.convert(document, object_json.HorizontalAutoscalerObject)).scaling


def test_metrics_replicas_and_tolerance_are_read():
    behavior = {"scaleDown": {"tolerance": "0.05", "stabilizationWindowSeconds": 60}, "scaleUp": {"tolerance": "0"}}
    metrics = [resource("cpu", 50), resource("memory", 80, "app"), {"type": "External", "external": {}}]
    found = scaling_of(
        *metrics,
        spec={"behavior": behavior},
        currentMetrics=[current("cpu", 30), current("memory", 85, "1Mi", "app"), {"type": ""}],
    )
    assert found == UtilizationScaling(
        (UtilizationMetric(CPU, "", 50, 50), UtilizationMetric(MEMORY, "app", 80, 81, 1216 * 1024)),
        2,
        10,
        2,
        2,
        True,
        0.05,
        60,
    )


def test_how_far_a_metric_is_above_its_target_is_read_at_the_maximum_only():
    for replicas, expected in ((2, 51), (3, 51), (10, 90)):
        found = scaling_of(resource("cpu", 50), currentReplicas=replicas, currentMetrics=[current("cpu", 90)])
        assert found is not None and found.metrics[0].reported_percent == expected


@pytest.mark.parametrize(
    ("value", "percent", "replicas", "expected"),
    [
        ("100m", 50, 3, 200),
        # Pods are added to the minimum only while it is above its target.
        ("100m", 50, 2, None),
        ("110m", 55, 2, 200),
        ("1", 33, 3, 3072),
        ("100m", 0, 3, None),
        ("7m", 3, 3, 232),
    ],
)
def test_the_average_request_follows_from_use_and_utilisation(value: str, percent: int, replicas: int, expected):
    found = scaling_of(resource("cpu", 50), currentReplicas=replicas, currentMetrics=[current("cpu", percent, value)])
    assert found is not None and found.metrics[0].average_request == expected


def test_the_average_request_of_memory_is_in_bytes():
    found = scaling_of(resource("memory", 50), currentReplicas=3, currentMetrics=[current("memory", 25, "128Mi")])
    assert found is not None and found.metrics[0].average_request == 512 * MEBIBYTE


def test_a_metric_without_a_value_is_not_reported():
    found = scaling_of(resource("cpu", 50), currentMetrics=[{"type": ""}])
    assert found is not None and found.metrics[0].reported_percent is None


@pytest.mark.parametrize("missing", ["AbleToScale", "ScalingActive"])
@pytest.mark.parametrize("status", ["False", "Unknown", None])
def test_an_hpa_is_active_only_if_its_controller_says_so(missing: str, status: str | None):
    conditions = [one for one in ACTIVE if one["type"] != missing]
    conditions += [] if status is None else [{"type": missing, "status": status}]
    found = scaling_of(resource("cpu", 50), conditions=conditions, currentMetrics=[current("cpu", 30)])
    assert found is not None and not found.is_active


def test_an_incomplete_specification_or_status_is_no_scaling():
    assert scaling_of(resource("cpu", None)) is None
    assert scaling_of(resource("cpu", 50), currentReplicas=None) is None
    assert scaling_of(resource("cpu", 50), desiredReplicas=None) is None
    assert scaling_of(resource("cpu", 50), spec={"maxReplicas": None}) is None
    document = make_autoscaler_json(metrics=[resource("cpu", 50)])
    assert decode_autoscaler(msgspec.convert(document, object_json.HorizontalAutoscalerObject)).scaling is None


def test_an_unreadable_tolerance_names_its_place():
    with pytest.raises(BadInputError, match=r"HorizontalPodAutoscaler shop/web: spec\.behavior\.scaleDown\.tolerance"):
        scaling_of(resource("cpu", 50), spec={"behavior": {"scaleDown": {"tolerance": "wide"}}})

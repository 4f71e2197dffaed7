"""Decode HorizontalPodAutoscalers with what their controller reports."""

from typing import Any

import msgspec
import pytest

from cruise.domain.resources import MEBIBYTE, ResourceName
from cruise.domain.utilisation_scaling import UtilisationMetric, UtilisationScaling
from cruise.errors import BadInputError
from cruise.kube_json.objects.horizontal_autoscalers import decode_autoscaler
from cruise.kube_json.wire import object_json
from tests.builders import Json, make_autoscaler_json

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


def scaling_of(*metrics: Json, spec: Json | None = None, **status: Any) -> UtilisationScaling | None:
    document = make_autoscaler_json(metrics=metrics)
    document["spec"] |= {"minReplicas": 2} | (spec or {})
    document["status"] = {"currentReplicas": 2, "desiredReplicas": 2, "conditions": ACTIVE} | status
    return decode_autoscaler(msgspec.convert(document, object_json.AutoscalerObject)).scaling


def test_metrics_replicas_and_tolerance_are_read():
    behavior = {"scaleDown": {"tolerance": "0.05", "stabilizationWindowSeconds": 60}, "scaleUp": {"tolerance": "0"}}
    metrics = [resource("cpu", 50), resource("memory", 80, "app"), {"type": "External", "external": {}}]
    found = scaling_of(
        *metrics,
        spec={"behavior": behavior},
        currentMetrics=[current("cpu", 30), current("memory", 85, "1Mi", "app"), {"type": ""}],
    )
    assert found == UtilisationScaling(
        (UtilisationMetric(CPU, "", 50, 50), UtilisationMetric(MEMORY, "app", 80, 81, 1216 * 1024)),
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
    assert decode_autoscaler(msgspec.convert(document, object_json.AutoscalerObject)).scaling is None


def test_an_unreadable_tolerance_names_its_place():
    with pytest.raises(BadInputError, match=r"HorizontalPodAutoscaler shop/web: spec\.behavior\.scaleDown\.tolerance"):
        scaling_of(resource("cpu", 50), spec={"behavior": {"scaleDown": {"tolerance": "wide"}}})

"""Decode HorizontalPodAutoscalers: their targets, their metrics on utilization, and what their controller reported."""

from collections.abc import Iterator, Mapping
from sys import intern

from cruise.domain.cluster import HorizontalPodAutoscaler, WorkloadRef
from cruise.domain.resources import ResourceName
from cruise.domain.utilisation_scaling import (
    DEFAULT_SCALE_DOWN_SECONDS,
    DEFAULT_TOLERANCE,
    UtilisationMetric,
    UtilisationScaling,
    report_utilization,
)
from cruise.kube_json.object_errors import name_object_in_errors
from cruise.kube_json.objects.quantities import read_cpu, read_memory
from cruise.kube_json.wire import object_json

_RESOURCES = frozenset(ResourceName)
_NO_RULES = object_json.ScalingRules()
# Conditions that the controller sets to False if it cannot compute or change the number of replicas.
_ACTIVE_CONDITIONS = frozenset({"AbleToScale", "ScalingActive"})


def decode_autoscaler(document: object_json.AutoscalerObject) -> HorizontalPodAutoscaler:
    """Return a HorizontalPodAutoscaler; without metrics Kubernetes targets CPU utilization.

    BadInputError names the place.
    """
    metadata, spec = document.metadata, document.spec
    targeted = list(_iterate_targeted(spec.metrics))
    with name_object_in_errors("HorizontalPodAutoscaler", metadata.namespace or "default", metadata.name):
        scaling = _read_scaling(spec, document.status, targeted) if targeted else None
    return HorizontalPodAutoscaler(
        namespace=metadata.namespace or "default",
        name=metadata.name,
        target=WorkloadRef(spec.scale_target_ref.kind, spec.scale_target_ref.name),
        utilisation_resources=frozenset(resource for resource, _ in targeted)
        if spec.metrics
        else frozenset({ResourceName.CPU}),
        target_api=intern(spec.scale_target_ref.api_version),
        scaling=scaling,
    )


def _iterate_targeted(
    metrics: tuple[object_json.Metric, ...] | None,
) -> Iterator[tuple[ResourceName, object_json.ResourceMetric]]:
    """Yield the metrics that target the utilization of CPU or memory."""
    for metric in metrics or ():
        one = metric.resource or metric.container_resource
        if one is None or one.name not in _RESOURCES:
            continue
        if one.target is not None and one.target.type == "Utilization":
            yield ResourceName(one.name), one


def _read_scaling(
    spec: object_json.AutoscalerSpec,
    status: object_json.AutoscalerStatus | None,
    targeted: list[tuple[ResourceName, object_json.ResourceMetric]],
) -> UtilisationScaling | None:
    """Return metrics and replicas, None if anything is missing that the controller always writes."""
    if status is None or spec.max_replicas is None:
        return None
    if status.current_replicas is None or status.desired_replicas is None:
        return None
    conditions = {one.type: one.status for one in status.conditions or ()}
    reported = _read_reported(status)
    metrics = []
    for resource, one in targeted:
        target = one.target.average_utilization if one.target is not None else None
        if target is None or target <= 0:
            return None
        current = reported.get((resource, one.container))
        metrics.append(_read_metric(UtilisationMetric(resource, one.container, target), spec, status, current))
    rules = (spec.behavior.scale_down if spec.behavior is not None else None) or _NO_RULES
    thousandths = read_cpu(rules.tolerance, "spec.behavior.scaleDown.tolerance")
    window = rules.stabilization_window_seconds
    return UtilisationScaling(
        metrics=tuple(metrics),
        min_replicas=1 if spec.min_replicas is None else spec.min_replicas,
        max_replicas=spec.max_replicas,
        current_replicas=status.current_replicas,
        desired_replicas=status.desired_replicas,
        is_active=all(conditions.get(one) == "True" for one in _ACTIVE_CONDITIONS),
        tolerance=DEFAULT_TOLERANCE if thousandths is None else thousandths / 1000,
        scale_down_seconds=DEFAULT_SCALE_DOWN_SECONDS if window is None else window,
    )


def _read_reported(
    status: object_json.AutoscalerStatus,
) -> Mapping[tuple[str, str], object_json.MetricTarget]:
    """Return what was measured, by resource and container; a failed metric has no entry."""
    found = {}
    for metric in status.current_metrics or ():
        one = metric.resource or metric.container_resource
        if one is not None and one.current is not None:
            found[one.name, one.container] = one.current
    return found


def _read_metric(
    metric: UtilisationMetric,
    spec: object_json.AutoscalerSpec,
    status: object_json.AutoscalerStatus,
    current: object_json.MetricTarget | None,
) -> UtilisationMetric:
    """Return the metric with what was measured."""
    percent = None if current is None else current.average_utilization
    if current is None or percent is None:
        return metric
    replicas = status.current_replicas
    is_at_minimum = replicas == (1 if spec.min_replicas is None else spec.min_replicas)
    average = None
    if percent > 0:
        read = read_cpu if metric.resource is ResourceName.CPU else read_memory
        value = read(current.average_value, "status.currentMetrics: averageValue")
        average = value * 100 // percent if value else None
    return report_utilization(
        metric, percent, average, is_at_minimum=is_at_minimum, is_at_maximum=replicas == spec.max_replicas
    )

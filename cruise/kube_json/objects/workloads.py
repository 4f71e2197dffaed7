"""Decode workloads, PodDisruptionBudgets, LimitRanges, and the autoscalers of pods: VPAs and HPAs."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from sys import intern

from cruise.domain.annotations import MANAGED_BY
from cruise.domain.autoscalers import (
    DEFAULT_SCALE_DOWN_SECONDS,
    DEFAULT_TOLERANCE,
    LimitRangeItem,
    UtilizationMetric,
    UtilizationScaling,
    VpaContainerPolicy,
    add_reported_utilization,
)
from cruise.domain.cluster import (
    POD_LEVEL,
    HorizontalPodAutoscaler,
    PodDisruptionBudget,
    VerticalPodAutoscaler,
    Workload,
    WorkloadRef,
)
from cruise.domain.resources import ResourceName, StatedResources
from cruise.domain.run_to_completion_operators import POD_CONTROLLER_KINDS
from cruise.errors import BadInputError
from cruise.kube_json.object_errors import name_object_in_errors
from cruise.kube_json.objects.node import detect_node_autoscaler_deployment
from cruise.kube_json.objects.owners import INTERMEDIATE_KINDS, OwnerKey, find_controller, keep_read_annotations
from cruise.kube_json.objects.quantities import read_amounts, read_cpu, read_memory, read_time
from cruise.kube_json.objects.scheduling import read_selector
from cruise.kube_json.wire import object_json, pod_json

_NO_SPEC = object_json.WorkloadSpec()
READ_CONTROLLERS = frozenset({"CronJob", "Deployment"})
"""Controllers of ReplicaSets and Jobs that are read, with their templates."""

_API_VERSIONS = {
    "Job": "batch/v1",
    "CronJob": "batch/v1",
    "Rollout": "argoproj.io/v1alpha1",
    "CloneSet": "apps.kruise.io/v1alpha1",
}
_NOTHING_STATED = pod_json.ResourceRequirements()
_RESOURCES = frozenset(ResourceName)
_OWN_RECOMMENDER = "cruise"


def get_kind(document: object_json.WorkloadObject) -> str:
    """Return the kind of a workload's struct."""
    return str(document.__struct_config__.tag)


def decode_workload(document: object_json.WorkloadObject) -> Workload:
    """Return a workload; a DaemonSet has no replicas, Jobs have their parallelism.

    BadInputError names workload and place.
    """
    metadata, spec, kind = document.metadata, document.spec or _NO_SPEC, get_kind(document)
    controller = find_controller(metadata.owner_references)
    replicas: int | None
    match kind:
        case "DaemonSet":
            replicas = None
        case "Job":
            replicas = 1 if spec.parallelism is None else spec.parallelism
        case "CronJob":
            template = spec.job_template.spec if spec.job_template else None
            replicas = 1 if template is None or template.parallelism is None else template.parallelism
        case _:
            replicas = 1 if spec.replicas is None else spec.replicas
    namespace = metadata.namespace or "default"
    with name_object_in_errors(kind, namespace, metadata.name):
        created_at = read_time(metadata.creation_timestamp, "metadata.creationTimestamp")
        pod_spec = _get_template(spec)
        amounts = None if pod_spec is None else _read_template_resources(pod_spec)
    return Workload(
        namespace=namespace,
        ref=WorkloadRef(kind, metadata.name),
        replicas=replicas,
        annotations=keep_read_annotations(metadata.annotations),
        created_at=created_at,
        node_autoscaler=detect_node_autoscaler_deployment(document) if kind == "Deployment" and replicas else None,
        controller=WorkloadRef(intern(controller.kind), intern(controller.name)) if controller else None,
        memory_limits=None if amounts is None else _select_limits(amounts, ResourceName.MEMORY),
        cpu_limits=None if amounts is None else _select_limits(amounts, ResourceName.CPU),
        # Without a request the API server uses the limit.
        requests=None
        if amounts is None
        else {name: stated.with_defaults(most) for name, (stated, most) in amounts.items()},
        init_containers=_get_names(pod_spec.init_containers) if pod_spec else frozenset(),
        uid="" if controller else metadata.uid or "",
        # Objects in lists of one kind need not state it.
        api_version=intern(document.api_version or _API_VERSIONS.get(kind, "apps/v1")),
        revision_on_delete=_read_revision_on_delete(document, spec),
    )


def _read_revision_on_delete(document: object_json.WorkloadObject, spec: object_json.WorkloadSpec) -> str:
    updates_on_delete = spec.update_strategy is not None and spec.update_strategy.type == "OnDelete"
    return (document.status.update_revision or "") if updates_on_delete and document.status else ""


def _get_template(spec: object_json.WorkloadSpec) -> object_json.TemplateSpec | None:
    """Return the spec of the pod template, or None."""
    holder = spec.job_template.spec if spec.job_template else spec
    pods = holder.template.spec if holder and holder.template else None
    return pods if pods is not None and pods.containers else None


def _read_template_resources(
    template: object_json.TemplateSpec,
) -> Mapping[str, tuple[StatedResources, StatedResources]]:
    """Return the requests and limits of the pod template's containers, by name, and its pod-level ones."""
    found = {}
    if template.resources is not None and (template.resources.requests or template.resources.limits):
        requests = read_amounts(template.resources.requests, "template: spec.resources.requests")
        found[POD_LEVEL] = requests, read_amounts(template.resources.limits, "template: spec.resources.limits")
    for one in (*(template.init_containers or ()), *(template.containers or ())):
        stated, place = one.resources or _NOTHING_STATED, f"template: container {one.name}"
        requests = read_amounts(stated.requests, f"{place}: requests")
        found[one.name] = requests, read_amounts(stated.limits, f"{place}: limits")
    return found


def _get_names(containers: tuple[object_json.TemplateContainer, ...] | None) -> frozenset[str]:
    return frozenset([one.name for one in containers]) if containers else frozenset()


def _select_limits(
    amounts: Mapping[str, tuple[StatedResources, StatedResources]], resource: ResourceName
) -> Mapping[str, int]:
    return {name: limit for name, (_, limits) in amounts.items() if (limit := limits.get(resource)) is not None}


def read_controller(document: object_json.WorkloadObject) -> tuple[OwnerKey, WorkloadRef | None] | None:
    """Return the controller of a ReplicaSet or Job; None for other kinds."""
    kind = get_kind(document)
    if kind not in INTERMEDIATE_KINDS:
        return None
    metadata = document.metadata
    controller = find_controller(metadata.owner_references)
    key = (metadata.namespace or "default", kind, metadata.name)
    return key, WorkloadRef(intern(controller.kind), intern(controller.name)) if controller else None


def is_controller_kind_read(workload: Workload) -> bool:
    """Return whether the controller of a ReplicaSet or Job is of a kind that is read, with its template."""
    return workload.controller is not None and workload.controller.kind in READ_CONTROLLERS


def add_template_resources(
    workloads: Mapping[tuple[str, WorkloadRef], Workload], children: Iterable[Workload]
) -> Mapping[tuple[str, WorkloadRef], Workload]:
    """Return workloads with the pod templates of their newest ReplicaSets or Jobs in use.

    Controllers of other kinds, such as Argo's Rollouts, may not be in the list; a Rollout with a workloadRef has no
    template.
    """
    found = dict(workloads)
    newest = {
        (one.namespace, one.controller): one for one in sorted(children, key=_get_recency) if one.requests is not None
    }
    for (namespace, controller), one in newest.items():
        if controller is None:
            continue
        own = workloads.get((namespace, controller))
        if own is None:
            found[namespace, controller] = replace(
                one, ref=controller, replicas=None, annotations={}, created_at=None, controller=None, is_read=False
            )
        elif own.requests is None:
            found[namespace, controller] = replace(
                own,
                requests=one.requests,
                memory_limits=one.memory_limits,
                cpu_limits=one.cpu_limits,
                init_containers=one.init_containers,
            )
    return found


def _get_recency(workload: Workload) -> tuple[bool, float, str]:
    created = workload.created_at
    return workload.replicas != 0, created.timestamp() if created else 0.0, workload.ref.name


def decode_budget(document: object_json.DisruptionBudgetObject) -> PodDisruptionBudget | None:
    """Return a PodDisruptionBudget; None without a selector, which covers no pod.

    BadInputError names the object, place and fix.
    """
    selector = document.spec.selector if document.spec else None
    if selector is None:
        return None
    metadata, status = document.metadata, document.status or object_json.BudgetStatus()
    namespace = metadata.namespace or "default"
    with name_object_in_errors("PodDisruptionBudget", namespace, metadata.name):
        return PodDisruptionBudget(
            namespace=namespace,
            name=metadata.name,
            selector=read_selector(selector),
            disruptions_allowed=status.disruptions_allowed,
            blocks_all_evictions=0 < status.expected_pods <= status.desired_healthy,
        )


def find_scale_targets(
    autoscalers: Iterable[HorizontalPodAutoscaler], vertical: Iterable[VerticalPodAutoscaler]
) -> dict[tuple[str, WorkloadRef], str]:
    """Return the targets of autoscalers that pods do not name as owners, by namespace, with API version."""
    found = {(one.namespace, one.target): one.target_api for one in autoscalers}
    for other in vertical:
        if other.changes_pods and other.target is not None:
            found[other.namespace, other.target] = other.target_api
    return {target: api for target, api in found.items() if target[1].kind not in POD_CONTROLLER_KINDS}


def decode_vertical_autoscaler(document: object_json.VerticalAutoscalerObject) -> VerticalPodAutoscaler:
    """Return a VerticalPodAutoscaler; BadInputError names the place."""
    metadata, spec = document.metadata, document.spec or object_json.VerticalAutoscalerSpec()
    target = spec.target_ref
    stated = spec.resource_policy.container_policies if spec.resource_policy else None
    with name_object_in_errors("VerticalPodAutoscaler", metadata.namespace or "default", metadata.name):
        rules = tuple(_read_container_policy(one, f"spec.resourcePolicy: {one.container_name}") for one in stated or ())
    return VerticalPodAutoscaler(
        namespace=metadata.namespace or "default",
        name=metadata.name,
        target=WorkloadRef(target.kind, target.name) if target is not None else None,
        mode=(spec.update_policy.update_mode if spec.update_policy else None) or "",
        is_own=any(one.name == _OWN_RECOMMENDER for one in spec.recommenders or ()),
        target_api=intern(target.api_version) if target is not None else "",
        rules=rules,
        is_published=(metadata.labels or {}).get(MANAGED_BY) == _OWN_RECOMMENDER,
    )


def _read_container_policy(policy: object_json.ContainerPolicy, place: str) -> VpaContainerPolicy:
    controlled = policy.controlled_resources
    return VpaContainerPolicy(
        container="" if policy.container_name == "*" else policy.container_name,
        is_off=policy.mode == "Off",
        controlled_resources=None if controlled is None else _RESOURCES.intersection(controlled),
        minimum=read_amounts(policy.min_allowed, f"{place}: minAllowed"),
        maximum=read_amounts(policy.max_allowed, f"{place}: maxAllowed"),
    )


def decode_limit_range(document: object_json.LimitRangeObject) -> tuple[LimitRangeItem, ...]:
    """Return the items of a LimitRange for containers and pods; BadInputError names the place."""
    metadata = document.metadata
    entries = document.spec.limits if document.spec else None
    with name_object_in_errors("LimitRange", metadata.namespace or "default", metadata.name):
        return tuple(
            _read_limit_range_item(entry, f"spec.limits[{index}]")
            for index, entry in enumerate(entries or ())
            if entry.type in ("Container", "Pod")
        )


def _read_limit_range_item(entry: object_json.LimitRangeEntry, place: str) -> LimitRangeItem:
    ratios = entry.max_limit_request_ratio or {}
    return LimitRangeItem(
        is_for_pod=entry.type == "Pod",
        minimum=read_amounts(entry.min, f"{place}.min"),
        maximum=read_amounts(entry.max, f"{place}.max"),
        max_cpu_ratio=_read_ratio(ratios.get("cpu"), f"{place}.maxLimitRequestRatio.cpu"),
        max_memory_ratio=_read_ratio(ratios.get("memory"), f"{place}.maxLimitRequestRatio.memory"),
        default_limits=read_amounts(entry.default, f"{place}.default"),
    )


def _read_ratio(value: pod_json.QuantityText | None, place: str) -> float | None:
    """Return a limit / request ratio, to the thousandth; BadInputError below 1, as in the API server."""
    thousandths = read_cpu(value, place)
    if thousandths is not None and thousandths < 1000:
        raise BadInputError(f'{place}: "{value}" is below 1; write a ratio of 1 or more')
    return None if thousandths is None else thousandths / 1000


_NO_RULES = object_json.ScalingRules()
# Conditions that the controller sets to False if it cannot compute or change the number of replicas.
_ACTIVE_CONDITIONS = frozenset({"AbleToScale", "ScalingActive"})


def decode_autoscaler(document: object_json.HorizontalAutoscalerObject) -> HorizontalPodAutoscaler:
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
    spec: object_json.HorizontalAutoscalerSpec,
    status: object_json.HorizontalAutoscalerStatus | None,
    targeted: list[tuple[ResourceName, object_json.ResourceMetric]],
) -> UtilizationScaling | None:
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
        metrics.append(_read_metric(UtilizationMetric(resource, one.container, target), spec, status, current))
    rules = (spec.behavior.scale_down if spec.behavior is not None else None) or _NO_RULES
    thousandths = read_cpu(rules.tolerance, "spec.behavior.scaleDown.tolerance")
    window = rules.stabilization_window_seconds
    return UtilizationScaling(
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
    status: object_json.HorizontalAutoscalerStatus,
) -> Mapping[tuple[str, str], object_json.MetricTarget]:
    """Return what was measured, by resource and container; a failed metric has no entry."""
    found = {}
    for metric in status.current_metrics or ():
        one = metric.resource or metric.container_resource
        if one is not None and one.current is not None:
            found[one.name, one.container] = one.current
    return found


def _read_metric(
    metric: UtilizationMetric,
    spec: object_json.HorizontalAutoscalerSpec,
    status: object_json.HorizontalAutoscalerStatus,
    current: object_json.MetricTarget | None,
) -> UtilizationMetric:
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
    return add_reported_utilization(
        metric, percent, average, is_at_minimum=is_at_minimum, is_at_maximum=replicas == spec.max_replicas
    )

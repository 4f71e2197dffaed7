"""How far requests may change under an HPA on utilization, so that it wants the same number of replicas (ADR 0047).

At its smallest number of replicas an HPA removes no pods, whatever the requests. It adds none either if each pod's use
stays within target × (1 − tolerance) of its requests, and so does every average over pods. With the maxima of the last
7 days as use, a metric then wants at most the number of pods that ran at that time: it never adds pods, and never keeps
pods that another metric would have removed. At its largest number of replicas and above its target, requests may grow
as long as utilization stays at the target or above. In between, every change of a request moves the number of replicas:
only requests that shrank below what use needs since then grow back, towards the replicas that there were without that.

Right before a resize is written, the bounds are checked again: an HPA divides by the requests in the spec, so it sees a
resize at once, even one that the kubelet defers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from cruise.decisions.pod_policy.other_autoscalers import AutoscalerClaims, AutoscalerIndex
from cruise.domain.actions import ResizePod
from cruise.domain.arrays import Float64Array, Int64Array
from cruise.domain.autoscalers import DEFAULT_SCALE_DOWN_SECONDS, UtilizationMetric, UtilizationScaling
from cruise.domain.cluster import ClusterSnapshot, HorizontalPodAutoscaler, Pod, Workload
from cruise.domain.pod_resources import get_spec_targets
from cruise.domain.reasons import ReasonDetailCode
from cruise.domain.resources import NO_RESOURCES, ResourceName, StatedResources

_UNBOUNDED = float(1 << 60)
MIN_MARGIN = 0.1
"""The least margin below the target: the HPA samples seconds, and statistics are averages of a minute."""


class MetricBounds(NamedTuple):
    """What one metric allows for the requests of all containers of a pod, or of one `container`.

    Together they may shrink to `peak_factor` × their 7-day maxima; infinite if they may not shrink. They may grow by
    `growth_factor`, as long as they are at most `base_factor` × their bases; at the smallest number of replicas
    (`growth_factor` 0) each may grow to its submitted request. They grow to `restore_factor` × maxima if they are below
    that, at most to their submitted requests.
    """

    container: str
    target_percent: int
    peak_factor: float
    growth_factor: float = 0.0
    base_factor: float = 0.0
    restore_factor: float = 0.0


@dataclass(frozen=True, slots=True)
class HpaBounds:
    """What an HPA allows for the pods of a workload, by resource; `submitted` are its template's requests.

    `restoring_only` is why requests may only grow back to what use needs; empty if they may do more.
    """

    autoscaler: str
    is_at_minimum: bool
    metrics: Mapping[ResourceName, tuple[MetricBounds, ...]]
    submitted: Mapping[str, StatedResources] = field(default_factory=dict)
    restoring_only: str = ""

    def without_shrink(self, resources: frozenset[ResourceName]) -> "HpaBounds":
        """Return the bounds without a decrease of some resources."""
        held = {one: tuple(metric._replace(peak_factor=np.inf) for metric in self.metrics[one]) for one in resources}
        return replace(self, metrics={**self.metrics, **held})

    def allows(self, decided: "HpaBounds") -> bool:
        """Return whether sizes within the bounds that were `decided` earlier are within these."""
        if self.is_at_minimum != decided.is_at_minimum or self.metrics.keys() != decided.metrics.keys():
            return False
        return all(
            len(now) == len(before)
            and all(
                one.container == other.container
                and one.peak_factor <= other.peak_factor
                and one.growth_factor >= other.growth_factor
                and one.base_factor >= other.base_factor
                for one, other in zip(now, before, strict=True)
            )
            for now, before in ((self.metrics[resource], decided.metrics[resource]) for resource in self.metrics)
        )


def decide_hpa_bounds(autoscaler: HorizontalPodAutoscaler, workload: Workload | None) -> HpaBounds | str:
    """Return how far the requests of an HPA's pods may change, or the detail why they may not.

    `workload` is None if the HPA's target is not read; its replicas then are what the HPA reports.
    """
    name, scaling = autoscaler.name, autoscaler.scaling
    if scaling is None or not scaling.is_active or any(one.reported_percent is None for one in scaling.metrics):
        return ReasonDetailCode.UTILISATION_UNKNOWN.create(name)
    replicas = {scaling.current_replicas, scaling.desired_replicas}
    if workload is not None and workload.replicas is not None:
        replicas.add(workload.replicas)
    if len(replicas) > 1:
        return ReasonDetailCode.REPLICAS_CHANGING.create(name)
    submitted = {} if workload is None or workload.requests is None else workload.requests
    if 0 < scaling.current_replicas == scaling.min_replicas:
        if any(_is_above_target(one) for one in scaling.metrics):
            return _decide_restoring_bounds(
                name, scaling, submitted, ReasonDetailCode.ABOVE_UTILISATION_TARGET.create(name)
            )
        return HpaBounds(name, True, _build_bounds_at_minimum(scaling), submitted)
    growing = _build_bounds_at_maximum(scaling) if scaling.current_replicas == scaling.max_replicas else {}
    if growing:
        return HpaBounds(name, False, growing)
    return _decide_restoring_bounds(name, scaling, submitted, ReasonDetailCode.REPLICAS_BETWEEN.create(name))


def _decide_restoring_bounds(
    name: str, scaling: UtilizationScaling, submitted: Mapping[str, StatedResources], reason: str
) -> HpaBounds | str:
    """Return the bounds by which requests only grow back, or the reason why they stay.

    Larger requests let the HPA remove pods, within its window: without one of the default length, they stay.
    """
    if not submitted or not scaling.current_replicas or scaling.scale_down_seconds < DEFAULT_SCALE_DOWN_SECONDS:
        return reason
    metrics = {
        resource: tuple(one._replace(peak_factor=np.inf, growth_factor=1.0) for one in at_minimum)
        for resource, at_minimum in _build_bounds_at_minimum(scaling).items()
    }
    return HpaBounds(name, False, metrics, submitted, reason)


def _build_bounds_at_minimum(scaling: UtilizationScaling) -> Mapping[ResourceName, tuple[MetricBounds, ...]]:
    found = {}
    for resource, metrics in _group_by_resource(scaling).items():
        factors = [(one, compute_hpa_request_factor(one, scaling)) for one in metrics]
        found[resource] = tuple(
            MetricBounds(one.container, one.target_percent, factor, restore_factor=factor if factor < np.inf else 0.0)
            for one, factor in factors
        )
    return found


def compute_hpa_request_factor(metric: UtilizationMetric, scaling: UtilizationScaling) -> float:
    """Return the smallest sum of requests at which the HPA adds no pods, relative to the use that must fit."""
    margin = max(scaling.tolerance, MIN_MARGIN)
    return 100 / (metric.target_percent * (1 - margin)) if margin < 1 else np.inf


def _build_bounds_at_maximum(scaling: UtilizationScaling) -> Mapping[ResourceName, tuple[MetricBounds, ...]]:
    """Return the bounds of resources that are above all of their targets.

    A base is the use in a quarter of the recent samples, so a window of the default length has one that is as large.
    """
    if scaling.scale_down_seconds < DEFAULT_SCALE_DOWN_SECONDS:
        return {}
    return {
        resource: tuple(
            MetricBounds(
                one.container,
                one.target_percent,
                np.inf,
                (one.reported_percent or 0) / one.target_percent,
                100 / one.target_percent,
            )
            for one in metrics
        )
        for resource, metrics in _group_by_resource(scaling).items()
        if all(_is_above_target(one) for one in metrics)
    }


def _group_by_resource(scaling: UtilizationScaling) -> Mapping[ResourceName, Sequence[UtilizationMetric]]:
    found: dict[ResourceName, list[UtilizationMetric]] = {}
    for one in scaling.metrics:
        found.setdefault(one.resource, []).append(one)
    return found


def _is_above_target(metric: UtilizationMetric) -> bool:
    return metric.reported_percent is not None and metric.reported_percent > metric.target_percent


def apply_hpa_bounds(
    claims: AutoscalerClaims,
    autoscaler: HorizontalPodAutoscaler,
    workload: Workload | None,
    find_resources_below_template: Callable[[HpaBounds], frozenset[ResourceName]],
) -> tuple[AutoscalerClaims, HpaBounds | None]:
    """Return the claims on resources whose requests may not change, and the bounds of the HPA's other resources.

    `autoscaler` is the one HPA that certainly scales the pods. `find_resources_below_template` returns the resources of
    which any of these requests less than its template.
    """
    bounds = decide_hpa_bounds(autoscaler, workload)
    if isinstance(bounds, str):
        return claims._replace(scaled_by=bounds), None
    if bounds.restoring_only:
        shrunk = find_resources_below_template(bounds)
        bounds = replace(bounds, metrics={one: bounds.metrics[one] for one in bounds.metrics.keys() & shrunk})
        if not bounds.metrics:
            return claims._replace(scaled_by=bounds.restoring_only), None
    held = claims.scaled - bounds.metrics.keys()
    detail = ReasonDetailCode.REPLICAS_BETWEEN.create(autoscaler.name) if held else ""
    return claims._replace(scaled=held, scaled_by=detail), bounds


def counts_requests_of(autoscaler: HorizontalPodAutoscaler, pod: Pod) -> bool:
    """Return whether an HPA divides by the requests that a resize changes, and by nothing else.

    Of a pod with pod-level resources it divides by these (Kubernetes 1.34 or newer, which every kubelet that resizes
    them implies) plus the overhead, but a metric of one container by the container's own, which follow the pod's.
    """
    if pod.pod_level is None:
        return True
    metrics = () if autoscaler.scaling is None else autoscaler.scaling.metrics
    return pod.overhead == NO_RESOURCES and not any(one.container for one in metrics)


def do_requests_cover_usage(current: Int64Array, peaks: Int64Array, groups: Int64Array, factors: Float64Array) -> bool:
    """Return whether the requests of every group are at least `peak_factor` × the largest use of its containers.

    The arguments are those of `compute_lower_requests`.
    """
    count = len(factors)
    needed = np.bincount(groups, _compute_parts(peaks, groups, factors), count)
    return bool((np.bincount(groups, current, count) >= needed).all())


def _compute_parts(peaks: Int64Array, groups: Int64Array, factors: Float64Array) -> Float64Array:
    """Return what each container's use needs as its request."""
    of_container = factors[groups]
    parts = np.ceil(peaks * np.where(np.isinf(of_container), 1.0, of_container))
    unbounded: Float64Array = np.where(np.isinf(of_container), _UNBOUNDED, np.minimum(parts, _UNBOUNDED))
    return unbounded


def compute_lower_requests(
    current: Int64Array, peaks: Int64Array, groups: Int64Array, factors: Float64Array
) -> Int64Array:
    """Return the smallest requests of containers whose requests count together in groups.

    Per container: its present request, the largest use that must fit, and its group; per group: its `peak_factor`. A
    container below its part keeps its request, and the others of its group keep what it lacks.
    """
    parts, count = _compute_parts(peaks, groups, factors), len(factors)
    missing = np.bincount(groups, np.maximum(parts - current, 0), count)
    excess = np.bincount(groups, np.maximum(current - parts, 0), count)
    share = np.divide(np.maximum(excess - missing, 0), excess, out=np.zeros(count), where=excess > 0)
    reducible = np.floor(np.maximum(current - parts, 0) * share[groups])
    lowest: Int64Array = current - reducible.astype(np.int64)
    return lowest


class HpaChangesSinceDecision:
    """Compares the HPAs of a snapshot with those that the watch has now."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._decided = snapshot.autoscalers
        self._snapshot = snapshot
        self._now = snapshot.autoscalers

    @cached_property
    def _before(self) -> "_KnownAutoscalers":
        return _KnownAutoscalers(self._snapshot)

    def forbid(self, action: ResizePod, pod: Pod, now: tuple[HorizontalPodAutoscaler, ...]) -> bool:
        """Return whether an HPA that acts on a request which the action changes has itself changed since.

        `pod` is the one that the action was decided on.
        """
        if now is self._decided:
            return False
        if now is not self._now:
            self._now, self._after = now, _KnownAutoscalers(replace(self._snapshot, autoscalers=now))
        before, after = self._before.find_claims(pod), self._after.find_claims(pod)
        if not _get_changed_requests(action, pod) & (before.scaled | after.scaled):
            return False
        if before != after:
            return True
        decided, allowed = self._before.decide_bounds(pod, before), self._after.decide_bounds(pod, after)
        # Requests outside all bounds are not decided by them: those of a revert, for example.
        return decided is not None and (allowed is None or not allowed.allows(decided))


class _KnownAutoscalers:
    """The HPAs of one state of the cluster."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._workloads = snapshot.workloads
        self._claims = AutoscalerIndex(snapshot)
        self._by_name = {(one.namespace, one.name): one for one in snapshot.autoscalers}

    def find_claims(self, pod: Pod) -> AutoscalerClaims:
        return self._claims.find_for_pod(pod)

    def decide_bounds(self, pod: Pod, claims: AutoscalerClaims) -> HpaBounds | None:
        autoscaler = self._by_name.get((pod.namespace, claims.autoscaler))
        if autoscaler is None:
            return None
        workload = None if pod.workload is None else self._workloads.get((pod.namespace, pod.workload))
        bounds = decide_hpa_bounds(autoscaler, workload)
        return None if isinstance(bounds, str) else bounds


def _get_changed_requests(action: ResizePod, pod: Pod) -> frozenset[ResourceName]:
    before = {one.container: one.requests for one in get_spec_targets(pod)}
    return frozenset(
        resource
        for resource in ResourceName
        for one in action.containers
        if one.container in before and one.requests.get(resource) != before[one.container].get(resource)
    )

"""The requests of a new pod whose replicas an HPA scales by utilization (ADR 0047).

The HPA divides the use of all pods by the sum of their requests, so a new pod that requests less or more than the
others would move the number of replicas.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.pod_policy.hpa_bounds import (
    HpaBounds,
    compute_hpa_request_factor,
    compute_lower_requests,
)
from cruise.decisions.pod_policy.usable_statistics import get_largest_weekly_usage
from cruise.domain.actions import ContainerTarget
from cruise.domain.annotations import UnreadableAnnotations
from cruise.domain.arrays import Int64Array, convert_to_int64, round_up_integers
from cruise.domain.autoscalers import UtilizationMetric, UtilizationScaling
from cruise.domain.cluster import Container, Pod, QosClass
from cruise.domain.resources import ROUNDING_UNIT, ResourceName, StatedResources
from cruise.domain.usage import StatisticsTable


@dataclass(frozen=True, slots=True)
class HpaAdmissionBounds:
    """What an HPA allows for one new pod, with entries per sized container.

    `bounds` are those of its running pods, None if their requests stay. `submitted` are the requests before any
    mutation, `rows` those of the statistics, `resources` those that cruise may size. With `keeps_template` the requests
    are the submitted ones, because no other pod has this template yet. `scaling` is None without an HPA to follow.
    """

    names: Sequence[str]
    scaling: UtilizationScaling | None
    bounds: HpaBounds | None
    submitted: Sequence[StatedResources]
    rows: Sequence[int]
    resources: frozenset[ResourceName]
    qos: QosClass
    keeps_template: bool

    def bound_targets(self, targets: Sequence[ContainerTarget], statistics: StatisticsTable) -> list[ContainerTarget]:
        """Return the targets with requests between what running pods may shrink to and the submitted ones.

        At the minimum of replicas, targets within are kept. Otherwise the pod requests as much as others on average.
        """
        bounded = list(targets)
        metrics = () if self.scaling is None else self.scaling.metrics
        for resource in ResourceName:
            found = [one for one in metrics if one.resource is resource]
            if self.scaling is not None and found and resource in self.resources:
                wanted = convert_to_int64([one.requests.resources.get(resource) for one in targets])
                amounts = self._bound(resource, found, self.scaling, wanted, statistics).tolist()
                bounded = [self._set(one, resource, amount) for one, amount in zip(bounded, amounts, strict=True)]
        return bounded

    def _bound(
        self,
        resource: ResourceName,
        metrics: Sequence[UtilizationMetric],
        scaling: UtilizationScaling,
        wanted: Int64Array,
        statistics: StatisticsTable,
    ) -> Int64Array:
        submitted = convert_to_int64([one.resources.get(resource) for one in self.submitted])
        if self.keeps_template or not submitted.all():
            # The HPA cannot compute the utilization of a pod without a request, and would start to with one.
            return submitted
        largest = get_largest_weekly_usage(statistics, convert_to_int64(self.rows), resource).largest
        is_at_minimum = self.bounds is not None and self.bounds.is_at_minimum
        amounts, is_counted = np.zeros_like(submitted), np.zeros(len(submitted), dtype=np.bool_)
        for metric in metrics:
            counted = np.array([metric.container in ("", name) for name in self.names], dtype=np.bool_)
            now = submitted[counted]
            factors = np.array([compute_hpa_request_factor(metric, scaling)])
            lowest = compute_lower_requests(now, largest[counted], np.zeros_like(now), factors)
            lowest = np.minimum(now, round_up_integers(lowest, ROUNDING_UNIT[resource]))
            chosen = np.clip(wanted[counted], lowest, now)
            if not is_at_minimum:
                chosen = _request_average(metric, now, lowest)
            amounts[counted] = np.maximum(amounts[counted], chosen)
            is_counted |= counted
        return np.where(is_counted, amounts, wanted)

    def _set(self, target: ContainerTarget, resource: ResourceName, amount: int) -> ContainerTarget:
        name = "cpu_millicores" if resource is ResourceName.CPU else "memory_bytes"
        requests = replace(target.requests, **{name: amount or None})
        if self.qos is not QosClass.GUARANTEED:
            return replace(target, requests=requests)
        return replace(target, requests=requests, limits=replace(target.limits, **{name: amount}))


def build_hpa_admission_bounds(
    pod: Pod,
    sized: Sequence[Container],
    eligibility: Eligibility,
    statistics: StatisticsTable,
    submitted: Sequence[StatedResources],
    rows: Sequence[int],
    new_revision: bool,
) -> HpaAdmissionBounds:
    """Return what an HPA allows for a new pod; `submitted` and `rows` have an entry per sized container.

    The largest use of all pods of the workload counts, since the HPA averages over them. Requests are the submitted
    ones if a container is not sized: it may need more than it requests.
    """
    of_workload = [statistics.find_row(pod.namespace, "", pod.workload, one.name, "") for one in sized]
    autoscaler, policy = eligibility.get_bounding_autoscaler(pod), eligibility.get_effective_policy(pod)
    policies = (
        () if isinstance(policy, UnreadableAnnotations) else [policy.get_for_container(one.name) for one in sized]
    )
    return HpaAdmissionBounds(
        [one.name for one in sized],
        None if autoscaler is None else autoscaler.scaling,
        eligibility.get_hpa_bounds(pod),
        submitted,
        [own if row is None else row for own, row in zip(rows, of_workload, strict=True)],
        frozenset(ResourceName).intersection(*(one.resources for one in policies)),
        pod.qos,
        new_revision or (pod.pod_level is None and len(sized) < len(pod.sized_containers)),
    )


def _request_average(metric: UtilizationMetric, submitted: Int64Array, lowest: Int64Array) -> Int64Array:
    """Return requests whose sum is that of the other pods on average, each between its lowest and its submitted one."""
    reducible = int((submitted - lowest).sum())
    if metric.average_request is None or reducible <= 0:
        return submitted
    share = min(1.0, max(0.0, (metric.average_request - int(lowest.sum())) / reducible))
    requests: Int64Array = lowest + np.ceil((submitted - lowest) * share).astype(np.int64)
    return requests

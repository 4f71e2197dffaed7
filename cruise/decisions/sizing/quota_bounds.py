"""ResourceQuotas for running pods: limits that a quota counts stay, and growth that it would reject is not planned.

A pod that may not grow needs no more than it has before the fit, so that nothing is evicted for it. The pods of a
namespace take what the quota has left in the order of the columns: first their bases, then their headroom.

Until the kubelet has completed a resize, each container counts with the larger of its old and its new request. So a pod
whose containers shrink and grow in one resize counts more until then, although its sum stays. ADR 0016.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cruise.decisions.pod_policy.quotas import QuotaAllowance, must_keep_limits
from cruise.decisions.sizing.demand import (
    DemandTable,
    QuotaConstraints,
    ResourceDemand,
    apply_min_limits,
)
from cruise.decisions.sizing.pod_columns import PerResource, ResizablePodColumns
from cruise.domain.arrays import BoolArray, Int64Array, round_up_integers
from cruise.domain.autoscalers import ResourceQuota
from cruise.domain.pod_resources import count_container_requests
from cruise.domain.resources import ROUNDING_UNIT, ResizePending, ResourceName, Resources

QuotasByNamespace = Mapping[str, Sequence[ResourceQuota]]


@dataclass(frozen=True, slots=True)
class _QuotaGrowth:
    """By how much a pod's requests of a resource would grow, and its containers in the columns."""

    pod: int
    resource: ResourceName
    more: int
    containers: slice


def limit_demand_to_quotas(table: DemandTable, counted: PerResource, quotas: QuotasByNamespace) -> DemandTable:
    """Return the demand that quotas allow; `counted` is what each pod counts now."""
    candidates = table.candidates
    pods_with_quota = [index for index, pod in enumerate(candidates.pods) if pod.pod.namespace in quotas]
    if not pods_with_quota:
        return table
    keeps_limit = {pod_object: np.zeros(len(table.rows), dtype=np.bool_) for pod_object in ResourceName}
    for pod in pods_with_quota:
        pod_object = candidates.pods[pod].pod
        for resource in ResourceName:
            keeps_limit[resource][_get_containers(candidates, pod)] = must_keep_limits(
                pod_object, quotas[pod_object.namespace], resource
            )
    cpu = _cap_at_kept_limits(table.cpu, table.cpu_limit, keeps_limit[ResourceName.CPU])
    memory = _cap_at_kept_limits(table.memory, table.memory_limit, keeps_limit[ResourceName.MEMORY])
    withholds_growth = np.zeros(len(candidates.pods), dtype=np.bool_)
    allowances = {namespace: QuotaAllowance(found) for namespace, found in quotas.items()}
    for resource, demand in ((ResourceName.CPU, cpu), (ResourceName.MEMORY, memory)):
        current_use = _CurrentUse(candidates, resource, demand.current, counted[resource], pods_with_quota)
        for growth in current_use.find_growth(_round_bases_up(demand, resource)):
            pod_object = candidates.pods[growth.pod].pod
            if allowances[pod_object.namespace].consume(pod_object, _build_amount(resource, growth.more)):
                continue
            withholds_growth[growth.pod] = True
            at = growth.containers
            demand.upper[at] = np.minimum(demand.upper[at], demand.current[at])
            demand.lower[at] = np.minimum(demand.lower[at], demand.upper[at])
            demand.base[at] = np.minimum(demand.base[at], demand.upper[at])
    found = replace(table, cpu=cpu, memory=memory, quotas=QuotaConstraints(quotas, keeps_limit, withholds_growth))
    return found if table.minimum_limit is None else apply_min_limits(found, _keep_limits_of_quotas(table, keeps_limit))


def _keep_limits_of_quotas(table: DemandTable, keeps_limit: Mapping[ResourceName, BoolArray]) -> PerResource:
    """Return the least limits; a limit that stays is its own minimum."""
    assert table.minimum_limit is not None
    limits = {ResourceName.CPU: table.cpu_limit, ResourceName.MEMORY: table.memory_limit}
    return {one: np.where(keeps_limit[one], limits[one], least) for one, least in table.minimum_limit.items()}


def trim_growth_to_quotas(
    table: DemandTable,
    counted: PerResource,
    sizes: Mapping[ResourceName, Int64Array],
    written: BoolArray,
    pending_replacements: Mapping[int, Resources],
) -> list[int]:
    """Cut growth that exceeds a quota, in place, to the base or the present size; return the pods that were cut.

    `written` marks the pods whose `sizes` are written. `pending_replacements` are the requests of evicted pods'
    replacements, which are reserved: of each namespace one pod is evicted at a time.
    """
    bounds, candidates = table.quotas, table.candidates
    if bounds is None:
        return []
    pods = [pod for pod in np.flatnonzero(written).tolist() if candidates.pods[pod].pod.namespace in bounds.quotas]
    allowances = {namespace: QuotaAllowance(found) for namespace, found in bounds.quotas.items()}
    for index, requests in pending_replacements.items():
        evicted = candidates.pods[index].pod
        if evicted.namespace in allowances:
            allowances[evicted.namespace].reserve(evicted, requests)
    cut_pods: set[int] = set()
    for resource, final in sizes.items():
        demand = table.get_resource(resource)
        base_sizes = np.minimum(final, np.maximum(_round_bases_up(demand, resource), demand.current))
        current_use = _CurrentUse(candidates, resource, demand.current, counted[resource], pods)
        base_growth = {one.pod: one.more for one in current_use.find_growth(base_sizes)}
        growth = current_use.find_growth(final)
        allowed = set()
        for one in growth:
            pod = candidates.pods[one.pod].pod
            if allowances[pod.namespace].consume(pod, _build_amount(resource, base_growth.get(one.pod, 0))):
                allowed.add(one.pod)
        for one in growth:
            pod, at = candidates.pods[one.pod].pod, one.containers
            extra = one.more - base_growth.get(one.pod, 0)
            if one.pod in allowed and allowances[pod.namespace].consume(pod, _build_amount(resource, extra)):
                continue
            kept_sizes = base_sizes if one.pod in allowed else demand.current
            final[at] = np.minimum(final[at], kept_sizes[at])
            cut_pods.add(one.pod)
    return sorted(cut_pods)


def _cap_at_kept_limits(demand: ResourceDemand, limit: Int64Array, keeps_limit: BoolArray) -> ResourceDemand:
    """Return a copy of the demand with requests below the limits that may not rise with them."""
    upper = np.where(keeps_limit & (limit > 0), np.minimum(demand.upper, limit), demand.upper)
    return replace(demand, upper=upper, lower=np.minimum(demand.lower, upper), base=np.minimum(demand.base, upper))


def _round_bases_up(demand: ResourceDemand, resource: ResourceName) -> Int64Array:
    return np.clip(round_up_integers(demand.base, ROUNDING_UNIT[resource]), demand.lower, demand.upper)


class _CurrentUse:
    """What some pods count of a resource now; `counted` holds it for every pod without overhead.

    Usually each container counts its request in the spec, and pods need not be examined one by one.
    """

    def __init__(
        self,
        candidates: ResizablePodColumns,
        resource: ResourceName,
        current: Int64Array,
        counted: Int64Array,
        pods: Sequence[int],
    ) -> None:
        self._candidates, self._resource, self._counted = candidates, resource, counted
        self._pods = [pod for pod in pods if candidates.manages[resource][pod]]
        self._of_containers = current.copy()
        differs = candidates.sum_by_pod(resource, current) != counted
        differs[candidates.init_container_minimums.pod] = True
        differs[list(candidates.resizing)] = True
        for pod in self._pods:
            if differs[pod]:
                pod_object, sized = candidates.pods[pod].pod, candidates.pods[pod].sized
                infeasible = pod_object.resize.pending is ResizePending.INFEASIBLE
                self._of_containers[_get_containers(candidates, pod)] = [
                    count_container_requests(container, infeasible).get(resource) for container in sized
                ]

    def find_growth(self, values: Int64Array) -> list[_QuotaGrowth]:
        """Return which pods would count more once these values are written, in order."""
        counted_sizes = np.maximum(values, self._of_containers)
        growth = self._candidates.sum_by_pod(self._resource, counted_sizes) - self._counted
        return [
            _QuotaGrowth(pod, self._resource, int(growth[pod]), _get_containers(self._candidates, pod))
            for pod in self._pods
            if growth[pod] > 0
        ]


def _get_containers(candidates: ResizablePodColumns, pod: int) -> slice:
    first = int(candidates.first_container[pod])
    return slice(first, first + len(candidates.pods[pod].sized))


def _build_amount(resource: ResourceName, value: int) -> Resources:
    return Resources(value, 0) if resource is ResourceName.CPU else Resources(0, value)

"""What ResourceQuotas leave to pods that run: limits that they count stay, and growth that they would refuse is not.

A pod that may not grow asks for no more than it has before the fit, so that nobody is evicted for it. What pods of a
namespace may still grow by they take one after the other, in the order of the columns: their bases first, and what
they have of the node's headroom from what is left then.

Until the kubelet has done a resize, each container counts with the larger of what it had and what it is to have. So a
pod whose containers shrink and grow at once counts more from the resize on, though its sum stays.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cruise.decisions.pod_policy.quotas import QuotaAllowance, keeps_limits
from cruise.decisions.sizing.candidate_columns import PerResource, ResizablePodColumns
from cruise.decisions.sizing.recommendation import (
    ROUNDING_UNIT,
    DemandTable,
    QuotaConstraints,
    ResourceDemand,
    apply_min_limits,
)
from cruise.domain.cluster import ResizePending
from cruise.domain.cluster_policies import ResourceQuota
from cruise.domain.pod_resources import count_container_requests
from cruise.domain.resources import BoolArray, Int64Array, ResourceName, Resources, round_up_integers

QuotasByNamespace = Mapping[str, Sequence[ResourceQuota]]


@dataclass(frozen=True, slots=True)
class _QuotaGrowth:
    """A resource that a pod's requests would grow by, and its containers in the columns."""

    pod: int
    resource: ResourceName
    more: int
    containers: slice


def limit_demand_to_quotas(table: DemandTable, counted: PerResource, quotas: QuotasByNamespace) -> DemandTable:
    """Return the demand as far as quotas let it be written; `counted` is what each pod counts now."""
    candidates = table.candidates
    concerned = [index for index, pod in enumerate(candidates.pods) if pod.pod.namespace in quotas]
    if not concerned:
        return table
    stay = {one: np.zeros(len(table.rows), dtype=np.bool_) for one in ResourceName}
    for pod in concerned:
        one = candidates.pods[pod].pod
        for resource in ResourceName:
            stay[resource][_containers(candidates, pod)] = keeps_limits(one, quotas[one.namespace], resource)
    cpu = _under_limits(table.cpu, table.cpu_limit, stay[ResourceName.CPU])
    memory = _under_limits(table.memory, table.memory_limit, stay[ResourceName.MEMORY])
    short = np.zeros(len(candidates.pods), dtype=np.bool_)
    rooms = {namespace: QuotaAllowance(found) for namespace, found in quotas.items()}
    for resource, demand in ((ResourceName.CPU, cpu), (ResourceName.MEMORY, memory)):
        current_use = _CurrentUse(candidates, resource, demand.current, counted[resource], concerned)
        for grown in current_use.find_growth(_whole_bases(demand, resource)):
            one = candidates.pods[grown.pod].pod
            if rooms[one.namespace].consume(one, _amount(resource, grown.more)):
                continue
            short[grown.pod] = True
            at = grown.containers
            demand.upper[at] = np.minimum(demand.upper[at], demand.current[at])
            demand.lower[at] = np.minimum(demand.lower[at], demand.upper[at])
            demand.base[at] = np.minimum(demand.base[at], demand.upper[at])
    found = replace(table, cpu=cpu, memory=memory, quotas=QuotaConstraints(quotas, stay, short))
    return found if table.minimum_limit is None else apply_min_limits(found, _kept(table, stay))


def _kept(table: DemandTable, stay: Mapping[ResourceName, BoolArray]) -> PerResource:
    """Return the least limits, which are those of now where limits stay."""
    assert table.minimum_limit is not None
    limits = {ResourceName.CPU: table.cpu_limit, ResourceName.MEMORY: table.memory_limit}
    return {one: np.where(stay[one], limits[one], least) for one, least in table.minimum_limit.items()}


def trim_growth_to_quotas(
    table: DemandTable,
    counted: PerResource,
    sizes: Mapping[ResourceName, Int64Array],
    patched: BoolArray,
    awaited: Mapping[int, Resources],
) -> list[int]:
    """Take back, in place, growth above the base for which no quota is left; return the pods cut.

    `patched` flags the pods whose `sizes` are to be written. `awaited` is what the replacements of evicted pods need,
    which is kept for them: of each namespace one is evicted at a time.
    """
    bounds, candidates = table.quotas, table.candidates
    if bounds is None:
        return []
    pods = [pod for pod in np.flatnonzero(patched).tolist() if candidates.pods[pod].pod.namespace in bounds.quotas]
    rooms = {namespace: QuotaAllowance(found) for namespace, found in bounds.quotas.items()}
    for index, need in awaited.items():
        leaving = candidates.pods[index].pod
        if leaving.namespace in rooms:
            rooms[leaving.namespace].reserve(leaving, need)
    cut: set[int] = set()
    for resource, final in sizes.items():
        demand = table.get_resource(resource)
        least = np.minimum(final, np.maximum(_whole_bases(demand, resource), demand.current))
        current_use = _CurrentUse(candidates, resource, demand.current, counted[resource], pods)
        bases = {one.pod: one.more for one in current_use.find_growth(least)}
        wanted = current_use.find_growth(final)
        granted = set()
        for grown in wanted:
            pod = candidates.pods[grown.pod].pod
            if rooms[pod.namespace].consume(pod, _amount(resource, bases.get(grown.pod, 0))):
                granted.add(grown.pod)
        for grown in wanted:
            pod, at = candidates.pods[grown.pod].pod, grown.containers
            extra = grown.more - bases.get(grown.pod, 0)
            if grown.pod in granted and rooms[pod.namespace].consume(pod, _amount(resource, extra)):
                continue
            keeps = least if grown.pod in granted else demand.current
            final[at] = np.minimum(final[at], keeps[at])
            cut.add(grown.pod)
    return sorted(cut)


def _under_limits(demand: ResourceDemand, limit: Int64Array, stays: BoolArray) -> ResourceDemand:
    """Return a demand of its own, whose requests stay under the limits that may not rise with them."""
    upper = np.where(stays & (limit > 0), np.minimum(demand.upper, limit), demand.upper)
    return replace(demand, upper=upper, lower=np.minimum(demand.lower, upper), base=np.minimum(demand.base, upper))


def _whole_bases(demand: ResourceDemand, resource: ResourceName) -> Int64Array:
    return np.clip(round_up_integers(demand.base, ROUNDING_UNIT[resource]), demand.lower, demand.upper)


class _CurrentUse:
    """What some pods count of a resource now; `counted` has it for every pod, overheads apart.

    Mostly each container counts what its spec states, and the pods need not be looked at one by one.
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
                one, sized = candidates.pods[pod].pod, candidates.pods[pod].sized
                infeasible = one.resize.pending is ResizePending.INFEASIBLE
                self._of_containers[_containers(candidates, pod)] = [
                    count_container_requests(container, infeasible).get(resource) for container in sized
                ]

    def find_growth(self, values: Int64Array) -> list[_QuotaGrowth]:
        """Return which of the pods would count more as soon as they are written with these values, in their order."""
        rising = np.maximum(values, self._of_containers)
        more = self._candidates.sum_by_pod(self._resource, rising) - self._counted
        return [
            _QuotaGrowth(pod, self._resource, int(more[pod]), _containers(self._candidates, pod))
            for pod in self._pods
            if more[pod] > 0
        ]


def _containers(candidates: ResizablePodColumns, pod: int) -> slice:
    first = int(candidates.first_container[pod])
    return slice(first, first + len(candidates.pods[pod].sized))


def _amount(resource: ResourceName, value: int) -> Resources:
    return Resources(value, 0) if resource is ResourceName.CPU else Resources(0, value)

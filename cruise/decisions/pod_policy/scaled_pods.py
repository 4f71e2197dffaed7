"""The pods of each HPA, and whether each of them requests what its own use needs (ADR 0047).

An HPA averages over pods: one that uses more than its part relies on what the others request beyond theirs.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from cruise.decisions.pod_policy.hpa_bounds import HpaBounds, MetricBounds, do_requests_cover_usage
from cruise.decisions.pod_policy.other_autoscalers import AutoscalerClaims, AutoscalerIndex
from cruise.decisions.pod_policy.usable_statistics import StatisticsUsabilityCheck, get_largest_weekly_usage
from cruise.domain.arrays import convert_to_int64
from cruise.domain.cluster import ClusterSnapshot, Pod, WorkloadRef
from cruise.domain.resources import ResourceName
from cruise.domain.usage import StatisticsTable


class ScaledPods:
    """The running pods of a snapshot by the HPA that scales them."""

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        statistics: StatisticsTable,
        autoscalers: AutoscalerIndex,
        usable: StatisticsUsabilityCheck,
    ) -> None:
        self._snapshot = snapshot
        self._statistics = statistics
        self._autoscalers = autoscalers
        self._usable = usable

    def find_resources_below_usage(self, namespace: str, bounds: HpaBounds) -> frozenset[ResourceName]:
        """Return the resources of which a pod of an HPA requests less than its use needs: it relies on the others."""
        pods = self._by_autoscaler.get((namespace, bounds.autoscaler), ())
        covered = {one for one, metrics in bounds.metrics.items() if self._cover(pods, one, metrics)}
        return frozenset(bounds.metrics.keys() - covered)

    def find_resources_below_template(self, namespace: str, bounds: HpaBounds) -> frozenset[ResourceName]:
        """Return the resources of which a pod of an HPA requests less than its template."""
        pods = self._by_autoscaler.get((namespace, bounds.autoscaler), ())
        pairs = [
            (container.requests.resources, bounds.submitted[container.name].resources)
            for pod in pods
            for container in (pod.sized_containers if pod.pod_level is None else (pod.pod_level,))
            if container.name in bounds.submitted
        ]
        return frozenset(
            one for one in bounds.metrics if any(0 < now.get(one) < stated.get(one) for now, stated in pairs)
        )

    def _cover(self, pods: Sequence[Pod], resource: ResourceName, metrics: Sequence[MetricBounds]) -> bool:
        current: list[int] = []
        rows: list[int] = []
        names: list[str] = []
        pod_of: list[int] = []
        for number, pod in enumerate(pods):
            sized = pod.sized_containers if pod.pod_level is None else (pod.pod_level,)
            for container, row in zip(sized, self._usable.find_rows(pod, sized), strict=True):
                request = container.requests.resources.get(resource)
                if row is None or not request:
                    return False
                current.append(request)
                rows.append(row)
                names.append(container.name)
                pod_of.append(number)
        if not pods:
            return True
        requests, groups = convert_to_int64(current), convert_to_int64(pod_of)
        largest = get_largest_weekly_usage(self._statistics, convert_to_int64(rows), resource).largest
        for metric in metrics:
            counted = np.array([metric.container in ("", name) for name in names], dtype=np.bool_)
            factors = np.full(len(pods), metric.peak_factor)
            if not do_requests_cover_usage(requests[counted], largest[counted], groups[counted], factors):
                return False
        return True

    @cached_property
    def _by_autoscaler(self) -> Mapping[tuple[str, str], Sequence[Pod]]:
        namespaces = {one.namespace for one in self._snapshot.autoscalers if one.scaling is not None}
        shared: dict[tuple[str, WorkloadRef | None], AutoscalerClaims] = {}
        found: dict[tuple[str, str], list[Pod]] = {}
        for pod in self._snapshot.pods:
            # Pending pods use nothing; the HPA ignores those that are terminating.
            if pod.namespace not in namespaces or pod.phase != "Running" or pod.terminating:
                continue
            if pod.namespace in self._autoscalers.by_pod:
                claims = self._autoscalers.find_for_pod(pod)
            else:
                key = (pod.namespace, pod.workload)
                claims = shared.get(key) or shared.setdefault(key, self._autoscalers.find_for_pod(pod))
            if claims.autoscaler:
                found.setdefault((pod.namespace, claims.autoscaler), []).append(pod)
        return found

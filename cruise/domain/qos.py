"""Kubernetes' quality-of-service classes, as the API server assigns them at a pod's creation."""

from collections.abc import Iterable

from cruise.domain.cluster import Container, Pod, QosClass
from cruise.domain.resources import Amounts


def qos_class(pod: Pod) -> QosClass:
    """Return the class that the pod's stated requests and limits give it, whatever `pod.qos` says.

    Guaranteed: CPU and memory limits everywhere, each equal to its request; BestEffort: nothing stated anywhere.
    Pod-level resources, where there are any, speak for the whole pod. Source: Pod Quality of Service Classes.
    """
    if pod.pod_requests is not None or pod.pod_limits is not None:
        stated = [(pod.pod_requests or Amounts(), pod.pod_limits or Amounts())]
    else:
        stated = list(_stated(pod.containers))
    if all(requests.empty and limits.empty for requests, limits in stated):
        return QosClass.BEST_EFFORT
    if all(
        limits.cpu_millicores and limits.memory_bytes and requests.or_else(limits) == limits
        for requests, limits in stated
    ):
        return QosClass.GUARANTEED
    return QosClass.BURSTABLE


def _stated(containers: Iterable[Container]) -> Iterable[tuple[Amounts, Amounts]]:
    return ((container.requests, container.limits) for container in containers)

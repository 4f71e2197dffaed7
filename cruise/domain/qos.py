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
        limits.cpu_millicores and limits.memory_bytes and _defaulted(requests, limits) == limits
        for requests, limits in stated
    ):
        return QosClass.GUARANTEED
    return QosClass.BURSTABLE


def _stated(containers: Iterable[Container]) -> Iterable[tuple[Amounts, Amounts]]:
    return ((container.requests, container.limits) for container in containers)


def _defaulted(requests: Amounts, limits: Amounts) -> Amounts:
    """Return the requests with absent ones taken from the limits, as the API server's defaulting does."""
    return Amounts(
        limits.cpu_millicores if requests.cpu_millicores is None else requests.cpu_millicores,
        limits.memory_bytes if requests.memory_bytes is None else requests.memory_bytes,
    )

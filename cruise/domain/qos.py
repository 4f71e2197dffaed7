"""Kubernetes' quality-of-service classes, as the API server assigns them at a pod's creation."""

from collections.abc import Iterable

from cruise.domain.cluster import Container, Pod, QosClass
from cruise.domain.resources import Amounts


def qos_class(pod: Pod) -> QosClass:
    """Return the class that the pod's stated requests and limits give it, whatever `pod.qos` says."""
    return qos_of(pod.containers, pod.pod_requests, pod.pod_limits)


def qos_of(containers: Iterable[Container], pod_requests: Amounts | None, pod_limits: Amounts | None) -> QosClass:
    """Return the class of a pod with these containers, and with resources of its own where it states any.

    Guaranteed: CPU and memory limits everywhere, each equal to its request; BestEffort: nothing stated anywhere.
    Pod-level resources, where there are any, speak for the whole pod. Source: Pod Quality of Service Classes.
    """
    if pod_requests is not None or pod_limits is not None:
        stated = [(pod_requests or Amounts(), pod_limits or Amounts())]
    else:
        stated = [(container.requests, container.limits) for container in containers]
    # A loop, since this is called for every pod in creation, some times.
    nothing = everything = True
    for requests, limits in stated:
        nothing = nothing and requests.empty and limits.empty
        everything = everything and bool(
            limits.cpu_millicores and limits.memory_bytes and requests.or_else(limits) == limits
        )
    if nothing:
        return QosClass.BEST_EFFORT
    return QosClass.GUARANTEED if everything else QosClass.BURSTABLE

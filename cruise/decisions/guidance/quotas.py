"""Whether a namespace's quotas leave room for a new pod's sizes: the API server refuses the pod where they do not."""

from collections.abc import Sequence

from cruise.domain.actions import ContainerTarget
from cruise.domain.cluster import Pod, Quota
from cruise.domain.requests import counted_requests
from cruise.domain.resources import NO_RESOURCES, Amounts, Resources
from cruise.domain.sizes import with_sizes


def counts_cpu_limits(quotas: Sequence[Quota]) -> bool:
    """Tell whether a quota counts CPU limits: then the API server refuses containers without one."""
    return any(quota.limits_left.cpu_millicores is not None for quota in quotas)


def breaks_quota(pod: Pod, targets: Sequence[ContainerTarget], quotas: Sequence[Quota]) -> bool:
    """Tell whether the sizes take more than the pod's own, and more than is left.

    A pod that a quota has no room for anyway is not cruise's to save. Every quota counts, whichever pods it is
    limited to.
    """
    sized = with_sizes(pod, targets)
    requests, more_requests = counted_requests(sized), counted_requests(sized) - counted_requests(pod)
    limits, more_limits = _limits(sized), _limits(sized) - _limits(pod)
    return any(
        _exceeds(requests, more_requests, quota.requests_left) or _exceeds(limits, more_limits, quota.limits_left)
        for quota in quotas
    )


def grants(pod: Pod, quotas: Sequence[Quota]) -> bool:
    """Tell whether every quota has room for one more such pod: the one that leaves counts until it is gone."""
    need = counted_requests(pod)
    limits = [container.limits.resources for container in pod.containers]
    cpu, memory = sum(one.cpu_millicores for one in limits), sum(one.memory_bytes for one in limits)
    return all(
        (quota.requests_left.cpu_millicores is None or need.cpu_millicores <= quota.requests_left.cpu_millicores)
        and (quota.requests_left.memory_bytes is None or need.memory_bytes <= quota.requests_left.memory_bytes)
        and (quota.limits_left.cpu_millicores is None or cpu <= quota.limits_left.cpu_millicores)
        and (quota.limits_left.memory_bytes is None or memory <= quota.limits_left.memory_bytes)
        for quota in quotas
    )


def _limits(pod: Pod) -> Resources:
    return sum((container.limits.resources for container in pod.sized_containers), NO_RESOURCES)


def _exceeds(whole: Resources, more: Resources, left: Amounts) -> bool:
    return _over(whole.cpu_millicores, more.cpu_millicores, left.cpu_millicores) or _over(
        whole.memory_bytes, more.memory_bytes, left.memory_bytes
    )


def _over(whole: int, more: int, left: int | None) -> bool:
    return left is not None and more > 0 and whole > left

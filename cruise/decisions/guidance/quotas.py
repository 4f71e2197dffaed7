"""What a namespace's ResourceQuotas leave: for a pod that is to be created, and for sizes of pods that run."""

from collections.abc import Sequence

from cruise.domain.actions import ContainerTarget
from cruise.domain.cluster import Pod, QosClass
from cruise.domain.quotas import Quota, QuotaScope
from cruise.domain.requests import counted_limits, counted_requests
from cruise.domain.resources import NO_RESOURCES, Amounts, ResourceName, Resources
from cruise.domain.sizes import with_sizes

# Their pods may not have a deadline; others' may.
_WITHOUT_DEADLINE = frozenset({"ReplicaSet", "StatefulSet", "DaemonSet"})


def counts(quota: Quota, pod: Pod) -> bool:
    """Tell whether a quota counts a pod, as it does where that is in doubt."""
    return all(_holds(scope, pod) for scope in quota.scopes)


def _holds(scope: QuotaScope, pod: Pod) -> bool:
    match scope.name:
        case "BestEffort":
            return pod.qos is QosClass.BEST_EFFORT
        case "NotBestEffort":
            return pod.qos is not QosClass.BEST_EFFORT
        case "Terminating":
            return pod.owner_kind not in _WITHOUT_DEADLINE
        case "PriorityClass":
            return _of_class(scope, pod.priority_class)
        case _:
            return True


def _of_class(scope: QuotaScope, name: str) -> bool:
    match scope.operator:
        case "In":
            return name in scope.values
        case "NotIn":
            return name not in scope.values
        case "DoesNotExist":
            return not name
        case _:
            return scope.operator != "Exists" or bool(name)


def counts_limits(quotas: Sequence[Quota], resource: ResourceName) -> bool:
    """Tell whether a quota counts limits of a resource: then the API server refuses containers without one."""
    return any(quota.limits_left.of(resource) is not None for quota in quotas)


def limits_stay(pod: Pod, quotas: Sequence[Quota], resource: ResourceName) -> bool:
    """Tell whether the pod's limits of a resource are left as they are: a quota counts them."""
    return any(quota.limits_left.of(resource) is not None and counts(quota, pod) for quota in quotas)


def breaks_quota(pod: Pod, targets: Sequence[ContainerTarget], quotas: Sequence[Quota]) -> bool:
    """Tell whether sizes of a pod that is to be created take more than its own, and more than is left.

    A pod that a quota has no room for anyway is not cruise's to save.
    """
    sized = with_sizes(pod, targets)
    requests, more_requests = counted_requests(sized), counted_requests(sized) - counted_requests(pod)
    limits, more_limits = counted_limits(sized), counted_limits(sized) - counted_limits(pod)
    return any(
        counts(quota, pod)
        and (_exceeds(requests, more_requests, quota.requests_left) or _exceeds(limits, more_limits, quota.limits_left))
        for quota in quotas
    )


def grants(pod: Pod, quotas: Sequence[Quota]) -> bool:
    """Tell whether every quota has room for one more such pod: the one that leaves counts until it is gone."""
    return not any(
        counts(quota, pod)
        and (
            _exceeds(need := counted_requests(pod), need, quota.requests_left)
            or _exceeds(limits := counted_limits(pod), limits, quota.limits_left)
        )
        for quota in quotas
    )


class QuotaRoom:
    """What quotas leave while pods that run grow one after the other, in one pass."""

    def __init__(self, quotas: Sequence[Quota]) -> None:
        self._quotas = quotas
        self._taken = [NO_RESOURCES] * len(quotas)

    def keep(self, pod: Pod, need: Resources) -> None:
        """Keep, of what is left, what a pod that is to be created needs: as much as the largest of several."""
        for at, quota in enumerate(self._quotas):
            if counts(quota, pod):
                self._taken[at] = self._taken[at].at_least(need)

    def take(self, pod: Pod, more: Resources) -> bool:
        """Take what a pod requests more, where every quota that counts it has that much left; tell whether it had."""
        counting = [number for number, quota in enumerate(self._quotas) if counts(quota, pod)]
        grown = more.at_least(NO_RESOURCES)
        if any(_exceeds(self._taken[at] + grown, grown, self._quotas[at].requests_left) for at in counting):
            return False
        for at in counting:
            self._taken[at] += grown
        return True


def _exceeds(whole: Resources, more: Resources, left: Amounts) -> bool:
    return _over(whole.cpu_millicores, more.cpu_millicores, left.cpu_millicores) or _over(
        whole.memory_bytes, more.memory_bytes, left.memory_bytes
    )


def _over(whole: int, more: int, left: int | None) -> bool:
    return left is not None and more > 0 and whole > left

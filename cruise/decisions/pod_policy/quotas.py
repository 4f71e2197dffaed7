"""What a namespace's ResourceQuotas leave: for a pod that is to be created, and for sizes of pods that run."""

from collections.abc import Sequence

from cruise.domain.actions import ContainerTarget
from cruise.domain.annotations import EffectivePolicy
from cruise.domain.cluster import ClusterSnapshot, Container, Pod, QosClass
from cruise.domain.cluster_policies import QuotaScope, ResourceQuota
from cruise.domain.pod_resources import count_pod_limits, count_pod_requests, replace_spec_resources
from cruise.domain.policy import EvictionRanking
from cruise.domain.resources import NO_RESOURCES, NOTHING_STATED, ResourceName, Resources, StatedResources

# Their pods may not have a deadline; others' may.
_WITHOUT_DEADLINE = frozenset({"ReplicaSet", "StatefulSet", "DaemonSet"})


def applies_to_pod(quota: ResourceQuota, pod: Pod) -> bool:
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


def applies_to_limits(quotas: Sequence[ResourceQuota], resource: ResourceName) -> bool:
    """Tell whether a quota counts limits of a resource: then the API server refuses containers without one."""
    return any(quota.limits_left.get(resource) is not None for quota in quotas)


def keeps_limits(pod: Pod, quotas: Sequence[ResourceQuota], resource: ResourceName) -> bool:
    """Tell whether the pod's limits of a resource are left as they are: a quota counts them."""
    return any(quota.limits_left.get(resource) is not None and applies_to_pod(quota, pod) for quota in quotas)


def exceeds_quota(pod: Pod, targets: Sequence[ContainerTarget], quotas: Sequence[ResourceQuota]) -> bool:
    """Tell whether sizes of a pod that is to be created take more than its own, and more than is left.

    A pod that a quota has no room for anyway is not cruise's to save.
    """
    sized = replace_spec_resources(pod, targets)
    requests, more_requests = count_pod_requests(sized), count_pod_requests(sized) - count_pod_requests(pod)
    limits, more_limits = count_pod_limits(sized), count_pod_limits(sized) - count_pod_limits(pod)
    return any(
        applies_to_pod(quota, pod)
        and (_exceeds(requests, more_requests, quota.requests_left) or _exceeds(limits, more_limits, quota.limits_left))
        for quota in quotas
    )


def allows_one_more_pod(pod: Pod, quotas: Sequence[ResourceQuota]) -> bool:
    """Tell whether every quota has room for one more such pod: the one that leaves counts until it is gone."""
    return not any(
        applies_to_pod(quota, pod)
        and (
            _exceeds(need := count_pod_requests(pod), need, quota.requests_left)
            or _exceeds(limits := count_pod_limits(pod), limits, quota.limits_left)
        )
        for quota in quotas
    )


class QuotaAllowance:
    """What quotas leave while pods that run grow one after the other, in one pass."""

    def __init__(self, quotas: Sequence[ResourceQuota]) -> None:
        self._quotas = quotas
        self._taken = [NO_RESOURCES] * len(quotas)

    def reserve(self, pod: Pod, need: Resources) -> None:
        """Keep, of what is left, what a pod that is to be created needs: as much as the largest of several."""
        for at, quota in enumerate(self._quotas):
            if applies_to_pod(quota, pod):
                self._taken[at] = self._taken[at].at_least(need)

    def consume(self, pod: Pod, more: Resources) -> bool:
        """Take what a pod requests more, where every quota that counts it has that much left; tell whether it had."""
        counting = [number for number, quota in enumerate(self._quotas) if applies_to_pod(quota, pod)]
        grown = more.at_least(NO_RESOURCES)
        if any(_exceeds(self._taken[at] + grown, grown, self._quotas[at].requests_left) for at in counting):
            return False
        for at in counting:
            self._taken[at] += grown
        return True


def _exceeds(whole: Resources, more: Resources, left: StatedResources) -> bool:
    return _over(whole.cpu_millicores, more.cpu_millicores, left.cpu_millicores) or _over(
        whole.memory_bytes, more.memory_bytes, left.memory_bytes
    )


def _over(whole: int, more: int, left: int | None) -> bool:
    return left is not None and more > 0 and whole > left


# What is a pod's own whatever its annotations ask: the requests that it was submitted with.

_SHIELDS = (EvictionRanking.HIGH, EvictionRanking.NEVER)


def get_submitted_requests(
    pod: Pod, sized: Sequence[Container], snapshot: ClusterSnapshot
) -> tuple[Resources | None, ...]:
    """Return what the pod template states for each sized container (0 for none), as far as quotas grant it.

    None where the template is not known. A record on the pod itself is not asked: its owner could forge it.
    """
    workload = snapshot.workloads.get((pod.namespace, pod.workload)) if pod.workload is not None else None
    stated = workload.requests if workload is not None else None
    if stated is None:
        return (None,) * len(sized)
    quotas = snapshot.quotas.get(pod.namespace, ())
    return tuple([_granted(stated.get(one.name, NOTHING_STATED), one.requests, quotas) for one in sized])


def _granted(stated: StatedResources, current: StatedResources, quotas: Sequence[ResourceQuota]) -> Resources:
    """Cap a template's request: what a quota would refuse beyond the request in force was never submitted."""
    cpu, memory = stated.cpu_millicores or 0, stated.memory_bytes or 0
    for quota in quotas:
        left = quota.requests_left
        if left.cpu_millicores is not None:
            cpu = min(cpu, (current.cpu_millicores or 0) + left.cpu_millicores)
        if left.memory_bytes is not None:
            memory = min(memory, (current.memory_bytes or 0) + left.memory_bytes)
    return Resources(cpu, memory)


def has_own_eviction_protection(guidance: EffectivePolicy) -> bool:
    """Tell whether a workload's own annotation, and no administrator's, ranks it `high` or `never`."""
    ranking, administered = guidance.ranking, guidance.set_by_administrator
    if administered is None or ranking is None or ranking not in _SHIELDS:
        return False
    return administered.ranking is None or administered.ranking < ranking

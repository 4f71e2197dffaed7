"""What ResourceQuotas leave: for pods that are to be created, and for growth of running pods (ADR 0016)."""

from collections.abc import Sequence
from dataclasses import replace

from cruise.domain.actions import ContainerTarget
from cruise.domain.annotations import EffectivePolicy
from cruise.domain.autoscalers import QuotaScope, ResourceQuota
from cruise.domain.cluster import ClusterSnapshot, Container, Pod, QosClass
from cruise.domain.pod_resources import count_pod_limits, count_pod_requests, get_qos_class, replace_spec_resources
from cruise.domain.policy import EvictionRanking
from cruise.domain.resources import NO_RESOURCES, NOTHING_STATED, ResourceName, Resources, StatedResources

# Kinds whose pods cannot have an activeDeadlineSeconds.
_WITHOUT_DEADLINE = frozenset({"ReplicaSet", "StatefulSet", "DaemonSet"})


def applies_to_pod(quota: ResourceQuota, pod: Pod) -> bool:
    """Return whether a quota counts a pod; it does if that is uncertain."""
    return all(_matches_scope(scope, pod) for scope in quota.scopes)


def _matches_scope(scope: QuotaScope, pod: Pod) -> bool:
    match scope.name:
        case "BestEffort":
            return pod.qos is QosClass.BEST_EFFORT
        case "NotBestEffort":
            return pod.qos is not QosClass.BEST_EFFORT
        case "Terminating":
            return pod.owner_kind not in _WITHOUT_DEADLINE
        case "PriorityClass":
            return _matches_priority_class(scope, pod.priority_class)
        case _:
            return True


def _matches_priority_class(scope: QuotaScope, name: str) -> bool:
    match scope.operator:
        case "In":
            return name in scope.values
        case "NotIn":
            return name not in scope.values
        case "DoesNotExist":
            return not name
        case _:
            return scope.operator != "Exists" or bool(name)


def counts_limits_of(quotas: Sequence[ResourceQuota], resource: ResourceName) -> bool:
    """Return whether a quota counts limits of a resource: then the API server rejects containers without one."""
    return any(quota.limits_left.get(resource) is not None for quota in quotas)


def must_keep_limits(pod: Pod, quotas: Sequence[ResourceQuota], resource: ResourceName) -> bool:
    """Return whether the pod's limits of a resource must stay because a quota counts them."""
    return any(quota.limits_left.get(resource) is not None and applies_to_pod(quota, pod) for quota in quotas)


def exceeds_quota(pod: Pod, targets: Sequence[ContainerTarget], quotas: Sequence[ResourceQuota]) -> bool:
    """Return whether sizes of a new pod exceed a quota, and use more of it than its present sizes.

    A pod that no quota can admit anyway is left to the API server. A pod that was BestEffort may come under other
    quotas, which require that all of its containers, init containers included, state what they count.
    """
    sized = replace_spec_resources(pod, targets)
    sized = replace(sized, qos=get_qos_class(sized))
    requests, added_requests = count_pod_requests(sized), count_pod_requests(sized) - count_pod_requests(pod)
    limits, added_limits = count_pod_limits(sized), count_pod_limits(sized) - count_pod_limits(pod)
    return any(
        applies_to_pod(quota, sized)
        and (
            _exceeds(requests, added_requests, quota.requests_left)
            or _exceeds(limits, added_limits, quota.limits_left)
            or (pod.qos is QosClass.BEST_EFFORT and _lacks_counted(sized.containers, quota))
        )
        for quota in quotas
    )


def _lacks_counted(containers: Sequence[Container], quota: ResourceQuota) -> bool:
    """Return whether a container does not state a request or a limit that a quota counts."""
    return any(
        left.get(resource) is not None and stated.get(resource) is None
        for one in containers
        for left, stated in ((quota.requests_left, one.requests), (quota.limits_left, one.limits))
        for resource in ResourceName
    )


def allows_one_more_pod(pod: Pod, quotas: Sequence[ResourceQuota]) -> bool:
    """Return whether every quota has capacity for one more such pod: an evicted pod counts until it is deleted."""
    return not any(
        applies_to_pod(quota, pod)
        and (
            _exceeds(requests := count_pod_requests(pod), requests, quota.requests_left)
            or _exceeds(limits := count_pod_limits(pod), limits, quota.limits_left)
        )
        for quota in quotas
    )


class QuotaAllowance:
    """What quotas leave while running pods grow one after the other in a pass."""

    def __init__(self, quotas: Sequence[ResourceQuota]) -> None:
        self._quotas = quotas
        self._consumed = [NO_RESOURCES] * len(quotas)

    def reserve(self, pod: Pod, requests: Resources) -> None:
        """Reserve what a replacement requests; of several, as much as the largest."""
        for at, quota in enumerate(self._quotas):
            if applies_to_pod(quota, pod):
                self._consumed[at] = self._consumed[at].max_with(requests)

    def consume(self, pod: Pod, growth: Resources) -> bool:
        """Consume the growth of a pod's requests if every quota that counts it has that much left; return if it had."""
        counting = [number for number, quota in enumerate(self._quotas) if applies_to_pod(quota, pod)]
        positive_growth = growth.max_with(NO_RESOURCES)
        if any(
            _exceeds(self._consumed[at] + positive_growth, positive_growth, self._quotas[at].requests_left)
            for at in counting
        ):
            return False
        for at in counting:
            self._consumed[at] += positive_growth
        return True


def _exceeds(whole: Resources, more: Resources, left: StatedResources) -> bool:
    return _exceeds_amount(whole.cpu_millicores, more.cpu_millicores, left.cpu_millicores) or _exceeds_amount(
        whole.memory_bytes, more.memory_bytes, left.memory_bytes
    )


def _exceeds_amount(whole: int, more: int, left: int | None) -> bool:
    return left is not None and more > 0 and whole > left


_PROTECTING_RANKINGS = (EvictionRanking.HIGH, EvictionRanking.NEVER)


def get_template_requests_within_quotas(
    pod: Pod, sized: Sequence[Container], snapshot: ClusterSnapshot
) -> tuple[Resources | None, ...]:
    """Return the pod template's requests of each sized container (0 for none), as far as quotas admit them.

    None if the template is unknown. A record on the pod itself is not used: its owner could forge it.
    """
    workload = snapshot.workloads.get((pod.namespace, pod.workload)) if pod.workload is not None else None
    stated = workload.requests if workload is not None else None
    if stated is None:
        return (None,) * len(sized)
    quotas = snapshot.quotas.get(pod.namespace, ())
    return tuple([_cap_at_quotas(stated.get(one.name, NOTHING_STATED), one.requests, quotas) for one in sized])


def _cap_at_quotas(stated: StatedResources, current: StatedResources, quotas: Sequence[ResourceQuota]) -> Resources:
    """Cap a template's request: what a quota would reject beyond the present request was never submitted."""
    cpu, memory = stated.cpu_millicores or 0, stated.memory_bytes or 0
    for quota in quotas:
        left = quota.requests_left
        if left.cpu_millicores is not None:
            cpu = min(cpu, (current.cpu_millicores or 0) + left.cpu_millicores)
        if left.memory_bytes is not None:
            memory = min(memory, (current.memory_bytes or 0) + left.memory_bytes)
    return Resources(cpu, memory)


def has_own_eviction_protection(effective_policy: EffectivePolicy) -> bool:
    """Return whether a workload's own annotation, rather than an administrator's, ranks it `high` or `never`."""
    ranking, by_administrator = effective_policy.ranking, effective_policy.set_by_administrator
    if by_administrator is None or ranking is None or ranking not in _PROTECTING_RANKINGS:
        return False
    return by_administrator.ranking is None or by_administrator.ranking < ranking

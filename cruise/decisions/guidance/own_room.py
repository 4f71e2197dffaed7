"""What is a pod's own whatever its annotations ask: the requests that it was submitted with."""

from collections.abc import Sequence

from cruise.domain.annotations import Guidance
from cruise.domain.cluster import Container, Pod, Snapshot
from cruise.domain.policy import EvictionRanking
from cruise.domain.quotas import Quota
from cruise.domain.resources import NO_AMOUNTS, Amounts, Resources

_SHIELDS = (EvictionRanking.HIGH, EvictionRanking.NEVER)


def submitted_requests(pod: Pod, sized: Sequence[Container], snapshot: Snapshot) -> tuple[Resources | None, ...]:
    """Return what the pod template states for each sized container (0 for none), as far as quotas grant it.

    None where the template is not known. A record on the pod itself is not asked: its owner could forge it.
    """
    workload = snapshot.workloads.get((pod.namespace, pod.workload)) if pod.workload is not None else None
    stated = workload.requests if workload is not None else None
    if stated is None:
        return (None,) * len(sized)
    quotas = snapshot.quotas.get(pod.namespace, ())
    return tuple([_granted(stated.get(one.name, NO_AMOUNTS), one.requests, quotas) for one in sized])


def _granted(stated: Amounts, current: Amounts, quotas: Sequence[Quota]) -> Resources:
    """Cap a template's request: what a quota would refuse beyond the request in force was never submitted."""
    cpu, memory = stated.cpu_millicores or 0, stated.memory_bytes or 0
    for quota in quotas:
        left = quota.requests_left
        if left.cpu_millicores is not None:
            cpu = min(cpu, (current.cpu_millicores or 0) + left.cpu_millicores)
        if left.memory_bytes is not None:
            memory = min(memory, (current.memory_bytes or 0) + left.memory_bytes)
    return Resources(cpu, memory)


def shields_itself(guidance: Guidance) -> bool:
    """Tell whether a workload's own annotation, and no administrator's, ranks it `high` or `never`."""
    ranking, administered = guidance.ranking, guidance.administered
    if administered is None or ranking is None or ranking not in _SHIELDS:
        return False
    return administered.ranking is None or administered.ranking < ranking

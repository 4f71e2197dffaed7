"""ResourceQuotas: what the pods of a namespace may request and be limited to together."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cruise.domain.cluster import Pod
from cruise.domain.quotas import Quota
from cruise.domain.requests import counted_requests
from cruise.domain.resources import NO_AMOUNTS, Amounts, ResourceName, Resources
from cruise.errors import Refused


@dataclass(frozen=True, slots=True)
class QuotaRule:
    """A ResourceQuota's spec: its hard `requests.cpu`, `limits.memory` and so on; None for what it does not count."""

    namespace: str
    name: str
    requests: Amounts = NO_AMOUNTS
    limits: Amounts = NO_AMOUNTS

    @property
    def bounds(self) -> Iterator[tuple[str, ResourceName, int]]:
        """Each bound: `requests` or `limits`, the resource, how much."""
        for field, hard in (("requests", self.requests), ("limits", self.limits)):
            for resource in ResourceName:
                bound = hard.of(resource)
                if bound is not None:
                    yield field, resource, bound


@dataclass(frozen=True, slots=True)
class _Usage:
    """What counts against a quota."""

    requests: Resources = Resources()
    limits: Resources = Resources()

    def of(self, field: str, resource: ResourceName) -> int:
        return (self.requests if field == "requests" else self.limits).of(resource)


class Quotas:
    """The quotas of a cluster. A pod counts with the largest of spec, allocated and actual, until it has finished.

    Source: the ResourceQuota admission plugin and its evaluator of pods.
    """

    def __init__(self, rules: Sequence[QuotaRule]) -> None:
        self._rules: dict[str, list[QuotaRule]] = {}
        for rule in sorted(rules, key=lambda rule: (rule.namespace, rule.name)):
            self._rules.setdefault(rule.namespace, []).append(rule)

    def left(self, pods: Sequence[Pod]) -> Mapping[str, tuple[Quota, ...]]:
        """Return what is left of each namespace's quotas, as decisions read it; `pods` are those of the cluster."""
        found = {}
        for namespace, rules in self._rules.items():
            used = _used(pod for pod in pods if pod.namespace == namespace)
            found[namespace] = tuple(_quota(rule, used) for rule in rules)
        return found

    def check_creation(self, pod: Pod, pods: Iterable[Pod]) -> None:
        """Raise Refused for a new pod that goes beyond a quota, or leaves open what a quota counts."""
        for rule in self._rules.get(pod.namespace, ()):
            for field, resource, _ in rule.bounds:
                open_at = [one.name for one in pod.containers if getattr(one, field).of(resource) is None]
                if open_at:
                    text = f"failed quota: {rule.name}: must specify {field}.{resource} for: {','.join(open_at)}"
                    raise Refused(f'pods "{pod.name}" is forbidden: {text}', "AdmissionDenied")
        self._check(pod, _Usage(), pods)

    def check_resize(self, pod: Pod, wanted: Pod, pods: Iterable[Pod]) -> None:
        """Raise Refused for a resize that takes more of a quota than is left; `wanted` is `pod` with the new spec."""
        self._check(wanted, _usage(pod), pods)

    def _check(self, wanted: Pod, before: _Usage, pods: Iterable[Pod]) -> None:
        rules = self._rules.get(wanted.namespace)
        if not rules:
            return
        after, used = _usage(wanted), _used(one for one in pods if one.namespace == wanted.namespace)
        for rule in rules:
            for field, resource, hard in rule.bounds:
                more, counted = after.of(field, resource) - before.of(field, resource), used.of(field, resource)
                if more > 0 and counted + more > hard:
                    name = f"{field}.{resource}"
                    amounts = f"requested: {name}={more}, used: {name}={counted}, limited: {name}={hard}"
                    text = f"exceeded quota: {rule.name}, {amounts}"
                    raise Refused(f'pods "{wanted.name}" is forbidden: {text}', "QuotaExceeded")


def _used(pods: Iterable[Pod]) -> _Usage:
    requests, limits = Resources(), Resources()
    for pod in pods:
        one = _usage(pod)
        requests, limits = requests + one.requests, limits + one.limits
    return _Usage(requests, limits)


def _usage(pod: Pod) -> _Usage:
    # Limits are summed up as requests are.
    limited = tuple(
        replace(one, requests=one.limits, allocated=None, actual=one.actual_limits) for one in pod.containers
    )
    return _Usage(
        counted_requests(pod), counted_requests(replace(pod, containers=limited, pod_requests=pod.pod_limits))
    )


def _quota(rule: QuotaRule, used: _Usage) -> Quota:
    left = {(field, resource): max(0, hard - used.of(field, resource)) for field, resource, hard in rule.bounds}
    requests, limits = (
        Amounts(left.get((field, ResourceName.CPU)), left.get((field, ResourceName.MEMORY)))
        for field in ("requests", "limits")
    )
    return Quota(requests, limits)

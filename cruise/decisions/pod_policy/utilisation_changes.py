"""Whether the HPAs that a resize was decided under still allow it, right before it is written.

An HPA divides by the requests in the spec, so it sees a resize at once, even one that the kubelet defers.
"""

from dataclasses import replace
from functools import cached_property

from cruise.decisions.pod_policy.other_autoscalers import AutoscalerClaims, AutoscalerIndex
from cruise.decisions.pod_policy.utilisation_bounds import UtilisationBounds, decide_utilisation_bounds
from cruise.domain.actions import ResizePod
from cruise.domain.cluster import ClusterSnapshot, HorizontalPodAutoscaler, Pod
from cruise.domain.pod_resources import get_spec_targets
from cruise.domain.resources import ResourceName


class UtilisationChanges:
    """Compares the HPAs of a snapshot with those that the watch has now."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._decided = snapshot.autoscalers
        self._snapshot = snapshot
        self._now = snapshot.autoscalers

    @cached_property
    def _before(self) -> "_KnownAutoscalers":
        return _KnownAutoscalers(self._snapshot)

    def forbid(self, action: ResizePod, pod: Pod, now: tuple[HorizontalPodAutoscaler, ...]) -> bool:
        """Return whether an HPA that acts on a request which the action changes has itself changed since.

        `pod` is the one that the action was decided on.
        """
        if now is self._decided:
            return False
        if now is not self._now:
            self._now, self._after = now, _KnownAutoscalers(replace(self._snapshot, autoscalers=now))
        before, after = self._before.find_claims(pod), self._after.find_claims(pod)
        if not _get_changed_requests(action, pod) & (before.scaled | after.scaled):
            return False
        if before != after:
            return True
        decided, allowed = self._before.decide_bounds(pod, before), self._after.decide_bounds(pod, after)
        # Requests outside all bounds are not decided by them: those of a revert, for example.
        return decided is not None and (allowed is None or not allowed.allows(decided))


class _KnownAutoscalers:
    """The HPAs of one state of the cluster."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._workloads = snapshot.workloads
        self._claims = AutoscalerIndex(snapshot)
        self._by_name = {(one.namespace, one.name): one for one in snapshot.autoscalers}

    def find_claims(self, pod: Pod) -> AutoscalerClaims:
        return self._claims.find_for_pod(pod)

    def decide_bounds(self, pod: Pod, claims: AutoscalerClaims) -> UtilisationBounds | None:
        autoscaler = self._by_name.get((pod.namespace, claims.autoscaler))
        if autoscaler is None:
            return None
        workload = None if pod.workload is None else self._workloads.get((pod.namespace, pod.workload))
        bounds = decide_utilisation_bounds(autoscaler, workload)
        return None if isinstance(bounds, str) else bounds


def _get_changed_requests(action: ResizePod, pod: Pod) -> frozenset[ResourceName]:
    before = {one.container: one.requests for one in get_spec_targets(pod)}
    return frozenset(
        resource
        for resource in ResourceName
        for one in action.containers
        if one.container in before and one.requests.get(resource) != before[one.container].get(resource)
    )

"""What sizing has changed so far: what pods request now against what they requested before cruise."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cruise.decisions.revert import Sizes
from cruise.domain.actions import ContainerTarget
from cruise.domain.cluster import NO_RESIZE, Snapshot
from cruise.domain.requests import counted_requests
from cruise.domain.resources import NO_RESOURCES, Resources
from cruise.domain.sizes import sized_containers


@dataclass(frozen=True, slots=True)
class Savings:
    """The pods on nodes whose original sizes are known: how many, and their requests before and now."""

    pods: int
    before: Resources
    now: Resources

    @property
    def saved(self) -> Resources:
        """What came free; negative where pods needed more than they requested."""
        return self.before - self.now


def sum_savings(snapshot: Snapshot, originals: Mapping[str, Sizes]) -> Savings:
    """Compare the pods' requests, as kube-scheduler counts them, with those of their original sizes by pod uid."""
    pods, before, now = 0, NO_RESOURCES, NO_RESOURCES
    for pod in snapshot.pods:
        original = originals.get(pod.uid)
        if original is None or pod.node is None or pod.terminal:
            continue
        targets = [
            ContainerTarget(container.name, container.role, *original[container.name])
            for container in pod.containers
            if container.name in original
        ]
        # What the kubelet reports is of now, and would count where it is more.
        containers = [replace(one, allocated=None, actual=None) for one in sized_containers(pod, targets)]
        pods += 1
        before += counted_requests(replace(pod, resize=NO_RESIZE), containers)
        now += counted_requests(pod)
    return Savings(pods, before, now)

"""What one pass did, container by container: sizes before and after, and how it ended."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cruise.domain.actions import Outcome, ResizePod
from cruise.domain.cluster import Pod
from cruise.domain.resources import NO_AMOUNTS, Amounts
from cruise.runtime.sizing.node_pass import NodePass


@dataclass(frozen=True, slots=True)
class ContainerChange:
    """One container of a resize; an amount that the resize leaves as it is stands on both sides."""

    container: str
    requests_before: Amounts
    requests_after: Amounts
    limits_before: Amounts
    limits_after: Amounts


Pods = Mapping[tuple[str, str], Pod]


def changes_of(outcome: Outcome, pods: Pods) -> Iterator[ContainerChange]:
    """Yield what a resize changes or would have changed, nothing for any other action."""
    action = outcome.action
    if not isinstance(action, ResizePod):
        return
    pod = pods.get((action.namespace, action.pod))
    known = {container.name: container for container in pod.containers} if pod is not None else {}
    for target in action.containers:
        container = known.get(target.container)
        requests = container.requests if container is not None else NO_AMOUNTS
        limits = container.limits if container is not None else NO_AMOUNTS
        yield ContainerChange(
            target.container, requests, target.requests.or_else(requests), limits, target.limits.or_else(limits)
        )


def pods_of(done: NodePass) -> Pods:
    """Return the pods that a pass saw, by (namespace, name)."""
    return {(pod.namespace, pod.name): pod for pod in done.snapshot.pods}


def changes_json(
    outcome: Outcome, pods: Pods, sizes: Callable[[Amounts, Amounts], object]
) -> Sequence[dict[str, object]]:
    """Return the changes for programs; `sizes` writes requests and limits."""
    return [
        {
            "container": change.container,
            "before": sizes(change.requests_before, change.limits_before),
            "after": sizes(change.requests_after, change.limits_after),
        }
        for change in changes_of(outcome, pods)
    ]

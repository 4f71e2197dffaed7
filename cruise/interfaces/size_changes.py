"""What a resize changes and why, in words, for Events and for pages."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from cruise.domain.actions import ContainerTarget, Outcome, ResizePod
from cruise.domain.cluster import Container, PodsByName
from cruise.domain.resources import NOTHING_STATED, StatedResources, format_cpu_millicores, format_memory_bytes
from cruise.interfaces.reasons import CAUSE_DESCRIPTIONS, REASON_DESCRIPTIONS
from cruise.runtime.node_pass import NodePassResult

# What one pass did, container by container: sizes before and after, and how it ended.


@dataclass(frozen=True, slots=True)
class ContainerSizeChange:
    """One container of a resize; an amount that the resize leaves as it is stands on both sides."""

    container: str
    requests_before: StatedResources
    requests_after: StatedResources
    limits_before: StatedResources
    limits_after: StatedResources


def list_size_changes(outcome: Outcome, pods: PodsByName) -> Iterator[ContainerSizeChange]:
    """Yield what a resize changes or would have changed, nothing for any other action."""
    action = outcome.action
    if not isinstance(action, ResizePod):
        return
    pod = pods.get((action.namespace, action.pod))
    known = {container.name: container for container in pod.containers} if pod is not None else {}
    for target in action.containers:
        container = known.get(target.container)
        requests = container.requests if container is not None else NOTHING_STATED
        limits = container.limits if container is not None else NOTHING_STATED
        yield ContainerSizeChange(
            target.container,
            requests,
            target.requests.with_defaults(requests),
            limits,
            target.limits.with_defaults(limits),
        )


def index_pods(done: NodePassResult) -> PodsByName:
    """Return the pods that a pass saw, by (namespace, name)."""
    return {(pod.namespace, pod.name): pod for pod in done.snapshot.pods}


def build_size_changes_document(
    outcome: Outcome, pods: PodsByName, sizes: Callable[[StatedResources, StatedResources], object]
) -> Sequence[dict[str, object]]:
    """Return the changes for programs; `sizes` writes requests and limits."""
    return [
        {
            "container": change.container,
            "before": sizes(change.requests_before, change.limits_before),
            "after": sizes(change.requests_after, change.limits_after),
        }
        for change in list_size_changes(outcome, pods)
    ]


_MOST_CONTAINERS = 4


def describe_resize_cause(action: ResizePod) -> str:
    """Return the cause of a resize, as exactly as it is known."""
    return REASON_DESCRIPTIONS[action.reason] if action.cause is None else CAUSE_DESCRIPTIONS[action.cause]


def format_resize(action: ResizePod, before: Sequence[Container | ContainerTarget], arrow: str = "->") -> str:
    """Write what a resize changes, as `cpu 500m -> 130m, memory 512Mi -> 270Mi`; containers by name if several.

    `before` are the sizes that it found, empty where they are not known: then what it wrote is told.
    """
    known = {one.container if isinstance(one, ContainerTarget) else one.name: one for one in before}
    parts = [
        (target.container, list(_of_container(target, known.get(target.container), arrow)))
        for target in action.containers
    ]
    changed = [(name, changes) for name, changes in parts if changes]
    if not changed:
        return "as it was"
    if len(action.containers) == 1:
        return ", ".join(changed[0][1])
    listed = "; ".join(f"{name} {', '.join(changes)}" for name, changes in changed[:_MOST_CONTAINERS])
    more = len(changed) - _MOST_CONTAINERS
    return f"{listed}; and {more} more" if more > 0 else listed


def _of_container(target: ContainerTarget, before: Container | ContainerTarget | None, arrow: str) -> Iterable[str]:
    requests, limits = (NOTHING_STATED, NOTHING_STATED) if before is None else (before.requests, before.limits)
    yield from _of_amounts("", target.requests, requests, arrow)
    yield from _of_amounts(" limit", target.limits, limits, arrow)


def _of_amounts(suffix: str, wanted: StatedResources, now: StatedResources, arrow: str) -> Iterable[str]:
    pairs = (
        ("cpu", wanted.cpu_millicores, now.cpu_millicores, format_cpu_millicores),
        ("memory", wanted.memory_bytes, now.memory_bytes, format_memory_bytes),
    )
    for name, value, old, text in pairs:
        if value is not None and value != old:
            yield (
                f"{name}{suffix} {text(value)}" if old is None else f"{name}{suffix} {text(old)} {arrow} {text(value)}"
            )

"""Node plans as a JSON document, whose keys are a contract, and the sizes that they change."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from cruise.decisions.sizing.node_plans import NodePlan
from cruise.domain.actions import ContainerTarget, Outcome, ResizePod
from cruise.domain.cluster import Container, PodsByName
from cruise.domain.resources import MEBIBYTE, NOTHING_STATED, StatedResources, format_memory_bytes
from cruise.interfaces.reasons import CAUSE_DESCRIPTIONS, REASON_DESCRIPTIONS
from cruise.kube_json.patches import build_resize_patch
from cruise.runtime.node_pass import NodePassResult

_CHUNK_BYTES = 1 << 20


class _PlanJson(msgspec.Struct, rename="camel", gc=False):
    """The base of the structures below, with keys in camel case."""


class _AmountsJson(_PlanJson):
    cpu_millicores: int
    memory_bytes: int


class _EvictionJson(_PlanJson):
    namespace: str
    pod: str
    ranking: str
    resource: str


class _TargetJson(_PlanJson):
    namespace: str
    pod: str
    container: str
    cpu_millicores: int
    memory_bytes: int
    memory_limit_bytes: int | None


class _ResizeJson(_PlanJson):
    namespace: str
    pod: str
    patch: dict[str, object]


class _SkippedPodJson(_PlanJson):
    namespace: str
    pod: str
    reason: str


class _NodePlanJson(_PlanJson):
    node: str
    fits: bool
    reason: str | None
    available: _AmountsJson
    evict: list[_EvictionJson]
    targets: list[_TargetJson]
    resize: list[_ResizeJson]
    hold: list[_SkippedPodJson]


def render_plan_json(plans: Sequence[NodePlan]) -> Iterator[bytes]:
    """Yield the document in chunks, so that the plan of a large cluster is not in memory twice."""
    encoder = msgspec.json.Encoder()
    chunk = bytearray(b'{"nodes":[')
    for number, plan in enumerate(sorted(plans, key=lambda plan: plan.node)):
        if number:
            chunk += b","
        chunk += encoder.encode(build_node_plan_document(plan))
        if len(chunk) >= _CHUNK_BYTES:
            yield bytes(chunk)
            chunk.clear()
    yield bytes(chunk + b"]}\n")


def build_node_plan_document(plan: NodePlan) -> msgspec.Struct:
    """Return one node's plan, ready to be encoded."""
    return _NodePlanJson(
        node=plan.node,
        fits=plan.fits,
        reason=plan.reason,
        available=_AmountsJson(plan.available.cpu_millicores, plan.available.memory_bytes),
        evict=[_EvictionJson(one.namespace, one.pod, one.ranking.label, one.resource) for one in plan.evict],
        targets=[
            _TargetJson(
                target.namespace,
                target.pod,
                target.container,
                target.cpu_millicores,
                target.memory_bytes,
                target.memory_limit_bytes or None,
            )
            for target in sorted(plan.targets, key=lambda target: target[:3])
        ],
        resize=[
            _ResizeJson(one.namespace, one.pod, build_resize_patch(one))
            for one in sorted(plan.resize, key=lambda one: (one.namespace, one.pod))
        ],
        hold=[
            _SkippedPodJson(one.namespace, one.pod, one.reason)
            for one in sorted(plan.skipped, key=lambda one: (one.namespace, one.pod))
        ],
    )


@dataclass(frozen=True, slots=True)
class ContainerSizeChange:
    """One container of a resize; an amount that the resize does not change is the same before and after."""

    container: str
    requests_before: StatedResources
    requests_after: StatedResources
    limits_before: StatedResources
    limits_after: StatedResources


def list_size_changes(outcome: Outcome, pods: PodsByName) -> Iterator[ContainerSizeChange]:
    """Yield the changes of a resize, nothing for any other action."""
    action = outcome.action
    if not isinstance(action, ResizePod):
        return
    pod = pods.get((action.namespace, action.pod))
    containers = {part.name: part for part in pod.resizable_parts} if pod is not None else {}
    for target in action.containers:
        container = containers.get(target.container)
        requests = container.requests if container is not None else NOTHING_STATED
        limits = container.limits if container is not None else NOTHING_STATED
        yield ContainerSizeChange(
            target.container,
            requests,
            target.requests.with_defaults(requests),
            limits,
            target.limits.with_defaults(limits),
        )


def index_pods(node_pass: NodePassResult) -> PodsByName:
    """Return the pods of a node pass by (namespace, name)."""
    return {(pod.namespace, pod.name): pod for pod in node_pass.snapshot.pods}


def build_size_changes_document(
    outcome: Outcome, pods: PodsByName, sizes: Callable[[StatedResources, StatedResources], object]
) -> Sequence[dict[str, object]]:
    """Return the changes for a JSON document; `sizes` converts requests and limits."""
    return [
        {
            "container": change.container,
            "before": sizes(change.requests_before, change.limits_before),
            "after": sizes(change.requests_after, change.limits_after),
        }
        for change in list_size_changes(outcome, pods)
    ]


_MAX_CONTAINERS = 4


def describe_resize_cause(action: ResizePod) -> str:
    """Return the cause of a resize, or its reason if the cause is unknown."""
    return REASON_DESCRIPTIONS[action.reason] if action.cause is None else CAUSE_DESCRIPTIONS[action.cause]


def format_resize(action: ResizePod, before: Sequence[Container | ContainerTarget], arrow: str = "->") -> str:
    """Write the changes of a resize, as `cpu 500m -> 130m, memory 512Mi -> 270Mi`; with names of several containers.

    `before` are the sizes before the resize; if empty, only the new sizes are written.
    """
    sizes_before = {one.container if isinstance(one, ContainerTarget) else one.name: one for one in before}
    parts = [
        (target.container, list(_format_container(target, sizes_before.get(target.container), arrow)))
        for target in action.containers
    ]
    changed = [(name, changes) for name, changes in parts if changes]
    if not changed:
        return "unchanged"
    if len(action.containers) == 1:
        return ", ".join(changed[0][1])
    listed = "; ".join(f"{name} {', '.join(changes)}" for name, changes in changed[:_MAX_CONTAINERS])
    more = len(changed) - _MAX_CONTAINERS
    return f"{listed}; and {more} more" if more > 0 else listed


def _format_container(target: ContainerTarget, before: Container | ContainerTarget | None, arrow: str) -> Iterable[str]:
    requests, limits = (NOTHING_STATED, NOTHING_STATED) if before is None else (before.requests, before.limits)
    yield from _format_amounts("", target.requests, requests, arrow)
    yield from _format_amounts(" limit", target.limits, limits, arrow)


def _format_mebibytes_exactly(memory_bytes: int) -> str:
    return f"{memory_bytes // MEBIBYTE}Mi" if not memory_bytes % MEBIBYTE else format_memory_bytes(memory_bytes)


def _format_amounts(suffix: str, after: StatedResources, before: StatedResources, arrow: str) -> Iterable[str]:
    # Always in millicores and MiB, so that amounts can be compared.
    amounts = (
        ("cpu", after.cpu_millicores, before.cpu_millicores, lambda millicores: f"{millicores}m"),
        ("memory", after.memory_bytes, before.memory_bytes, _format_mebibytes_exactly),
    )
    for name, new, old, write in amounts:
        if new is not None and new != old:
            yield f"{name}{suffix} {write(new)}" if old is None else f"{name}{suffix} {write(old)} {arrow} {write(new)}"

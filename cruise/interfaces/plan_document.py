"""Node plans as a JSON document; its keys are a contract."""

from collections.abc import Iterator, Sequence

import msgspec

from cruise.decisions.sizing.node_plans import NodePlan
from cruise.kube_json.patches import build_resize_patch

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

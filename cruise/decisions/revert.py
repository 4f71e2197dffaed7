"""Reverts every pod to the sizes that it had before cruise, as far as an in-place resize can (ADR 0019)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cruise.decisions.pod_policy.limit_ranges import forbids_resize
from cruise.decisions.pod_policy.resizable_pod import resizes_no_pods, supports_pod_level_resize
from cruise.decisions.sizing.memory_limit import supports_lowering_memory_limits
from cruise.decisions.sizing.resizes import build_resize, compute_growth, has_sizes
from cruise.domain.actions import ContainerTarget, ReasonCode, ResizePod
from cruise.domain.autoscalers import LimitRangeItem
from cruise.domain.cluster import ClusterSnapshot, Container, Node, Pod, QosClass
from cruise.domain.pod_resources import get_qos_class, replace_spec_resources
from cruise.domain.reasons import ReasonDetailCode
from cruise.domain.resources import NO_RESOURCES, StatedResources

# Requests and limits by container name.
OriginalSizesByUid = Mapping[str, tuple[StatedResources, StatedResources]]


@dataclass(frozen=True, slots=True)
class PodRevert:
    """The resize that reverts a pod, and what it cannot restore; with a skip reason it is not attempted."""

    resize: ResizePod
    skipped: ReasonCode | None = None
    detail: str = ""


def decide_reverts(snapshot: ClusterSnapshot, originals: Mapping[str, OriginalSizesByUid]) -> list[PodRevert]:
    """Return the reverts of all pods that differ from their original sizes: decreases first, then by name.

    `originals` holds the original sizes by pod uid; other pods stay unchanged.
    """
    nodes = {node.name: node for node in snapshot.nodes}
    found = []
    for pod in snapshot.pods:
        original = originals.get(pod.uid)
        if original is None or pod.is_finished or pod.terminating:
            continue
        node = nodes.get(pod.node) if pod.node is not None else None
        revert = _decide(pod, original, node, snapshot.limit_ranges.get(pod.namespace, ()))
        if revert is not None:
            found.append(revert)
    return sorted(found, key=lambda one: (one.resize.growth != NO_RESOURCES, one.resize.namespace, one.resize.pod))


def _decide(
    pod: Pod, original: OriginalSizesByUid, node: Node | None, ranges: Sequence[LimitRangeItem]
) -> PodRevert | None:
    targets, not_restored = [], []
    for container in pod.resizable_parts:
        if container.name in original:
            target, details = _build_target(container, *original[container.name], node)
            if pod.qos is QosClass.GUARANTEED:
                # If the limit cannot be restored, the request cannot either.
                target = replace(target, requests=target.limits)
            targets.append(target)
            not_restored += [detail.create(container.name) for detail in details]
    resize = build_resize(pod, tuple(targets), compute_growth(pod, targets), ReasonCode.REVERTED)
    detail = "; ".join(not_restored)
    if has_sizes(pod, targets):
        return PodRevert(resize, ReasonCode.CANNOT_RESTORE, detail) if not_restored else None
    return PodRevert(resize, _explain_rejection(pod, targets, node, ranges), detail)


def _explain_rejection(
    pod: Pod, targets: Sequence[ContainerTarget], node: Node | None, ranges: Sequence[LimitRangeItem]
) -> ReasonCode | None:
    """Return why the API server or the kubelet would reject a resize."""
    reason = None
    if pod.is_mirror_pod or pod.runs_on_windows:
        reason = ReasonCode.STATIC_POD if pod.is_mirror_pod else ReasonCode.WINDOWS
    elif pod.pod_level is not None and node is not None and not supports_pod_level_resize(node):
        reason = ReasonCode.POD_LEVEL_RESOURCES
    elif node is not None and resizes_no_pods(node):
        reason = ReasonCode.RESIZE_UNSUPPORTED
    elif node is not None and not node.ready:
        reason = ReasonCode.NODE_NOT_READY
    elif get_qos_class(replace_spec_resources(pod, targets)) is not pod.qos:
        reason = ReasonCode.QOS_CHANGE
    elif ranges and forbids_resize(pod, targets, ranges):
        reason = ReasonCode.LIMIT_RANGE
    return reason


def _build_target(
    container: Container, requests: StatedResources, limits: StatedResources, node: Node | None
) -> tuple[ContainerTarget, list[ReasonDetailCode]]:
    """Return the sizes closest to the original ones that a resize can restore, and what it cannot restore."""
    can_lower_memory_limit = node is None or supports_lowering_memory_limits(node) or container.memory_resize_restarts
    cpu = _restore(
        "cpu",
        (container.requests.cpu_millicores, container.limits.cpu_millicores),
        (requests.cpu_millicores, limits.cpu_millicores),
        restarts=container.cpu_resize_restarts,
    )
    memory = _restore(
        "memory",
        (container.requests.memory_bytes, container.limits.memory_bytes),
        (requests.memory_bytes, limits.memory_bytes),
        restarts=container.memory_resize_restarts,
        can_lower_limit=can_lower_memory_limit,
    )
    target = ContainerTarget(
        container.name,
        container.role,
        StatedResources(cpu.request, memory.request),
        StatedResources(cpu.limit, memory.limit),
    )
    return target, [*cpu.not_restored, *memory.not_restored]


@dataclass(frozen=True, slots=True)
class _RestoredResource:
    """One resource's restored request and limit, and what could not be restored."""

    request: int | None
    limit: int | None
    not_restored: tuple[ReasonDetailCode, ...] = ()


def _restore(
    resource: str,
    current: tuple[int | None, int | None],
    original: tuple[int | None, int | None],
    *,
    restarts: bool,
    can_lower_limit: bool = True,
) -> _RestoredResource:
    if current == original:
        return _RestoredResource(*current)
    if restarts:
        return _RestoredResource(*current, (ReasonDetailCode(f"{resource}-needs-restart"),))
    not_restored = []
    request, limit = original
    if request is None and current[0] is not None:
        request = current[0]
        not_restored.append(ReasonDetailCode(f"{resource}-request-stays"))
    if limit is None and current[1] is not None:
        limit = max(current[1], request or 0)
        not_restored.append(ReasonDetailCode(f"{resource}-limit-stays"))
    elif limit is not None and not can_lower_limit and (current[1] is None or limit < current[1]):
        limit = None if current[1] is None else max(current[1], request or 0)
        not_restored.append(ReasonDetailCode(f"{resource}-limit-fixed"))
    elif limit is not None and limit < (request or 0):
        limit = request
        not_restored.append(ReasonDetailCode(f"{resource}-limit-too-low"))
    return _RestoredResource(request, limit, tuple(not_restored))

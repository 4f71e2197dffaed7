"""The way back: every pod to the sizes that it had before cruise, as far as a resize in place can."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cruise.decisions.pod_policy.eligibility import FIRST_RESIZING_KUBELET
from cruise.decisions.pod_policy.limit_ranges import forbids_resize
from cruise.decisions.sizing.memory_limit import supports_lowering_memory_limits
from cruise.domain.actions import ContainerTarget, ReasonCode, ResizePod
from cruise.domain.cluster import NO_RESIZE, ClusterSnapshot, Container, LimitRangeItem, Node, Pod
from cruise.domain.pod_resources import count_pod_requests, get_qos_class, replace_spec_resources
from cruise.domain.reasons import ReasonDetail
from cruise.domain.resources import NO_RESOURCES, Resources, StatedResources

# Requests and limits by container name.
OriginalSizesByUid = Mapping[str, tuple[StatedResources, StatedResources]]


@dataclass(frozen=True, slots=True)
class PodRevert:
    """One pod's way back: the resize, and the details of what it cannot restore; with `held` it is not tried."""

    resize: ResizePod
    skipped: ReasonCode | None = None
    detail: str = ""


def decide_reverts(snapshot: ClusterSnapshot, originals: Mapping[str, OriginalSizesByUid]) -> list[PodRevert]:
    """Return the way back of every pod that differs from its original sizes: shrinks first, then by name.

    `originals` are the original sizes by pod uid; pods without are left as they are.
    """
    nodes = {node.name: node for node in snapshot.nodes}
    found = []
    for pod in snapshot.pods:
        original = originals.get(pod.uid)
        if original is None or pod.is_finished or pod.terminating:
            continue
        node = nodes.get(pod.node) if pod.node is not None else None
        reversion = _decide(pod, original, node, snapshot.limit_ranges.get(pod.namespace, ()))
        if reversion is not None:
            found.append(reversion)
    return sorted(found, key=lambda one: (one.resize.growth != NO_RESOURCES, one.resize.namespace, one.resize.pod))


def _decide(
    pod: Pod, original: OriginalSizesByUid, node: Node | None, ranges: Sequence[LimitRangeItem]
) -> PodRevert | None:
    targets, lost = [], []
    for container in pod.containers:
        if container.name in original:
            target, kept = _target(container, *original[container.name], node)
            targets.append(target)
            lost += [detail.create(container.name) for detail in kept]
    resize = ResizePod(
        pod.namespace,
        pod.name,
        pod.uid,
        pod.node,
        pod.workload,
        tuple(targets),
        _growth(pod, targets),
        ReasonCode.REVERTED,
    )
    detail = "; ".join(lost)
    named = {container.name: container for container in pod.containers}
    if all(
        (target.requests, target.limits) == (named[target.container].requests, named[target.container].limits)
        for target in targets
    ):
        return PodRevert(resize, ReasonCode.CANNOT_RESTORE, detail) if lost else None
    return PodRevert(resize, _why_held(pod, targets, node, ranges), detail)


def _growth(pod: Pod, targets: Sequence[ContainerTarget]) -> Resources:
    after = count_pod_requests(replace(replace_spec_resources(pod, targets), resize=NO_RESIZE))
    return (after - count_pod_requests(pod)).at_least(NO_RESOURCES)


def _why_held(
    pod: Pod, targets: Sequence[ContainerTarget], node: Node | None, ranges: Sequence[LimitRangeItem]
) -> ReasonCode | None:
    """Tell why the API server or the kubelet would not take a resize."""
    reason = None
    if pod.mirror or pod.windows:
        reason = ReasonCode.STATIC_POD if pod.mirror else ReasonCode.WINDOWS
    elif pod.pod_requests is not None or pod.pod_limits is not None:
        reason = ReasonCode.POD_LEVEL_RESOURCES
    elif node is not None and node.kubelet_version is not None and node.kubelet_version < FIRST_RESIZING_KUBELET:
        reason = ReasonCode.RESIZE_UNSUPPORTED
    elif node is not None and not node.ready:
        reason = ReasonCode.NODE_NOT_READY
    elif get_qos_class(replace_spec_resources(pod, targets)) is not pod.qos:
        reason = ReasonCode.QOS_CHANGE
    elif ranges and forbids_resize(pod, targets, ranges):
        reason = ReasonCode.LIMIT_RANGE
    return reason


def _target(
    container: Container, requests: StatedResources, limits: StatedResources, node: Node | None
) -> tuple[ContainerTarget, list[ReasonDetail]]:
    """Return the sizes nearest to the original ones that a resize can give, and what they lack."""
    memory_falls = node is None or supports_lowering_memory_limits(node) or container.memory_resize_restarts
    cpu = _restored(
        "cpu",
        (container.requests.cpu_millicores, container.limits.cpu_millicores),
        (requests.cpu_millicores, limits.cpu_millicores),
        restarts=container.cpu_resize_restarts,
    )
    memory = _restored(
        "memory",
        (container.requests.memory_bytes, container.limits.memory_bytes),
        (requests.memory_bytes, limits.memory_bytes),
        restarts=container.memory_resize_restarts,
        limit_falls=memory_falls,
    )
    target = ContainerTarget(
        container.name,
        container.role,
        StatedResources(cpu.request, memory.request),
        StatedResources(cpu.limit, memory.limit),
    )
    return target, [*cpu.lost, *memory.lost]


@dataclass(frozen=True, slots=True)
class _RestoredResource:
    """One resource's request and limit as they are to be, and what they lack."""

    request: int | None
    limit: int | None
    lost: tuple[ReasonDetail, ...] = ()


def _restored(
    resource: str,
    now: tuple[int | None, int | None],
    original: tuple[int | None, int | None],
    *,
    restarts: bool,
    limit_falls: bool = True,
) -> _RestoredResource:
    if now == original:
        return _RestoredResource(*now)
    if restarts:
        return _RestoredResource(*now, (ReasonDetail(f"{resource}-needs-restart"),))
    lost = []
    request, limit = original
    if request is None and now[0] is not None:
        request = now[0]
        lost.append(ReasonDetail(f"{resource}-request-stays"))
    if limit is None and now[1] is not None:
        limit = max(now[1], request or 0)
        lost.append(ReasonDetail(f"{resource}-limit-stays"))
    elif limit is not None and not limit_falls and (now[1] is None or limit < now[1]):
        limit = None if now[1] is None else max(now[1], request or 0)
        lost.append(ReasonDetail(f"{resource}-limit-fixed"))
    elif limit is not None and limit < (request or 0):
        limit = request
        lost.append(ReasonDetail(f"{resource}-limit-too-low"))
    return _RestoredResource(request, limit, tuple(lost))

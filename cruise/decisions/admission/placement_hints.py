"""Placement hints: which evicted pod a new pod replaces, the node that it should run on, and its planned sizes."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from cruise.decisions.admission.admission import LeaveUnchanged, MutatePod
from cruise.decisions.pod_policy.limit_ranges import violates_limit_range
from cruise.decisions.sizing.resizes import keep_qos_class
from cruise.domain.actions import ContainerTarget, ReasonCode
from cruise.domain.annotations import PLACEMENT_HINT, format_placement_hint
from cruise.domain.autoscalers import LimitRangeItem
from cruise.domain.cluster import Container, Pod
from cruise.domain.packing_plan import PlacementHint
from cruise.domain.pod_resources import get_qos_class, replace_spec_resources
from cruise.domain.resources import StatedResources
from cruise.domain.scheduling import SchedulingConstraints, Taint, TaintEffect, Toleration

# Pods skipped for these reasons get no placement hint.
_WITHOUT_HINT = frozenset(
    {
        ReasonCode.MODE_OFF,
        ReasonCode.MODE_OBSERVE,
        ReasonCode.EXCLUDED_NAMESPACE,
        ReasonCode.NAMESPACE_NOT_INCLUDED,
        ReasonCode.UNREADABLE_ANNOTATION,
    }
)


def find_placement_hint(pod: Pod, hints: Iterable[PlacementHint], now: datetime) -> PlacementHint | None:
    """Return the first hint that applies to a pod in creation, None if none does.

    A pod that has a hint already, or is bound to a node by name as DaemonSet pods are, gets none.
    """
    if pod.owner_name is None or pod.node is not None or PLACEMENT_HINT in pod.annotations or _is_pinned(pod):
        return None
    owner_key = (pod.namespace, pod.owner_kind, pod.owner_name)
    for one in hints:
        if (
            (one.namespace, one.owner_kind, one.owner_name) == owner_key
            and one.pod in (None, pod.name)
            and now < one.expires_at
        ):
            return one
    return None


def apply_placement_hint(
    pod: Pod,
    created: Pod,
    decision: MutatePod | LeaveUnchanged,
    hint: PlacementHint,
    limit_ranges: tuple[LimitRangeItem, ...] = (),
    taints: Iterable[Taint] = (),
) -> Pod | None:
    """Return a pod as it is created with a placement hint, None if it gets none.

    `created` is the pod after admission, `taints` are those of its node. Planned sizes replace the admission sizes if
    the pod may be sized; limits never fall below them. The patch adds the preferred node; decisions read the
    annotation.
    """
    if isinstance(decision, LeaveUnchanged) and decision.reason in _WITHOUT_HINT:
        return None
    annotation = {PLACEMENT_HINT: format_placement_hint((hint.replaces, hint.node))}
    placement = tolerate_preferred_taints(created.placement, taints)
    hinted = replace(created, annotations={**created.annotations, **annotation}, placement=placement)
    # Sizes were planned for the revision of the replaced pod.
    may_size = (
        isinstance(decision, MutatePod) or decision.reason is ReasonCode.NO_CHANGE_NEEDED
    ) and not decision.new_revision
    if not hint.containers or not may_size:
        return hinted
    planned = {target.container: target for target in hint.containers}
    targets = tuple(
        _apply_planned_sizes(container, planned[container.name])
        for container in created.containers
        if container.name in planned
    )
    targets = keep_qos_class(created, targets)
    sized = replace_spec_resources(hinted, targets)
    if get_qos_class(sized) is not created.qos or violates_limit_range(hinted, targets, limit_ranges):
        return hinted
    return sized


def tolerate_preferred_taints(placement: SchedulingConstraints, taints: Iterable[Taint]) -> SchedulingConstraints:
    """Return a placement that also tolerates the taints with effect PreferNoSchedule.

    In kube-scheduler's default weights such a taint outweighs a preferred node.
    """
    added = tuple(
        Toleration(taint.key, exists=True, effect=taint.effect)
        for taint in taints
        if taint.effect is TaintEffect.PREFER_NO_SCHEDULE
        and not any(toleration.tolerates(taint) for toleration in placement.tolerations)
    )
    return replace(placement, tolerations=(*placement.tolerations, *dict.fromkeys(added))) if added else placement


def _is_pinned(pod: Pod) -> bool:
    return any(term.fields for term in pod.placement.terms or ())


def _apply_planned_sizes(container: Container, target: ContainerTarget) -> ContainerTarget:
    requests = target.requests.with_defaults(container.requests)
    limits = StatedResources(
        _raise_limit(container.limits.cpu_millicores, requests.cpu_millicores),
        _raise_limit(container.limits.memory_bytes, requests.memory_bytes, target.limits.memory_bytes),
    )
    return replace(target, role=container.role, requests=requests, limits=limits)


def _raise_limit(limit: int | None, *floors: int | None) -> int | None:
    """Return a limit raised to its floors; a missing limit stays missing."""
    return None if limit is None else max(limit, *(floor for floor in floors if floor is not None), limit)

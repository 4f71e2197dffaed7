"""Where a pod that is being created is sent, which pod it replaces, and with which sizes."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from cruise.decisions.admission.admission import LeaveUnchanged, MutatePod
from cruise.decisions.pod_policy.limit_ranges import violates_limit_range
from cruise.domain.actions import ContainerTarget, ReasonCode
from cruise.domain.annotations import PLACEMENT_HINT, format_placement_hint
from cruise.domain.cluster import Container, LimitRangeItem, Pod
from cruise.domain.packing_plan import PlacementHint
from cruise.domain.pod_resources import get_qos_class, replace_spec_resources
from cruise.domain.resources import StatedResources
from cruise.domain.scheduling import SchedulingConstraints, Taint, TaintEffect, Toleration

# A pod that is left alone is not steered either.
_LEFT_ALONE = frozenset(
    {ReasonCode.MODE_OFF, ReasonCode.MODE_OBSERVE, ReasonCode.EXCLUDED_NAMESPACE, ReasonCode.UNREADABLE_ANNOTATION}
)


def find_placement_hint(pod: Pod, waiting: Iterable[PlacementHint], now: datetime) -> PlacementHint | None:
    """Return the first of those expected that a pod in creation may be; None for any other pod.

    A pod that is steered already is none of them, nor is one that is bound to a node by its name, as DaemonSets' are.
    """
    if pod.owner_name is None or pod.node is not None or PLACEMENT_HINT in pod.annotations or _is_pinned(pod):
        return None
    owner = (pod.namespace, pod.owner_kind, pod.owner_name)
    for one in waiting:
        if (
            (one.namespace, one.owner_kind, one.owner_name) == owner
            and one.pod in (None, pod.name)
            and now < one.expires_at
        ):
            return one
    return None


def apply_placement_hint(
    pod: Pod,
    created: Pod,
    decision: MutatePod | LeaveUnchanged,
    one: PlacementHint,
    limit_ranges: tuple[LimitRangeItem, ...] = (),
    taints: Iterable[Taint] = (),
) -> Pod | None:
    """Return a pod as it is created where it is steered, None where it is left alone.

    `created` is what admission makes of it, `taints` are those of its node. Planned sizes take the place of the peak's
    where the pod may be sized; limits never fall under them. The preferred node is added with the patch: decisions
    read the annotation.
    """
    if isinstance(decision, LeaveUnchanged) and decision.reason in _LEFT_ALONE:
        return None
    note = {PLACEMENT_HINT: format_placement_hint((one.replaces, one.node))}
    placement = tolerate_preferred_taints(created.placement, taints)
    marked = replace(created, annotations={**created.annotations, **note}, placement=placement)
    # What was planned is for the revision that the pod before it was of.
    may_size = (
        isinstance(decision, MutatePod) or decision.reason is ReasonCode.NO_CHANGE_NEEDED
    ) and not decision.new_revision
    if not one.containers or not may_size:
        return marked
    planned = {target.container: target for target in one.containers}
    targets = tuple(
        _sized(container, planned[container.name]) for container in created.containers if container.name in planned
    )
    sized = replace_spec_resources(marked, targets)
    if get_qos_class(sized) is not created.qos or violates_limit_range(marked, targets, limit_ranges):
        return marked
    return sized


def tolerate_preferred_taints(placement: SchedulingConstraints, taints: Iterable[Taint]) -> SchedulingConstraints:
    """Return a placement that also tolerates those taints which ask pods to keep away, and forbid nothing.

    In kube-scheduler's default weights such a taint counts more than a preferred node.
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


def _sized(container: Container, target: ContainerTarget) -> ContainerTarget:
    requests = StatedResources(
        _or(target.requests.cpu_millicores, container.requests.cpu_millicores),
        _or(target.requests.memory_bytes, container.requests.memory_bytes),
    )
    limits = StatedResources(
        _at_least(container.limits.cpu_millicores, requests.cpu_millicores),
        _at_least(container.limits.memory_bytes, requests.memory_bytes, target.limits.memory_bytes),
    )
    return replace(target, role=container.role, requests=requests, limits=limits)


def _or(planned: int | None, now: int | None) -> int | None:
    return now if planned is None else planned


def _at_least(limit: int | None, *floors: int | None) -> int | None:
    """Return a limit raised to its floors; where there is none, none is added."""
    return None if limit is None else max(limit, *(floor for floor in floors if floor is not None), limit)

"""Where a pod that is being created is sent, which pod it replaces, and with which sizes."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from cruise.decisions.admission.admission import Leave, Mutate
from cruise.decisions.guidance.limit_ranges import breaks_limit_range
from cruise.domain.actions import ContainerTarget, Reason
from cruise.domain.annotations import STEERED, write_steered
from cruise.domain.cluster import Container, LimitRangeItem, Pod
from cruise.domain.packing import Steering
from cruise.domain.qos import qos_class
from cruise.domain.resources import Amounts
from cruise.domain.scheduling import Placement, Taint, TaintEffect, Toleration
from cruise.domain.sizes import with_sizes

# A pod that is left alone is not steered either.
_LEFT_ALONE = frozenset({Reason.MODE_OFF, Reason.MODE_OBSERVE, Reason.EXCLUDED_NAMESPACE, Reason.UNREADABLE_ANNOTATION})


def find_steering(pod: Pod, waiting: Iterable[Steering], now: datetime) -> Steering | None:
    """Return the first of those expected that a pod in creation may be; None for any other pod.

    A pod that is steered already is none of them, nor is one that is bound to a node by its name, as DaemonSets' are.
    """
    if pod.owner_name is None or pod.node is not None or STEERED in pod.annotations or _is_pinned(pod):
        return None
    owner = (pod.namespace, pod.owner_kind, pod.owner_name)
    for one in waiting:
        if (one.namespace, one.owner_kind, one.owner_name) == owner and one.pod in (None, pod.name) and now < one.until:
            return one
    return None


def steered(
    pod: Pod,
    created: Pod,
    decision: Mutate | Leave,
    one: Steering,
    limit_ranges: tuple[LimitRangeItem, ...] = (),
    taints: Iterable[Taint] = (),
) -> Pod | None:
    """Return a pod as it is created where it is steered, None where it is left alone.

    `created` is what admission makes of it, `taints` are those of its node. Planned sizes take the place of the peak's
    where the pod may be sized; limits never fall under them. The preferred node is added with the patch: decisions
    read the annotation.
    """
    if isinstance(decision, Leave) and decision.reason in _LEFT_ALONE:
        return None
    note = {STEERED: write_steered((one.replaces, one.node))}
    placement = undeterred(created.placement, taints)
    marked = replace(created, annotations={**created.annotations, **note}, placement=placement)
    # What was planned is for the revision that the pod before it was of.
    may_size = (isinstance(decision, Mutate) or decision.reason is Reason.SETTLED) and not decision.new_revision
    if not one.containers or not may_size:
        return marked
    planned = {target.container: target for target in one.containers}
    targets = tuple(
        _sized(container, planned[container.name]) for container in created.containers if container.name in planned
    )
    sized = with_sizes(marked, targets)
    if qos_class(sized) is not created.qos or breaks_limit_range(marked, targets, limit_ranges):
        return marked
    return sized


def undeterred(placement: Placement, taints: Iterable[Taint]) -> Placement:
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
    requests = Amounts(
        _or(target.requests.cpu_millicores, container.requests.cpu_millicores),
        _or(target.requests.memory_bytes, container.requests.memory_bytes),
    )
    limits = Amounts(
        _at_least(container.limits.cpu_millicores, requests.cpu_millicores),
        _at_least(container.limits.memory_bytes, requests.memory_bytes, target.limits.memory_bytes),
    )
    return replace(target, role=container.role, requests=requests, limits=limits)


def _or(planned: int | None, now: int | None) -> int | None:
    return now if planned is None else planned


def _at_least(limit: int | None, *floors: int | None) -> int | None:
    """Return a limit raised to its floors; where there is none, none is added."""
    return None if limit is None else max(limit, *(floor for floor in floors if floor is not None), limit)

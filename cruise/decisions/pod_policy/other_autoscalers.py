"""What other autoscalers do to pods: HPAs that scale by utilisation, and VPAs that size (ADR 0015).

An autoscaler's pods are those that its target controls and those that the target's scale selects. Until the scale has
been read, they may be any pods of the namespace except those of another target of the same kind; if a target has no
scale, any pods that do not clearly belong to another one. A scale that cannot be read, because of permissions or a
missing selector, may never be: then they are the pods that the target controls, and if it controls none, an HPA's
resources are skipped in every pod of the namespace.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from cruise.domain.autoscalers import VpaContainerPolicy, get_foreign_api_group
from cruise.domain.cluster import (
    ClusterSnapshot,
    HorizontalPodAutoscaler,
    Pod,
    VerticalPodAutoscaler,
    WorkloadRef,
)
from cruise.domain.reasons import ReasonDetailCode
from cruise.domain.resources import ResourceName
from cruise.domain.run_to_completion_operators import POD_CONTROLLER_KINDS, WORKLOAD_GROUP
from cruise.domain.scheduling import LabelSelector

Labels = tuple[tuple[str, str], ...]


class AutoscalerClaims(NamedTuple):
    """What other autoscalers do to a pod: `scaled` are the resources on whose utilisation an HPA acts.

    `scaled_by` and `sized_by` name the HPA and the VPA, empty if there is none. `autoscaler` is the name of the HPA if
    only one scales the pod, and certainly does. `pending` describes a scale that may select the pod and has not been
    read yet. `left_by_vpa` are the resources that the VPA does not control, by container, and for all others by "".
    """

    scaled: frozenset[ResourceName] = frozenset()
    scaled_by: str = ""
    sized_by: str = ""
    pending: str = ""
    autoscaler: str = ""
    left_by_vpa: tuple[tuple[str, frozenset[ResourceName]], ...] = ()

    def is_sized_as_whole(self, pod: Pod) -> bool:
        """Return whether a VPA sizes the pod as a whole: it leaves no container and no resource of it."""
        return bool(self.sized_by) and (pod.pod_level is not None or not self.left_by_vpa)

    def get_unclaimed_resources(self, container: str) -> frozenset[ResourceName]:
        """Return the resources of a container on which no other autoscaler acts."""
        if not self.sized_by:
            return _ALL - self.scaled
        left = dict(self.left_by_vpa)
        return left.get(container, left.get("", frozenset())) - self.scaled


_ALL = frozenset(ResourceName)
NO_AUTOSCALER_CLAIMS = AutoscalerClaims()

# Kinds between a workload and its pods.
_BELOW_WORKLOADS = frozenset({"Job", "ReplicaSet"})


@dataclass(frozen=True, slots=True)
class _AutoscalerClaim:
    """One autoscaler; `is_plain` if pods name its target as their controller, `left` as in `AutoscalerClaims`."""

    name: str
    target: WorkloadRef
    scaled: frozenset[ResourceName]
    sizes: bool
    is_plain: bool
    selector: LabelSelector | None
    answered: bool
    unreadable: bool
    left: tuple[tuple[str, frozenset[ResourceName]], ...] = ()


class AutoscalerIndex:
    """The autoscalers of one snapshot; equal pods share a result.

    All pods of a workload are equal, except in the namespaces `by_pod`, where labels and direct owners matter as well.
    """

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._snapshot = snapshot
        self._claims: dict[str, list[_AutoscalerClaim]] = {}
        for namespace, claim in _iterate_claims(snapshot):
            self._claims.setdefault(namespace, []).append(claim)
        self.by_pod = frozenset(
            namespace
            for namespace, claims in self._claims.items()
            if not all(one.is_plain and one.target.kind not in _BELOW_WORKLOADS for one in claims)
        )
        self._found: dict[tuple[str, WorkloadRef | None, str | None, str | None, Labels], AutoscalerClaims] = {}

    def forget_pods(self) -> None:
        """Drop the results for the pods so far."""
        self._found.clear()

    def has_claims(self, namespace: str) -> bool:
        """Return whether a namespace has autoscalers."""
        return namespace in self._claims

    def find_for_pod(self, pod: Pod) -> AutoscalerClaims:
        """Return what other autoscalers do to a pod."""
        if pod.namespace not in self._claims:
            return NO_AUTOSCALER_CLAIMS
        if pod.namespace not in self.by_pod:
            return self._find(pod)
        labels = tuple(sorted(pod.labels.items()))
        key = (pod.namespace, pod.workload, pod.owner_kind, pod.owner_name, labels)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._find(pod)
        return found

    def _find(self, pod: Pod) -> AutoscalerClaims:
        scaled: frozenset[ResourceName] = frozenset()
        scaled_by = sized_by = pending = ""
        names: list[str] = []
        sizing: list[_AutoscalerClaim] = []
        is_doubtful = False
        chain = self._get_owner_chain(pod)
        for claim in self._claims[pod.namespace]:
            is_certain = claim.target in chain.controllers
            if claim.selector is not None:
                is_certain = is_certain or claim.selector.matches(pod.labels)
            is_possible = not is_certain and not claim.answered and _may_select(claim.target, chain)
            if is_possible and not claim.unreadable:
                pending = pending or ReasonDetailCode.SCALE_NOT_READ.create(claim.target)
                continue
            if is_possible and (pod.namespace, claim.target) in self._known_controllers:
                continue
            if is_possible and not claim.sizes:
                scaled |= claim.scaled
                scaled_by = scaled_by or ReasonDetailCode.SCALE_UNREADABLE.create(claim.target)
                is_doubtful = True
                continue
            if is_possible:
                sized_by = sized_by or ReasonDetailCode.SCALE_UNREADABLE.create(claim.target)
                continue
            if not is_certain and (
                claim.is_plain or claim.selector is not None or not _may_own(claim.target, pod, chain)
            ):
                continue
            if claim.sizes:
                detail = ReasonDetailCode.SIZED_BY_VPA if is_certain else ReasonDetailCode.MAY_BE_SIZED_BY_VPA
                sized_by = sized_by or detail.create(claim.name)
                sizing += [claim] if is_certain else []
            else:
                detail = (
                    ReasonDetailCode.UTILISATION_TARGETED
                    if is_certain
                    else ReasonDetailCode.UTILISATION_MAY_BE_TARGETED
                )
                scaled |= claim.scaled
                scaled_by = scaled_by or detail.create(claim.name)
                names.append(claim.name)
                is_doubtful |= not is_certain
        if len(names) > 1:
            scaled_by = ReasonDetailCode.SEVERAL_HPAS.create(", ".join(names))
        autoscaler = names[0] if len(names) == 1 and not is_doubtful else ""
        # One that may size the pod leaves nothing, nor do several, which VPA does not support.
        is_one = len(sizing) == 1 and sized_by == ReasonDetailCode.SIZED_BY_VPA.create(sizing[0].name)
        left = sizing[0].left if is_one else ()
        return AutoscalerClaims(scaled, scaled_by, sized_by, pending, autoscaler, left)

    @cached_property
    def _known_controllers(self) -> frozenset[tuple[str, WorkloadRef]]:
        """The controllers of pods, by namespace, for targets whose scale cannot be read."""
        concerned = {namespace for namespace, claims in self._claims.items() if any(one.unreadable for one in claims)}
        pods = [pod for pod in self._snapshot.pods if pod.namespace in concerned]
        return frozenset((pod.namespace, one) for pod in pods for one in self._get_owner_chain(pod).controllers)

    def _get_owner_chain(self, pod: Pod) -> "_OwnerChain":
        if pod.workload is None:
            return _OwnerChain((), is_whole=True)
        direct = WorkloadRef(pod.owner_kind or "", pod.owner_name or "")
        workload = self._snapshot.workloads.get((pod.namespace, pod.workload))
        if workload is None or not workload.is_read:
            return _OwnerChain((direct, pod.workload), is_whole=False)
        if workload.controller is None:
            return _OwnerChain((direct, pod.workload), is_whole=True)
        return _OwnerChain((direct, pod.workload, workload.controller), is_whole=False)


class _OwnerChain(NamedTuple):
    """The controllers of a pod, from its owner upwards; `is_whole` if nothing controls the last one."""

    controllers: tuple[WorkloadRef, ...]
    is_whole: bool


def _may_select(target: WorkloadRef, chain: _OwnerChain) -> bool:
    """Return whether an unknown scale may select a pod: a selector need not follow ownership."""
    return not any(one.kind == target.kind and one != target for one in chain.controllers)


def _may_own(target: WorkloadRef, pod: Pod, chain: _OwnerChain) -> bool:
    """Return whether a target whose pods are unknown may own a pod.

    It may if the controller of the pod's topmost owner is unknown, unless that owner is another one of the target's
    kind. If there is no such controller, names decide: some operators create objects without an owner reference.
    """
    if not chain.controllers:
        return False
    top = chain.controllers[-1]
    if not chain.is_whole:
        return top.kind != target.kind
    return f"{top.name}-".startswith(f"{target.name}-") or target.name in pod.labels.values()


def _iterate_claims(snapshot: ClusterSnapshot) -> Iterator[tuple[str, _AutoscalerClaim]]:
    for one in snapshot.autoscalers:
        if one.utilisation_resources:
            yield one.namespace, _build_claim(one, one.target, snapshot, one.utilisation_resources)
    for vertical in snapshot.vertical_autoscalers:
        if vertical.changes_pods and vertical.target is not None:
            yield vertical.namespace, _build_claim(vertical, vertical.target, snapshot)


def _build_claim(
    one: HorizontalPodAutoscaler | VerticalPodAutoscaler,
    target: WorkloadRef,
    snapshot: ClusterSnapshot,
    scaled: frozenset[ResourceName] = frozenset(),
) -> _AutoscalerClaim:
    return _AutoscalerClaim(
        one.name,
        target,
        scaled,
        isinstance(one, VerticalPodAutoscaler),
        target.kind in POD_CONTROLLER_KINDS,
        snapshot.scales.get((one.namespace, target)),
        target.kind in POD_CONTROLLER_KINDS or (one.namespace, target) in snapshot.scales,
        (one.namespace, target) in snapshot.unreadable_scales,
        _list_left_resources(one) if isinstance(one, VerticalPodAutoscaler) else (),
    )


def _get_controlled(rule: VpaContainerPolicy) -> frozenset[ResourceName]:
    if rule.is_off:
        return frozenset()
    return _ALL if rule.controlled_resources is None else rule.controlled_resources


def _list_left_resources(vertical: VerticalPodAutoscaler) -> tuple[tuple[str, frozenset[ResourceName]], ...]:
    """Return the resources that a VPA does not control, by container; empty if it controls all.

    The policy for all containers does not apply to one that has its own.
    """
    left = {one.container: _ALL - _get_controlled(one) for one in vertical.rules}
    return tuple(sorted(left.items())) if any(left.values()) else ()


_FOLLOWED = _BELOW_WORKLOADS | {"CronJob", "Deployment"}


def describe_pending_lookup(pod: Pod, snapshot: ClusterSnapshot, claimed: AutoscalerClaims) -> str:
    """Describe a lookup that decides about a pod and has not completed; empty if all have.

    Lookups are the namespace (annotations, LimitRanges, quotas), the controller of a ReplicaSet or Job, and the scales
    of autoscalers' targets. A snapshot from a file has no pending lookups.
    """
    if snapshot.namespaces is not None:
        if pod.namespace not in snapshot.namespaces:
            return ReasonDetailCode.NAMESPACE_NOT_SEEN
        ref = pod.workload
        followed = ref is not None and pod.owner_kind in _BELOW_WORKLOADS and ref.kind in _FOLLOWED
        if followed and (pod.namespace, ref) not in snapshot.workloads:
            return ReasonDetailCode.OWNER_NOT_SEEN.create(ref)
    return claimed.pending


def find_workloads_with_same_name(snapshot: ClusterSnapshot) -> frozenset[tuple[str, WorkloadRef]]:
    """Return the workloads of the same kind and name in different API groups: statistics cannot tell them apart.

    What users named the same is the same.
    """
    groups: dict[tuple[str, WorkloadRef], set[str]] = {}
    for pod in snapshot.pods:
        if pod.owner_group and pod.workload is not None and pod.workload.kind != WORKLOAD_GROUP:
            groups.setdefault((pod.namespace, pod.workload), set()).add(pod.owner_group)
    if not groups:
        return frozenset()
    for key in groups.keys() & snapshot.workloads.keys():
        groups[key].add(get_foreign_api_group(snapshot.workloads[key].api_version))
    for pod in snapshot.pods:
        if not pod.owner_group and pod.workload is not None and (pod.namespace, pod.workload) in groups:
            groups[pod.namespace, pod.workload].add("")
    return frozenset(key for key, found in groups.items() if len(found) > 1)

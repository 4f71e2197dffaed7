"""What other autoscalers do to pods: HPAs that scale by utilisation, VPAs that size.

Their pods are those that their target controls, and those that its scale selects. Until the scale was answered it may
be any pod of the namespace but those of another target of that kind; where a target has no scale, any that cannot be
shown to be another's. A scale that cannot be read, for want of rights or of a selector, may never be answered: then it
is the pods that the target controls, and where it controls none, any pod of the namespace loses what an HPA scales.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from cruise.domain.cluster import (
    POD_CONTROLLER_KINDS,
    ClusterSnapshot,
    HorizontalPodAutoscaler,
    Pod,
    VerticalPodAutoscaler,
    WorkloadRef,
)
from cruise.domain.cluster_policies import get_foreign_group
from cruise.domain.reasons import ReasonDetail
from cruise.domain.resources import ResourceName
from cruise.domain.scheduling import LabelSelector

Labels = tuple[tuple[str, str], ...]


class AutoscalerClaims(NamedTuple):
    """What others do to a pod: `scaled` are the resources on whose utilisation an HPA acts.

    `scaled_by` and `sized_by` are details that name the HPA and the VPA, empty where there is none. `pending` is the
    detail of a scale that may select the pod and was not answered yet.
    """

    scaled: frozenset[ResourceName] = frozenset()
    scaled_by: str = ""
    sized_by: str = ""
    pending: str = ""


NO_AUTOSCALER_CLAIMS = AutoscalerClaims()

# Kinds that a workload may have between itself and its pods.
_BELOW_WORKLOADS = frozenset({"Job", "ReplicaSet"})


@dataclass(frozen=True, slots=True)
class _AutoscalerClaim:
    """One autoscaler; `is_plain` where pods name the target as their controller."""

    name: str
    target: WorkloadRef
    scaled: frozenset[ResourceName]
    sizes: bool
    is_plain: bool
    selector: LabelSelector | None
    answered: bool
    unreadable: bool


class AutoscalerIndex:
    """The autoscalers of one snapshot; pods that are alike share what is found for them.

    All pods of a workload are alike, save in the namespaces `by_pod`: there labels and direct owners matter as well.
    """

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._snapshot = snapshot
        self._claims: dict[str, list[_AutoscalerClaim]] = {}
        for namespace, claim in _claims_of(snapshot):
            self._claims.setdefault(namespace, []).append(claim)
        self.by_pod = frozenset(
            namespace
            for namespace, claims in self._claims.items()
            if not all(one.is_plain and one.target.kind not in _BELOW_WORKLOADS for one in claims)
        )
        self._found: dict[tuple[str, WorkloadRef | None, str | None, str | None, Labels], AutoscalerClaims] = {}

    def forget_pods(self) -> None:
        """Give back what was found for the pods so far."""
        self._found.clear()

    def find_for_pod(self, pod: Pod) -> AutoscalerClaims:
        """Return what others do to a pod."""
        if pod.namespace not in self._claims:
            return NO_AUTOSCALER_CLAIMS
        if pod.namespace not in self.by_pod:
            return self._look(pod)
        labels = tuple(sorted(pod.labels.items()))
        key = (pod.namespace, pod.workload, pod.owner_kind, pod.owner_name, labels)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._look(pod)
        return found

    def _look(self, pod: Pod) -> AutoscalerClaims:
        scaled: frozenset[ResourceName] = frozenset()
        scaled_by = sized_by = pending = ""
        chain = self._chain_of(pod)
        for claim in self._claims[pod.namespace]:
            surely = claim.target in chain.controllers
            if claim.selector is not None:
                surely = surely or claim.selector.matches(pod.labels)
            doubtful = not surely and not claim.answered and _may_select(claim.target, chain)
            if doubtful and not claim.unreadable:
                pending = pending or ReasonDetail.SCALE_NOT_READ.create(claim.target)
                continue
            if doubtful and (pod.namespace, claim.target) in self._known_controllers:
                continue
            if doubtful and not claim.sizes:
                scaled |= claim.scaled
                scaled_by = scaled_by or ReasonDetail.SCALE_UNREADABLE.create(claim.target)
                continue
            if doubtful:
                sized_by = sized_by or ReasonDetail.SCALE_UNREADABLE.create(claim.target)
                continue
            if not surely and (claim.is_plain or claim.selector is not None or not _may_own(claim.target, pod, chain)):
                continue
            if claim.sizes:
                detail = ReasonDetail.SIZED_BY_VPA if surely else ReasonDetail.MAY_BE_SIZED_BY_VPA
                sized_by = sized_by or detail.create(claim.name)
            else:
                detail = ReasonDetail.UTILISATION_TARGETED if surely else ReasonDetail.UTILISATION_MAY_BE_TARGETED
                scaled |= claim.scaled
                scaled_by = scaled_by or detail.create(claim.name)
        return AutoscalerClaims(scaled, scaled_by, sized_by, pending)

    @cached_property
    def _known_controllers(self) -> frozenset[tuple[str, WorkloadRef]]:
        """The controllers of pods, by namespace, where a scale cannot be read."""
        concerned = {namespace for namespace, claims in self._claims.items() if any(one.unreadable for one in claims)}
        pods = [pod for pod in self._snapshot.pods if pod.namespace in concerned]
        return frozenset((pod.namespace, one) for pod in pods for one in self._chain_of(pod).controllers)

    def _chain_of(self, pod: Pod) -> "_OwnerChain":
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
    """Who controls a pod, from its owner up as far as is known; `is_whole` where nothing controls the last."""

    controllers: tuple[WorkloadRef, ...]
    is_whole: bool


def _may_select(target: WorkloadRef, chain: _OwnerChain) -> bool:
    """Tell whether a scale that is not known may select a pod: a selector need not go by who controls what."""
    return not any(one.kind == target.kind and one != target for one in chain.controllers)


def _may_own(target: WorkloadRef, pod: Pod, chain: _OwnerChain) -> bool:
    """Tell whether a target whose pods are not known may have a pod.

    It may where it is not known what controls the pod's topmost controller, save where that is another of the target's
    own kind; and where nothing does, but names tell otherwise: some operators own what they create without saying so.
    """
    if not chain.controllers:
        return False
    top = chain.controllers[-1]
    if not chain.is_whole:
        return top.kind != target.kind
    return f"{top.name}-".startswith(f"{target.name}-") or target.name in pod.labels.values()


def _claims_of(snapshot: ClusterSnapshot) -> Iterator[tuple[str, _AutoscalerClaim]]:
    for one in snapshot.autoscalers:
        if one.utilisation_resources:
            yield one.namespace, _claim(one, one.target, snapshot, one.utilisation_resources)
    for vertical in snapshot.vertical_autoscalers:
        if vertical.changes_pods and vertical.target is not None:
            yield vertical.namespace, _claim(vertical, vertical.target, snapshot)


def _claim(
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
    )


# What decides about a pod, is looked up apart from it, and has not been answered yet: it never counts as no.

_INTERMEDIATE = frozenset({"Job", "ReplicaSet"})
_FOLLOWED = _INTERMEDIATE | {"CronJob", "Deployment"}


def describe_pending_lookup(pod: Pod, snapshot: ClusterSnapshot, claimed: AutoscalerClaims) -> str:
    """Return the detail of what is not known yet, empty where all is known.

    That is the namespace, whose annotations, LimitRanges and quotas count; who controls the pod's ReplicaSet or Job,
    whose annotations and autoscalers count; and the scales of autoscalers' targets. In a file nothing comes later.
    """
    if snapshot.namespaces is not None:
        if pod.namespace not in snapshot.namespaces:
            return ReasonDetail.NAMESPACE_NOT_SEEN
        ref = pod.workload
        followed = ref is not None and pod.owner_kind in _INTERMEDIATE and ref.kind in _FOLLOWED
        if followed and (pod.namespace, ref) not in snapshot.workloads:
            return ReasonDetail.OWNER_NOT_SEEN.create(ref)
    return claimed.pending


# Workloads of one kind and name that belong to different API groups: statistics do not tell them apart.


def find_ambiguous_workloads(snapshot: ClusterSnapshot) -> frozenset[tuple[str, WorkloadRef]]:
    """Return the namespaces and workloads that stand for several, by who controls their pods and what is listed."""
    groups: dict[tuple[str, WorkloadRef], set[str]] = {}
    for pod in snapshot.pods:
        if pod.owner_group and pod.workload is not None:
            groups.setdefault((pod.namespace, pod.workload), set()).add(pod.owner_group)
    if not groups:
        return frozenset()
    for key in groups.keys() & snapshot.workloads.keys():
        groups[key].add(get_foreign_group(snapshot.workloads[key].api_version))
    for pod in snapshot.pods:
        if not pod.owner_group and pod.workload is not None and (pod.namespace, pod.workload) in groups:
            groups[pod.namespace, pod.workload].add("")
    return frozenset(key for key, found in groups.items() if len(found) > 1)

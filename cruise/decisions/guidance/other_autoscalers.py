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

from cruise.domain.cluster import PLAIN_KINDS, Autoscaler, Pod, Snapshot, VerticalAutoscaler, WorkloadRef
from cruise.domain.details import Detail
from cruise.domain.resources import ResourceName
from cruise.domain.scheduling import LabelSelector

Labels = tuple[tuple[str, str], ...]


class Claimed(NamedTuple):
    """What others do to a pod: `scaled` are the resources on whose utilisation an HPA acts.

    `scaled_by` and `sized_by` are details that name the HPA and the VPA, empty where there is none. `pending` is the
    detail of a scale that may select the pod and was not answered yet.
    """

    scaled: frozenset[ResourceName] = frozenset()
    scaled_by: str = ""
    sized_by: str = ""
    pending: str = ""


UNCLAIMED = Claimed()

# Kinds that a workload may have between itself and its pods.
_BELOW_WORKLOADS = frozenset({"Job", "ReplicaSet"})


@dataclass(frozen=True, slots=True)
class _Claim:
    """One autoscaler; `is_plain` where pods name the target as their controller."""

    name: str
    target: WorkloadRef
    scaled: frozenset[ResourceName]
    sizes: bool
    is_plain: bool
    selector: LabelSelector | None
    answered: bool
    unreadable: bool


class OtherAutoscalers:
    """The autoscalers of one snapshot; pods that are alike share what is found for them.

    All pods of a workload are alike, save in the namespaces `by_pod`: there labels and direct owners matter as well.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._claims: dict[str, list[_Claim]] = {}
        for namespace, claim in _claims_of(snapshot):
            self._claims.setdefault(namespace, []).append(claim)
        self.by_pod = frozenset(
            namespace
            for namespace, claims in self._claims.items()
            if not all(one.is_plain and one.target.kind not in _BELOW_WORKLOADS for one in claims)
        )
        self._found: dict[tuple[str, WorkloadRef | None, str | None, str | None, Labels], Claimed] = {}

    def forget_pods(self) -> None:
        """Give back what was found for the pods so far."""
        self._found.clear()

    def of(self, pod: Pod) -> Claimed:
        """Return what others do to a pod."""
        if pod.namespace not in self._claims:
            return UNCLAIMED
        if pod.namespace not in self.by_pod:
            return self._look(pod)
        labels = tuple(sorted(pod.labels.items()))
        key = (pod.namespace, pod.workload, pod.owner_kind, pod.owner_name, labels)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._look(pod)
        return found

    def _look(self, pod: Pod) -> Claimed:
        scaled: frozenset[ResourceName] = frozenset()
        scaled_by = sized_by = pending = ""
        chain = self._chain_of(pod)
        for claim in self._claims[pod.namespace]:
            surely = claim.target in chain.controllers
            if claim.selector is not None:
                surely = surely or claim.selector.selects(pod.labels)
            doubtful = not surely and not claim.answered and _may_select(claim.target, chain)
            if doubtful and not claim.unreadable:
                pending = pending or Detail.SCALE_NOT_READ.of(claim.target)
                continue
            if doubtful and (pod.namespace, claim.target) in self._known_controllers:
                continue
            if doubtful and not claim.sizes:
                scaled |= claim.scaled
                scaled_by = scaled_by or Detail.SCALE_UNREADABLE.of(claim.target)
                continue
            if doubtful:
                sized_by = sized_by or Detail.SCALE_UNREADABLE.of(claim.target)
                continue
            if not surely and (claim.is_plain or claim.selector is not None or not _may_own(claim.target, pod, chain)):
                continue
            if claim.sizes:
                detail = Detail.SIZED_BY_VPA if surely else Detail.MAY_BE_SIZED_BY_VPA
                sized_by = sized_by or detail.of(claim.name)
            else:
                detail = Detail.UTILISATION_TARGETED if surely else Detail.UTILISATION_MAY_BE_TARGETED
                scaled |= claim.scaled
                scaled_by = scaled_by or detail.of(claim.name)
        return Claimed(scaled, scaled_by, sized_by, pending)

    @cached_property
    def _known_controllers(self) -> frozenset[tuple[str, WorkloadRef]]:
        """The controllers of pods, by namespace, where a scale cannot be read."""
        concerned = {namespace for namespace, claims in self._claims.items() if any(one.unreadable for one in claims)}
        pods = [pod for pod in self._snapshot.pods if pod.namespace in concerned]
        return frozenset((pod.namespace, one) for pod in pods for one in self._chain_of(pod).controllers)

    def _chain_of(self, pod: Pod) -> "_Chain":
        if pod.workload is None:
            return _Chain((), is_whole=True)
        direct = WorkloadRef(pod.owner_kind or "", pod.owner_name or "")
        workload = self._snapshot.workloads.get((pod.namespace, pod.workload))
        if workload is None or not workload.is_read:
            return _Chain((direct, pod.workload), is_whole=False)
        if workload.controller is None:
            return _Chain((direct, pod.workload), is_whole=True)
        return _Chain((direct, pod.workload, workload.controller), is_whole=False)


class _Chain(NamedTuple):
    """Who controls a pod, from its owner up as far as is known; `is_whole` where nothing controls the last."""

    controllers: tuple[WorkloadRef, ...]
    is_whole: bool


def _may_select(target: WorkloadRef, chain: _Chain) -> bool:
    """Tell whether a scale that is not known may select a pod: a selector need not go by who controls what."""
    return not any(one.kind == target.kind and one != target for one in chain.controllers)


def _may_own(target: WorkloadRef, pod: Pod, chain: _Chain) -> bool:
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


def _claims_of(snapshot: Snapshot) -> Iterator[tuple[str, _Claim]]:
    for one in snapshot.autoscalers:
        if one.utilisation_of:
            yield one.namespace, _claim(one, one.target, snapshot, one.utilisation_of)
    for vertical in snapshot.vertical_autoscalers:
        if vertical.changes_pods and vertical.target is not None:
            yield vertical.namespace, _claim(vertical, vertical.target, snapshot)


def _claim(
    one: Autoscaler | VerticalAutoscaler,
    target: WorkloadRef,
    snapshot: Snapshot,
    scaled: frozenset[ResourceName] = frozenset(),
) -> _Claim:
    return _Claim(
        one.name,
        target,
        scaled,
        isinstance(one, VerticalAutoscaler),
        target.kind in PLAIN_KINDS,
        snapshot.scales.get((one.namespace, target)),
        target.kind in PLAIN_KINDS or (one.namespace, target) in snapshot.scales,
        (one.namespace, target) in snapshot.unreadable_scales,
    )

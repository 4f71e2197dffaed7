"""What a pod's volumes ask: where they may be used, what they attach, and which no second pod may use."""

from dataclasses import dataclass, replace

from cruise.decisions.scheduling.filters import explain_unusable_claim, iterate_claims
from cruise.decisions.scheduling.placements import get_pod_key
from cruise.domain.cluster import Pod
from cruise.domain.reasons import UnschedulableCode, UnschedulableReason
from cruise.domain.scheduling import (
    LabelRequirement,
    NodeSelectorTerm,
    PersistentVolumeClaim,
    SelectorOperator,
    StorageAndNamespaces,
)


@dataclass(frozen=True, slots=True)
class VolumeRequirements:
    """What the claims of a pod ask together.

    `terms` has for each volume that is not usable everywhere the terms of which a node meets one; `attached` are the
    volumes of CSI drivers, as (driver, volume); `alone` are the claims that no second pod may use, `together` those
    that pods use on one node. `missing` is what is wrong with a claim that keeps the pod pending wherever it goes.
    """

    terms: tuple[tuple[NodeSelectorTerm, ...], ...] = ()
    attached: tuple[tuple[str, str], ...] = ()
    exclusive: tuple[tuple[str, str], ...] = ()
    shared: tuple[tuple[str, str], ...] = ()
    missing: UnschedulableReason | None = None


NO_VOLUMES = VolumeRequirements()


class VolumeIndex:
    """Looks up claims, once for each distinct set of them."""

    def __init__(self, surroundings: StorageAndNamespaces) -> None:
        self._surroundings = surroundings
        self._users: dict[tuple[str, str], list[Pod]] = {}
        self._out_of_reach: set[tuple[str, str]] = set()
        self._known: dict[tuple[str, tuple[str, ...], bool, str | None], VolumeRequirements] = {}

    def get_for_pod(self, pod: Pod) -> VolumeRequirements:
        """Return what a pod's claims ask."""
        names = pod.constraints.claims
        if not names:
            return NO_VOLUMES
        owner = pod.uid if pod.constraints.own_claims and pod.node is None else None
        key = (pod.namespace, names, bool(pod.constraints.own_claims) and pod.node is not None, owner)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._look_up(pod)
        return known

    def get_in_use(self, pod: Pod) -> None:
        """Note a pod, for the claims that pods use on one node."""
        for claim in self.get_for_pod(pod).shared:
            self._users.setdefault(claim, []).append(pod)

    def get_shared(self, pod: Pod) -> str | None:
        """Return a claim that this running pod and others use on one node, None for none."""
        return next((name for space, name in self.get_for_pod(pod).shared if len(self._users[space, name]) > 1), None)

    def get_for_arriving_pod(self, pod: Pod) -> VolumeRequirements:
        """Return what a pending pod's claims ask: of those in use on a node that it comes there as well."""
        needs, node = self.get_for_pod(pod), self._node_in_use(pod)
        if node is None:
            return needs
        there = NodeSelectorTerm(fields=(LabelRequirement("metadata.name", SelectorOperator.IN, (node,)),))
        return replace(needs, terms=(*needs.terms, (there,)))

    def _node_in_use(self, pod: Pod) -> str | None:
        """Return the node to which a claim that others use there ties a pod, None for none."""
        for claim in self.get_for_pod(pod).shared:
            for other in self._users[claim]:
                if other.node is not None and get_pod_key(other) != get_pod_key(pod):
                    return other.node
        return None

    def reserve(self, pod: Pod) -> None:
        """Note that a pod which no plan sees uses its claims: no other pod may use those that are for one pod."""
        self._out_of_reach.update(self.get_for_pod(pod).exclusive)

    def explain_reserved(self, pod: Pod) -> UnschedulableReason | None:
        """Say which claim of a pod is for one pod alone, and used by another one that no plan sees."""
        held = [name for namespace, name in self.get_for_pod(pod).exclusive if (namespace, name) in self._out_of_reach]
        return UnschedulableReason(UnschedulableCode.CLAIM_OUT_OF_REACH, claim=held[0]) if held else None

    def _look_up(self, pod: Pod) -> VolumeRequirements:
        found: list[PersistentVolumeClaim] = []
        missing: UnschedulableReason | None = None
        for name, claim in iterate_claims(self._surroundings, pod):
            unusable = explain_unusable_claim(pod, name, claim)
            if unusable is not None:
                missing = missing or UnschedulableReason(unusable, claim=name)
            if claim is not None:
                found.append(claim)
        # A running pod that cannot be created anew stays, and what it has now is attached to its node.
        present = [self._surroundings.claims.get((pod.namespace, name)) for name in pod.constraints.claims]
        counted = [claim for claim in present if claim] if missing and pod.node else found
        # One volume through two claims is attached once.
        volumes = {(claim.driver, claim.volume or claim.name) for claim in counted if claim.driver}
        return VolumeRequirements(
            terms=tuple(dict.fromkeys(claim.terms for claim in found if claim.terms is not None)),
            attached=tuple(sorted(volumes)),
            exclusive=tuple((pod.namespace, claim.name) for claim in found if claim.single_pod),
            shared=tuple((pod.namespace, claim.name) for claim in found if claim.single_node and not claim.single_pod),
            missing=missing,
        )

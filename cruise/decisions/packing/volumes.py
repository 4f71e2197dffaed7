"""Determines what the volumes of a pod require: usable nodes, attachments, and claims for one pod or one node."""

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
    """The requirements of all claims of a pod.

    `terms` has for each volume with node affinity its terms, of which a node must match one. `attached` are volumes of
    CSI drivers, as (driver, volume). `exclusive` are claims that only one pod may use, `shared` those that pods use on
    one node. `missing` indicates which claim keeps the pod pending on any node.
    """

    terms: tuple[tuple[NodeSelectorTerm, ...], ...] = ()
    attached: tuple[tuple[str, str], ...] = ()
    exclusive: tuple[tuple[str, str], ...] = ()
    shared: tuple[tuple[str, str], ...] = ()
    missing: UnschedulableReason | None = None


NO_VOLUMES = VolumeRequirements()


class VolumeIndex:
    """Looks up claims, once for each distinct set of claims."""

    def __init__(self, storage_and_namespaces: StorageAndNamespaces) -> None:
        self._storage_and_namespaces = storage_and_namespaces
        self._users: dict[tuple[str, str], list[Pod]] = {}
        self._reserved: set[tuple[str, str]] = set()
        self._known: dict[tuple[str, tuple[str, ...], bool, str | None], VolumeRequirements] = {}

    def get_for_pod(self, pod: Pod) -> VolumeRequirements:
        """Return the requirements of a pod's claims."""
        names = pod.constraints.claims
        if not names:
            return NO_VOLUMES
        owner = pod.uid if pod.constraints.own_claims and pod.node is None else None
        key = (pod.namespace, names, bool(pod.constraints.own_claims) and pod.node is not None, owner)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._look_up(pod)
        return known

    def add_user(self, pod: Pod) -> None:
        """Record a pod as a user of its single-node claims."""
        for claim in self.get_for_pod(pod).shared:
            self._users.setdefault(claim, []).append(pod)

    def find_shared_claim(self, pod: Pod) -> str | None:
        """Return a single-node claim that this running pod shares with others; None if there is none."""
        return next(
            (name for namespace, name in self.get_for_pod(pod).shared if len(self._users[namespace, name]) > 1), None
        )

    def get_for_arriving_pod(self, pod: Pod) -> VolumeRequirements:
        """Return the requirements of a pending pod's claims, including the node where a claim is in use."""
        requirements, node = self.get_for_pod(pod), self._find_node_in_use(pod)
        if node is None:
            return requirements
        on_node = NodeSelectorTerm(fields=(LabelRequirement("metadata.name", SelectorOperator.IN, (node,)),))
        return replace(requirements, terms=(*requirements.terms, (on_node,)))

    def _find_node_in_use(self, pod: Pod) -> str | None:
        """Return the node on which another pod uses a single-node claim of this pod."""
        for claim in self.get_for_pod(pod).shared:
            for other in self._users[claim]:
                if other.node is not None and get_pod_key(other) != get_pod_key(pod):
                    return other.node
        return None

    def reserve(self, pod: Pod) -> None:
        """Reserve the exclusive claims of a pod that is not part of the problem."""
        self._reserved.update(self.get_for_pod(pod).exclusive)

    def explain_reserved(self, pod: Pod) -> UnschedulableReason | None:
        """Report an exclusive claim that a pod outside the problem uses."""
        names = [name for namespace, name in self.get_for_pod(pod).exclusive if (namespace, name) in self._reserved]
        return UnschedulableReason(UnschedulableCode.CLAIM_OUT_OF_REACH, claim=names[0]) if names else None

    def _look_up(self, pod: Pod) -> VolumeRequirements:
        claims: list[PersistentVolumeClaim] = []
        missing: UnschedulableReason | None = None
        for name, claim in iterate_claims(self._storage_and_namespaces, pod):
            unusable = explain_unusable_claim(pod, name, claim)
            if unusable is not None:
                missing = missing or UnschedulableReason(unusable, claim=name)
            if claim is not None:
                claims.append(claim)
        # A running pod that cannot be created again stays, with the volumes that are attached now.
        current = [self._storage_and_namespaces.claims.get((pod.namespace, name)) for name in pod.constraints.claims]
        attached_claims = [claim for claim in current if claim] if missing and pod.node else claims
        # A volume with two claims is attached once.
        volumes = {(claim.driver, claim.volume or claim.name) for claim in attached_claims if claim.driver}
        return VolumeRequirements(
            terms=tuple(dict.fromkeys(claim.terms for claim in claims if claim.terms is not None)),
            attached=tuple(sorted(volumes)),
            exclusive=tuple((pod.namespace, claim.name) for claim in claims if claim.single_pod),
            shared=tuple((pod.namespace, claim.name) for claim in claims if claim.single_node and not claim.single_pod),
            missing=missing,
        )

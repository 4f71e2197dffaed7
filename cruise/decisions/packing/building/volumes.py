"""What a pod's volumes ask: where they may be used, what they attach, and which no second pod may use."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from cruise.domain.cluster import Pod
from cruise.domain.colocation import Claim, Surroundings
from cruise.domain.scheduling import NodeSelectorTerm
from cruise.domain.unplaced import Finding, Pattern


@dataclass(frozen=True, slots=True)
class VolumeNeeds:
    """What the claims of a pod ask together.

    `terms` has for each volume that is not usable everywhere the terms of which a node meets one; `attached` counts
    volumes by CSI driver; `alone` are the claims that no second pod may use. `missing` is what is wrong with a claim
    that keeps the pod pending wherever there is room.
    """

    terms: tuple[tuple[NodeSelectorTerm, ...], ...] = ()
    attached: tuple[tuple[str, int], ...] = ()
    alone: tuple[tuple[str, str], ...] = ()
    missing: Finding | None = None


NOTHING = VolumeNeeds()


class Volumes:
    """Looks up claims, once for each distinct set of them."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._claims: Mapping[tuple[str, str], Claim] = surroundings.claims
        self._out_of_reach: set[tuple[str, str]] = set()
        self._known: dict[tuple[str, tuple[str, ...]], VolumeNeeds] = {}

    def of(self, pod: Pod) -> VolumeNeeds:
        """Return what a pod's claims ask."""
        names = pod.constraints.claims
        if not names:
            return NOTHING
        key = (pod.namespace, names)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._look_up(pod.namespace, names)
        return known

    def hold(self, pod: Pod) -> None:
        """Note that a pod which no plan sees uses its claims: no other pod may use those that are for one pod."""
        self._out_of_reach.update(self.of(pod).alone)

    def why_held(self, pod: Pod) -> Finding | None:
        """Say which claim of a pod is for one pod alone, and used by another one that no plan sees."""
        held = [name for namespace, name in self.of(pod).alone if (namespace, name) in self._out_of_reach]
        return Finding(Pattern.CLAIM_OUT_OF_REACH, claim=held[0]) if held else None

    def _look_up(self, namespace: str, names: tuple[str, ...]) -> VolumeNeeds:
        found: list[Claim] = []
        missing: Finding | None = None
        for name in dict.fromkeys(names):
            claim = self._claims.get((namespace, name))
            if claim is None:
                missing = missing or Finding(Pattern.CLAIM_UNKNOWN, claim=name)
            else:
                found.append(claim)
                if not claim.bound and not claim.waits:
                    missing = missing or Finding(Pattern.CLAIM_UNBOUND, claim=name)
        # One volume through two claims is attached once.
        volumes = {(claim.driver, claim.volume or claim.name) for claim in found if claim.driver}
        attached = Counter(driver for driver, _ in volumes)
        return VolumeNeeds(
            terms=tuple(dict.fromkeys(claim.terms for claim in found if claim.terms is not None)),
            attached=tuple(sorted(attached.items())),
            alone=tuple((namespace, claim.name) for claim in found if claim.single_pod),
            missing=missing,
        )

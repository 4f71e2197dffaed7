"""Which claims a pod comes with, and what of a pending pod kube-scheduler minds that cruise cannot judge."""

from collections.abc import Iterator
from dataclasses import replace

from cruise.domain.cluster import DEFAULT_SCHEDULER, Pod
from cruise.domain.colocation import Claim, PodConstraints, Surroundings
from cruise.domain.unplaced import Pattern


def claims_of(surroundings: Surroundings, pod: Pod) -> Iterator[tuple[str, Claim | None]]:
    """Yield each claim of a pod as it will be when the pod arrives; None for one that is not known.

    What is made with a pod is made anew with its replacement: the volume that it has now binds it nowhere.
    """
    replaced = pod.node is not None or pod.constraints.replaced
    for name in pod.constraints.claims:
        claim = surroundings.claims.get((pod.namespace, name))
        if claim is not None and replaced and name in pod.constraints.own_claims:
            claim = claim.anew
        yield name, claim


UNUSABLE = {
    Pattern.CLAIM_UNKNOWN: "does not exist",
    Pattern.CLAIM_UNBOUND: "is not bound",
    Pattern.CLAIM_OF_ANOTHER: "is not the pod's own",
}
"""What is said of a claim that keeps its pod pending."""


def why_unusable(pod: Pod, name: str, claim: Claim | None) -> Pattern | None:
    """Say what about a claim keeps its pod pending wherever it goes; None for nothing."""
    if claim is None:
        return Pattern.CLAIM_UNKNOWN
    replaced = pod.node is not None or pod.constraints.replaced
    if name in pod.constraints.own_claims and not replaced and pod.uid and claim.controller != pod.uid:
        return Pattern.CLAIM_OF_ANOTHER
    return None if claim.bound or claim.waits else Pattern.CLAIM_UNBOUND


def of_replacement(constraints: PodConstraints) -> PodConstraints:
    """Return the constraints of a pod that takes the place of one with these."""
    return replace(constraints, replaced=True) if constraints.own_claims else constraints


def why_volumes_not_judged(surroundings: Surroundings, pod: Pod) -> str | None:
    """Say what of a pod's volumes, devices and the like no rule here can judge; None for nothing."""
    if pod.constraints.unjudged:
        return pod.constraints.unjudged[0]
    # A list without any claim was most likely printed without them.
    none_known = not surroundings.claims and not surroundings.unjudged
    for name in pod.constraints.claims:
        missing = "no claims are known" if none_known else surroundings.unjudged.get((pod.namespace, name))
        if missing is not None:
            return f"claim {name}: {missing}"
    return None


def why_not_judged(surroundings: Surroundings, pod: Pod) -> str | None:
    """Say what keeps a pending pod out of every plan and proof, as no rule here can judge it; None for nothing."""
    if pod.scheduling_gated:
        return "scheduling gates"
    if pod.scheduler != DEFAULT_SCHEDULER:
        return f"scheduler {pod.scheduler}"
    if pod.pod_group:
        return f"pod group {pod.pod_group}"
    return why_volumes_not_judged(surroundings, pod)

"""What kube-scheduler's filters say about one pod on one node, neighbours apart: the node itself, room, volumes."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from cruise.decisions.scheduling.placements import (
    PodPlacements,
    get_attached_volumes,
    get_attached_volumes_of_running_pod,
    get_pod_key,
)
from cruise.domain.cluster import DEFAULT_SCHEDULER, Node, Pod
from cruise.domain.pod_resources import count_pod_requests, tolerates_cordon
from cruise.domain.reasons import UnschedulableCode
from cruise.domain.scheduling import AttachedVolume, PersistentVolumeClaim, PodConstraints, StorageAndNamespaces

# Which claims a pod comes with, and what of a pending pod kube-scheduler minds that cruise cannot judge.


def iterate_claims(surroundings: StorageAndNamespaces, pod: Pod) -> Iterator[tuple[str, PersistentVolumeClaim | None]]:
    """Yield each claim of a pod as it will be when the pod arrives; None for one that is not known.

    What is made with a pod is made anew with its replacement: the volume that it has now binds it nowhere.
    """
    replaced = pod.node is not None or pod.constraints.is_replacement
    for name in pod.constraints.claims:
        claim = surroundings.claims.get((pod.namespace, name))
        if claim is not None and replaced and name in pod.constraints.own_claims:
            claim = claim.replacement_claim
        yield name, claim


UNUSABLE_CLAIM = {
    UnschedulableCode.CLAIM_UNKNOWN: "does not exist",
    UnschedulableCode.CLAIM_UNBOUND: "is not bound",
    UnschedulableCode.CLAIM_OF_ANOTHER: "is not the pod's own",
}
"""What is said of a claim that keeps its pod pending."""


def explain_unusable_claim(pod: Pod, name: str, claim: PersistentVolumeClaim | None) -> UnschedulableCode | None:
    """Say what about a claim keeps its pod pending wherever it goes; None for nothing."""
    if claim is None:
        return UnschedulableCode.CLAIM_UNKNOWN
    replaced = pod.node is not None or pod.constraints.is_replacement
    if name in pod.constraints.own_claims and not replaced and pod.uid and claim.controller != pod.uid:
        return UnschedulableCode.CLAIM_OF_ANOTHER
    return None if claim.bound or claim.waits_for_first_consumer else UnschedulableCode.CLAIM_UNBOUND


def get_replacement_constraints(constraints: PodConstraints) -> PodConstraints:
    """Return the constraints of a pod that takes the place of one with these."""
    return replace(constraints, is_replacement=True) if constraints.own_claims else constraints


def explain_unsupported_volumes(surroundings: StorageAndNamespaces, pod: Pod) -> str | None:
    """Say what of a pod's volumes, devices and the like no rule here can judge; None for nothing."""
    if pod.constraints.unsupported_constraints:
        return pod.constraints.unsupported_constraints[0]
    # A list without any claim was most likely printed without them.
    none_known = not surroundings.claims and not surroundings.unsupported
    for name in pod.constraints.claims:
        missing = "no claims are known" if none_known else surroundings.unsupported.get((pod.namespace, name))
        if missing is not None:
            return f"claim {name}: {missing}"
    return None


def explain_unsupported_constraints(surroundings: StorageAndNamespaces, pod: Pod) -> str | None:
    """Say what keeps a pending pod out of every plan and proof, as no rule here can judge it; None for nothing."""
    if pod.scheduling_gated:
        return "scheduling gates"
    if pod.scheduler != DEFAULT_SCHEDULER:
        return f"scheduler {pod.scheduler}"
    if pod.pod_group:
        return f"pod group {pod.pod_group}"
    return explain_unsupported_volumes(surroundings, pod)


# kube-scheduler lets such a pod in, and its kubelet waits for the volume for as long as the other node has it.
CLAIM_IN_USE = "in use on another node"


def check_node(board: PodPlacements, pod: Pod, node: Node) -> Iterator[str]:
    """Say why the node itself takes no pod like this: its state, its labels, its taints."""
    if not node.ready:
        yield "is not ready"
    if node.deleting:
        yield "is being deleted"
    if node.unschedulable and not tolerates_cordon(pod):
        yield "is cordoned"
    if not pod.placement.allows_node(node.name, node.labels):
        yield "is not among those of its node selector and node affinity"
    if not pod.placement.tolerates_all(node.taints):
        yield "has a taint that it does not tolerate"


def check_resources(board: PodPlacements, pod: Pod, node: Node) -> Iterator[str]:
    """Say what the node has too little of."""
    here = list(board.get_pods_on(node.name))
    if len(here) + 1 > node.allocatable_pods:
        yield f"holds {len(here)} pods of {node.allocatable_pods}"
    counted = [count_pod_requests(other) for other in here]
    need = count_pod_requests(pod)
    used = sum(one.cpu_millicores for one in counted)
    if need.cpu_millicores and used + need.cpu_millicores > node.allocatable.cpu_millicores:
        yield f"lacks cpu: {used} m used, {need.cpu_millicores} m more, of {node.allocatable.cpu_millicores} m"
    used = sum(one.memory_bytes for one in counted)
    if need.memory_bytes and used + need.memory_bytes > node.allocatable.memory_bytes:
        yield f"lacks memory: {used} bytes used, {need.memory_bytes} more, of {node.allocatable.memory_bytes}"
    for resource, amount in pod.extended_requests:
        used = sum(had for other in here for name, had in other.extended_requests if name == resource)
        offered = node.allocatable_extended.get(resource, 0)
        if amount and used + amount > offered:
            yield f"lacks {resource}: {used} used, {amount} more, of {offered}"


def check_host_ports(board: PodPlacements, pod: Pod, node: Node) -> Iterator[str]:
    """Say which host ports are taken."""
    for other in board.get_pods_on(node.name):
        for taken in other.constraints.host_ports:
            if any(wanted.collides_with(taken) for wanted in pod.constraints.host_ports):
                yield f"gives host port {taken.protocol}/{taken.port} to {other.namespace}/{other.name}"


def check_volumes(board: PodPlacements, pod: Pod, node: Node) -> Iterator[str]:
    """Say which of the pod's volumes cannot be used there, or by one more pod."""
    unjudged = explain_unsupported_volumes(board.storage_and_namespaces, pod)
    if unjudged is not None:
        yield f"cannot be judged for {unjudged}"
    for name, claim in iterate_claims(board.storage_and_namespaces, pod):
        unusable = explain_unusable_claim(pod, name, claim)
        if unusable is not None:
            yield f"cannot give claim {name}, which {UNUSABLE_CLAIM[unusable]}"
        if claim is None:
            continue
        if claim.terms is not None and not any(term.matches(node.name, node.labels) for term in claim.terms):
            yield f"is out of reach for the volume of claim {name}"
        users = board.get_claim_users((pod.namespace, name))
        if claim.single_pod and users:
            yield f"cannot give claim {name} to a second pod"
        elif claim.single_node and users and not users[node.name]:
            yield f"cannot give claim {name}, which is {CLAIM_IN_USE}"


def check_attach_limits(board: PodPlacements, pod: Pod, node: Node) -> Iterator[str]:
    """Say which CSI drivers attach no more volumes there.

    A volume that several pods there use counts once. One that is only left attached counts apart from a pod that comes
    to use it again.
    """
    limits = board.storage_and_namespaces.attach_limits.get(node.name, {})
    if not limits or not pod.constraints.claims:
        return
    used = {volume for other in board.get_pods_on(node.name) for volume in _attached(board, other)}
    attached = Counter(driver for driver, _ in used | board.leftover_attachments.get(node.name, frozenset()))
    new = Counter(
        driver
        for driver, _ in get_attached_volumes(claim for _, claim in iterate_claims(board.storage_and_namespaces, pod))
        - used
    )
    for driver, more in new.items():
        if driver in limits and attached[driver] + more > limits[driver]:
            most, would = limits[driver], attached[driver] + more
            yield f"attaches at most {most} volumes of {driver}, and would have {would}"


def _attached(board: PodPlacements, pod: Pod) -> set[AttachedVolume]:
    if board.get_node(get_pod_key(pod)) != pod.node:
        return get_attached_volumes(claim for _, claim in iterate_claims(board.storage_and_namespaces, pod))
    return get_attached_volumes_of_running_pod(board.storage_and_namespaces, pod)

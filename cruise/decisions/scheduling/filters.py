"""Implements kube-scheduler's filters for one pod and node: node state, resources, host ports, volumes."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from cruise.decisions.scheduling.placements import (
    PodPlacements,
    get_attached_volumes,
    get_attached_volumes_of_running_pod,
    get_pod_key,
)
from cruise.domain.annotations import ARCHITECTURE, OPERATING_SYSTEM
from cruise.domain.cluster import DEFAULT_SCHEDULER, Node, Pod
from cruise.domain.pod_resources import count_pod_requests, tolerates_cordon
from cruise.domain.reasons import UnschedulableCode
from cruise.domain.scheduling import AttachedVolume, PersistentVolumeClaim, PodConstraints, StorageAndNamespaces


def iterate_claims(
    storage_and_namespaces: StorageAndNamespaces, pod: Pod
) -> Iterator[tuple[str, PersistentVolumeClaim | None]]:
    """Yield each claim of a pod as it will be when the pod arrives; None for an unknown claim.

    A volume that is created with a pod is created again with its replacement, so its present node does not matter.
    """
    replaced = pod.node is not None or pod.constraints.is_replacement
    for name in pod.constraints.claims:
        claim = storage_and_namespaces.claims.get((pod.namespace, name))
        if claim is not None and replaced and name in pod.constraints.own_claims:
            claim = claim.replacement_claim
        yield name, claim


UNUSABLE_CLAIM = {
    UnschedulableCode.CLAIM_UNKNOWN: "does not exist",
    UnschedulableCode.CLAIM_UNBOUND: "is not bound",
    UnschedulableCode.CLAIM_OF_ANOTHER: "is not the pod's own",
}
"""The messages about a claim that keeps its pod pending."""


def explain_unusable_claim(pod: Pod, name: str, claim: PersistentVolumeClaim | None) -> UnschedulableCode | None:
    """Return why a claim keeps its pod pending on any node; None if it does not."""
    if claim is None:
        return UnschedulableCode.CLAIM_UNKNOWN
    replaced = pod.node is not None or pod.constraints.is_replacement
    if name in pod.constraints.own_claims and not replaced and pod.uid and claim.controller != pod.uid:
        return UnschedulableCode.CLAIM_OF_ANOTHER
    return None if claim.bound or claim.waits_for_first_consumer else UnschedulableCode.CLAIM_UNBOUND


def get_replacement_constraints(constraints: PodConstraints) -> PodConstraints:
    """Return the constraints of a pod that replaces one with these."""
    return replace(constraints, is_replacement=True) if constraints.own_claims else constraints


def explain_unsupported_volumes(storage_and_namespaces: StorageAndNamespaces, pod: Pod) -> str | None:
    """Return which volume or device of a pod cruise does not support; None if it supports all."""
    if pod.constraints.unsupported_constraints:
        return pod.constraints.unsupported_constraints[0]
    # A list without any claim was probably printed without them.
    none_known = not storage_and_namespaces.claims and not storage_and_namespaces.unsupported
    for name in pod.constraints.claims:
        missing = "no claims are known" if none_known else storage_and_namespaces.unsupported.get((pod.namespace, name))
        if missing is not None:
            return f"claim {name}: {missing}"
    return None


def explain_unsupported_constraints(storage_and_namespaces: StorageAndNamespaces, pod: Pod) -> str | None:
    """Return the constraint for which a pending pod is left out of plans and proofs; None if there is none."""
    if pod.scheduling_gated:
        return "scheduling gates"
    if pod.scheduler != DEFAULT_SCHEDULER:
        return f"scheduler {pod.scheduler}"
    if pod.pod_group:
        return f"pod group {pod.pod_group}"
    return explain_unsupported_volumes(storage_and_namespaces, pod)


# kube-scheduler accepts such a pod, but the kubelet waits until the volume is detached from the other node.
CLAIM_IN_USE = "in use on another node"


def check_node(placements: PodPlacements, pod: Pod, node: Node) -> Iterator[str]:
    """Yield why the node itself rejects the pod: its state, labels and taints."""
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


def check_resources(placements: PodPlacements, pod: Pod, node: Node) -> Iterator[str]:
    """Yield the resources of which the node has too little."""
    pods_on_node = list(placements.get_pods_on(node.name))
    if len(pods_on_node) + 1 > node.allocatable_pods:
        yield f"holds {len(pods_on_node)} pods of {node.allocatable_pods}"
    requests = [count_pod_requests(other) for other in pods_on_node]
    pod_requests = count_pod_requests(pod)
    used = sum(request.cpu_millicores for request in requests)
    if pod_requests.cpu_millicores and used + pod_requests.cpu_millicores > node.allocatable.cpu_millicores:
        yield f"lacks cpu: {used} m used, {pod_requests.cpu_millicores} m more, of {node.allocatable.cpu_millicores} m"
    used = sum(request.memory_bytes for request in requests)
    if pod_requests.memory_bytes and used + pod_requests.memory_bytes > node.allocatable.memory_bytes:
        yield f"lacks memory: {used} bytes used, {pod_requests.memory_bytes} more, of {node.allocatable.memory_bytes}"
    for resource, amount in pod.extended_requests:
        used = sum(
            other_amount for other in pods_on_node for name, other_amount in other.extended_requests if name == resource
        )
        offered = node.allocatable_extended.get(resource, 0)
        if amount and used + amount > offered:
            yield f"lacks {resource}: {used} used, {amount} more, of {offered}"


def check_host_ports(placements: PodPlacements, pod: Pod, node: Node) -> Iterator[str]:
    """Yield the host ports that are taken."""
    for other in placements.get_pods_on(node.name):
        for taken in other.constraints.host_ports:
            if any(wanted.collides_with(taken) for wanted in pod.constraints.host_ports):
                yield f"gives host port {taken.protocol}/{taken.port} to {other.namespace}/{other.name}"


def check_volumes(placements: PodPlacements, pod: Pod, node: Node) -> Iterator[str]:
    """Yield the claims that the pod cannot use on the node, or not together with other pods."""
    unsupported = explain_unsupported_volumes(placements.storage_and_namespaces, pod)
    if unsupported is not None:
        yield f"cannot be evaluated: {unsupported}"
    for name, claim in iterate_claims(placements.storage_and_namespaces, pod):
        unusable = explain_unusable_claim(pod, name, claim)
        if unusable is not None:
            yield f"cannot give claim {name}, which {UNUSABLE_CLAIM[unusable]}"
        if claim is None:
            continue
        if claim.terms is not None and not any(term.matches(node.name, node.labels) for term in claim.terms):
            yield f"is out of reach for the volume of claim {name}"
        users = placements.get_claim_users((pod.namespace, name))
        if claim.single_pod and users:
            yield f"cannot give claim {name} to a second pod"
        elif claim.single_node and users and not users[node.name]:
            yield f"cannot give claim {name}, which is {CLAIM_IN_USE}"


def check_attach_limits(placements: PodPlacements, pod: Pod, node: Node) -> Iterator[str]:
    """Yield the CSI drivers that can attach no more volumes to the node.

    A volume that several pods use counts once. A leftover attachment counts in addition to a pod that uses the volume
    again.
    """
    limits = placements.storage_and_namespaces.attach_limits.get(node.name, {})
    if not limits or not pod.constraints.claims:
        return
    used = {volume for other in placements.get_pods_on(node.name) for volume in _get_attached(placements, other)}
    attached = Counter(driver for driver, _ in used | placements.leftover_attachments.get(node.name, frozenset()))
    new = Counter(
        driver
        for driver, _ in get_attached_volumes(
            claim for _, claim in iterate_claims(placements.storage_and_namespaces, pod)
        )
        - used
    )
    for driver, count in new.items():
        if driver in limits and attached[driver] + count > limits[driver]:
            limit, total = limits[driver], attached[driver] + count
            yield f"attaches at most {limit} volumes of {driver}, and would have {total}"


def _get_attached(placements: PodPlacements, pod: Pod) -> set[AttachedVolume]:
    if placements.get_node(get_pod_key(pod)) != pod.node:
        return get_attached_volumes(claim for _, claim in iterate_claims(placements.storage_and_namespaces, pod))
    return get_attached_volumes_of_running_pod(placements.storage_and_namespaces, pod)


PLATFORM_LABELS = (OPERATING_SYSTEM, ARCHITECTURE)


def get_platform_labels(pod: Pod, node: Node | None) -> tuple[tuple[str, str], ...]:
    """Return the labels of the pod's node that the node of its replacement may not contradict.

    An image for one operating system or architecture may lack others. kube-scheduler does not compare platforms, so a
    replacement may be scheduled where its image cannot start. Such a node is no destination, unless the pod's own node
    selector or affinity states the label.
    """
    if node is None:
        return ()
    stated = pod.placement.label_keys
    return tuple([(key, node.labels[key]) for key in PLATFORM_LABELS if key in node.labels and key not in stated])


def matches_platform_labels(node: Node, platform: tuple[tuple[str, str], ...]) -> bool:
    """Return whether a node's labels do not contradict a platform."""
    return all(node.labels.get(key, value) == value for key, value in platform)

"""What kube-scheduler's filters say about one pod on one node, neighbours apart: the node itself, room, volumes."""

from collections import Counter
from collections.abc import Iterator

from cruise.decisions.scheduling.attachments import attached_for, attached_for_running
from cruise.decisions.scheduling.board import Board, key_of
from cruise.decisions.scheduling.claims import UNUSABLE, claims_of, why_unusable, why_volumes_not_judged
from cruise.domain.cluster import Node, Pod
from cruise.domain.colocation import AttachedVolume
from cruise.domain.cordons import tolerates_cordon
from cruise.domain.requests import counted_requests

# kube-scheduler lets such a pod in, and its kubelet waits for the volume for as long as the other node has it.
IN_USE = "in use on another node"


def refuse_by_node(board: Board, pod: Pod, node: Node) -> Iterator[str]:
    """Say why the node itself takes no pod like this: its state, its labels, its taints."""
    if not node.ready:
        yield "is not ready"
    if node.deleting:
        yield "is being deleted"
    if node.unschedulable and not tolerates_cordon(pod):
        yield "is cordoned"
    if not pod.placement.admits(node.name, node.labels):
        yield "is not among those of its node selector and node affinity"
    if not pod.placement.tolerates_all(node.taints):
        yield "has a taint that it does not tolerate"


def refuse_by_room(board: Board, pod: Pod, node: Node) -> Iterator[str]:
    """Say what the node has too little of."""
    here = list(board.pods_on(node.name))
    if len(here) + 1 > node.allocatable_pods:
        yield f"holds {len(here)} pods of {node.allocatable_pods}"
    counted = [counted_requests(other) for other in here]
    need = counted_requests(pod)
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


def refuse_by_ports(board: Board, pod: Pod, node: Node) -> Iterator[str]:
    """Say which host ports are taken."""
    for other in board.pods_on(node.name):
        for taken in other.constraints.host_ports:
            if any(wanted.collides_with(taken) for wanted in pod.constraints.host_ports):
                yield f"gives host port {taken.protocol}/{taken.port} to {other.namespace}/{other.name}"


def refuse_by_volumes(board: Board, pod: Pod, node: Node) -> Iterator[str]:
    """Say which of the pod's volumes cannot be used there, or by one more pod."""
    unjudged = why_volumes_not_judged(board.surroundings, pod)
    if unjudged is not None:
        yield f"cannot be judged for {unjudged}"
    for name, claim in claims_of(board.surroundings, pod):
        unusable = why_unusable(pod, name, claim)
        if unusable is not None:
            yield f"cannot give claim {name}, which {UNUSABLE[unusable]}"
        if claim is None:
            continue
        if claim.terms is not None and not any(term.matches(node.name, node.labels) for term in claim.terms):
            yield f"is out of reach for the volume of claim {name}"
        users = board.users_of((pod.namespace, name))
        if claim.single_pod and users:
            yield f"cannot give claim {name} to a second pod"
        elif claim.single_node and users and not users[node.name]:
            yield f"cannot give claim {name}, which is {IN_USE}"


def refuse_by_attach_limits(board: Board, pod: Pod, node: Node) -> Iterator[str]:
    """Say which CSI drivers attach no more volumes there.

    A volume that several pods there use counts once. One that is only left attached counts apart from a pod that comes
    to use it again.
    """
    limits = board.surroundings.attach_limits.get(node.name, {})
    if not limits or not pod.constraints.claims:
        return
    used = {volume for other in board.pods_on(node.name) for volume in _attached(board, other)}
    attached = Counter(driver for driver, _ in used | board.left_attached.get(node.name, frozenset()))
    new = Counter(driver for driver, _ in attached_for(claim for _, claim in claims_of(board.surroundings, pod)) - used)
    for driver, more in new.items():
        if driver in limits and attached[driver] + more > limits[driver]:
            most, would = limits[driver], attached[driver] + more
            yield f"attaches at most {most} volumes of {driver}, and would have {would}"


def _attached(board: Board, pod: Pod) -> set[AttachedVolume]:
    if board.place_of(key_of(pod)) != pod.node:
        return attached_for(claim for _, claim in claims_of(board.surroundings, pod))
    return attached_for_running(board.surroundings, pod)

"""What kube-scheduler's filters say about one pod on one node, neighbours apart: the node itself, room, volumes."""

from collections.abc import Iterable, Iterator

from cruise.decisions.scheduling.board import Board, key_of
from cruise.decisions.scheduling.claims import claims_of, why_volumes_not_judged
from cruise.domain.cluster import Node, Pod
from cruise.domain.colocation import Claim
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
    here = [*board.pods_on(node.name), *board.expected_on(node.name, pod)]
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
        if claim is None:
            yield f"cannot give claim {name}, which does not exist"
            continue
        if not claim.bound and not claim.waits:
            yield f"cannot give claim {name}, which is not bound"
        if claim.terms is not None and not any(term.matches(node.name, node.labels) for term in claim.terms):
            yield f"is out of reach for the volume of claim {name}"
        users = board.users_of((pod.namespace, name))
        if claim.single_pod and users:
            yield f"cannot give claim {name} to a second pod"
        elif claim.single_node and users and not users[node.name]:
            yield f"cannot give claim {name}, which is {IN_USE}"


def refuse_by_attach_limits(board: Board, pod: Pod, node: Node) -> Iterator[str]:
    """Say which CSI drivers attach no more volumes there; a volume that is attached already counts once."""
    limits = board.surroundings.attach_limits.get(node.name, {})
    if not limits or not pod.constraints.claims:
        return
    attached = {volume for other in board.pods_on(node.name) for volume in _volumes(board, other)}
    wanted = _named(claim for _, claim in claims_of(board.surroundings, pod))
    for driver, limit in limits.items():
        before = {volume for volume in attached if volume[0] == driver}
        after = before | {volume for volume in wanted if volume[0] == driver}
        if len(after) > len(before) and len(after) > limit:
            yield f"attaches at most {limit} volumes of {driver}, and would have {len(after)}"


def _volumes(board: Board, pod: Pod) -> set[tuple[str, str]]:
    if board.place_of(key_of(pod)) != pod.node:
        return _named(claim for _, claim in claims_of(board.surroundings, pod))
    return _named(board.surroundings.claims.get((pod.namespace, name)) for name in pod.constraints.claims)


def _named(claims: Iterable[Claim | None]) -> set[tuple[str, str]]:
    return {(claim.driver, _name_of(claim)) for claim in claims if claim is not None and claim.driver is not None}


def _name_of(claim: Claim) -> str:
    return claim.volume or f"{claim.namespace}/{claim.name}"

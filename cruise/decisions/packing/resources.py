"""The room that kube-scheduler keeps on a node for a pod for which it has preempted others there."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from cruise.decisions.scheduling.filters import check_node, iterate_claims
from cruise.decisions.scheduling.placements import (
    PodPlacements,
    get_attached_volumes,
    get_attached_volumes_of_running_pod,
    get_pod_key,
    is_waiting_for_scheduling,
)
from cruise.decisions.scheduling.pod_affinity import SchedulerFilters
from cruise.domain.cluster import ClusterSnapshot, Node, Pod
from cruise.domain.pod_resources import count_pod_requests
from cruise.domain.resources import UNBOUNDED, Int64Array
from cruise.domain.scheduling import UNCONSTRAINED, AttachedVolume, StorageAndNamespaces

# Resource columns: what pods take and nodes have, each in the resource's own whole unit.

BASIC_RESOURCES = ("cpu", "memory", "pods")
ATTACH_PREFIX = "attach:"

LeftoverAttachments = Mapping[str, frozenset[AttachedVolume]]
NO_LEFTOVER_ATTACHMENTS: LeftoverAttachments = {}

# What a pod takes beside CPU, memory and its own place: (resource, amount), sorted.
ExtraResources = tuple[tuple[str, int], ...]


def list_resource_columns(
    extras: Iterable[ExtraResources],
    nodes: Sequence[Node],
    surroundings: StorageAndNamespaces,
    most_pods: Int64Array,
    left: LeftoverAttachments = NO_LEFTOVER_ATTACHMENTS,
) -> tuple[str, ...]:
    """Name the columns that a problem needs: without what every node has enough of for as many pods as it may hold.

    `most_pods[node]` bounds the pods on a node, in any plan and now.
    """
    largest: dict[str, int] = {}
    for items in extras:
        for name, amount in items:
            largest[name] = max(largest.get(name, 0), amount)
    names = sorted(name for name, amount in largest.items() if amount > 0)
    offered = build_capacity_table(nodes, surroundings, (*BASIC_RESOURCES, *names), left)[:, len(BASIC_RESOURCES) :]
    taken = most_pods[:, None] * np.array([min(largest[name], UNBOUNDED) for name in names], dtype=np.float64)
    short = np.asarray((offered < taken).any(axis=0)).tolist()
    return (*BASIC_RESOURCES, *(name for name, is_short in zip(names, short, strict=True) if is_short))


def build_capacity_table(
    nodes: Sequence[Node],
    surroundings: StorageAndNamespaces,
    names: Sequence[str],
    left: LeftoverAttachments = NO_LEFTOVER_ATTACHMENTS,
) -> Int64Array:
    """Return nodes x resources; a node whose kubelet states no attach limit attaches any number of volumes.

    Volumes that are `left` attached for pods that are gone take of a limit.
    """
    columns = [
        [node.allocatable.cpu_millicores for node in nodes],
        [node.allocatable.memory_bytes for node in nodes],
        [node.allocatable_pods for node in nodes],
    ]
    for name in names[len(BASIC_RESOURCES) :]:
        if name.startswith(ATTACH_PREFIX):
            driver = name.removeprefix(ATTACH_PREFIX)
            columns.append([_attaches(driver, node.name, surroundings, left) for node in nodes])
        else:
            columns.append([node.allocatable_extended.get(name, 0) for node in nodes])
    return np.ascontiguousarray(np.array(columns, dtype=np.int64).reshape(len(names), len(nodes)).T)


def _attaches(driver: str, node: str, surroundings: StorageAndNamespaces, left: LeftoverAttachments) -> int:
    limit = surroundings.attach_limits.get(node, {}).get(driver)
    if limit is None:
        return UNBOUNDED
    return max(0, limit - sum(of == driver for of, _ in left.get(node, ())))


def select_resources(extras: ExtraResources, names: Sequence[str]) -> ExtraResources:
    """Return the amounts of the named resources alone."""
    return tuple(item for item in extras if item[0] in names and item[1] > 0)


def build_amounts_table(rows: Sequence[tuple[int, int, int, ExtraResources]], names: Sequence[str]) -> Int64Array:
    """Return one row for each of (CPU, memory, pods, extras), one column a name."""
    place = {name: column for column, name in enumerate(names)}
    found = np.zeros((len(rows), len(names)), dtype=np.int64)
    for row, (cpu, memory, pods, extras) in enumerate(rows):
        found[row, :3] = (cpu, memory, pods)
        for name, amount in extras:
            found[row, place[name]] += amount
    return found


class NominatedPods:
    """Pods with a nominated node: each goes there once what was preempted is gone, and until then nowhere."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._nodes = {node.name: node for node in snapshot.nodes}
        nominated = [
            pod for pod in snapshot.pods if pod.nominated_node in self._nodes and is_waiting_for_scheduling(pod)
        ]
        self._surroundings = snapshot.storage_and_namespaces
        # One for all that rules do not tell apart.
        self._nominated = list({_seen_by_rules(pod): pod for pod in nominated}.values())
        board = PodPlacements(snapshot) if nominated else None
        scheduler = SchedulerFilters(board) if board else None
        self._may_come: dict[tuple[str, str], bool] = {}
        # The highest priority comes first, as it does in the queue.
        for pod in sorted(nominated, key=lambda one: -one.priority):
            assert board is not None and scheduler is not None
            comes = next(scheduler.check(pod, self._nodes[pod.nominated_node]), None) is None
            self._may_come[get_pod_key(pod)] = comes
            if comes:
                board.add(pod, pod.nominated_node)

    def may_come(self, pod: Pod) -> bool:
        """Tell whether a pod is nominated for a node whose room for it is free by now."""
        return self._may_come.get(get_pod_key(pod), False)

    def explain_unsupported(self, pod: Pod) -> str | None:
        """Say what is not known of a pod until pods have come to the nodes that they are nominated for; None for none.

        That is a nominated pod itself while what it has preempted is still there. Of others it is each to which a
        nominated pod of the same or a higher priority is, or will be, one that their rules speak of.
        """
        if get_pod_key(pod) in self._may_come:
            waits = not self._may_come[get_pod_key(pod)]
            return f"nominated for {pod.nominated_node}, where its room is not free yet" if waits else None
        for one in self._nominated:
            if one.priority >= pod.priority and self._are_tied(pod, one):
                return f"its rules concern {one.namespace}/{one.name}, which is nominated for {one.nominated_node}"
        return None

    def _are_tied(self, pod: Pod, nominated: Pod) -> bool:
        """Tell whether the place of a nominated pod decides where another pod may go."""
        asks, others = pod.constraints, nominated.constraints
        if asks is UNCONSTRAINED and not others.anti_affinity:
            return False
        if pod.namespace == nominated.namespace and (
            set(asks.claims) & set(others.claims) or any(one.matches(nominated.labels) for one in asks.spread)
        ):
            return True
        node = self._nodes[nominated.nominated_node]
        if pod.placement.allows_node(node.name, node.labels) and any(
            one.collides_with(other) for one in asks.host_ports for other in others.host_ports
        ):
            return True
        return any(
            self._surroundings.find_matching_namespaces(term, nominated.namespace, nominated.labels)
            for term in (*asks.affinity, *asks.anti_affinity)
        ) or any(
            self._surroundings.find_matching_namespaces(term, pod.namespace, pod.labels)
            for term in others.anti_affinity
        )


def _seen_by_rules(pod: Pod) -> tuple[object, ...]:
    node = pod.nominated_node if pod.constraints.host_ports else ""
    return pod.namespace, frozenset(pod.labels.items()), pod.constraints, pod.priority, node


def find_pods_that_may_use_nominated_capacity(snapshot: ClusterSnapshot, pods: Iterable[Pod]) -> Iterator[Pod]:
    """Yield the pending pods that may fit where room is kept for a lower priority, from which it is not kept."""
    nodes = {node.name: node for node in snapshot.nodes}
    kept = [
        (one.priority, nodes[one.nominated_node])
        for one in snapshot.pods
        if one.nominated_node in nodes and is_waiting_for_scheduling(one)
    ]
    if not kept:
        return
    board = PodPlacements(snapshot)
    for pod in pods:
        if pod.node is None and any(
            low < pod.priority
            and count_pod_requests(pod).fits_in(node.allocatable)
            and not any(check_node(board, pod, node))
            for low, node in kept
        ):
            yield pod


def remove_lower_priority_nominations(snapshot: ClusterSnapshot, pods: Sequence[Pod]) -> ClusterSnapshot | None:
    """Return the snapshot as it is for `pods`, which wait: for kube-scheduler room is kept from no higher priority.

    Pods lose their nomination where one of `pods` may take the room, which is free already. None where there are none.
    """
    kept_room = NominatedPods(snapshot)
    freed = {
        get_pod_key(one)
        for one in snapshot.pods
        if kept_room.may_come(one)
        and any(find_pods_that_may_use_nominated_capacity(replace(snapshot, pods=(one,)), pods))
    }
    if not freed:
        return None
    changed = (replace(one, nominated_node="") if get_pod_key(one) in freed else one for one in snapshot.pods)
    return replace(snapshot, pods=tuple(changed))


def subtract_nominated_capacity(
    capacities: Int64Array, snapshot: ClusterSnapshot, nodes: Sequence[Node], names: Sequence[str]
) -> Int64Array:
    """Return what nodes have for all other pods; those that room is kept for take nothing of it."""
    place = {node.name: number for number, node in enumerate(nodes)}
    left = capacities.copy()
    for pod in snapshot.pods:
        if pod.nominated_node in place and is_waiting_for_scheduling(pod):
            counted = count_pod_requests(pod)
            amounts = {"cpu": counted.cpu_millicores, "memory": counted.memory_bytes, "pods": 1}
            amounts |= dict(pod.extended_requests) | _attaches_kept_room(snapshot, pod)
            left[place[pod.nominated_node]] -= [amounts.get(name, 0) for name in names]
    return np.maximum(left, 0)


def _attaches_kept_room(snapshot: ClusterSnapshot, pod: Pod) -> dict[str, int]:
    """Return how many volumes of each driver a nominated pod attaches to its node, beside those of pods there."""
    surroundings = snapshot.storage_and_namespaces
    volumes = get_attached_volumes(claim for _, claim in iterate_claims(surroundings, pod))
    if volumes:
        for other in snapshot.pods:
            if other.node == pod.nominated_node and not other.is_finished:
                volumes -= get_attached_volumes_of_running_pod(surroundings, other)
    return Counter(ATTACH_PREFIX + driver for driver, _ in volumes)

"""Builds tables of the resources that pods need and nodes have, without the capacity for nominated pods."""

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
from cruise.domain.arrays import UNBOUNDED, Int64Array
from cruise.domain.cluster import ClusterSnapshot, Node, Pod
from cruise.domain.pod_resources import count_pod_requests
from cruise.domain.scheduling import UNCONSTRAINED, AttachedVolume, StorageAndNamespaces

# Each amount is in the whole unit of its resource.

BASIC_RESOURCES = ("cpu", "memory", "pods")
ATTACH_PREFIX = "attach:"

LeftoverAttachments = Mapping[str, frozenset[AttachedVolume]]
NO_LEFTOVER_ATTACHMENTS: LeftoverAttachments = {}

# What a pod needs besides CPU, memory and a pod slot: (resource, amount), sorted.
ExtraResources = tuple[tuple[str, int], ...]


def list_scarce_resources(
    extras: Iterable[ExtraResources],
    nodes: Sequence[Node],
    storage_and_namespaces: StorageAndNamespaces,
    max_pods: Int64Array,
    leftover: LeftoverAttachments = NO_LEFTOVER_ATTACHMENTS,
) -> tuple[str, ...]:
    """Return the resources that can be short: those of which some node has too little for as many pods as it may hold.

    `max_pods[node]` bounds the pods on a node, now and in any plan.
    """
    largest: dict[str, int] = {}
    for resources in extras:
        for name, amount in resources:
            largest[name] = max(largest.get(name, 0), amount)
    names = sorted(name for name, amount in largest.items() if amount > 0)
    capacity = build_capacity_table(nodes, storage_and_namespaces, (*BASIC_RESOURCES, *names), leftover)[
        :, len(BASIC_RESOURCES) :
    ]
    max_needed = max_pods[:, None] * np.array([min(largest[name], UNBOUNDED) for name in names], dtype=np.float64)
    may_be_short = np.asarray((capacity < max_needed).any(axis=0)).tolist()
    return (*BASIC_RESOURCES, *(name for name, is_short in zip(names, may_be_short, strict=True) if is_short))


def build_capacity_table(
    nodes: Sequence[Node],
    storage_and_namespaces: StorageAndNamespaces,
    names: Sequence[str],
    leftover: LeftoverAttachments = NO_LEFTOVER_ATTACHMENTS,
) -> Int64Array:
    """Return an array [node, resource]; a node without an attach limit may attach any number of volumes.

    Volumes that are `leftover`, attached for pods that no longer exist, count toward the limit.
    """
    columns = [
        [node.allocatable.cpu_millicores for node in nodes],
        [node.allocatable.memory_bytes for node in nodes],
        [node.allocatable_pods for node in nodes],
    ]
    for name in names[len(BASIC_RESOURCES) :]:
        if name.startswith(ATTACH_PREFIX):
            driver = name.removeprefix(ATTACH_PREFIX)
            columns.append([_get_attach_limit(driver, node.name, storage_and_namespaces, leftover) for node in nodes])
        else:
            columns.append([node.allocatable_extended.get(name, 0) for node in nodes])
    return np.ascontiguousarray(np.array(columns, dtype=np.int64).reshape(len(names), len(nodes)).T)


def _get_attach_limit(
    driver: str, node: str, storage_and_namespaces: StorageAndNamespaces, leftover: LeftoverAttachments
) -> int:
    limit = storage_and_namespaces.attach_limits.get(node, {}).get(driver)
    if limit is None:
        return UNBOUNDED
    return max(0, limit - sum(attached_driver == driver for attached_driver, _ in leftover.get(node, ())))


def select_amounts_by_name(extras: ExtraResources, names: Sequence[str]) -> ExtraResources:
    """Return the amounts of the named resources."""
    return tuple(item for item in extras if item[0] in names and item[1] > 0)


def build_amounts_table(rows: Sequence[tuple[int, int, int, ExtraResources]], names: Sequence[str]) -> Int64Array:
    """Return an array [row, resource] from rows of (CPU, memory, pods, extra resources)."""
    column_of = {name: column for column, name in enumerate(names)}
    table = np.zeros((len(rows), len(names)), dtype=np.int64)
    for row, (cpu, memory, pods, extras) in enumerate(rows):
        table[row, :3] = (cpu, memory, pods)
        for name, amount in extras:
            table[row, column_of[name]] += amount
    return table


class NominatedPods:
    """Pending pods with a nominated node, for which kube-scheduler has preempted other pods."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._nodes = {node.name: node for node in snapshot.nodes}
        nominated = [
            pod for pod in snapshot.pods if pod.nominated_node in self._nodes and is_waiting_for_scheduling(pod)
        ]
        self._storage_and_namespaces = snapshot.storage_and_namespaces
        # One pod represents all that rules do not distinguish.
        self._nominated = list({_get_rule_key(pod): pod for pod in nominated}.values())
        placements = PodPlacements(snapshot) if nominated else None
        scheduler = SchedulerFilters(placements) if placements else None
        self._fits_now: dict[tuple[str, str], bool] = {}
        # The highest priority is scheduled first.
        for pod in sorted(nominated, key=lambda pod: -pod.priority):
            assert placements is not None and scheduler is not None
            fits = next(scheduler.check(pod, self._nodes[pod.nominated_node]), None) is None
            self._fits_now[get_pod_key(pod)] = fits
            if fits:
                placements.add(pod, pod.nominated_node)

    def fits_now(self, pod: Pod) -> bool:
        """Return whether the nominated node already has free capacity for a pod."""
        return self._fits_now.get(get_pod_key(pod), False)

    def explain_unsupported(self, pod: Pod) -> str | None:
        """Return why a pod cannot be evaluated until nominated pods are bound; None if it can.

        That is a nominated pod whose preempted pods are still there, or a pod whose rules concern a nominated pod of
        the same or a higher priority.
        """
        if get_pod_key(pod) in self._fits_now:
            is_waiting = not self._fits_now[get_pod_key(pod)]
            return f"nominated for {pod.nominated_node}, where its capacity is not free yet" if is_waiting else None
        for nominated in self._nominated:
            if nominated.priority >= pod.priority and self._is_related(pod, nominated):
                name, node = f"{nominated.namespace}/{nominated.name}", nominated.nominated_node
                return f"its rules concern {name}, which is nominated for {node}"
        return None

    def _is_related(self, pod: Pod, nominated: Pod) -> bool:
        """Return whether the placement of a nominated pod decides where another pod may be placed."""
        constraints, nominated_constraints = pod.constraints, nominated.constraints
        if constraints is UNCONSTRAINED and not nominated_constraints.anti_affinity:
            return False
        if pod.namespace == nominated.namespace and (
            set(constraints.claims) & set(nominated_constraints.claims)
            or any(one.matches(nominated.labels) for one in constraints.spread)
        ):
            return True
        node = self._nodes[nominated.nominated_node]
        if pod.placement.allows_node(node.name, node.labels) and any(
            one.collides_with(other) for one in constraints.host_ports for other in nominated_constraints.host_ports
        ):
            return True
        return any(
            self._storage_and_namespaces.term_matches_pod(term, nominated.namespace, nominated.labels)
            for term in (*constraints.affinity, *constraints.anti_affinity)
        ) or any(
            self._storage_and_namespaces.term_matches_pod(term, pod.namespace, pod.labels)
            for term in nominated_constraints.anti_affinity
        )


def _get_rule_key(pod: Pod) -> tuple[object, ...]:
    node = pod.nominated_node if pod.constraints.host_ports else ""
    return pod.namespace, frozenset(pod.labels.items()), pod.constraints, pod.priority, node


def find_pods_that_may_use_nominated_capacity(snapshot: ClusterSnapshot, pods: Iterable[Pod]) -> Iterator[Pod]:
    """Yield pending pods that may fit into capacity reserved for nominated pods of lower priority."""
    nodes = {node.name: node for node in snapshot.nodes}
    nominated = [
        (other.priority, nodes[other.nominated_node])
        for other in snapshot.pods
        if other.nominated_node in nodes and is_waiting_for_scheduling(other)
    ]
    if not nominated:
        return
    placements = PodPlacements(snapshot)
    for pod in pods:
        if pod.node is None and any(
            priority < pod.priority
            and count_pod_requests(pod).fits_in(node.allocatable)
            and not any(check_node(placements, pod, node))
            for priority, node in nominated
        ):
            yield pod


def remove_lower_priority_nominations(snapshot: ClusterSnapshot, pods: Sequence[Pod]) -> ClusterSnapshot | None:
    """Return the snapshot as kube-scheduler sees it for `pods`, or None if it is the same.

    kube-scheduler does not reserve capacity against pods of higher priority. Pods lose their nomination if one of
    `pods` may use their capacity, which is free already.
    """
    nominated = NominatedPods(snapshot)
    removed = {
        get_pod_key(pod)
        for pod in snapshot.pods
        if nominated.fits_now(pod)
        and any(find_pods_that_may_use_nominated_capacity(replace(snapshot, pods=(pod,)), pods))
    }
    if not removed:
        return None
    changed_pods = (replace(pod, nominated_node="") if get_pod_key(pod) in removed else pod for pod in snapshot.pods)
    return replace(snapshot, pods=tuple(changed_pods))


def subtract_nominated_capacity(
    capacities: Int64Array, snapshot: ClusterSnapshot, nodes: Sequence[Node], names: Sequence[str]
) -> Int64Array:
    """Return the capacities without what nominated pods need on their nodes."""
    node_numbers = {node.name: number for number, node in enumerate(nodes)}
    remaining = capacities.copy()
    for pod in snapshot.pods:
        if pod.nominated_node in node_numbers and is_waiting_for_scheduling(pod):
            requests = count_pod_requests(pod)
            amounts = {"cpu": requests.cpu_millicores, "memory": requests.memory_bytes, "pods": 1}
            amounts |= dict(pod.extended_requests) | _count_new_attachments(snapshot, pod)
            remaining[node_numbers[pod.nominated_node]] -= [amounts.get(name, 0) for name in names]
    return np.maximum(remaining, 0)


def _count_new_attachments(snapshot: ClusterSnapshot, pod: Pod) -> dict[str, int]:
    """Return how many volumes of each driver a nominated pod will attach to its node."""
    storage_and_namespaces = snapshot.storage_and_namespaces
    volumes = get_attached_volumes(claim for _, claim in iterate_claims(storage_and_namespaces, pod))
    if volumes:
        for other in snapshot.pods:
            if other.node == pod.nominated_node and not other.is_finished:
                volumes -= get_attached_volumes_of_running_pod(storage_and_namespaces, other)
    return Counter(ATTACH_PREFIX + driver for driver, _ in volumes)

"""Simulates a node autoscaler: adds nodes for unschedulable pods, and drains nodes whose pods fit on others."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from cruise.domain.annotations import DO_NOT_DISRUPT, HOSTNAME, SAFE_TO_EVICT
from cruise.domain.autoscalers import NodeAutoscalerKind
from cruise.domain.cluster import Node, Pod
from cruise.domain.resources import NO_RESOURCES, Resources
from cruise.errors import RefusedError, ThrottledError
from cruise.simulation.cluster.kubelet import Kubelet
from cruise.simulation.cluster.state import SimulatedClusterState, SimulatedPod, convert_to_seconds
from cruise.simulation.cluster.workloads import is_daemonset_node


@dataclass(frozen=True, slots=True)
class NodeAutoscalerSettings:
    """The settings of the node autoscaler.

    For a pod that is unschedulable for `scale_up_delay_seconds` a node is added after `boot_seconds`: the first of
    `types` (their names are ignored) on which it fits next to the DaemonSets. If no node was added or removed for
    `scale_down_delay_seconds`, the least requested node whose pods fit on others by their present requests is cordoned
    and drained with the Eviction API. It may be requested up to `empty_share`: a half in cluster-autoscaler; Karpenter
    has no such rule.
    """

    kind: NodeAutoscalerKind
    types: Sequence[Node]
    scale_up_delay_seconds: int = 10
    boot_seconds: int = 60
    scale_down_delay_seconds: int = 600
    empty_share: float = 1.0


class SimulatedNodeAutoscaler:
    """The node autoscaler of a cluster, which drains one node at a time.

    `check` raises RefusedError or ThrottledError like the Eviction API, `evict` terminates a pod, and
    `on_nodes_changed` is called when a node is added or removed.
    """

    def __init__(
        self,
        options: NodeAutoscalerSettings,
        state: SimulatedClusterState,
        kubelet: Kubelet,
        *,
        check: Callable[[SimulatedPod], None],
        evict: Callable[[SimulatedPod], None],
        on_nodes_changed: Callable[[], None],
    ) -> None:
        self._options = options
        self._state = state
        self._kubelet = kubelet
        self._check = check
        self._evict = evict
        self._on_nodes_changed = on_nodes_changed
        self._node_count = 0
        self._booting: dict[str, Node] = {}
        self._draining: str | None = None
        self._scale_down_after = state.clock.now + options.scale_down_delay_seconds

    def step(self, at: int) -> None:
        """Add nodes for pending pods, and continue or start draining."""
        self._order_nodes(at)
        if self._draining is None and not self._booting and at >= self._scale_down_after:
            self._draining = self._find_removable_node()
            if self._draining is not None:
                self._state.set_node(replace(self._state.nodes[self._draining], unschedulable=True))
        if self._draining is not None:
            self._drain(self._draining, at)

    def _order_nodes(self, at: int) -> None:
        """Assign pending pods, by name, to booting nodes, and add nodes for the others."""
        nodes = dict(self._booting)
        free = {name: self._get_new_capacity(node) for name, node in nodes.items()}
        for record in sorted(self._state.unbound_pods.values(), key=lambda record: record.key):
            since = record.pod.unschedulable_since
            if since is None or at - convert_to_seconds(since) < self._options.scale_up_delay_seconds:
                continue
            place = _place(record, free, nodes)
            if place is None:
                node = self._choose_node_type(record)
                if node is None:
                    continue
                place, nodes[node.name], free[node.name] = node.name, node, self._get_new_capacity(node)
                self._booting[place] = node
                self._state.clock.schedule(at + self._options.boot_seconds, partial(self._boot, node))
            free[place] -= record.counted_requests

    def _choose_node_type(self, record: SimulatedPod) -> Node | None:
        name = f"scaled-{self._node_count + 1:04d}"
        for kind in self._options.types:
            node = replace(kind, name=name, labels={**kind.labels, HOSTNAME: name})
            if _place(record, {name: self._get_new_capacity(node)}, {name: node}):
                self._node_count += 1
                return node
        return None

    def _get_new_capacity(self, node: Node) -> Resources:
        """Return the capacity of a new node without the pods of DaemonSets."""
        daemons = {
            id(record.workload): record.counted_requests
            for record in self._state.records.values()
            if record.workload.kind == "DaemonSet" and is_daemonset_node(record.workload, node)
        }
        return node.allocatable - sum(daemons.values(), NO_RESOURCES)

    def _boot(self, node: Node, at: int) -> None:
        del self._booting[node.name]
        self._state.add_nodes([node])
        self._state.counts.nodes_added += 1
        self._delay_scale_down(at)

    def _delay_scale_down(self, at: int) -> None:
        self._scale_down_after = at + self._options.scale_down_delay_seconds
        self._on_nodes_changed()

    def _find_removable_node(self) -> str | None:
        """Return the node to drain, if any."""
        moving: dict[str, list[SimulatedPod]] = {name: [] for name in self._state.nodes}
        for record in self._state.records.values():
            if record.pod.node is not None and _must_be_evicted(record.pod):
                moving[record.pod.node].append(record)
        share, name = min(
            (
                (share, name)
                for name, records in moving.items()
                if (share := self._requested_share(name)) <= self._options.empty_share
                and all(self._may_be_evicted(record) for record in records)
                and self._fit_on_other_nodes(name, records)
            ),
            default=(0.0, None),
        )
        return name

    def _requested_share(self, name: str) -> float:
        index = self._state.node_index[name]
        return max(
            float(self._state.counted_cpu[index]) / max(1, int(self._state.allocatable_cpu[index])),
            float(self._state.counted_memory[index]) / max(1, int(self._state.allocatable_memory[index])),
        )

    def _may_be_evicted(self, record: SimulatedPod) -> bool:
        annotations = record.pod.annotations
        is_protected = annotations.get(SAFE_TO_EVICT) == "false" or any(
            annotations.get(one) == "true" for one in DO_NOT_DISRUPT
        )
        if is_protected or record.pod.workload is None:
            return False
        try:
            self._check(record)
        except (RefusedError, ThrottledError):
            return False
        return True

    def _fit_on_other_nodes(self, removed: str, moving: Sequence[SimulatedPod]) -> bool:
        state = self._state
        nodes = {name: node for name, node in state.nodes.items() if name != removed and node.ready}
        free = {}
        for name, node in nodes.items():
            index = state.node_index[name]
            counted = Resources(int(state.counted_cpu[index]), int(state.counted_memory[index]))
            if not node.unschedulable:
                free[name] = node.allocatable - counted
        for record in sorted(moving, key=lambda record: (-record.counted_requests.memory_bytes, record.key)):
            place = _place(record, free, nodes)
            if place is None:
                return False
            free[place] -= record.counted_requests
        return bool(free)

    def _drain(self, name: str, at: int) -> None:
        """Evict the pods that may be evicted now, and remove the node once only DaemonSet and finished pods remain."""
        on_node = [record for record in self._state.records.values() if record.pod.node == name]
        moving = [record for record in on_node if _must_be_evicted(record.pod)]
        for record in sorted(moving, key=lambda record: record.key):
            if record.pod.terminating:
                continue
            try:
                self._check(record)
            except (RefusedError, ThrottledError):
                # Not allowed by a budget now: the next step tries again.
                continue
            self._evict(record)
            self._state.counts.drained += 1
        if not moving:
            for record in on_node:
                self._kubelet.remove(record, at)
            self._state.remove_node(name)
            self._state.counts.nodes_removed += 1
            self._draining = None
            self._delay_scale_down(at)


def _place(record: SimulatedPod, free: Mapping[str, Resources], nodes: Mapping[str, Node]) -> str | None:
    """Return the first node that a pod fits on."""
    placement = record.pod.placement
    for name, left in free.items():
        node = nodes[name]
        if (
            record.counted_requests.fits_in(left)
            and placement.allows_node(name, node.labels)
            and placement.tolerates_all(node.taints)
        ):
            return name
    return None


def _must_be_evicted(pod: Pod) -> bool:
    """Return whether a pod must be evicted before its node is removed: not finished, and not of a DaemonSet."""
    return not pod.is_finished and pod.owner_kind != "DaemonSet"

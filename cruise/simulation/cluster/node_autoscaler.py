"""A node autoscaler: nodes for pods that find none, and fewer where the pods of one have room elsewhere."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from cruise.domain.annotations import DO_NOT_DISRUPT, HOSTNAME, SAFE_TO_EVICT
from cruise.domain.cluster import Node, NodeAutoscalerKind, Pod
from cruise.domain.resources import NO_RESOURCES, Resources
from cruise.errors import RefusedError, ThrottledError
from cruise.simulation.cluster.kubelet import Kubelet
from cruise.simulation.cluster.state import PodRecord, SimulatedClusterState, convert_to_seconds
from cruise.simulation.cluster.workloads import is_daemonset_node


@dataclass(frozen=True, slots=True)
class NodeAutoscalerSettings:
    """How nodes come and go.

    A pod that is unschedulable for `patience_seconds` gets a node of the first of `types` (whose names are ignored)
    that has room for it beside the DaemonSets, `boot_seconds` later. Once nothing has come or gone for
    `settle_seconds`, the least requested node whose pods have room elsewhere, with the requests that they have now, is
    cordoned and drained through the Eviction API: only up to `empty_share` of it requested, which Karpenter does not
    ask for and cluster-autoscaler has at a half.
    """

    kind: NodeAutoscalerKind
    types: Sequence[Node]
    scale_up_delay_seconds: int = 10
    boot_seconds: int = 60
    scale_down_delay_seconds: int = 600
    empty_share: float = 1.0


class SimulatedNodeAutoscaler:
    """The node autoscaler of a cluster: one node at a time is drained.

    `check` raises Refused or Throttled where the Eviction API would, `evict` begins to end a pod, and `changed` is
    called when a node came or went.
    """

    def __init__(
        self,
        options: NodeAutoscalerSettings,
        state: SimulatedClusterState,
        kubelet: Kubelet,
        *,
        check: Callable[[PodRecord], None],
        evict: Callable[[PodRecord], None],
        changed: Callable[[], None],
    ) -> None:
        self._options = options
        self._state = state
        self._kubelet = kubelet
        self._check = check
        self._evict = evict
        self._changed = changed
        self._ordered = 0
        self._booting: dict[str, Node] = {}
        self._draining: str | None = None
        self._settled_at = state.timeline.now + options.scale_down_delay_seconds

    def step(self, at: int) -> None:
        """Order nodes for pods that wait, go on draining, or begin to drain."""
        self._order_nodes(at)
        if self._draining is None and not self._booting and at >= self._settled_at:
            self._draining = self._superfluous()
            if self._draining is not None:
                self._state.set_node(replace(self._state.nodes[self._draining], unschedulable=True))
        if self._draining is not None:
            self._drain(self._draining, at)

    def _order_nodes(self, at: int) -> None:
        """Give waiting pods, by name, room on nodes that boot, and order more where there is none."""
        nodes = dict(self._booting)
        room = {name: self._room_when_new(node) for name, node in nodes.items()}
        for record in sorted(self._state.unbound_pods.values(), key=lambda record: record.key):
            since = record.pod.unschedulable_since
            if since is None or at - convert_to_seconds(since) < self._options.scale_up_delay_seconds:
                continue
            place = _place(record, room, nodes)
            if place is None:
                node = self._node_for(record)
                if node is None:
                    continue
                place, nodes[node.name], room[node.name] = node.name, node, self._room_when_new(node)
                self._booting[place] = node
                self._state.timeline.schedule(at + self._options.boot_seconds, partial(self._boot, node))
            room[place] -= record.counted_requests

    def _node_for(self, record: PodRecord) -> Node | None:
        name = f"scaled-{self._ordered + 1:04d}"
        for kind in self._options.types:
            node = replace(kind, name=name, labels={**kind.labels, HOSTNAME: name})
            if _place(record, {name: self._room_when_new(node)}, {name: node}):
                self._ordered += 1
                return node
        return None

    def _room_when_new(self, node: Node) -> Resources:
        """Return what the DaemonSets' pods leave of a new node."""
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
        self._settle(at)

    def _settle(self, at: int) -> None:
        self._settled_at = at + self._options.scale_down_delay_seconds
        self._changed()

    def _superfluous(self) -> str | None:
        """Return the node to be drained, None where there is none."""
        moving: dict[str, list[PodRecord]] = {name: [] for name in self._state.nodes}
        for record in self._state.records.values():
            if record.pod.node is not None and _leaves(record.pod):
                moving[record.pod.node].append(record)
        share, name = min(
            (
                (share, name)
                for name, records in moving.items()
                if (share := self._requested_share(name)) <= self._options.empty_share
                and all(self._may_move(record) for record in records)
                and self._fit_elsewhere(name, records)
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

    def _may_move(self, record: PodRecord) -> bool:
        annotations = record.pod.annotations
        held = annotations.get(SAFE_TO_EVICT) == "false" or any(
            annotations.get(one) == "true" for one in DO_NOT_DISRUPT
        )
        if held or record.pod.workload is None:
            return False
        try:
            self._check(record)
        except (RefusedError, ThrottledError):
            return False
        return True

    def _fit_elsewhere(self, closed: str, moving: Sequence[PodRecord]) -> bool:
        state = self._state
        nodes = {name: node for name, node in state.nodes.items() if name != closed and node.ready}
        room = {}
        for name, node in nodes.items():
            index = state.node_index[name]
            counted = Resources(int(state.counted_cpu[index]), int(state.counted_memory[index]))
            if not node.unschedulable:
                room[name] = node.allocatable - counted
        for record in sorted(moving, key=lambda record: (-record.counted_requests.memory_bytes, record.key)):
            place = _place(record, room, nodes)
            if place is None:
                return False
            room[place] -= record.counted_requests
        return bool(room)

    def _drain(self, name: str, at: int) -> None:
        """Evict what may go now, and remove the node once only what ends with it is left."""
        here = [record for record in self._state.records.values() if record.pod.node == name]
        moving = [record for record in here if _leaves(record.pod)]
        for record in sorted(moving, key=lambda record: record.key):
            if record.pod.terminating:
                continue
            try:
                self._check(record)
            except (RefusedError, ThrottledError):
                # A budget holds it for now: the next step tries again.
                continue
            self._evict(record)
            self._state.counts.drained += 1
        if not moving:
            for record in here:
                self._kubelet.remove(record, at)
            self._state.remove_node(name)
            self._state.counts.nodes_removed += 1
            self._draining = None
            self._settle(at)


def _place(record: PodRecord, room: Mapping[str, Resources], nodes: Mapping[str, Node]) -> str | None:
    """Return the first node with room for a pod and no objection to it."""
    placement = record.pod.placement
    for name, left in room.items():
        node = nodes[name]
        if (
            record.counted_requests.fits_in(left)
            and placement.allows_node(name, node.labels)
            and placement.tolerates_all(node.taints)
        ):
            return name
    return None


def _leaves(pod: Pod) -> bool:
    """Tell whether a pod has to be evicted before its node goes: a DaemonSet's, or one that is over, ends with it."""
    return not pod.is_finished and pod.owner_kind != "DaemonSet"

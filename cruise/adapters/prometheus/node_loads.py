"""Node load: the load average where there is one, else the load from the node's own control group.

Three questions at most, each one sample or a few a node, and the later ones only for nodes that the first leaves open:

1. the 1-minute load averages, by their node label or the host of `instance`;
2. where they are known by addresses alone, as node-exporter's often are, the names that the same exporters report;
3. for nodes without a load average, the root control group (`id="/"`) from cAdvisor: the cores in use × (1 + the share
   of time in which a task waited for one). Without pressure figures it is at most the node's cores, so that it can
   calm a node but not call it overloaded. Some installations drop these series: then the node has no reading.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from cruise.adapters.prometheus.client import PrometheusClient
from cruise.adapters.prometheus.matrix import NodeLoad, NodeLoadDecoder
from cruise.adapters.prometheus.queries import node_load_query, node_name_query, root_group_query
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.domain.cluster import Snapshot

_NODE_NAME = "nodename"


class NodeLoadReader:
    """Reads the loads of nodes; blocks."""

    def __init__(self, settings: PrometheusSettings, client: PrometheusClient) -> None:
        self._settings = settings
        self._client = client
        self._averages = NodeLoadDecoder(settings.node_load_label, settings.accept_partial)
        self._names = NodeLoadDecoder(_NODE_NAME, settings.accept_partial)
        self._roots = NodeLoadDecoder(settings.labels.node, settings.accept_partial)

    def read(self, at: int, nodes: Mapping[str, float]) -> dict[str, float]:
        """Return the load of each node with a reading; `nodes` has their cores, without any all load averages count.

        Raises BadInput, Throttled, Unavailable.
        """
        readings = self._averages.loads(self._client.query(node_load_query(self._settings), at))
        loads = _by_node(readings)
        missing = nodes.keys() - loads.keys()
        addressed = [reading for reading in readings if _node_of(reading) not in nodes]
        if missing and addressed:
            loads |= _by_node(self._named(addressed, at))
            missing -= loads.keys()
        if missing and self._settings.labels.id:
            loads |= self._root_groups(at, {node: nodes[node] for node in missing})
        return loads

    def _named(self, readings: Iterable[NodeLoad], at: int) -> Iterable[NodeLoad]:
        """Return the readings under the names that their exporters report; one of two names is none."""
        reported: dict[str, set[str]] = {}
        for one in self._names.loads(self._client.query(node_name_query(self._settings), at)):
            reported.setdefault(one.instance, set()).add(one.node)
        for reading in readings:
            names = reported.get(reading.instance, set())
            if len(names) == 1:
                yield NodeLoad(next(iter(names)), reading.instance, reading.value)

    def _root_groups(self, at: int, nodes: Mapping[str, float]) -> dict[str, float]:
        metrics = self._settings.metrics
        used = _by_node(self._roots.loads(self._client.query(root_group_query(self._settings, metrics.cpu), at)))
        found = used.keys() & nodes.keys()
        if not found:
            return {}
        waiting_query = root_group_query(self._settings, metrics.cpu_waiting)
        waiting = _by_node(self._roots.loads(self._client.query(waiting_query, at)))
        return {
            # Scrapes are not on the dot, so a busy node seems to use a little more than it has.
            node: used[node] * (1 + min(1.0, waiting[node])) if waiting.get(node) else min(used[node], nodes[node])
            for node in found
        }


def cores_of(snapshot: Snapshot) -> dict[str, float]:
    """Return how many cores each node has; where that is unknown, how many pods may have."""
    return {
        node.name: (node.cpu_capacity_millicores or node.allocatable.cpu_millicores) / 1000 for node in snapshot.nodes
    }


def _by_node(readings: Iterable[NodeLoad]) -> dict[str, float]:
    loads: dict[str, float] = {}
    for reading in readings:
        name = _node_of(reading)
        if name and np.isfinite(reading.value):
            loads[name] = max(reading.value, loads.get(name, 0.0))
    return loads


def _node_of(reading: NodeLoad) -> str:
    return reading.node or reading.instance.rpartition(":")[0] or reading.instance

"""Node load: the load average where there is one, else the load from the node's own control group.

A few questions, each one sample or a few a node, and the later ones only for nodes that the first leaves open:

1. when the 1-minute load averages were taken, and what they are, by their node label or the host of `instance`; in
   this order, so that a sample that comes in between counts at the next look and not twice;
2. where they are known by addresses alone, as node-exporter's often are, the names that the same exporters report;
   `node_exporters` says which of all these are believed;
3. for nodes without a load average, the root control group (`id="/"`) from cAdvisor: the cores in use × (1 + the share
   of time in which a task waited for one). Without pressure figures it is at most the node's cores, so that it can
   calm a node but not call it overloaded. Some installations drop these series: then the node has no reading.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import numpy as np

from cruise.adapters.prometheus.client import PrometheusClient
from cruise.adapters.prometheus.matrix import NodeLoad, NodeLoadDecoder
from cruise.adapters.prometheus.node_exporters import Instance, believed, node_of
from cruise.adapters.prometheus.queries import (
    node_load_query,
    node_load_time_query,
    node_name_query,
    root_group_query,
    root_group_time_query,
)
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.domain.cluster import Snapshot
from cruise.domain.usage import LoadSample

_NODE_NAME = "nodename"


class NodeLoadReader:
    """Reads the loads of nodes; blocks. `believed` says whose averages counted at the last reading."""

    def __init__(self, settings: PrometheusSettings, client: PrometheusClient) -> None:
        self._settings = settings
        self._client = client
        self._averages = NodeLoadDecoder(settings.node_load_label, settings.accept_partial)
        self._names = NodeLoadDecoder(_NODE_NAME, settings.accept_partial)
        self._roots = NodeLoadDecoder(settings.labels.node, settings.accept_partial)
        self.believed = believed(())

    def read(self, at: int, nodes: Mapping[str, float]) -> dict[str, LoadSample]:
        """Return the load of each node with a reading; `nodes` has their cores, without any all load averages count.

        Raises BadInput, Throttled, Unavailable.
        """
        taken = self._averages.loads(self._client.query(node_load_time_query(self._settings), at))
        readings = self._averages.loads(self._client.query(node_load_query(self._settings), at)) if taken else []
        named = {node_of(reading) for reading in readings}
        if nodes.keys() - named and named - nodes.keys():
            names = self._names_of_instances(at)
            readings, taken = _renamed(readings, names, nodes), _renamed(taken, names, nodes)
        self.believed = believed(readings, nodes)
        loads = _samples(self.believed.of(readings), self.believed.of(taken))
        missing = nodes.keys() - loads.keys() - self.believed.disputed
        if missing and self._settings.labels.id:
            loads |= self._root_groups(at, {node: nodes[node] for node in missing})
        return loads

    def _names_of_instances(self, at: int) -> Mapping[Instance, str]:
        """Return the name that each exporter reports; one of two names is none."""
        reported: dict[Instance, set[str]] = {}
        for one in self._names.loads(self._client.query(node_name_query(self._settings), at)):
            reported.setdefault((one.job, one.instance), set()).add(one.node)
        return {instance: next(iter(names)) for instance, names in reported.items() if len(names) == 1}

    def _root_groups(self, at: int, nodes: Mapping[str, float]) -> dict[str, LoadSample]:
        metrics = self._settings.metrics
        taken = self._ask_roots(root_group_time_query(self._settings, metrics.cpu), at)
        if not taken.keys() & nodes.keys():
            return {}
        used = self._ask_roots(root_group_query(self._settings, metrics.cpu), at)
        found = used.keys() & nodes.keys() & taken.keys()
        if not found:
            return {}
        waiting = self._ask_roots(root_group_query(self._settings, metrics.cpu_waiting), at)
        loads = {node: load_of_root(used[node], waiting.get(node), nodes[node]) for node in found}
        return {node: LoadSample(load, taken[node]) for node, load in loads.items()}

    def _ask_roots(self, query: str, at: int) -> dict[str, float]:
        return _by_node(self._roots.loads(self._client.query(query, at)))


def cores_of(snapshot: Snapshot) -> dict[str, float]:
    """Return how many cores each node has; where that is unknown, how many pods may have."""
    return {
        node.name: (node.cpu_capacity_millicores or node.allocatable.cpu_millicores) / 1000 for node in snapshot.nodes
    }


def load_of_root(used: float, waiting: float | None, cores: float) -> float:
    """Return a node's load from the cores that its root control group uses, and the share of time that tasks wait."""
    # Scrapes are not on the dot, so a busy node seems to use a little more than it has.
    return used * (1 + min(1.0, waiting)) if waiting else min(used, cores)


def _renamed(readings: Iterable[NodeLoad], names: Mapping[Instance, str], nodes: Collection[str]) -> list[NodeLoad]:
    """Give what is not known as a node the name that its exporter reports, if it does."""
    return [
        one if node_of(one) in nodes else replace(one, node=names.get((one.job, one.instance), one.node))
        for one in readings
    ]


def _samples(readings: Iterable[NodeLoad], taken: Iterable[NodeLoad]) -> dict[str, LoadSample]:
    times = _by_node(taken)
    return {node: LoadSample(load, times[node]) for node, load in _by_node(readings).items() if node in times}


def _by_node(readings: Iterable[NodeLoad]) -> dict[str, float]:
    values: dict[str, float] = {}
    for reading in readings:
        name = node_of(reading)
        if name and np.isfinite(reading.value):
            values[name] = max(reading.value, values.get(name, 0.0))
    return values

"""Node load: the load average if there is one, else the load from the node's root control group.

A few queries of one or few samples per node; the later ones only for nodes that the first leave open:

1. the times of the 1-minute load averages, and then their values, by node label or the host of `instance`; in this
   order, a sample that arrives in between counts at the next read and not twice;
2. if they are known only by address, as node-exporter's often are, the node names that the same exporters
   report; `choose_trusted_exporters` says which of them count;
3. for nodes without a load average, the root control group (`id="/"`) from cAdvisor: cores in use × (1 + the
   share of time in which a task waited). Without pressure it is at most the node's cores, so that it can only show that
   a node is not overloaded. Some installations drop these series; then the node has no load.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cruise.adapters.prometheus.client import PrometheusClient
from cruise.adapters.prometheus.queries import (
    NodeLoadDecoder,
    NodeLoadValue,
    build_node_load_query,
    build_node_load_time_query,
    build_node_name_query,
    build_root_cgroup_query,
    build_root_group_time_query,
)
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.usage import NodeLoadAverage

# A job with this share of the largest one's nodes counts as equal.
NEARLY_ALL_SHARE = 0.8
# Load averages of one machine, scraped within a minute, differ by less than this or than this share.
LOAD_TOLERANCE = 0.5
LOAD_TOLERANCE_SHARE = 0.25

Instance = tuple[str, str]


@dataclass(frozen=True, slots=True)
class TrustedNodeExporters:
    """The (job, instance) pairs whose values count, and the nodes for which they disagree.

    Any pod may expose load averages. So one exporter per node counts, of the jobs that report nearly as many nodes as
    the largest. `ignored` has one value of each job with instances that do not count.
    """

    instances: frozenset[Instance]
    disputed_nodes: frozenset[str]
    ignored: Sequence[NodeLoadValue] = ()

    def select(self, readings: Iterable[NodeLoadValue]) -> list[NodeLoadValue]:
        """Return the values that count."""
        return [
            one
            for one in readings
            if (one.job, one.instance) in self.instances and get_node_of_reading(one) not in self.disputed_nodes
        ]


def choose_trusted_exporters(readings: Sequence[NodeLoadValue], nodes: Collection[str] = ()) -> TrustedNodeExporters:
    """Choose the exporters that count; `nodes` are the nodes of the cluster, if known."""
    known = [one for one in readings if get_node_of_reading(one) and np.isfinite(one.value)]
    names: dict[Instance, set[str]] = defaultdict(set)
    for one in known:
        names[one.job, one.instance].add(get_node_of_reading(one))
    jobs: dict[str, set[str]] = defaultdict(set)
    for (job, _), named in names.items():
        # One exporter runs on one node.
        if len(named) == 1 and (not nodes or named <= set(nodes)):
            jobs[job] |= named
    largest = max((len(named) for named in jobs.values()), default=0)
    chosen = {job for job, named in jobs.items() if len(named) >= NEARLY_ALL_SHARE * largest}
    instances = frozenset(one for one, named in names.items() if len(named) == 1 and one[0] in chosen)
    loads: dict[str, list[float]] = defaultdict(list)
    for one in known:
        if (one.job, one.instance) in instances:
            loads[get_node_of_reading(one)].append(one.value)
    disputed = frozenset(node for node, values in loads.items() if _differ(min(values), max(values)))
    ignored = {one.job: one for one in known if (one.job, one.instance) not in instances}
    return TrustedNodeExporters(instances, disputed, list(ignored.values()))


def get_node_of_reading(reading: NodeLoadValue) -> str:
    """Return the node of a value: by its label, else the host of its exporter."""
    return reading.node or reading.instance.rpartition(":")[0] or reading.instance


def _differ(low: float, high: float) -> bool:
    return high - low > max(LOAD_TOLERANCE, LOAD_TOLERANCE_SHARE * high)


_NODE_NAME = "nodename"


class NodeLoadReader:
    """Reads the load of nodes; blocks. `trusted_exporters` has the exporters that counted in the last read."""

    def __init__(self, settings: PrometheusSettings, client: PrometheusClient) -> None:
        self._settings = settings
        self._client = client
        self._averages = NodeLoadDecoder(settings.node_load_label, settings.accept_partial)
        self._names = NodeLoadDecoder(_NODE_NAME, settings.accept_partial)
        self._roots = NodeLoadDecoder(settings.labels.node, settings.accept_partial)
        self.trusted_exporters = choose_trusted_exporters(())

    def read(self, at: int, nodes: Mapping[str, float]) -> dict[str, NodeLoadAverage]:
        """Return the load of each node that has one; `nodes` has their cores, without any all load averages count.

        Raises BadInputError, ThrottledError and UnavailableError.
        """
        times = self._averages.decode(self._client.query(build_node_load_time_query(self._settings), at))
        readings = self._averages.decode(self._client.query(build_node_load_query(self._settings), at)) if times else []
        named = {get_node_of_reading(reading) for reading in readings}
        if nodes.keys() - named and named - nodes.keys():
            names = self._read_node_names(at)
            readings, times = _add_node_names(readings, names, nodes), _add_node_names(times, names, nodes)
        self.trusted_exporters = choose_trusted_exporters(readings, nodes)
        loads = _to_samples(self.trusted_exporters.select(readings), self.trusted_exporters.select(times))
        missing = nodes.keys() - loads.keys() - self.trusted_exporters.disputed_nodes
        if missing and self._settings.labels.id:
            loads |= self._read_root_groups(at, {node: nodes[node] for node in missing})
        return loads

    def _read_node_names(self, at: int) -> Mapping[Instance, str]:
        """Return the node name that each exporter reports, if it reports only one."""
        reported: dict[Instance, set[str]] = {}
        for one in self._names.decode(self._client.query(build_node_name_query(self._settings), at)):
            reported.setdefault((one.job, one.instance), set()).add(one.node)
        return {instance: next(iter(names)) for instance, names in reported.items() if len(names) == 1}

    def _read_root_groups(self, at: int, nodes: Mapping[str, float]) -> dict[str, NodeLoadAverage]:
        metrics = self._settings.metrics
        times = self._query_roots(build_root_group_time_query(self._settings, metrics.cpu), at)
        if not times.keys() & nodes.keys():
            return {}
        used = self._query_roots(build_root_cgroup_query(self._settings, metrics.cpu), at)
        found = used.keys() & nodes.keys() & times.keys()
        if not found:
            return {}
        waiting = self._query_roots(build_root_cgroup_query(self._settings, metrics.cpu_waiting), at)
        loads = {node: compute_load_from_root_cgroup(used[node], waiting.get(node), nodes[node]) for node in found}
        return {node: NodeLoadAverage(load, times[node]) for node, load in loads.items()}

    def _query_roots(self, query: str, at: int) -> dict[str, float]:
        return _by_node(self._roots.decode(self._client.query(query, at)))


def count_cores(snapshot: ClusterSnapshot) -> dict[str, float]:
    """Return the cores of each node; if they are unknown, those that pods may have."""
    return {
        node.name: (node.cpu_capacity_millicores or node.allocatable.cpu_millicores) / 1000 for node in snapshot.nodes
    }


def compute_load_from_root_cgroup(used: float, waiting: float | None, cores: float) -> float:
    """Return a node's load from the cores that its root control group uses and the share of time that tasks wait."""
    # Scrape times are not exact, so a busy node may seem to use a little more than its cores.
    return used * (1 + min(1.0, waiting)) if waiting else min(used, cores)


def _add_node_names(
    readings: Iterable[NodeLoadValue], names: Mapping[Instance, str], nodes: Collection[str]
) -> list[NodeLoadValue]:
    """Set the node name that the exporter reports, for values of unknown nodes."""
    return [
        one if get_node_of_reading(one) in nodes else replace(one, node=names.get((one.job, one.instance), one.node))
        for one in readings
    ]


def _to_samples(readings: Iterable[NodeLoadValue], read_at: Iterable[NodeLoadValue]) -> dict[str, NodeLoadAverage]:
    times = _by_node(read_at)
    return {node: NodeLoadAverage(load, times[node]) for node, load in _by_node(readings).items() if node in times}


def _by_node(readings: Iterable[NodeLoadValue]) -> dict[str, float]:
    values: dict[str, float] = {}
    for reading in readings:
        name = get_node_of_reading(reading)
        if name and np.isfinite(reading.value):
            values[name] = max(reading.value, values.get(name, 0.0))
    return values

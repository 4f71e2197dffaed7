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
    build_root_group_query,
    build_root_group_time_query,
)
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.usage import NodeLoadSample

# Which node exporters are believed: one for each node, of the jobs that report as many nodes as any. Any pod may expose load averages, of nodes that it names itself or of the one that it runs on.

# Of the nodes of the job with the most: as good as that.
NEARLY_ALL_SHARE = 0.8
# Load averages of one machine, scraped within a minute of each other, are closer than this, and than this share.
LOAD_TOLERANCE = 0.5
LOAD_TOLERANCE_SHARE = 0.25

Instance = tuple[str, str]


@dataclass(frozen=True, slots=True)
class TrustedNodeExporters:
    """The (job, instance) pairs whose readings count, and the nodes of which these say different things.

    `left_out` has one reading of each job of which some do not count.
    """

    instances: frozenset[Instance]
    disputed: frozenset[str]
    ignored: Sequence[NodeLoadValue] = ()

    def select(self, readings: Iterable[NodeLoadValue]) -> list[NodeLoadValue]:
        """Return the readings that count."""
        return [
            one
            for one in readings
            if (one.job, one.instance) in self.instances and get_node_of_reading(one) not in self.disputed
        ]


def choose_trusted_exporters(readings: Sequence[NodeLoadValue], nodes: Collection[str] = ()) -> TrustedNodeExporters:
    """Tell which exporters are believed, from one look at all of them; `nodes` are those that there are, if known."""
    known = [one for one in readings if get_node_of_reading(one) and np.isfinite(one.value)]
    names: dict[Instance, set[str]] = defaultdict(set)
    for one in known:
        names[one.job, one.instance].add(get_node_of_reading(one))
    jobs: dict[str, set[str]] = defaultdict(set)
    for (job, _), named in names.items():
        # One exporter runs on one node.
        if len(named) == 1 and (not nodes or named <= set(nodes)):
            jobs[job] |= named
    most = max((len(named) for named in jobs.values()), default=0)
    chosen = {job for job, named in jobs.items() if len(named) >= NEARLY_ALL_SHARE * most}
    instances = frozenset(one for one, named in names.items() if len(named) == 1 and one[0] in chosen)
    loads: dict[str, list[float]] = defaultdict(list)
    for one in known:
        if (one.job, one.instance) in instances:
            loads[get_node_of_reading(one)].append(one.value)
    disputed = frozenset(node for node, values in loads.items() if _apart(min(values), max(values)))
    left_out = {one.job: one for one in known if (one.job, one.instance) not in instances}
    return TrustedNodeExporters(instances, disputed, list(left_out.values()))


def get_node_of_reading(reading: NodeLoadValue) -> str:
    """Return the node that a reading is about: by its label, else the host of its exporter."""
    return reading.node or reading.instance.rpartition(":")[0] or reading.instance


def _apart(low: float, high: float) -> bool:
    return high - low > max(LOAD_TOLERANCE, LOAD_TOLERANCE_SHARE * high)


_NODE_NAME = "nodename"


class NodeLoadReader:
    """Reads the loads of nodes; blocks. `believed` says whose averages counted at the last reading."""

    def __init__(self, settings: PrometheusSettings, client: PrometheusClient) -> None:
        self._settings = settings
        self._client = client
        self._averages = NodeLoadDecoder(settings.node_load_label, settings.accept_partial)
        self._names = NodeLoadDecoder(_NODE_NAME, settings.accept_partial)
        self._roots = NodeLoadDecoder(settings.labels.node, settings.accept_partial)
        self.trusted_exporters = choose_trusted_exporters(())

    def read(self, at: int, nodes: Mapping[str, float]) -> dict[str, NodeLoadSample]:
        """Return the load of each node with a reading; `nodes` has their cores, without any all load averages count.

        Raises BadInputError, Throttled, Unavailable.
        """
        taken = self._averages.loads(self._client.query(build_node_load_time_query(self._settings), at))
        readings = self._averages.loads(self._client.query(build_node_load_query(self._settings), at)) if taken else []
        named = {get_node_of_reading(reading) for reading in readings}
        if nodes.keys() - named and named - nodes.keys():
            names = self._names_of_instances(at)
            readings, taken = _renamed(readings, names, nodes), _renamed(taken, names, nodes)
        self.trusted_exporters = choose_trusted_exporters(readings, nodes)
        loads = _samples(self.trusted_exporters.select(readings), self.trusted_exporters.select(taken))
        missing = nodes.keys() - loads.keys() - self.trusted_exporters.disputed
        if missing and self._settings.labels.id:
            loads |= self._root_groups(at, {node: nodes[node] for node in missing})
        return loads

    def _names_of_instances(self, at: int) -> Mapping[Instance, str]:
        """Return the name that each exporter reports; one of two names is none."""
        reported: dict[Instance, set[str]] = {}
        for one in self._names.loads(self._client.query(build_node_name_query(self._settings), at)):
            reported.setdefault((one.job, one.instance), set()).add(one.node)
        return {instance: next(iter(names)) for instance, names in reported.items() if len(names) == 1}

    def _root_groups(self, at: int, nodes: Mapping[str, float]) -> dict[str, NodeLoadSample]:
        metrics = self._settings.metrics
        taken = self._ask_roots(build_root_group_time_query(self._settings, metrics.cpu), at)
        if not taken.keys() & nodes.keys():
            return {}
        used = self._ask_roots(build_root_group_query(self._settings, metrics.cpu), at)
        found = used.keys() & nodes.keys() & taken.keys()
        if not found:
            return {}
        waiting = self._ask_roots(build_root_group_query(self._settings, metrics.cpu_waiting), at)
        loads = {node: compute_load_from_root_group(used[node], waiting.get(node), nodes[node]) for node in found}
        return {node: NodeLoadSample(load, taken[node]) for node, load in loads.items()}

    def _ask_roots(self, query: str, at: int) -> dict[str, float]:
        return _by_node(self._roots.loads(self._client.query(query, at)))


def count_cores(snapshot: ClusterSnapshot) -> dict[str, float]:
    """Return how many cores each node has; where that is unknown, how many pods may have."""
    return {
        node.name: (node.cpu_capacity_millicores or node.allocatable.cpu_millicores) / 1000 for node in snapshot.nodes
    }


def compute_load_from_root_group(used: float, waiting: float | None, cores: float) -> float:
    """Return a node's load from the cores that its root control group uses, and the share of time that tasks wait."""
    # Scrapes are not on the dot, so a busy node seems to use a little more than it has.
    return used * (1 + min(1.0, waiting)) if waiting else min(used, cores)


def _renamed(
    readings: Iterable[NodeLoadValue], names: Mapping[Instance, str], nodes: Collection[str]
) -> list[NodeLoadValue]:
    """Give what is not known as a node the name that its exporter reports, if it does."""
    return [
        one if get_node_of_reading(one) in nodes else replace(one, node=names.get((one.job, one.instance), one.node))
        for one in readings
    ]


def _samples(readings: Iterable[NodeLoadValue], taken: Iterable[NodeLoadValue]) -> dict[str, NodeLoadSample]:
    times = _by_node(taken)
    return {node: NodeLoadSample(load, times[node]) for node, load in _by_node(readings).items() if node in times}


def _by_node(readings: Iterable[NodeLoadValue]) -> dict[str, float]:
    values: dict[str, float] = {}
    for reading in readings:
        name = get_node_of_reading(reading)
        if name and np.isfinite(reading.value):
            values[name] = max(reading.value, values.get(name, 0.0))
    return values

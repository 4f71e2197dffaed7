"""Which node exporters are believed: one for each node, of the jobs that report as many nodes as any.

Any pod may expose load averages, of nodes that it names itself or of the one that it runs on.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from cruise.adapters.prometheus.matrix import NodeLoad

# Of the nodes of the job with the most: as good as that.
NEARLY_ALL = 0.8
# Load averages of one machine, scraped within a minute of each other, are closer than this, and than this share.
CLOSE_LOAD = 0.5
CLOSE_SHARE = 0.25

Instance = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Believed:
    """The (job, instance) pairs whose readings count, and the nodes of which these say different things.

    `left_out` has one reading of each job of which some do not count.
    """

    instances: frozenset[Instance]
    disputed: frozenset[str]
    left_out: Sequence[NodeLoad] = ()

    def of(self, readings: Iterable[NodeLoad]) -> list[NodeLoad]:
        """Return the readings that count."""
        return [
            one for one in readings if (one.job, one.instance) in self.instances and node_of(one) not in self.disputed
        ]


def believed(readings: Sequence[NodeLoad], nodes: Collection[str] = ()) -> Believed:
    """Tell which exporters are believed, from one look at all of them; `nodes` are those that there are, if known."""
    known = [one for one in readings if node_of(one) and np.isfinite(one.value)]
    names: dict[Instance, set[str]] = defaultdict(set)
    for one in known:
        names[one.job, one.instance].add(node_of(one))
    jobs: dict[str, set[str]] = defaultdict(set)
    for (job, _), named in names.items():
        # One exporter runs on one node.
        if len(named) == 1 and (not nodes or named <= set(nodes)):
            jobs[job] |= named
    most = max((len(named) for named in jobs.values()), default=0)
    chosen = {job for job, named in jobs.items() if len(named) >= NEARLY_ALL * most}
    instances = frozenset(one for one, named in names.items() if len(named) == 1 and one[0] in chosen)
    loads: dict[str, list[float]] = defaultdict(list)
    for one in known:
        if (one.job, one.instance) in instances:
            loads[node_of(one)].append(one.value)
    disputed = frozenset(node for node, values in loads.items() if _apart(min(values), max(values)))
    left_out = {one.job: one for one in known if (one.job, one.instance) not in instances}
    return Believed(instances, disputed, list(left_out.values()))


def node_of(reading: NodeLoad) -> str:
    """Return the node that a reading is about: by its label, else the host of its exporter."""
    return reading.node or reading.instance.rpartition(":")[0] or reading.instance


def _apart(low: float, high: float) -> bool:
    return high - low > max(CLOSE_LOAD, CLOSE_SHARE * high)

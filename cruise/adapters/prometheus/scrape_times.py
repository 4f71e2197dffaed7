"""When nodes were scraped, asked for one container of each, and only for nodes whose counters all jump together.

What a server answers at a grid time is the last scrape before it. Where scrapes are irregular, or one is missed, their
distance is not a step, and growth over the step is not the use: half a minute less of it, then half a minute more.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from heapq import nsmallest
from threading import Lock

import numpy as np
import structlog

from cruise.adapters.prometheus.client import PrometheusClient
from cruise.adapters.prometheus.matrix import MatrixDecoder
from cruise.adapters.prometheus.queries import usage_selector
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.domain.arrays import Float64Array
from cruise.domain.cluster import Pod, Snapshot
from cruise.errors import CruiseError

log = structlog.get_logger()

# Nodes in one question, whose text has the names of their pods.
NODES_TOGETHER = 100
# What containers of one node differ by where the server keeps its own times, and not those of each container.
TOLERANCE_SECONDS = 1.0
# For how long a look at a second pod of a node holds.
CHECK_SECONDS = 3600
_SPANS_KEPT = 8


class ScrapeTimes:
    """Asks a server; blocks, and may be shared by threads, which then wait for one answer."""

    def __init__(self, settings: PrometheusSettings, client: PrometheusClient) -> None:
        self._client = client
        self._matrices = MatrixDecoder(settings.labels, settings.accept_partial)
        self._pods: dict[str, list[str]] = {}
        self._known: dict[tuple[int, int], dict[str, Float64Array | None]] = {}
        self._checked: dict[str, tuple[int, bool]] = {}
        self._lock = Lock()

    def choose(self, snapshot: Snapshot) -> None:
        """Take two pods of each node to ask for: with few containers, and names that no other pod has."""
        names = Counter(pod.name for pod in snapshot.pods)
        by_node: dict[str, list[Pod]] = {}
        for pod in snapshot.pods:
            if pod.node is not None and pod.phase == "Running":
                by_node.setdefault(pod.node, []).append(pod)
        self._pods = {
            node: [pod.name for pod in nsmallest(2, pods, lambda pod: (names[pod.name], len(pod.containers), pod.name))]
            for node, pods in by_node.items()
        }

    def ages(
        self, settings: PrometheusSettings, nodes: Collection[str], first: int, last: int
    ) -> Mapping[str, Float64Array]:
        """Return for nodes by how many seconds their last scrape preceded each grid time, NaN where there was none.

        A node is missing of which nothing certain is known. A server that does not answer is no reason not to read.
        """
        with self._lock:
            known = self._known.setdefault((first, last), {})
            new = [node for node in sorted(nodes) if node not in known and node in self._pods]
            for start in range(0, len(new), NODES_TOGETHER):
                known.update(self._ask(settings, new[start : start + NODES_TOGETHER], first, last))
            while len(self._known) > _SPANS_KEPT:
                del self._known[next(iter(self._known))]
            return {node: ages for node in nodes if (ages := known.get(node)) is not None}

    def _ask(
        self, settings: PrometheusSettings, nodes: Sequence[str], first: int, last: int
    ) -> dict[str, Float64Array | None]:
        try:
            self._check(settings, [node for node in nodes if self._is_due(node, last)], last)
            alike = {node: self._pods[node][:1] for node in nodes if self._checked[node][1]}
            times = self._times(settings, alike, first, last) if alike else {}
        except CruiseError as error:
            log.info("times of scrapes not read", why=str(error))
            times = {}
        grid = np.arange(first, last + 1, settings.step_seconds)
        return {node: grid - times[node][0] if node in times else None for node in nodes}

    def _is_due(self, node: str, at: int) -> bool:
        checked = self._checked.get(node)
        return checked is None or not abs(at - checked[0]) < CHECK_SECONDS

    def _check(self, settings: PrometheusSettings, nodes: Sequence[str], at: int) -> None:
        """See whether containers of a node have one time; where each has its own, none speaks for the others."""
        if not nodes:
            return
        times = self._times(settings, {node: self._pods[node] for node in nodes}, at, at)
        for node in nodes:
            found = np.array(times.get(node, [[np.nan]]))
            self._checked[node] = (at, not bool((np.ptp(found, axis=0) > TOLERANCE_SECONDS).any()))

    def _times(
        self, settings: PrometheusSettings, pods: Mapping[str, Sequence[str]], first: int, last: int
    ) -> dict[str, list[Float64Array]]:
        """Return for each node the times of its pods' scrapes."""
        labels, step = settings.labels, settings.step_seconds
        names = "|".join(name.replace(".", "[.]") for of_node in pods.values() for name in of_node)
        series = usage_selector(settings, settings.metrics.memory, names)
        kept = ", ".join(filter(None, (labels.node, labels.pod, labels.container, labels.id)))
        # Of a pair of servers the one that is behind, since of two counters the lower counts.
        query = f"min by ({kept}) (timestamp({series}))"
        matrix = self._matrices.matrix(self._client.query_range(query, first, last, step), first, last, step)
        newest: dict[tuple[str, str], Float64Array] = {}
        for name, values in zip(matrix.series, matrix.values, strict=True):
            if name.pod in pods.get(name.node, ()):
                # A container that was restarted lingers under its old id, whose last scrape is long ago.
                newest[name.node, name.pod] = np.fmax(values, newest.get((name.node, name.pod), values))
        found: dict[str, list[Float64Array]] = {}
        for (node, _), values in newest.items():
            found.setdefault(node, []).append(values)
        return found
